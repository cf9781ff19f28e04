//! What all guards without async have in common: what their async twins tell is handed on, what they
//! wait for is waited for.

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
            deadline -> crate::time::Timestamp,
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

pub(super) use {getters, held};
