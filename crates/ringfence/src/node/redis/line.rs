//! One connection to one server that is logged in, and questions asked over it.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, RedisResult, Value};
use tokio::sync::Notify;

use super::bundle::Parcel;
use super::command::{By, Terms};
use super::ears::Ears;
use super::last_words::Remainder;
use super::limits::Excess;
use super::rights::Allowed;
use super::wire::Wire;

/// See the module.
pub(super) struct Line {
    kind: Kind,
    /// What our user may do here, once that was asked: whatever is refused is an entry in the server's
    /// ACL LOG.
    pub(super) allowed: Option<Allowed>,
}

enum Kind {
    /// The bytes are ours.
    Wire(Wire),
    /// The bytes are the client library's, because only it can make the connection.
    Library(Library),
}

type Answers = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A connection that the client library keeps.
pub(super) struct Library {
    connection: MultiplexedConnection,
    /// Never dropped before they complete, as long as the connection is of use: the library does not
    /// send a queued request whose future is gone.
    answers: FuturesOrdered<Answers>,
    /// What the server pushes, if it can.
    pushes: Option<Arc<Pushes>>,
}

/// What a server pushes on a connection that the client library keeps.
pub(super) struct Pushes {
    ears: Arc<Ears>,
    /// How many commands were sent since something was pushed.
    calls: AtomicU32,
    flooded: Notify,
}

impl Pushes {
    pub(super) fn new(ears: Arc<Ears>) -> Self {
        Self {
            ears,
            calls: AtomicU32::new(0),
            flooded: Notify::new(),
        }
    }

    /// Passes on what was pushed. The connection ends if it is too much.
    pub(super) fn hear(&self, push: &PushInfo) {
        let lengths = push.data.iter().map(|value| match value {
            Value::BulkString(bytes) => bytes.len(),
            _ => 0,
        });
        let calls = self.calls.swap(0, Ordering::Relaxed);
        if self.ears.hear(push, lengths.sum(), calls).is_err() {
            self.flooded.notify_one();
        }
    }
}

impl Line {
    pub(super) fn library(connection: MultiplexedConnection, pushes: Option<Arc<Pushes>>) -> Self {
        Self::new(Kind::Library(Library {
            connection,
            answers: FuturesOrdered::new(),
            pushes,
        }))
    }

    pub(super) fn wire(wire: Wire) -> Self {
        Self::new(Kind::Wire(wire))
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            allowed: None,
        }
    }

    /// Whether the server can push.
    pub(super) fn hears(&self) -> bool {
        match &self.kind {
            Kind::Wire(wire) => wire.hears(),
            Kind::Library(library) => library.pushes.is_some(),
        }
    }

    /// Whether our user may ask `CONFIG GET`, as far as is known.
    pub(super) fn may_ask_config(&self) -> bool {
        self.allowed.is_none_or(|allowed| allowed.config)
    }

    /// Whether our user may only look, as far as is known.
    pub(super) fn may_only_look(&self) -> bool {
        self.allowed.is_some_and(|allowed| !allowed.join)
    }

    /// `CONFIG GET` was refused, and is not asked for again.
    pub(super) fn refuse_config(&mut self) {
        if let Some(allowed) = &mut self.allowed {
            allowed.config = false;
        }
    }

    /// Has `parcels` sent by whoever waits for answers, as one batch.
    pub(super) fn send_parcels(&mut self, parcels: &[Parcel], terms: &Terms, by: By) {
        match &mut self.kind {
            Kind::Wire(wire) => {
                let calls = parcels.iter().map(|parcel| parcel.calls().len()).sum();
                wire.send_each(parcels, calls, |parcel, packer| {
                    parcel.write(terms, by, packer);
                });
            }
            Kind::Library(library) => {
                let mut batch = Pipeline::with_capacity(parcels.len());
                for parcel in parcels {
                    let mut cmd = Cmd::new();
                    parcel.write(terms, by, &mut cmd);
                    batch.add_command(cmd);
                }
                library.send(batch);
            }
        }
    }

    /// Has `batch` sent by whoever waits for answers.
    pub(super) fn send(&mut self, batch: Pipeline) {
        match &mut self.kind {
            Kind::Wire(wire) => wire.send(batch.cmd_iter()),
            Kind::Library(library) => library.send(batch),
        }
    }

    /// The answers to the oldest batch, errors of the server among them. Without one it ends only if
    /// the connection does. Safe to cancel.
    ///
    /// # Errors
    /// If the connection is of no more use.
    pub(super) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        match &mut self.kind {
            Kind::Wire(wire) => wire.answers().await,
            Kind::Library(library) => library.answers().await,
        }
    }

    /// Writes what can be written now, and waits for nothing. A connection that the client library
    /// keeps is written by the library's own task: there this does nothing.
    pub(super) async fn write_now(&mut self) {
        if let Kind::Wire(wire) = &mut self.kind {
            wire.write_now().await;
        }
    }

    /// Whether the bytes are ours.
    pub(super) fn is_wire(&self) -> bool {
        matches!(self.kind, Kind::Wire(_))
    }

    /// The connection without the runtime.
    pub(super) fn detach(self) -> Option<Remainder> {
        match self.kind {
            Kind::Wire(wire) => wire.detach(),
            Kind::Library(_) => None,
        }
    }

    /// Asks everything in `questions` at once and waits for all the answers, errors among them.
    pub(super) async fn ask(&mut self, questions: Pipeline) -> RedisResult<Vec<Value>> {
        let before = match &self.kind {
            Kind::Wire(wire) => wire.under_way(),
            Kind::Library(library) => library.answers.len(),
        };
        self.send(questions);
        // Whoever asked before and did not wait has no use for the answers.
        for _ in 0..before {
            self.answers().await?;
        }
        self.answers().await
    }
}

impl Library {
    fn send(&mut self, batch: Pipeline) {
        let (mut connection, count) = (self.connection.clone(), batch.len());
        if let Some(pushes) = &self.pushes {
            let calls = u32::try_from(count).unwrap_or(u32::MAX);
            pushes.calls.fetch_add(calls, Ordering::Relaxed);
        }
        self.answers.push_back(Box::pin(async move {
            connection.send_packed_commands(&batch, 0, count).await
        }));
    }

    /// See [`Line::answers`].
    async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        let flooded = async {
            match &self.pushes {
                Some(pushes) => pushes.flooded.notified().await,
                None => pending().await,
            }
        };
        let answered = async {
            match self.answers.next().await {
                Some(answers) => answers,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = flooded => Err(Excess::Pushes.into()),
            answers = answered => answers,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use redis::PushKind;

    use super::*;

    #[test]
    fn a_flood_over_a_connection_of_the_library_ends_it() {
        let pushes = Pushes::new(Arc::default());
        let push = PushInfo {
            kind: PushKind::Message,
            data: vec![Value::BulkString(vec![b'x'; 1 << 20])],
        };
        pushes.hear(&push);
        assert_eq!(pushes.flooded.notified().now_or_never(), None);
        // No server may push so many megabytes at once.
        for _ in 0..40 {
            pushes.hear(&push);
        }
        assert_eq!(pushes.flooded.notified().now_or_never(), Some(()));
    }
}
