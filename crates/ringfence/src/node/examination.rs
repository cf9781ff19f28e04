//! What a look at one node found: everything a doctor needs to know, and nothing that was changed to
//! learn it. What the findings mean is for others to say.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::group::Group;

use super::{Facts, Tier, Trouble};

/// What a look at one node found.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The node as people know it.
    pub node: String,
    /// Where it runs, as far as its address tells.
    pub machine: Machine,
    /// What was found, or why nothing could be.
    pub found: Result<Found, Trouble>,
}

/// Where a node runs, as far as its address tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// The machine of whoever looks.
    ThisOne,
    /// The machine with these addresses.
    At(Vec<IpAddr>),
    /// Its name has no address at present.
    Unknown,
}

/// What a node turned out to be.
#[derive(Debug, Clone)]
pub enum Found {
    /// A Redis or Valkey server.
    Server(Box<ServerExamination>),
    /// An embedded file.
    File(Box<FileExamination>),
    /// The memory of this process.
    Memory,
    /// A node that the caller made: only what it says of itself.
    Given(Box<Facts>),
}

/// What was found on a Redis or Valkey server. Each part may be denied by itself.
#[derive(Debug, Clone)]
pub struct ServerExamination {
    /// The ACL user that was logged in.
    pub user: String,
    /// The server's clock, and how quickly it answers.
    pub clock: Result<ClockReading, Trouble>,
    /// What the server says of itself.
    pub identity: Result<Identity, Trouble>,
    /// What its birth record says.
    pub birth: Result<Birth, Trouble>,
    /// What its user may do, and lacks.
    pub rights: Result<Rights, Trouble>,
    /// The keys of ours that would stay for ever.
    pub keys: Result<Keys, Trouble>,
    /// Whether it can tell those who wait that their turn has come.
    pub pushes: bool,
    /// Whether its URL says `?quarantine=off`.
    pub quarantine_off: bool,
    /// Whether its URL says `?eviction=allow`.
    pub eviction_allowed: bool,
    /// Whether its URL says `?durable=yes`: if the server says otherwise, it does not vote.
    pub said_durable: bool,
}

/// The clock of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// How far the node's clock is ahead of the wall clock of whoever looks.
    pub ahead_us: i64,
    /// How long the quickest answer took. The reading is that uncertain at most.
    pub round_trip: Duration,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What the server calls this run of itself; the same under two addresses is one server.
    pub run_id: String,
    /// Server and version, for people.
    pub version: String,
    /// What it is among other servers.
    pub role: Role,
    /// Whether it still reads its data.
    pub loading: bool,
    /// When what it wrote is on disk.
    pub on_disk: OnDisk,
    /// Whether replicas follow it, which may be started in its place.
    pub has_replicas: bool,
    /// Whether it tells its replication id, by which a failover and back is noticed.
    pub tells_replication_id: bool,
    /// For how long it remembers a former replication id once nobody follows it, zero for ever; `None`
    /// where the user may not ask (`CONFIG GET`).
    pub backlog_ttl: Option<Duration>,
    /// What a crash of it may cost.
    pub tier: Tier,
    /// How much it may keep, and what it does beyond that.
    pub memory: Memory,
}

/// What a server is among other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A master of its own.
    Master,
    /// A replica, of this master if it says so.
    Replica(Option<String>),
    /// A member of a Redis Cluster.
    ClusterNode,
    /// A Sentinel, which keeps no data.
    Sentinel,
}

/// When what a server wrote is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisk {
    /// Before it answers (`appendfsync always`).
    Always,
    /// Some time after it answered.
    Later,
    /// There is no append-only file.
    Never,
    /// There is one, but the user may not ask how it is synced (`CONFIG GET`).
    Unknown,
}

/// How much a server may keep, and what it does beyond that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// What it uses.
    pub used_bytes: u64,
    /// What it may use; zero if there is no limit.
    pub max_bytes: u64,
    /// `maxmemory-policy`.
    pub policy: String,
}

impl Memory {
    /// Whether locks may be evicted.
    pub fn evicts(&self) -> bool {
        self.max_bytes > 0 && self.policy != "noeviction"
    }
}

/// What a server's birth record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Whether its votes count.
    pub voting: Voting,
    /// For how long it has kept everything without a gap; `None` if that is not known.
    pub kept_for: Option<Duration>,
    /// The values of the group it belongs to; `None` if it belongs to none yet.
    pub group: Option<Group>,
    /// Whether a client has ever seen a replica of it.
    pub replicated: bool,
}

/// Whether a server's votes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voting {
    /// They do.
    Now,
    /// They will after this time: it is new, or may have forgotten locks.
    In(Duration),
    /// No client has met it yet; the time begins with the first.
    NeverMet,
    /// It was started again since a client last met it; the time begins with the next.
    Restarted,
}

/// What an ACL user is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To take locks, and to look at them.
    Lock,
    /// To look at locks and nodes; it can change no key.
    Look,
    /// To declare a cluster new, and to look at the nodes.
    Init,
}

/// What an ACL user may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// What the user is for, by the rights that it has.
    pub purpose: Purpose,
    /// The rights that it lacks for that.
    pub lacking: Vec<Right>,
    /// The rights that it lacks to take locks.
    pub lacking_to_lock: Vec<Right>,
}

/// A right that a user needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// As `ACL SETUSER` takes it.
    pub rule: String,
    /// Whether the user cannot do without it; else something is only slower or unknown.
    pub essential: bool,
}

/// The keys of ours that would stay for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// How many of our keys were looked at.
    pub looked_at: u64,
    /// Whether these are all.
    pub complete: bool,
    /// How many others the user may not look at.
    pub hidden: u64,
    /// How many of them have no expiry.
    pub lasting: u64,
    /// One of those, safe to print.
    pub example: Option<String>,
}

/// What was found about an embedded file.
#[derive(Debug, Clone)]
pub struct FileExamination {
    /// Where it is.
    pub path: PathBuf,
    /// What sort of network file system it is on, if it is on one.
    pub network: Option<&'static str>,
    /// What is there, or why that cannot be known.
    pub contents: Result<Contents, Trouble>,
    /// Its permissions, and whether it is another user's; `None` if it is not there yet.
    pub mode: Option<FileMode>,
    /// Whether it may be written; if it is not there yet, whether it may be made.
    pub writable: bool,
    /// Whether files may be made beside it, which every lock needs.
    pub folder_writable: bool,
}

/// The permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode {
    /// The lower nine bits.
    pub bits: u32,
    /// Whether it belongs to whoever looks.
    pub own: bool,
}

/// What an embedded file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// It is not there yet; the first lock makes it.
    Missing,
    /// Nothing yet.
    Fresh,
    /// Locks of ours.
    Ours {
        /// Whether it has a write-ahead log, as all of ours have.
        wal: bool,
    },
    /// Locks of a later ringfence.
    Newer,
    /// A database of another application.
    OtherApplication,
    /// Something else.
    NotADatabase,
}
