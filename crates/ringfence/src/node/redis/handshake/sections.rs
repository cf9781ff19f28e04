//! The sections of `INFO` that a handshake reads, and what they say about the server.

use redis::Value;

use crate::node::{CallError, OnDisk, Role, TroubleKind};

use super::born::is_id;
use super::info::Info;
use crate::node::redis::report::{Reporter, quote};

/// The shortest run id that is accepted.
const RUN_ID_MIN_CHARS: usize = 32;

/// See the module. A section that our user may not read is empty.
pub(crate) struct Sections {
    /// The run id; `None` if our user may not read it.
    pub(crate) run_id: Option<String>,
    /// Whether our user may not read what shows a restart, a failover or an eviction.
    pub(crate) unseen: bool,
    server: Info,
    pub(crate) replication: Info,
    pub(crate) memory: Info,
    /// `None` if our user may not read it.
    persistence: Option<Info>,
}

impl Sections {
    /// The answers to `INFO` for the sections server, replication, memory and persistence.
    pub(crate) fn read(answers: [Value; 4], reporter: &Reporter) -> Result<Self, CallError> {
        let garbage = || CallError::Refused(reporter.garbage());
        let info = |value: &Value| match value {
            Value::ServerError(error) => match reporter.server_error(error) {
                trouble if trouble.kind == TroubleKind::Denied => Ok(None),
                trouble => Err(CallError::Refused(trouble)),
            },
            _ => Info::read(value).map(Some).ok_or_else(garbage),
        };
        let [server, replication, memory, persistence] = &answers;
        let (server, replication) = (info(server)?, info(replication)?);
        let (memory, persistence) = (info(memory)?, info(persistence)?);
        let run_id = server
            .as_ref()
            .map(|server| run_id(server).ok_or_else(garbage));
        Ok(Self {
            run_id: run_id.transpose()?,
            unseen: server.is_none() || replication.is_none() || memory.is_none(),
            server: server.unwrap_or_default(),
            replication: replication.unwrap_or_default(),
            memory: memory.unwrap_or_default(),
            persistence,
        })
    }

    /// The server's role. One that is not known counts as a master: a replica refuses to write.
    pub(crate) fn role(&self) -> Role {
        let (server, replication) = (&self.server, &self.replication);
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

    /// When the server's writes are on disk.
    pub(crate) fn on_disk(&self, sync_settings: [&Value; 2]) -> OnDisk {
        match &self.persistence {
            None => OnDisk::Unknown,
            Some(persistence) => on_disk(persistence, sync_settings),
        }
    }

    pub(crate) fn is_loading(&self) -> bool {
        let persistence = self.persistence.as_ref();
        persistence.is_some_and(|info| info.get("loading") == Some("1"))
    }

    /// Server and version, for people.
    pub(crate) fn version(&self) -> String {
        match self.server.get("valkey_version") {
            Some(version) => quote(&format!("Valkey {version}")),
            None => quote(&format!(
                "Redis {}",
                self.server
                    .get("redis_version")
                    .unwrap_or("of unknown version")
            )),
        }
    }
}

/// The run id; `None` if it is malformed. Every Redis and Valkey has one of 40 characters.
fn run_id(server: &Info) -> Option<String> {
    let run_id = server.get("run_id")?;
    (is_id(run_id) && run_id.len() >= RUN_ID_MIN_CHARS).then(|| run_id.to_owned())
}

/// A server that does not sync while it rewrites its file may lose the writes of that time.
pub(crate) fn on_disk(persistence: &Info, sync_settings: [&Value; 2]) -> OnDisk {
    let [appendfsync, not_on_rewrite] = sync_settings;
    match (setting(appendfsync), setting(not_on_rewrite)) {
        _ if persistence.get("aof_enabled") != Some("1") => OnDisk::Never,
        (Some("always"), Some("no")) => OnDisk::Always,
        (Some(_), _) => OnDisk::Later,
        (None, _) => OnDisk::Unknown,
    }
}

/// The answer to `CONFIG GET`; `None` if that is forbidden.
pub(crate) fn setting(answer: &Value) -> Option<&str> {
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
