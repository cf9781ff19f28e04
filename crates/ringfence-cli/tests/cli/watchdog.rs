//! Two processes supervise the command. If one of them is stopped or killed, the command and all
//! its descendants end before another client can hold the lock.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ringfence_testkit::wait_until;
use rustix::process::{Signal, geteuid, kill_process_group};

use super::scene::{PATIENCE, Process, Running, Scene, program};

/// The user that the test changes to. It needs no entry in the user database.
const OTHER_USER: u32 = 65534;

/// A short lease. The delay leaves time to kill a whole tree on a busy machine before another
/// client can hold the lock. It does not weaken the test: without a deadline the tree would run for
/// ever.
const SHORT: [&str; 4] = ["--ttl", "5s", "--lock-delay", "2s"];

/// The files to which the processes of [`tree`] write their numbers.
const TREE: [&str; 5] = ["child", "beside", "escaped", "orphan", "other"];

/// A command with a child in its group, one that left the group and session, one whose parent died
/// (a double fork), and one that changed its user, which clears its death signal.
fn tree() -> String {
    format!(
        "sh -c 'echo $$ > $DIR/beside; exec sleep 1000' &
         setsid sh -c 'echo $$ > $DIR/escaped; exec sleep 1000' &
         sh -c 'setsid sh -c \"echo \\$\\$ > $DIR/orphan; exec sleep 1000\" & exit 0' &
         sh -c 'echo $$ > $DIR/other; exec {} sleep 1000' &
         echo $RINGFENCE_TOKEN > $DIR/token
         for file in beside escaped orphan other; do
             while [ ! -s $DIR/$file ]; do sleep 0.01; done
         done
         echo $PPID > $DIR/watchdog
         echo $$ > $DIR/child
         {} sleep 1000 & wait",
        as_other_user(),
        as_other_user(),
    )
}

/// The prefix that runs a command as another user. Only root may do that. Without root, the tests
/// check everything else with our own user.
fn as_other_user() -> String {
    if geteuid().is_root() {
        format!("setpriv --reuid {OTHER_USER} --clear-groups")
    } else {
        "env".to_owned()
    }
}

/// The processes of [`tree`], when all have started and `other` has changed its user.
#[track_caller]
fn members(scene: &Scene) -> [Process; 5] {
    let members = TREE.map(|file| scene.process(file));
    let expected = if geteuid().is_root() {
        OTHER_USER
    } else {
        geteuid().as_raw()
    };
    wait_until("the change of user", PATIENCE, || {
        members[4].user() == Some(expected)
    });
    members
}

fn assert_gone(members: &[Process]) {
    for (process, name) in members.iter().zip(TREE) {
        assert!(!process.is_alive(), "{name} still runs");
    }
}

/// Waits until another client holds the lock. Then no process of the former holder may be alive.
#[track_caller]
fn assert_next_holder_is_alone(scene: &Scene, members: &[Process]) {
    let next = scene.run(&[], "echo entered > $DIR/entered; exec sleep 1000");
    scene.line("entered");
    assert_gone(members);
    next.signal(Signal::TERM);
    next.finish();
}

#[test]
fn when_ringfence_is_stopped_its_command_is_killed() {
    let (_server, scene) = Scene::served();
    let run = scene.run(&SHORT, &tree());
    let members = members(&scene);
    run.signal(Signal::STOP);
    assert_next_holder_is_alone(&scene, &members);
    run.signal(Signal::CONT);
    let lost = run.finish();
    assert_eq!(lost.code(), 79, "{}", lost.stderr());
    assert!(
        lost.stderr().contains("lost the lock `x`"),
        "{}",
        lost.stderr()
    );
}

#[test]
fn when_the_process_group_of_ringfence_is_stopped_its_command_is_killed() {
    let (_server, scene) = Scene::served();
    let script = tree();
    let args = [&["run"], &SHORT[..], &["x", "--", "sh", "-c", &script]].concat();
    let mut command = scene.ringfence(&args);
    command.process_group(0);
    let run = Running::start(command);
    let members = members(&scene);
    kill_process_group(run.process().pid(), Signal::STOP).expect("our own group");
    assert_next_holder_is_alone(&scene, &members);
    run.signal(Signal::CONT);
    assert_eq!(run.finish().code(), 79);
}

#[test]
fn when_ringfence_is_killed_the_whole_tree_is_killed() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "5s"], &tree());
    let members = members(&scene);
    let watchdog = scene.process("watchdog");
    run.signal(Signal::KILL);
    for process in members {
        process.wait_gone();
    }
    watchdog.wait_gone();
    assert_next_holder_is_alone(&scene, &members);
}

#[test]
fn when_the_watchdog_is_killed_the_whole_tree_is_killed() {
    let scene = Scene::embedded();
    let run = scene.run(&[], &tree());
    let members = members(&scene);
    scene.process("watchdog").signal(Signal::KILL);
    let killed = run.finish();
    assert_eq!(killed.code(), 128 + 9, "{}", killed.stderr());
    assert!(
        killed.stderr().contains("the watchdog process was killed"),
        "{}",
        killed.stderr()
    );
    assert_gone(&members);
    assert!(scene.is_free());
}

#[test]
fn a_stopped_watchdog_is_continued_and_the_command_runs_on() {
    let (_server, scene) = Scene::served();
    let run = scene.run(
        &["--ttl", "5s"],
        "echo $PPID > $DIR/watchdog; echo $$ > $DIR/child
         while [ ! -e $DIR/go ]; do sleep 0.1; done; exit 6",
    );
    let child = scene.process("child");
    let watchdog = scene.process("watchdog");
    for _ in 0..3 {
        watchdog.signal(Signal::STOP);
        wait_until("the watchdog to go on", PATIENCE, || !watchdog.is_stopped());
    }
    assert_eq!(scene.code_after_renewal(run, child), 6);
    assert!(!watchdog.is_alive());
}

/// A service manager that stops a service signals all its processes.
#[test]
fn a_watchdog_ignores_term() {
    let scene = Scene::embedded();
    let run = scene.run(
        &[],
        "trap 'exit 7' TERM; echo $PPID > $DIR/watchdog; echo $$ > $DIR/child
         while [ ! -e $DIR/go ]; do sleep 0.1; done; exit 6",
    );
    scene.line("child");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        scene.process("watchdog").signal(signal);
    }
    scene.write("go", "");
    assert_eq!(run.finish().code(), 6);
}

#[test]
fn a_watchdog_that_dies_while_ringfence_waits_is_replaced() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/holder; exec sleep 1000");
    scene.line("holder");
    let waiting = scene.run(&[], "echo entered > $DIR/entered; exit 6");
    waiting.wait_for_line();
    let [watchdog] = children(waiting.process())[..] else {
        panic!("ringfence has one child");
    };
    watchdog.signal(Signal::KILL);
    watchdog.wait_gone();
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(waiting.finish().code(), 6);
    assert!(scene.has("entered"));
}

#[test]
fn with_on_lost_ignore_a_stopped_ringfence_keeps_its_command() {
    let (_server, scene) = Scene::served();
    let run = scene.run(
        &["--ttl", "3s", "--on-lost", "ignore"],
        "echo $$ > $DIR/child; while [ ! -e $DIR/go ]; do sleep 0.1; done; exit 6",
    );
    let child = scene.process("child");
    run.signal(Signal::STOP);
    let next = scene.run(&[], "echo entered > $DIR/entered");
    scene.line("entered");
    assert_eq!(next.finish().code(), 0);
    assert!(child.is_alive());
    run.signal(Signal::CONT);
    scene.write("go", "");
    assert_eq!(run.finish().code(), 6);
}

#[test]
fn when_a_leader_is_stopped_its_command_is_killed() {
    let (_server, scene) = Scene::served();
    let script = tree();
    let args = [&["elect"], &SHORT[..], &["x", "--", "sh", "-c", &script]].concat();
    let leader = Running::start(scene.ringfence(&args));
    let members = members(&scene);
    leader.signal(Signal::STOP);
    assert_next_holder_is_alone(&scene, &members);
    // After CONT it campaigns again and leads: its command starts again.
    fs::remove_file(scene.path("child")).expect("our own file");
    leader.signal(Signal::CONT);
    let again = scene.process("child");
    assert!(again.is_alive());
    leader.signal(Signal::TERM);
    leader.finish();
    assert!(!again.is_alive());
}

#[test]
fn when_a_leader_is_killed_the_whole_tree_is_killed() {
    let scene = Scene::embedded();
    let script = tree();
    let args = ["elect", "--ttl", "5s", "x", "--", "sh", "-c", &script];
    let leader = Running::start(scene.ringfence(&args));
    let members = members(&scene);
    leader.signal(Signal::KILL);
    for process in members {
        process.wait_gone();
    }
    assert_next_holder_is_alone(&scene, &members);
}

/// As with `sudo` in the command of an ordinary user: the command runs as root, and ringfence may
/// not signal it. ringfence reports that, and holds the lock as long as the command runs.
#[test]
fn a_process_that_ringfence_may_not_signal_is_reported() {
    let (_server, scene) = Scene::served();
    let mut command = Command::new("sh");
    // ringfence may become root but may not signal root's processes; its command becomes root. If
    // the test does not run as root, the command stays ours and can be signalled.
    let is_root = geteuid().is_root();
    let script = if is_root {
        "chmod 777 $DIR; cp $RF $DIR/rf
         exec setpriv --reuid 65534 --clear-groups --inh-caps +setuid --ambient-caps +setuid \\
              $DIR/rf run --stop-grace 100ms x -- \\
              sh -c 'echo $$ > $DIR/child; exec setpriv --reuid 0 sleep 1000'"
    } else {
        "exec $RF run --stop-grace 100ms x -- sh -c 'echo $$ > $DIR/child; exec sleep 1000'"
    };
    command
        .args(["-c", script])
        .env("RF", program())
        .env("RINGFENCE_NODES", scene.nodes())
        .env("DIR", scene.path(""))
        .env_remove("RINGFENCE_NAME");
    let run = Running::start(command);
    let child = scene.process("child");
    wait_until("the command itself", PATIENCE, || {
        child.name().as_deref() == Some("sleep")
    });
    run.signal(Signal::TERM);
    if !is_root {
        let done = run.finish();
        assert_eq!((done.code(), done.stderr()), (128 + 15, ""));
        return;
    }
    run.wait_for("KILL does not end these processes");
    assert!(child.is_alive());
    assert!(!scene.is_free());
    child.signal(Signal::KILL);
    let done = run.finish();
    assert_eq!(done.code(), 128 + 9);
    let stderr = done.stderr();
    assert!(stderr.contains("may not forward signal 15"), "{stderr}");
    assert!(stderr.contains(&child.pid().to_string()), "{stderr}");
}

fn children(of: Process) -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("processes");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let processes = names.filter_map(|name| Process::numbered(name.parse().ok()?));
    processes
        .filter(|process| process.parent() == Some(of.pid()))
        .collect()
}
