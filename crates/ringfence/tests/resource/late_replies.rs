//! A client is stopped after its requests have arrived and before it has read a reply, for longer
//! than the TTL. Then it reads a majority of grants that ended long ago.

use std::time::Duration;

use redis::AsyncConnectionConfig;
use ringfence::clock::Clock;
use ringfence::{Guard, Locks};
use ringfence_testkit::{Fault, Fleet, Proxy, wait_until, wait_until_async};
use tokio::runtime::Runtime;

use crate::resource::holder::{LOCK, PATIENCE, Process, commands, report};

/// So short that the pause ends before the client closes an unresponsive connection (after a
/// second), which would be another reason to grant nothing.
const TTL: Duration = Duration::from_millis(400);

/// Three servers behind proxies that can hold back replies.
struct Scene {
    proxies: Vec<Proxy>,
    fleet: Fleet,
}

impl Scene {
    fn start() -> Self {
        let fleet = Fleet::start(3);
        Self {
            proxies: fleet.iter().map(Proxy::in_front_of).collect(),
            fleet,
        }
    }

    fn proxied(&self) -> String {
        let urls = self.proxies.iter().map(Proxy::url);
        urls.collect::<Vec<_>>().join(",")
    }

    fn is_free(&self) -> bool {
        let mut servers = self.fleet.iter();
        servers.all(|server| server.command(&["EXISTS", LOCK]) == "0")
    }

    /// Whether every server has executed an acquire of ours, which leaves a record.
    fn has_granted(&self) -> bool {
        let record = format!("ringfence:{{{LOCK}}}:record:{LOCK}");
        let mut servers = self.fleet.iter();
        servers.all(|server| server.command(&["EXISTS", &record]) == "1")
    }

    async fn another_holder(&self) -> Guard {
        let nodes = self.fleet.urls_without_quarantine();
        let locks = Locks::connect(&nodes).await.unwrap();
        let lock = locks.mutex(LOCK).wait(PATIENCE);
        lock.lock().await.unwrap()
    }

    /// Stops `client` between its requests and their replies until the locks have ended, and
    /// delivers the replies meanwhile.
    fn stop_between_requests_and_replies(
        &self,
        client: &mut Process,
        has_granted: impl Fn(&Self) -> bool,
    ) {
        for proxy in &self.proxies {
            proxy.replies(Fault::Hold);
        }
        client.send("go");
        wait_until("every server to reply", PATIENCE, || {
            let replied = self.proxies.iter().all(|proxy| proxy.held_bytes() > 0);
            replied && has_granted(self)
        });
        client.pause();
        wait_until("the locks to end", PATIENCE, || self.is_free());
        self.proxies.iter().for_each(Proxy::pass);
        wait_until("the replies to arrive", PATIENCE, || {
            self.proxies.iter().all(|proxy| proxy.held_bytes() == 0)
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_are_read_after_their_ttl_do_not_count() {
    // An algorithm that measures the validity from the replies assumes a lock that another client
    // has.
    let scene = Scene::start();
    let mut plain = Process::start("ask plainly", &scene.proxied(), None);
    assert_eq!(plain.answer(), "ready");
    scene.stop_between_requests_and_replies(&mut plain, |_| true);
    let guard = scene.another_holder().await;
    plain.resume();
    assert_eq!(plain.answer(), "granted by 3 of 3");
    guard.check().unwrap();
    drop(plain);

    let scene = Scene::start();
    let mut client = Process::start("ask", &scene.proxied(), None);
    assert_eq!(client.answer(), "ready");
    scene.stop_between_requests_and_replies(&mut client, Scene::has_granted);
    let guard = scene.another_holder().await;
    client.resume();
    let answer = client.answer();
    assert!(answer.starts_with("no grant: "), "{answer}");
    guard.check().unwrap();

    // The client undoes its own attempt, not the lock of the next holder.
    guard.extend(TTL).await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    let answer = client.ask("again");
    let granted = answer.strip_prefix("granted, fence ");
    let granted = granted.and_then(|digits| digits.parse::<u64>().ok());
    assert!(granted.is_some_and(|later| later > fence), "{answer}");
}

/// Our client: one attempt; then as many as are needed.
pub(crate) fn ask(runtime: &Runtime, nodes: &str) {
    let urls: Vec<_> = nodes
        .split(',')
        .map(|url| format!("{url}?quarantine=off"))
        .collect();
    // The test must not pass only because of the node timeout.
    let builder = Locks::builder()
        .nodes(&urls.join(","))
        .node_timeout(PATIENCE);
    let locks = runtime.block_on(builder.connect()).unwrap();
    // `connect` waits for a majority only.
    runtime.block_on(wait_until_async("every node", PATIENCE, async || {
        let inspection = locks.inspect(LOCK).await.unwrap();
        inspection.nodes.iter().all(|node| node.view.is_ok())
    }));
    report("ready");
    for order in commands() {
        let lock = locks.mutex(LOCK).ttl(TTL).wait(PATIENCE);
        let taken = runtime.block_on(async {
            match order.as_str() {
                "go" => lock.try_lock().await,
                _ => lock.lock().await,
            }
        });
        match taken {
            Ok(guard) => report(&format!("granted, fence {}", guard.fence())),
            Err(error) => report(&format!("no grant: {}", one_line(&error.to_string()))),
        }
    }
}

/// Redlock by a client that reads the clock too late.
pub(crate) fn ask_plainly(runtime: &Runtime, nodes: &str) {
    runtime.block_on(async {
        let mut connections = Vec::new();
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        for url in nodes.split(',') {
            let client = redis::Client::open(url).unwrap();
            let connection = client.get_multiplexed_async_connection_with_config(&patient);
            connections.push(connection.await.unwrap());
        }
        report("ready");
        commands().next().unwrap();
        let asked = connections.into_iter().map(|one| tokio::spawn(set(one)));
        let asked: Vec<_> = asked.collect();
        let mut granted = 0;
        let nodes = asked.len();
        for reply in asked {
            granted += usize::from(reply.await.unwrap());
        }
        let begun = Clock::System.now();
        let validity = TTL.saturating_sub(Clock::System.now().since(begun));
        assert!(granted > nodes / 2 && !validity.is_zero());
        report(&format!("granted by {granted} of {nodes}"));
    });
}

async fn set(mut connection: redis::aio::MultiplexedConnection) -> bool {
    let ttl_ms = TTL.as_millis().to_string();
    let mut command = redis::cmd("SET");
    command.arg(&[LOCK, "plain", "NX", "PX", &ttl_ms]);
    let reply: Option<String> = command.query_async(&mut connection).await.unwrap();
    reply.is_some()
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}
