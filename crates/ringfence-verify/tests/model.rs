//! The model, searched to the end: the protocol keeps its promises in every state, and what is
//! known to be wrong is found wrong. The numbers of states are pinned: a change of them is a change
//! of what is searched.

use ringfence_verify::model::properties::EXCLUSIVE;
use ringfence_verify::model::{
    FailoverScope, Scope, Weakness, Wrong, search, search_failover, search_failover_for,
};

fn is_searched(scope: Scope, states: usize) {
    let report = search(scope, 1);
    let ways: String = report.broken().map(|finding| finding.told()).collect();
    assert!(report.is_good(), "{}: {report}{ways}", scope.name);
    assert_eq!(report.states, states, "{}", scope.name);
    assert!(states < 1_000_000, "larger searches are for the command");
}

fn failover_is_searched(scope: FailoverScope, states: usize) {
    let report = search_failover(scope, 1, |_| {});
    let ways: String = report.broken().map(|finding| finding.told()).collect();
    assert!(report.is_good(), "{}: {report}{ways}", scope.name);
    assert_eq!(report.states, states, "{}", scope.name);
    assert!(states < 1_000_000, "larger searches are for the command");
}

fn is_found_wrong(name: &str) {
    let wrong = Wrong::ALL.iter().find(|wrong| wrong.name == name).unwrap();
    let report = wrong.search(1);
    for property in wrong.breaks {
        let mut broken = report.broken();
        assert!(
            broken.any(|finding| finding.property == *property),
            "{property}: {report}"
        );
    }
    assert!(report.states < 1_000_000, "{report}");
}

#[test]
fn three_clients_and_a_crash() {
    is_searched(Scope::TURNS, 306_269);
}

#[test]
fn two_clients_and_a_crash() {
    is_searched(Scope::CRASH, 145_726);
}

#[test]
fn an_attempt_that_is_given_up_and_one_that_follows() {
    is_searched(Scope::RETRIES, 679_054);
}

#[test]
fn a_holder_that_extends_restores_and_releases() {
    is_searched(Scope::RENEWALS, 988_924);
}

#[test]
fn quarantine_as_long_as_it_must_be() {
    is_searched(Scope::QUARANTINE, 224_221);
}

#[test]
fn retention_as_long_as_it_must_be() {
    is_searched(Scope::RETENTION, 31_496);
}

#[test]
fn a_record_that_was_written_while_the_node_had_forgotten() {
    is_searched(Scope::PINNED, 192_646);
}

#[test]
fn a_failover_and_the_way_back() {
    failover_is_searched(FailoverScope::FAILOVER, 894_859);
}

#[test]
fn a_failover_and_a_restart() {
    failover_is_searched(FailoverScope::RESTART, 150_607);
}

/// On the only node of a group the latest time for its execution bounds an acquire, too. A group of
/// several nodes has only the bound of the client.
#[test]
fn a_grant_that_is_read_late_is_harmless_if_it_was_executed_in_time() {
    let scope = FailoverScope::FAILOVER.without(Weakness::LateReply);
    let report = search_failover_for(scope, &[EXCLUSIVE], 1);
    assert_eq!(report.broken().count(), 0, "{report}");
}

#[test]
fn exclusion_does_not_depend_on_the_link_that_holds_calls_back() {
    let scope = FailoverScope {
        sends_unconfirmed: true,
        ..FailoverScope::FAILOVER.once()
    };
    let report = search_failover_for(scope, &[EXCLUSIVE], 1);
    let mut broken = report.broken();
    assert!(
        broken.all(|finding| finding.property != EXCLUSIVE),
        "{report}"
    );
}

#[test]
fn a_tick_less_of_quarantine_is_not_enough() {
    is_found_wrong("short-quarantine");
}

#[test]
fn a_tick_less_of_retention_is_not_enough() {
    is_found_wrong("short-retention");
}

#[test]
fn a_counter_on_each_node_is_no_fence() {
    is_found_wrong("counter-max");
}

#[test]
fn a_counter_that_is_written_back_is_no_fence() {
    is_found_wrong("counter-write-back");
}

#[test]
fn memory_may_not_be_lost_without_a_quarantine() {
    is_found_wrong("no-quarantine");
}

#[test]
fn a_release_minds_the_ballot_of_the_holder() {
    is_found_wrong("careless-release");
}

#[test]
fn a_record_does_not_pin_the_floor() {
    is_found_wrong("pinned-floor");
}

#[test]
fn votes_of_an_earlier_attempt_do_not_count() {
    is_found_wrong("old-votes");
}

#[test]
fn a_vote_less_than_a_majority_is_not_enough() {
    is_found_wrong("no-majority");
}

#[test]
fn a_node_keeps_a_lock_for_as_long_as_it_was_asked_to() {
    is_found_wrong("short-lease");
}

#[test]
fn the_word_of_one_sentinel_is_not_enough() {
    is_found_wrong("one-sentinel");
}

#[test]
fn the_sentinels_confirm_extends_too() {
    is_found_wrong("acquires-confirmed");
}

#[test]
fn a_majority_of_the_sentinels_has_one_epoch() {
    is_found_wrong("mixed-epochs");
}

#[test]
fn an_old_word_of_the_sentinels_does_not_count() {
    is_found_wrong("old-word");
}

#[test]
fn an_epoch_is_part_of_an_incarnation() {
    is_found_wrong("no-epoch");
}

#[test]
fn a_replication_id_is_part_of_an_incarnation() {
    is_found_wrong("no-replication-id");
}

#[test]
fn a_promoted_server_has_a_quarantine() {
    is_found_wrong("no-lone-quarantine");
}

#[test]
fn the_quarantine_is_as_long_as_a_lease_and_a_former_master() {
    is_found_wrong("short-lone-quarantine");
}

#[test]
fn a_server_in_quarantine_grants_nothing() {
    is_found_wrong("grants-in-quarantine");
}

#[test]
fn not_every_extend_counts_in_a_quarantine() {
    is_found_wrong("carried-at-once");
}

#[test]
fn a_holder_is_carried_only_with_enough_validity_left() {
    is_found_wrong("carried-with-less");
}

#[test]
fn a_late_acquire_is_not_executed() {
    is_found_wrong("late-acquire");
}

#[test]
fn a_late_grant_does_not_count() {
    is_found_wrong("late-grant");
}
