//! Nodes whose clocks are almost out of each other's reach: a record above the slow one's ceiling comes
//! into it as time passes, unless those who ask push it further.

use proptest::prelude::*;

use super::ballot::propose;
use super::*;

/// How often somebody asks.
const PAUSE_MS: u64 = 50;
/// A record is at most a window above its node's clock, and the slowest clock of a majority at most two
/// windows behind, both less what the margin takes.
const PATIENCE_MS: u64 = 2 * WINDOW_US / 1_000;

/// Asks until a majority grants: after how many milliseconds.
fn granted_after(servers: &mut [Server], silent: Option<usize>) -> Option<u64> {
    let mut cluster = acquainted(servers, at(0));
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

/// Each attempt at the fast node's own time would lift its record as fast as the slow one's ceiling rises:
/// two nodes that answer, and nobody would be granted anything for ever.
#[test]
fn a_record_out_of_reach_comes_into_it_as_time_passes() {
    let mut servers = [0, 8_900_000, 0].map(Server::new);
    record(&mut servers[1], 0);
    // Its record is 8.9 s ahead of the slow clock, whose ceiling is 5 s ahead.
    assert_eq!(granted_after(&mut servers, Some(2)), Some(3_950));
}

/// The third is out of the others' reach altogether, and its clock is the median.
#[test]
fn a_median_that_pleases_only_itself_is_not_proposed() {
    let mut servers = [-6_600_000, 0, 9_700_000].map(Server::new);
    record(&mut servers[1], 0);
    assert_eq!(granted_after(&mut servers, None), Some(1_650));
}

/// Clocks that will never meet are not waited for: the ballot is the median's, as where all is well.
#[test]
fn clocks_that_never_meet_change_nothing() {
    let servers = [0, 9_100_000].map(Server::new);
    let mut cluster = acquainted(&servers, at(0));
    let choice = cluster.choose(&[None, None], at(0)).unwrap();
    assert_eq!((choice.ballot.get(), choice.accepting), (START_US, 1));
}

prop_compose! {
    /// N nodes of which a majority has clocks within two windows less the margin, the others anywhere,
    /// and all of them any record that they can have.
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
    fn a_majority_within_reach_grants_in_time_whatever_is_on_record(
        mut servers in any_servers(),
    ) {
        let shown = servers.clone();
        prop_assert!(granted_after(&mut servers, None).is_some(), "{shown:?}");
    }
}
