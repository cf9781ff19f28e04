//! A node that wraps another: it does a part of what a node does, and leaves the rest to the other.

/// The methods of [`ringfence::node::Node`] that are left to the node in a field.
macro_rules! leave_to {
    ($field:tt:) => {};
    ($field:tt: name $($rest:ident)*) => {
        fn name(&self) -> &str {
            self.$field.name()
        }
        leave_to!($field: $($rest)*);
    };
    ($field:tt: send $($rest:ident)*) => {
        fn send(&self, call: ringfence::node::Call) {
            self.$field.send(call);
        }
        leave_to!($field: $($rest)*);
    };
    ($field:tt: listen $($rest:ident)*) => {
        fn listen(&self, client: &str, to: std::sync::Arc<dyn ringfence::node::Hear>) {
            self.$field.listen(client, to);
        }
        leave_to!($field: $($rest)*);
    };
    ($field:tt: probe $($rest:ident)*) => {
        fn probe(&self, done: ringfence::node::Completion<ringfence::node::Facts>) {
            self.$field.probe(done);
        }
        leave_to!($field: $($rest)*);
    };
    ($field:tt: join $($rest:ident)*) => {
        fn join(
            &self,
            group: ringfence_core::group::Group,
            done: ringfence::node::Completion<ringfence::node::Facts>,
        ) {
            self.$field.join(group, done);
        }
        leave_to!($field: $($rest)*);
    };
    ($field:tt: init $($rest:ident)*) => {
        fn init(
            &self,
            group: ringfence_core::group::Group,
            mode: ringfence::node::InitMode,
            done: ringfence::node::Completion<ringfence::node::Facts>,
        ) {
            self.$field.init(group, mode, done);
        }
        leave_to!($field: $($rest)*);
    };
}

pub(crate) use leave_to;
