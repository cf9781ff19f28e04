//! The terms of a lock, handed on by the kinds that are a lock inside.

/// Setters that hand on to the lock in `$field`: those that every kind has, and those that are named.
/// What they mean is said once, there.
macro_rules! terms {
    ($field:tt: $($name:ident($argument:ident: $type:ty)),* $(,)?) => {
        terms! {
            @each $field:
            ttl(ttl: Duration),
            wait(wait: Duration),
            min_validity(min_validity: Duration),
            attempts(attempts: u32),
            no_quorum_after(span: Duration),
            $($name($argument: $type),)*
        }
    };
    (@each $field:tt: $($name:ident($argument:ident: $type:ty),)*) => {
        $(
            #[doc = concat!("See [`Lock::", stringify!($name), "`](crate::Lock::", stringify!($name), ").")]
            pub fn $name(mut self, $argument: $type) -> Self {
                self.$field = self.$field.$name($argument);
                self
            }
        )*
    };
}

pub(crate) use terms;
