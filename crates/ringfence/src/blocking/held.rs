//! What all guards without async have in common. Each hands on to its async twin, and blocks where
//! the twin waits.

use std::sync::Arc;

use super::Engine;

/// A guard without async: its async twin of the same name, and the engine that it blocks on.
macro_rules! guard {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        // The order matters: the guard is dropped, and its release begun, before the engine goes.
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

        // As its async twin: a panic in the work leaves the guard intact.
        impl std::panic::UnwindSafe for $name {}
        impl std::panic::RefUnwindSafe for $name {}

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

/// The methods of a guard that hand on to its async twin, on the `engine` beside it.
macro_rules! held {
    () => {
        /// What it holds, for work under it.
        pub(super) fn held_lock(&self) -> &std::sync::Arc<crate::runtime::hold::HeldLock> {
            self.guard.held_lock()
        }

        /// The name, or the names separated by commas.
        pub fn name(&self) -> &str {
            self.guard.name()
        }

        /// Checks on the local clock that this is still held. See [`crate::Guard::check`].
        ///
        /// # Errors
        /// Why it is lost.
        pub fn check(&self) -> Result<(), crate::Lost> {
            self.guard.check()
        }

        /// The time until the deadline; zero once it is lost. Exact across a suspend.
        pub fn remaining(&self) -> std::time::Duration {
            self.guard.remaining()
        }

        /// The moment until which this is certainly held, unless it is extended. See
        /// [`crate::Guard::deadline`].
        pub fn deadline(&self) -> std::time::Instant {
            self.guard.deadline()
        }

        /// The deadline on the client's own clock, which counts suspend. See
        /// [`crate::Guard::exact_deadline`].
        pub fn exact_deadline(&self) -> crate::clock::Timestamp {
            self.guard.exact_deadline()
        }

        /// Every node's vote in the latest round, in node order.
        pub fn votes(&self) -> crate::Votes {
            self.guard.votes()
        }

        /// What crashes of nodes may cost this grant. See [`crate::Guard::durability`].
        pub fn durability(&self) -> crate::Tier {
            self.guard.durability()
        }

        /// Extends it to at least `ttl` from now. See [`crate::Guard::extend`].
        ///
        /// # Errors
        /// If it is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
        #[track_caller]
        pub fn extend(&self, ttl: std::time::Duration) -> Result<(), crate::ExtendError> {
            self.engine.run(self.guard.extend(ttl))
        }

        /// Blocks until it is lost. See [`crate::Guard::lost`].
        #[track_caller]
        pub fn lost(&self) -> crate::Lost {
            self.engine.run(self.guard.lost())
        }

        /// Releases it and waits for a majority of the nodes to confirm. See
        /// [`crate::Guard::release`].
        ///
        /// # Errors
        /// If it had been lost before, or if no majority confirmed.
        #[track_caller]
        pub fn release(self) -> Result<(), crate::ReleaseError> {
            self.engine.run(self.guard.release())
        }
    };
}

/// The fence and the token of a guard that has them.
macro_rules! fenced {
    () => {
        /// The fence: send it with every write, so that the resource can refuse a lower one. See
        /// the async guard of the same name.
        pub fn fence(&self) -> u64 {
            self.guard.fence()
        }

        /// The token that identifies this hold. A client that has it can release the lock.
        pub fn token(&self) -> &crate::Token {
            self.guard.token()
        }
    };
}

/// Does `$work` under `$guard` and releases it.
macro_rules! hold {
    ($guard:expr, $work:ident) => {{
        let guard = $guard;
        let under = crate::client::hold_work::WorkUnder::begin(guard.held_lock());
        let done = $work(&guard);
        drop(under);
        let held = guard.check();
        Ok(crate::client::WorkDone::new(done, held, guard.release()))
    }};
}

pub(super) use {fenced, guard, held, hold};
