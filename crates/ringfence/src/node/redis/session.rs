//! One connection after its handshake: the calls in flight over it, what is known of the server,
//! and when the server is checked between two handshakes.
//!
//! An operator may change the server meanwhile: its role, its replication id, whether it may evict
//! locks, whether it keeps them over a crash. So the link checks the server once a second, while
//! clients of ours may hold or want locks there.

use std::collections::VecDeque;
use std::time::Duration;

use redis::{Pipeline, RedisError, RedisResult, ServerError, Value};

use crate::message::{Act, Answer, Reply, ReplyStamp, Request, Standing};
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::codec::bundle::{self, BatchKind, BundleReply};
use super::codec::reply::{self, MalformedReply, ScriptReply};
use super::codec::{Command, CommandWords, ScriptForm, ScriptTerms};
use super::handshake::sections::Image;
use super::report::{Reporter, is_newborn};
use super::wire::Connection;

/// The most batches in flight. Calls that arrive meanwhile go into one larger batch. The queue of
/// the crate `redis` (50) never fills, which would let requests overtake each other.
const BATCHES_MAX: usize = 16;

/// See the module.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// The membership, or why no call may be sent: the group is unknown, or the node belongs to
    /// another.
    pub(super) membership: Result<Membership, Trouble>,
    /// How many of the listeners have a subscription.
    pub(super) listening: usize,
}

impl Session {
    /// Whether the group has no other node.
    pub(super) fn is_alone(&self) -> bool {
        matches!(&self.membership, Ok(membership) if membership.alone)
    }
}

/// The membership of a node that accepts calls.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    /// The arguments of every lock operation.
    pub(super) terms: ScriptTerms,
    /// The state that the server must still have for the membership to count.
    pub(super) image: Image,
    /// Whether the group has no other node.
    pub(super) alone: bool,
    /// When the handshake began to examine the server.
    pub(super) seen_at: Timestamp,
    /// The incarnation that answers under these terms.
    pub(super) standing: Standing,
    /// When `standing.clock_us` was read, on our clock.
    pub(super) read_at: Timestamp,
}

impl Membership {
    /// The standing at `now`, with the node's clock advanced since it was last read.
    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        let elapsed = now.as_micros().saturating_sub(self.read_at.as_micros());
        Standing {
            clock_us: self.standing.clock_us.saturating_add(elapsed),
            ..self.standing
        }
    }

    /// Whether scripts that write a holder compare the replication id: always on a server that is
    /// known to be replicated, else if it was not checked lately. Some servers do not report the
    /// id.
    pub(super) fn compare(&mut self, unseen: bool, now: Timestamp) {
        if !self.terms.quarantine_over {
            // Some time later, so that the node itself would not refuse any more.
            let grants_from_us = self.terms.rules.grants_from_us;
            let clock_us = self.standing(now).clock_us;
            self.terms.quarantine_over = clock_us > grants_from_us.saturating_add(1_000_000);
        }
        let server = &self.image.server;
        self.terms.compare =
            !self.terms.unseen && server.replication_id.is_some() && (server.replicated || unseen);
    }
}

/// Calls that were sent and not answered yet.
#[derive(Default)]
pub(super) struct InFlight {
    batches: VecDeque<Batch>,
    /// How many calls these batches have.
    calls: usize,
    /// When the last reply arrived, or a request was sent while none was in flight.
    progress: Option<Timestamp>,
    /// How many calls the last answered batch had.
    pub(super) last_batch_calls: usize,
}

/// Commands that were sent together.
#[derive(Debug)]
struct Batch {
    commands: Vec<Command>,
    by: ScriptForm,
    /// Whether it is a check of the server.
    look: bool,
}

impl Batch {
    fn calls(&self) -> usize {
        self.commands
            .iter()
            .map(|command| command.calls().len())
            .sum()
    }
}

/// The outcome of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchOutcome {
    /// Commands whose script the server did not have: to be resent unchanged, with the full script.
    /// If they were packed anew, a call that a bundle had skipped could end up in a bundle again,
    /// for ever.
    pub(super) unscripted: Vec<Command>,
    /// Calls that a bundle skipped: to be resent, each by itself.
    pub(super) skipped: Vec<Call>,
    /// The node has another birth record than the one that we know.
    pub(super) newborn: bool,
    /// The answers to a check of the server.
    pub(super) look: Option<Vec<Value>>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// How many calls are in flight.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < BATCHES_MAX
    }

    /// Since when the server has not answered, if calls are in flight.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        self.progress.filter(|_| !self.is_empty())
    }

    /// Sends `commands` as one batch.
    pub(super) fn send(
        &mut self,
        commands: Vec<Command>,
        connection: &mut Connection,
        membership: &Membership,
        by: ScriptForm,
        now: Timestamp,
    ) {
        if commands.is_empty() {
            return;
        }
        let terms = &membership.terms;
        connection.send_commands(commands.iter().map(|command| CommandWords {
            command,
            terms,
            by,
        }));
        let look = false;
        self.push(Batch { commands, by, look }, now);
    }

    /// Notes that `batch` was sent.
    fn push(&mut self, batch: Batch, now: Timestamp) {
        if self.is_empty() {
            self.progress = Some(now);
        }
        self.calls += batch.calls();
        self.batches.push_back(batch);
    }

    /// Sends `questions` of the link: a check of the server if `look`, else a subscription. The
    /// answer to a subscription is ignored: a server that forbids it sends no wakes, and waiters
    /// retry by themselves.
    pub(super) fn ask(
        &mut self,
        questions: Pipeline,
        look: bool,
        connection: &mut Connection,
        now: Timestamp,
    ) {
        connection.send(questions);
        let (commands, by) = (Vec::new(), ScriptForm::Text);
        self.push(Batch { commands, by, look }, now);
    }

    /// Completes the calls of the oldest batch with `answers`.
    ///
    /// # Errors
    /// If the connection is lost; then no call was completed.
    pub(super) fn land(
        &mut self,
        answers: RedisResult<Vec<Value>>,
        membership: &mut Membership,
        watch: &mut ServerWatch,
        reporter: &Reporter,
        now: Timestamp,
    ) -> Result<BatchOutcome, RedisError> {
        self.progress = Some(now);
        // On an error the batch stays at the front: `abandon` answers it with the others.
        let answers = answers?;
        let mut outcome = BatchOutcome::default();
        let Some(batch) = self.batches.pop_front() else {
            return Ok(outcome);
        };
        let calls = batch.calls();
        self.calls -= calls;
        let Batch { commands, by, look } = batch;
        if look {
            outcome.look = Some(answers);
            return Ok(outcome);
        }
        self.last_batch_calls = calls;
        let mut replies = BatchReplies {
            membership,
            watch,
            reporter,
            now,
            by,
            outcome: &mut outcome,
        };
        let mut answers = answers.into_iter();
        for command in commands {
            // A missing answer is malformed, like a wrong one.
            let answer = answers.next().unwrap_or(Value::Boolean(false));
            match command {
                Command::Single(call) => replies.take(call, answer),
                Command::Bundle(kind, calls) => replies.take_bundle(kind, calls, answer),
            }
        }
        Ok(outcome)
    }

    /// Notes that a batch without calls was answered.
    pub(super) fn discard(&mut self, now: Timestamp) {
        self.progress = Some(now);
        self.calls -= self.batches.pop_front().map_or(0, |batch| batch.calls());
    }

    /// Answers all calls as unknown: the connection is lost, and the server may have carried them
    /// out.
    pub(super) fn abandon(&mut self, trouble: &Trouble, watch: &mut ServerWatch) {
        self.calls = 0;
        let commands = self.batches.drain(..).flat_map(|batch| batch.commands);
        for call in commands.flat_map(Command::into_calls) {
            watch.note_unknown();
            call.done.complete(Err(CallError::Unknown(trouble.clone())));
        }
    }
}

/// Completes the calls of one batch with their replies.
struct BatchReplies<'a> {
    membership: &'a mut Membership,
    watch: &'a mut ServerWatch,
    reporter: &'a Reporter,
    now: Timestamp,
    /// How the scripts of the batch were named.
    by: ScriptForm,
    outcome: &'a mut BatchOutcome,
}

impl BatchReplies<'_> {
    /// Completes `call`, unless it must be resent.
    fn take(&mut self, call: Call, answer: Value) {
        let outcome = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                if !self.membership.terms.by_hash_only {
                    self.outcome.unscripted.push(Command::Single(call));
                    return;
                }
                Err(CallError::Refused(self.reporter.unloaded()))
            }
            Value::ServerError(error) if is_newborn(&error) => Err(self.newborn()),
            Value::ServerError(error) => Err(self.reporter.refusal(&error, &call.request)),
            answer => match reply::read(&call.request, answer) {
                Ok(ScriptReply::Answer(answer, stamp)) => Ok(self.reply(answer, stamp)),
                Ok(ScriptReply::Newborn) => Err(self.newborn()),
                Err(MalformedReply) => Err(self.malformed()),
            },
        };
        call.done.complete(outcome);
    }

    /// Completes the calls of a bundle, except those that must be resent.
    fn take_bundle(&mut self, kind: BatchKind, calls: Vec<Call>, answer: Value) {
        let error = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                let command = Command::Bundle(kind, calls);
                self.outcome.unscripted.push(command);
                return;
            }
            Value::ServerError(error) if is_newborn(&error) => self.newborn(),
            // Resend each call by itself, to find the one that failed. That is safe after a part of
            // the bundle was done: a token that holds under the same ballot is granted again, and
            // the script deletes only at its end.
            Value::ServerError(_) => {
                self.outcome.skipped.extend(calls);
                return;
            }
            answer => match self.read_bundle(kind, &calls, answer) {
                Ok(BundleReply::Answers(answers)) => {
                    for (call, answer) in calls.into_iter().zip(answers) {
                        match answer {
                            Some((answer, stamp)) => {
                                call.done.complete(Ok(self.reply(answer, stamp)));
                            }
                            None => self.outcome.skipped.push(call),
                        }
                    }
                    return;
                }
                Ok(BundleReply::Newborn) => self.newborn(),
                Err(MalformedReply) => self.malformed(),
            },
        };
        for call in calls {
            call.done.complete(Err(error.clone()));
        }
    }

    fn read_bundle(
        &self,
        kind: BatchKind,
        calls: &[Call],
        answer: Value,
    ) -> Result<BundleReply, MalformedReply> {
        let requests = calls.iter().map(|call| &*call.request);
        bundle::read(kind, requests, answer, &self.membership.terms.rules)
    }

    /// A server that was sent the full script cannot lack it, even if it reports so.
    fn lacks_script(&self, error: &ServerError) -> bool {
        self.by == ScriptForm::Hash && error.code() == "NOSCRIPT"
    }

    fn reply(&mut self, answer: Answer, stamp: Option<ReplyStamp>) -> Reply {
        if let Some(stamp) = stamp {
            self.membership.standing.clock_us = stamp.clock_us;
            self.membership.read_at = self.now;
        }
        self.watch.note_answer(&answer);
        Reply {
            stamp,
            standing: self.membership.standing(self.now),
            answer,
        }
    }

    fn newborn(&mut self) -> CallError {
        self.outcome.newborn = true;
        CallError::Refused(self.reporter.trouble(
            TroubleKind::Newborn,
            "was restarted, emptied, demoted or promoted; repeating the handshake",
        ))
    }

    /// The server answered with a malformed reply: it may have carried out the call.
    fn malformed(&mut self) -> CallError {
        self.watch.note_unknown();
        CallError::Unknown(self.reporter.garbage())
    }
}

/// How often a server is checked, and how old the last check may be before scripts compare the
/// replication id themselves.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Waiters refresh their tickets more often than this.
const WANTED: Duration = Duration::from_secs(2);

/// Decides when one server is to be checked.
#[derive(Debug)]
pub(super) struct ServerWatch {
    /// An upper bound of the holders that we wrote there and did not release.
    held: u64,
    /// When the last of their leases ends.
    held_until: Timestamp,
    /// Until when a client of ours may want a lock there.
    wanted: Option<Timestamp>,
    /// When the last answered check or handshake was sent.
    seen: Timestamp,
    /// When the last check was sent.
    sent: Timestamp,
    in_flight: bool,
}

impl ServerWatch {
    pub(super) fn new() -> Self {
        Self {
            held: 0,
            held_until: Timestamp::ZERO,
            wanted: None,
            seen: Timestamp::ZERO,
            sent: Timestamp::ZERO,
            in_flight: false,
        }
    }

    /// A new session has done its handshake. The server was examined after `sent`.
    pub(super) fn begin(&mut self, sent: Timestamp) {
        (self.seen, self.sent, self.in_flight) = (sent, sent, false);
    }

    /// Notes that `request` is sent at `now`.
    pub(super) fn note(&mut self, request: &Request, now: Timestamp) {
        let facts = request.op.facts();
        if matches!(facts.act, Act::Wait | Act::Latch) {
            self.wanted = Some(now + WANTED);
        }
        if let Some(lease_ms) = facts.lease_ms {
            self.held_until = self.held_until.max(now + Duration::from_millis(lease_ms));
        }
    }

    /// Notes an answer of the server.
    pub(super) fn note_answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Granted | Answer::Restored => self.held += 1,
            Answer::Permit(permit) if *permit.answer == Answer::Granted => self.held += 1,
            // Another process acquired it.
            Answer::Extended => self.held = self.held.max(1),
            Answer::Released => self.held = self.held.saturating_sub(1),
            _ => {}
        }
    }

    /// Notes a call with an unknown outcome: it may have written a holder.
    pub(super) fn note_unknown(&mut self) {
        self.held = self.held.saturating_add(1);
    }

    /// Whether locks may be held or wanted, as of the last call of [`ServerWatch::is_due`].
    pub(super) fn is_on(&self) -> bool {
        self.held > 0 || self.wanted.is_some()
    }

    /// Whether a check is to be sent now.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.held_until <= now {
            self.held = 0;
        }
        self.wanted = self.wanted.filter(|until| *until > now);
        self.is_on() && !self.in_flight && now >= self.sent + LOOK_INTERVAL
    }

    /// Notes that a check was sent.
    pub(super) fn look(&mut self, now: Timestamp) {
        (self.sent, self.in_flight) = (now, true);
    }

    /// Notes that the check found the server unchanged.
    pub(super) fn note_unchanged(&mut self) {
        (self.seen, self.in_flight) = (self.sent, false);
    }

    /// Whether the last check is so old that scripts must compare the replication id themselves.
    pub(super) fn is_unseen(&self, now: Timestamp) -> bool {
        now >= self.seen + LOOK_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::ledger::Rules;
    use crate::ledger::birth::Incarnation;
    use crate::message::{Op, PlainAcquire, Refresh};
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn request(op: Op) -> Request {
        Request {
            claims: [].into(),
            token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
            op,
        }
    }

    #[test]
    fn a_server_is_checked_once_a_second_while_a_lock_is_held() {
        let mut watch = ServerWatch::new();
        watch.begin(at(10));
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        assert!(!watch.is_due(at(20)), "nothing is held yet");
        watch.note_answer(&Answer::Granted);
        assert!(!watch.is_due(at(10)) && watch.is_due(at(11)));
        watch.look(at(11));
        assert!(!watch.is_due(at(13)), "one at a time");
        assert!(watch.is_unseen(at(11)), "it has not been answered");
        watch.note_unchanged();
        assert!(!watch.is_unseen(at(11)) && watch.is_unseen(at(12)));
        assert!(watch.is_due(at(12)));
        watch.note_answer(&Answer::Released);
        assert!(!watch.is_due(at(12)), "nothing is held any more");
    }

    #[test]
    fn a_server_is_not_checked_for_a_lease_that_has_ended() {
        let mut watch = ServerWatch::new();
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        watch.note_unknown();
        assert!(watch.is_due(at(39)) && !watch.is_due(at(40)));
        watch.note(
            &request(Op::Refresh(Refresh { tickets: [].into() })),
            at(50),
        );
        assert!(watch.is_due(at(51)) && !watch.is_due(at(52)));
    }

    #[test]
    fn the_replication_id_is_compared_on_replicated_and_on_unchecked_servers() {
        for (id, replicated, unseen, compared) in [
            (Some("e1"), false, false, false),
            (Some("e1"), true, false, true),
            (Some("e1"), false, true, true),
            (None, true, true, false),
        ] {
            let mut membership = Membership {
                terms: ScriptTerms::new("born", Rules::of_group(&Group::new(3))),
                image: Image {
                    server: Incarnation {
                        run_id: "ab".to_owned(),
                        replication_id: id.map(str::to_owned),
                        database: 0,
                        epoch: None,
                        replicated,
                        durable: false,
                    },
                    evicts: false,
                },
                alone: false,
                seen_at: Timestamp::ZERO,
                standing: Standing::default(),
                read_at: Timestamp::ZERO,
            };
            membership.compare(unseen, Timestamp::ZERO);
            assert_eq!(
                membership.terms.compare, compared,
                "{id:?} {replicated} {unseen}"
            );
        }
    }
}
