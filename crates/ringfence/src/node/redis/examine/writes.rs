//! Why a server refuses writes, as far as it tells without a write.

use redis::Value;

use crate::node::WriteStop;
use crate::node::redis::handshake::info::Info;
use crate::node::redis::transport::connection::Connection;

use super::Examiner;
use super::service::REPLICATION_ANSWER;

/// The index of `INFO persistence` in the answers to the questions of a handshake.
const PERSISTENCE_ANSWER: usize = 3;

impl Examiner {
    /// The reasons in the `answers` to the questions of a handshake, and in the settings that decide
    /// whether they are reasons.
    pub(super) async fn write_stops(
        &self,
        connection: &mut Connection,
        answers: &[Value],
        may_ask_config: bool,
    ) -> Vec<WriteStop> {
        let info = |at: usize| answers.get(at).and_then(Info::read).unwrap_or_default();
        let (persistence, replication) = (info(PERSISTENCE_ANSWER), info(REPLICATION_ANSWER));
        let mut stops = Vec::new();
        if persistence.get("rdb_last_bgsave_status") == Some("err") {
            let error = self
                .setting(connection, "stop-writes-on-bgsave-error", may_ask_config)
                .await;
            let save = self.setting(connection, "save", may_ask_config).await;
            let both = error.zip(save);
            let stops_writes = both.map(|(error, save)| error == "yes" && !save.is_empty());
            stops.push(WriteStop::SnapshotFailed {
                stops: stops_writes,
            });
        }
        let has_log = persistence.get("aof_enabled") == Some("1");
        if has_log && persistence.get("aof_last_write_status") == Some("err") {
            stops.push(WriteStop::LogFailed);
        }
        // The server reports this only if it needs replicas.
        let good = replication.get("min_slaves_good_slaves");
        if let Some(good) = good.and_then(|good| good.parse().ok()) {
            let needed = self.least_replicas(connection, may_ask_config).await;
            if needed.unwrap_or(1) > good {
                stops.push(WriteStop::TooFewReplicas { good, needed });
            }
        }
        stops
    }
}
