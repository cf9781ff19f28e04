//! What a server says about itself, and whether such a server may keep locks.

use std::time::Duration;

use redis::{Pipeline, Value};

use crate::group::Group;
use crate::ledger::birth::{self, Present, Verdict};
use crate::node::{CallError, Memory, OnDisk, Role, Tier, TroubleKind};

use super::born::{BORN_MAX_BYTES, Born, is_id};
use super::key::BORN_KEY;
use super::report::{Reporter, quote};

/// What the URL says about how strict to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leniency {
    /// `?quarantine=off`.
    pub(super) no_quarantine: bool,
    /// `?eviction=allow`.
    pub(super) eviction_allowed: bool,
    /// `?durable=yes`: not lenient, but the same kind of word.
    pub(super) said_durable: bool,
}

/// What a server says about itself. Whether such a one may keep locks, [`Server::refusal`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// What the server calls this run of itself.
    pub(super) run_id: String,
    /// What it calls the history of its data, which its replicas share; `None` if it does not tell.
    pub(super) replication_id: Option<String>,
    /// For how many seconds it remembers a former replication id once nobody follows it, zero for ever
    /// (`repl-backlog-ttl`); `None` where CONFIG is forbidden.
    pub(super) backlog_ttl_s: Option<u64>,
    /// Server and version, for people.
    pub(super) version: String,
    /// What it is among other servers.
    pub(super) role: Role,
    /// Whether it still reads its data.
    pub(super) loading: bool,
    /// When what it wrote is on disk.
    pub(super) on_disk: OnDisk,
    /// Whether replicas follow it, or may: nothing else is known.
    pub(super) has_replicas: bool,
    /// Whether every write is on disk before it is answered, and nobody else has a copy: a replica
    /// that is started as a master has this one's birth record, and perhaps not its last locks.
    pub(super) durable: bool,
    /// Whether its data is its own: a promoted replica has its former master's, or some of it.
    pub(super) never_promoted: bool,
    /// How much it may keep, and what it does beyond that.
    pub(super) memory: Memory,
    /// Whether locks may be evicted.
    pub(super) evicts: bool,
    /// The birth record, if there is one.
    pub(super) born: Option<String>,
    /// The server's clock.
    pub(super) clock_us: u64,
}

/// Which of the answers to [`questions`] is the birth record.
pub(super) const BORN_ANSWER: usize = 4;
/// Which of the answers are to `CONFIG GET`: the last ones.
const CONFIG_ANSWERS: usize = 6;
/// The settings that durability rests on.
pub(super) const SYNC_SETTINGS: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];
const BACKLOG_SETTING: &str = "repl-backlog-ttl";
/// The shortest id of a run that is believed.
const RUN_ID_MIN_CHARS: usize = 32;

/// The questions that [`Server::read`] takes the answers to, those of [`ask_config`] behind them where
/// `CONFIG` may be asked: every refusal is an entry in the server's ACL LOG. They change nothing.
pub(super) fn questions() -> Pipeline {
    let mut pipe = redis::pipe();
    for section in ["server", "replication", "memory", "persistence"] {
        pipe.cmd("INFO").arg(section);
    }
    pipe.cmd("GET").arg(BORN_KEY);
    pipe.cmd("TIME");
    pipe
}

/// See [`questions`].
pub(super) fn ask_config(pipe: &mut Pipeline) {
    for setting in SYNC_SETTINGS.into_iter().chain([BACKLOG_SETTING]) {
        pipe.cmd("CONFIG").arg("GET").arg(setting);
    }
}

/// Whether the answers to [`questions`] say that `CONFIG` is refused.
pub(super) fn refuse_config(answers: &[Value]) -> bool {
    matches!(answers.get(CONFIG_ANSWERS), Some(Value::ServerError(_)))
}

impl Server {
    /// Reads the answers to [`questions`] and refuses servers that cannot keep locks.
    pub(super) fn read(
        answers: Vec<Value>,
        reporter: &Reporter,
        leniency: Leniency,
    ) -> Result<Self, CallError> {
        let found = Self::look(answers, reporter)?.believing(leniency);
        match found.refusal(leniency) {
            None => Ok(found),
            Some((kind, what)) => Err(CallError::Refused(reporter.trouble(kind, what))),
        }
    }

    /// Reads the answers to [`questions`], whatever server it is.
    pub(super) fn look(mut answers: Vec<Value>, reporter: &Reporter) -> Result<Self, CallError> {
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
        let info = |value: &Value| match value {
            Value::ServerError(error) => Err(CallError::Refused(reporter.server_error(error))),
            _ => Info::read(value).ok_or_else(garbage),
        };
        let (server, replication) = (info(&server)?, info(&replication)?);
        let (memory, persistence) = (info(&memory)?, info(&persistence)?);
        let run_id = server.get("run_id").unwrap_or_default();
        // Every Redis and Valkey has one of 40 characters.
        if !is_id(run_id) || run_id.len() < RUN_ID_MIN_CHARS {
            return Err(garbage());
        }
        let born = match born {
            Value::Nil => None,
            // What is too long cannot be read anyway.
            Value::BulkString(mut text) => {
                text.truncate(BORN_MAX_BYTES + 1);
                Some(String::from_utf8_lossy(&text).into_owned())
            }
            Value::ServerError(error) => {
                return Err(CallError::Refused(reporter.server_error(&error)));
            }
            _ => return Err(garbage()),
        };
        let on_disk = on_disk(&persistence, [&appendfsync, &not_on_rewrite]);
        let has_replicas = replication.has_replicas();
        let memory = memory.memory();
        Ok(Self {
            run_id: run_id.to_owned(),
            replication_id: replication.replication_id().map(str::to_owned),
            backlog_ttl_s: setting(&backlog_ttl).and_then(|value| value.parse().ok()),
            version: version(&server),
            role: role(&server, &replication),
            loading: persistence.get("loading") == Some("1"),
            on_disk,
            has_replicas,
            durable: match on_disk {
                OnDisk::Always => !has_replicas,
                OnDisk::Later | OnDisk::Never | OnDisk::Unknown => false,
            },
            never_promoted: replication
                .get("master_replid2")
                .is_some_and(|id| id.bytes().all(|byte| byte == b'0')),
            evicts: memory.evicts(),
            memory,
            born,
            clock_us: clock_us(&time).ok_or_else(garbage)?,
        })
    }

    /// The same server, with the user's word where its own is not to be had: what is unknown is not
    /// durable otherwise.
    pub(super) fn believing(mut self, leniency: Leniency) -> Self {
        if leniency.said_durable && self.on_disk == OnDisk::Unknown {
            self.durable = !self.has_replicas;
        }
        self
    }

    /// The birth record `born`, if it is this incarnation's: that of an earlier one says nothing about
    /// this one, save the group's values.
    pub(super) fn own<'a>(&self, born: Option<&'a Born>) -> Option<&'a Born> {
        born.filter(|born| {
            let same_run = born.server.run_id == self.run_id;
            same_run && self.has_kept(born)
        })
    }

    /// Whether the server still has all that was there when `born` was written.
    pub(super) fn has_kept(&self, born: &Born) -> bool {
        let verdict = birth::judge(Some(&born.server), &self.present(&born.group));
        matches!(verdict, Verdict::Keep | Verdict::Update(_))
    }

    /// What decides about a birth, in a group of these values.
    fn present(&self, group: &Group) -> Present<String> {
        let ttl_s = self.backlog_ttl_s;
        Present {
            run_id: self.run_id.clone(),
            replication_id: self.replication_id.clone(),
            former_id: !self.never_promoted,
            former_id_lasts: ttl_s
                .is_some_and(|s| s == 0 || Duration::from_secs(s) >= group.quarantine),
            has_replicas: self.has_replicas,
            durable: self.durable,
            epoch: None,
        }
    }

    /// What a crash may cost, with `born` for its birth record.
    pub(super) fn tier(&self, leniency: Leniency, born: Option<&Born>) -> Tier {
        let own = self.own(born);
        match () {
            () if leniency.no_quarantine || self.evicts => Tier::BestEffort,
            () if self.durable && own.is_none_or(|born| born.server.durable) => Tier::Durable,
            () => Tier::Quarantined,
        }
    }

    /// Why this server cannot keep locks, if it cannot.
    fn refusal(&self, leniency: Leniency) -> Option<(TroubleKind, String)> {
        match &self.role {
            Role::ClusterNode => Some((
                TroubleKind::Cluster,
                "runs in cluster mode; locks need independent masters".to_owned(),
            )),
            Role::Sentinel => Some((
                TroubleKind::Other,
                "is a Sentinel and keeps no data; name the masters themselves".to_owned(),
            )),
            Role::Replica(_) => Some((
                TroubleKind::Replica,
                "is a replica, and replicas do not vote; name its master instead".to_owned(),
            )),
            Role::Master if self.loading => {
                Some((TroubleKind::Loading, "is still reading its data".to_owned()))
            }
            Role::Master if leniency.said_durable && !self.durable => Some((
                TroubleKind::NotDurable,
                "is not durable, though its URL says ?durable=yes; that takes appendonly yes, \
                 appendfsync always, no-appendfsync-on-rewrite no, and no replica"
                    .to_owned(),
            )),
            Role::Master if self.evicts && !leniency.eviction_allowed => Some((
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

fn role(server: &Info, replication: &Info) -> Role {
    match server.get("redis_mode").or(server.get("server_mode")) {
        Some("cluster") => Role::ClusterNode,
        Some("sentinel") => Role::Sentinel,
        _ if replication.get("role") == Some("slave") => {
            let master = |field| replication.get(field).filter(|value| !value.is_empty());
            Role::Replica(
                master("master_host")
                    .zip(master("master_port"))
                    .map(|(host, port)| quote(&format!("{host}:{port}"))),
            )
        }
        _ => Role::Master,
    }
}

/// A server that leaves out syncing while it rewrites its file may lose what it wrote meanwhile.
pub(super) fn on_disk(persistence: &Info, sync_settings: [&Value; 2]) -> OnDisk {
    let [appendfsync, not_on_rewrite] = sync_settings;
    match (setting(appendfsync), setting(not_on_rewrite)) {
        _ if persistence.get("aof_enabled") != Some("1") => OnDisk::Never,
        (Some("always"), Some("no")) => OnDisk::Always,
        (Some(_), _) => OnDisk::Later,
        (None, _) => OnDisk::Unknown,
    }
}

/// The answer to `CONFIG GET`; `None` where that is forbidden.
fn setting(answer: &Value) -> Option<&str> {
    let value = match answer {
        Value::Array(pair) => pair.get(1),
        Value::Map(pairs) => pairs.first().map(|(_, value)| value),
        _ => None,
    };
    match value? {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

fn version(server: &Info) -> String {
    match server.get("valkey_version") {
        Some(version) => quote(&format!("Valkey {version}")),
        None => quote(&format!(
            "Redis {}",
            server.get("redis_version").unwrap_or("of unknown version")
        )),
    }
}

/// The answer to `TIME`, in microseconds.
pub(super) fn clock_us(time: &Value) -> Option<u64> {
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

/// One section of `INFO`: lines of `name:value`.
pub(super) struct Info(String);

impl Info {
    /// The answer to `INFO`; `None` if it is none.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        match answer {
            Value::BulkString(text) => Some(Self(String::from_utf8_lossy(text).into_owned())),
            Value::VerbatimString { text, .. } => Some(Self(text.clone())),
            _ => None,
        }
    }

    pub(super) fn replication_id(&self) -> Option<&str> {
        self.get("master_replid").filter(|id| is_id(id))
    }

    /// Whether replicas follow the server, or may: where it does not tell, they may.
    pub(super) fn has_replicas(&self) -> bool {
        self.get("connected_slaves") != Some("0")
    }

    pub(super) fn memory(&self) -> Memory {
        Memory {
            used_bytes: self.number("used_memory"),
            max_bytes: self.number("maxmemory"),
            policy: quote(self.get("maxmemory_policy").unwrap_or("noeviction")),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim_end())
        })
    }

    /// Zero if it is not there or no number.
    fn number(&self, name: &str) -> u64 {
        self.get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_ID: &str = "ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12";
    const STRICT: Leniency = Leniency {
        no_quarantine: false,
        eviction_allowed: false,
        said_durable: false,
    };

    fn reporter() -> Reporter {
        Reporter::new("h:6379", None, None)
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn answers(memory: &str) -> Vec<Value> {
        vec![
            text(&format!(
                "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:{RUN_ID}\r\n"
            )),
            text(
                "role:master\r\nconnected_slaves:0\r\nmaster_replid:ee1\r\nmaster_replid2:0000\r\n",
            ),
            text(memory),
            text("loading:0\r\naof_enabled:1\r\n"),
            Value::Nil,
            Value::Array(vec![text("1700000000"), text("5")]),
            Value::Array(vec![text("appendfsync"), text("always")]),
            Value::Array(vec![text("no-appendfsync-on-rewrite"), text("no")]),
            Value::Array(vec![text("repl-backlog-ttl"), text("3600")]),
        ]
    }

    #[test]
    fn a_sound_server_is_read() {
        let server = Server::read(answers("maxmemory:0"), &reporter(), STRICT).unwrap();
        assert_eq!(server.run_id, RUN_ID);
        assert_eq!(server.version, "Redis 7.0.15");
        assert_eq!(server.replication_id.as_deref(), Some("ee1"));
        assert_eq!(server.backlog_ttl_s, Some(3600));
        assert!(server.durable && server.never_promoted && !server.evicts);
        assert_eq!(server.clock_us, 1_700_000_000_000_005);
    }

    const SAID: Leniency = Leniency {
        said_durable: true,
        ..STRICT
    };

    fn forbidden() -> Value {
        redis::parse_redis_value(b"-NOPERM no\r\n").unwrap()
    }

    #[test]
    fn where_config_is_forbidden_nothing_is_durable_unless_the_user_says_so() {
        let mut answers = answers("maxmemory:0");
        (answers[6], answers[7]) = (forbidden(), forbidden());
        assert!(refuse_config(&answers));
        let read = |leniency| Server::read(answers.clone(), &reporter(), leniency);
        assert!(!read(STRICT).unwrap().durable);
        assert!(read(SAID).unwrap().durable);
    }

    #[test]
    fn the_user_s_word_does_not_stand_against_the_server_s() {
        for (answer, value) in [
            (3, text("loading:0\r\naof_enabled:0\r\n")),
            (6, Value::Array(vec![text("appendfsync"), text("everysec")])),
            (
                7,
                Value::Array(vec![text("no-appendfsync-on-rewrite"), text("yes")]),
            ),
        ] {
            let mut answers = answers("maxmemory:0");
            answers[answer] = value;
            let read = |leniency| Server::read(answers.clone(), &reporter(), leniency);
            assert!(!read(STRICT).unwrap().durable, "{answer}");
            let refused = read(SAID).unwrap_err();
            assert_eq!(refused.trouble().kind, TroubleKind::NotDurable, "{answer}");
        }
    }

    #[test]
    fn a_master_with_a_replica_is_not_durable() {
        let mut answers = answers("maxmemory:0");
        answers[1] = text("role:master\r\nconnected_slaves:1\r\nmaster_replid2:0000\r\n");
        assert!(!Server::read(answers, &reporter(), STRICT).unwrap().durable);
    }

    #[test]
    fn eviction_is_refused_unless_it_is_allowed() {
        let memory = "maxmemory:1000\r\nmaxmemory_policy:volatile-lru";
        let refused = Server::read(answers(memory), &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Evicts);
        let lenient = Leniency {
            eviction_allowed: true,
            ..STRICT
        };
        assert!(
            Server::read(answers(memory), &reporter(), lenient)
                .unwrap()
                .evicts
        );
        let harmless = "maxmemory:1000\r\nmaxmemory_policy:noeviction";
        assert!(Server::read(answers(harmless), &reporter(), STRICT).is_ok());
    }

    #[test]
    fn what_a_server_says_of_itself_is_safe_to_print() {
        let mut answers = answers("maxmemory:0");
        answers[0] = text(&format!("redis_version:7\u{1b}[2J\r\nrun_id:{RUN_ID}\r\n"));
        let server = Server::read(answers, &reporter(), STRICT).unwrap();
        assert_eq!(server.version, "Redis 7\\u{1b}[2J");
    }

    #[test]
    fn a_replica_names_its_master() {
        let mut answers = answers("maxmemory:0");
        answers[1] = text("role:slave\r\nmaster_host:h2\r\nmaster_port:6380\r\n");
        let server = Server::look(answers.clone(), &reporter()).unwrap();
        assert_eq!(server.role, Role::Replica(Some("h2:6380".to_owned())));
        let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Replica);
    }

    #[test]
    fn the_birth_record_of_an_earlier_run_says_nothing_about_this_one() {
        let server = Server::read(answers("maxmemory:0"), &reporter(), STRICT).unwrap();
        for (run_id, is_own) in [(RUN_ID, true), ("cd34", false)] {
            let text = format!("2 {run_id} ee1 - 0 5 5 0 3 5000000 35000 300");
            let born = Born::parse(&text).unwrap();
            assert_eq!(server.own(Some(&born)).is_some(), is_own, "{run_id}");
        }
    }

    /// After how many seconds the former id is forgotten decides, if it is not there.
    #[test]
    fn the_birth_record_before_a_promotion_says_nothing_either() {
        let born = Born::parse(&format!("2 {RUN_ID} ee0 - 1 5 5 0 3 5000000 35000 300")).unwrap();
        let promoted = "role:master\r\nmaster_replid:ee1\r\nmaster_replid2:ee0\r\n";
        let followed = "role:master\r\nmaster_replid:ee1\r\nmaster_replid2:000\r\n";
        for (replication, ttl, is_own) in [
            (promoted, "3600", false),
            (followed, "3600", true),
            (followed, "35", true),
            (followed, "34", false),
            (followed, "0", true),
            (followed, "", false),
        ] {
            let mut answers = answers("maxmemory:0");
            answers[1] = text(replication);
            answers[8] = Value::Array(vec![text("repl-backlog-ttl"), text(ttl)]);
            let server = Server::read(answers, &reporter(), STRICT).unwrap();
            assert_eq!(
                server.own(Some(&born)).is_some(),
                is_own,
                "{replication} {ttl}"
            );
        }
    }

    #[test]
    fn a_node_in_cluster_mode_is_refused() {
        let mut answers = answers("maxmemory:0");
        answers[0] = text(&format!(
            "redis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:{RUN_ID}\r\n"
        ));
        let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Cluster);
    }

    #[test]
    fn nonsense_is_garbage() {
        for i in 0..CONFIG_ANSWERS {
            let mut answers = answers("maxmemory:0");
            answers[i] = Value::Int(3);
            let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
            assert_eq!(refused.trouble().kind, TroubleKind::Garbage, "{i}");
        }
        let refused = Server::read(vec![Value::Okay], &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Garbage);
    }

    #[test]
    fn what_a_server_calls_itself_has_a_length() {
        let long = "a".repeat(100_000);
        let mut answers = answers("");
        for run_id in ["", "ab12", &long, &"x".repeat(40)] {
            answers[0] = text(&format!("redis_version:7\r\nrun_id:{run_id}\r\n"));
            let refused = Server::look(answers.clone(), &reporter()).unwrap_err();
            assert_eq!(refused.trouble().kind, TroubleKind::Garbage, "{run_id:.50}");
        }
        answers[0] = text(&format!("redis_version:{long}\r\nrun_id:{RUN_ID}\r\n"));
        answers[1] = text(&format!(
            "role:slave\r\nmaster_host:{long}\r\nmaster_port:1\r\nmaster_replid:{long}\r\n"
        ));
        answers[2] = text(&format!("maxmemory_policy:{long}\r\n"));
        answers[BORN_ANSWER] = text(&long);
        let server = Server::look(answers, &reporter()).unwrap();
        let master = match &server.role {
            Role::Replica(master) => master.as_deref().unwrap_or_default(),
            other => panic!("{other:?}"),
        };
        for kept in [&server.version, master, &server.memory.policy] {
            assert!(kept.len() < 1_000, "{}", kept.len());
        }
        assert_eq!(server.replication_id, None);
        assert!(server.born.is_some_and(|born| born.len() <= 1_000));
    }
}
