//! The Sentinels as a link sees them: it asks them which server is the master, before a handshake,
//! during it and with the calls. The product's own [`SentinelGroupView`] decides what they confirm.
//! It does what `link/confirming.rs` and the handshake of the Redis node do.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::node::{Call, CallError, Completion, Confirmation, Facts, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::Op;
use ringfence_core::protocol::{ConfirmedMaster, MasterAddress, SentinelAnswer, SentinelGroupView};
use ringfence_core::time::Timestamp;

use super::{Alarm, ClientMessage, Link, MS, Out, Pending, ServerFacts, State, refuse, trouble};

/// How long a handshake waits for the Sentinels.
const LIMIT: u64 = 1_000 * MS;
/// How long calls wait for the Sentinels.
const GATE: u64 = 500 * MS;

/// The last confirmation of a link's session. The product reads it for every reply.
pub(in crate::simulator) type SharedConfirmation = Arc<Mutex<Option<Confirmation>>>;

/// What a link knows of the Sentinels.
pub(in crate::simulator) struct Confirming {
    view: SentinelGroupView,
    /// The user's list.
    listed: Vec<usize>,
    /// How old a confirmation may be.
    stale_after: Duration,
    /// The server of the link's session, and the epoch in its birth record.
    session: Option<(usize, Option<u64>)>,
    shared: SharedConfirmation,
    asked_at: Option<Timestamp>,
    stage: Stage,
    /// Calls that wait for a confirmation.
    waiting: Vec<Call>,
}

/// How far a handshake is.
#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// The Sentinels are asked for the master.
    Find(Timestamp, Purpose),
    /// The server is asked for its identity.
    Examine(usize, Purpose),
    /// The Sentinels are asked again, after the server was examined.
    Confirm(Timestamp, usize, ServerFacts, Purpose),
}

enum Purpose {
    Probe(Completion<Facts>),
    Join(Completion<Facts>),
    Handshake,
}

impl Confirming {
    pub(in crate::simulator) fn new(listed: Vec<usize>, shared: SharedConfirmation) -> Self {
        Self {
            view: SentinelGroupView::new(listed.len(), Group::DEFAULT_QUARANTINE),
            listed,
            stale_after: Group::STALE_MASTER_SENTINEL,
            session: None,
            shared,
            asked_at: None,
            stage: Stage::Idle,
            waiting: Vec::new(),
        }
    }

    pub(super) fn adopt(&mut self, group: &Group) {
        self.view.remember_for(group.quarantine);
        self.stale_after = group.stale_master;
    }

    fn confirmed(&self, since: Timestamp, now: Timestamp) -> Option<ConfirmedMaster> {
        let confirmed = self.view.confirmed(now);
        confirmed.filter(|confirmed| confirmed.asked_at >= since)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        let confirmed = self.view.confirmed(now).zip(self.session);
        confirmed.is_some_and(|(confirmed, session)| {
            (server_of(&confirmed.address), Some(confirmed.epoch)) == session
                && confirmed.asked_at + self.stale_after * 3 / 4 >= now
        })
    }

    /// Whether the Sentinels were not asked lately.
    fn is_due(&self, now: Timestamp) -> bool {
        self.asked_at
            .is_none_or(|asked_at| now >= asked_at + self.stale_after / 4)
    }

    /// Passes the present confirmation to the product, if it is about the session.
    fn note_confirmation(&self, now: Timestamp) {
        let Some((confirmed, session)) = self.view.confirmed(now).zip(self.session) else {
            return;
        };
        if (server_of(&confirmed.address), Some(confirmed.epoch)) == session {
            *self.shared.lock().expect("no panic") = Some(Confirmation {
                epoch: confirmed.epoch,
                asked_at: confirmed.asked_at,
            });
        }
    }
}

impl Link {
    /// A link that asks the Sentinels.
    pub(in crate::simulator) fn behind_sentinels(confirming: Confirming) -> Self {
        Self {
            confirming: Some(confirming),
            ..Self::default()
        }
    }

    pub(super) fn probe_behind_sentinels(&mut self, done: Completion<Facts>, now: Timestamp) {
        self.begin(Purpose::Probe(done), now);
    }

    pub(super) fn join_behind_sentinels(&mut self, done: Completion<Facts>, now: Timestamp) {
        self.begin(Purpose::Join(done), now);
    }

    pub(super) fn handshake_behind_sentinels(&mut self, now: Timestamp) {
        self.begin(Purpose::Handshake, now);
    }

    /// Asks the Sentinels for the master, as the first stage of a handshake.
    fn begin(&mut self, purpose: Purpose, now: Timestamp) {
        self.abandon_stage();
        self.ask_sentinels(now);
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        confirming.stage = Stage::Find(now, purpose);
        self.limit_stage(now);
    }

    fn limit_stage(&mut self, since: Timestamp) {
        self.out.push(Out::Alarm {
            after: LIMIT,
            alarm: Alarm::Unconfirmed { since },
        });
    }

    fn ask_sentinels(&mut self, now: Timestamp) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        confirming.asked_at = Some(now);
        let questions = confirming.listed.iter().enumerate();
        self.out
            .extend(questions.map(|(index, &sentinel)| Out::Question {
                index,
                sentinel,
                asked_at: now,
            }));
    }

    /// A Sentinel of the list has answered.
    pub(in crate::simulator) fn handle_sentinel(
        &mut self,
        index: usize,
        answer: SentinelAnswer,
        now: Timestamp,
    ) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        confirming.view.handle_answer(index, answer, now);
        confirming.note_confirmation(now);
        match mem::take(&mut confirming.stage) {
            Stage::Find(since, purpose) => match confirming.confirmed(since, now) {
                Some(confirmed) => self.examine(server_of(&confirmed.address), purpose),
                None => confirming.stage = Stage::Find(since, purpose),
            },
            Stage::Confirm(since, server, facts, purpose) => {
                match confirming.confirmed(since, now) {
                    Some(confirmed) => self.finish((server, facts), &confirmed, purpose, now),
                    None => confirming.stage = Stage::Confirm(since, server, facts, purpose),
                }
            }
            stage => {
                confirming.stage = stage;
                self.compare_session(now);
            }
        }
    }

    /// Connects to the server that the Sentinels name, and asks for its identity.
    fn examine(&mut self, server: usize, purpose: Purpose) {
        if self.target != Some(server) {
            self.end_connection();
            self.target = Some(server);
        }
        if let Some(confirming) = &mut self.confirming {
            confirming.stage = Stage::Examine(server, purpose);
        }
        let to = Some(server);
        self.send(ClientMessage::Probe { to }, Pending::Examine);
    }

    /// The server has reported its identity: only now the Sentinels are asked for its epoch.
    pub(super) fn handle_identity(&mut self, facts: ServerFacts, now: Timestamp) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        let Stage::Examine(server, purpose) = mem::take(&mut confirming.stage) else {
            return;
        };
        confirming.stage = Stage::Confirm(now, server, facts, purpose);
        self.ask_sentinels(now);
        self.limit_stage(now);
    }

    /// The Sentinels have confirmed a master after the server was examined.
    fn finish(
        &mut self,
        (server, facts): (usize, ServerFacts),
        confirmed: &ConfirmedMaster,
        purpose: Purpose,
        now: Timestamp,
    ) {
        if server_of(&confirmed.address) != server {
            return self.fail_handshake(purpose);
        }
        let pending = match purpose {
            Purpose::Probe(done) => {
                let facts = self.node_facts(&facts, now, now);
                return done.complete(Ok(facts));
            }
            Purpose::Join(done) => Pending::Join(done, now),
            Purpose::Handshake => Pending::Handshake(now),
        };
        let message = ClientMessage::Join {
            to: Some(server),
            epoch: Some(confirmed.epoch),
            seen: Some(facts.identity),
            replicas_seen: self.replicas_seen,
        };
        self.send(message, pending);
    }

    fn fail_handshake(&mut self, purpose: Purpose) {
        complete(purpose);
        if self.state == State::Handshaking {
            self.rest();
        }
    }

    /// The session with the target has begun.
    pub(super) fn begin_session(&mut self, epoch: Option<u64>, now: Timestamp) {
        if let Some(confirming) = &mut self.confirming {
            confirming.session = self.target.map(|server| (server, epoch));
            *confirming.shared.lock().expect("no panic") = None;
            confirming.note_confirmation(now);
        }
    }

    /// Leaves a server that the Sentinels no longer name, or sends the calls that wait for them.
    fn compare_session(&mut self, now: Timestamp) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        if self.state != State::Ready {
            return;
        }
        let confirmed = confirming.view.confirmed(now).zip(confirming.session);
        let is_other = confirmed.is_some_and(|(confirmed, session)| {
            (server_of(&confirmed.address), Some(confirmed.epoch)) != session
        });
        if is_other {
            self.end_connection();
            self.handshake(now);
        } else if confirming.is_fresh(now) {
            for call in mem::take(&mut confirming.waiting) {
                self.call(call, now);
            }
        }
    }

    /// Takes a call that must wait for the Sentinels. Returns the others.
    pub(super) fn await_sentinels(&mut self, call: Call, now: Timestamp) -> Option<Call> {
        let Some(confirming) = &mut self.confirming else {
            return Some(call);
        };
        let due = confirming.is_due(now);
        if confirming.is_fresh(now) || !counts_as_vote(&call.request.op) {
            if due {
                self.ask_sentinels(now);
            }
            return Some(call);
        }
        confirming.waiting.push(call);
        if due {
            self.ask_sentinels(now);
        }
        let connection = self.connection;
        self.out.push(Out::Alarm {
            after: GATE,
            alarm: Alarm::Gate { connection },
        });
        None
    }

    /// Calls have waited long enough for the Sentinels.
    pub(super) fn close_gate(&mut self, now: Timestamp) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        if !confirming.is_fresh(now) {
            self.refuse_waiting();
        }
    }

    pub(super) fn refuse_waiting(&mut self) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        for call in mem::take(&mut confirming.waiting) {
            refuse(call, TroubleKind::Unconfirmed, "is not confirmed");
        }
    }

    /// The Sentinels have confirmed nothing since `since`.
    pub(super) fn give_up_stage(&mut self, since: Timestamp) {
        let Some(confirming) = &mut self.confirming else {
            return;
        };
        match mem::take(&mut confirming.stage) {
            Stage::Find(began, purpose) | Stage::Confirm(began, _, _, purpose)
                if began == since =>
            {
                self.fail_handshake(purpose);
            }
            stage => confirming.stage = stage,
        }
    }

    /// Ends the stage of a handshake whose connection has ended, or that another one replaces.
    pub(super) fn abandon_stage(&mut self) {
        let stage = self.confirming.as_mut().map(|c| mem::take(&mut c.stage));
        match stage {
            Some(
                Stage::Find(_, purpose)
                | Stage::Examine(_, purpose)
                | Stage::Confirm(_, _, _, purpose),
            ) => complete(purpose),
            Some(Stage::Idle) | None => {}
        }
    }
}

/// The callers of a handshake learn that it failed.
fn complete(purpose: Purpose) {
    match purpose {
        Purpose::Probe(done) | Purpose::Join(done) => {
            let why = trouble(TroubleKind::Unconfirmed, "is not confirmed");
            done.complete(Err(CallError::NotSent(why)));
        }
        Purpose::Handshake => {}
    }
}

fn counts_as_vote(op: &Op) -> bool {
    !matches!(
        op,
        Op::Release { .. } | Op::ReleaseSlot { .. } | Op::PlainRelease | Op::Inspect
    )
}

/// The address of `server`, as Sentinels name it.
pub(in crate::simulator) fn address_of(server: usize) -> MasterAddress {
    MasterAddress {
        host: "server".into(),
        port: server as u16,
        ips: Arc::from([]),
    }
}

fn server_of(address: &MasterAddress) -> usize {
    usize::from(address.port)
}
