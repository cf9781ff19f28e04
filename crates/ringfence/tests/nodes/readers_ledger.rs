//! Readers and writers on Redis, Valkey and SQLite compared with the ledger: random operations, with and
//! without tickets. Answers, stamps, stored data and wakes must agree.

use std::sync::Arc;

use proptest::prelude::*;
use ringfence_core::message::{
    Acquire, Ballot, Break, Claim, Downgrade, Extend, Mode, Op, Refresh, Release, ReleaseKind,
    Request, Restore, Ticket,
};
use ringfence_core::name::Name;

use crate::nodes::support::token;

const NAMES: [&str; 2] = ["a", "b}{"];

/// One step: time passes, another program may change a key, then a client sends a request.
#[derive(Debug, Clone)]
struct Step {
    /// The server has a birth before the request, whose quarantine ends in so many milliseconds.
    birth_ms: Option<i64>,
    pass_ms: u64,
    interference: Option<Interference>,
    client: u8,
    claims: Vec<(usize, bool)>,
    what: u8,
    with_ticket: bool,
    stays: bool,
    offset_us: i64,
    ttl_ms: u64,
}

/// What another program does to the first name's key.
#[derive(Debug, Clone, Copy)]
enum Interference {
    Set,
    /// The value that marks a name as shared.
    SetMarker,
    Delete,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    steps_with(0u8..16, Just(None))
}

/// Steps on the only node of a group: births, and many acquires and restores.
fn steps_behind_a_failover() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![6 => Just(0u8), 6 => Just(11), 3 => 0u8..16];
    let left_ms = prop_oneof![3 => Just(-5_000i64), 1 => 1..40i64, 4 => Just(20_000i64)];
    let birth = prop_oneof![4 => Just(None), 1 => left_ms.prop_map(Some)];
    steps_with(what, birth)
}

fn steps_with(
    what: impl Strategy<Value = u8>,
    birth: impl Strategy<Value = Option<i64>>,
) -> impl Strategy<Value = Vec<Step>> {
    let claims = prop_oneof![
        5 => any::<bool>().prop_map(|shared| vec![(0, shared)]),
        1 => any::<bool>().prop_map(|shared| vec![(1, shared)]),
        2 => any::<(bool, bool)>().prop_map(|(one, other)| vec![(1, one), (0, other)]),
    ];
    let offset = prop_oneof![6 => -40i64..40, 1 => -20_000i64..20_000];
    let ttl = prop_oneof![2 => 20u64..60, 3 => 200u64..2_000];
    let pass = prop_oneof![8 => Just(0u64), 1 => 1u64..40];
    let interference = prop_oneof![
        30 => Just(None),
        1 => Just(Some(Interference::Set)),
        1 => Just(Some(Interference::SetMarker)),
        1 => Just(Some(Interference::Delete)),
    ];
    let how = (any::<bool>(), any::<bool>(), offset, ttl);
    let before = (birth, pass, interference);
    let step = (before, 1u8..5, claims, what, how).prop_map(
        |(before, client, claims, what, (with_ticket, stays, offset_us, ttl_ms))| {
            let (birth_ms, pass_ms, interference) = before;
            Step {
                birth_ms,
                pass_ms,
                interference,
                client,
                claims,
                what,
                with_ticket,
                stays,
                offset_us,
                ttl_ms,
            }
        },
    );
    proptest::collection::vec(step, 1..40)
}

impl Step {
    /// The request if the node's clock is `clock_us`; the history began at `base_us`.
    fn request(&self, clock_us: u64, base_us: u64) -> Request {
        let ballot = Ballot::new(clock_us.saturating_add_signed(self.offset_us));
        let ttl_ms = self.ttl_ms;
        let label: Arc<str> = format!("label of {}: with colons:\n{ttl_ms}", self.client).into();
        let ticket = Ticket {
            since_us: base_us + u64::from(self.client % 3),
            id: format!("c.{}", self.client).into(),
            first: false,
            label: format!("label of {}", self.client).into(),
        };
        let op = match self.what {
            0..=4 => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: self.with_ticket.then_some(ticket),
                not_after_us: None,
            }),
            5 => Op::Extend(Extend {
                ballot,
                ttl_ms,
                delay_ms: self.delay_ms(),
            }),
            6 | 7 => Op::Downgrade(Downgrade { ballot, ttl_ms }),
            8..=10 => Op::Release(Release {
                ballot,
                kind: [ReleaseKind::Final, ReleaseKind::Undo][usize::from(self.what == 9)],
                fate_unknown: self.offset_us % 4 == 0,
                ticket: self.with_ticket.then_some(ticket),
                stays: self.stays,
                keep_ms: None,
                delay_ms: self.delay_ms(),
            }),
            11 => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
            12 => Op::Refresh(Refresh {
                tickets: Arc::from([ticket]),
            }),
            13 => Op::Inspect,
            _ => Op::Break(self.breaking(ballot)),
        };
        let most = if self.what > 13 { 1 } else { 2 };
        let claims = self.claims.iter().take(most);
        let claims = claims.map(|&(name, shared)| Claim {
            name: Name::new("", NAMES[name]).unwrap(),
            mode: if shared {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
        });
        Request {
            claims: claims.collect(),
            token: token(self.client),
            op,
        }
    }

    /// The lock delay of a receipt: longer than any lease, or shorter than what is left of one.
    fn delay_ms(&self) -> u64 {
        match self.offset_us % 5 {
            0 => 100_000,
            1 => 1,
            _ => 0,
        }
    }

    /// Breaks some of the readers, the only one, or all of them.
    fn breaking(&self, ballot: Ballot) -> Break {
        Break {
            ballot,
            up_to: Ballot::new(ballot.get().saturating_sub(self.ttl_ms * 20)),
            foreign: self.stays,
            only: self.with_ticket.then(|| token(self.client).id().into()),
            slot: None,
            by: "ops".into(),
            reason: "dead".into(),
            keep_ms: 60_000,
        }
    }
}

#[cfg(feature = "redis")]
mod servers {
    use proptest::test_runner::TestCaseError;
    use redis::Commands;
    use ringfence_core::ledger;
    use ringfence_core::message::Answer;
    use ringfence_testkit::Flavor;

    use super::*;
    use crate::nodes::redis_ledger::{Bench, play, play_on, record_key};

    fn take(bench: &mut Bench, step: &Step) -> Result<(), TestCaseError> {
        let key = NAMES[0];
        match step.interference {
            Some(Interference::Set) => bench.connection.pset_ex(key, "another's", 30).unwrap(),
            Some(Interference::SetMarker) => {
                let _: () = bench.connection.pset_ex(key, ledger::SHARED, 30).unwrap();
            }
            Some(Interference::Delete) => bench.connection.del(key).unwrap(),
            None => {}
        }
        if let Some(left_ms) = step.birth_ms {
            bench.birth(left_ms);
        }
        let until = bench.clock_us() + step.pass_ms * 1000;
        bench.wait_until(until);
        let claimed = step.request(0, 0).claims;
        let names: Vec<&str> = claimed.iter().map(|claim| claim.name.as_str()).collect();
        let mut entries = bench.settled(&names);
        let request = step.request(bench.clock_us(), bench.began_us);
        bench.compare_request(&request, &mut entries)
    }

    fn lua_agrees_with_the_ledger(flavor: Flavor) {
        let seen = [
            "granted",
            "held behind others",
            "woke two",
            "told of a break",
        ];
        play(flavor, 150, &steps(), &NAMES, take, &seen);
    }

    #[test]
    fn redis_agrees_with_the_ledger_on_readers() {
        lua_agrees_with_the_ledger(Flavor::Redis);
    }

    #[test]
    fn valkey_agrees_with_the_ledger_on_readers() {
        lua_agrees_with_the_ledger(Flavor::Valkey);
    }

    fn lua_agrees_with_the_ledger_behind_a_failover(flavor: Flavor) {
        let seen = [
            "quarantined",
            "a writer in the place of readers",
            "a reader in the place of a writer",
            "a holder replaced",
        ];
        let bench = Bench::of_one_endpoint(flavor);
        play_on(bench, 150, &steps_behind_a_failover(), &NAMES, take, &seen);
    }

    #[test]
    fn redis_agrees_with_the_ledger_on_readers_behind_a_failover() {
        lua_agrees_with_the_ledger_behind_a_failover(Flavor::Redis);
    }

    #[test]
    fn valkey_agrees_with_the_ledger_on_readers_behind_a_failover() {
        lua_agrees_with_the_ledger_behind_a_failover(Flavor::Valkey);
    }

    /// Records that earlier versions wrote have no readers' fence.
    #[test]
    fn records_from_before_readers_can_be_read() {
        let mut bench = Bench::new(Flavor::Redis);
        let clock = bench.clock_us();
        for name in NAMES {
            let record = format!("2:{clock}:5:7:0");
            let _: () = bench
                .connection
                .pset_ex(record_key(name), record, 60_000)
                .unwrap();
            let mut request = Request {
                claims: Arc::from([Claim {
                    name: Name::new("", name).unwrap(),
                    mode: Mode::Shared,
                }]),
                token: token(9),
                op: Op::Inspect,
            };
            let floor = bench.ask(&request).stamp.unwrap().floor;
            assert_eq!(floor, Ballot::new(clock));
            request.op = Op::Acquire(Acquire {
                ballot: Ballot::new(clock + 1),
                ttl_ms: 1_000,
                label: "job".into(),
                ticket: None,
                not_after_us: None,
            });
            assert_eq!(bench.ask(&request).answer, Answer::Granted);
            let stored = bench.stored(name).record.unwrap();
            let ballots = (stored.fence, stored.closed, stored.read_fence);
            let expected = [clock, 5, clock + 1].map(Ballot::new);
            assert_eq!(ballots, expected.into());
        }
    }
}

#[cfg(feature = "sqlite")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_agrees_with_the_ledger_on_readers(steps in steps()) {
        let mut sqlite = crate::nodes::sqlite_ledger::Comparison::new();
        let began_us = sqlite.now.clock_us;
        for step in steps {
            sqlite.pass(step.pass_ms);
            sqlite.step(&step.request(sqlite.now.clock_us, began_us))?;
        }
    }
}
