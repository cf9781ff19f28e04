//! The client's end of one connection: shakes hands, sends calls, gives up on a silent server and
//! connects again. What the Redis node does, without the bytes.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ringfence::node::{Call, CallError, Completion, Facts, Hear, Tier, Trouble, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Reply, Request, Stamp, Standing, Wake};
use ringfence_core::time::Timestamp;

use super::port::Ask;
use super::server::{Born, Identity};

const MS: u64 = 1_000_000;
/// A server that is asked and says nothing for this long is given up.
const SILENCE: u64 = 1_000 * MS;
/// How long calls wait for a handshake.
const PATIENCE: u64 = 100 * MS;
/// How old a look at the server's role and replication may be before the next is due.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest and the longest rest after a handshake that failed.
const REST: (u64, u64) = (20 * MS, 200 * MS);

/// The client's end of one connection.
#[derive(Default)]
pub(super) struct Link {
    /// Which connection this is, from 0.
    pub(super) connection: u64,
    state: State,
    group: Option<Group>,
    tier: Option<Tier>,
    numbers: u64,
    pending: BTreeMap<u64, Pending>,
    /// Calls that wait for a handshake.
    held: Vec<Call>,
    ears: Option<Arc<dyn Hear>>,
    standing: Standing,
    /// The birth record that it was last told; every call names it.
    born: Option<Born>,
    /// When the server was last asked what it is, and when the last such question that was answered
    /// was asked.
    looked: Option<Timestamp>,
    seen: Option<Timestamp>,
    heard_at: Option<Timestamp>,
    failures: u32,
    /// What is to be done about it.
    pub(super) out: Vec<Out>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not joined yet, so nothing may be sent.
    #[default]
    Strange,
    Shaking,
    Ready,
    Resting,
}

enum Pending {
    Call(Call),
    Probe(Completion<Facts>, Timestamp),
    Join(Completion<Facts>, Timestamp),
    /// A handshake that nobody asked for.
    Shake(Timestamp),
    /// A look at what the server is now.
    Look(Timestamp),
}

/// What a link wants done.
pub(super) enum Out {
    Send {
        number: u64,
        parcel: Parcel,
    },
    /// To be told of `alarm` after so many nanoseconds.
    Alarm {
        after: u64,
        alarm: Alarm,
    },
}

/// What goes to a server.
#[derive(Debug, Clone)]
pub(super) enum Parcel {
    Call {
        request: Arc<Request>,
        known: Born,
        /// Whether nobody has looked at the server lately, so that it has to compare its replication id.
        unseen: bool,
    },
    Probe,
    Join,
}

/// What comes back.
#[derive(Debug, Clone)]
pub(super) enum Word {
    Answer(Answer, Option<Stamp>),
    Newborn,
    Facts {
        born: Option<Born>,
        clock_us: u64,
        identity: Identity,
        tier: Tier,
    },
    Wake(Wake),
    /// There is no such server, or no such connection.
    HungUp,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Alarm {
    Silence { connection: u64, number: u64 },
    Patience { connection: u64 },
    Rested { connection: u64 },
}

impl Link {
    pub(super) fn ask(&mut self, ask: Ask, now: Timestamp) {
        match ask {
            Ask::Call(call) => self.call(call, now),
            Ask::Probe(done) => self.send(Parcel::Probe, Pending::Probe(done, now)),
            Ask::Join(group, done) => {
                self.group = Some(group);
                self.state = State::Shaking;
                self.send(Parcel::Join, Pending::Join(done, now));
            }
            Ask::Listen(_, to) => self.ears = Some(to),
        }
    }

    fn call(&mut self, call: Call, now: Timestamp) {
        if call.expires <= now {
            return refuse(call, TroubleKind::Timeout, "had waited too long");
        }
        match self.state {
            State::Ready => {
                let Some(known) = self.born.clone() else {
                    return refuse(call, TroubleKind::Newborn, "has not joined");
                };
                let unseen = self.seen.is_none_or(|seen| now >= seen + LOOK);
                let parcel = Parcel::Call {
                    request: Arc::clone(&call.request),
                    known,
                    unseen,
                };
                self.send(parcel, Pending::Call(call));
                self.look(now);
            }
            State::Shaking => self.held.push(call),
            State::Strange => refuse(call, TroubleKind::Newborn, "has not joined"),
            State::Resting => refuse(call, TroubleKind::Unreachable, "cannot be reached"),
        }
    }

    /// Asks what the server is now, if that was not asked for a second: a replica may have come, or it
    /// was promoted. Only where something is held or wanted, since only calls lead here.
    fn look(&mut self, now: Timestamp) {
        if self.looked.is_none_or(|looked| now >= looked + LOOK) {
            self.looked = Some(now);
            self.send(Parcel::Probe, Pending::Look(now));
        }
    }

    fn send(&mut self, parcel: Parcel, pending: Pending) {
        let number = self.numbers;
        self.numbers += 1;
        self.pending.insert(number, pending);
        self.out.push(Out::Send { number, parcel });
        let alarm = Alarm::Silence {
            connection: self.connection,
            number,
        };
        self.out.push(Out::Alarm {
            after: SILENCE,
            alarm,
        });
    }

    fn shake(&mut self, now: Timestamp) {
        self.state = State::Shaking;
        self.send(Parcel::Join, Pending::Shake(now));
        let connection = self.connection;
        self.out.push(Out::Alarm {
            after: PATIENCE,
            alarm: Alarm::Patience { connection },
        });
    }

    /// Takes what came over `connection`.
    pub(super) fn hear(&mut self, connection: u64, number: u64, word: Word, now: Timestamp) {
        if connection != self.connection {
            return;
        }
        match word {
            Word::Wake(wake) => {
                if let (Some(ears), State::Ready) = (&self.ears, self.state) {
                    ears.hear(wake);
                }
            }
            Word::HungUp => self.lose(now),
            Word::Newborn => {
                if let Some(Pending::Call(call)) = self.pending.remove(&number) {
                    let trouble = trouble(TroubleKind::Newborn, "was restarted or emptied");
                    call.done.complete(Err(CallError::Refused(trouble)));
                }
                if self.state == State::Ready {
                    self.shake(now);
                }
            }
            Word::Answer(answer, stamp) => {
                if let Some(Pending::Call(call)) = self.pending.remove(&number) {
                    self.hear_clock(stamp.map(|stamp| stamp.clock_us), now);
                    call.done.complete(Ok(Reply {
                        stamp,
                        standing: self.standing,
                        answer,
                    }));
                }
            }
            Word::Facts {
                born,
                clock_us,
                identity,
                tier,
            } => {
                let Some(pending) = self.pending.remove(&number) else {
                    return;
                };
                let run_id = format!("{:x}", identity.run_id);
                let standing = born.as_ref().map(|born| Standing {
                    incarnation: born.since_us,
                    born_us: born.at_us,
                    clock_us,
                    server: Standing::server_of(&run_id),
                });
                let facts = |sent| Facts {
                    standing,
                    clock_us,
                    sent,
                    received: now,
                    group: self.group,
                    run_id,
                    version: "simulated".to_owned(),
                    tier,
                };
                match pending {
                    Pending::Probe(done, sent) => return done.complete(Ok(facts(sent))),
                    Pending::Look(sent) => {
                        match self.born.as_ref().is_some_and(|born| born.is_of(identity)) {
                            true => self.seen = self.seen.max(Some(sent)),
                            false if self.state == State::Ready => self.shake(now),
                            false => {}
                        }
                        return;
                    }
                    Pending::Join(done, sent) => {
                        done.complete(Ok(facts(sent)));
                        self.seen = Some(sent);
                    }
                    Pending::Shake(sent) => self.seen = Some(sent),
                    Pending::Call(_) => {}
                }
                self.tier = Some(tier);
                self.born = born;
                self.looked = self.seen;
                self.joined(standing.unwrap_or_default(), now);
            }
        }
    }

    fn joined(&mut self, standing: Standing, now: Timestamp) {
        self.standing = standing;
        self.heard_at = Some(now);
        self.state = State::Ready;
        self.failures = 0;
        for call in mem::take(&mut self.held) {
            self.call(call, now);
        }
    }

    /// The server's clock as it was heard, or carried on from when it last was.
    fn hear_clock(&mut self, clock_us: Option<u64>, now: Timestamp) {
        let elapsed = now.since(self.heard_at.unwrap_or(now));
        let elapsed_us = elapsed.as_micros() as u64;
        self.standing.clock_us = clock_us.unwrap_or(self.standing.clock_us + elapsed_us);
        self.heard_at = Some(now);
    }

    pub(super) fn ring(&mut self, alarm: Alarm, now: Timestamp) {
        match alarm {
            Alarm::Silence { connection, number } => {
                if connection == self.connection && self.pending.contains_key(&number) {
                    self.lose(now);
                }
            }
            Alarm::Patience { connection } => {
                if connection == self.connection && self.state == State::Shaking {
                    self.refuse_held();
                }
            }
            Alarm::Rested { connection } => {
                if connection == self.connection && self.state == State::Resting {
                    self.shake(now);
                }
            }
        }
    }

    /// The connection is gone: nobody knows what of the pending has been carried out.
    fn lose(&mut self, now: Timestamp) {
        self.connection += 1;
        for pending in mem::take(&mut self.pending).into_values() {
            let unknown = CallError::Unknown(trouble(TroubleKind::Disconnected, "hung up"));
            match pending {
                Pending::Call(call) => call.done.complete(Err(unknown)),
                Pending::Probe(done, _) | Pending::Join(done, _) => done.complete(Err(unknown)),
                Pending::Shake(_) | Pending::Look(_) => {}
            }
        }
        match self.state {
            State::Ready => self.shake(now),
            State::Shaking => {
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
            State::Strange | State::Resting => {}
        }
    }

    fn refuse_held(&mut self) {
        for call in mem::take(&mut self.held) {
            refuse(call, TroubleKind::Timeout, "is slow to shake hands");
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
