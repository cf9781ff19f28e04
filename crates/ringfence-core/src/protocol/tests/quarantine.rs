//! How long a node that may have lost its data may not vote.

use super::*;

/// `Q` of 35 s as it is used: plus 1 % and one second.
const Q: Duration = Duration::from_millis(36_350);

fn standing(born_us: u64, clock_us: u64) -> Standing {
    Standing {
        incarnation: born_us,
        born_us,
        clock_us,
        server: 0,
        replicated: false,
        epoch: None,
    }
}

fn born_ago(ago: Duration) -> Standing {
    standing(START_US - ago.as_micros() as u64, START_US)
}

fn observe(cluster: &mut Cluster, standing: Standing, now: Timestamp) {
    let mut reply = reply(Answer::Gone).unwrap();
    reply.standing = standing;
    cluster.observe(0, &Ok(reply), now, now);
}

#[test]
fn the_quarantine_in_use_is_longer_by_the_drift_and_a_second() {
    assert_eq!(cluster_of(3).quarantine(), Q);
}

#[test]
fn a_node_votes_when_its_own_clock_has_passed_the_quarantine() {
    let cluster = cluster_of(3);
    let left = |ago| cluster.quarantine_left(0, born_ago(ago), at(0));
    assert_eq!(left(Duration::ZERO), Some(Q));
    assert_eq!(left(Q - ms(1)), Some(ms(1)));
    assert_eq!(left(Q), None);
}

#[test]
fn a_node_without_a_quarantine_votes_at_once() {
    let grown_up = standing(0, 1);
    assert_eq!(cluster_of(3).quarantine_left(0, grown_up, at(0)), None);
}

/// The node's clock was set forward right after its restart, so its own clock is not enough.
#[test]
fn a_client_that_saw_a_new_birth_also_waits_on_its_own_clock() {
    let mut cluster = cluster_of(3);
    observe(&mut cluster, standing(1, START_US), at(0));
    let reborn = standing(2, START_US);
    observe(&mut cluster, reborn, at(1_000));
    let left = |now| cluster.quarantine_left(0, reborn, now);
    assert_eq!(left(at(1_000)), Some(Q));
    assert_eq!(left(at(1_000) + Q - ms(1)), Some(ms(1)));
    assert_eq!(left(at(1_000) + Q), None);
    assert_eq!(
        cluster.quarantine_left(1, reborn, at(1_000)),
        None,
        "only this node"
    );
}

#[test]
fn the_quarantine_counts_from_the_first_reply_after_the_birth() {
    let mut cluster = cluster_of(3);
    observe(&mut cluster, standing(1, START_US), at(0));
    let reborn = standing(2, START_US);
    for now in [0, 10_000, 20_000] {
        observe(&mut cluster, reborn, at(now));
    }
    assert_eq!(cluster.quarantine_left(0, reborn, at(0) + Q), None);
}

/// The first contact with a node is not a new birth: the node's own clock decides.
#[test]
fn a_fresh_client_trusts_the_nodes_clock() {
    let mut cluster = cluster_of(3);
    let old = born_ago(Q);
    observe(&mut cluster, old, at(0));
    assert_eq!(cluster.quarantine_left(0, old, at(0)), None);
}

#[test]
fn a_durable_node_that_kept_its_birth_over_a_restart_votes_at_once() {
    let mut cluster = cluster_of(3);
    let before = born_ago(Q);
    observe(&mut cluster, before, at(0));
    let after = Standing {
        incarnation: 77,
        ..before
    };
    observe(&mut cluster, after, at(1));
    assert_eq!(cluster.quarantine_left(0, after, at(1)), None);
}

/// The clock was set back before the birth: in quarantine, but never for longer than Q.
#[test]
fn a_node_with_a_birth_in_the_future_may_not_vote() {
    let cluster = cluster_of(3);
    for born_us in [START_US + 1, START_US + 3_600_000_000, u64::MAX] {
        let left = cluster.quarantine_left(0, standing(born_us, START_US), at(0));
        assert_eq!(left, Some(Q));
    }
}

#[test]
fn quarantine_can_be_switched_off_for_a_node() {
    let group = Group::new(3);
    let cluster = Cluster::new(&group, Drift::default(), &[false, true, true]);
    let newborn = born_ago(Duration::ZERO);
    assert_eq!(cluster.quarantine_left(0, newborn, at(0)), None);
    assert_eq!(cluster.quarantine_left(1, newborn, at(0)), Some(Q));
}

#[test]
fn a_single_node_has_no_quarantine() {
    let newborn = born_ago(Duration::ZERO);
    assert_eq!(cluster_of(1).quarantine_left(0, newborn, at(0)), None);
}

#[test]
fn the_values_of_the_group_are_adopted() {
    let mut cluster = cluster_of(3);
    let mut group = Group::new(3);
    group.quarantine = Duration::from_secs(100);
    cluster.adopt(&group);
    assert_eq!(cluster.quarantine(), ms(102_000));
    let newborn = born_ago(Duration::ZERO);
    assert_eq!(
        cluster.quarantine_left(0, newborn, at(0)),
        Some(ms(102_000))
    );
}
