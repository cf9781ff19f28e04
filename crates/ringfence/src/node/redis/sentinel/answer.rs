//! Reads what a Sentinel answers. Sentinels are input from outside: texts have a limit, and what is
//! malformed counts as no answer.

use std::net::IpAddr;
use std::time::Duration;

use redis::{Pipeline, ServerError, Value};

use crate::node::redis::handshake::born::is_id;
use crate::protocol::{MasterAddress, SentinelAnswer};
use crate::time::Timestamp;

/// The longest host name.
const HOST_MAX_BYTES: usize = 255;
/// The most IPs of a name that are looked at.
const IPS_MAX: usize = 16;
/// How long the name of a host may take to be resolved.
const RESOLVE: Duration = Duration::from_millis(500);

/// The questions to one Sentinel, in one pipeline. The address is between two epochs: during a
/// failover `MASTER` shows the old address with the new epoch.
pub(super) fn questions(service: &str) -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.cmd("SENTINEL").arg("MYID");
    pipe.cmd("SENTINEL").arg("MASTER").arg(service);
    pipe.cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(service);
    pipe.cmd("SENTINEL").arg("MASTER").arg(service);
    pipe
}

/// Why the answers of a Sentinel cannot be used.
pub(in crate::node::redis) enum Unusable {
    /// It answered a question with an error.
    Error(ServerError),
    /// It does not know the service.
    NoSuchService,
    /// Its answers are malformed.
    Malformed,
}

/// What a Sentinel said, before its address is resolved.
#[derive(Debug)]
pub(in crate::node::redis) struct Said {
    id: String,
    pub(in crate::node::redis) host: String,
    pub(in crate::node::redis) port: u16,
    epochs: [u64; 2],
    others: u32,
    pub(super) down_after: Option<Duration>,
}

impl Said {
    /// Reads the answers to [`questions`].
    pub(in crate::node::redis) fn read(answers: Vec<Value>) -> Result<Self, Unusable> {
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                let details = error.details().unwrap_or_default();
                return Err(match details.contains("No such master") {
                    true => Unusable::NoSuchService,
                    false => Unusable::Error(error.clone()),
                });
            }
        }
        let Ok([id, before, address, after]) = <[Value; 4]>::try_from(answers) else {
            return Err(Unusable::Malformed);
        };
        if address == Value::Nil {
            return Err(Unusable::NoSuchService);
        }
        Self::fields(&id, [&before, &after], &address).ok_or(Unusable::Malformed)
    }

    fn fields(id: &Value, masters: [&Value; 2], address: &Value) -> Option<Self> {
        let id = text(id).filter(|id| is_id(id))?.to_owned();
        let Value::Array(address) = address else {
            return None;
        };
        let [host, port] = address.as_slice() else {
            return None;
        };
        let host = text(host).filter(|host| is_host(host))?.to_owned();
        let port = text(port)?.parse().ok().filter(|port| *port != 0)?;
        let number = |master, name| field(master, name)?.parse::<u64>().ok();
        let epochs = masters.map(|master| number(master, "config-epoch"));
        let others = masters.map(|master| number(master, "num-other-sentinels"));
        let others = others[0]?.max(others[1]?);
        Some(Self {
            id,
            host,
            port,
            epochs: [epochs[0]?, epochs[1]?],
            others: u32::try_from(others).unwrap_or(u32::MAX),
            down_after: number(masters[1], "down-after-milliseconds").map(Duration::from_millis),
        })
    }

    /// The answer to questions that were sent at `asked_at`.
    pub(super) async fn resolve(self, asked_at: Timestamp) -> SentinelAnswer {
        let ips = match self.host.parse::<IpAddr>() {
            Ok(ip) => vec![ip.to_canonical()],
            Err(_) => {
                let found = tokio::net::lookup_host((self.host.as_str(), self.port));
                match tokio::time::timeout(RESOLVE, found).await {
                    Ok(Ok(found)) => {
                        let ips = found.map(|address| address.ip().to_canonical());
                        ips.take(IPS_MAX).collect()
                    }
                    // Texts are compared, too.
                    Ok(Err(_)) | Err(_) => Vec::new(),
                }
            }
        };
        SentinelAnswer {
            id: self.id.into(),
            master: MasterAddress {
                host: self.host.into(),
                port: self.port,
                ips: ips.into(),
            },
            epoch_before: self.epochs[0],
            epoch_after: self.epochs[1],
            others: self.others,
            asked_at,
        }
    }
}

fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    (1..=HOST_MAX_BYTES).contains(&host.len()) && host.chars().all(plain)
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// A field of the answer to `SENTINEL MASTER`: a map, or names and values in turn.
fn field<'a>(master: &'a Value, name: &str) -> Option<&'a str> {
    match master {
        Value::Map(pairs) => {
            let mut pairs = pairs.iter();
            let (_, value) = pairs.find(|(found, _)| text(found) == Some(name))?;
            text(value)
        }
        Value::Array(items) => {
            let mut pairs = items.chunks_exact(2);
            let pair = pairs.find(|pair| text(&pair[0]) == Some(name))?;
            text(&pair[1])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn list(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| bulk(item)).collect())
    }

    fn master(epoch: &str, others: &str) -> Value {
        list(&[
            "name",
            "s",
            "config-epoch",
            epoch,
            "num-other-sentinels",
            others,
        ])
    }

    fn answers() -> Vec<Value> {
        let address = list(&["10.0.0.1", "6379"]);
        vec![bulk("ab"), master("4", "2"), address, master("5", "1")]
    }

    #[test]
    fn the_answers_of_a_sentinel_are_read_in_both_protocols() {
        let said = Said::read(answers()).ok().unwrap();
        assert_eq!(
            (said.id.as_str(), said.host.as_str(), said.port),
            ("ab", "10.0.0.1", 6379)
        );
        assert_eq!((said.epochs, said.others), ([4, 5], 2));
        let mut mapped = answers();
        let pairs = [("config-epoch", "4"), ("num-other-sentinels", "2")];
        let pairs = pairs.map(|(name, value)| (bulk(name), bulk(value)));
        mapped[1] = Value::Map(pairs.to_vec());
        assert_eq!(Said::read(mapped).ok().unwrap().epochs, [4, 5]);
    }

    #[test]
    fn what_is_malformed_is_no_answer() {
        for (index, instead) in [
            (0, bulk("not an id")),
            (0, Value::Nil),
            (1, master("-1", "2")),
            (1, list(&["config-epoch"])),
            (1, master("4", "")),
            (2, list(&["10.0.0.1"])),
            (2, list(&["", "6379"])),
            (2, list(&["a b", "6379"])),
            (2, list(&["10.0.0.1", "0"])),
            (2, list(&["10.0.0.1", "65536"])),
            (3, Value::Int(1)),
        ] {
            let mut answers = answers();
            answers[index] = instead.clone();
            let read = Said::read(answers);
            assert!(matches!(read, Err(Unusable::Malformed)), "{instead:?}");
        }
        assert!(matches!(
            Said::read(answers()[..3].to_vec()),
            Err(Unusable::Malformed)
        ));
    }

    #[test]
    fn an_unknown_service_is_told_apart() {
        let mut answers = answers();
        answers[2] = Value::Nil;
        assert!(matches!(Said::read(answers), Err(Unusable::NoSuchService)));
    }
}
