//! What a server says about itself, and whether such a server may keep locks.

use redis::{Pipeline, Value};

use crate::node::{CallError, TroubleKind};

use super::key::BORN_KEY;
use super::report::Reporter;

/// What the URL says about how strict to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leniency {
    /// `?quarantine=off`.
    pub(super) no_quarantine: bool,
    /// `?eviction=allow`.
    pub(super) eviction_allowed: bool,
}

/// A server that may keep locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// What the server calls this run of itself.
    pub(super) run_id: String,
    /// Server and version, for people.
    pub(super) version: String,
    /// Whether every write is on disk before it is answered, and nobody else has a copy: a replica
    /// that is started as a master has this one's birth record, and perhaps not its last locks.
    pub(super) durable: bool,
    /// Whether its data is its own: a promoted replica has its former master's, or some of it.
    pub(super) never_promoted: bool,
    /// Whether locks may be evicted.
    pub(super) evicts: bool,
    /// The birth record, if there is one.
    pub(super) born: Option<String>,
    /// The server's clock.
    pub(super) clock_us: u64,
}

/// The questions that [`Server::read`] takes the answers to. They change nothing.
pub(super) fn questions() -> Pipeline {
    let mut pipe = redis::pipe();
    for section in ["server", "replication", "memory", "persistence"] {
        pipe.cmd("INFO").arg(section);
    }
    pipe.cmd("CONFIG").arg("GET").arg("appendfsync");
    pipe.cmd("GET").arg(BORN_KEY);
    pipe.cmd("TIME");
    pipe
}

impl Server {
    /// Reads the answers to [`questions`] and refuses servers that cannot keep locks.
    pub(super) fn read(
        answers: Vec<Value>,
        reporter: &Reporter,
        leniency: Leniency,
    ) -> Result<Self, CallError> {
        let garbage = || CallError::Refused(reporter.garbage());
        let Ok(
            [
                server,
                replication,
                memory,
                persistence,
                appendfsync,
                born,
                time,
            ],
        ) = <[Value; 7]>::try_from(answers)
        else {
            return Err(garbage());
        };
        let info = |value: &Value| match value {
            Value::BulkString(text) => Ok(Info(String::from_utf8_lossy(text).into_owned())),
            Value::VerbatimString { text, .. } => Ok(Info(text.clone())),
            Value::ServerError(error) => Err(CallError::Refused(reporter.server_error(error))),
            _ => Err(garbage()),
        };
        let (server, replication) = (info(&server)?, info(&replication)?);
        let (memory, persistence) = (info(&memory)?, info(&persistence)?);
        let run_id = server.get("run_id").unwrap_or_default();
        if run_id.is_empty() || !run_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(garbage());
        }
        let born = match born {
            Value::Nil => None,
            Value::BulkString(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            Value::ServerError(error) => {
                return Err(CallError::Refused(reporter.server_error(&error)));
            }
            _ => return Err(garbage()),
        };
        // Where CONFIG is forbidden nothing is known, and what is unknown is not durable.
        let appendfsync = match &appendfsync {
            Value::Array(pair) => pair.get(1),
            Value::Map(pairs) => pairs.first().map(|(_, value)| value),
            _ => None,
        };
        let appendfsync_always =
            matches!(appendfsync, Some(Value::BulkString(v)) if v == b"always");
        let policy = memory.get("maxmemory_policy").unwrap_or("noeviction");
        let found = Self {
            run_id: run_id.to_owned(),
            version: version(&server),
            durable: persistence.get("aof_enabled") == Some("1")
                && appendfsync_always
                && replication.get("connected_slaves") == Some("0"),
            never_promoted: replication
                .get("master_replid2")
                .is_some_and(|id| id.bytes().all(|byte| byte == b'0')),
            evicts: memory.get("maxmemory").is_some_and(|bytes| bytes != "0")
                && policy != "noeviction",
            born,
            clock_us: clock_us(&time).ok_or_else(garbage)?,
        };
        let mode = server.get("redis_mode").or(server.get("server_mode"));
        let refusal = match mode {
            Some("cluster") => Some((
                TroubleKind::Cluster,
                "runs in cluster mode; locks need independent masters".to_owned(),
            )),
            Some("sentinel") => Some((
                TroubleKind::Other,
                "is a Sentinel and keeps no data; name the masters themselves".to_owned(),
            )),
            _ if replication.get("role") == Some("slave") => Some((
                TroubleKind::Replica,
                "is a replica, and replicas do not vote; name its master instead".to_owned(),
            )),
            _ if persistence.get("loading") == Some("1") => {
                Some((TroubleKind::Loading, "is still reading its data".to_owned()))
            }
            _ if found.evicts && !leniency.eviction_allowed => Some((
                TroubleKind::Evicts,
                format!(
                    "may evict locks (maxmemory-policy {policy}); set it to noeviction, or accept \
                     the risk with ?eviction=allow"
                ),
            )),
            _ => None,
        };
        match refusal {
            None => Ok(found),
            Some((kind, what)) => Err(CallError::Refused(reporter.trouble(kind, what))),
        }
    }
}

fn version(server: &Info) -> String {
    match server.get("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!(
            "Redis {}",
            server.get("redis_version").unwrap_or("of unknown version")
        ),
    }
}

/// The answer to `TIME`, in microseconds.
fn clock_us(time: &Value) -> Option<u64> {
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
struct Info(String);

impl Info {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim_end())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Leniency = Leniency {
        no_quarantine: false,
        eviction_allowed: false,
    };

    fn reporter() -> Reporter {
        Reporter {
            node: "h:6379".into(),
            password: None,
        }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn answers(memory: &str) -> Vec<Value> {
        vec![
            text("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:ab12\r\n"),
            text("role:master\r\nconnected_slaves:0\r\nmaster_replid2:0000\r\n"),
            text(memory),
            text("loading:0\r\naof_enabled:1\r\n"),
            Value::Array(vec![text("appendfsync"), text("always")]),
            Value::Nil,
            Value::Array(vec![text("1700000000"), text("5")]),
        ]
    }

    #[test]
    fn a_sound_server_is_read() {
        let server = Server::read(answers("maxmemory:0"), &reporter(), STRICT).unwrap();
        assert_eq!(server.run_id, "ab12");
        assert_eq!(server.version, "Redis 7.0.15");
        assert!(server.durable && server.never_promoted && !server.evicts);
        assert_eq!(server.clock_us, 1_700_000_000_000_005);
    }

    #[test]
    fn where_config_is_forbidden_nothing_is_durable() {
        let mut answers = answers("maxmemory:0");
        answers[4] = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        assert!(!Server::read(answers, &reporter(), STRICT).unwrap().durable);
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
    fn nonsense_is_garbage() {
        for i in 0..7 {
            if i == 4 {
                continue;
            }
            let mut answers = answers("maxmemory:0");
            answers[i] = Value::Int(3);
            let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
            assert_eq!(refused.trouble().kind, TroubleKind::Garbage, "{i}");
        }
        let refused = Server::read(vec![Value::Okay], &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Garbage);
    }
}
