//! One of three nodes is hostile. A command keeps running under its lock, and `doctor`, `status`
//! and `init` end in time and name the node.
//!
//! With `RINGFENCE_LONG` in the environment (`./verify long`) each attack on a running command
//! lasts 30 seconds.

use std::fs;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_testkit::{Attack, Flavor, Fleet, HostileServer, Push, Server, wait_until};

use super::dashboard::DashboardProcess;
use super::dashboard::http::get;
use super::scene::{Finished, Process, Running, Scene};

/// The most memory that `ringfence run` may ever have used.
const MEMORY_MAX_KB: u64 = 64 << 10;
/// The TTL of the lock: long enough for a busy machine. A renewal is due every two seconds.
const TTL: &str = "6s";
/// An attack on a running command lasts for this many renewals, and this long.
const RENEWALS: usize = 2;
const LONG: Duration = Duration::from_secs(30);
/// How long `doctor`, `status` and `init` may take. Without an attack they take much less than a
/// second, and each step has a limit of one or two seconds.
const LOOK_MAX: Duration = Duration::from_secs(15);
/// The commands with which a lock is taken and renewed.
const CALLS: &str = "EVALSHA";

/// Three nodes, the first of which can attack.
struct Siege {
    fleet: Fleet,
    hostile: HostileServer,
    scene: Scene,
}

impl Siege {
    fn prepare() -> Self {
        let fleet = Fleet::start(3);
        let hostile = HostileServer::in_front_of(&fleet[0]);
        let urls = [hostile.url(), fleet[1].url(), fleet[2].url()];
        let scene = Scene::on(&urls.join(","));
        Self {
            fleet,
            hostile,
            scene,
        }
    }

    /// Three nodes that vote.
    fn initialised() -> Self {
        let siege = Self::prepare();
        let init = Finished::of(siege.scene.ringfence(&["init"]));
        assert_eq!(init.code(), 0, "{}", init.stderr());
        siege
    }

    /// The remaining time of the lock `x` on an honest node.
    fn lock_left(&self) -> i64 {
        self.fleet[1].command(&["PTTL", "x"]).parse().unwrap()
    }

    /// Waits until the lock `x` was renewed [`RENEWALS`] times, and for `at_least`.
    fn watch_renewals(&self, running: &Running, at_least: Duration) -> usize {
        let begun = Clock::System.now();
        let limit = at_least + Duration::from_secs(60);
        let (mut left, mut renewals) = (self.lock_left(), 0);
        wait_until("the lock to be renewed", limit, || {
            let now = self.lock_left();
            let after = || {
                let waited = Clock::System.now().since(begun);
                format!(
                    "after {waited:.1?} and {renewals} renewals: {}",
                    running.stderr()
                )
            };
            assert!(running.process().is_alive(), "ringfence ended {}", after());
            assert!(now > 0, "the lock was gone {}", after());
            renewals += usize::from(now > left);
            left = now;
            renewals >= RENEWALS && Clock::System.now().since(begun) >= at_least
        });
        renewals
    }
}

/// The most memory that a list may ever take, with names and locks up to their limits.
const LIST_MEMORY_MAX_KB: u64 = 300 << 10;
/// Names of this length reach the limit of 8 MiB soonest.
const NAME_BYTES: usize = 1_000;
/// How long a list of so many names may take on a busy machine.
const ENDLESS_MAX: Duration = Duration::from_secs(600);

/// The only node, which lists names without end.
fn endless(name_bytes: usize) -> (Server, HostileServer, Scene) {
    let server = Server::start(Flavor::Redis);
    let hostile = HostileServer::in_front_of(&server);
    let scene = Scene::on(&hostile.url());
    let run = Finished::of(scene.ringfence(&["run", "x", "--", "true"]));
    assert_eq!(run.code(), 0, "{}", run.stderr());
    hostile.attack(Attack::EndlessList { name_bytes });
    (server, hostile, scene)
}

#[test]
fn a_list_without_end_ends_and_says_so() {
    let (_server, hostile, scene) = endless(NAME_BYTES);
    let ls = Running::start(scene.ringfence(&["ls"]));
    let mut peak = 0;
    wait_until("the end of the list", ENDLESS_MAX, || {
        let status = fs::read_to_string(format!("/proc/{}/status", ls.process().pid()));
        let now = status.ok().and_then(|status| peak_in(&status));
        peak = now.unwrap_or(peak);
        ls.stdout().contains("are not listed")
    });
    let says = format!(
        "the list ends after 8388 names: {} has more; a pattern",
        hostile.addr()
    );
    assert!(ls.stdout().contains(&says), "{}", ls.stdout());
    println!("ls: {peak} kB");
    assert!((1..LIST_MEMORY_MAX_KB).contains(&peak), "{peak} kB");
}

#[test]
fn a_dashboard_of_a_list_without_end_takes_a_bounded_memory_and_says_so() {
    let (_server, _hostile, scene) = endless(NAME_BYTES);
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    wait_until("the end of the list", ENDLESS_MAX, || {
        get(dashboard.port, "/api/v1/cluster").json()["list"]["shortened"] == true
    });
    let peak = peak_memory_kb(dashboard.process());
    println!("dashboard: {peak} kB");
    assert!(peak < LIST_MEMORY_MAX_KB, "{peak} kB");
}

/// The shortest duration of an attack on a running command.
fn attack_time() -> Duration {
    match std::env::var_os("RINGFENCE_LONG") {
        Some(_) => LONG,
        None => Duration::ZERO,
    }
}

/// The most memory that a process has used so far.
pub(super) fn peak_memory_kb(process: Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    peak_in(&status).expect("a peak")
}

/// The most memory, by the text of `/proc/PID/status`. A process that has ended has none.
fn peak_in(status: &str) -> Option<u64> {
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak?.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Runs a command under a lock during the attack that `begin` starts. The command is not stopped,
/// the lock is renewed, and the memory stays small.
#[track_caller]
fn outlasts(what: &str, begin: impl Fn(&HostileServer)) {
    let siege = Siege::initialised();
    let scene = &siege.scene;
    let script = "echo $$ > $DIR/child; while [ ! -e $DIR/go ]; do sleep 0.05; done; exit 6";
    let run = scene.run(&["--ttl", TTL], script);
    let child = scene.process("child");
    // A node that missed the acquire gets the lock with the next renewal.
    wait_until("every node to have the lock", LOOK_MAX, || {
        siege
            .fleet
            .iter()
            .all(|node| node.command(&["EXISTS", "x"]) == "1")
    });
    begin(&siege.hostile);
    let begun = Clock::System.now();
    let renewals = siege.watch_renewals(&run, attack_time());
    let took = Clock::System.now().since(begun);
    assert!(child.is_alive(), "the command was stopped");
    let peak_kb = peak_memory_kb(run.process());
    let hostile = &siege.hostile;
    println!(
        "{what} for {took:.1?}: {renewals} renewals, {:.1} MB of memory; {} attacks over {} \
         connections, {:.1} MB and {} pushes sent",
        peak_kb as f64 / 1024.0,
        hostile.attacks(),
        hostile.accepted(),
        hostile.sent_bytes() as f64 / (1 << 20) as f64,
        hostile.pushes(),
    );
    assert!(hostile.attacks() > 0, "no attack took place");
    assert!(peak_kb < MEMORY_MAX_KB, "{peak_kb} kB of memory");
    scene.write("go", "");
    let done = run.finish();
    assert_eq!(done.code(), 6, "{}", done.stderr());
    assert!(!done.stderr().contains("lost"), "{}", done.stderr());
}

#[test]
fn a_command_runs_on_beside_1_gb_of_garbage() {
    let bytes = 1 << 30;
    outlasts("garbage", |hostile| {
        hostile.attack_replies_to(CALLS, Attack::Garbage { bytes });
    });
}

#[test]
fn a_command_runs_on_beside_a_reply_of_1_gb() {
    let bytes = 1 << 30;
    outlasts("a text of 1 GB", |hostile| {
        hostile.attack_replies_to(CALLS, Attack::LongText { bytes });
    });
}

#[test]
fn a_command_runs_on_beside_an_array_of_millions_of_values() {
    let count = 250_000_000;
    outlasts("an array of 1 GB", |hostile| {
        hostile.attack_replies_to(CALLS, Attack::ManyValues { count });
    });
}

#[test]
fn a_command_runs_on_beside_10_000_pushes_a_second() {
    let push = Push::Message(|channel, number| {
        let client = channel.trim_start_matches("ringfence:wake:");
        format!("0 {client}.{}", number % 64)
    });
    let per_second = 10_000;
    outlasts("10,000 pushes a second", |hostile| {
        hostile.attack(Attack::Pushes { push, per_second });
    });
}

#[test]
fn a_command_runs_on_beside_a_flood_of_large_pushes() {
    let push = Push::Unknown { bytes: 100_000 };
    let per_second = 10_000;
    outlasts("1 GB of pushes a second", |hostile| {
        hostile.attack(Attack::Pushes { push, per_second });
    });
}

#[test]
fn a_command_runs_on_beside_a_slow_loris() {
    let every = Duration::from_millis(10);
    outlasts("a slow-loris", |hostile| {
        hostile.attack_replies_to(CALLS, Attack::Drip { every });
    });
}

/// Text that would control a terminal if it were printed unescaped.
const CONTROLS: &str = "\x1b]0;owned\x07\x1b[2J\r\u{9b}31m\u{7f}\u{202e}red";

/// Answers of a hostile node to any command. None of them is a reply that a client can use.
fn attacks() -> Vec<Attack> {
    let count = 15_000_000;
    let every = Duration::from_millis(10);
    vec![
        Attack::LongText { bytes: 60 << 20 },
        Attack::ManyValues { count },
        Attack::Nested { depth: 1_000_000 },
        Attack::Garbage { bytes: 1 << 30 },
        Attack::Drip { every },
        Attack::error(&format!("ERR {CONTROLS}").replace('\r', "")),
        Attack::error(&format!("ERR {}", "long ".repeat(10_000))),
        Attack::error(&format!("ERR {}", "x".repeat(8 << 20))),
        Attack::text(CONTROLS),
    ]
}

/// Runs `ringfence ARGS`, which must end in time and print no control characters.
#[track_caller]
fn look(siege: &Siege, what: &str, args: &[&str]) -> (i32, String) {
    let begun = Clock::System.now();
    let done = Finished::of(siege.scene.ringfence(args));
    let took = Clock::System.now().since(begun);
    let output = format!("{}{}", done.stdout(), done.stderr());
    println!(
        "{what}, {args:?}: exit {} after {took:.1?}\n{output}",
        done.code()
    );
    assert!(took < LOOK_MAX, "{what}, {args:?}: {took:?}");
    let is_harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
    assert!(
        output.chars().all(is_harmless),
        "{what}, {args:?}: {output:?}"
    );
    assert!(
        output.len() < 20_000,
        "{what}, {args:?}: {} bytes",
        output.len()
    );
    (done.code(), output)
}

/// The same, and the output names the hostile node.
#[track_caller]
fn complains(siege: &Siege, what: &str, args: &[&str], code: i32) {
    let (exit, output) = look(siege, what, args);
    assert_eq!(exit, code, "{what}, {args:?}: {output}");
    let port = siege.hostile.addr().port().to_string();
    assert!(output.contains(&port), "{what}, {args:?}: {output}");
}

#[test]
fn doctor_and_status_end_in_time_and_name_the_hostile_node() {
    let siege = Siege::initialised();
    for attack in attacks() {
        let what = format!("{attack:?}");
        siege.hostile.attack(attack);
        complains(&siege, &what, &["doctor"], 1);
        complains(&siege, &what, &["doctor", "--json"], 1);
        complains(&siege, &what, &["status"], 0);
        complains(&siege, &what, &["status", "--json"], 0);
    }
}

#[test]
fn init_ends_in_time_and_names_the_hostile_node() {
    let siege = Siege::prepare();
    for attack in attacks() {
        let what = format!("{attack:?}");
        siege.hostile.attack(attack);
        complains(&siege, &what, &["init"], 69);
    }
}

/// The output about a node that pushes too much depends on how much arrives before the connection
/// is dropped.
#[test]
fn commands_end_in_time_while_a_node_floods() {
    let siege = Siege::initialised();
    let push = Push::Unknown { bytes: 1_000 };
    let per_second = 100_000;
    siege.hostile.attack(Attack::Pushes { push, per_second });
    for args in LOOKS {
        let (exit, output) = look(&siege, "a flood of pushes", args);
        // The other two nodes make a majority.
        assert!(args[0] != "status" || exit == 0, "{args:?}: {output}");
    }
}

/// The commands that report on nodes.
const LOOKS: [&[&str]; 6] = [
    &["init"],
    &["doctor"],
    &["doctor", "--json"],
    &["status"],
    &["status", "--json"],
    &["status", "x"],
];

#[test]
fn control_characters_in_any_reply_are_not_printed() {
    let text = CONTROLS.replace('\r', "");
    for command in [
        "HELLO", "INFO", "GET", "TIME", "CONFIG", "EVAL", "EVALSHA", "SCAN", "PTTL", "SCRIPT",
    ] {
        let siege = Siege::prepare();
        for attack in [Attack::error(&text), Attack::text(CONTROLS)] {
            siege.hostile.attack_replies_to(command, attack);
            for args in LOOKS {
                look(&siege, command, args);
            }
        }
    }
}

#[test]
fn control_characters_and_long_texts_in_the_info_of_a_node_are_not_printed() {
    let text = CONTROLS.replace('\r', "");
    for name in [
        "run_id",
        "redis_version",
        "redis_mode",
        "role",
        "master_replid",
        "maxmemory_policy",
        "used_memory",
    ] {
        let siege = Siege::prepare();
        for value in [text.clone(), "long ".repeat(20_000)] {
            siege.hostile.attack(Attack::Field { name, value });
            for args in LOOKS {
                look(&siege, name, args);
            }
        }
    }
}
