//! Locks on real Redis servers, which the tests change, pause and kill.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_testkit::{Flavor, Fleet, Server, WallClock, wait_until};

use super::loss::{TREE, assert_tree_gone};
use super::scene::{Finished, PATIENCE, Running, Scene};

const SHORT: [&str; 4] = ["--ttl", "2s", "--kill-grace", "300ms"];

#[test]
fn a_deleted_lock_key_is_a_loss() {
    let server = Server::start(Flavor::Redis);
    let scene = Scene::on(&server.url_without_quarantine());
    let run = scene.run(&SHORT, TREE);
    scene.line("child");
    server.command(&["DEL", "x"]);
    let lost = run.finish();
    assert_eq!(lost.code(), 79, "{}", lost.stderr());
    assert_tree_gone(&scene);
}

#[test]
fn when_renewal_fails_all_processes_end_although_no_node_answers() {
    let server = Server::start(Flavor::Redis);
    let scene = Scene::on(&server.url_without_quarantine());
    let run = scene.run(&SHORT, TREE);
    scene.line("child");
    server.pause();
    let lost = run.finish();
    server.resume();
    assert_eq!(lost.code(), 79);
    assert_tree_gone(&scene);
    assert!(scene.has("term"), "TERM came first");
    assert!(
        lost.stderr().contains("cannot be renewed"),
        "{}",
        lost.stderr()
    );
}

#[test]
fn no_process_of_the_former_holder_is_left_for_the_next_holder() {
    let server = Server::start(Flavor::Redis);
    let scene = Scene::on(&server.url_without_quarantine());
    let first = scene.run(&SHORT, TREE);
    scene.line("child");
    let check = "for f in child beside escaped; do
                     kill -0 $(cat $DIR/$f) 2>/dev/null && exit 1; done; exit 0";
    let next = scene.run(&["--ttl", "2s", "--no-quorum-after", "1m"], check);
    server.pause();
    assert_eq!(first.finish().code(), 79);
    server.resume();
    let next = next.finish();
    assert_eq!(next.code(), 0, "{}", next.stderr());
}

#[test]
fn a_majority_killed_ends_the_command() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    let run = scene.run(&SHORT, TREE);
    scene.line("child");
    fleet[0].kill();
    fleet[1].kill();
    let lost = run.finish();
    assert_eq!(lost.code(), 79, "{}", lost.stderr());
    assert_tree_gone(&scene);
}

#[test]
fn a_minority_may_die() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    fleet[2].kill();
    let done = scene.run(&[], "exit 4").finish();
    assert_eq!(done.code(), 4, "{}", done.stderr());
    assert_eq!(done.stderr(), "");
    let status = Finished::of(scene.ringfence(&["status"]));
    assert_eq!(status.code(), 0, "{}", status.stdout());
    assert_eq!(status.stdout().lines().count(), 3, "{}", status.stdout());
}

#[test]
fn without_a_majority_each_node_is_named() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    fleet[0].kill();
    fleet[2].kill();
    let asked = [
        &["run", "-w", "500ms", "x", "--", "true"][..],
        &["run", "-n", "x", "--", "true"],
        &["acquire", "x", "--no-quorum-after", "500ms"],
        &["status", "x"],
        &["status"],
    ];
    // All at once: each waits a while for the dead nodes.
    let asked = asked.map(|args| (args, Running::start(scene.ringfence(args))));
    for (args, running) in asked {
        let refused = running.finish();
        let said = format!("{}{}", refused.stdout(), refused.stderr());
        assert_eq!(refused.code(), 69, "{args:?}: {said}");
        for server in fleet.iter() {
            let port = server.port().to_string();
            assert!(said.contains(&port), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_new_cluster_asks_for_init() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    // On a busy machine a node may be slow, and then the cluster may not be new.
    wait_until("all nodes to answer in time", PATIENCE, || {
        let refused = scene.run(&["-w", "500ms"], "true").finish();
        assert_eq!(refused.code(), 69, "{}", refused.stderr());
        refused.stderr().contains("`ringfence init`")
    });
    let status = Finished::of(scene.ringfence(&["status"]));
    assert_eq!(status.code(), 69, "{}", status.stdout());
    assert!(status.stdout().contains("votes in"), "{}", status.stdout());
}

#[test]
fn a_wait_without_a_limit_lasts_for_a_quarantine_and_reports_its_length_in_one_line() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    // On a busy machine a node may be slow, and then the cluster may not be new.
    wait_until("all nodes to refuse in time", PATIENCE, || {
        let refused = scene.run(&["-n"], "true").finish();
        assert_eq!(refused.code(), 69, "{}", refused.stderr());
        refused.stderr().contains("`ringfence init`")
    });
    wait_until("all nodes to answer the wait in time", PATIENCE, || {
        let waiting = scene.run(&[], "true");
        waiting.wait_for_line();
        waiting.signal(rustix::process::Signal::TERM);
        let waiting = waiting.finish();
        assert_eq!(waiting.code(), 128 + 15, "{}", waiting.stderr());
        let stderr = waiting.stderr();
        let about: Vec<&str> = stderr
            .lines()
            .filter(|line| line.contains("vote"))
            .collect();
        let [line] = about[..] else {
            panic!("{stderr}");
        };
        line.contains(" s; for a new cluster run `ringfence init`")
    });
}

/// One of three nodes that hangs or refuses connections delays the end by a moment only, not by the
/// two seconds after which the program stops waiting for its releases.
#[test]
fn a_hung_or_dead_minority_does_not_delay_the_end() {
    let limit = Duration::from_millis(1_500);
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    let timed = |args: &[&str]| {
        // The fastest of some: the machine may be busy.
        let runs = (0..5).map(|_| {
            let begun = Clock::System.now();
            let done = Finished::of(scene.ringfence(args));
            assert_eq!(done.code(), 0, "{args:?}: {}", done.stderr());
            Clock::System.now().since(begun)
        });
        runs.min().expect("some runs")
    };
    let released = || {
        let taken = Finished::of(scene.ringfence(&["acquire", "y"]));
        assert_eq!(taken.code(), 0, "{}", taken.stderr());
        let begun = Clock::System.now();
        let token = taken.stdout().trim();
        let done = Finished::of(scene.ringfence(&["release", "y", "--token", token]));
        assert_eq!(done.code(), 0, "{}", done.stderr());
        Clock::System.now().since(begun)
    };
    fleet[2].pause();
    let took = timed(&["run", "x", "--", "true"]);
    assert!(took < limit, "run beside a hung node: {took:?}");
    let took = (0..5).map(|_| released()).min().expect("some");
    assert!(took < limit, "release beside a hung node: {took:?}");
    fleet[2].kill();
    let took = timed(&["elect", "x", "--", "true"]);
    assert!(took < limit, "elect beside a dead node: {took:?}");
    let took = (0..5).map(|_| released()).min().expect("some");
    assert!(took < limit, "release beside a dead node: {took:?}");
}

/// Each answer of one node takes some milliseconds. Its handshake is not complete when the other
/// two have granted the lock. The node is healthy, so it must get the key too.
#[test]
fn acquire_waits_a_moment_for_a_slower_healthy_node() {
    let fleet = Fleet::start(3);
    let proxy = ringfence_testkit::Proxy::in_front_of(&fleet[2]);
    proxy.replies(ringfence_testkit::Fault::Delay(Duration::from_millis(5)));
    let urls = [
        fleet[0].url_without_quarantine(),
        fleet[1].url_without_quarantine(),
        format!("{}?quarantine=off", proxy.url()),
    ];
    let scene = Scene::on(&urls.join(","));
    let mut present = 0;
    for number in 0..10 {
        let name = format!("lock-{number}");
        let taken = Finished::of(scene.ringfence(&["acquire", &name]));
        assert_eq!(taken.code(), 0, "{}", taken.stderr());
        present += usize::from(fleet[2].command(&["EXISTS", &name]) == "1");
    }
    // On a busy machine a handshake may take longer than acquire waits, but not every time.
    assert!(present >= 5, "{present} of 10");
}

#[test]
fn after_init_a_new_cluster_votes_at_once() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    let init = Finished::of(scene.ringfence(&["init"]));
    assert_eq!(init.code(), 0, "{}", init.stderr());
    let done = scene.run(&["-n"], "true").finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
}

#[test]
fn init_with_force_prints_the_holders_that_it_overrides() {
    let fleet = Fleet::start(3);
    let without_quarantine = Scene::on(&fleet.urls_without_quarantine());
    let args = ["acquire", "x", "--label", "first holder", "--json"];
    let taken = without_quarantine.ringfence(&args);
    let taken = Finished::of(taken);
    let words = "\"durability\":\"best effort\"";
    assert!(taken.stdout().contains(words), "{}", taken.stdout());
    let scene = Scene::on(&fleet.urls());
    let refused = Finished::of(scene.ringfence(&["init"]));
    assert_eq!(refused.code(), 64, "{}", refused.stderr());
    let forced = Finished::of(scene.ringfence(&["init", "--force"]));
    assert_eq!(forced.code(), 0, "{}", forced.stderr());
    let holders = forced.stderr().matches("`x` by first holder");
    // A majority has the lock. The third node may not have received the acquire.
    assert!(holders.count() >= 2, "{}", forced.stderr());
}

#[test]
fn a_cluster_in_use_does_not_change_its_number_of_nodes() {
    let fleet = Fleet::start(3);
    let single = Scene::on(&fleet[0].url());
    let taken = Finished::of(single.ringfence(&["acquire", "x"]));
    assert_eq!(taken.code(), 0, "{}", taken.stderr());
    let scene = Scene::on(&fleet.urls());
    let refused = Finished::of(scene.ringfence(&["init", "--regroup"]));
    assert_eq!(refused.code(), 64, "{}", refused.stderr());
    let why = "stop all clients";
    assert!(refused.stderr().contains(why), "{}", refused.stderr());
    // Delete what the last holder left. Otherwise it would expire after a while.
    fleet[0].command(&["DEL", "x", "ringfence:{x}:record:x"]);
    let done = Finished::of(scene.ringfence(&["init", "--regroup"]));
    assert_eq!(done.code(), 0, "{}", done.stderr());
    let done = scene.run(&["-n"], "true").finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
}

#[test]
fn a_wrong_client_clock_does_not_change_the_order_of_fences() {
    const HOUR_US: i64 = 3_600_000_000;
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    let fence_of = |offset_us: i64| -> u64 {
        let clock = WallClock::ahead_by(offset_us);
        let mut command = scene.ringfence(&["run", "x", "--", "sh", "-c", "echo $RINGFENCE_FENCE"]);
        command.envs(clock.environment());
        let done = Finished::of(command);
        assert_eq!(done.code(), 0, "{}", done.stderr());
        done.stdout().trim().parse().unwrap()
    };
    let fences = [0, HOUR_US, -HOUR_US, HOUR_US, 0].map(fence_of);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn after_sigkill_the_next_client_gets_the_lock_when_the_lease_has_ended() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    let ttl = Duration::from_secs(2);
    let first = scene.run(&["--ttl", "2s"], "echo $$ > $DIR/pid; exec sleep 1000");
    scene.line("pid");
    let next = scene.run(&["--ttl", "2s"], "true");
    next.wait_for_line();
    let killed = Clock::System.now();
    first.signal(rustix::process::Signal::KILL);
    let next = next.finish();
    let took = Clock::System.now().since(killed);
    assert_eq!(next.code(), 0, "{}", next.stderr());
    // It is renewed at a third of its TTL, so at least this much time remained.
    assert!(took >= ttl / 2, "{took:?}");
    assert!(took < ttl + Duration::from_secs(4), "{took:?}");
}
