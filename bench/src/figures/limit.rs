//! The limits. For throughput, what the servers could do if the client cost nothing:
//! `redis-benchmark` with the commands of a plain lock, pipelined, on all servers at once. For the
//! drain, what the client could do without servers: a mutex in its own process.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_peers::serve::pause;
use ringfence_testkit::Fleet;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

pub(crate) const NAME: &str = "redis-benchmark";
pub(crate) const MUTEX: &str = "a mutex in the process";

const COMMANDS: &str = "200000";
const RELEASE: &str = "local value = redis.call('GET', KEYS[1]) \
    if value ~= ARGV[1] then return 0 end \
    redis.call('DEL', KEYS[1]) return 1";

/// How many plain locks and releases per second all of `fleet` could do: the rate of the slowest.
pub(crate) fn locks_per_second(fleet: &Fleet) -> f64 {
    let hash = fleet
        .iter()
        .map(|server| server.command(&["SCRIPT", "LOAD", RELEASE]))
        .last();
    let hash = hash.expect("a server");
    for server in fleet.iter() {
        server.command(&["FLUSHALL"]);
    }
    // As many names as commands, so that nearly every lock is granted and every release deletes.
    let acquire = rate(
        fleet,
        &["SET", "bench:__rand_int__", "token", "NX", "PX", "60000"],
    );
    let release = rate(
        fleet,
        &["EVALSHA", hash.trim(), "1", "bench:__rand_int__", "token"],
    );
    1.0 / (1.0 / acquire + 1.0 / release)
}

/// How long `tasks` take to hold a mutex for `hold` each, one after the other.
pub(crate) async fn drain(tasks: usize, hold: Duration) -> Duration {
    let mutex = Arc::<Mutex<()>>::default();
    let begun = Clock::System.now();
    let mut all = JoinSet::new();
    for _ in 0..tasks {
        let mutex = Arc::clone(&mutex);
        all.spawn(async move {
            let _held = mutex.lock().await;
            pause(hold).await;
        });
    }
    all.join_all().await;
    Clock::System.now().since(begun)
}

/// Commands per second of the slowest server while all are busy.
fn rate(fleet: &Fleet, command: &[&str]) -> f64 {
    let running = fleet.iter().map(|server| {
        let port = server.port().to_string();
        Command::new("redis-benchmark")
            .args([
                "-p", &port, "-n", COMMANDS, "-c", "1", "-P", "64", "-r", COMMANDS, "--csv",
            ])
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-benchmark, which comes with redis-server or redis-tools")
    });
    let running: Vec<_> = running.collect();
    let rates = running.into_iter().map(|child| {
        let output = child.wait_with_output().expect("an end");
        read(&String::from_utf8_lossy(&output.stdout)).expect("a rate")
    });
    rates.fold(f64::INFINITY, f64::min)
}

/// The last line is `"command","rate",…`; the command itself may contain commas and quotes.
fn read(csv: &str) -> Option<f64> {
    let line = csv.lines().rfind(|line| line.starts_with('"'))?;
    let fields: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
    // After the command: rate, average, minimum, p50, p95, p99, maximum.
    let rate = if fields.len() >= 8 {
        fields.get(fields.len() - 7)
    } else {
        fields.get(1)
    };
    rate?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn the_rate_follows_the_command() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
                   \"p50_latency_ms\",\"p95_latency_ms\",\
                   \"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"SET k __rand_int__ NX\",\"190839.70\",\
                   \"0.298\",\"0.088\",\"0.287\",\"0.383\",\"0.463\",\"0.935\"\n";
        assert_eq!(read(csv), Some(190839.70));
        assert_eq!(read("nothing"), None);
    }
}
