//! The client's end of one connection: does the handshake, sends calls, closes a connection that
//! does not answer, and connects again. It does what the Redis node does, without the bytes.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ringfence::node::{Call, CallError, Completion, Facts, Hear, Tier, Trouble, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Reply, ReplyStamp, Request, Standing, Wake};
use ringfence_core::time::Timestamp;

use super::port::Ask;
use super::server::{Born, Identity};

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
    /// When the server was last asked for its identity; and when the last such question that was
    /// answered was sent.
    asked_at: Option<Timestamp>,
    confirmed_at: Option<Timestamp>,
    clock_seen: Option<Timestamp>,
    failures: u32,
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
}

/// What a link wants the world to do.
pub(super) enum Out {
    Send {
        number: u64,
        message: ClientMessage,
    },
    /// Call back with `alarm` after this many nanoseconds.
    Alarm {
        after: u64,
        alarm: Alarm,
    },
}

/// A message to a server.
#[derive(Debug, Clone)]
pub(super) enum ClientMessage {
    Call {
        request: Arc<Request>,
        known: Born,
        /// Whether the last check of the server is too old, so that the server has to compare its
        /// replication id.
        unchecked: bool,
    },
    Probe,
    Join,
}

/// A message from a server.
#[derive(Debug, Clone)]
pub(super) enum ServerMessage {
    Answer(Answer, Option<ReplyStamp>),
    Newborn,
    Facts(ServerFacts),
    Wake(Wake),
    /// There is no such server or no such connection.
    Closed,
}

/// What a server reports in a handshake.
#[derive(Debug, Clone)]
pub(super) struct ServerFacts {
    pub(super) born: Option<Born>,
    pub(super) clock_us: u64,
    pub(super) identity: Identity,
    pub(super) tier: Tier,
}

impl ServerFacts {
    fn run_id(&self) -> String {
        format!("{:x}", self.identity.run_id)
    }

    fn standing(&self) -> Option<Standing> {
        let born = self.born.as_ref()?;
        Some(Standing {
            incarnation: born.since_us,
            born_us: born.at_us,
            clock_us: self.clock_us,
            server: Standing::server_of(&self.run_id()),
            replicated: born.is_replaceable(),
            epoch: born.epoch(),
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Alarm {
    NoAnswer { connection: u64, number: u64 },
    Patience { connection: u64 },
    Rested { connection: u64 },
}

impl Link {
    pub(super) fn ask(&mut self, ask: Ask, now: Timestamp) {
        match ask {
            Ask::Call(call) => self.call(call, now),
            Ask::Probe(done) => self.send(ClientMessage::Probe, Pending::Probe(done, now)),
            Ask::Join(group, done) => {
                self.group = Some(group);
                self.state = State::Handshaking;
                self.send(ClientMessage::Join, Pending::Join(done, now));
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
            self.send(ClientMessage::Probe, Pending::Check(now));
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
        self.send(ClientMessage::Join, Pending::Handshake(now));
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
        let node_facts = |sent| Facts {
            standing,
            clock_us: facts.clock_us,
            sent,
            received: now,
            group: self.group,
            run_id: facts.run_id(),
            version: "simulated".to_owned(),
            tier,
        };
        match pending {
            Pending::Probe(done, sent) => return done.complete(Ok(node_facts(sent))),
            Pending::Check(sent) => {
                match self.born.as_ref().is_some_and(|born| born.is_of(identity)) {
                    true => self.confirmed_at = self.confirmed_at.max(Some(sent)),
                    false if self.state == State::Ready => self.handshake(now),
                    false => {}
                }
                return;
            }
            Pending::Join(done, sent) => {
                done.complete(Ok(node_facts(sent)));
                self.confirmed_at = Some(sent);
            }
            Pending::Handshake(sent) => self.confirmed_at = Some(sent),
            Pending::Call(_) => {}
        }
        self.tier = Some(tier);
        self.born = facts.born;
        self.asked_at = self.confirmed_at;
        self.joined(standing.unwrap_or_default(), now);
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
        }
    }

    /// The connection has ended: it is unknown which pending calls were executed.
    fn lose(&mut self, now: Timestamp) {
        self.connection += 1;
        for pending in mem::take(&mut self.pending).into_values() {
            let closed = trouble(TroubleKind::Disconnected, "closed the connection");
            let unknown = CallError::Unknown(closed);
            match pending {
                Pending::Call(call) => call.done.complete(Err(unknown)),
                Pending::Probe(done, _) | Pending::Join(done, _) => done.complete(Err(unknown)),
                Pending::Handshake(_) | Pending::Check(_) => {}
            }
        }
        match self.state {
            State::Ready => self.handshake(now),
            State::Handshaking => {
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
            State::NotJoined | State::Resting => {}
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
