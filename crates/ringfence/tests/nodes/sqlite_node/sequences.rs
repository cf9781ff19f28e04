//! The SQLite node compared with the ledger, in random sequences.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringfence_core::ledger::{self, Entry, Moment, Rules};
use ringfence_core::message::{Break, PlainAcquire};
use ringfence_core::name::Name;

use super::*;

/// One random step of the comparison with the ledger.
#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    request: Request,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ballot = prop_oneof![
        3 => (0u64..40).prop_map(|by| Ballot::new(WALL_US + by)),
        1 => (0u64..80_000_000).prop_map(|by| Ballot::new(WALL_US - 6_000_000 + by)),
    ];
    let ttl = prop_oneof![2 => 0u64..30, 1 => 0u64..100_000];
    let later = ticket(WALL_US + 1, "t.9");
    let ticket = (0u64..3, 0u64..4, any::<bool>()).prop_map(|(since, id, first)| Ticket {
        first,
        ..ticket(WALL_US + since, &format!("t.{id}"))
    });
    let release_kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let op = (0..17, ballot, ttl, ticket, release_kind, any::<bool>()).prop_map(
        move |(kind, ballot, ttl_ms, ticket, release_kind, stays)| match kind {
            0 | 1 => acquire(ballot, ttl_ms),
            2 => extend(ballot, ttl_ms),
            3 => release(ballot),
            4 => undo(ballot, false),
            5 => undo(ballot, true),
            6 => restore(ballot),
            7 => Op::PlainAcquire(PlainAcquire { ttl_ms }),
            8 => Op::PlainRelease,
            9..12 => acquire_with_ticket(ballot, ttl_ms, &ticket),
            12 => refresh(&[&ticket, &later]),
            13 => Op::Inspect,
            15.. => Op::Break(Break {
                ballot,
                up_to: Ballot::new(WALL_US + ttl_ms),
                foreign: stays,
                only: None,
                slot: None,
                by: "ops".into(),
                reason: "dead".into(),
                keep_ms: ttl_ms,
            }),
            _ => leave(ballot, release_kind, Some(&ticket), stays),
        },
    );
    let names = prop_oneof![Just(vec!["a"]), Just(vec!["b"]), Just(vec!["a", "b"])];
    let pass = prop_oneof![
        8 => 0u64..5, 3 => 0u64..2_000, 1 => 0u64..20_000, 1 => 55_000u64..65_000
    ];
    let step = (pass, 1u8..4, names, op).prop_map(|(pass_ms, client, names, op)| Step {
        pass_ms,
        request: request(&names, client, op),
    });
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_agrees_with_the_ledger(steps in steps()) {
        let machine = Machine::new();
        let node = machine.open(machine.clock());
        let listener = WakeListener::at(&node, "t");
        let rules = Rules::of_group(&Group::new(1));
        let mut model: BTreeMap<Name, Entry> = BTreeMap::new();
        let mut now = Moment { clock_us: WALL_US, lease_ms: 1_000_000 };
        for step in steps {
            machine.time.step(Duration::from_millis(step.pass_ms));
            now.clock_us += step.pass_ms * 1000;
            now.lease_ms += step.pass_ms;
            let names = || step.request.claims.iter().map(|claim| claim.name.clone());
            let load = |name| model.get(&name).cloned().unwrap_or_default();
            let mut entries: Vec<Entry> = names().map(load).collect();
            let outcome = ledger::apply(&rules, now, &mut entries, &step.request);
            model.extend(names().zip(entries));
            let reply = send(&node, step.request.clone(), NEVER).wait().unwrap();
            prop_assert_eq!(&reply.answer, &outcome.answer);
            if let Some(stamp) = reply.stamp {
                prop_assert_eq!(stamp, outcome.stamp);
            }
            // Wakes are delivered before the reply.
            prop_assert_eq!(listener.received(), outcome.wakes);
        }
    }
}
