//! What must hold after any sequence of operations, while the clock only moves forward.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 2] = ["a", "b"];

/// One random step: time passes, then a client sends one request.
#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    who: u8,
    names: Vec<&'static str>,
    offset_us: i64,
    ttl_ms: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Acquire,
    Extend,
    Release,
    Undo,
    UndoOfUnknownFate,
    Restore,
    PlainAcquire,
    PlainExtend,
    PlainRelease,
    AcquireQueued,
    ReleaseQueued,
    Keep,
    Refresh,
}

impl Step {
    fn op(&self, node: &TestNode) -> Op {
        let ballot = node.ballot(self.offset_us);
        let ttl_ms = self.ttl_ms;
        match self.kind {
            Kind::Acquire => acquire_for(ballot, ttl_ms),
            Kind::Extend => extend(ballot, ttl_ms),
            Kind::Release => release(ballot),
            Kind::Keep => keep(ballot, ttl_ms),
            Kind::Undo => undo(ballot),
            Kind::UndoOfUnknownFate => undo_of_unknown_fate(ballot),
            Kind::Restore => restore(ballot),
            Kind::PlainAcquire => Op::PlainAcquire(PlainAcquire { ttl_ms }),
            Kind::PlainExtend => Op::PlainExtend(PlainExtend { ttl_ms }),
            Kind::PlainRelease => Op::PlainRelease,
            Kind::AcquireQueued => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label: Arc::from("job"),
                ticket: Some(self.ticket(node)),
                not_after_us: None,
            }),
            Kind::ReleaseQueued => release_op(
                ballot,
                ReleaseKind::Final,
                Some(&self.ticket(node)),
                ttl_ms.is_multiple_of(2),
            ),
            Kind::Refresh => Op::Refresh(Refresh {
                tickets: Arc::from([self.ticket(node)]),
            }),
        }
    }

    /// Each client has a few tickets, some of them old.
    fn ticket(&self, node: &TestNode) -> Ticket {
        let since_us = node.clock_us / 100_000_000 * 100_000_000;
        Ticket {
            since_us: since_us + self.ttl_ms % 3,
            id: Arc::from(format!("c.{}", self.who)),
            first: self.ttl_ms.is_multiple_of(5),
            label: Arc::from(format!("waiter {}", self.who)),
        }
    }

    /// Plain attempts use their own tokens.
    fn token_of(&self) -> u8 {
        match self.kind {
            Kind::PlainAcquire | Kind::PlainExtend | Kind::PlainRelease => self.who + 100,
            _ => self.who,
        }
    }

    fn lease_ms(&self) -> u64 {
        match self.kind {
            Kind::Restore => TTL_MS,
            _ => self.ttl_ms,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = prop_oneof![
        3 => Just(vec!["a"]),
        1 => Just(vec!["b"]),
        1 => Just(vec!["a", "b"]),
        1 => Just(vec!["b", "a"]),
    ];
    let offset = prop_oneof![
        4 => -20i64..20,
        1 => -5_000_002i64..-4_999_998,
        1 => 4_999_998i64..5_000_002,
        1 => -6_000_000i64..6_000_000,
    ];
    let pass = prop_oneof![6 => 0u64..3, 2 => 0u64..20_000, 1 => 60_000u64..70_000];
    let kind = prop_oneof![
        5 => Just(Kind::Acquire),
        2 => Just(Kind::Extend),
        2 => Just(Kind::Release),
        2 => Just(Kind::Keep),
        2 => Just(Kind::Undo),
        1 => Just(Kind::UndoOfUnknownFate),
        1 => Just(Kind::Restore),
        1 => Just(Kind::PlainAcquire),
        1 => Just(Kind::PlainExtend),
        1 => Just(Kind::PlainRelease),
        4 => Just(Kind::AcquireQueued),
        1 => Just(Kind::ReleaseQueued),
        1 => Just(Kind::Refresh),
    ];
    let ttl = prop_oneof![3 => 0u64..20, 1 => 0u64..100_000];
    let step = (pass, 1u8..4, names, offset, ttl, kind).prop_map(
        |(pass_ms, who, names, offset_us, ttl_ms, kind)| Step {
            pass_ms,
            who,
            names,
            offset_us,
            ttl_ms,
            kind,
        },
    );
    prop::collection::vec(step, 1..60)
}

/// What the answers imply for one name: which client may rely on the lock, and until when.
#[derive(Debug, Clone, Copy, Default)]
struct ClientView {
    holder: Option<(u8, u64)>,
    granted: Option<(u8, Ballot)>,
    floor: Ballot,
}

impl ClientView {
    fn granted(&mut self, who: u8, ballot: Ballot) {
        if let Some((holder, highest)) = self.granted {
            let again = holder == who && highest == ballot;
            assert!(again || ballot > highest, "{ballot:?} after {highest:?}");
        }
        self.granted = Some((who, ballot));
    }

    fn holds(&mut self, who: u8, now_ms: u64, until_ms: u64) {
        let mut until_ms = until_ms;
        if let Some((holder, until)) = self.holder.filter(|(_, until)| *until >= now_ms) {
            assert_eq!(holder, who, "two holders");
            until_ms = until_ms.max(until);
        }
        self.holder = Some((who, until_ms));
    }

    fn released(&mut self, who: u8) {
        self.holder = self.holder.filter(|(holder, _)| *holder != who);
    }
}

fn run(steps: &[Step]) {
    let mut node = TestNode::new();
    let mut client_view = [ClientView::default(); 2];
    for step in steps {
        node.pass_ms(step.pass_ms);
        let before = NAMES.map(|name| node.entry(name));
        let op = step.op(&node);
        let (answer, _) = node.ask_for(&step.names, step.token_of(), op);
        for name in &step.names {
            let i = usize::from(*name == "b");
            // A restored holder is granted its own ballot again. That is not a new grant.
            let seat = before[i].seat().map(|seat| seat.ballot);
            let again = seat == Some(node.ballot(step.offset_us));
            record_answer(&node, step, &answer, again, &mut client_view[i]);
        }
        for (i, name) in NAMES.into_iter().enumerate() {
            check_entry(&node, name, &before[i]);
            let floor = node.floor(name);
            assert!(floor >= client_view[i].floor, "the fence of {name} fell");
            client_view[i].floor = floor;
        }
    }
}

/// Records an answer as its client would.
fn record_answer(
    node: &TestNode,
    step: &Step,
    answer: &Answer,
    again: bool,
    client_view: &mut ClientView,
) {
    let now_ms = node.now().lease_ms;
    match (step.kind, answer) {
        (Kind::Acquire | Kind::AcquireQueued, Answer::Granted) => {
            if !again {
                client_view.granted(step.token_of(), node.ballot(step.offset_us));
            }
            client_view.holds(step.token_of(), now_ms, now_ms + step.lease_ms());
        }
        (_, Answer::Granted | Answer::Extended | Answer::Restored) => {
            client_view.holds(step.token_of(), now_ms, now_ms + step.lease_ms());
        }
        (Kind::PlainRelease, Answer::Released) => client_view.released(step.token_of()),
        (
            Kind::Release | Kind::Keep | Kind::Undo | Kind::UndoOfUnknownFate | Kind::ReleaseQueued,
            answer,
        ) if *answer != Answer::Newer => {
            client_view.released(step.token_of());
        }
        _ => {}
    }
}

fn check_entry(node: &TestNode, name: &str, before: &Entry) {
    let entry = node.entry(name);
    let ceiling = node.ballot(5_000_000);
    let tickets = &entry.queue.entries;
    let in_order = tickets
        .iter()
        .is_sorted_by_key(|ticket| (ticket.since_us, ticket.id.clone()));
    assert!(in_order, "{tickets:?}");
    if let Some(record) = &entry.record {
        let free_since_ms = record.free_since_ms;
        assert!(
            free_since_ms <= node.now().lease_ms,
            "free_since is in the future"
        );
        let old = before.record.as_ref().map(|record| record.free_since_ms);
        assert!(
            Some(free_since_ms) >= old || free_since_ms == 0,
            "free_since moved back"
        );
    }
    if let Some(key) = &entry.key {
        let until = key.until_ms.expect("our keys expire");
        if let Some(old) = before.key.as_ref().filter(|old| old.value == key.value) {
            let old_until = old.until_ms.expect("our keys expire");
            let lapsed = old_until < node.now().lease_ms;
            assert!(lapsed || until >= old_until, "a lease was shortened");
        }
    }
    if let Some(record) = &entry.record {
        let seat = record.seat.as_ref().map(|seat| seat.ballot);
        assert!(record.fence.max(record.closed) <= ceiling);
        assert!(
            seat.unwrap_or_default() <= record.fence,
            "the holder's ballot is above the fence"
        );
        if entry.seat().is_some() {
            let key_until = entry.key.as_ref().and_then(|key| key.until_ms);
            assert!(
                Some(record.until_ms) >= key_until,
                "the record expires before the key"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Fences only rise, two clients never hold a name at the same time, a grant is above every
    /// earlier grant, no lease is shortened, every key expires, nothing is stored above the
    /// ceiling.
    #[test]
    fn the_invariants_hold_over_any_sequence(steps in steps()) {
        run(&steps);
    }

    /// A refused acquire changes nothing, except that expired entries are dropped.
    #[test]
    fn a_refused_acquire_changes_nothing(steps in steps(), last in steps()) {
        let mut node = TestNode::new();
        for step in &steps {
            node.pass_ms(step.pass_ms);
            let op = step.op(&node);
            node.ask_for(&step.names, step.token_of(), op);
        }
        for step in &last {
            node.ask_for(&NAMES, step.who, Op::Inspect);
            let before = node.entries.clone();
            let op = acquire_for(node.ballot(step.offset_us), step.ttl_ms);
            let (answer, _) = node.ask_for(&step.names, step.token_of(), op);
            if answer == Answer::Granted {
                break;
            }
            prop_assert_eq!(&node.entries, &before, "{:?}", answer);
        }
    }
}
