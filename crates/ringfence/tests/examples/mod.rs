//! The examples, run as a reader would run them, and the documents that explain them.

mod blocks;
mod cases;
mod links;
mod protocol;
mod public_names;
mod steps;
mod user_tests;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ringfence_testkit::Fleet;

/// Cargo builds the examples beside the folder of this test's program, unless only this test is
/// built.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.ancestors().nth(2).unwrap().join("examples");
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} was not built: run cargo build --examples --all-features",
        program.display()
    );
    let mut command = Command::new(program);
    command.env_remove("RINGFENCE_NODES").stdin(Stdio::null());
    command
}

/// The output of `command`, which must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A document of this repository.
fn document(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folder of this repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The number after `word` in `line`.
fn number_after(line: &str, word: &str) -> u64 {
    let (_, rest) = line.split_once(word).unwrap_or_else(|| panic!("{line}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn the_simplest_lock_holds_with_a_fence() {
    let text = output_of(&mut example("simplest"));
    assert!(text.starts_with("holding orders:42"), "{text}");
    assert!(number_after(&text, "fence ") > 0);
}

#[test]
fn a_node_of_ones_own_is_asked() {
    let text = output_of(&mut example("custom_node"));
    let calls: u64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!(calls >= 2, "acquire and release: {text}");
}

#[test]
fn the_simplest_lock_works_on_a_quorum() {
    let fleet = Fleet::start(3);
    let nodes = fleet.urls_without_quarantine();
    let fence = |text: String| number_after(&text, "fence ");
    let first = fence(output_of(example("simplest").arg(&nodes)));
    assert!(fence(output_of(example("simplest").arg(&nodes))) > first);
}

#[test]
fn work_is_stopped_when_the_lock_ends() {
    let text = output_of(&mut example("hold_and_cancel"));
    assert!(text.contains("step 2"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("stopped in time: "), "{text}");
}

#[test]
fn a_late_write_is_refused_by_its_fence() {
    let text = output_of(&mut example("fence_in_sql"));
    let last = text.lines().last().unwrap();
    let (late, mark) = (
        number_after(last, "refused: fence "),
        number_after(last, "the mark "),
    );
    assert_eq!(late, number_after(&text, "first holder has fence "));
    assert_eq!(mark, number_after(&text, "second holder has fence "));
}

#[test]
fn the_blocking_example_holds_twice_with_rising_fences() {
    let text = output_of(&mut example("blocking"));
    let fences: Vec<u64> = text.lines().map(|l| number_after(l, "fence ")).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{text}");
}

#[test]
fn the_election_example_has_two_leaders_in_turn() {
    assert_eq!(
        output_of(&mut example("election")),
        "first leads\nsecond leads\n"
    );
}

/// Both copies write into one pipe, so that the order of their lines is the order of their actions.
#[test]
fn two_copies_of_the_redlock_demo_do_not_overlap() {
    let fleet = Fleet::start(3);
    let (mut lines, pipe) = std::io::pipe().unwrap();
    let start = || -> Child {
        let mut command = example("redlock_demo");
        command.env("RINGFENCE_NODES", fleet.urls_without_quarantine());
        command.stdout(pipe.try_clone().unwrap()).spawn().unwrap()
    };
    let copies = [start(), start()];
    drop(pipe);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut lines, &mut text).unwrap();
    for mut copy in copies {
        assert!(copy.wait().unwrap().success(), "{text}");
    }
    let lines: Vec<&str> = text.lines().collect();
    let [begun, finished, begun_again, finished_again] = lines[..] else {
        panic!("{text}");
    };
    let copy_name = |line: &str| line.split(' ').next().unwrap().to_owned();
    assert!(begun.contains("has begun"), "{text}");
    assert_eq!(
        finished,
        format!("{} has finished", copy_name(begun)),
        "{text}"
    );
    assert!(begun_again.contains("has begun"), "{text}");
    let again = copy_name(begun_again);
    assert_eq!(finished_again, format!("{again} has finished"), "{text}");
    assert_ne!(copy_name(begun), again, "{text}");
    assert!(number_after(begun_again, "fence ") > number_after(begun, "fence "));
}

#[test]
fn the_read_write_example_shares_and_excludes() {
    let text = output_of(&mut example("read_write"));
    assert!(text.contains("writing is refused: true"), "{text}");
    assert!(text.contains("reads on, with others: true"), "{text}");
}

#[test]
fn the_semaphore_example_grants_two_permits_and_refuses_a_third() {
    let text = output_of(&mut example("semaphore"));
    assert!(text.contains("slots 0 and 1 are taken"), "{text}");
    assert!(text.contains("a third is refused: true"), "{text}");
}

#[test]
fn the_latch_example_opens_when_the_last_party_has_arrived() {
    let text = output_of(&mut example("latch"));
    assert!(text.contains("us is there, 1 missing"), "{text}");
    assert!(
        text.ends_with("asia is there, 0 missing\nall are there\n"),
        "{text}"
    );
}
