//! What all guards have in common, handed on by the kinds that are a guard inside.

/// What can be done with whatever is held, handed on to the guard in `$field`: what it means is said
/// once, there.
macro_rules! held {
    ($field:tt) => {
        /// See [`Guard::check`](crate::Guard::check).
        pub fn check(&self) -> Result<(), crate::Lost> {
            self.$field.check()
        }

        /// See [`Guard::remaining`](crate::Guard::remaining).
        pub fn remaining(&self) -> std::time::Duration {
            self.$field.remaining()
        }

        /// See [`Guard::deadline`](crate::Guard::deadline).
        pub fn deadline(&self) -> crate::time::Timestamp {
            self.$field.deadline()
        }

        /// See [`Guard::extend`](crate::Guard::extend).
        pub async fn extend(&self, ttl: std::time::Duration) -> Result<(), crate::ExtendError> {
            self.$field.extend(ttl).await
        }

        /// See [`Guard::lost`](crate::Guard::lost).
        pub async fn lost(&self) -> crate::Lost {
            self.$field.lost().await
        }

        /// See [`Guard::votes`](crate::Guard::votes).
        pub fn votes(&self) -> crate::Votes {
            self.$field.votes()
        }

        /// See [`Guard::durability`](crate::Guard::durability).
        pub fn durability(&self) -> crate::node::Tier {
            self.$field.durability()
        }

        /// See [`Guard::release`](crate::Guard::release).
        pub async fn release(self) -> Result<(), crate::ReleaseError> {
            self.$field.release().await
        }
    };
}

pub(super) use held;
