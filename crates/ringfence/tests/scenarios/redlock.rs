//! The original Redlock as its page describes it: the client that every scenario breaks first. `SET
//! NX PX` on one node after the other, a majority, a validity, and compare-and-delete. It leaves
//! out nothing that the page asks for, so that the algorithm is what breaks.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisResult};
use ringfence_core::time::Timestamp;
use tokio::sync::Mutex;

use crate::fleet::stage::now;

const DELETE_IF_OURS: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
    return redis.call('del',KEYS[1]) else return 0 end";
const EXTEND_IF_OURS: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// How often a client tries. An attempt that only finds a lost connection counts, too.
const TRIES: usize = 5;

/// A client of several nodes.
pub(crate) struct Redlock {
    nodes: Vec<Node>,
    timeout: Duration,
}

struct Node {
    url: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// A lock that the algorithm assumes to hold.
pub(crate) struct Grant {
    name: String,
    value: String,
    valid_until: Timestamp,
}

impl Redlock {
    /// A client of the nodes of `urls`, in the format of ringfence; everything after a question
    /// mark is ignored.
    pub(crate) async fn connect(urls: &str) -> Self {
        Self::with_timeout(urls, Duration::from_secs(1)).await
    }

    /// The same with a time limit for each node.
    pub(crate) async fn with_timeout(urls: &str, timeout: Duration) -> Self {
        let urls = urls.split(',').map(|url| url.split('?').next());
        let nodes = urls.flatten().map(|url| Node {
            url: url.to_owned(),
            connection: Mutex::new(None),
        });
        let redlock = Self {
            nodes: nodes.collect(),
            timeout,
        };
        for node in &redlock.nodes {
            let _ = redlock.ask(node, &redis::cmd("PING")).await;
        }
        redlock
    }

    /// Tries to acquire a few times, with random pauses; undoes an attempt that does not get a
    /// majority.
    pub(crate) async fn lock(&self, name: &str, ttl: Duration) -> Option<Grant> {
        for _ in 0..TRIES {
            let (granted, grant) = self.ask_for(name, ttl).await;
            if self.is_majority(granted) && grant.is_valid() {
                return Some(grant);
            }
            self.unlock(&grant).await;
            let [pause_ms, ..] = random_bytes();
            tokio::time::sleep(Duration::from_millis((pause_ms / 4).into())).await;
        }
        None
    }

    /// Asserts that the lock that `first` still holds is granted again: the failure of each
    /// scenario.
    pub(crate) async fn grants_twice(&self, first: &Grant, ttl: Duration) {
        let second = self.lock(&first.name, ttl).await;
        let second = second.expect("Redlock grants it twice");
        assert!(first.is_valid() && second.is_valid());
    }

    /// The first half of an attempt: how many nodes granted, and the grant that it is if they
    /// suffice.
    pub(crate) async fn ask_for(&self, name: &str, ttl: Duration) -> (usize, Grant) {
        let value = random_value();
        let mut set = redis::cmd("SET");
        set.arg(name)
            .arg(&value)
            .arg("NX")
            .arg("PX")
            .arg(millis(ttl));
        let begun = now();
        let granted = self.count(&set, |reply| *reply == redis::Value::Okay).await;
        let grant = Grant {
            name: name.to_owned(),
            value,
            valid_until: valid_until(begun, ttl),
        };
        (granted, grant)
    }

    /// Extends `grant`, if a majority of the nodes still has it.
    pub(crate) async fn extend(&self, grant: &mut Grant, ttl: Duration) -> bool {
        let extend = script(EXTEND_IF_OURS, grant, Some(millis(ttl)));
        let begun = now();
        let extended = self.count(&extend, |reply| *reply == redis::Value::Int(1));
        if !self.is_majority(extended.await) || now() >= valid_until(begun, ttl) {
            return false;
        }
        grant.valid_until = valid_until(begun, ttl);
        true
    }

    /// Releases the lock on every node, also where it seems not to be.
    pub(crate) async fn unlock(&self, grant: &Grant) {
        self.count(&script(DELETE_IF_OURS, grant, None), |_| true)
            .await;
    }

    fn is_majority(&self, nodes: usize) -> bool {
        nodes > self.nodes.len() / 2
    }

    /// Sends to one node after the other, and counts the replies for which `agrees` is true.
    async fn count(&self, command: &Cmd, agrees: fn(&redis::Value) -> bool) -> usize {
        let mut count = 0;
        for node in &self.nodes {
            let reply = self.ask(node, command).await;
            count += usize::from(reply.is_ok_and(|reply| agrees(&reply)));
        }
        count
    }

    /// Uses the present connection or a new one; a failed connection is not used again.
    async fn ask(&self, node: &Node, command: &Cmd) -> RedisResult<redis::Value> {
        let mut connection = node.connection.lock().await;
        if connection.is_none() {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(self.timeout))
                .set_response_timeout(Some(self.timeout));
            let client = redis::Client::open(node.url.as_str())?;
            let made = client.get_multiplexed_async_connection_with_config(&config);
            *connection = Some(made.await?);
        }
        let open = connection.as_mut().expect("opened above");
        let reply = command.query_async(open).await;
        if reply.is_err() {
            *connection = None;
        }
        reply
    }
}

impl Grant {
    /// Whether its holder may still rely on it.
    pub(crate) fn is_valid(&self) -> bool {
        now() < self.valid_until
    }
}

fn script(text: &str, grant: &Grant, ttl_ms: Option<u64>) -> Cmd {
    let mut eval = redis::cmd("EVAL");
    eval.arg(text).arg(1).arg(&grant.name).arg(&grant.value);
    eval.arg(ttl_ms);
    eval
}

/// The TTL minus the possible drift, counted from before the first request.
fn valid_until(begun: Timestamp, ttl: Duration) -> Timestamp {
    begun + ttl - (ttl / 100 + Duration::from_millis(2))
}

fn millis(ttl: Duration) -> u64 {
    ttl.as_millis() as u64
}

fn random_value() -> String {
    let bytes = random_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random_bytes() -> [u8; 20] {
    let mut bytes = [0; 20];
    let source = File::open("/dev/urandom");
    let read = source.and_then(|mut source| source.read_exact(&mut bytes));
    read.expect("random bytes");
    bytes
}
