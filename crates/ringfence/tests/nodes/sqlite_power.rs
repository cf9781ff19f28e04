//! A power cut under a SQLite file: what was not synced is lost, in any subset of its sectors.
//!
//! A child process, which is this very binary, works on a file while everything that it writes and
//! syncs is recorded. Then the test makes files as a power cut could have left them and opens them
//! after a boot.

use std::collections::HashMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::sqlite::SqliteNode;
use ringfence::node::{CallError, Node, NodeClock};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Arrive, Ballot, Op};
use ringfence_core::splitmix::SplitMix64;
use ringfence_testkit::{DiskAction, DiskEvent, DiskImage, DiskJournal, disk_after};

use crate::nodes::support::*;

const TASK: &str = "RINGFENCE_POWER_TASK";
const FOLDER: &str = "RINGFENCE_POWER_FOLDER";
/// Where the child writes down what the node confirmed to it.
const CONFIRMED: &str = "confirmed";

const WALL_US: u64 = 1_700_000_000_000_000;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// How often the child takes a lock. The clock goes on by [`STEP`] each time, so that the node has
/// to promise several times.
const ROUNDS: u64 = 60;
const STEP: Duration = Duration::from_millis(700);

#[test]
fn after_a_power_cut_fences_rise_holders_are_gone_and_latches_keep_their_parties() {
    let scratch = Scratch::new();
    let journal = DiskJournal::of(scratch.folder());
    run_child("work", &scratch, &journal);
    let mut events = journal.events();
    // A new file is complete before it gets its name.
    let made = |event: &&mut DiskEvent| event.file.starts_with("locks.db-new-");
    events
        .iter_mut()
        .filter(made)
        .for_each(|event| event.file = "locks.db".to_owned());
    let synced = |event: &&DiskEvent| event.action == DiskAction::Sync;
    let syncs = events.iter().filter(synced).count();
    assert!(syncs > 8, "{syncs} syncs: too few to test anything");
    assert!(syncs < 60, "{syncs} syncs: not every transaction needs one");
    let mut random = SplitMix64::new(7);
    for _ in 0..200 {
        let cut = random.draw() as usize % events.len() + 1;
        // Nothing that was not synced survives, or everything, or each sector with even odds.
        let mode = random.draw() % 3;
        let image = disk_after(&events[..cut], || match mode {
            0 => false,
            1 => true,
            _ => random.draw().is_multiple_of(2),
        });
        check_after_boot(&image, &confirmed(&events[..cut]), cut);
    }
}

#[test]
fn a_failed_sync_grants_nothing_and_the_next_one_does() {
    check_failed_sync("fail");
}

#[test]
fn a_failed_sync_is_made_good_by_the_next_process_that_syncs() {
    check_failed_sync("fail then open");
}

fn check_failed_sync(task: &str) {
    let scratch = Scratch::new();
    let journal = DiskJournal::of(scratch.folder());
    run_child(task, &scratch, &journal);
    // The log that may be incomplete on the disk was copied into the database before the next
    // grant.
    let events = journal.events();
    let is_note = |event: &DiskEvent| event.file == CONFIRMED;
    let (mended, granted) = (
        events.iter().position(is_note).unwrap(),
        events.iter().rposition(is_note).unwrap(),
    );
    let copied = |event: &DiskEvent| event.file == "locks.db" && event.action == DiskAction::Sync;
    assert!(events[mended..granted].iter().any(copied));
}

/// What the node had confirmed: the highest fence of each name, and the parties of the latch.
#[derive(Debug, Default)]
struct Confirmed {
    fences: HashMap<String, u64>,
    parties: Vec<String>,
}

fn confirmed(events: &[DiskEvent]) -> Confirmed {
    let mut confirmed = Confirmed::default();
    for event in events.iter().filter(|event| event.file == CONFIRMED) {
        let DiskAction::Write(_, line) = &event.action else {
            continue;
        };
        let line = String::from_utf8(line.clone()).unwrap();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["fence", name, fence] => {
                let highest = confirmed.fences.entry(name.to_owned()).or_default();
                *highest = fence.parse::<u64>().unwrap().max(*highest);
            }
            ["party", party] => confirmed.parties.push(party.to_owned()),
            _ => panic!("{line}"),
        }
    }
    confirmed
}

/// The machine boots with these files. Its wall clock is an hour behind.
fn check_after_boot(image: &DiskImage, confirmed: &Confirmed, cut: usize) {
    let scratch = Scratch::new();
    for name in ["locks.db", "locks.db-wal"] {
        if let Some(bytes) = image.get(name) {
            let path = scratch.path(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US - 3_600_000_000);
    let node = SqliteNode::open(scratch.path("locks.db"), clock.with_boot_id("next"));
    let node = node.unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
    join(&node, Group::new(1)).wait().unwrap();
    for name in NAMES {
        let ballot = next_ballot(&node, name);
        let before = confirmed.fences.get(name).copied().unwrap_or_default();
        assert!(ballot.get() > before, "cut at {cut}: {ballot} <= {before}");
        let answer = ask(&node, name, BOB, acquire(ballot, TTL_MS));
        assert_eq!(answer, Answer::Granted, "cut at {cut}");
    }
    let parties = arrive(&node, "late", stamp(&node, "latch").clock_us);
    for party in &confirmed.parties {
        assert!(parties.contains(party), "cut at {cut}: {party} is gone");
    }
}

/// Not a test but what the child process runs; without a task it does nothing.
#[test]
fn child() {
    let (Ok(task), Some(folder)) = (env::var(TASK), env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let time = SteppedClock::starting_at(Duration::from_secs(1_000));
    let clock = NodeClock::following(Clock::Stepped(time.clone()), WALL_US);
    let node = SqliteNode::open(folder.join("locks.db"), clock).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    match task.as_str() {
        "work" => work(&node, &time, &folder),
        "fail" => fail(&node, &node, &time, &folder),
        // A second node on the file is like another process: it shares nothing but the file.
        "fail then open" => {
            let clock = NodeClock::following(Clock::Stepped(time.clone()), WALL_US);
            let other = SqliteNode::open(folder.join("locks.db"), clock).unwrap();
            fail(&node, &other, &time, &folder);
        }
        other => panic!("no such task: {other}"),
    }
}

/// Takes locks with ballots up to the ceiling, releases some of them, and arrives at a latch.
fn work(node: &dyn Node, time: &SteppedClock, folder: &Path) {
    let mut held: HashMap<&str, (u8, Ballot)> = HashMap::new();
    for round in 0..ROUNDS {
        let name = NAMES[round as usize % NAMES.len()];
        if let Some((who, ballot)) = held.remove(name) {
            ask(node, name, who, release(ballot));
        }
        let clock_us = stamp(node, name).clock_us;
        let ahead_us = round % 4 * 1_500_000;
        let ballot = Ballot::new(clock_us + ahead_us).max(next_ballot(node, name));
        let who = round as u8;
        if ask(node, name, who, acquire(ballot, TTL_MS)) == Answer::Granted {
            note(folder, &format!("fence {name} {ballot}"));
            held.insert(name, (who, ballot));
        }
        if round % 7 == 3 {
            let party = format!("p{round}");
            arrive(node, &party, WALL_US);
            note(folder, &format!("party {party}"));
        }
        time.step(STEP);
    }
}

/// The promise is over, and the disk takes no more syncs: a lock is not granted. Then it does
/// again, and `next` grants the lock.
fn fail(node: &dyn Node, next: &dyn Node, time: &SteppedClock, folder: &Path) {
    let take = |node: &dyn Node, name: &str, ballot: Ballot| {
        let acquire = acquire(ballot, TTL_MS);
        send(node, request(&[name], ALICE, acquire), NEVER).wait()
    };
    let granted = take(node, "a", next_ballot(node, "a"));
    assert_eq!(granted.unwrap().answer, Answer::Granted);
    time.step(Duration::from_secs(30));
    let ballot = next_ballot(node, "b");
    let switch = PathBuf::from(env::var_os("RINGFENCE_SYNC_FAILS").unwrap());
    fs::write(&switch, "").unwrap();
    for _ in 0..3 {
        let error = take(node, "b", ballot).unwrap_err();
        assert!(
            matches!(error, CallError::Unknown(_) | CallError::Refused(_)),
            "{error:?}"
        );
    }
    fs::remove_file(&switch).unwrap();
    note(folder, "mended");
    assert_eq!(take(next, "b", ballot).unwrap().answer, Answer::Granted);
    note(folder, "granted");
}

fn arrive(node: &dyn Node, party: &str, since_us: u64) -> Vec<String> {
    let op = Op::Arrive(Arrive {
        parties: Arc::from([Arc::from(party)]),
        since_us: Some(since_us),
        count: 99,
        ttl_ms: 3_600_000,
    });
    match ask(node, "latch", ALICE, op) {
        Answer::Arrivals(all) => all.parties.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// One write, which the journal records between the writes of the node.
fn note(folder: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join(CONFIRMED))
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn run_child(task: &str, scratch: &Scratch, journal: &DiskJournal) {
    let status = Command::new(env::current_exe().unwrap())
        .args(["--exact", "nodes::sqlite_power::child", "--nocapture"])
        .env(TASK, task)
        .env(FOLDER, fs::canonicalize(scratch.folder()).unwrap())
        .envs(journal.environment())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{task}: {status}");
}
