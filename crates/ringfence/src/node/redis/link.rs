//! What goes on with one node for as long as somebody may want it: connects, shakes hands, sends what is
//! wanted and answers it, and begins anew when the connection is lost. Everything that is pending goes
//! out as one batch.

mod connecting;
mod flushing;
mod watching;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use crate::clock::Clock;
use crate::message::Op;
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::bundle;
use super::command::{Command, ScriptBy};
use super::last_words::LastWords;
use super::queue::{BATCH_MAX, Control, Work, WorkQueue};
use super::reply::longest_reply;
use super::session::{InFlight, LOOK_INTERVAL, ServerWatch, Session};
use super::session_maker::SessionMaker;
use super::transport::backoff::Backoff;
use super::transport::connection_set::FlushFlag;
use super::transport::limits::BATCH_MAX_MEMORY;

/// How often it is looked whether a server is silent.
const TICK: Duration = Duration::from_millis(100);
/// How often other tasks are let run before a batch is sent, where there are several callers: once is
/// not enough for those who run in another thread. And for how long at most, where they take their time.
const GATHERINGS: usize = 6;
const GATHER_MAX: Duration = Duration::from_micros(200);

/// See the module.
pub(super) struct Link {
    maker: SessionMaker,
    queue: WorkQueue,
    backoff: Backoff,
    watch: ServerWatch,
    flush: Arc<FlushFlag>,
    /// Where the connection is left when the runtime ends.
    last_words: Arc<Mutex<Option<LastWords>>>,
}

/// Why a session stopped taking calls.
enum End {
    /// The connection is of no more use.
    Lost(Trouble),
    /// Hands must be shaken again: the node has forgotten its past, or our user could only look. The
    /// connection is fine.
    Newborn,
    /// Something is wanted of the node itself, when nothing else is under way.
    Control(Control),
    /// Nobody wants anything any more.
    Closed,
    /// The runtime ends; until when replies may be waited for.
    RuntimeEnds(Timestamp),
}

impl Link {
    pub(super) fn new(
        maker: SessionMaker,
        queue: WorkQueue,
        seed: u64,
        flush: Arc<FlushFlag>,
        last_words: Arc<Mutex<Option<LastWords>>>,
    ) -> Self {
        Self {
            maker,
            queue,
            backoff: Backoff::new(seed),
            watch: ServerWatch::new(),
            flush,
            last_words,
        }
    }

    /// Runs until nobody is left who could send anything, and all that was sent is answered.
    pub(super) async fn run(mut self) {
        let mut kept = None;
        // What stood in the way of the last attempt; while there is such a thing, no call waits.
        let mut trouble = None;
        loop {
            let began = self.clock().now();
            let Some(session) = self.establish(kept.take(), trouble.as_ref()).await else {
                return;
            };
            let failure = match session {
                Ok(mut session) => {
                    trouble = None;
                    match self.serve(&mut session).await {
                        End::Newborn => {
                            kept = Some(session.connection);
                            continue;
                        }
                        End::Lost(trouble) => CallError::NotSent(trouble),
                        End::RuntimeEnds(until) => return self.leave(session, until),
                        End::Closed | End::Control(_) => return,
                    }
                }
                Err(failure) => {
                    trouble = Some(failure.trouble().clone());
                    failure
                }
            };
            tracing::debug!(target: "ringfence", node = %self.maker.handshake.reporter.node, "{failure}");
            let rest = self.rest(began, trouble.is_none(), &failure);
            // After a lost connection calls wait a moment for the next; after a failed attempt,
            // and while we rest, they are told.
            if (trouble.is_some() || !rest.is_zero())
                && !self.queue.refuse_during(rest, &failure).await
            {
                return;
            }
        }
    }

    fn clock(&self) -> &Clock {
        &self.maker.handshake.clock
    }

    /// Sends calls, and does in between what is wanted of the node itself.
    async fn serve(&mut self, session: &mut Session) -> End {
        loop {
            match self.attend(session).await {
                End::Control(control) => {
                    if let Some(end) = self.control(session, control).await {
                        return end;
                    }
                }
                end => return end,
            }
        }
    }

    /// Sends calls and completes them, until something else must be done; by then none is under way.
    async fn attend(&mut self, session: &mut Session) -> End {
        let mut in_flight = InFlight::default();
        let mut pending_end = None;
        let mut suspected = false;
        let (mut tick, mut look) = (every(TICK), every(LOOK_INTERVAL));
        if let Ok(membership) = &session.membership {
            self.watch.begin(membership.seen_at);
        }
        self.subscribe(&mut in_flight, session);
        loop {
            if in_flight.is_empty()
                && let Some(end) = pending_end.take()
            {
                return end;
            }
            let lost = tokio::select! {
                biased;
                flush = self.flush.asked() => {
                    let end = self.write_now(flush, &mut in_flight, session, &mut pending_end);
                    match end.await {
                        Some(end) => return end,
                        None => None,
                    }
                }
                answers = session.connection.answers() => {
                    self.land(&mut in_flight, answers, session, &mut pending_end)
                }
                work = self.queue.next(), if pending_end.is_none() && in_flight.has_room() => {
                    if matches!(work, Some(Work::Call(_))) {
                        self.gather(&in_flight).await;
                    }
                    pending_end = self.take(work, &mut in_flight, session, &mut look);
                    None
                }
                _ = look.tick(), if self.watch.is_on() && pending_end.is_none() => {
                    self.look(&mut in_flight, session);
                    None
                }
                _ = tick.tick(), if !in_flight.is_empty() => {
                    // At two looks in a row: a process that was stopped finds the time over before
                    // it has read what arrived meanwhile.
                    let silence = self.silence(&in_flight);
                    let again = std::mem::replace(&mut suspected, silence.is_some());
                    silence.filter(|_| again)
                }
            };
            if let Some(trouble) = lost {
                in_flight.abandon(&trouble, &mut self.watch);
                return End::Lost(trouble);
            }
        }
    }

    /// Takes the next work. How the session ends, if it must.
    fn take(
        &mut self,
        work: Option<Work>,
        in_flight: &mut InFlight,
        session: &mut Session,
        look: &mut Interval,
    ) -> Option<End> {
        match work {
            None => Some(End::Closed),
            Some(Work::Control(control)) => Some(End::Control(control)),
            Some(Work::Listen) => {
                self.subscribe(in_flight, session);
                None
            }
            Some(Work::Call(call)) => {
                let end = self.send_all(call, in_flight, session, bundle::pack);
                // Behind the calls, so that it delays none of them.
                if self.look(in_flight, session) {
                    look.reset();
                }
                end
            }
        }
    }

    /// Looks at the server, if that is due. Whether it was.
    fn look(&mut self, in_flight: &mut InFlight, session: &mut Session) -> bool {
        let now = self.clock().now();
        let due = session.membership.is_ok() && in_flight.has_room() && self.watch.is_due(now);
        if due {
            self.look_now(in_flight, session, now);
        }
        due
    }

    /// Lets those call who are about to, for a moment. Several who were answered at once each call again
    /// as soon as they run, and one batch costs less than many.
    async fn gather(&self, in_flight: &InFlight) {
        if in_flight.crowd <= 1 {
            return;
        }
        let end = self.clock().now() + GATHER_MAX;
        for _ in 0..GATHERINGS {
            if self.flush.is_asked() {
                return;
            }
            tokio::task::yield_now().await;
            if self.clock().now() >= end {
                return;
            }
        }
    }

    /// Sends `first` and all the calls that wait behind it as one batch, as `pack` packs them. How the
    /// session ends, if it must.
    fn send_all(
        &mut self,
        first: Call,
        in_flight: &mut InFlight,
        session: &mut Session,
        pack: impl FnOnce(Vec<Call>) -> Vec<Command>,
    ) -> Option<End> {
        let now = self.clock().now();
        let (mut batch, mut replies) = (Vec::new(), 0);
        let mut end = None;
        let mut next = Some(first);
        while let Some(call) = next.take() {
            match self.unfit(&call, session, now) {
                Some(trouble) => {
                    // Our user may have been given the right meanwhile, or the node been met.
                    if trouble.kind == TroubleKind::Denied && session.connection.may_only_look() {
                        end = Some(End::Newborn);
                    }
                    call.done.complete(Err(CallError::NotSent(trouble)));
                }
                None => {
                    self.watch.note(&call.request, now);
                    replies += longest_reply(&call.request);
                    batch.push(call);
                }
            }
            // A server that sends more than its replies can be is cut off.
            if batch.len() < BATCH_MAX && replies < BATCH_MAX_MEMORY / 2 {
                match self.queue.try_next() {
                    Some(Work::Call(call)) => next = Some(call),
                    Some(other) => self.queue.put_back(other),
                    None => {}
                }
            }
        }
        if let Ok(membership) = &mut session.membership {
            membership.compare(self.watch.is_unseen(now));
            // A call by itself is in no bundle.
            let commands = match batch.len() {
                0 | 1 => batch.into_iter().map(Command::Alone).collect(),
                _ => pack(batch),
            };
            in_flight.send(
                commands,
                &mut session.connection,
                membership,
                ScriptBy::Hash,
                now,
            );
        }
        end
    }

    /// Why `call` must not be sent, if it must not.
    fn unfit(&self, call: &Call, session: &Session, now: Timestamp) -> Option<Trouble> {
        let reporter = &self.maker.handshake.reporter;
        let trouble = |kind, what: &str| Some(reporter.trouble(kind, what));
        if call.expires <= now {
            trouble(
                TroubleKind::Timeout,
                "was not asked: the call had waited too long",
            )
        } else if session.connection.may_only_look() && call.request.op != Op::Inspect {
            Some(reporter.may_only_look(&call.request))
        } else if let Err(trouble) = &session.membership {
            Some(trouble.clone())
        } else if call.request.claims.len() != 1 && call.request.op.is_plain() {
            trouble(
                TroubleKind::Other,
                "was not asked: a plain lock has exactly one name",
            )
        } else {
            None
        }
    }

    /// Completes the oldest batch, and sends again what the server had no script for. The trouble,
    /// if the connection is of no more use.
    fn land(
        &mut self,
        in_flight: &mut InFlight,
        answers: redis::RedisResult<Vec<redis::Value>>,
        session: &mut Session,
        pending_end: &mut Option<End>,
    ) -> Option<Trouble> {
        let reporter = &self.maker.handshake.reporter;
        let now = self.clock().now();
        // Without membership no call is sent, so all that can land is a subscription.
        let Ok(membership) = session.membership.as_mut() else {
            in_flight.discard(now);
            return answers.err().map(|error| reporter.lost(&error));
        };
        match in_flight.land(answers, membership, &mut self.watch, reporter, now) {
            Err(error) => Some(reporter.lost(&error)),
            Ok(outcome) => {
                // The order among these calls stays, but a later call may overtake them. Whatever
                // follows an acquire that has not been answered is said of one whose fate is unknown,
                // and retires its ballot; nothing of a token follows its release.
                let connection = &mut session.connection;
                membership.compare(self.watch.is_unseen(now));
                // In full, so that the server keeps the script.
                in_flight.send(
                    outcome.unscripted,
                    connection,
                    membership,
                    ScriptBy::Text,
                    now,
                );
                let unusual = outcome.unusual.into_iter().map(Command::Alone).collect();
                in_flight.send(unusual, connection, membership, ScriptBy::Hash, now);
                let look = outcome.look;
                let changed = look.is_some_and(|answers| self.has_changed(&answers, session));
                if (outcome.newborn || changed) && !matches!(pending_end, Some(End::Control(_))) {
                    *pending_end = Some(End::Newborn);
                }
                None
            }
        }
    }
}

/// Ticks so often, and less often while the task is late.
fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
