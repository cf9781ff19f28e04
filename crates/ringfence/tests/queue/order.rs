//! Grants follow the order of tickets, over a quorum and between processes.

use std::time::Duration;

use ringfence_core::group::Group;

use crate::queue::crew::{Crew, Turn};
use crate::queue::witness::Stub;
use crate::queue::worker::voting_fleet;

/// A waiter may be passed after this time.
const GRACE_NS: u64 = Group::DEFAULT_GRACE.as_nanos() as u64;
/// A waiter that was passed is in the queue again after this time: clients refresh once a second.
const BACK_NS: u64 = 2_000_000_000;

/// Asserts that there are never two holders, and that fences rise in the order of holding.
pub(crate) fn one_at_a_time(turns: &mut [Turn]) {
    turns.sort_by_key(|turn| turn.held_ns);
    for pair in turns.windows(2) {
        assert!(pair[0].left_ns <= pair[1].held_ns, "two at once: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "fences fall: {pair:?}");
    }
}

/// Asserts that a waiter whose ticket was on a majority before the last holder released is not
/// overtaken by a later ticket, nor by a caller without one. If the machine stood still for as long
/// as the grace period, passing is allowed; such turns must be the minority.
fn in_order(turns: &[Turn]) {
    let mut passing_until_ns = 0;
    let mut passing = 0;
    for (at, turn) in turns.iter().enumerate().skip(1) {
        let released_ns = turns[at - 1].left_ns;
        if turn.held_ns - released_ns >= GRACE_NS {
            passing_until_ns = turn.held_ns + BACK_NS;
        }
        if turn.held_ns < passing_until_ns {
            passing += 1;
            continue;
        }
        let overtaken = turns[at + 1..].iter().find(|other| {
            let ticket = other.ticket.as_ref();
            ticket.is_some_and(|ticket| {
                ticket.on_majority_ns.is_some_and(|ns| ns < released_ns)
                    && turn
                        .ticket
                        .as_ref()
                        .is_none_or(|own| is_before(ticket, own))
            })
        });
        assert!(overtaken.is_none(), "{turn:?} overtook {overtaken:?}");
    }
    let all = turns.len();
    assert!(
        passing * 2 <= all,
        "{passing} of {all} turns cannot be judged"
    );
}

fn is_before(one: &Stub, other: &Stub) -> bool {
    (one.since_us, &one.id) < (other.since_us, &other.id)
}

/// How many of `turns` were compared with other waiters: a check without any comparison shows
/// nothing.
fn contended(turns: &[Turn]) -> usize {
    let in_queue = |turn: &&Turn| {
        let ticket = turn.ticket.as_ref();
        ticket.is_some_and(|ticket| ticket.on_majority_ns.is_some_and(|ns| ns < turn.held_ns))
    };
    turns.iter().filter(in_queue).count()
}

/// Jain's index of the turns of each process: 1 if all had the same number.
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

/// Asserts what 2,000 turns of four processes must show, whatever their nodes do.
fn judge(mut turns: Vec<Turn>) {
    one_at_a_time(&mut turns);
    in_order(&turns);
    let contended = contended(&turns);
    assert!(
        contended * 10 >= turns.len() * 9,
        "{contended} in the queue"
    );
    let fairness = fairness(&turns, 4);
    assert!(fairness >= 0.98, "{fairness}");
}

#[tokio::test]
async fn thirty_two_callers_in_four_processes_hold_in_ticket_order() {
    let fleet = voting_fleet(5).await;
    let crew = Crew::start(&fleet.urls(), 4, 8);
    // While the processes start, the first of them have the lock to themselves.
    crew.turns(400);
    judge(crew.turns(2_000));
}

#[tokio::test]
async fn one_node_down_and_one_hung_do_not_stall_the_queue() {
    let fleet = voting_fleet(5).await;
    let crew = Crew::start(&fleet.urls(), 4, 8);
    crew.turns(400);
    fleet[0].kill();
    fleet[1].pause();
    let turns = crew.turns(2_000);
    let mut times: Vec<(u64, u64)> = turns.iter().map(|t| (t.held_ns, t.left_ns)).collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1].0 - pair[0].1);
    let longest = Duration::from_nanos(gaps.max().unwrap());
    // A dead client may cost more than this, but no client died.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    judge(turns);
    fleet[1].resume();
}

#[test]
fn the_order_check_detects_overtaking() {
    let turn = |process: usize, since: u64, held: u64| Turn {
        process,
        held_ns: held * 1_000_000,
        left_ns: held * 1_000_000 + 1,
        fence: held,
        ticket: Some(Stub {
            since_us: since,
            id: process.to_string(),
            on_majority_ns: Some(since * 1_000_000),
        }),
    };
    let refused = |turns: [Turn; 3]| std::panic::catch_unwind(|| in_order(&turns)).is_err();
    // All tickets are in the queue before the release at 1,000 ms.
    in_order(&[turn(0, 0, 1000), turn(1, 100, 1010), turn(2, 500, 1020)]);
    assert!(refused([
        turn(0, 0, 1000),
        turn(2, 500, 1010),
        turn(1, 100, 1020)
    ]));
    let without_ticket = Turn {
        ticket: None,
        ..turn(2, 500, 1010)
    };
    assert!(refused([
        turn(0, 0, 1000),
        without_ticket,
        turn(1, 100, 1020)
    ]));
    // The earlier ticket was not on a majority yet, so the later one may go first.
    let mut late = turn(1, 100, 1020);
    late.ticket.as_mut().unwrap().on_majority_ns = Some(1_005_000_000);
    in_order(&[turn(0, 0, 1000), turn(2, 500, 1010), late]);
    let two_at_once = [turn(0, 0, 1000), turn(1, 0, 1000)];
    assert!(std::panic::catch_unwind(|| one_at_a_time(&mut two_at_once.clone())).is_err());
}
