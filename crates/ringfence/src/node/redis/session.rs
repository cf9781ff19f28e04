//! One connection after its handshake: the calls under way over it, and what is known of the server
//! meanwhile.
//!
//! Between two handshakes an operator may change what the server is: master or replica, under which
//! replication id, whether it may evict locks, whether it keeps them over a crash. So it is looked at
//! once a second, while something of ours may be held or wanted there.

use std::collections::VecDeque;
use std::time::Duration;

use redis::{Pipeline, RedisError, RedisResult, ServerError, Value};

use crate::message::{
    Acquire, AcquireSlot, Answer, Downgrade, Extend, Op, PlainAcquire, PlainExtend, Reply, Request,
    Restore, Stamp, Standing,
};
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::command::{Command, ScriptBy, ScriptTerms};
use super::handshake::image::Image;
use super::reply::{self, Misshapen, ScriptReply};
use super::report::{Reporter, is_newborn};
use super::transport::connection::Connection;

/// How often a server is looked at, and how old the last look may be before scripts look for themselves.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Those who wait are shown to the server more often than this.
const WANTED: Duration = Duration::from_secs(2);
/// Batches under way at once. What comes in meanwhile goes into one larger batch, and the client
/// library's own queue (50) never fills, which would let requests overtake each other.
const BATCHES_MAX: usize = 16;

/// See the module.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// Or why no call may be sent: no group is known, or the node belongs to another.
    pub(super) membership: Result<Membership, Trouble>,
    /// How many of those who listen are subscribed to.
    pub(super) listening: usize,
}

/// A node that may be sent calls.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    /// What every lock operation tells the node.
    pub(super) terms: ScriptTerms,
    /// What the server must still be, for the membership to count.
    pub(super) image: Image,
    /// When the handshake began to look at the server.
    pub(super) seen_at: Timestamp,
    /// The incarnation that answers under these terms.
    pub(super) standing: Standing,
    /// When `standing.clock_us` was read, on our clock.
    pub(super) read_at: Timestamp,
}

impl Membership {
    /// The standing at `now`, with the node's clock carried on from when it was last heard.
    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        let elapsed = now.as_micros().saturating_sub(self.read_at.as_micros());
        Standing {
            clock_us: self.standing.clock_us.saturating_add(elapsed),
            ..self.standing
        }
    }

    /// Whether scripts that write a holder compare the replication id: always on a server that is
    /// known to be replicated, else if nobody has looked at it lately. Some servers do not tell theirs.
    pub(super) fn compare(&mut self, unseen: bool) {
        let server = &self.image.server;
        self.terms.compare = server.replication_id.is_some() && (server.replicated || unseen);
    }
}

/// Calls that have been sent and not been answered yet.
#[derive(Default)]
pub(super) struct InFlight {
    batches: VecDeque<Batch>,
    /// When a reply last came, or a request was sent while none was outstanding.
    progress: Option<Timestamp>,
    /// How many callers were answered at once the last time.
    pub(super) crowd: usize,
}

/// What was sent at once.
#[derive(Debug)]
struct Batch {
    commands: Vec<Command>,
    by: ScriptBy,
    /// Whether it is a look at the server.
    look: bool,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchOutcome {
    /// Whose script the server did not have: to be sent again in full, each as it was. Packed anew,
    /// what a bundle had left alone could end up in a bundle again, and so on for ever.
    pub(super) unscripted: Vec<Command>,
    /// Calls of a bundle that was not for them, and left them alone: to be sent again, each by itself.
    pub(super) unusual: Vec<Call>,
    /// The node has another birth record than the one we know.
    pub(super) newborn: bool,
    /// What a look at the server gave.
    pub(super) look: Option<Vec<Value>>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < BATCHES_MAX
    }

    /// When the last sign of life was, if one is being waited for.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        self.progress.filter(|_| !self.is_empty())
    }

    /// Sends `commands` as one batch.
    pub(super) fn send(
        &mut self,
        commands: Vec<Command>,
        connection: &mut Connection,
        membership: &Membership,
        by: ScriptBy,
        now: Timestamp,
    ) {
        if commands.is_empty() {
            return;
        }
        connection.send_commands(&commands, &membership.terms, by);
        let look = false;
        self.push(Batch { commands, by, look }, now);
    }

    /// `batch` has been sent.
    fn push(&mut self, batch: Batch, now: Timestamp) {
        if self.is_empty() {
            self.progress = Some(now);
        }
        self.batches.push_back(batch);
    }

    /// Sends `questions` of our own: about the server if it is a `look`, else a subscription. What the
    /// server says to that concerns nobody: one that forbids it gives no wakes, and those who wait look
    /// for themselves.
    pub(super) fn ask(
        &mut self,
        questions: Pipeline,
        look: bool,
        connection: &mut Connection,
        now: Timestamp,
    ) {
        connection.send(questions);
        let (commands, by) = (Vec::new(), ScriptBy::Text);
        self.push(Batch { commands, by, look }, now);
    }

    /// Completes the calls of the oldest batch with what the connection gave.
    ///
    /// # Errors
    /// If the connection is of no more use; then nothing has been completed.
    pub(super) fn land(
        &mut self,
        answers: RedisResult<Vec<Value>>,
        membership: &mut Membership,
        watch: &mut ServerWatch,
        reporter: &Reporter,
        now: Timestamp,
    ) -> Result<BatchOutcome, RedisError> {
        self.progress = Some(now);
        // On an error the batch still stands at the front: `abandon` answers it with the others.
        let answers = answers?;
        let mut outcome = BatchOutcome::default();
        let Some(Batch { commands, by, look }) = self.batches.pop_front() else {
            return Ok(outcome);
        };
        if look {
            outcome.look = Some(answers);
            return Ok(outcome);
        }
        self.crowd = commands.iter().map(|command| command.calls().len()).sum();
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
            // A missing answer is as misshapen as a wrong one.
            let answer = answers.next().unwrap_or(Value::Boolean(false));
            match command {
                Command::Alone(call) => replies.take(call, answer),
                Command::Bundle(kind, calls) => replies.take_bundle(kind, calls, answer),
            }
        }
        Ok(outcome)
    }

    /// Takes note that a batch that nobody waits for was answered.
    pub(super) fn discard(&mut self, now: Timestamp) {
        self.progress = Some(now);
        self.batches.pop_front();
    }

    /// The connection is gone: nobody knows what has been carried out.
    pub(super) fn abandon(&mut self, trouble: &Trouble, watch: &mut ServerWatch) {
        let commands = self.batches.drain(..).flat_map(|batch| batch.commands);
        for call in commands.flat_map(Command::into_calls) {
            watch.miss();
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
    by: ScriptBy,
    pub(super) outcome: &'a mut BatchOutcome,
}

impl BatchReplies<'_> {
    /// Completes `call`, unless it must be sent again.
    fn take(&mut self, call: Call, answer: Value) {
        let outcome = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                self.outcome.unscripted.push(Command::Alone(call));
                return;
            }
            Value::ServerError(error) if is_newborn(&error) => Err(self.newborn()),
            Value::ServerError(error) => Err(self.reporter.refusal(&error, &call.request)),
            answer => match reply::read(&call.request, answer) {
                Ok(ScriptReply::Answer(answer, stamp)) => Ok(self.reply(answer, stamp)),
                Ok(ScriptReply::Newborn) => Err(self.newborn()),
                Err(Misshapen) => Err(self.misshapen()),
            },
        };
        call.done.complete(outcome);
    }

    /// Whoever was sent the script itself cannot lack it, whatever it says.
    pub(super) fn lacks_script(&self, error: &ServerError) -> bool {
        self.by == ScriptBy::Hash && error.code() == "NOSCRIPT"
    }

    pub(super) fn reply(&mut self, answer: Answer, stamp: Option<Stamp>) -> Reply {
        if let Some(stamp) = stamp {
            self.membership.standing.clock_us = stamp.clock_us;
            self.membership.read_at = self.now;
        }
        self.watch.hear(&answer);
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
            "was restarted, emptied, demoted or promoted; shaking hands again",
        ))
    }

    /// It said something: it may well have done something.
    pub(super) fn misshapen(&mut self) -> CallError {
        self.watch.miss();
        CallError::Unknown(self.reporter.garbage())
    }
}

/// Whether one server is to be looked at.
#[derive(Debug)]
pub(super) struct ServerWatch {
    /// How many holders were written there and not taken away again: at least as many as there are.
    held: u64,
    /// When the last of them ends.
    held_until: Timestamp,
    /// Until when somebody may want something there.
    wanted: Option<Timestamp>,
    /// When the last look or handshake was sent that has been answered.
    seen: Timestamp,
    /// When the last look was sent.
    sent: Timestamp,
    under_way: bool,
}

impl ServerWatch {
    pub(super) fn new() -> Self {
        Self {
            held: 0,
            held_until: Timestamp::ZERO,
            wanted: None,
            seen: Timestamp::ZERO,
            sent: Timestamp::ZERO,
            under_way: false,
        }
    }

    /// Hands were shaken over a new session. What was seen of the server was seen after `sent`.
    pub(super) fn begin(&mut self, sent: Timestamp) {
        (self.seen, self.sent, self.under_way) = (sent, sent, false);
    }

    /// `request` goes out at `now`.
    pub(super) fn note(&mut self, request: &Request, now: Timestamp) {
        let lease_ms = match &request.op {
            Op::Acquire(Acquire { ttl_ms, .. })
            | Op::AcquireSlot(AcquireSlot {
                acquire: Acquire { ttl_ms, .. },
                ..
            })
            | Op::Extend(Extend { ttl_ms, .. })
            | Op::Downgrade(Downgrade { ttl_ms, .. })
            | Op::Restore(Restore { ttl_ms, .. })
            | Op::PlainAcquire(PlainAcquire { ttl_ms })
            | Op::PlainExtend(PlainExtend { ttl_ms }) => *ttl_ms,
            Op::Refresh { .. }
            | Op::RefreshSlots { .. }
            | Op::Arrive { .. }
            | Op::Attend { .. } => {
                self.wanted = Some(now + WANTED);
                return;
            }
            Op::Release { .. } | Op::ReleaseSlot { .. } | Op::PlainRelease | Op::Inspect => return,
        };
        self.held_until = self.held_until.max(now + Duration::from_millis(lease_ms));
    }

    /// The server answered so.
    pub(super) fn hear(&mut self, answer: &Answer) {
        match answer {
            Answer::Granted | Answer::Restored => self.held += 1,
            Answer::Permit(permit) if *permit.answer == Answer::Granted => self.held += 1,
            // Another process acquired it.
            Answer::Extended => self.held = self.held.max(1),
            Answer::Released => self.held = self.held.saturating_sub(1),
            _ => {}
        }
    }

    /// Nobody knows what became of a call: it may have written a holder.
    pub(super) fn miss(&mut self) {
        self.held = self.held.saturating_add(1);
    }

    /// Whether something may be held or wanted, as far as was known when it was last settled.
    pub(super) fn is_on(&self) -> bool {
        self.held > 0 || self.wanted.is_some()
    }

    /// Whether a look is to be sent now.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.held_until <= now {
            self.held = 0;
        }
        self.wanted = self.wanted.filter(|until| *until > now);
        self.is_on() && !self.under_way && now >= self.sent + LOOK_INTERVAL
    }

    /// A look was sent.
    pub(super) fn look(&mut self, now: Timestamp) {
        (self.sent, self.under_way) = (now, true);
    }

    /// The look that was sent found everything as it was.
    pub(super) fn is_unchanged(&mut self) {
        (self.seen, self.under_way) = (self.sent, false);
    }

    /// Whether the server has not been seen for so long that scripts must look for themselves.
    pub(super) fn is_unseen(&self, now: Timestamp) -> bool {
        now >= self.seen + LOOK_INTERVAL
    }
}

#[cfg(test)]
mod tests;
