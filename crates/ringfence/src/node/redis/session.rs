//! One connection after its handshake: the calls in flight over it, and what is known of the
//! server.

mod server_watch;

use std::collections::VecDeque;

use redis::{Pipeline, RedisError, RedisResult, ServerError, Value};

use crate::ledger::Rules;
use crate::message::{Answer, Reply, ReplyStamp, Standing};
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::command::{Command, ScriptForm};
use super::handshake::image::Image;
use super::reply::{self, MalformedReply, ScriptReply};
use super::report::{Reporter, is_newborn};
use super::terms::ScriptTerms;
use super::transport::connection::Connection;

pub(super) use server_watch::{LOOK_INTERVAL, ServerWatch};

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
        connection.send_commands(&commands, &membership.terms, by);
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
pub(super) struct BatchReplies<'a> {
    membership: &'a mut Membership,
    watch: &'a mut ServerWatch,
    reporter: &'a Reporter,
    now: Timestamp,
    /// How the scripts of the batch were named.
    by: ScriptForm,
    pub(super) outcome: &'a mut BatchOutcome,
}

impl BatchReplies<'_> {
    /// Completes `call`, unless it must be resent.
    fn take(&mut self, call: Call, answer: Value) {
        let outcome = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                self.outcome.unscripted.push(Command::Single(call));
                return;
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

    /// The constants of the group.
    pub(super) fn rules(&self) -> &Rules {
        &self.membership.terms.rules
    }

    /// A server that was sent the full script cannot lack it, even if it reports so.
    pub(super) fn lacks_script(&self, error: &ServerError) -> bool {
        self.by == ScriptForm::Hash && error.code() == "NOSCRIPT"
    }

    pub(super) fn reply(&mut self, answer: Answer, stamp: Option<ReplyStamp>) -> Reply {
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

    pub(super) fn newborn(&mut self) -> CallError {
        self.outcome.newborn = true;
        CallError::Refused(self.reporter.trouble(
            TroubleKind::Newborn,
            "was restarted, emptied, demoted or promoted; repeating the handshake",
        ))
    }

    /// The server answered with a malformed reply: it may have carried out the call.
    pub(super) fn malformed(&mut self) -> CallError {
        self.watch.note_unknown();
        CallError::Unknown(self.reporter.garbage())
    }
}

#[cfg(test)]
mod tests;
