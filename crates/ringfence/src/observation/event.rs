//! What a listener is told, and how: through a bounded queue, on a thread of its own. A listener
//! that is slow or panics delays no lock; what does not fit into the queue is dropped and counted.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::client::{AcquireError, Votes};
use crate::protocol::Lost;

use super::labels::{LockKind, NodeState, RenewalOutcome};

/// How many events may wait for the listener.
const QUEUE: usize = 1024;

/// Receives what happens to the locks of a client. Set by
/// [`Builder::listener`](crate::Builder::listener).
///
/// Events arrive one after the other, in order, on a thread that belongs to the client. A listener
/// may be slow: up to 1,024 events wait for it, and later ones are dropped and counted
/// ([`Stats::events_dropped`](crate::observe::Stats::events_dropped)). A panic ends the one call only, and
/// is counted too.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use ringfence::Locks;
/// use ringfence::observe::{Event, Listener};
///
/// struct Alarm;
///
/// impl Listener for Alarm {
///     fn on_event(&self, event: &Event) {
///         if let Event::Lost { name, why, .. } = event {
///             eprintln!("lost {name}: {why}");
///         }
///     }
/// }
///
/// let locks = Locks::builder().nodes("memory:").listener(Arc::new(Alarm)).connect().await?;
/// # drop(locks);
/// # Ok(())
/// # }
/// ```
pub trait Listener: Send + Sync + 'static {
    /// Receives one event.
    fn on_event(&self, event: &Event);
}

/// What happened to a lock or a node. Names are the full names, prefix included.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A lock was granted.
    #[non_exhaustive]
    Granted {
        /// The lock.
        name: Arc<str>,
        /// What was taken.
        kind: LockKind,
        /// The fence of the grant. That of a plain lock means nothing.
        fence: u64,
        /// How long the caller waited, from its first attempt.
        waited: Duration,
        /// Every node's vote at the time of the grant.
        votes: Votes,
    },
    /// A lock was not granted.
    #[non_exhaustive]
    Refused {
        /// The lock.
        name: Arc<str>,
        /// What was to be taken.
        kind: LockKind,
        /// How long the caller waited, from its first attempt.
        waited: Duration,
        /// Why, with every node's vote.
        error: AcquireError,
    },
    /// A renewal in the background ended.
    #[non_exhaustive]
    Renewed {
        /// The lock.
        name: Arc<str>,
        /// What is held.
        kind: LockKind,
        /// The fence of the grant.
        fence: u64,
        /// How it ended.
        outcome: RenewalOutcome,
    },
    /// A lock was lost.
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: Arc<str>,
        /// What was held.
        kind: LockKind,
        /// The fence of the grant.
        fence: u64,
        /// Why.
        why: Lost,
        /// How long it was held, from the attempt that won it.
        held: Duration,
    },
    /// A lock was released before it was lost. The nodes may not have confirmed it yet.
    #[non_exhaustive]
    Released {
        /// The lock.
        name: Arc<str>,
        /// What was held.
        kind: LockKind,
        /// The fence of the grant.
        fence: u64,
        /// How long it was held, from the attempt that won it.
        held: Duration,
    },
    /// A lock was left behind for another process ([`Guard::leave`](crate::Guard::leave)).
    #[non_exhaustive]
    Left {
        /// The lock.
        name: Arc<str>,
        /// What was held.
        kind: LockKind,
        /// The fence of the grant.
        fence: u64,
        /// How long it was held, from the attempt that won it.
        held: Duration,
    },
    /// An exclusive lock became a share ([`Guard::downgrade`](crate::Guard::downgrade)).
    #[non_exhaustive]
    Downgraded {
        /// The lock.
        name: Arc<str>,
        /// The fence of the grant.
        fence: u64,
        /// How long it was held alone, from the attempt that won it.
        held: Duration,
    },
    /// The state of a node changed, as the last call to it shows.
    #[non_exhaustive]
    NodeChanged {
        /// The name of the node.
        node: Arc<str>,
        /// Its state before.
        from: NodeState,
        /// Its state now.
        to: NodeState,
    },
}

/// The queue in front of a listener.
pub(super) struct EventQueue {
    sender: SyncSender<Event>,
    dropped: AtomicU64,
    panics: Arc<AtomicU64>,
}

impl EventQueue {
    /// Starts the thread of `listener`. It ends when the queue is dropped.
    pub(super) fn start(listener: Arc<dyn Listener>) -> std::io::Result<Self> {
        let (sender, events) = sync_channel(QUEUE);
        let panics: Arc<AtomicU64> = Arc::default();
        let counted = Arc::clone(&panics);
        thread::Builder::new()
            .name("ringfence-events".to_owned())
            .spawn(move || deliver(&events, &*listener, &counted))?;
        Ok(Self {
            sender,
            dropped: AtomicU64::new(0),
            panics,
        })
    }

    /// Never blocks.
    pub(super) fn push(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

fn deliver(events: &Receiver<Event>, listener: &dyn Listener, panics: &AtomicU64) {
    while let Ok(event) = events.recv() {
        // The listener may be in any state afterwards. That is its own affair: nothing of ours is
        // shared with it.
        let told = catch_unwind(AssertUnwindSafe(|| listener.on_event(&event)));
        if told.is_err() {
            panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(target: "ringfence", "the listener panicked");
        }
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}
