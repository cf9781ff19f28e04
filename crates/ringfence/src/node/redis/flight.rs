//! Calls that have been sent and not been answered yet. Replies come in the order of the requests,
//! so a batch is answered from the front.

use std::collections::VecDeque;

use redis::{Pipeline, RedisError, RedisResult, ServerError, Value};

use crate::message::{Answer, Reply, Stamp};
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::bundle::{self, BundleSaid, Parcel, Sort};
use super::command::By;
use super::handshake::Membership;
use super::line::Line;
use super::reply::{self, Misshapen, Said};
use super::report::Reporter;
use super::watch::Watch;

/// Batches under way at once. What comes in meanwhile goes into one larger batch, and the client
/// library's own queue (50) never fills, which would let requests overtake each other.
const BATCHES_MAX: usize = 16;

/// See the module.
pub(super) struct Flight {
    batches: VecDeque<Batch>,
    /// When a reply last came, or a request was sent while none was outstanding.
    progress: Timestamp,
    /// How many calls the batch had that landed last.
    crowd: usize,
}

/// What was sent at once.
#[derive(Debug)]
struct Batch {
    parcels: Vec<Parcel>,
    by: By,
    /// Whether it is a look at the server.
    look: bool,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct Landing {
    /// Whose script the server did not have: to be sent again in full, each as it was. Packed anew,
    /// what a bundle had left alone could end up in a bundle again, and so on for ever.
    pub(super) unscripted: Vec<Parcel>,
    /// Calls of a bundle that was not for them, and left them alone: to be sent again, each by itself.
    pub(super) unusual: Vec<Call>,
    /// The node has another birth record than the one we know.
    pub(super) newborn: bool,
    /// What a look at the server gave.
    pub(super) look: Option<Vec<Value>>,
}

impl Flight {
    pub(super) fn new() -> Self {
        Self {
            batches: VecDeque::new(),
            progress: Timestamp::ZERO,
            crowd: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// How many callers were answered at once the last time.
    pub(super) fn crowd(&self) -> usize {
        self.crowd
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < BATCHES_MAX
    }

    /// When the last sign of life was, if one is being waited for.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.progress)
    }

    /// Sends `parcels` as one batch.
    pub(super) fn send(
        &mut self,
        parcels: Vec<Parcel>,
        line: &mut Line,
        membership: &Membership,
        by: By,
        now: Timestamp,
    ) {
        if parcels.is_empty() {
            return;
        }
        line.send_parcels(&parcels, &membership.terms, by);
        let look = false;
        self.push(Batch { parcels, by, look }, now);
    }

    /// Asks `questions` about the server.
    pub(super) fn look(&mut self, questions: Pipeline, line: &mut Line, now: Timestamp) {
        line.send(questions);
        let (parcels, by, look) = (Vec::new(), By::Text, true);
        self.push(Batch { parcels, by, look }, now);
    }

    /// `batch` has been sent.
    fn push(&mut self, batch: Batch, now: Timestamp) {
        if self.is_empty() {
            self.progress = now;
        }
        self.batches.push_back(batch);
    }

    /// Has what is said on `channels` pushed to us. What the server says to that concerns nobody: one
    /// that forbids it gives no wakes, and those who wait look for themselves.
    pub(super) fn subscribe(&mut self, channels: &[String], line: &mut Line, now: Timestamp) {
        let mut pipe = redis::pipe();
        for channel in channels {
            pipe.cmd("SUBSCRIBE").arg(channel);
        }
        line.send(pipe);
        let (parcels, by, look) = (Vec::new(), By::Text, false);
        self.push(Batch { parcels, by, look }, now);
    }

    /// Completes the calls of the oldest batch with what the line gave.
    ///
    /// # Errors
    /// If the connection is of no more use; then nothing has been completed.
    pub(super) fn land(
        &mut self,
        answers: RedisResult<Vec<Value>>,
        membership: &mut Membership,
        watch: &mut Watch,
        reporter: &Reporter,
        now: Timestamp,
    ) -> Result<Landing, RedisError> {
        self.progress = now;
        // On an error the batch still stands at the front: `abandon` answers it with the others.
        let answers = answers?;
        let mut landing = Landing::default();
        let Some(Batch { parcels, by, look }) = self.batches.pop_front() else {
            return Ok(landing);
        };
        if look {
            landing.look = Some(answers);
            return Ok(landing);
        }
        self.crowd = parcels.iter().map(|parcel| parcel.calls().len()).sum();
        let mut ground = Ground {
            membership,
            watch,
            reporter,
            now,
            by,
            landing: &mut landing,
        };
        let mut answers = answers.into_iter();
        for parcel in parcels {
            // A missing answer is as misshapen as a wrong one.
            let answer = answers.next().unwrap_or(Value::Boolean(false));
            match parcel {
                Parcel::Alone(call) => ground.take(call, answer),
                Parcel::Bundle(sort, calls) => ground.take_bundle(sort, calls, answer),
            }
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
    pub(super) fn abandon(&mut self, trouble: &Trouble, watch: &mut Watch) {
        let parcels = self.batches.drain(..).flat_map(|batch| batch.parcels);
        for call in parcels.flat_map(Parcel::into_calls) {
            watch.miss();
            call.done.complete(Err(CallError::Unknown(trouble.clone())));
        }
    }
}

/// Where a batch lands.
struct Ground<'a> {
    membership: &'a mut Membership,
    watch: &'a mut Watch,
    reporter: &'a Reporter,
    now: Timestamp,
    /// How the scripts of the batch were named.
    by: By,
    landing: &'a mut Landing,
}

impl Ground<'_> {
    /// Completes `call`, unless it must be sent again.
    fn take(&mut self, call: Call, answer: Value) {
        let outcome = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                self.landing.unscripted.push(Parcel::Alone(call));
                return;
            }
            Value::ServerError(error) if is_newborn(&error) => Err(self.newborn()),
            Value::ServerError(error) => Err(self.reporter.refusal(&error, &call.request)),
            answer => match reply::read(&call.request, answer) {
                Ok(Said::Answer(answer, stamp)) => Ok(self.reply(answer, stamp)),
                Ok(Said::Newborn) => Err(self.newborn()),
                Err(Misshapen) => Err(self.misshapen()),
            },
        };
        call.done.complete(outcome);
    }

    /// Completes the calls of a bundle, those aside that must be sent again.
    fn take_bundle(&mut self, sort: Sort, calls: Vec<Call>, answer: Value) {
        let error = match answer {
            Value::ServerError(error) if self.lacks_script(&error) => {
                let parcel = Parcel::Bundle(sort, calls);
                self.landing.unscripted.push(parcel);
                return;
            }
            Value::ServerError(error) if is_newborn(&error) => self.newborn(),
            // Whose fault it was only each by itself can tell. What the bundle may have done before it
            // broke off does no harm: a token that holds under the same ballot is granted again, and
            // nothing is deleted before all the rest is done.
            Value::ServerError(_) => {
                self.landing.unusual.extend(calls);
                return;
            }
            answer => match bundle::read(sort, calls.iter().map(|call| &*call.request), answer) {
                Ok(BundleSaid::Answers(answers)) => {
                    for (call, answer) in calls.into_iter().zip(answers) {
                        match answer {
                            Some((answer, stamp)) => {
                                call.done.complete(Ok(self.reply(answer, stamp)));
                            }
                            None => self.landing.unusual.push(call),
                        }
                    }
                    return;
                }
                Ok(BundleSaid::Newborn) => self.newborn(),
                Err(Misshapen) => self.misshapen(),
            },
        };
        for call in calls {
            call.done.complete(Err(error.clone()));
        }
    }

    /// Whoever was sent the script itself cannot lack it, whatever it says.
    fn lacks_script(&self, error: &ServerError) -> bool {
        self.by == By::Hash && error.code() == "NOSCRIPT"
    }

    fn reply(&mut self, answer: Answer, stamp: Option<Stamp>) -> Reply {
        if let Some(stamp) = stamp {
            self.membership.hear(stamp.clock_us, self.now);
        }
        self.watch.hear(&answer);
        Reply {
            stamp,
            standing: self.membership.standing(self.now),
            answer,
        }
    }

    fn newborn(&mut self) -> CallError {
        self.landing.newborn = true;
        CallError::Refused(self.reporter.trouble(
            TroubleKind::Newborn,
            "was restarted, emptied, demoted or promoted; shaking hands again",
        ))
    }

    /// It said something: it may well have done something.
    fn misshapen(&mut self) -> CallError {
        self.watch.miss();
        CallError::Unknown(self.reporter.garbage())
    }
}

/// Whether the server says that it is not the master that we shook hands with: it has become a replica,
/// or is reading other data. Then it has done nothing. Servers before 7.0 say it in the words of an
/// error in a script.
fn is_newborn(error: &ServerError) -> bool {
    match error.code() {
        "READONLY" | "MASTERDOWN" | "LOADING" => true,
        "ERR" => error
            .details()
            .is_some_and(|text| text.contains("user_script") && text.contains("-READONLY ")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_no_master_any_more_is_shaken_hands_with_again() {
        for (said, newborn) in [
            (
                "READONLY You can't write against a read only replica.",
                true,
            ),
            ("MASTERDOWN Link with MASTER is down", true),
            ("LOADING Redis is loading the dataset in memory", true),
            (
                "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write",
                true,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:5: a mistake",
                false,
            ),
            ("OOM command not allowed", false),
            ("NOSCRIPT No matching script", false),
        ] {
            let error = redis::parse_redis_value(format!("-{said}\r\n").as_bytes());
            let Ok(Value::ServerError(error)) = error else {
                panic!("{error:?}");
            };
            assert_eq!(is_newborn(&error), newborn, "{said}");
        }
    }
}
