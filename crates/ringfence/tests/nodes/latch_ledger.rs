//! Latches on Redis, Valkey and SQLite compared with the ledger: random arrivals, and waiters that
//! are woken. Answers, stamps, stored data and wakes must agree.

use std::sync::Arc;

use proptest::prelude::*;
use ringfence_core::message::{Arrive, Attend, Claim, Mode, Op, Request, Ticket};
use ringfence_core::name::Name;

use crate::nodes::support::token;

const PARTIES: [&str; 6] = ["a", "b", "drawn:c", "ü\n", "named:0", "%d"];
const TICKETS: usize = 5;

/// One operation on the latch `s`.
#[derive(Debug, Clone)]
enum Ask {
    Arrive {
        parties: Vec<&'static str>,
        /// An offset from the clock.
        since_by_us: Option<i64>,
        count: u64,
        ttl_ms: u64,
    },
    Attend {
        tickets: Vec<usize>,
        list: bool,
        ttl_ms: u64,
    },
    Inspect,
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let ttl = prop_oneof![2 => 20..60u64, 4 => 200..2_000u64, 1 => 50_000..90_000u64];
    let by = prop_oneof![
        4 => Just(0i64),
        3 => -100_000_000..0i64,
        1 => 100_000..300_000i64,
        1 => 10_000_000..20_000_000i64,
    ];
    let parties = prop_oneof![
        4 => proptest::sample::subsequence(PARTIES.to_vec(), 1),
        1 => proptest::sample::subsequence(PARTIES.to_vec(), 0..=PARTIES.len()),
    ];
    let since = proptest::option::weighted(0.6, by);
    let arrive =
        (parties, since, 1..5u64, ttl.clone()).prop_map(|(parties, since_by_us, count, ttl_ms)| {
            Ask::Arrive {
                parties,
                since_by_us,
                count,
                ttl_ms,
            }
        });
    let tickets = proptest::collection::vec(0..TICKETS, 0..4);
    let attend = (tickets, any::<bool>(), ttl).prop_map(|(tickets, list, ttl_ms)| Ask::Attend {
        tickets,
        list,
        ttl_ms,
    });
    prop_oneof![3 => arrive, 2 => attend, 2 => Just(Ask::Inspect)]
}

fn latch() -> Name {
    Name::new("", "s").unwrap().latch()
}

fn request(ask: &Ask, clock_us: u64, ticket: impl Fn(usize) -> Ticket) -> Request {
    let op = match ask {
        Ask::Arrive {
            parties,
            since_by_us,
            count,
            ttl_ms,
        } => Op::Arrive(Arrive {
            parties: parties.iter().map(|party| Arc::from(*party)).collect(),
            since_us: since_by_us.map(|by| clock_us.saturating_add_signed(by)),
            count: *count,
            ttl_ms: *ttl_ms,
        }),
        Ask::Attend {
            tickets,
            list,
            ttl_ms,
        } => Op::Attend(Attend {
            tickets: tickets.iter().map(|number| ticket(*number)).collect(),
            list: *list,
            ttl_ms: *ttl_ms,
        }),
        Ask::Inspect => Op::Inspect,
    };
    Request {
        claims: Arc::from([Claim {
            name: latch(),
            mode: Mode::Exclusive,
        }]),
        token: token(0),
        op,
    }
}

#[cfg(feature = "redis")]
mod servers {
    use proptest::test_runner::TestCaseError;
    use ringfence_testkit::Flavor;

    use super::*;
    use crate::nodes::redis_ledger::{Bench, play};

    fn take(bench: &mut Bench, (ask, wait_ms): &(Ask, u64)) -> Result<(), TestCaseError> {
        let until = bench.clock_us() + wait_ms * 1000;
        bench.wait_until(until);
        let mut entries = bench.settled(&[latch().as_str()]);
        let clock_us = bench.clock_us();
        let request = request(ask, clock_us, |ticket| bench.ticket((ticket, false)));
        bench.compare_request(&request, &mut entries)
    }

    fn lua_agrees_with_the_ledger(flavor: Flavor) {
        let wait = prop_oneof![6 => Just(0u64), 1 => 1..60u64];
        let histories = proptest::collection::vec((any_ask(), wait), 1..30);
        let seen = ["several arrived", "no latch", "ahead", "woke two"];
        play(flavor, 200, &histories, &[latch().as_str()], take, &seen);
    }

    #[test]
    fn redis_agrees_with_the_ledger_on_latches() {
        lua_agrees_with_the_ledger(Flavor::Redis);
    }

    #[test]
    fn valkey_agrees_with_the_ledger_on_latches() {
        lua_agrees_with_the_ledger(Flavor::Valkey);
    }
}

#[cfg(feature = "sqlite")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_agrees_with_the_ledger_on_latches(
        steps in prop::collection::vec(
            (any_ask(), prop_oneof![8 => 0u64..5, 3 => 0u64..2_000, 1 => 55_000u64..95_000]),
            1..40,
        )
    ) {
        let mut sqlite = crate::nodes::sqlite_ledger::Comparison::new();
        let ticket = |number| Ticket {
            since_us: 0,
            id: format!("c.{number}").into(),
            first: false,
            label: "waiter".into(),
        };
        for (ask, pass_ms) in steps {
            sqlite.pass(pass_ms);
            sqlite.step(&request(&ask, sqlite.now.clock_us, ticket))?;
        }
    }
}
