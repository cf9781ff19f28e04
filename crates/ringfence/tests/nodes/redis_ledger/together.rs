//! Operations that are sent in one batch, so that mostly one script executes them. In the ledger
//! each is one step, in the order of the clocks in the replies.

use super::bench::ends;
use super::*;

impl Bench {
    /// Executes all of `asks` in one batch on the server, and one after the other in the ledger.
    pub(super) fn compare_together(&mut self, asks: &[Ask]) -> Result<(), TestCaseError> {
        let mut entries: Vec<Entry> = self.settled(&NAMES);
        let requests: Vec<Request> = asks.iter().map(|ask| self.request(ask)).collect();
        let expiries: Vec<u64> = ends(&entries).collect();
        let before_us = self.clock_us();
        let replies = self.runtime.block_on(async {
            // All are sent before the first reply is awaited.
            let calls: Vec<_> = requests
                .iter()
                .map(|request| call(&self.node, request.clone()))
                .collect();
            let mut replies = Vec::new();
            for (call, request) in calls.into_iter().zip(&requests) {
                let reply = call.await;
                replies.push(reply.unwrap_or_else(|error| panic!("{request:?}: {error}")));
            }
            replies
        });
        if self.expired_meanwhile(&expiries, before_us) {
            return Ok(());
        }
        let slack_ms = LATE_MS + self.clock_us().saturating_sub(before_us) / 1000;
        let mut steps: Vec<(&Request, Reply)> = requests.iter().zip(replies).collect();
        // An unusual call of a bundle is executed later than the calls after it. The sort is
        // stable: the calls of one script have the same time, and no name twice.
        steps.sort_by_key(|(_, reply)| reply.stamp.map(|stamp| stamp.clock_us));
        self.count_bundles(&steps);
        let refused = |answer: &Answer| matches!(answer, Answer::Quarantined { .. } | Answer::Late);
        if steps.iter().any(|(_, reply)| refused(&reply.answer)) {
            *self.tally.entry("refused in a batch").or_default() += 1;
        }
        let mut wakes = Vec::new();
        for (request, reply) in &steps {
            wakes.extend(self.step(request, reply, &mut entries, slack_ms)?);
        }
        wakes.sort();
        prop_assert_eq!(self.published_wakes(), wakes, "{:?}", requests);
        for (name, expected) in NAMES.iter().zip(&entries) {
            let mut stored = self.stored(name);
            let now_ms = self.clock_us() / 1000;
            stored.queue.entries.retain(|t| t.until_ms >= now_ms);
            let mut expected = expected.clone();
            expected.queue.entries.retain(|t| t.until_ms >= now_ms);
            same_entry(&stored, &expected, slack_ms, now_ms)?;
        }
        Ok(())
    }

    /// Executes one operation in the ledger and compares it with the server's reply. Returns the
    /// wakes.
    fn step(
        &self,
        request: &Request,
        reply: &Reply,
        entries: &mut [Entry],
        slack_ms: u64,
    ) -> Result<Vec<(String, String)>, TestCaseError> {
        let indices: Vec<usize> = request.claims.iter().map(index_of).collect();
        let mut own: Vec<Entry> = indices
            .iter()
            .map(|index| entries[*index].clone())
            .collect();
        let clock_us = reply.stamp.map_or(0, |stamp| stamp.clock_us);
        let now = Moment::of_clock(clock_us);
        let outcome = ledger::apply(&self.rules, now, &mut own, request);
        prop_assert_eq!(reply.stamp, Some(outcome.stamp), "{:?}", request);
        prop_assert_eq!(
            comparable(reply.answer.clone(), false),
            comparable(outcome.answer.clone(), false),
            "{:?}",
            request
        );
        same_leases(&reply.answer, &outcome.answer, slack_ms)?;
        for (index, entry) in indices.into_iter().zip(own) {
            entries[index] = entry;
        }
        Ok(messages_of(&outcome.wakes))
    }

    fn count_bundles(&mut self, steps: &[(&Request, Reply)]) {
        let clocks: Vec<_> = steps.iter().map(|(_, reply)| reply.stamp).collect();
        let same = |pair: &[Option<_>]| {
            let clock =
                |stamp: &Option<ringfence_core::message::ReplyStamp>| stamp.map(|s| s.clock_us);
            clock(&pair[0]) == clock(&pair[1])
        };
        let together = clocks.windows(2).filter(|pair| same(pair)).count();
        for (what, seen) in [
            ("a bundle of two or more", together > 0),
            ("a bundle of three or more", together > 1),
            (
                "a bundle, and something beside it",
                together > 0 && together + 1 < steps.len(),
            ),
        ] {
            if seen {
                *self.tally.entry(what).or_default() += 1;
            }
        }
    }
}

fn index_of(claim: &ringfence_core::message::Claim) -> usize {
    let index = NAMES.iter().position(|name| *name == claim.name.as_str());
    index.expect("one of the names")
}

/// An operation: mostly a usual one that a bundle can execute, sometimes another.
fn any_what() -> impl Strategy<Value = What> + Clone {
    let release = (
        any::<bool>(),
        proptest::option::weighted(0.1, 200..2_000u64),
    )
        .prop_map(|(fate_unknown, keep_ms)| What::Release {
            kind: ReleaseKind::Final,
            fate_unknown,
            ticket: None,
            stays: false,
            keep_ms,
        });
    let undo = any::<bool>().prop_map(|fate_unknown| What::Release {
        kind: ReleaseKind::Undo,
        fate_unknown,
        ticket: None,
        stays: true,
        keep_ms: None,
    });
    let shown = (0..TICKETS.len(), Just(false));
    prop_oneof![
        12 => Just(What::Acquire(None)),
        12 => release,
        1 => undo,
        1 => shown.prop_map(|shown| What::Acquire(Some(shown))),
        8 => Just(What::Extend),
        1 => Just(What::Inspect),
    ]
}

/// An operation on the name with this index.
pub(super) fn any_ask_of(name: usize) -> impl Strategy<Value = Ask> {
    let near = || prop_oneof![Just(-1i64), Just(0), Just(1), -50_000..50_000i64];
    let far = || prop_oneof![-20_000..-5_000i64, 5_000..20_000i64];
    let pick = prop_oneof![
        6 => near().prop_map(Pick::Clock),
        1 => far().prop_map(Pick::ClockFloor),
        1 => far().prop_map(Pick::Ceiling),
        3 => near().prop_map(Pick::Floor),
        // The ballot of the name's own holder.
        8 => Just(Pick::Seat(name, 0)),
        2 => near().prop_map(move |by| Pick::Seat(name, by)),
    ];
    let ttl = prop_oneof![Just(500u64), Just(90_000u64), 500..2_000u64];
    (0..2u8, any_what(), pick, ttl).prop_map(move |(holder, what, ballot, ttl_ms)| Ask {
        holder,
        names: vec![name],
        what,
        ballot,
        ttl_ms,
        latest: None,
        delay_ms: 0,
    })
}

/// Operations in one batch, and changes that make usual operations unusual.
fn any_step_together() -> impl Strategy<Value = Step> {
    let distinct = Just((0..NAMES.len()).collect::<Vec<_>>())
        .prop_shuffle()
        .prop_flat_map(|names| names.into_iter().map(any_ask_of).collect::<Vec<_>>());
    let repeated = proptest::collection::vec((0..NAMES.len()).prop_flat_map(any_ask_of), 2..9);
    prop_oneof![
        10 => distinct.prop_map(Step::Together),
        5 => repeated.prop_map(Step::Together),
        1 => (0..NAMES.len(), proptest::option::of(0..2u8))
            .prop_map(|(name, value)| Step::Foreign { name, value, ttl_ms: Some(2_000) }),
        1 => (0..NAMES.len()).prop_map(|name| Step::Delete { name }),
        // Until the clock's floor has passed the fence.
        1 => (150..260u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

fn bundles_agree_with_the_ledger(flavor: Flavor) {
    let histories = proptest::collection::vec(any_step_together(), 1..20);
    let seen = [
        "a bundle of two or more",
        "a bundle of three or more",
        "a bundle, and something beside it",
    ];
    play(flavor, 200, &histories, &NAMES, Bench::take, &seen);
}

#[test]
fn redis_agrees_with_the_ledger_in_bundles() {
    bundles_agree_with_the_ledger(Flavor::Redis);
}

#[test]
fn valkey_agrees_with_the_ledger_in_bundles() {
    bundles_agree_with_the_ledger(Flavor::Valkey);
}
