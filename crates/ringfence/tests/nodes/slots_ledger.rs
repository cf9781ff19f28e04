//! Semaphores on Redis, Valkey and SQLite compared with the ledger: random operations on slots by
//! clients that disagree on the number of permits. Answers, stamps, stored data and wakes must
//! agree.

use std::sync::Arc;

use proptest::prelude::*;
use ringfence_core::message::{
    Acquire, AcquireSlot, Ballot, Break, Claim, Extend, Mode, Op, RefreshSlots, Release,
    ReleaseKind, ReleaseSlot, Request, Restore, Slots, Ticket,
};
use ringfence_core::name::Name;

use crate::nodes::support::token;

/// The number of permits; some clients assume fewer.
const SLOTS: u32 = 3;
const TICKETS: usize = 5;

/// One operation on the semaphore `s`.
#[derive(Debug, Clone)]
struct Ask {
    holder: u8,
    /// The number of permits that the client assumes.
    size: u32,
    what: What,
    /// An offset from the clock, or from the ballot of the holder of a slot.
    ballot_by: (Option<u32>, i64),
    ttl_ms: u64,
    /// Of an acquire: the latest time at which it may be executed.
    not_after_us: Option<u64>,
    /// Of an extend or release: the lock delay of a receipt.
    delay_ms: u64,
}

#[derive(Debug, Clone)]
enum What {
    Acquire(Option<u32>, Option<(usize, bool)>),
    Release {
        slots: Slots,
        kind: ReleaseKind,
        fate_unknown: bool,
        ticket: Option<usize>,
        stays: bool,
    },
    Refresh(Vec<usize>),
    Extend(u32),
    Restore(u32),
    /// The slot, and how far the broken ballot is below the new one.
    Break(u32, u64),
    Inspect,
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let slot = 0..SLOTS;
    let ticket = proptest::option::weighted(0.6, 0..TICKETS);
    let slots = prop_oneof![
        3 => Just(Slots::All),
        3 => slot.clone().prop_map(Slots::Only),
        1 => slot.clone().prop_map(Slots::AllBut),
    ];
    let kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let release = (slots, kind, any::<bool>(), ticket, any::<bool>()).prop_map(
        |(slots, kind, fate_unknown, ticket, stays)| What::Release {
            slots,
            kind,
            fate_unknown: fate_unknown && stays,
            ticket,
            stays,
        },
    );
    let shown = proptest::option::weighted(0.6, (0..TICKETS, any::<bool>()));
    let what = prop_oneof![
        8 => (proptest::option::weighted(0.4, slot.clone()), shown)
            .prop_map(|(slot, shown)| What::Acquire(slot, shown)),
        6 => release,
        2 => proptest::collection::vec(0..TICKETS, 0..5).prop_map(What::Refresh),
        2 => slot.clone().prop_map(What::Extend),
        2 => slot.clone().prop_map(What::Restore),
        2 => (slot.clone(), prop_oneof![Just(0u64), Just(1), Just(100_000)])
            .prop_map(|(slot, below)| What::Break(slot, below)),
        1 => Just(What::Inspect),
    ];
    let by = prop_oneof![4 => Just(0i64), 2 => Just(1), 1 => Just(-1), 1 => -250_000..250_000i64];
    let ballot_by = (proptest::option::weighted(0.3, slot), by);
    let size = prop_oneof![4 => Just(SLOTS), 2 => Just(SLOTS - 1), 2 => Just(1)];
    let delay_ms = prop_oneof![4 => Just(0u64), 1 => 1..60u64, 1 => 100..3_000u64];
    let ttl_ms = prop_oneof![2 => 20..60u64, 4 => 200..2_000u64, 1 => 50_000..90_000u64];
    let ask = (0..4u8, size, what, ballot_by, ttl_ms, delay_ms);
    ask.prop_map(|(holder, size, what, ballot_by, ttl_ms, delay_ms)| Ask {
        holder,
        size,
        what,
        ballot_by,
        ttl_ms,
        not_after_us: None,
        delay_ms,
    })
}

/// The admission record, then the slots.
fn parts(size: u32) -> Vec<Name> {
    let name = Name::new("", "s").unwrap();
    let slots = (0..size).map(|slot| name.slot(slot));
    std::iter::once(name.admission()).chain(slots).collect()
}

fn request(ask: &Ask, ballot: Ballot, ticket: impl Fn((usize, bool)) -> Ticket) -> Request {
    let label: Arc<str> = format!("label of {}: with colons", ask.holder).into();
    let (ttl_ms, delay_ms) = (ask.ttl_ms, ask.delay_ms);
    let known = |number: usize| ticket((number, false));
    let mut names = parts(ask.size);
    let mut only = |slot: u32| names = vec![names[(slot % ask.size) as usize + 1].clone()];
    let op = match &ask.what {
        What::Acquire(slot, shown) => Op::AcquireSlot(AcquireSlot {
            slot: slot.map(|slot| slot % ask.size),
            acquire: Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: shown.map(&ticket),
                not_after_us: ask.not_after_us,
            },
        }),
        What::Release {
            slots,
            kind,
            fate_unknown,
            ticket,
            stays,
        } => Op::ReleaseSlot(ReleaseSlot {
            slots: *slots,
            release: Release {
                ballot,
                kind: *kind,
                fate_unknown: *fate_unknown,
                ticket: ticket.map(known),
                stays: *stays,
                keep_ms: None,
                delay_ms,
            },
        }),
        What::Refresh(tickets) => Op::RefreshSlots(RefreshSlots {
            tickets: tickets.iter().copied().map(known).collect(),
        }),
        What::Extend(slot) => {
            only(*slot);
            let extend = Extend {
                ballot,
                ttl_ms,
                delay_ms,
            };
            Op::Extend(extend)
        }
        What::Restore(slot) => {
            only(*slot);
            Op::Restore(restore(ballot, ttl_ms, label))
        }
        What::Break(slot, below) => break_slot(*slot, ballot, *below, ttl_ms.is_multiple_of(2)),
        What::Inspect => Op::Inspect,
    };
    let mode = Mode::Exclusive;
    let claims = names.into_iter().map(|name| Claim { name, mode });
    let (claims, token) = (claims.collect(), token(ask.holder));
    Request { claims, token, op }
}

fn restore(ballot: Ballot, ttl_ms: u64, label: Arc<str>) -> Restore {
    Restore {
        ballot,
        ttl_ms,
        label,
    }
}

fn break_slot(slot: u32, ballot: Ballot, below: u64, foreign: bool) -> Op {
    Op::Break(Break {
        ballot,
        up_to: Ballot::new(ballot.get().saturating_sub(below)),
        foreign,
        only: None,
        slot: Some(slot),
        by: "ops".into(),
        reason: "dead".into(),
        keep_ms: 60_000,
    })
}

#[cfg(feature = "redis")]
mod servers {
    use proptest::test_runner::TestCaseError;
    use redis::Commands;
    use ringfence_testkit::Flavor;

    use super::*;
    use crate::nodes::redis_ledger::{Bench, any_birth, any_latest, play, play_on};

    #[derive(Debug, Clone)]
    enum Step {
        /// An operation, and the latest time of an acquire, in microseconds from the clock before it.
        Ask(Ask, Option<i64>),
        /// Another program deletes the key of a slot, or sets it.
        Delete(u32),
        Foreign(u32),
        /// A ticket ends in so many milliseconds, as if it was refreshed long ago.
        Age(usize, u64),
        Wait(u64),
        /// The server has a birth, and its quarantine ends in so many milliseconds.
        Birth(i64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            16 => any_ask().prop_map(|ask| Step::Ask(ask, None)),
            1 => (0..SLOTS).prop_map(Step::Delete),
            1 => (0..SLOTS).prop_map(Step::Foreign),
            2 => (0..TICKETS, 1..60u64).prop_map(|(ticket, ms)| Step::Age(ticket, ms)),
            2 => (1..60u64).prop_map(Step::Wait),
        ]
    }

    fn take(bench: &mut Bench, step: &Step) -> Result<(), TestCaseError> {
        let names = parts(SLOTS);
        let key = |slot: u32| names[slot as usize + 1].as_str();
        match step {
            Step::Ask(ask, latest) => {
                let names: Vec<&str> = names.iter().map(Name::as_str).collect();
                // All slots, so that none of them is about to expire.
                bench.settled(&names);
                let (slot, by) = ask.ballot_by;
                let seat = slot.and_then(|slot| bench.stored(key(slot)).record?.seat);
                let clock = bench.clock_us();
                let base = seat.map_or(clock, |seat| seat.ballot.get());
                let ballot = Ballot::new(base.saturating_add_signed(by));
                let ask = &Ask {
                    not_after_us: latest.map(|by| clock.saturating_add_signed(by)),
                    ..ask.clone()
                };
                let request = request(ask, ballot, |shown| bench.ticket(shown));
                let claimed: Vec<&str> = request.claims.iter().map(|c| c.name.as_str()).collect();
                let mut entries = bench.settled(&claimed);
                return bench.compare_request(&request, &mut entries);
            }
            Step::Delete(slot) => bench.connection.del(key(*slot)).unwrap(),
            Step::Foreign(slot) => {
                let _: () = bench
                    .connection
                    .pset_ex(key(*slot), "foreign", 300)
                    .unwrap();
            }
            Step::Age(ticket, ms) => bench.age(names[0].as_str(), *ticket, *ms),
            Step::Wait(ms) => {
                let until = bench.clock_us() + ms * 1000;
                bench.wait_until(until);
            }
            Step::Birth(left_ms) => bench.birth(*left_ms),
        }
        Ok(())
    }

    fn lua_agrees_with_the_ledger(flavor: Flavor) {
        let histories = proptest::collection::vec(any_step(), 1..50);
        let names = parts(SLOTS);
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        let seen = [
            "granted",
            "granted past others",
            "held behind others",
            "behind for as long as they wait",
            "behind for a while",
            "ticket too old",
            "turns",
            "woke two",
            "woke for a slot",
            "broke a hold",
            "told of a break",
        ];
        play(flavor, 200, &histories, &names, take, &seen);
    }

    #[test]
    fn redis_agrees_with_the_ledger_on_slots() {
        lua_agrees_with_the_ledger(Flavor::Redis);
    }

    #[test]
    fn valkey_agrees_with_the_ledger_on_slots() {
        lua_agrees_with_the_ledger(Flavor::Valkey);
    }

    /// Random histories seldom ask for a slot in a quarantine.
    #[test]
    fn no_slot_is_granted_in_the_quarantine() {
        let mut bench = Bench::of_one_endpoint(Flavor::Redis);
        bench.began_us = bench.clock_us();
        bench.birth(20_000);
        let ask = Ask {
            holder: 0,
            size: SLOTS,
            what: What::Acquire(None, None),
            ballot_by: (None, 0),
            ttl_ms: 2_000,
            not_after_us: None,
            delay_ms: 0,
        };
        take(&mut bench, &Step::Ask(ask, None)).unwrap();
        assert!(bench.tally.contains_key("quarantined"), "{:?}", bench.tally);
    }

    fn lua_agrees_with_the_ledger_behind_a_failover(flavor: Flavor) {
        let step = prop_oneof![
            6 => any_step(),
            6 => (any_ask(), any_latest()).prop_map(|(ask, latest)| Step::Ask(ask, latest)),
            1 => any_birth().prop_map(Step::Birth),
        ];
        let histories = proptest::collection::vec(step, 1..30);
        let names = parts(SLOTS);
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        let seen = ["granted", "quarantined", "late", "restored"];
        let bench = Bench::of_one_endpoint(flavor);
        play_on(bench, 80, &histories, &names, take, &seen);
    }

    #[test]
    fn redis_agrees_with_the_ledger_on_slots_behind_a_failover() {
        lua_agrees_with_the_ledger_behind_a_failover(Flavor::Redis);
    }

    #[test]
    fn valkey_agrees_with_the_ledger_on_slots_behind_a_failover() {
        lua_agrees_with_the_ledger_behind_a_failover(Flavor::Valkey);
    }
}

#[cfg(feature = "sqlite")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_agrees_with_the_ledger_on_slots(
        steps in prop::collection::vec(
            (
                any_ask(),
                prop_oneof![
                    8 => 0u64..5, 3 => 0u64..2_000, 1 => 0u64..20_000, 1 => 55_000u64..65_000
                ],
            ),
            1..40,
        )
    ) {
        let mut sqlite = crate::nodes::sqlite_ledger::Comparison::new();
        let ticket = |(ticket, first): (usize, bool)| Ticket {
            since_us: crate::nodes::sqlite_ledger::WALL_US + ticket as u64,
            id: format!("c.{ticket}").into(),
            first,
            label: format!("label of {ticket}").into(),
        };
        for (ask, pass_ms) in steps {
            sqlite.pass(pass_ms);
            let (slot, by) = ask.ballot_by;
            let seat = slot.and_then(|slot| {
                let entry = sqlite.entry(&parts(SLOTS)[slot as usize + 1]);
                entry.record?.seat
            });
            let base = seat.map_or(sqlite.now.clock_us, |seat| seat.ballot.get());
            let ballot = Ballot::new(base.saturating_add_signed(by));
            sqlite.step(&request(&ask, ballot, ticket))?;
        }
    }
}
