//! A storm of calls that give up soon: many tasks of one process want the same name, and most of
//! them stop waiting after a few milliseconds. Shows what the storm costs the name itself and
//! everything else that the process does: another lock, and a name that is free. Beside it a task of
//! the same process sends `PING` to a server: no lock can be faster than that on a busy machine.

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use ringfence::clock::{Clock, Timestamp};
use ringfence::{AcquireError, Guard, Locks};
use ringfence_testkit::Fleet;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cost::{core_seconds, peak_resident_bytes};
use crate::sheet::{Aim, Cell, Sheet};
use crate::times::quantile;

const TASKS: u64 = 120;
/// A caller waits for less than this.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
const BYSTANDER_TTL: Duration = Duration::from_secs(3);
/// How often the free name is locked, and how often a `PING` is sent.
const EVERY: Duration = Duration::from_millis(10);

/// The least share of the grants of the calm run.
const GRANTS_LEAST: f64 = 0.5;
const FREE_P99_MS: f64 = 50.0;
const MEMORY_MB: f64 = 64.0;

/// How a caller of the wanted name gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GivesUp {
    /// It waits until it has the lock.
    Never,
    /// Its future is dropped.
    Dropped,
    /// Its `wait` ends.
    ShortWait,
}

/// Measures each way to give up for `seconds`, on one node and on three.
pub(crate) fn measure(seconds: u64) -> Vec<Sheet> {
    [1, 3].map(|nodes| measure_on(nodes, seconds)).into()
}

fn measure_on(nodes: usize, seconds: u64) -> Sheet {
    let (key, title) = match nodes {
        1 => (
            "storm-1",
            format!("Storm: {TASKS} tasks, 1 node, {seconds} s"),
        ),
        _ => (
            "storm-3",
            format!("Storm: {TASKS} tasks, {nodes} nodes, {seconds} s"),
        ),
    };
    let columns = [
        "grants per s",
        "given up per s",
        "free name, p99 ms",
        "PING, p99 ms",
        "bystander lost",
        "MB",
        "cores",
    ];
    let mut sheet = Sheet::new(key, title, &columns);
    let mut calm = None;
    for (who, how) in [
        ("nobody gives up", GivesUp::Never),
        ("dropped futures", GivesUp::Dropped),
        ("short waits", GivesUp::ShortWait),
    ] {
        let storm = run(nodes, how, seconds);
        let number = |key: &str| storm[key].as_f64();
        let keys = [
            "grants",
            "given_up",
            "free_p99_ms",
            "ping_p99_ms",
            "lost",
            "mb",
            "cores",
        ];
        sheet.row(who, keys.map(|key| Cell::of(number(key))).into());
        let judged = |what: &str| format!("{who}, {what}");
        let share = number("grants").zip(calm).map(|(now, calm)| now / calm);
        if how == GivesUp::Never {
            calm = number("grants");
        } else {
            sheet.judge(
                judged("share of the grants"),
                share,
                Aim::AtLeast(GRANTS_LEAST),
            );
        }
        sheet.judge(
            judged("free name, p99 ms"),
            number("free_p99_ms"),
            Aim::AtMost(FREE_P99_MS),
        );
        sheet.judge(judged("bystander lost"), number("lost"), Aim::AtMost(0.0));
        sheet.judge(judged("MB"), number("mb"), Aim::AtMost(MEMORY_MB));
    }
    sheet
}

/// Runs [`client`] in its own process.
fn run(nodes: usize, how: GivesUp, seconds: u64) -> Value {
    let fleet = Fleet::start(nodes);
    let how = how.to_possible_value().expect("a name");
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["storm-client", how.get_name(), &seconds.to_string()])
        .arg(fleet.urls_without_quarantine())
        .stderr(Stdio::inherit())
        .output()
        .expect("a process");
    serde_json::from_slice(&output.stdout).expect("what it measured")
}

/// What the tasks have counted.
#[derive(Debug, Default)]
struct Counts {
    grants: AtomicU64,
    given_up: AtomicU64,
    over: AtomicBool,
}

/// The process with the tasks: prints what it measured.
pub(crate) async fn client(how: GivesUp, seconds: u64, urls: &str) {
    let this = std::process::id();
    let locks = Locks::connect(urls).await.expect("a client");
    let bystander = locks.mutex("bystander").ttl(BYSTANDER_TTL);
    let bystander = bystander.lock().await.expect("a free name");
    let counts = Arc::<Counts>::default();
    for task in 0..TASKS {
        let (locks, counts) = (locks.clone(), Arc::clone(&counts));
        tokio::spawn(async move { want(&locks, how, &counts, task).await });
    }
    let (free_locks, free_counts) = (locks.clone(), Arc::clone(&counts));
    let free = tokio::spawn(async move { lock_free_name(&free_locks, &free_counts).await });
    let (address, ping_counts) = (first_address(urls), Arc::clone(&counts));
    let pings = tokio::spawn(async move { ping(&address, &ping_counts).await });
    let (begun, cost) = (Clock::System.now(), core_seconds(this));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let elapsed = Clock::System.now().since(begun).as_secs_f64();
    let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / elapsed;
    let (grants, given_up) = (per_second(&counts.grants), per_second(&counts.given_up));
    let cores = (core_seconds(this) - cost) / elapsed;
    let lost = u32::from(bystander.check().is_err());
    counts.over.store(true, Ordering::Relaxed);
    let (mut free, mut pings) = tokio::try_join!(free, pings).expect("no panic");
    println!(
        "{}",
        json!({
            "grants": grants,
            "given_up": given_up,
            "free_p99_ms": quantile(&mut free, 0.99).as_secs_f64() * 1e3,
            "ping_p99_ms": quantile(&mut pings, 0.99).as_secs_f64() * 1e3,
            "lost": lost,
            "mb": peak_resident_bytes(this) / 1e6,
            "cores": cores,
        })
    );
    std::process::exit(0);
}

/// One task that wants the lock again and again.
async fn want(locks: &Locks, how: GivesUp, counts: &Counts, task: u64) {
    // xorshift64: the same waits in every run.
    let mut random = 0x5eed_0000 + task;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let micros = random % LONGEST_WAIT.as_micros() as u64;
        match try_once(locks, how, Duration::from_micros(micros)).await {
            Some(guard) => {
                counts.grants.fetch_add(1, Ordering::Relaxed);
                // A lock that is lost in a storm is not granted less often for it.
                let _ = guard.release().await;
            }
            None => _ = counts.given_up.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Wants the lock, and gives up after `wait`.
async fn try_once(locks: &Locks, how: GivesUp, wait: Duration) -> Option<Guard> {
    let lock = locks.mutex("wanted");
    match how {
        GivesUp::Never => Some(lock.lock().await.expect("a lock")),
        GivesUp::Dropped => {
            let granted = tokio::time::timeout(wait, lock.lock()).await;
            granted.ok().and_then(Result::ok)
        }
        GivesUp::ShortWait => match lock.wait(wait).lock().await {
            Ok(guard) => Some(guard),
            Err(AcquireError::Held { .. } | AcquireError::NoQuorum { .. }) => None,
            Err(error) => panic!("{error}"),
        },
    }
}

/// Locks a name that nobody else wants, every few milliseconds. Returns how long each lock took.
async fn lock_free_name(locks: &Locks, counts: &Counts) -> Vec<Duration> {
    let mut pace = Pace::new();
    while !counts.over.load(Ordering::Relaxed) {
        let locked = locks.mutex("free").lock().await;
        pace.note();
        if let Ok(guard) = locked {
            let _ = guard.release().await;
        }
        pace.wait().await;
    }
    pace.times
}

/// Sends `PING` at the same pace. Returns how long each answer took.
async fn ping(address: &str, counts: &Counts) -> Vec<Duration> {
    let mut server = TcpStream::connect(address).await.expect("a server");
    server.set_nodelay(true).expect("a socket");
    let mut pace = Pace::new();
    while !counts.over.load(Ordering::Relaxed) {
        server.write_all(b"PING\r\n").await.expect("a server");
        let mut pong = [0; b"+PONG\r\n".len()];
        server.read_exact(&mut pong).await.expect("an answer");
        pace.note();
        pace.wait().await;
    }
    pace.times
}

/// Something that is done every few milliseconds, and how long it took each time. On a busy machine the
/// task is woken late; that does not count.
struct Pace {
    begun: Timestamp,
    times: Vec<Duration>,
}

impl Pace {
    fn new() -> Self {
        Self {
            begun: Clock::System.now(),
            times: Vec::new(),
        }
    }

    /// It is done.
    fn note(&mut self) {
        self.times.push(Clock::System.now().since(self.begun));
    }

    /// Waits until it is due again.
    async fn wait(&mut self) {
        let due = self.begun + EVERY;
        tokio::time::sleep(due.since(Clock::System.now())).await;
        self.begun = Clock::System.now();
    }
}

/// The address of the first server of `urls`.
fn first_address(urls: &str) -> String {
    let url = urls.split(',').next().unwrap_or_default();
    let address = url.trim_start_matches("redis://");
    let end = address.find(['/', '?']).unwrap_or(address.len());
    address[..end].to_owned()
}
