//! Nodes whose clocks are so far apart that they hardly accept a common ballot. A record above the
//! ceiling of the slow node comes into reach as time passes, unless new attempts raise it further.

use proptest::prelude::*;

use super::ballot::propose;
use super::*;

/// The interval between two attempts.
const PAUSE_MS: u64 = 50;
/// A record is at most one window above its node's clock, and the slowest clock of a majority is at
/// most two windows behind, both less the margin.
const PATIENCE_MS: u64 = 2 * WINDOW_US / 1_000;

/// Tries until a majority grants. Returns after how many milliseconds.
fn granted_after(servers: &mut [Server], silent: Option<usize>) -> Option<u64> {
    let mut cluster = connected(servers, at(0));
    let mut floors = vec![None; servers.len()];
    (0..=PATIENCE_MS).step_by(PAUSE_MS as usize).find(|&ms| {
        if let Some(silent) = silent {
            cluster.silent(silent);
        }
        let answering: Vec<usize> = (0..servers.len()).filter(|n| Some(*n) != silent).collect();
        let granted = propose(&mut cluster, servers, &answering, &mut floors, at(ms));
        granted >= quorum(servers.len())
    })
}

fn record(server: &mut Server, above_clock_us: i64) {
    let clock_us = START_US.saturating_add_signed(server.offset_us);
    let ballot = Ballot::new(clock_us.saturating_add_signed(above_clock_us));
    server.ask(at(0), &token(9), undo(ballot, true)).unwrap();
}

/// If each attempt proposed the fast node's own time, it would raise that record as fast as the
/// ceiling of the slow node rises. Both nodes answer, and yet no client would ever get a grant.
#[test]
fn a_record_out_of_reach_comes_into_it_as_time_passes() {
    let mut servers = [0, 8_900_000, 0].map(Server::new);
    record(&mut servers[1], 0);
    // The record is 8.9 s ahead of the slow clock, whose ceiling is 5 s ahead.
    assert_eq!(granted_after(&mut servers, Some(2)), Some(3_950));
}

/// The third node is out of reach of the others, and its clock is the median.
#[test]
fn a_median_that_only_its_own_node_accepts_is_not_proposed() {
    let mut servers = [-6_600_000, 0, 9_700_000].map(Server::new);
    record(&mut servers[1], 0);
    assert_eq!(granted_after(&mut servers, None), Some(1_650));
}

/// Clocks that will never come into reach are not waited for: the ballot is the median, as usual.
#[test]
fn clocks_that_never_come_into_reach_change_nothing() {
    let servers = [0, 9_100_000].map(Server::new);
    let mut cluster = connected(&servers, at(0));
    let choice = cluster.choose(&[None, None], at(0)).unwrap();
    assert_eq!((choice.ballot.get(), choice.accepting), (START_US, 1));
}

prop_compose! {
    /// N nodes. A majority has clocks within two windows less the margin, the others have any
    /// clock, and all have any possible record.
    fn any_servers()(
        nodes in 1usize..=5,
    )(
        close in prop::collection::vec(0i64..8_900_000, nodes / 2 + 1),
        others in prop::collection::vec(-20_000_000i64..20_000_000, nodes - nodes / 2 - 1),
        records in prop::collection::vec(-5_000_000i64..=5_000_000, nodes),
        turn in 0..nodes,
    ) -> Vec<Server> {
        let offsets = close.into_iter().chain(others);
        let mut servers: Vec<Server> = offsets.map(Server::new).collect();
        for (server, above_clock_us) in servers.iter_mut().zip(records) {
            record(server, above_clock_us);
        }
        servers.rotate_left(turn);
        servers
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_majority_within_reach_grants_in_time_with_any_records(
        mut servers in any_servers(),
    ) {
        let shown = servers.clone();
        prop_assert!(granted_after(&mut servers, None).is_some(), "{shown:?}");
    }
}
