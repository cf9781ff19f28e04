//! The examination of a service behind Sentinels: the Sentinels, and the replicas of the master.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::environment::own_task;
use crate::node::{
    ClockSample, NodeClock, ReplicaExamination, SentinelWord, ServiceExamination, Trouble,
    TroubleKind,
};
use crate::protocol::ConfirmedMaster;
use crate::url::Address;

use super::Examiner;
use crate::node::redis::handshake::sections::setting;
use crate::node::redis::sentinel::{self, Sentinels};
use crate::node::redis::wire::Connection;
use crate::node::redis::wire::dial::Dial;
use crate::node::redis::wire::tls::TlsError;
use crate::node::redis::wire::wake_listeners::WakeListeners;

/// The index of `INFO replication` in the answers to the questions of a handshake.
pub(super) const REPLICATION_ANSWER: usize = 1;
/// The most replicas that are examined. The list comes from the server.
const REPLICAS_MAX: usize = 16;

/// The confirmed master, and the word of each Sentinel.
type Found = (
    ConfirmedMaster,
    Vec<(String, Result<SentinelWord, Trouble>)>,
);

/// The facts about the service.
pub(super) fn examination(
    (confirmed, sentinels): Found,
    replicas: Vec<ReplicaExamination>,
    least_replicas: Option<u64>,
) -> ServiceExamination {
    ServiceExamination {
        master: confirmed.address.to_string(),
        epoch: confirmed.epoch,
        total: confirmed.sentinels,
        sentinels,
        replicas,
        least_replicas,
    }
}

/// A replica, as its master reports it.
pub(in crate::node::redis) struct Replica {
    host: String,
    port: u16,
    lag: Option<Duration>,
}

impl Examiner {
    /// The master that a majority of the Sentinels confirms, and the word of each Sentinel; `None`
    /// for a server by its own address.
    pub(super) async fn find_master(&self) -> Result<Option<Found>, Trouble> {
        let Address::Service(service) = &self.url.address else {
            return Ok(None);
        };
        let login = self.url.sentinel.clone().unwrap_or_default();
        let sentinels = Sentinels::of(service, &login, self.clock.clone());
        let sentinels = sentinels.map_err(|error| self.untried(&error))?;
        let sentinels = Arc::new(sentinels);
        // Ends with the Sentinels.
        tokio::spawn(own_task(sentinel::run(&sentinels)));
        let asked = self.clock.now();
        let confirmed = sentinels.confirm(asked).await;
        let confirmed = confirmed.map_err(|error| error.trouble().clone())?;
        sentinels.all_asked(asked).await;
        Ok(Some((confirmed, sentinels.words())))
    }

    /// The TLS files of the URL cannot be used.
    pub(super) fn untried(&self, error: &TlsError) -> Trouble {
        let what = format!("cannot be tried: {error}");
        self.reporter.trouble(TroubleKind::Tls, what)
    }

    /// The facts about `replicas`. Their addresses are what the master says, and a password may go to
    /// no address that neither the user nor a majority of the Sentinels named: so their clocks are
    /// read only if the caller asks for them.
    pub(super) async fn examine_replicas(
        &self,
        dial: &Dial,
        replicas: Vec<Replica>,
        wall: &NodeClock,
    ) -> Vec<ReplicaExamination> {
        let mut examined = Vec::new();
        for Replica { host, port, lag } in replicas {
            let address = Address::Tcp(host, port);
            let clock = match dial.at(&address).filter(|_| self.replica_clocks) {
                Some(dial) => Some(self.replica_clock(&dial, wall).await),
                None => None,
            };
            examined.push(ReplicaExamination {
                address: address.to_string(),
                lag,
                clock,
            });
        }
        examined
    }

    async fn replica_clock(&self, dial: &Dial, wall: &NodeClock) -> Result<ClockSample, Trouble> {
        let listeners = Arc::new(WakeListeners::default());
        let mut connection = self.bounded(dial.connect(None, &listeners)).await?;
        self.read_clock(&mut connection, wall).await
    }

    /// How many replicas the master needs to accept writes.
    pub(super) async fn least_replicas(
        &self,
        connection: &mut Connection,
        may_ask_config: bool,
    ) -> Option<u64> {
        let least = self.setting(connection, "min-replicas-to-write", may_ask_config);
        least.await?.parse().ok()
    }

    /// A setting of the server; `None` if our user may not read it.
    pub(super) async fn setting(
        &self,
        connection: &mut Connection,
        name: &str,
        may_ask_config: bool,
    ) -> Option<String> {
        if !may_ask_config {
            return None;
        }
        let mut pipe = redis::pipe();
        pipe.cmd("CONFIG").arg("GET").arg(name);
        let answers = self.bounded(connection.ask(pipe)).await.ok()?;
        setting(answers.first()?).map(str::to_owned)
    }
}

/// The replicas in the answer to `INFO replication`: lines such as
/// `slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=0`.
pub(in crate::node::redis) fn replicas(answer: Option<&Value>) -> Vec<Replica> {
    let text = match answer {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::VerbatimString { text, .. }) => text.clone(),
        _ => return Vec::new(),
    };
    let lines = text.lines().filter_map(|line| {
        let (name, fields) = line.strip_prefix("slave")?.split_once(':')?;
        name.parse::<u32>().ok()?;
        let field = |name: &str| {
            let mut fields = fields.trim_end().split(',');
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let lag = field("lag").and_then(|lag| lag.parse().ok());
        Some(Replica {
            host: field("ip")?.to_owned(),
            port: field("port")?.parse().ok()?,
            lag: lag.map(Duration::from_secs),
        })
    });
    lines.take(REPLICAS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replicas_of_a_master_are_read() {
        let text = "role:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=10.0.0.2,port=6380,state=online,offset=14,lag=1\r\n\
                    slave1:ip=::1,port=6381,state=wait_bgsave,offset=0\r\n\
                    slave_repl_offset:3\r\nslavex:ip=a,port=1\r\n";
        let found = replicas(Some(&Value::BulkString(text.into())));
        let found: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    Address::Tcp(one.host.clone(), one.port).to_string(),
                    one.lag,
                )
            })
            .collect();
        let expected = [
            ("10.0.0.2:6380".to_owned(), Some(Duration::from_secs(1))),
            ("[::1]:6381".to_owned(), None),
        ];
        assert_eq!(found, expected);
        assert!(replicas(None).is_empty());
    }
}
