//! One client: the product's own machines ([`Acquisition`], [`Attempt`], [`Hold`], [`Cluster`]),
//! and the little that a driver does between them. Every rule is theirs. The `ringfence` crate does
//! the same in `runtime/`.
//!
//! A client does not know which one it is. It names its tokens by the number of the attempt, and
//! the nodes are told other names ([`Setting::token_of`]).

use std::sync::Arc;

use ringfence_core::message::{Answer, Ballot, Kind, ReleaseKind, Request};
use ringfence_core::protocol::{
    Acquisition, Attempt, AttemptVerdict, ClockReading, Cluster, ExtensionVerdict, FinalRelease,
    GrantId, Hold, HoldAction, HoldEvent, Line, Next, PendingRelease, ReleaseRequests,
    RoundMachine, Vote,
};
use ringfence_core::time::Timestamp;

use super::message::{Content, Message, Tag};
use super::scope::{Ticks, Variant};
use super::setting::{Setting, at};
use super::world::NODES;

/// One client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// What it knows of the nodes. Of no use to a client that is done.
    cluster: Option<Cluster>,
    /// How many attempts it has begun.
    begun: u8,
    /// How many more it may begin.
    pub(super) attempts_left: u8,
    pub(super) renewals_left: u8,
}

/// What a client does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It has not called `lock()` yet.
    Idle,
    /// An attempt is under way.
    Trying(Acquisition, Attempt),
    /// The last attempt was lost; the next one begins at a time, or earlier after a wake.
    Pausing {
        acquisition: Acquisition,
        at: Timestamp,
        wake_at: Timestamp,
    },
    /// It has a guard.
    Holding {
        hold: Hold,
        id: GrantId,
        /// Some nodes have not answered it.
        attempt: Option<Attempt>,
    },
    /// It has released the guard, and a round of the hold is still open.
    Released(Hold, GrantId),
    /// It has given up, or has released.
    Done,
    /// It stood still until its lock had ended, and for ever after.
    Left,
}

/// What happens to a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input<'a> {
    /// Its call begins, or tries again. If a ballot is given, the clocks are made up so that the
    /// machines propose it.
    Begin { ballot: Option<Ticks> },
    /// A node's reply arrives.
    Hear { node: usize, message: &'a Message },
    /// Its task reads the verdict of an attempt that was won.
    Conclude,
    /// A timer fires.
    TimeOut,
    /// It releases its guard.
    Release,
}

/// What comes of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Effects {
    /// What is sent to which node.
    pub(super) sends: Vec<(usize, Message)>,
    /// It was told that it holds, under this fence.
    pub(super) granted: Option<Ballot>,
    /// A majority extended its hold.
    pub(super) extended: bool,
    /// A node granted, and does not count.
    pub(super) discounted: bool,
}

/// Where a client is at one moment, and what surrounds it.
struct Driving<'a> {
    setting: &'a Setting,
    now: Timestamp,
    effects: Effects,
}

impl Client {
    /// A client that may try and renew so many times.
    pub(super) fn new(setting: &Setting, attempts: u8, renewals: u8) -> Self {
        if attempts == 0 {
            return Self::done();
        }
        Self {
            phase: Phase::Idle,
            cluster: Some(setting.acquainted(0)),
            begun: 0,
            attempts_left: attempts,
            renewals_left: renewals,
        }
    }

    /// A client that has no more to do.
    pub(super) fn done() -> Self {
        Self::ended(Phase::Done)
    }

    /// A client that stood still until its lock had ended.
    pub(super) fn left() -> Self {
        Self::ended(Phase::Left)
    }

    fn ended(phase: Phase) -> Self {
        Self {
            phase,
            cluster: None,
            begun: 0,
            attempts_left: 0,
            renewals_left: 0,
        }
    }

    /// What becomes of it when `input` happens at `now`.
    pub(super) fn step(self, setting: &Setting, input: Input<'_>, now: Ticks) -> (Self, Effects) {
        let mut driving = Driving {
            setting,
            now: at(now),
            effects: Effects::default(),
        };
        let client = match input {
            Input::Begin { ballot } => self.begin(&mut driving, ballot),
            Input::Hear { node, message } => self.hear(&mut driving, node, message),
            Input::Conclude => self.conclude(&mut driving),
            Input::TimeOut => self.time_out(&mut driving),
            Input::Release => self.release(&mut driving),
        };
        (client, driving.effects)
    }

    fn begin(mut self, driving: &mut Driving<'_>, ballot: Option<Ticks>) -> Self {
        let (setting, now) = (driving.setting, driving.now);
        let mut acquisition = match self.phase {
            Phase::Idle => Acquisition::new(setting.terms, now, 0),
            Phase::Pausing {
                mut acquisition,
                at,
                ..
            } => {
                if now < at {
                    acquisition.woken_for(None);
                }
                acquisition
            }
            _ => return self,
        };
        let fresh = Setting::own_token(self.begun.into());
        let attempt = match (ballot, &mut self.cluster) {
            (None, Some(cluster)) => acquisition.begin(cluster, now, fresh),
            // A client that has just begun has no baseline: it believes what the clocks seem to
            // show.
            (ballot, _) => {
                let mut seen = setting.acquainted(ballot.unwrap_or_default());
                acquisition.begin(&mut seen, now, fresh)
            }
        };
        let request = attempt.request(&setting.claims, setting.lease, &setting.label);
        for node in 0..NODES {
            driving.send(node, Tag::Acquire(self.begun), request.clone());
        }
        self.begun += 1;
        self.attempts_left -= 1;
        if self.attempts_left == 0 {
            // What it learnt on the way decides how it tries again, and it does not.
            acquisition = Acquisition::new(setting.terms, at(0), 0);
            self.cluster = Some(setting.strangers());
        }
        self.phase = Phase::Trying(acquisition, attempt);
        self
    }

    fn hear(mut self, driving: &mut Driving<'_>, node: usize, message: &Message) -> Self {
        let (Some(cluster), Content::Reply(reply)) = (&mut self.cluster, &message.content) else {
            return self;
        };
        let outcome = Ok(reply.clone());
        let clock = driving.clock();
        if let (Phase::Holding { hold, .. }, Tag::Restore) = (&mut self.phase, message.tag) {
            hold.handle_restored(node, &outcome);
            return self;
        }
        cluster.observe(node, &outcome, message.sent, clock.now);
        let discount = cluster.discount(node, reply.standing, message.sent, clock.now);
        let discount = discount.filter(|_| !driving.setting.is(Variant::NoQuarantine));
        let granted = reply.answer == Answer::Granted;
        match (&mut self.phase, message.tag) {
            (Phase::Trying(_, attempt), Tag::Acquire(_)) => {
                driving.effects.discounted = granted && discount.is_some();
                if granted && driving.setting.is(Variant::NoMajority) {
                    let twice = (node + 1) % NODES;
                    attempt.handle_reply(twice, outcome.clone(), discount.clone(), clock.now);
                }
                attempt.handle_reply(node, outcome, discount, clock.now);
                return self.conclude_lost(driving);
            }
            (
                Phase::Holding {
                    hold,
                    attempt: awaited,
                    ..
                },
                Tag::Acquire(_),
            ) => {
                if let Some(attempt) = awaited {
                    attempt.handle_reply(node, outcome, discount, clock.now);
                    hold.handle_acquired(attempt);
                }
                awaited.take_if(|_| !hold.awaits_acquire());
            }
            (Phase::Holding { hold, .. } | Phase::Released(hold, _), Tag::Extend(round)) => {
                hold.handle_reply(round, node, outcome, discount, clock)
            }
            _ => {}
        }
        self.drain(driving);
        self
    }

    /// A lost attempt is read at once: nothing depends on when.
    fn conclude_lost(self, driving: &mut Driving<'_>) -> Self {
        match &self.phase {
            Phase::Trying(_, attempt) => match attempt.verdict() {
                Some(AttemptVerdict::Lost(_)) => self.conclude(driving),
                Some(AttemptVerdict::Won { .. }) | None => self,
            },
            _ => self,
        }
    }

    fn conclude(mut self, driving: &mut Driving<'_>) -> Self {
        let (setting, now) = (driving.setting, driving.now);
        let (Phase::Trying(mut acquisition, attempt), Some(cluster)) = (self.phase, &self.cluster)
        else {
            return Self::done();
        };
        self.phase = match acquisition.conclude(&attempt, cluster, now) {
            Next::Granted { deadline } => {
                let policy = Arc::clone(&setting.policy);
                let hold = Hold::new(&attempt, deadline, policy, Kind::Exclusive, now);
                driving.effects.granted = Some(attempt.ballot());
                let id = attempt.grant_id(&setting.claims);
                let attempt = Some(attempt).filter(|_| hold.awaits_acquire());
                Phase::Holding { hold, id, attempt }
            }
            next => {
                let undo = FinalRelease {
                    targets: attempt.remains(),
                    lease_left: setting.lease,
                    call_timeout: setting.terms.call_timeout,
                    keep_until: None,
                    keeps_on: false,
                };
                let id = attempt.grant_id(&setting.claims);
                driving.give_back(&id, ReleaseKind::Undo, undo);
                match next {
                    _ if self.attempts_left == 0 => return Self::done(),
                    Next::Retry { at, wake_at, .. } => Phase::Pausing {
                        acquisition,
                        at,
                        wake_at,
                    },
                    Next::Granted { .. } | Next::GiveUp(_) => Phase::Idle,
                }
            }
        };
        self
    }

    fn time_out(mut self, driving: &mut Driving<'_>) -> Self {
        let Some(cluster) = &mut self.cluster else {
            return self;
        };
        match &mut self.phase {
            Phase::Trying(_, attempt) => {
                attempt.handle_timeout(driving.now);
                for (node, vote) in attempt.votes().enumerate() {
                    if *vote == Vote::TimedOut {
                        cluster.silent(node);
                    }
                }
                return self.conclude_lost(driving);
            }
            Phase::Holding { hold, .. } => hold.handle_timeout(driving.clock(), cluster),
            _ => {}
        }
        self.drain(driving);
        self
    }

    fn release(mut self, driving: &mut Driving<'_>) -> Self {
        let Phase::Holding { mut hold, id, .. } = self.phase else {
            return self;
        };
        let release = hold.release(driving.clock());
        if let Some(release) = release {
            driving.give_back(&id, ReleaseKind::Final, release);
        }
        self.phase = Phase::Released(hold, id);
        self.drain(driving);
        self
    }

    /// Executes what the hold wants.
    fn drain(&mut self, driving: &mut Driving<'_>) {
        let (Phase::Holding { hold, id, .. } | Phase::Released(hold, id)) = &mut self.phase else {
            return;
        };
        let clock = driving.clock();
        loop {
            while let Some(transmit) = hold.poll_transmit(|| clock) {
                let request = transmit.request(id, &driving.setting.label);
                let tag = match transmit.action {
                    HoldAction::Restore => Tag::Restore,
                    HoldAction::Extend | HoldAction::Downgrade => Tag::Extend(transmit.round),
                };
                driving.send(transmit.node, tag, request);
            }
            match hold.poll_event() {
                // A client that has renewed often enough has no capacity for more.
                Some(HoldEvent::RenewalDue) if self.renewals_left > 0 => {
                    self.renewals_left -= 1;
                    hold.renew(clock, Line::First);
                }
                Some(HoldEvent::Concluded { verdict, .. }) => {
                    let extended = matches!(verdict, ExtensionVerdict::Extended { .. });
                    driving.effects.extended |= extended;
                }
                Some(HoldEvent::RenewalDue | HoldEvent::Ended(_)) => {}
                None => return,
            }
        }
    }

    /// The number of its present attempt.
    pub(super) fn attempt(&self) -> u8 {
        self.begun.saturating_sub(1)
    }
}

impl Driving<'_> {
    fn clock(&self) -> ClockReading {
        ClockReading {
            now: self.now,
            froze: None,
        }
    }

    fn send(&mut self, node: usize, tag: Tag, request: Request) {
        // No reply is heard for which it would matter when the request was sent.
        let sent = match tag {
            Tag::Acquire(_) | Tag::Extend(_) => self.now,
            Tag::Restore | Tag::Release => at(0),
        };
        let content = Content::Request(request);
        self.effects
            .sends
            .push((node, Message { tag, sent, content }));
    }

    /// Gives back what the nodes may have of `id`.
    fn give_back(&mut self, id: &GrantId, kind: ReleaseKind, release: FinalRelease) {
        let (now, keep_until) = (self.now, release.keep_until);
        let until = now + release.lease_left;
        let mut requests = ReleaseRequests::new(id, kind, false, until, keep_until);
        let mut machine =
            PendingRelease::new(kind, release.targets, now, until, release.call_timeout)
                .keeping(keep_until.filter(|_| release.keeps_on));
        while let Some((node, fate_unknown)) = machine.poll_send(now) {
            let (request, _) = requests.at(fate_unknown, false, now);
            self.send(node, Tag::Release, Request::clone(&request));
        }
    }
}
