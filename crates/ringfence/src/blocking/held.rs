//! What all guards without async have in common: what their async twins tell is handed on, what they
//! wait for is waited for.

use std::sync::Arc;

use super::Engine;

/// A guard without async: its async twin of the same name, and the engine that it blocks on.
macro_rules! guard {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        // The guard stands first: it is dropped, and its release begun, before the engine goes.
        pub struct $name {
            guard: crate::client::$name,
            engine: std::sync::Arc<crate::blocking::Engine>,
        }

        impl crate::blocking::held::Blocking for $name {
            type Twin = crate::client::$name;

            fn new(guard: Self::Twin, engine: std::sync::Arc<crate::blocking::Engine>) -> Self {
                Self { guard, engine }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.guard.fmt(f)
            }
        }
    };
}

/// A guard whose async twin is `Twin`.
pub(super) trait Blocking {
    type Twin;

    fn new(guard: Self::Twin, engine: Arc<Engine>) -> Self;
}

/// What the guard in `guard` tells without blocking.
macro_rules! getters {
    ($($name:ident -> $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("See [`crate::Guard::", stringify!($name), "`].")]
            pub fn $name(&self) -> $type {
                self.guard.$name()
            }
        )*
    };
}

/// What can be done with whatever is held: the guard in `guard`, on the `engine` beside it.
macro_rules! held {
    () => {
        crate::blocking::held::getters! {
            check -> Result<(), crate::Lost>,
            remaining -> std::time::Duration,
            deadline -> std::time::Instant,
            exact_deadline -> crate::clock::Timestamp,
            votes -> crate::Votes,
            durability -> crate::node::Tier,
        }

        /// See [`crate::Guard::extend`].
        pub fn extend(&self, ttl: std::time::Duration) -> Result<(), crate::ExtendError> {
            self.engine.run(self.guard.extend(ttl))
        }

        /// Blocks until it is lost. See [`crate::Guard::lost`].
        pub fn lost(&self) -> crate::Lost {
            self.engine.run(self.guard.lost())
        }

        /// See [`crate::Guard::release`].
        pub fn release(self) -> Result<(), crate::ReleaseError> {
            self.engine.run(self.guard.release())
        }
    };
}

pub(super) use {getters, guard, held};
