//! The facts that an examination of one node collects for the doctor. Nothing is changed to collect
//! them. The doctor decides what they mean.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::group::Group;

use super::{Facts, Tier, Trouble};

/// The result of an examination of one node.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The node's name in messages.
    pub node: String,
    /// Where it runs, as far as its address shows.
    pub machine: Machine,
    /// The facts, or why the node could not be examined.
    pub found: Result<Found, Trouble>,
}

/// Where a node runs, as far as its address shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// This machine.
    ThisOne,
    /// The machine with these addresses.
    At(Vec<IpAddr>),
    /// Its host name does not resolve at present.
    Unknown,
}

/// The kind of a node, and the facts about it.
#[derive(Debug, Clone)]
pub enum Found {
    /// A Redis or Valkey server.
    Server(Box<ServerExamination>),
    /// An embedded file.
    File(Box<FileExamination>),
    /// The memory of this process.
    Memory,
    /// A node that the caller made: only the facts that it reports.
    Given(Box<Facts>),
}

/// The facts about a Redis or Valkey server. The server may deny each part by itself.
#[derive(Debug, Clone)]
pub struct ServerExamination {
    /// The ACL user that was logged in.
    pub user: String,
    /// The server's clock, and its response time.
    pub clock: Result<ClockSample, Trouble>,
    /// The server's own description.
    pub identity: Result<Identity, Trouble>,
    /// The contents of its birth record.
    pub birth: Result<Birth, Trouble>,
    /// The rights that its user has and lacks.
    pub rights: Result<Rights, Trouble>,
    /// Keys of ours without an expiry.
    pub keys: Result<Keys, Trouble>,
    /// Why it refuses writes, and so locks, as far as it tells without a write. Memory that is full
    /// is in [`Identity::memory`].
    pub write_stops: Vec<WriteStop>,
    /// Whether it can push wakes to waiters.
    pub pushes: bool,
    /// Whether its URL has `?quarantine=off`.
    pub quarantine_off: bool,
    /// Whether its URL has `?eviction=allow`.
    pub eviction_allowed: bool,
    /// Whether its URL has `?durable=yes`. If the server reports otherwise, it does not vote.
    pub said_durable: bool,
    /// The Sentinels and the replicas, if Sentinels name the server.
    pub service: Option<ServiceExamination>,
}

/// Why a server refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStop {
    /// Its last snapshot failed (`rdb_last_bgsave_status`).
    SnapshotFailed {
        /// Whether it refuses writes because of that (`stop-writes-on-bgsave-error`, and `save` is
        /// set); `None` if the user may not read these settings.
        stops: Option<bool>,
    },
    /// It could not write its append-only file (`aof_last_write_status`).
    LogFailed,
    /// Too few replicas are connected (`min-replicas-to-write`).
    TooFewReplicas {
        /// How many are.
        good: u64,
        /// How many it needs; `None` if the user may not read it.
        needed: Option<u64>,
    },
}

/// The facts about a service behind Sentinels.
#[derive(Debug, Clone)]
pub struct ServiceExamination {
    /// The master that a majority of the Sentinels names.
    pub master: String,
    /// The configuration epoch.
    pub epoch: u64,
    /// How many Sentinels the group has.
    pub total: u32,
    /// Each Sentinel of the URL, and its answer.
    pub sentinels: Vec<(String, Result<SentinelWord, Trouble>)>,
    /// The replicas of the master.
    pub replicas: Vec<ReplicaExamination>,
    /// How many replicas the master needs to accept writes (`min-replicas-to-write`); `None` if
    /// that is not known.
    pub least_replicas: Option<u64>,
}

/// What one Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelWord {
    /// The master that it names.
    pub master: String,
    /// Its configuration epoch.
    pub epoch: u64,
    /// How many other Sentinels it knows.
    pub others: u32,
    /// After which silence it holds the master for dead (`down-after-milliseconds`).
    pub down_after: Option<Duration>,
}

/// The facts about one replica.
#[derive(Debug, Clone)]
pub struct ReplicaExamination {
    /// Its address, as its master reports it.
    pub address: String,
    /// How long it has not acknowledged anything to its master, in whole seconds.
    pub lag: Option<Duration>,
    /// Its clock; `None` if it was not asked for.
    pub clock: Option<Result<ClockSample, Trouble>>,
}

/// The clock of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// How far the node's clock is ahead of this machine's wall clock.
    pub ahead_us: i64,
    /// The shortest round trip: the largest possible error of the reading.
    pub round_trip: Duration,
}

/// A server's own description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The server's run id. The same run id at two addresses is one server.
    pub run_id: String,
    /// Whether the user may not run `INFO`, or some of it: then most of this is not known.
    pub unseen: bool,
    /// Server and version, for people.
    pub version: String,
    /// Its role.
    pub role: Role,
    /// Whether it is still loading its data.
    pub loading: bool,
    /// When its writes are on disk.
    pub on_disk: OnDisk,
    /// Whether it has replicas, which may be promoted in its place.
    pub has_replicas: bool,
    /// Whether it reports its replication id, which reveals a failover and back.
    pub tells_replication_id: bool,
    /// For how long it remembers a former replication id once it has no replicas; zero means for
    /// ever. `None` if the user may not read it (`CONFIG GET`).
    pub backlog_ttl: Option<Duration>,
    /// What a crash of it may cost.
    pub tier: Tier,
    /// Its memory, and what it does at the limit.
    pub memory: Memory,
}

/// The role of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// An independent master.
    Master,
    /// A replica, with the address of its master if it reports that.
    Replica(Option<String>),
    /// A member of a Redis Cluster.
    ClusterNode,
    /// A Sentinel, which keeps no data.
    Sentinel,
}

/// When a server's writes are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisk {
    /// Before it answers (`appendfsync always`).
    Always,
    /// Some time after it answered.
    Later,
    /// The server has no append-only file.
    Never,
    /// It has one, but the user may not read how it is synced (`CONFIG GET`).
    Unknown,
}

/// A server's memory, and what it does at the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The memory in use.
    pub used_bytes: u64,
    /// The part of it that counts towards the limit: without the buffers of replicas and of the
    /// append-only file.
    pub counted_bytes: u64,
    /// The limit; zero if there is none.
    pub max_bytes: u64,
    /// `maxmemory-policy`.
    pub policy: String,
}

impl Memory {
    /// Whether the server may evict locks.
    pub fn evicts(&self) -> bool {
        self.max_bytes > 0 && self.policy != "noeviction"
    }

    /// Whether the server refuses writes because its memory is full.
    pub fn is_full(&self) -> bool {
        self.max_bytes > 0 && !self.evicts() && self.counted_bytes > self.max_bytes
    }
}

/// The contents of a server's birth record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Whether its votes count.
    pub voting: Voting,
    /// For how long it has kept all locks without a gap; `None` if that is not known.
    pub kept_for: Option<Duration>,
    /// The values of the group it belongs to; `None` if it belongs to none yet.
    pub group: Option<Group>,
    /// Whether a client has ever seen a replica of it.
    pub replicated: bool,
}

/// Whether a server's votes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voting {
    /// They count.
    Now,
    /// They count after this time: the server is new, or may have forgotten locks.
    In(Duration),
    /// No client has connected to it yet. The quarantine begins with the first.
    NeverMet,
    /// It was restarted since a client last connected. The quarantine begins with the next client.
    Restarted,
}

/// What an ACL user is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Takes locks and inspects them.
    Lock,
    /// Inspects locks and nodes; cannot change any key.
    Look,
    /// Declares a cluster new, and inspects the nodes.
    Init,
}

/// The rights of an ACL user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// The user's purpose, by the rights that it has.
    pub purpose: Purpose,
    /// The rights that it lacks for that.
    pub lacking: Vec<Right>,
    /// The rights that it lacks to take locks.
    pub lacking_to_lock: Vec<Right>,
}

/// A right that a user needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The rule as an argument of `ACL SETUSER`.
    pub rule: String,
    /// Whether the user needs it. Without other rights some things are slower or unknown.
    pub essential: bool,
}

/// Keys of ours without an expiry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// How many of our keys were examined.
    pub looked_at: u64,
    /// Whether these are all of our keys.
    pub complete: bool,
    /// How many other keys the user may not read.
    pub hidden: u64,
    /// How many of the examined keys have no expiry.
    pub lasting: u64,
    /// One key without an expiry, safe to print.
    pub example: Option<String>,
}

/// The facts about an embedded file.
#[derive(Debug, Clone)]
pub struct FileExamination {
    /// Where it is.
    pub path: PathBuf,
    /// The kind of network file system it is on, if any.
    pub network: Option<&'static str>,
    /// Its contents, or why they cannot be read.
    pub contents: Result<Contents, Trouble>,
    /// Its permissions, and whether it belongs to another user; `None` if it does not exist yet.
    pub mode: Option<FileMode>,
    /// Whether it may be written; if it does not exist yet, whether it may be created.
    pub writable: bool,
    /// Whether files may be created beside it, which every lock needs.
    pub folder_writable: bool,
    /// How much may still be written to its file system; `None` if that is not known.
    pub free_bytes: Option<u64>,
}

/// The permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode {
    /// The lower nine bits.
    pub bits: u32,
    /// Whether it belongs to our user.
    pub own: bool,
}

/// The contents of an embedded file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The file does not exist yet; the first lock creates it.
    Missing,
    /// The file is empty.
    Fresh,
    /// Locks of ours.
    Ours {
        /// Whether it has a write-ahead log, as every file of ours has.
        wal: bool,
    },
    /// Locks of a later version of ringfence.
    Newer,
    /// A lock file of an older version of ringfence.
    Older,
    /// A database of another application.
    OtherApplication,
    /// Something else.
    NotADatabase,
}
