//! A server that is the only node of its group and has a failover behind it: it grants nothing in
//! the quarantine after its birth, holders put their locks back, and an acquire that arrives too
//! late is not executed.

use super::together::any_ask_of;
use super::*;
use crate::nodes::redis_node::{call_until_answered, inspect};

const BORN_KEY: &str = "ringfence:born";
/// The field of the birth record that has the time from which the quarantine counts.
const BIRTH_FIELD: usize = 7;

impl Bench {
    /// A server that is the only node of its group, with a failover behind it.
    pub(crate) fn of_one_endpoint(flavor: Flavor) -> Self {
        let group = Group {
            failover: Failover::Quarantine,
            ..Group::new(1)
        };
        let mut bench = Self::of_group(flavor, group);
        bench.birth(-1);
        bench
    }

    /// The server has a birth whose quarantine ends in `left_ms`. The node learns of it as it
    /// learns of any birth: its next call is refused, and it repeats the handshake.
    pub(crate) fn birth(&mut self, left_ms: i64) {
        let text: String = self.connection.get(BORN_KEY).unwrap();
        let mut fields: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let ends_us = self.clock_us().saturating_add_signed(left_ms * 1000);
        let birth_us = ends_us - self.group.quarantine.as_micros() as u64;
        fields[BIRTH_FIELD] = birth_us.to_string();
        let _: () = self.connection.set(BORN_KEY, fields.join(" ")).unwrap();
        self.rules = Rules::of_incarnation(&self.group, birth_us, true);
        let asked = call_until_answered(&self.node, inspect(&[NAMES[0]]));
        let reply = self.runtime.block_on(asked);
        assert_eq!(reply.standing.born_us, birth_us);
    }
}

/// The end of a quarantine: long over, over for the server but not for the client, soon, or later.
pub(crate) fn any_birth() -> impl Strategy<Value = i64> {
    prop_oneof![2 => Just(-5_000i64), 2 => -900..0i64, 2 => 1..40i64, 4 => Just(20_000i64)]
}

/// The latest time of an acquire, in microseconds from the clock before it.
pub(crate) fn any_latest() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        5 => Just(None),
        1 => Just(Some(-1)),
        2 => (0..2_000i64).prop_map(Some),
        3 => Just(Some(1_000_000)),
    ]
}

/// An operation of a history with births: mostly an acquire, or the restore or extend of a holder,
/// under the ballot of another holder or one beside it.
fn any_ask_in_quarantine() -> impl Strategy<Value = Ask> {
    let names = prop_oneof![4 => Just(vec![0]), 1 => Just(vec![0, 1]), 1 => Just(vec![1])];
    let ticket = proptest::option::weighted(0.3, (0..TICKETS.len(), Just(false)));
    let what = prop_oneof![
        4 => ticket.prop_map(What::Acquire),
        6 => Just(What::Restore),
        1 => Just(What::Extend),
    ];
    let pick = prop_oneof![
        2 => Just(Pick::Clock(0)),
        3 => (0..2usize, -1..=1i64).prop_map(|(name, by)| Pick::Seat(name, by)),
    ];
    let ttl = prop_oneof![1 => 20..60u64, 4 => 500..2_000u64];
    (0..3u8, names, what, pick, ttl).prop_map(|(holder, names, what, ballot, ttl_ms)| Ask {
        holder,
        names,
        what,
        ballot,
        ttl_ms,
        latest: None,
        delay_ms: 0,
    })
}

fn with_latest(ask: impl Strategy<Value = Ask>) -> impl Strategy<Value = Ask> {
    (ask, any_latest()).prop_map(|(ask, latest)| Ask { latest, ..ask })
}

fn any_step_of_one_endpoint() -> impl Strategy<Value = Step> {
    let together = Just((0..NAMES.len()).collect::<Vec<_>>())
        .prop_shuffle()
        .prop_flat_map(|names| {
            let asks = names.into_iter().map(|name| with_latest(any_ask_of(name)));
            asks.collect::<Vec<_>>()
        });
    prop_oneof![
        12 => with_latest(any_ask_in_quarantine()).prop_map(Step::Ask),
        4 => with_latest(any_ask()).prop_map(Step::Ask),
        3 => together.prop_map(Step::Together),
        3 => any_birth().prop_map(|left_ms| Step::Birth { left_ms }),
        2 => (0..2usize, proptest::option::of(0..3u8))
            .prop_map(|(name, value)| Step::Foreign { name, value, ttl_ms: Some(500) }),
        1 => (0..2usize).prop_map(|name| Step::Delete { name }),
        1 => (1..60u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

fn lua_agrees_with_the_ledger_behind_a_failover(flavor: Flavor) {
    let histories = proptest::collection::vec(any_step_of_one_endpoint(), 1..30);
    let seen = [
        "granted",
        "quarantined",
        "late",
        "restored",
        "a holder replaced",
        "a bundle of two or more",
        "refused in a batch",
    ];
    let bench = Bench::of_one_endpoint(flavor);
    play_on(bench, 150, &histories, &NAMES, Bench::take, &seen);
}

#[test]
fn redis_agrees_with_the_ledger_behind_a_failover() {
    lua_agrees_with_the_ledger_behind_a_failover(Flavor::Redis);
}

#[test]
fn valkey_agrees_with_the_ledger_behind_a_failover() {
    lua_agrees_with_the_ledger_behind_a_failover(Flavor::Valkey);
}
