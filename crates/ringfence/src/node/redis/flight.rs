//! Calls that have been sent and not been answered yet. Replies come in the order of the requests,
//! so a batch is answered from the front.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};

use crate::message::Reply;
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::command::{By, command};
use super::handshake::Membership;
use super::reply::{self, Misshapen, Said};
use super::report::Reporter;

/// Batches under way at once. What comes in meanwhile goes into one larger batch, and the client
/// library's own queue (50) never fills, which would let requests overtake each other.
const BATCHES_MAX: usize = 16;

type Answers = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// See the module.
pub(super) struct Flight {
    batches: VecDeque<Vec<Call>>,
    /// Never dropped before they complete, as long as the connection is of use: the library does not
    /// send a queued request whose future is gone.
    answers: FuturesOrdered<Answers>,
    /// When a reply last came, or a request was sent while none was outstanding.
    progress: Timestamp,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct Landing {
    /// Calls whose script the server did not have: to be sent again in full.
    pub(super) unscripted: Vec<Call>,
    /// The node has another birth record than the one we know.
    pub(super) newborn: bool,
}

impl Flight {
    pub(super) fn new() -> Self {
        Self {
            batches: VecDeque::new(),
            answers: FuturesOrdered::new(),
            progress: Timestamp::ZERO,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < BATCHES_MAX
    }

    /// When the last sign of life was, if one is being waited for.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.progress)
    }

    /// Sends `calls` as one batch.
    pub(super) fn send(
        &mut self,
        calls: Vec<Call>,
        connection: &MultiplexedConnection,
        membership: &Membership,
        by: By,
        now: Timestamp,
    ) {
        if calls.is_empty() {
            return;
        }
        let mut pipe = redis::Pipeline::with_capacity(calls.len());
        for call in &calls {
            pipe.add_command(command(&call.request, &membership.terms, by));
        }
        self.push(calls, pipe, connection, now);
    }

    /// Sends `pipe`, whose answers are for `calls`.
    fn push(
        &mut self,
        calls: Vec<Call>,
        pipe: redis::Pipeline,
        connection: &MultiplexedConnection,
        now: Timestamp,
    ) {
        if self.is_empty() {
            self.progress = now;
        }
        let (mut connection, count) = (connection.clone(), pipe.len());
        self.batches.push_back(calls);
        self.answers.push_back(Box::pin(async move {
            connection.send_packed_commands(&pipe, 0, count).await
        }));
    }

    /// Has what is said on `channels` pushed to us. What the server says to that concerns nobody: one
    /// that forbids it gives no wakes, and those who wait look for themselves.
    pub(super) fn subscribe(
        &mut self,
        channels: &[String],
        connection: &MultiplexedConnection,
        now: Timestamp,
    ) {
        let mut pipe = redis::pipe();
        for channel in channels {
            pipe.cmd("SUBSCRIBE").arg(channel);
        }
        self.push(Vec::new(), pipe, connection, now);
    }

    /// The answers to the oldest batch. Never comes if there is none; safe to cancel.
    pub(super) async fn next(&mut self) -> RedisResult<Vec<Value>> {
        match self.answers.next().await {
            Some(answers) => answers,
            None => std::future::pending().await,
        }
    }

    /// Completes the calls of the oldest batch with what [`Flight::next`] gave.
    ///
    /// # Errors
    /// If the connection is of no more use; then nothing has been completed.
    pub(super) fn land(
        &mut self,
        answers: RedisResult<Vec<Value>>,
        membership: &mut Membership,
        reporter: &Reporter,
        now: Timestamp,
    ) -> Result<Landing, RedisError> {
        self.progress = now;
        // On an error the batch still stands at the front: `abandon` answers it with the others.
        let answers = answers?;
        let calls = self.batches.pop_front().unwrap_or_default();
        let mut landing = Landing::default();
        let mut answers = answers.into_iter();
        for call in calls {
            // A missing answer is as misshapen as a wrong one.
            let answer = answers.next().unwrap_or(Value::Boolean(false));
            land_one(call, answer, membership, reporter, now, &mut landing);
        }
        Ok(landing)
    }

    /// Takes note of the answers to a batch that nobody waits for. The error, if the connection is of
    /// no more use.
    pub(super) fn discard(
        &mut self,
        answers: RedisResult<Vec<Value>>,
        now: Timestamp,
    ) -> Option<RedisError> {
        self.progress = now;
        let lost = answers.err();
        if lost.is_none() {
            self.batches.pop_front();
        }
        lost
    }

    /// The connection is gone: nobody knows what has been carried out.
    pub(super) fn abandon(&mut self, trouble: &Trouble) {
        self.answers = FuturesOrdered::new();
        for call in self.batches.drain(..).flatten() {
            call.done.complete(Err(CallError::Unknown(trouble.clone())));
        }
    }
}

fn land_one(
    call: Call,
    answer: Value,
    membership: &mut Membership,
    reporter: &Reporter,
    now: Timestamp,
    landing: &mut Landing,
) {
    let outcome = match answer {
        Value::ServerError(error) if error.code() == "NOSCRIPT" => {
            landing.unscripted.push(call);
            return;
        }
        Value::ServerError(error) => Err(reporter.refusal(&error, &call.request)),
        answer => match reply::read(&call.request, answer) {
            Ok(Said::Answer(answer, stamp)) => {
                if let Some(stamp) = stamp {
                    membership.hear(stamp.clock_us, now);
                }
                Ok(Reply {
                    stamp,
                    standing: membership.standing(now),
                    answer,
                })
            }
            Ok(Said::Newborn) => {
                landing.newborn = true;
                Err(CallError::Refused(reporter.trouble(
                    TroubleKind::Newborn,
                    "was restarted or emptied; shaking hands again",
                )))
            }
            // It said something: it may well have done something.
            Err(Misshapen) => Err(CallError::Unknown(reporter.garbage())),
        },
    };
    call.done.complete(outcome);
}
