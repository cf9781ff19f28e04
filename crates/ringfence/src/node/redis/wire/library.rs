//! A connection of the crate `redis`, for a client that the caller gave with TLS settings of its
//! own: only that client can make the connection.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, PushInfo, RedisResult, Value};
use tokio::sync::Notify;

use super::resp::Excess;
use super::wake_listeners::WakeListeners;

type PendingAnswers = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A connection of the crate `redis`.
pub(crate) struct Library {
    connection: MultiplexedConnection,
    /// Never dropped before they complete, while the connection is in use: the crate does not send
    /// a queued request whose future was dropped.
    pub(crate) answers: FuturesOrdered<PendingAnswers>,
    /// Receives pushes, if the server can push.
    pub(crate) pushes: Option<Arc<Pushes>>,
}

/// Receives the pushes on a connection of the crate `redis`.
pub(crate) struct Pushes {
    listeners: Arc<WakeListeners>,
    /// How many commands were sent since the last push.
    calls: AtomicU32,
    flooded: Notify,
}

impl Pushes {
    pub(crate) fn new(listeners: Arc<WakeListeners>) -> Self {
        Self {
            listeners,
            calls: AtomicU32::new(0),
            flooded: Notify::new(),
        }
    }

    /// Delivers a push. Ends the connection if there are too many.
    pub(crate) fn receive(&self, push: &PushInfo) {
        let lengths = push.data.iter().map(|value| match value {
            Value::BulkString(bytes) => bytes.len(),
            _ => 0,
        });
        let calls = self.calls.swap(0, Ordering::Relaxed);
        if self.listeners.receive(push, lengths.sum(), calls).is_err() {
            self.flooded.notify_one();
        }
    }
}

impl Library {
    pub(crate) fn new(connection: MultiplexedConnection, pushes: Option<Arc<Pushes>>) -> Self {
        Self {
            connection,
            answers: FuturesOrdered::new(),
            pushes,
        }
    }

    pub(crate) fn send(&mut self, batch: Pipeline) {
        let (mut connection, count) = (self.connection.clone(), batch.len());
        if let Some(pushes) = &self.pushes {
            let calls = u32::try_from(count).unwrap_or(u32::MAX);
            pushes.calls.fetch_add(calls, Ordering::Relaxed);
        }
        self.answers.push_back(Box::pin(async move {
            connection.send_packed_commands(&batch, 0, count).await
        }));
    }

    /// See [`answers`](super::Connection::answers).
    pub(crate) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
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
        pushes.receive(&push);
        assert_eq!(pushes.flooded.notified().now_or_never(), None);
        // More megabytes than a server may push at once.
        for _ in 0..40 {
            pushes.receive(&push);
        }
        assert_eq!(pushes.flooded.notified().now_or_never(), Some(()));
    }
}
