//! The client's end of one connection: does the handshake, sends calls, closes a connection that
//! does not answer, and connects again. It does what the Redis node does, without the bytes.

mod confirming;
mod message;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ringfence::node::{Call, CallError, Completion, Facts, Hear, Tier, Trouble, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::{Reply, Standing};
use ringfence_core::time::Timestamp;

use super::port::Ask;
use super::server::Born;

pub(super) use confirming::{Confirming, SharedConfirmation, address_of};
pub(super) use message::{Alarm, ClientMessage, Out, ServerFacts, ServerMessage};

const MS: u64 = 1_000_000;
/// A connection without an answer for this long is closed.
const NO_ANSWER: u64 = 1_000 * MS;
/// How long calls wait for a handshake.
const PATIENCE: u64 = 100 * MS;
/// How old the last check of the server's role and replication may be.
const CHECK_AGE: Duration = Duration::from_secs(1);
/// The shortest and the longest pause after a failed handshake.
const REST: (u64, u64) = (20 * MS, 200 * MS);

/// The client's end of one connection.
#[derive(Default)]
pub(super) struct Link {
    /// The number of the connection, from 0.
    pub(super) connection: u64,
    state: State,
    group: Option<Group>,
    tier: Option<Tier>,
    numbers: u64,
    pending: BTreeMap<u64, Pending>,
    /// Calls that wait for a handshake.
    held: Vec<Call>,
    listener: Option<Arc<dyn Hear>>,
    standing: Standing,
    /// The birth record that the server last reported; every call carries it.
    born: Option<Born>,
    /// Whether the server was ever seen to have a replica, as the handshake of a real node remembers.
    pub(super) replicas_seen: bool,
    /// When the server was last asked for its identity; and when the last such question that was
    /// answered was sent.
    asked_at: Option<Timestamp>,
    confirmed_at: Option<Timestamp>,
    clock_seen: Option<Timestamp>,
    failures: u32,
    /// The Sentinels, if the server has any, and the server that they named.
    confirming: Option<Confirming>,
    pub(super) target: Option<usize>,
    /// What the world is to do for it.
    pub(super) out: Vec<Out>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not joined yet, so nothing may be sent.
    #[default]
    NotJoined,
    Handshaking,
    Ready,
    Resting,
}

enum Pending {
    Call(Call),
    Probe(Completion<Facts>, Timestamp),
    Join(Completion<Facts>, Timestamp),
    /// A handshake that the link began by itself.
    Handshake(Timestamp),
    /// A check of the server's current identity.
    Check(Timestamp),
    /// The question for its identity in a handshake, before the Sentinels are asked again.
    Examine,
}

impl Link {
    /// The handshake with the server at the address.
    fn join_at_address(&self) -> ClientMessage {
        ClientMessage::Join {
            to: None,
            epoch: None,
            seen: None,
            replicas_seen: self.replicas_seen,
        }
    }

    pub(super) fn ask(&mut self, ask: Ask, now: Timestamp) {
        match ask {
            Ask::Call(call) => self.call(call, now),
            Ask::Probe(done) if self.confirming.is_some() => self.probe_behind_sentinels(done, now),
            Ask::Probe(done) => {
                self.send(ClientMessage::Probe { to: None }, Pending::Probe(done, now));
            }
            Ask::Join(group, done) => {
                self.group = Some(group);
                self.state = State::Handshaking;
                if let Some(confirming) = &mut self.confirming {
                    confirming.adopt(&group);
                    return self.join_behind_sentinels(done, now);
                }
                self.send(self.join_at_address(), Pending::Join(done, now));
            }
            Ask::Listen(_, to) => self.listener = Some(to),
        }
    }

    fn call(&mut self, call: Call, now: Timestamp) {
        if call.expires <= now {
            return refuse(call, TroubleKind::Timeout, "the call waited too long");
        }
        match self.state {
            State::Ready => {
                let Some(call) = self.await_sentinels(call, now) else {
                    return;
                };
                let Some(known) = self.born.clone() else {
                    return refuse(call, TroubleKind::Newborn, "has not joined");
                };
                let unchecked = self
                    .confirmed_at
                    .is_none_or(|confirmed_at| now >= confirmed_at + CHECK_AGE);
                let message = ClientMessage::Call {
                    request: Arc::clone(&call.request),
                    known,
                    unchecked,
                };
                self.send(message, Pending::Call(call));
                self.look(now);
            }
            State::Handshaking => self.held.push(call),
            State::NotJoined => refuse(call, TroubleKind::Newborn, "has not joined"),
            State::Resting => refuse(call, TroubleKind::Unreachable, "cannot be reached"),
        }
    }

    /// Asks for the server's identity if the last question is older than a second: it may have a
    /// new replica, or may have been promoted. Only calls lead here, so an idle client does not
    /// ask.
    fn look(&mut self, now: Timestamp) {
        if self
            .asked_at
            .is_none_or(|asked_at| now >= asked_at + CHECK_AGE)
        {
            self.asked_at = Some(now);
            let to = self.target;
            self.send(ClientMessage::Probe { to }, Pending::Check(now));
        }
    }

    fn send(&mut self, message: ClientMessage, pending: Pending) {
        let number = self.numbers;
        self.numbers += 1;
        self.pending.insert(number, pending);
        self.out.push(Out::Send { number, message });
        let alarm = Alarm::NoAnswer {
            connection: self.connection,
            number,
        };
        self.out.push(Out::Alarm {
            after: NO_ANSWER,
            alarm,
        });
    }

    fn handshake(&mut self, now: Timestamp) {
        self.state = State::Handshaking;
        match self.confirming.is_some() {
            true => self.handshake_behind_sentinels(now),
            false => self.send(self.join_at_address(), Pending::Handshake(now)),
        }
        let connection = self.connection;
        self.out.push(Out::Alarm {
            after: PATIENCE,
            alarm: Alarm::Patience { connection },
        });
    }

    /// Handles a message that arrived on `connection`.
    pub(super) fn handle_message(
        &mut self,
        connection: u64,
        number: u64,
        message: ServerMessage,
        now: Timestamp,
    ) {
        if connection != self.connection {
            return;
        }
        match message {
            ServerMessage::Wake(wake) => {
                if let (Some(listener), State::Ready) = (&self.listener, self.state) {
                    listener.hear(wake);
                }
            }
            ServerMessage::Closed => self.lose(now),
            ServerMessage::Newborn => {
                if let Some(Pending::Call(call)) = self.pending.remove(&number) {
                    let trouble = trouble(TroubleKind::Newborn, "was restarted or emptied");
                    call.done.complete(Err(CallError::Refused(trouble)));
                }
                if self.state == State::Ready {
                    self.handshake(now);
                }
            }
            ServerMessage::Answer(answer, stamp) => {
                if let Some(Pending::Call(call)) = self.pending.remove(&number) {
                    self.note_clock(stamp.map(|stamp| stamp.clock_us), now);
                    call.done.complete(Ok(Reply {
                        stamp,
                        standing: self.standing,
                        answer,
                    }));
                }
            }
            ServerMessage::Facts(facts) => {
                if let Some(pending) = self.pending.remove(&number) {
                    self.handle_facts(pending, facts, now);
                }
            }
        }
    }

    /// Handles the identity that the server reported, which a probe, a handshake or a check asked
    /// for.
    fn handle_facts(&mut self, pending: Pending, facts: ServerFacts, now: Timestamp) {
        let (identity, tier) = (facts.identity, facts.tier);
        let standing = facts.standing();
        match pending {
            Pending::Probe(done, sent) => {
                return done.complete(Ok(self.node_facts(&facts, sent, now)));
            }
            Pending::Examine => return self.handle_identity(facts, now),
            Pending::Check(sent) => {
                match self.born.as_ref().is_some_and(|born| born.is_of(identity)) {
                    true => self.confirmed_at = self.confirmed_at.max(Some(sent)),
                    false if self.state == State::Ready => self.handshake(now),
                    false => {}
                }
                return;
            }
            Pending::Join(done, sent) => {
                done.complete(Ok(self.node_facts(&facts, sent, now)));
                self.confirmed_at = Some(sent);
            }
            Pending::Handshake(sent) => self.confirmed_at = Some(sent),
            Pending::Call(_) => {}
        }
        self.tier = Some(tier);
        self.replicas_seen |= facts.born.as_ref().is_some_and(Born::is_replicated);
        self.born = facts.born;
        self.asked_at = self.confirmed_at;
        self.begin_session(self.born.as_ref().and_then(Born::epoch), now);
        self.joined(standing.unwrap_or_default(), now);
    }

    fn node_facts(&self, facts: &ServerFacts, sent: Timestamp, now: Timestamp) -> Facts {
        Facts {
            standing: facts.standing(),
            clock_us: facts.clock_us,
            sent,
            received: now,
            group: self.group,
            run_id: facts.run_id(),
            version: "simulated".to_owned(),
            tier: facts.tier,
        }
    }

    fn joined(&mut self, standing: Standing, now: Timestamp) {
        self.standing = standing;
        self.clock_seen = Some(now);
        self.state = State::Ready;
        self.failures = 0;
        for call in mem::take(&mut self.held) {
            self.call(call, now);
        }
    }

    /// Records the server's clock from a reply, or estimates it from the last known one.
    fn note_clock(&mut self, clock_us: Option<u64>, now: Timestamp) {
        let elapsed = now.since(self.clock_seen.unwrap_or(now));
        let elapsed_us = elapsed.as_micros() as u64;
        self.standing.clock_us = clock_us.unwrap_or(self.standing.clock_us + elapsed_us);
        self.clock_seen = Some(now);
    }

    pub(super) fn ring(&mut self, alarm: Alarm, now: Timestamp) {
        match alarm {
            Alarm::NoAnswer { connection, number } => {
                if connection == self.connection && self.pending.contains_key(&number) {
                    self.lose(now);
                }
            }
            Alarm::Patience { connection } => {
                if connection == self.connection && self.state == State::Handshaking {
                    self.refuse_held();
                }
            }
            Alarm::Rested { connection } => {
                if connection == self.connection && self.state == State::Resting {
                    self.handshake(now);
                }
            }
            Alarm::Unconfirmed { since } => self.give_up_stage(since),
            Alarm::Gate { connection } => {
                if connection == self.connection {
                    self.close_gate(now);
                }
            }
        }
    }

    /// The connection has ended, and another is made.
    fn lose(&mut self, now: Timestamp) {
        self.end_connection();
        self.abandon_stage();
        match self.state {
            State::Ready => self.handshake(now),
            State::Handshaking => self.rest(),
            State::NotJoined | State::Resting => {}
        }
    }

    /// The handshake failed: it is repeated after a pause.
    fn rest(&mut self) {
        self.refuse_held();
        self.failures += 1;
        self.state = State::Resting;
        let after = (REST.0 << self.failures.min(8)).min(REST.1);
        let connection = self.connection;
        self.out.push(Out::Alarm {
            after,
            alarm: Alarm::Rested { connection },
        });
    }

    /// It is unknown which pending calls were executed.
    fn end_connection(&mut self) {
        self.connection += 1;
        self.refuse_waiting();
        for pending in mem::take(&mut self.pending).into_values() {
            let closed = trouble(TroubleKind::Disconnected, "closed the connection");
            let unknown = CallError::Unknown(closed);
            match pending {
                Pending::Call(call) => call.done.complete(Err(unknown)),
                Pending::Probe(done, _) | Pending::Join(done, _) => done.complete(Err(unknown)),
                Pending::Handshake(_) | Pending::Check(_) | Pending::Examine => {}
            }
        }
    }

    fn refuse_held(&mut self) {
        for call in mem::take(&mut self.held) {
            refuse(
                call,
                TroubleKind::Timeout,
                "is slow to answer the handshake",
            );
        }
    }
}

fn refuse(call: Call, kind: TroubleKind, what: &'static str) {
    call.done
        .complete(Err(CallError::NotSent(trouble(kind, what))));
}

fn trouble(kind: TroubleKind, what: &'static str) -> Trouble {
    Trouble::new(kind, what)
}
