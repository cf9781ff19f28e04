//! The steps of a random history.

use super::*;

/// One step of a history.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An operation by one of three holders.
    Ask(Ask),
    /// Several operations in one batch.
    Together(Vec<Ask>),
    /// Another program sets the key, with or without an expiry, to its own value or to one of our
    /// tokens.
    Foreign {
        name: usize,
        value: Option<u8>,
        ttl_ms: Option<u64>,
    },
    /// Another program deletes the key.
    Delete { name: usize },
    /// The record expires soon, as after a long time without a write.
    Lapse { name: usize, ms: u64 },
    /// A ticket ends in `ms`, as if it was refreshed long ago.
    Age { name: usize, ticket: usize, ms: u64 },
    /// The keys of the queue end `ms` after its last ticket, as after a long time without a new
    /// ticket.
    Fade { name: usize, ms: u64 },
    /// Time passes.
    Wait { ms: u64 },
    /// The server has a birth, and grants nothing for so many more milliseconds; if negative, its
    /// quarantine ended so long ago.
    Birth { left_ms: i64 },
}

/// An operation.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) holder: u8,
    pub(super) names: Vec<usize>,
    pub(super) what: What,
    pub(super) ballot: Pick,
    pub(super) ttl_ms: u64,
    /// Of an acquire: the latest time at which it may be executed, in microseconds from the clock
    /// before it.
    pub(super) latest: Option<i64>,
    /// Of an extend or release: the lock delay of a receipt, in milliseconds.
    pub(super) delay_ms: u64,
}

impl Ask {
    /// The names of the operation; a plain operation or a break has only the first.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let plain = matches!(
            self.what,
            What::PlainAcquire | What::PlainExtend | What::PlainRelease | What::Break(..)
        );
        let most = if plain { 1 } else { self.names.len() };
        let names = self.names.iter().take(most).map(|name| NAMES[*name]);
        names.collect()
    }
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Acquire(Option<Shown>),
    Extend,
    Release {
        kind: ReleaseKind,
        fate_unknown: bool,
        ticket: Option<Shown>,
        stays: bool,
        keep_ms: Option<u64>,
    },
    Restore,
    /// How far the broken ballot is from the holder's; whether foreign holders are meant; whose
    /// hold is meant only; how long it is remembered.
    Break(i64, bool, Option<u8>, u64),
    Refresh(Vec<Shown>),
    Inspect,
    PlainAcquire,
    PlainExtend,
    PlainRelease,
}

/// The index of a ticket, and whether it is shown as a new one.
pub(crate) type Shown = (usize, bool);

/// How a ballot is chosen: an offset from a value that is known when the step is executed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pick {
    Clock(i64),
    ClockFloor(i64),
    Ceiling(i64),
    Floor(i64),
    Seat(usize, i64),
}

/// An operation of any kind.
pub(super) fn any_ask() -> impl Strategy<Value = Ask> {
    let names = prop_oneof![
        4 => Just(vec![0]),
        4 => (0..NAMES.len()).prop_map(|name| vec![name]),
        2 => proptest::sample::subsequence((0..NAMES.len()).collect::<Vec<_>>(), 2..=3).prop_shuffle(),
    ];
    let kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let shown = (0..TICKETS.len(), any::<bool>());
    let ticket = proptest::option::weighted(0.7, shown.clone());
    let keep = proptest::option::weighted(0.3, prop_oneof![Just(0), 20..60u64, 200..90_000u64]);
    let release = (kind, any::<bool>(), ticket.clone(), any::<bool>(), keep);
    let what = prop_oneof![
        8 => ticket.prop_map(What::Acquire),
        3 => Just(What::Extend),
        6 => release.prop_map(|(kind, fate_unknown, ticket, stays, keep_ms)| What::Release {
            kind, fate_unknown, ticket, stays, keep_ms,
        }),
        3 => Just(What::Restore),
        3 => proptest::collection::vec(shown, 0..6).prop_map(What::Refresh),
        2 => (-1..=1i64, any::<bool>(), proptest::option::weighted(0.2, 0..3u8), 20..90_000u64)
            .prop_map(|(by, foreign, only, keep)| What::Break(by, foreign, only, keep)),
        2 => Just(What::Inspect),
        1 => Just(What::PlainAcquire),
        1 => Just(What::PlainExtend),
        1 => Just(What::PlainRelease),
    ];
    let near = prop_oneof![Just(-1i64), Just(0), Just(1), -50_000..50_000i64];
    let far = prop_oneof![-20_000..-5_000i64, 5_000..20_000i64];
    let pick = prop_oneof![
        6 => near.clone().prop_map(Pick::Clock),
        1 => far.clone().prop_map(Pick::ClockFloor),
        1 => far.prop_map(Pick::Ceiling),
        3 => near.clone().prop_map(Pick::Floor),
        4 => ((0..NAMES.len()), near).prop_map(|(name, by)| Pick::Seat(name, by)),
    ];
    let ask = (0..3u8, names, what, pick, any_ttl(), any_delay());
    ask.prop_map(|(holder, names, what, ballot, ttl_ms, delay_ms)| Ask {
        holder,
        names,
        what,
        ballot,
        ttl_ms,
        latest: None,
        delay_ms,
    })
}

/// The lock delay of a receipt; mostly none.
pub(crate) fn any_delay() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0u64), 1 => 1..60u64, 1 => 100..3_000u64]
}

fn any_ttl() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 20..60u64, 4 => 200..2_000u64, 1 => 50_000..90_000u64]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => any_ask().prop_map(Step::Ask),
        1 => (0..NAMES.len(), proptest::option::of(0..3u8), proptest::option::of(any_ttl()))
            .prop_map(|(name, value, ttl_ms)| Step::Foreign { name, value, ttl_ms }),
        1 => (0..NAMES.len()).prop_map(|name| Step::Delete { name }),
        1 => (0..NAMES.len(), 1..60u64).prop_map(|(name, ms)| Step::Lapse { name, ms }),
        2 => (0..NAMES.len(), 0..TICKETS.len(), 1..60u64)
            .prop_map(|(name, ticket, ms)| Step::Age { name, ticket, ms }),
        1 => (0..NAMES.len(), 1..60u64).prop_map(|(name, ms)| Step::Fade { name, ms }),
        3 => (1..60u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// A step in which clients wait for two names and little else happens, so that the queue decides.
pub(super) fn any_step_with_queue() -> impl Strategy<Value = Step> {
    let names = prop_oneof![4 => Just(vec![0]), 2 => Just(vec![0, 1]), 1 => Just(vec![1])];
    let shown = (0..TICKETS.len(), Just(false));
    let ticket = proptest::option::weighted(0.9, shown.clone());
    let kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let keep = proptest::option::weighted(0.3, 20..60u64);
    let release = (kind, ticket.clone(), any::<bool>(), keep);
    let what = prop_oneof![
        4 => ticket.prop_map(What::Acquire),
        3 => release.prop_map(|(kind, ticket, stays, keep_ms)| What::Release {
            kind, ticket, stays, keep_ms, fate_unknown: false,
        }),
        1 => proptest::collection::vec(shown, 1..4).prop_map(What::Refresh),
        1 => Just(What::Inspect),
    ];
    let ttl = prop_oneof![Just(20u64), Just(500u64)];
    let ask = (0..2u8, names, what, ttl).prop_map(|(holder, names, what, ttl_ms)| {
        Step::Ask(Ask {
            holder,
            names,
            what,
            ballot: Pick::Clock(0),
            ttl_ms,
            latest: None,
            delay_ms: 0,
        })
    });
    prop_oneof![
        12 => ask,
        2 => (0..2usize, 0..TICKETS.len(), 1..60u64)
            .prop_map(|(name, ticket, ms)| Step::Age { name, ticket, ms }),
        1 => (0..2usize, 1..60u64).prop_map(|(name, ms)| Step::Fade { name, ms }),
        1 => (0..2usize).prop_map(|name| Step::Foreign { name, value: None, ttl_ms: Some(20) }),
        1 => (0..2usize).prop_map(|name| Step::Delete { name }),
        2 => (20..60u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// A step of clients that wait for one name, each with its own ticket, hold it and hand it over.
pub(super) fn any_step_of_a_hand_over() -> impl Strategy<Value = Step> {
    // Tickets that are young enough to be new.
    const OWN: [usize; 4] = [0, 1, 4, 5];
    #[derive(Debug, Clone, Copy)]
    enum Action {
        Acquire { first: bool },
        Release,
        // An attempt that is repeated later.
        Undo,
        // Also by a client that holds, as a late refresh.
        Refresh,
    }
    let acquire = any::<bool>().prop_map(|first| (Action::Acquire { first }, Pick::Clock(0)));
    let release = (0..2i64).prop_map(|above| (Action::Release, Pick::Seat(0, above)));
    let undo = (0..2i64).prop_map(|above| (Action::Undo, Pick::Seat(0, above)));
    let refresh = Just((Action::Refresh, Pick::Clock(0)));
    let what = prop_oneof![6 => acquire, 8 => release, 2 => undo, 2 => refresh];
    // Often the same client, which then action several things in a row.
    let client = prop_oneof![3 => 0..OWN.len(), 2 => Just(0)];
    let ask = (client, what, any::<bool>()).prop_map(|(client, (action, ballot), shown)| {
        let ticket = |first| Some((OWN[client], first));
        let what = match action {
            Action::Acquire { first } => What::Acquire(ticket(first)),
            Action::Release => What::Release {
                kind: ReleaseKind::Final,
                fate_unknown: false,
                ticket: ticket(false).filter(|_| shown),
                stays: false,
                keep_ms: None,
            },
            Action::Refresh => What::Refresh(vec![(OWN[client], false)]),
            Action::Undo => What::Release {
                kind: ReleaseKind::Undo,
                fate_unknown: !shown,
                ticket: ticket(false),
                stays: true,
                keep_ms: None,
            },
        };
        Step::Ask(Ask {
            holder: client as u8,
            names: vec![0],
            what,
            ballot,
            ttl_ms: 500,
            latest: None,
            delay_ms: 0,
        })
    });
    prop_oneof![
        30 => ask,
        1 => (0..TICKETS.len(), 1..20u64)
            .prop_map(|(ticket, ms)| Step::Age { name: 0, ticket, ms }),
        1 => (1..20u64).prop_map(|ms| Step::Fade { name: 0, ms }),
        1 => Just(Step::Foreign { name: 0, value: Some(1), ttl_ms: Some(200) }),
        2 => (1..20u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// A step in which holders of one name lose it to an operator, and ask for it afterwards.
pub(super) fn any_step_of_a_break() -> impl Strategy<Value = Step> {
    let only = proptest::option::weighted(0.2, 0..2u8);
    let broken = (any::<bool>(), only, prop_oneof![Just(20u64), Just(60_000)])
        .prop_map(|(foreign, only, keep_ms)| What::Break(0, foreign, only, keep_ms));
    let what = prop_oneof![
        3 => Just(What::Acquire(None)),
        2 => broken,
        2 => Just(What::Extend),
        2 => Just(What::Restore),
        1 => Just(What::Inspect),
    ];
    let ballot = prop_oneof![4 => Just(Pick::Clock(0)), 1 => Just(Pick::Seat(0, 0))];
    let ask = (0..2u8, what, ballot).prop_map(|(holder, what, ballot)| {
        Step::Ask(Ask {
            holder,
            names: vec![0],
            what,
            ballot,
            ttl_ms: 500,
            latest: None,
            delay_ms: 0,
        })
    });
    prop_oneof![12 => ask, 1 => (1..30u64).prop_map(|ms| Step::Wait { ms })]
}
