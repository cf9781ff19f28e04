//! The state that a server reports, and whether such a server may keep locks.

use std::time::Duration;

use redis::{Pipeline, Value};

use crate::group::{Failover, Group};
use crate::ledger::birth::{self, BirthVerdict, Present};
use crate::node::{CallError, Memory, OnDisk, Role, Tier, TroubleKind};

use super::born::{BORN_MAX_BYTES, BirthRecord};
use super::sections::{Sections, setting};
use crate::node::redis::report::Reporter;
use crate::node::redis::scripts::BORN_KEY;
use crate::url::RedisUrl;

/// The options in a node's URL that change how its server is judged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UrlOptions {
    /// `?quarantine=off`.
    pub(crate) no_quarantine: bool,
    /// `?eviction=allow`.
    pub(crate) eviction_allowed: bool,
    /// `?durable=yes`.
    pub(crate) said_durable: bool,
    /// Whether this client finds the server through Sentinels.
    pub(crate) sentinels: bool,
    /// Whether the client writes no birth record, although its user may.
    pub(crate) never_joins: bool,
    /// The number of the database.
    pub(crate) database: u32,
}

impl UrlOptions {
    pub(crate) fn of(url: &RedisUrl) -> Self {
        Self {
            no_quarantine: !url.quarantine,
            eviction_allowed: url.eviction_allowed,
            said_durable: url.durable,
            sentinels: url.sentinel.is_some(),
            never_joins: false,
            database: url.db,
        }
    }
}

/// The state that a server reports. [`Server::refusal`] decides whether it may keep locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The run id. If our user may not read it, that of the birth record, or empty without one.
    pub(crate) run_id: String,
    /// Whether our user may not run `INFO`, or some of it. Then a restart with old data is not
    /// noticed, nor a failover without Sentinels.
    pub(crate) unseen: bool,
    /// The replication id, which its replicas share; `None` if the server does not report it.
    pub(crate) replication_id: Option<String>,
    /// For how many seconds it remembers a former replication id once it has no replicas, zero for
    /// ever (`repl-backlog-ttl`); `None` if CONFIG is forbidden.
    pub(crate) backlog_ttl_s: Option<u64>,
    /// Server and version, for people.
    pub(crate) version: String,
    /// Its role.
    pub(crate) role: Role,
    /// Whether it is still loading its data.
    pub(crate) loading: bool,
    /// When its writes are on disk.
    pub(crate) on_disk: OnDisk,
    /// Whether it has replicas, or does not report whether it has.
    pub(crate) has_replicas: bool,
    /// Whether every write is on disk before it is answered, and no replica has a copy: a promoted
    /// replica has this server's birth record, but perhaps not its last locks.
    pub(crate) durable: bool,
    /// Whether its data is its own: a promoted replica has a part of its former master's data.
    pub(crate) never_promoted: bool,
    /// Its memory, and what it does at the limit.
    pub(crate) memory: Memory,
    /// Whether it may evict locks.
    pub(crate) evicts: bool,
    /// The birth record, if there is one.
    pub(crate) born: Option<String>,
    /// The server's clock.
    pub(crate) clock_us: u64,
    /// The configuration epoch under which a majority of the Sentinels named this server as the
    /// master; `None` without Sentinels, and until they were asked.
    pub(crate) epoch: Option<u64>,
    /// How many Sentinels there are, as far as this client knows.
    pub(crate) sentinels: u32,
    /// The number of the client's database.
    pub(crate) database: u32,
}

/// The index of the birth record in the answers to [`questions`].
pub(crate) const BORN_ANSWER: usize = 4;
/// The index of the first answer to `CONFIG GET`; these are the last.
const CONFIG_ANSWERS: usize = 6;
/// The settings that durability depends on.
pub(crate) const SYNC_SETTINGS: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];
const BACKLOG_SETTING: &str = "repl-backlog-ttl";

/// The questions for [`Server::read`], followed by those of [`ask_config`] if our user may run
/// `CONFIG`: every refusal is an entry in the server's ACL LOG. They change nothing.
pub(crate) fn questions() -> Pipeline {
    let mut pipe = redis::pipe();
    for section in ["server", "replication", "memory", "persistence"] {
        pipe.cmd("INFO").arg(section);
    }
    pipe.cmd("GET").arg(BORN_KEY);
    pipe.cmd("TIME");
    pipe
}

/// See [`questions`].
pub(crate) fn ask_config(pipe: &mut Pipeline) {
    for setting in SYNC_SETTINGS.into_iter().chain([BACKLOG_SETTING]) {
        pipe.cmd("CONFIG").arg("GET").arg(setting);
    }
}

/// Whether the answers to [`questions`] say that `CONFIG` is refused.
pub(crate) fn refuse_config(answers: &[Value]) -> bool {
    matches!(answers.get(CONFIG_ANSWERS), Some(Value::ServerError(_)))
}

impl Server {
    /// Reads the answers to [`questions`] and refuses servers that cannot keep locks.
    pub(crate) fn read(
        answers: Vec<Value>,
        reporter: &Reporter,
        options: UrlOptions,
    ) -> Result<Self, CallError> {
        let found = Self::look(answers, reporter)?.with_options(options);
        match found.refusal(options) {
            None => Ok(found),
            Some((kind, what)) => Err(CallError::Refused(reporter.trouble(kind, what))),
        }
    }

    /// Reads the answers to [`questions`] of any server.
    pub(crate) fn look(mut answers: Vec<Value>, reporter: &Reporter) -> Result<Self, CallError> {
        let garbage = || CallError::Refused(reporter.garbage());
        if answers.len() == CONFIG_ANSWERS {
            answers.resize(CONFIG_ANSWERS + 3, Value::Nil);
        }
        let Ok(
            [
                server,
                replication,
                memory,
                persistence,
                born,
                time,
                appendfsync,
                not_on_rewrite,
                backlog_ttl,
            ],
        ) = <[Value; 9]>::try_from(answers)
        else {
            return Err(garbage());
        };
        let sections = Sections::read([server, replication, memory, persistence], reporter)?;
        let (role, replication) = (sections.role(), &sections.replication);
        // A Sentinel knows neither of both commands.
        let (born, clock_us) = match role {
            Role::Sentinel => (None, 0),
            _ => (
                read_born(born, reporter)?,
                clock_us(&time).ok_or_else(garbage)?,
            ),
        };
        let on_disk = sections.on_disk([&appendfsync, &not_on_rewrite]);
        let (has_replicas, memory) = (replication.has_replicas(), sections.memory.memory());
        Ok(Self {
            run_id: match &sections.run_id {
                None => recorded_run_id(born.as_deref()),
                Some(run_id) => run_id.clone(),
            },
            unseen: sections.unseen,
            replication_id: replication.replication_id().map(str::to_owned),
            backlog_ttl_s: setting(&backlog_ttl).and_then(|value| value.parse().ok()),
            version: sections.version(),
            role,
            loading: sections.is_loading(),
            on_disk,
            has_replicas,
            durable: on_disk == OnDisk::Always && !has_replicas,
            never_promoted: replication
                .get("master_replid2")
                .is_some_and(|id| id.bytes().all(|byte| byte == b'0')),
            evicts: memory.evicts(),
            memory,
            born,
            clock_us,
            epoch: None,
            sentinels: 0,
            database: 0,
        })
    }

    /// The same server, after the Sentinels confirmed it under `epoch`.
    pub(crate) fn with_epoch(self, epoch: Option<u64>) -> Self {
        Self { epoch, ..self }
    }

    /// The same server, with the database of the URL, and durable if the URL says so and the server
    /// does not report its durability.
    pub(crate) fn with_options(mut self, options: UrlOptions) -> Self {
        self.database = options.database;
        if options.said_durable && self.on_disk == OnDisk::Unknown {
            self.durable = !self.has_replicas;
        }
        self
    }

    /// The birth record `born`, if it belongs to this incarnation. Of the record of an earlier one
    /// only the group's values count.
    pub(crate) fn own<'a>(&self, born: Option<&'a BirthRecord>) -> Option<&'a BirthRecord> {
        born.filter(|born| {
            let same_run = born.server.run_id == self.run_id;
            same_run && self.has_kept(born)
        })
    }

    /// Whether the server has kept all locks since `born` was written.
    pub(crate) fn has_kept(&self, born: &BirthRecord) -> bool {
        let verdict = birth::judge(Some(&born.server), &self.present(&born.group));
        matches!(verdict, BirthVerdict::Keep | BirthVerdict::Update(_))
    }

    /// The facts that decide about a birth, in a group with these values.
    fn present(&self, group: &Group) -> Present<String> {
        let ttl_s = self.backlog_ttl_s;
        Present {
            unseen: self.unseen,
            run_id: self.run_id.clone(),
            replication_id: self.replication_id.clone(),
            database: self.database,
            former_id: !self.never_promoted,
            former_id_lasts: ttl_s
                .is_some_and(|s| s == 0 || Duration::from_secs(s) >= group.quarantine),
            has_replicas: self.has_replicas,
            durable: self.durable,
            epoch: self.epoch,
            lossless: group.failover == Failover::Lossless,
        }
    }

    /// The confirmed epoch as an argument of the scripts.
    pub(crate) fn epoch_text(&self) -> String {
        self.epoch.map_or("-".to_owned(), |epoch| epoch.to_string())
    }

    /// What a crash may cost, with the birth record `born`.
    pub(crate) fn tier(&self, options: UrlOptions, born: Option<&BirthRecord>) -> Tier {
        let own = self.own(born);
        let alone = born.filter(|born| born.group.nodes == 1);
        let replicated = self.has_replicas || own.is_some_and(BirthRecord::is_replaceable);
        let unprotected = alone.is_some_and(|born| !born.group.failover.quarantines(replicated));
        // A failover and back is noticed only by the replication id.
        let blind = alone.is_some() && self.replication_id.is_none();
        match () {
            () if options.no_quarantine || self.evicts => Tier::BestEffort,
            () if alone.is_some_and(|born| born.group.failover == Failover::Lossless) => {
                Tier::Durable
            }
            () if self.durable && own.is_none_or(|born| born.server.durable) => Tier::Durable,
            () if unprotected || blind || self.unseen => Tier::BestEffort,
            () => Tier::Quarantined,
        }
    }

    /// Why this server cannot keep locks, if so.
    fn refusal(&self, options: UrlOptions) -> Option<(TroubleKind, String)> {
        match &self.role {
            Role::ClusterNode => Some((
                TroubleKind::Cluster,
                "runs in cluster mode; locks need independent masters".to_owned(),
            )),
            Role::Sentinel => Some((
                TroubleKind::Sentinel,
                "is a Sentinel and keeps no data; use redis+sentinel://HOST,HOST,HOST/SERVICE with \
                 all Sentinels, or name the masters themselves"
                    .to_owned(),
            )),
            Role::Replica(_) => Some((
                TroubleKind::Replica,
                "is a replica, and replicas do not vote; name its master instead".to_owned(),
            )),
            Role::Master if self.loading => {
                Some((TroubleKind::Loading, "is still reading its data".to_owned()))
            }
            Role::Master if options.said_durable && self.unseen => Some((
                TroubleKind::NotDurable,
                "does not let this user run INFO, so nothing shows whether it is durable, though \
                 its URL has ?durable=yes; grant +info, or remove ?durable=yes"
                    .to_owned(),
            )),
            Role::Master if options.said_durable && !self.durable => Some((
                TroubleKind::NotDurable,
                "is not durable, though its URL has ?durable=yes; that takes appendonly yes, \
                 appendfsync always, no-appendfsync-on-rewrite no, and no replica"
                    .to_owned(),
            )),
            Role::Master if self.evicts && !options.eviction_allowed => Some((
                TroubleKind::Evicts,
                format!(
                    "may evict locks (maxmemory-policy {}); set it to noeviction, or accept \
                     the risk with ?eviction=allow",
                    self.memory.policy
                ),
            )),
            Role::Master => None,
        }
    }
}

/// The run id of the birth record; empty if there is none that can be read.
fn recorded_run_id(born: Option<&str>) -> String {
    let record = born.and_then(|text| BirthRecord::parse(text).ok());
    record.map_or_else(String::new, |record| record.server.run_id)
}

/// The stored birth record, if there is one.
fn read_born(answer: Value, reporter: &Reporter) -> Result<Option<String>, CallError> {
    match answer {
        Value::Nil => Ok(None),
        // A longer record is unreadable anyway.
        Value::BulkString(mut text) => {
            text.truncate(BORN_MAX_BYTES + 1);
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        }
        Value::ServerError(error) => Err(CallError::Refused(reporter.server_error(&error))),
        _ => Err(CallError::Refused(reporter.garbage())),
    }
}

/// The answer to `TIME`, in microseconds.
pub(crate) fn clock_us(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else {
        return None;
    };
    let mut parts = parts.iter().map(|part| match part {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    });
    let (seconds, micros) = (parts.next()??, parts.next()??);
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests;
