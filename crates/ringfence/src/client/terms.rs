//! The setters that the kinds of locks share. Each kind hands them on to the lock inside.

/// Setters that hand on to the lock in `$field`: those that every kind has, and the ones named.
macro_rules! terms {
    ($field:tt: $($name:ident),* $(,)?) => {
        $crate::client::terms::term! { $field ttl }
        $crate::client::terms::term! { $field wait }
        $crate::client::terms::term! { $field min_validity }
        $crate::client::terms::term! { $field attempts }
        $crate::client::terms::term! { $field no_quorum_after }
        $( $crate::client::terms::term! { $field $name } )*
    };
}

/// One setter. The full text is at the same method of [`Lock`](crate::Lock).
macro_rules! term {
    ($field:tt ttl) => {
        /// How long the nodes keep the lock unless it is renewed. Default: the client's, which is
        /// 10 s. See [`Lock::ttl`](crate::Lock::ttl).
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.$field = self.$field.ttl(ttl);
            self
        }
    };
    ($field:tt wait) => {
        /// How long to wait while other clients hold the lock; `None` is without a limit, which is
        /// the default. See [`Lock::wait`](crate::Lock::wait).
        pub fn wait(mut self, wait: impl Into<Option<std::time::Duration>>) -> Self {
            self.$field = self.$field.wait(wait);
            self
        }
    };
    ($field:tt min_validity) => {
        /// A grant with less time left than this is undone and not returned. Default: a tenth of
        /// the TTL. See [`Lock::min_validity`](crate::Lock::min_validity).
        pub fn min_validity(mut self, min_validity: std::time::Duration) -> Self {
            self.$field = self.$field.min_validity(min_validity);
            self
        }
    };
    ($field:tt attempts) => {
        /// The largest number of attempts. Default: as many as fit into the wait. See
        /// [`Lock::attempts`](crate::Lock::attempts).
        pub fn attempts(mut self, attempts: u32) -> Self {
            self.$field = self.$field.attempts(attempts);
            self
        }
    };
    ($field:tt no_quorum_after) => {
        /// How long to go on while no majority of the nodes answers. Default: 15 s, or the wait if
        /// that is shorter. See [`Lock::no_quorum_after`](crate::Lock::no_quorum_after).
        pub fn no_quorum_after(mut self, span: std::time::Duration) -> Self {
            self.$field = self.$field.no_quorum_after(span);
            self
        }
    };
    ($field:tt label) => {
        /// The holder's label, for people. Default: the client's label. See
        /// [`Lock::label`](crate::Lock::label).
        pub fn label(mut self, label: &str) -> Self {
            self.$field = self.$field.label(label);
            self
        }
    };
    ($field:tt renew) => {
        /// Whether it renews itself while its guard lives. Default: yes. See
        /// [`Lock::renew`](crate::Lock::renew).
        pub fn renew(mut self, renew: bool) -> Self {
            self.$field = self.$field.renew(renew);
            self
        }
    };
    ($field:tt max_hold) => {
        /// How long it may be held in all, renewals included; `None` is without a limit. Default:
        /// one hour, and no limit for an election. See [`Lock::max_hold`](crate::Lock::max_hold).
        pub fn max_hold(mut self, max_hold: impl Into<Option<std::time::Duration>>) -> Self {
            self.$field = self.$field.max_hold(max_hold);
            self
        }
    };
    ($field:tt owner) => {
        /// Takes it for `owner`, which can take it again while it holds it. See
        /// [`Lock::owner`](crate::Lock::owner).
        pub fn owner(mut self, owner: &crate::Owner) -> Self {
            self.$field = self.$field.owner(owner);
            self
        }
    };
    ($field:tt lock_delay) => {
        /// How much longer the nodes keep it from other clients after a holder that was lost.
        /// Default: zero. See [`Lock::lock_delay`](crate::Lock::lock_delay).
        pub fn lock_delay(mut self, delay: std::time::Duration) -> Self {
            self.$field = self.$field.lock_delay(delay);
            self
        }
    };
    ($field:tt hold_at_least) => {
        /// How long after the grant no other client gets the lock, even if it is released sooner.
        /// Default: zero. See [`Lock::hold_at_least`](crate::Lock::hold_at_least).
        pub fn hold_at_least(mut self, span: std::time::Duration) -> Self {
            self.$field = self.$field.hold_at_least(span);
            self
        }
    };
}

pub(crate) use {term, terms};
