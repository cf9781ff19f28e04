//! The public API: [`Locks`], and the locks and guards that it makes.

mod breaking;
mod builder;
mod changes;
mod config_error;
mod duplicate_nodes;
mod election;
mod error;
mod examine;
mod guard;
pub(crate) mod handshake;
mod held;
pub(crate) mod hold_work;
mod init;
mod inspect;
mod inspection;
pub mod kind;
mod latch;
mod listing;
mod lock;
mod loss;
mod observer;
mod owner;
mod ready;
mod receipt;
mod semaphore;
mod settings;
mod votes;
mod warnings;

use std::fmt;
use std::sync::Arc;

use crate::runtime::ClientRuntime;

pub use breaking::{BreakError, BreakRequest, Broken};
pub use builder::Builder;
pub use changes::ChangedNames;
pub use election::{Election, Leader};
pub use error::{
    AcquireError, ConfigError, ConnectError, ExtendError, HoldError, InitError, InspectError,
    ListError, ReleaseError,
};
pub use guard::{Guard, Leadership, PlainGuard, ReadGuard, SemaphoreGuard};
pub use held::{Held, HeldExt};
pub use hold_work::WorkDone;
pub use init::Initialised;
pub use inspection::{
    GroupSettings, Holder, HolderKind, Inspection, LatchInspection, LockState, NameInspection,
    NodeFacts, NodeInspection, NodeStatus, ReportedHolder, SemaphoreInspection, WaiterInspection,
};
pub use kind::{PlainLock, RwLock};
pub use latch::{Arrival, Latch, LatchError};
pub use listing::{
    ListStep, ListedBreak, ListedLock, Listing, LockList, NodeSearch, UnreadableName,
};
pub use lock::Lock;
pub use loss::Loss;
pub use observer::{LeaderChange, Observer};
pub use owner::Owner;
pub use receipt::{Receipt, ReceiptError, ReleaseReceiptError};
use semaphore::PERMITS_MAX;
pub use semaphore::Semaphore;
pub use votes::{NodeVote, Votes};

use settings::Settings;

/// A client of one set of nodes. Cheap to clone; all clones share connections, renewal and what is
/// known of the nodes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ringfence::Locks;
///
/// let locks = Locks::connect("memory:").await?; // or "redis://a,redis://b,redis://c", "sqlite:locks.db"
/// let guard = locks.mutex("orders:42").lock().await?;
/// println!("fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Arc<ClientRuntime>,
    settings: Settings,
    names: Vec<String>,
}

impl Drop for Shared {
    /// A forked child keeps all of it: to drop it may lock mutexes and close sockets.
    fn drop(&mut self) {
        if !self.runtime.process.is_ours() {
            std::mem::forget(Arc::clone(&self.runtime));
        }
    }
}

impl Locks {
    /// Connects to the node or nodes at `urls`, several separated by commas.
    ///
    /// Succeeds once a majority has answered, or after two seconds: a node that cannot be reached
    /// is no error, and without a majority a warning is logged. [`ready`](Self::ready) waits for a
    /// majority. A majority that is wrongly set up is an error: a wrong password, certificate or host
    /// name, for instance.
    ///
    /// The client lives in the tokio runtime in which it is connected. It can be used from others,
    /// but once that runtime has ended nothing is renewed, and every call fails with
    /// [`ConfigError::RuntimeGone`]. While code blocks it, held locks are renewed by a thread that all
    /// clients of the process share.
    ///
    /// The client, its guards and its locks belong to the process that connects. After a `fork` the
    /// child's copies send and write nothing, and every call there fails with
    /// [`ConfigError::ForkedProcess`], [`ReleaseError::ForkedProcess`] or
    /// [`Lost::ForkedProcess`](crate::Lost::ForkedProcess). The child can connect for itself; a lock
    /// file that its parent had open it can use only after an `exec`.
    ///
    /// # Errors
    /// If a setting is not allowed, or if a majority of the nodes is not fit to hold locks.
    pub async fn connect(urls: &str) -> Result<Self, ConnectError> {
        Self::builder().nodes(urls).connect().await
    }

    /// A client with settings of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The semaphore `name`, of which `permits` may be held at once. It has nothing to do with a
    /// lock of the same name.
    ///
    /// While clients disagree on the number, as during a rolling deploy, at most the largest number
    /// of permits is held; clients with a smaller number trace a warning.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        semaphore::new(self, name.as_ref(), permits)
    }

    /// The latch `name`, which is open once `count` parties have arrived. It has nothing to do with
    /// a lock or semaphore of the same name.
    ///
    /// Each client judges by its own number. A client that sees more arrivals than it waits for
    /// traces a warning.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch::new(self.clone(), name.as_ref(), count)
    }

    /// The election `name`: one leader at a time. It shares its name with the mutex.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        election::new(self, name.as_ref())
    }

    /// The names of the nodes (their addresses without secrets), in node order.
    pub fn node_names(&self) -> &[String] {
        &self.shared.names
    }

    /// Ends all waiting calls of this client and waits until a majority of the nodes has confirmed
    /// every release and undo. Call it at the end of a program. It waits at most 100 ms for the
    /// other nodes.
    ///
    /// All clones are closed, too: later calls fail with [`AcquireError::Closed`]. Guards that
    /// are still held stay valid, and renewed, until they are dropped.
    pub async fn close(&self) {
        let runtime = &self.shared.runtime;
        let closing = async {
            runtime.close();
            runtime.closing.attempts_ended(&runtime.sender.clock).await;
            runtime.closing.drained(&runtime.sender.clock).await;
        };
        runtime.process.call(closing, || ()).await;
    }

    /// Whether [`close`](Self::close) was called, or the tokio runtime of this client has ended, or
    /// this is a forked child of the process that connected.
    pub fn is_closed(&self) -> bool {
        self.shared.runtime.closing.is_closed() || !self.is_ours()
    }

    /// A client whose tokio runtime has ended can renew nothing.
    fn check_runtime(&self) -> Result<(), ConfigError> {
        match self.shared.runtime.closing.is_runtime_gone() {
            false => Ok(()),
            true => Err(ConfigError::RuntimeGone),
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings {
            ttl, label, prefix, ..
        } = &self.shared.settings;
        f.debug_struct("Locks")
            .field("nodes", &self.shared.names)
            .field("ttl", ttl)
            .field("label", label)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}
