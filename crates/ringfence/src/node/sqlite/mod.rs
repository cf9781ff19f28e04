//! The embedded node: the ledger over one SQLite file, shared by the processes of one machine.
//!
//! ```text
//! send ─► worker.rs: on the caller's thread, if the node is idle and nothing has to be waited for;
//!         │          otherwise on one thread, one transaction for all waiting jobs
//!         ├─► store.rs, apply.rs: the ledger over rows.rs and child_rows.rs, at a moment of
//!         │          node_row.rs; queue_cache.rs keeps long queues
//!         ├─► sync.rs: what is on the disk before a call is answered
//!         └─► wake_socket.rs: wakes, to this process and to others
//! ```
//! Opening is `file.rs` (may a lock file be here?), `sharing.rs` (may these files be used, and by
//! whom?), `schema.rs` (is this our file?) and `boots.rs` (is it of an earlier boot?). `look.rs` and
//! `examine.rs` read a file without changing it.

mod apply;
mod boots;
mod child_rows;
mod error;
mod examine;
mod file;
#[cfg(any(test, all(fuzzing, feature = "test-util")))]
pub mod fuzz_inputs;
mod look;
mod node_row;
mod pending;
mod queue_cache;
mod rows;
mod schema;
mod sharing;
mod store;
mod sync;
mod wake_socket;
mod worker;

use std::fmt;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::environment::ProcessBound;
use crate::group::Group;

use super::embedded::Job;
use super::{
    Call, CallError, Completion, Facts, Hear, InitMode, Node, NodeClock, Tier, Trouble, TroubleKind,
};

pub use error::SqliteError;
pub(crate) use examine::examine;
use file::OpenFile;
use pending::Pending;
use store::SqliteStore;
use wake_socket::WakeSockets;
use worker::{Desk, DirectOutcome, Done, WorkerMessage};

/// A lock node in one SQLite file. Clones share the file's connection and its thread, which ends
/// once the last clone is dropped and all calls are answered. A call that has to wait for nothing,
/// neither the disk nor another process, is answered on the thread that sends it.
///
/// A crash of a process loses nothing: the operating system has every write. After a boot of the
/// machine no lock is held, since all holders are dead. Fences keep rising and latches keep their
/// arrivals, also after a power cut: only these are synced to the disk.
#[derive(Clone)]
pub struct SqliteNode(Arc<ProcessBound<Handle>>);

struct Handle {
    name: String,
    path: PathBuf,
    /// `None` if the node only looks. Before `jobs`: the node's thread closes the file.
    desk: Option<Arc<Desk>>,
    jobs: Sender<WorkerMessage>,
    wake_sockets: Arc<WakeSockets>,
    pending: Arc<Pending>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The thread may still have calls to answer, but this node has no listeners any more.
        self.wake_sockets.stop_listening();
    }
}

impl SqliteNode {
    /// Opens the lock file at `path`, or creates it. The folder decides which users may use a new
    /// file: its group if it has the setgid bit and is group-writable, all users if it is sticky
    /// and world-writable (where the system allows that); in any other folder only the owner.
    /// Neither the file nor its companions may be a link, have a second hard link or be a mount
    /// point: containers share the folder, not the file.
    ///
    /// Missing folders are created only for [`default_path`](Self::default_path): elsewhere a
    /// missing folder is more likely a typing error.
    ///
    /// # Errors
    /// If a lock file cannot be at the path, or the file there is not ours.
    pub fn open(path: impl AsRef<Path>, clock: NodeClock) -> Result<Self, SqliteError> {
        schema::refuse_library(rusqlite::version_number())?;
        let open = OpenFile::count()?;
        let file = file::LockFile::prepare(path.as_ref())?;
        refuse_time_namespace(file.path(), &clock)?;
        let connection = schema::open(&file, &clock)?;
        let connection = boots::settle(connection, &file, &clock)?;
        let path = file.path().to_owned();
        let store = SqliteStore::new(connection, file, clock);
        store.empty_long_log();
        let wake_sockets = Arc::new(WakeSockets::beside(&path));
        let rung = Arc::clone(&wake_sockets);
        let (jobs, inbox) = channel();
        let pending = Arc::<Pending>::default();
        let done = Arc::clone(&pending);
        let desk = Arc::new(Desk::new(store));
        let ours = Arc::clone(&desk);
        thread::Builder::new()
            .name("ringfence-sqlite".to_owned())
            .spawn(move || {
                worker::run(&ours, &rung, &inbox, &done);
                drop(ours);
                drop(open);
            })
            .map_err(SqliteError::Thread)?;
        Ok(Self::of(Handle {
            name: format!("sqlite:{}", path.display()),
            path,
            desk: Some(desk),
            jobs,
            wake_sockets,
            pending,
        }))
    }

    /// A node that only looks at the lock file at `path`: it answers inspections, refuses all else,
    /// and creates and writes nothing. A missing file is an empty one. Works on a read-only file
    /// system.
    ///
    /// # Errors
    /// If a lock file cannot be at the path.
    pub fn look(path: impl AsRef<Path>, clock: NodeClock) -> Result<Self, SqliteError> {
        let open = OpenFile::count()?;
        let path = file::LockFile::locate(path.as_ref())?;
        look::found(&path)?;
        refuse_time_namespace(&path, &clock)?;
        let (jobs, inbox) = channel();
        let pending = Arc::<Pending>::default();
        let (file, done) = (path.clone(), Arc::clone(&pending));
        thread::Builder::new()
            .name("ringfence-look".to_owned())
            .spawn(move || {
                look::run(&file, &clock, &inbox, &done);
                drop(open);
            })
            .map_err(SqliteError::Thread)?;
        Ok(Self::of(Handle {
            name: format!("sqlite:{}", path.display()),
            wake_sockets: Arc::new(WakeSockets::beside(&path)),
            path,
            desk: None,
            jobs,
            pending,
        }))
    }

    fn of(handle: Handle) -> Self {
        Self(Arc::new(ProcessBound::new(handle)))
    }

    /// The user's own lock file: `$XDG_STATE_HOME/ringfence/locks.db`, by default
    /// `$HOME/.local/state/ringfence/locks.db`.
    ///
    /// # Errors
    /// If neither variable is set.
    pub fn default_path() -> Result<PathBuf, SqliteError> {
        file::default_path()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    fn ask(&self, job: Job) {
        if !self.0.is_usable() {
            let detail = format!("{}: this is a forked child", self.0.name);
            let error = CallError::NotSent(Trouble::new(TroubleKind::Disconnected, detail));
            return job.fail(error).deliver();
        }
        let is_only_one = self.0.pending.begin();
        let message = match &self.0.desk {
            Some(desk) if is_only_one => match desk.carry_out(job) {
                DirectOutcome::Done(done) => return self.deliver(done),
                DirectOutcome::HandedOver => WorkerMessage::Look,
                DirectOutcome::NotBegun(job) => WorkerMessage::Job(job),
            },
            _ => WorkerMessage::Job(job),
        };
        self.tell(message);
    }

    /// Delivers the answer of a job that was carried out on this thread.
    fn deliver(&self, done: Done) {
        self.0.pending.end(1);
        if done.copy_due {
            self.tell(WorkerMessage::Look);
        }
        // Wakes first, as on the node's thread.
        self.0.wake_sockets.send(done.wakes);
        for answered in done.answered {
            answered.deliver();
        }
    }

    /// Sends `message` to the node's thread.
    fn tell(&self, message: WorkerMessage) {
        let Err(unsent) = self.0.jobs.send(message) else {
            return;
        };
        let jobs = match (unsent.0, &self.0.desk) {
            (WorkerMessage::Job(job), _) => vec![job],
            (WorkerMessage::Look, Some(desk)) => mem::take(&mut desk.lock().first),
            (WorkerMessage::Look, None) => Vec::new(),
        };
        for job in jobs {
            self.0.pending.end(1);
            let detail = format!("{}: the worker thread has ended", self.0.name);
            let error = CallError::NotSent(Trouble::new(TroubleKind::Disconnected, detail));
            job.fail(error).deliver();
        }
    }
}

/// Refuses a process whose clock since boot may be another one than it seems.
fn refuse_time_namespace(path: &Path, clock: &NodeClock) -> Result<(), SqliteError> {
    match clock.time_namespace() {
        Some(_) => Ok(()),
        None => Err(SqliteError::TimeNamespace(path.to_owned())),
    }
}

impl Node for SqliteNode {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn send(&self, call: Call) {
        self.ask(Job::Call(call));
    }

    /// Does not wait here; the calling thread waits when it ends: see `pending.rs`.
    fn flush(&self) {
        pending::wait_at_end(&self.0.pending);
    }

    /// Leases run on the clock that counts suspend. The clock in replies is for ballots: it follows
    /// the highest wall clock of all processes, and jumps when that is set.
    fn leases_follow_clock(&self) -> bool {
        false
    }

    fn tier(&self) -> Option<Tier> {
        Some(Tier::Durable)
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.0.wake_sockets.listen(client, to);
    }

    fn probe(&self, done: Completion<Facts>) {
        self.ask(Job::Probe(done));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.ask(Job::Join(group, done));
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.ask(Job::Init(group, mode, done));
    }
}

impl fmt::Debug for SqliteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteNode").field(&self.0.name).finish()
    }
}
