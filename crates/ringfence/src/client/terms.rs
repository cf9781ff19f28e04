//! The terms of a lock, handed on by the kinds that are a lock inside.

/// Setters that hand on to the lock in `$field`: what they mean is said once, there.
macro_rules! terms {
    ($field:tt: $($name:ident($argument:ident: $type:ty)),* $(,)?) => {
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
