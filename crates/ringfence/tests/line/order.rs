//! First come, first served, over a quorum and between processes.

use std::time::Duration;

use ringfence_testkit::Fleet;

use crate::crew::{Crew, Turn};

/// Who asks this much earlier is surely ahead in line: longer than two round trips on a busy machine.
const SURELY: Duration = Duration::from_millis(50);

/// Never two at once, and fences rise in the order of holding.
pub(crate) fn one_at_a_time(turns: &mut [Turn]) {
    turns.sort_by_key(|turn| turn.held_ns);
    for pair in turns.windows(2) {
        assert!(pair[0].left_ns <= pair[1].held_ns, "two at once: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "fences fall: {pair:?}");
    }
}

/// Among those who were surely in line before the last holder let go, the earlier goes first.
fn in_order(turns: &[Turn]) {
    let surely_ns = SURELY.as_nanos() as u64;
    let mut passed = 0;
    for (at, turn) in turns.iter().enumerate().skip(1) {
        let in_line_since = turns[at - 1].held_ns.saturating_sub(surely_ns);
        // Who held later than this one, but asked long before it, and long before it was free.
        let overtaken = turns[at + 1..].iter().any(|other| {
            other.asked_ns + surely_ns < turn.asked_ns && other.asked_ns < in_line_since
        });
        passed += usize::from(overtaken);
    }
    assert_eq!(
        passed,
        0,
        "of {} turns so many were out of order",
        turns.len()
    );
}

/// Jain's index of what each process got: 1 if all got the same.
fn fairness(turns: &[Turn], processes: usize) -> f64 {
    let got = (0..processes).map(|process| {
        let of_process = turns.iter().filter(|turn| turn.process == process);
        of_process.count() as f64
    });
    let got: Vec<f64> = got.collect();
    let (sum, squares) = (
        got.iter().sum::<f64>(),
        got.iter().map(|x| x * x).sum::<f64>(),
    );
    sum * sum / (processes as f64 * squares)
}

#[test]
fn thirty_two_waiters_in_four_processes_take_their_turns() {
    let fleet = Fleet::start(5);
    let crew = Crew::start(&fleet.urls_without_quarantine(), 4, 8);
    // While the processes start, those who are there have the lock to themselves.
    crew.turns(400);
    let mut turns = crew.turns(2_000);
    one_at_a_time(&mut turns);
    in_order(&turns);
    let fairness = fairness(&turns, 4);
    assert!(fairness >= 0.98, "{fairness}");
}

#[test]
fn one_node_down_and_one_hung_stall_nobody() {
    let fleet = Fleet::start(5);
    let crew = Crew::start(&fleet.urls_without_quarantine(), 4, 8);
    crew.turns(400);
    fleet[0].kill();
    fleet[1].pause();
    let mut turns = crew.turns(600);
    one_at_a_time(&mut turns);
    let fairness = fairness(&turns[100..], 4);
    assert!(fairness >= 0.9, "{fairness}");
    fleet[1].resume();
}

#[test]
fn the_check_finds_an_overtaker() {
    let turn = |process, asked_ns: u64, held_ns: u64| Turn {
        process,
        asked_ns: asked_ns * 1_000_000,
        held_ns: held_ns * 1_000_000,
        left_ns: held_ns * 1_000_000 + 1,
        fence: held_ns,
    };
    let orderly = [turn(0, 0, 1000), turn(1, 100, 1010), turn(2, 500, 1020)];
    in_order(&orderly);
    let overtaken = [turn(0, 0, 1000), turn(2, 500, 1010), turn(1, 100, 1020)];
    assert!(std::panic::catch_unwind(|| in_order(&overtaken)).is_err());
    let two_at_once = [turn(0, 0, 1000), turn(1, 0, 1000)];
    assert!(std::panic::catch_unwind(|| one_at_a_time(&mut two_at_once.clone())).is_err());
}
