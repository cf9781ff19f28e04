//! Test nodes that wrap another node: they change a part of it and delegate the rest.

/// The methods of [`ringfence::node::Node`] that are delegated to the node in a field.
macro_rules! delegate {
    ($field:tt:) => {};
    ($field:tt: name $($rest:ident)*) => {
        fn name(&self) -> &str {
            self.$field.name()
        }
        delegate!($field: $($rest)*);
    };
    ($field:tt: send $($rest:ident)*) => {
        fn send(&self, call: ringfence::node::Call) {
            self.$field.send(call);
        }
        delegate!($field: $($rest)*);
    };
    ($field:tt: listen $($rest:ident)*) => {
        fn listen(&self, client: &str, to: std::sync::Arc<dyn ringfence::node::Hear>) {
            self.$field.listen(client, to);
        }
        delegate!($field: $($rest)*);
    };
    ($field:tt: probe $($rest:ident)*) => {
        fn probe(&self, done: ringfence::node::Completion<ringfence::node::Facts>) {
            self.$field.probe(done);
        }
        delegate!($field: $($rest)*);
    };
    ($field:tt: join $($rest:ident)*) => {
        fn join(
            &self,
            group: ringfence_core::group::Group,
            done: ringfence::node::Completion<ringfence::node::Facts>,
        ) {
            self.$field.join(group, done);
        }
        delegate!($field: $($rest)*);
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
        delegate!($field: $($rest)*);
    };
}

pub(crate) use delegate;
