//! The state of a server at its handshake that must not change. `session.rs` decides when it is
//! checked.

use redis::{Pipeline, Value};

use crate::ledger::birth::Incarnation;
use crate::node::OnDisk;

use super::info::Info;
use super::sections::on_disk;
use super::server::SYNC_SETTINGS;

/// The state of a server at its handshake that must not change.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The server's part of its birth record.
    pub(crate) server: Incarnation<String>,
    /// Whether it may evict locks.
    pub(crate) evicts: bool,
}

impl Image {
    /// The questions to the server. `CONFIG` only if durability depends on it and it is not
    /// refused.
    pub(crate) fn questions(&self, with_config: bool) -> Pipeline {
        let mut pipe = redis::pipe();
        for section in ["replication", "memory", "persistence"] {
            pipe.cmd("INFO").arg(section);
        }
        if self.server.durable && with_config {
            for setting in SYNC_SETTINGS {
                pipe.cmd("CONFIG").arg("GET").arg(setting);
            }
        }
        pipe
    }

    /// Whether the answers to [`Image::questions`] say that `CONFIG` is refused.
    pub(crate) fn refuse_config(answers: &[Value]) -> bool {
        matches!(answers.get(3), Some(Value::ServerError(_)))
    }

    /// What has changed, by the answers to [`Image::questions`]: then the handshake must be
    /// repeated.
    pub(crate) fn change(&self, answers: &[Value]) -> Option<&'static str> {
        let mut sections = answers.iter().map(Info::read);
        let mut section = || sections.next().flatten();
        let (Some(replication), Some(memory), Some(persistence)) =
            (section(), section(), section())
        else {
            return Some("does not report its state any more");
        };
        let reported = replication.replication_id();
        let known = self.server.replication_id.as_deref();
        let setting = |i| answers.get(i).unwrap_or(&Value::Nil);
        let synced = on_disk(&persistence, [setting(3), setting(4)]);
        match () {
            () if replication.get("role") == Some("slave") => Some("has become a replica"),
            () if known.is_some() && reported.is_some() && reported != known => {
                Some("has another replication id")
            }
            () if replication.has_replicas() && !self.server.replicated => {
                Some("has a replica now")
            }
            () if memory.memory().evicts() != self.evicts => {
                Some("has another maxmemory or maxmemory-policy")
            }
            () if self.server.durable && matches!(synced, OnDisk::Never | OnDisk::Later) => {
                Some("does not sync every write to its append-only file any more")
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn image() -> Image {
        Image {
            server: Incarnation {
                run_id: "ab".to_owned(),
                replication_id: Some("e1".to_owned()),
                database: 0,
                epoch: None,
                replicated: false,
                durable: true,
            },
            evicts: false,
        }
    }

    fn answers() -> Vec<Value> {
        vec![
            text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            text("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            text("aof_enabled:1\r\n"),
            Value::Array(vec![text("appendfsync"), text("always")]),
            Value::Array(vec![text("no-appendfsync-on-rewrite"), text("no")]),
        ]
    }

    #[test]
    fn a_server_that_did_not_change_is_let_be() {
        assert_eq!(image().change(&answers()), None);
        // If CONFIG is refused, INFO must suffice.
        assert_eq!(image().change(&answers()[..3]), None);
    }

    #[test]
    fn every_change_that_matters_is_noticed() {
        let everysec = Value::Array(vec![text("appendfsync"), text("everysec")]);
        for (answer, instead) in [
            (
                0,
                text("role:slave\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e2\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n"),
            ),
            (1, text("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n")),
            (2, text("aof_enabled:0\r\n")),
            (2, Value::Nil),
            (3, everysec),
        ] {
            let mut answers = answers();
            answers[answer] = instead.clone();
            assert!(image().change(&answers).is_some(), "{instead:?}");
        }
    }

    #[test]
    fn what_is_known_already_is_no_change() {
        let mut image = image();
        (image.server.replicated, image.server.durable) = (true, false);
        let mut answers = answers();
        answers[0] = text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n");
        answers[2] = text("aof_enabled:0\r\n");
        assert_eq!(image.change(&answers), None);
    }
}
