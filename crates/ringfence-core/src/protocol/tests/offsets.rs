//! Clocks that jump: what proves a jump, what it costs, and when it was a freeze of our own clock.

use proptest::prelude::*;

use super::*;

/// `Q` of 35 s as it is used.
const Q: Duration = Duration::from_millis(36_350);
const SECOND_US: i64 = 1_000_000;

/// Servers out of quarantine, and a client that got a reply from each at `at(0)`.
struct Watch {
    servers: Vec<Server>,
    cluster: Cluster,
}

impl Watch {
    fn new(nodes: usize) -> Self {
        let servers = vec![Server::new(0); nodes];
        let cluster = connected(&servers, at(0));
        Self { servers, cluster }
    }

    /// `node` answers at `now` a call that took `took`, and read its clock in the middle.
    fn observe(&mut self, node: usize, now: Timestamp, took: Duration) -> Option<ClockEvent> {
        let sent = now - took;
        let clock_us = self.servers[node].clock_us(sent + took / 2);
        self.observe_clock(node, clock_us, sent, now)
    }

    fn observe_clock(
        &mut self,
        node: usize,
        clock_us: u64,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<ClockEvent> {
        let reply = Reply {
            stamp: Some(ReplyStamp {
                clock_us,
                floor: Ballot::default(),
            }),
            standing: Standing::default(),
            answer: Answer::Granted,
        };
        self.cluster.observe(node, &Ok(reply), sent, now)
    }

    fn step(&mut self, node: usize, by_us: i64) {
        self.servers[node].offset_us += by_us;
    }

    fn discount(&self, node: usize, sent: Timestamp, now: Timestamp) -> Option<Vote> {
        let standing = Standing::default();
        self.cluster.discount(node, standing, sent, now)
    }

    fn jumped(&self, now: Timestamp) -> Vec<bool> {
        let nodes = 0..self.servers.len();
        nodes
            .map(|node| self.discount(node, now, now).is_some())
            .collect()
    }
}

fn jumped_by(event: Option<ClockEvent>, node: usize, by_us: i64) {
    match event {
        Some(ClockEvent::Jumped {
            node: who,
            by_us: least,
        }) => {
            assert_eq!(who, node);
            // What is not certain is not counted.
            let less = by_us.abs() - least.abs();
            assert!(
                by_us.signum() == least.signum() && (0..=50_000).contains(&less),
                "{least}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_jump_costs_only_that_nodes_vote_for_the_quarantine() {
    let mut watch = Watch::new(3);
    watch.step(2, 20 * SECOND_US);
    let now = at(1_000);
    jumped_by(watch.observe(2, now, ms(1)), 2, 20 * SECOND_US);
    assert_eq!(watch.jumped(now), [false, false, true]);
    assert_eq!(watch.cluster.jumps(2), 1);
    let left = |now| match watch.discount(2, now, now) {
        Some(Vote::ClockJumped { left, .. }) => Some(left),
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(now), Some(Q));
    assert_eq!(left(now + Q - ms(1)), Some(ms(1)));
    assert_eq!(left(now + Q), None);
}

#[test]
fn a_clock_that_is_set_back_is_a_jump() {
    let mut watch = Watch::new(3);
    watch.step(0, -2 * SECOND_US);
    jumped_by(watch.observe(0, at(1_000), ms(1)), 0, -2 * SECOND_US);
    assert_eq!(watch.jumped(at(1_000)), [true, false, false]);
}

#[test]
fn a_jump_is_reported_once() {
    let mut watch = Watch::new(3);
    watch.step(1, SECOND_US);
    assert!(watch.observe(1, at(1_000), ms(1)).is_some());
    assert_eq!(watch.observe(1, at(1_001), ms(1)), None);
    assert_eq!(watch.cluster.jumps(1), 1);
}

/// The node may have read its clock at either end of the call.
#[test]
fn a_slow_reply_is_never_taken_for_a_jump() {
    for end_us in [0, 5_000_000] {
        let mut watch = Watch::new(3);
        let clock_us = watch.servers[0].clock_us(at(1_000)) + end_us;
        assert_eq!(watch.observe_clock(0, clock_us, at(1_000), at(6_000)), None);
        // Nor does it make the next fast reply look like a jump.
        assert_eq!(watch.observe(0, at(7_000), ms(1)), None);
    }
}

#[test]
fn a_jump_is_measured_against_the_narrowest_bounds() {
    let mut watch = Watch::new(3);
    assert_eq!(watch.observe(0, at(100), ms(90)), None);
    // Less than this reply alone would leave open, more than the handshake before it.
    watch.step(0, 40_000);
    jumped_by(watch.observe(0, at(200), ms(1)), 0, 40_000);
}

#[test]
fn a_step_within_the_drift_is_no_jump() {
    let mut watch = Watch::new(3);
    // One per cent of ten seconds, and the fixed two milliseconds.
    watch.step(0, 101_900);
    assert_eq!(watch.observe(0, at(10_000), Duration::ZERO), None);
    let mut watch = Watch::new(3);
    watch.step(0, 102_100);
    assert!(watch.observe(0, at(10_000), Duration::ZERO).is_some());
}

/// Each step is within the fixed part of the drift.
#[test]
fn many_small_steps_add_up_to_a_jump() {
    let mut watch = Watch::new(3);
    let found = (1..20).find(|ms| {
        watch.step(0, 1_000);
        watch.observe(0, at(*ms), Duration::ZERO).is_some()
    });
    assert_eq!(found, Some(3), "three milliseconds in three steps");
}

#[test]
fn a_majority_that_jumps_forward_alike_is_a_freeze_of_our_clock() {
    for (nodes, most) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
        let mut watch = Watch::new(nodes);
        let asked = at(900);
        for node in 0..nodes {
            watch.step(node, 20 * SECOND_US);
        }
        for node in 0..most - 1 {
            let now = at(1_000 + node as u64);
            jumped_by(watch.observe(node, now, ms(1)), node, 20 * SECOND_US);
            assert!(!watch.cluster.froze_since(asked));
            assert!(watch.jumped(now)[node], "its vote does not count meanwhile");
        }
        let now = at(1_500);
        let event = watch.observe(most - 1, now, ms(1));
        assert!(
            matches!(event, Some(ClockEvent::Froze { span }) if span > ms(19_900)),
            "{event:?}"
        );
        assert!(watch.cluster.froze_since(asked));
        assert!(!watch.cluster.froze_since(now + ms(1)));
        // No vote is lost, and no reply to an earlier request counts.
        let later = now + ms(1);
        assert_eq!(watch.jumped(later), vec![false; nodes]);
        assert_eq!(watch.discount(0, asked, later), Some(Vote::Outdated));
        for node in 0..nodes {
            assert_eq!(
                watch.observe(node, later + ms(5), ms(1)),
                None,
                "measured anew"
            );
            assert_eq!(watch.cluster.jumps(node), 0);
        }
    }
}

#[test]
fn a_majority_that_is_set_back_alike_loses_nothing() {
    let mut watch = Watch::new(3);
    for node in 0..3 {
        watch.step(node, -20 * SECOND_US);
    }
    assert!(watch.observe(0, at(1_000), ms(1)).is_some());
    let event = watch.observe(1, at(1_001), ms(1));
    assert!(
        matches!(event, Some(ClockEvent::RanAhead { .. })),
        "{event:?}"
    );
    assert_eq!(watch.jumped(at(1_002)), [false; 3]);
    assert!(!watch.cluster.froze_since(at(0)));
}

#[test]
fn jumps_of_different_sizes_or_directions_are_blamed_on_the_nodes() {
    for other_us in [10 * SECOND_US, -20 * SECOND_US] {
        let mut watch = Watch::new(3);
        watch.step(0, 20 * SECOND_US);
        watch.step(1, other_us);
        jumped_by(watch.observe(0, at(1_000), ms(1)), 0, 20 * SECOND_US);
        jumped_by(watch.observe(1, at(1_001), ms(1)), 1, other_us);
        assert_eq!(watch.jumped(at(1_002)), [true, true, false]);
    }
}

#[test]
fn jumps_at_different_times_are_blamed_on_the_nodes() {
    let mut watch = Watch::new(3);
    watch.step(0, 20 * SECOND_US);
    jumped_by(watch.observe(0, at(1_000), ms(1)), 0, 20 * SECOND_US);
    // The other clock did not jump after that.
    assert_eq!(watch.observe(1, at(2_000), ms(1)), None);
    watch.step(1, 20 * SECOND_US);
    jumped_by(watch.observe(1, at(3_000), ms(1)), 1, 20 * SECOND_US);
    assert_eq!(watch.jumped(at(3_000)), [true, true, false]);
}

/// The clock was read before the jump, and the reply arrived after the jump was known.
#[test]
fn a_reply_to_a_request_from_before_the_jump_proves_no_jump_back() {
    let mut watch = Watch::new(3);
    let before = watch.servers[0].clock_us(at(999));
    watch.step(0, 20 * SECOND_US);
    assert!(watch.observe(0, at(1_000), ms(1)).is_some());
    assert_eq!(watch.observe_clock(0, before, at(998), at(1_001)), None);
    assert_eq!(watch.cluster.jumps(0), 1);
}

#[test]
fn without_quarantine_a_jump_is_counted_and_costs_nothing() {
    let group = Group::new(3);
    let mut watch = Watch::new(3);
    watch.cluster = Cluster::new(&group, Drift::default(), &[false, true, true]);
    assert_eq!(watch.observe(0, at(0), ms(0)), None);
    watch.step(0, 20 * SECOND_US);
    assert!(watch.observe(0, at(1_000), ms(1)).is_some());
    assert_eq!(watch.cluster.jumps(0), 1);
    assert_eq!(watch.jumped(at(1_000)), [false; 3]);
}

#[test]
fn a_node_whose_leases_run_on_another_clock_never_jumps() {
    let mut watch = Watch::new(1);
    watch.cluster.leases_use_other_clock(0);
    watch.step(0, 3_600 * SECOND_US);
    assert_eq!(watch.observe(0, at(1_000), ms(1)), None);
    assert!(!watch.cluster.froze_since(at(0)));
}

#[test]
fn the_longer_of_quarantine_and_jump_is_reported() {
    let mut watch = Watch::new(3);
    watch.step(0, SECOND_US);
    let now = at(1_000);
    assert!(watch.observe(0, now, ms(1)).is_some());
    let clock_us = watch.servers[0].clock_us(now + ms(500));
    let newborn = Standing {
        incarnation: 2,
        born_us: clock_us,
        clock_us,
        server: 0,
        replicated: false,
        epoch: None,
    };
    let later = now + ms(500);
    let discount = watch.cluster.discount(0, newborn, later, later);
    assert_eq!(discount, Some(Vote::Quarantined { left: Q }));
}

#[test]
fn a_hostile_clock_causes_no_overflow() {
    let mut watch = Watch::new(3);
    for clock_us in [0, u64::MAX, 0, 1 << 63] {
        watch.observe_clock(0, clock_us, at(1), at(u64::MAX / 1_000_000));
        watch.observe_clock(0, clock_us, at(2), at(2));
    }
}

/// When a reply was requested, read and received, in microseconds after the previous one.
#[derive(Debug, Clone, Copy)]
struct Delays {
    idle_us: u64,
    there_us: u64,
    back_us: u64,
}

fn delays() -> impl Strategy<Value = Delays> {
    let idle = prop_oneof![0..2_000_u64, 0..30_000_000_u64];
    let way = || prop_oneof![0..500_u64, 0..2_000_000_u64];
    (idle, way(), way()).prop_map(|(idle_us, there_us, back_us)| Delays {
        idle_us,
        there_us,
        back_us,
    })
}

fn micros(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1_000)
}

proptest! {
    /// For any delays, as long as the clock rates stay within the drift. The rates change from
    /// reply to reply, and replies may overtake each other.
    #[test]
    fn a_clock_that_only_drifts_never_jumps(
        replies in prop::collection::vec((delays(), -9_900_i64..=9_900), 1..40),
        together in any::<bool>(),
    ) {
        let mut watch = Watch::new(1);
        let (mut ours_us, mut theirs_us) = (0_u64, START_US as i64 * 1_000);
        let mut read_us = 0_u64;
        let mut sent_us = 0_u64;
        for (delays, rate_ppm) in replies {
            // Either one after the other, or each sent before the previous reply arrives.
            sent_us = if together { sent_us + delays.idle_us } else { ours_us + delays.idle_us };
            let asked_us = sent_us.max(read_us) + delays.there_us;
            let passed = (asked_us - read_us) as i64;
            theirs_us += passed * 1_000 + passed * rate_ppm / 1_000;
            read_us = asked_us;
            let received_us = read_us + delays.back_us;
            ours_us = ours_us.max(received_us);
            let clock_us = (theirs_us / 1_000) as u64;
            let event = watch.observe_clock(0, clock_us, micros(sent_us), micros(received_us));
            prop_assert_eq!(event, None);
        }
    }

    /// Every step that is larger than the uncertainty is found at the next reply. The uncertainty
    /// is the duration of both calls, the drift in between, and the fixed part of the drift.
    #[test]
    fn a_step_larger_than_the_uncertainty_is_found(
        before in delays(),
        after in delays(),
        more_us in 10_i64..1_000_000_000,
        back in any::<bool>(),
    ) {
        let mut watch = Watch::new(3);
        let first = before.there_us + before.back_us;
        let second = after.there_us + after.back_us;
        let mut cluster = cluster_of(3);
        std::mem::swap(&mut watch.cluster, &mut cluster);
        let read = START_US + before.there_us;
        prop_assert_eq!(watch.observe_clock(0, read, micros(0), micros(first)), None);
        let sent = first + after.idle_us;
        let received = sent + second;
        let open_us = first + second + received / 100 + 2_000;
        let step_us = (open_us as i64 + more_us) * if back { -1 } else { 1 };
        let read = (START_US + sent + after.there_us).saturating_add_signed(step_us);
        let event = watch.observe_clock(0, read, micros(sent), micros(received));
        let Some(ClockEvent::Jumped { node: 0, by_us }) = event else {
            return Err(TestCaseError::fail(format!("{event:?}")));
        };
        prop_assert!(by_us.signum() == step_us.signum() && by_us.abs() <= step_us.abs());
    }

    /// However long our clock froze and whatever the delays were, an answering majority proves it.
    #[test]
    fn a_majority_proves_a_freeze_of_our_clock(
        waits in prop::collection::vec((0..3_000_u64, 0..400_u64), 5),
        stood_us in 1_000_000_i64..100_000_000_000,
    ) {
        let mut watch = Watch::new(5);
        let mut events = Vec::new();
        let mut order: Vec<usize> = (0..5).collect();
        order.sort_by_key(|&node| waits[node]);
        for &node in &order {
            watch.step(node, stood_us);
            let (wait, took) = waits[node];
            events.extend(watch.observe(node, at(1_000 + wait + took), ms(took)));
        }
        let stood = events.iter().filter(|e| matches!(e, ClockEvent::Froze { .. })).count();
        prop_assert_eq!(stood, 1, "{:?}", events);
        let later = at(20_000);
        prop_assert_eq!(watch.jumped(later), vec![false; 5]);
    }
}
