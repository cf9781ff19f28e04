//! The link to one node, for as long as the node exists: connects, does the handshake, sends the
//! calls and completes them, and starts again when the connection is lost.

mod batching;
mod confirming;
mod connecting;
mod flushing;
mod watching;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use crate::clock::Clock;
use crate::node::{CallError, Trouble};
use crate::time::Timestamp;

use super::bundle;
use super::command::{Command, ScriptForm};
use super::detached::DetachedConnection;
use super::queue::{Control, Work, WorkQueue};
use super::session::{InFlight, LOOK_INTERVAL, ServerWatch, Session};
use super::session_maker::SessionMaker;
use super::transport::backoff::Backoff;
use super::transport::connection_set::FlushFlag;

use self::confirming::Confirming;

/// How often the link checks whether a server has stopped answering.
const TICK: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Link {
    maker: SessionMaker,
    queue: WorkQueue,
    backoff: Backoff,
    watch: ServerWatch,
    confirming: Confirming,
    flush: Arc<FlushFlag>,
    /// Where the connection is left when the tokio runtime ends.
    detached: Arc<Mutex<Option<DetachedConnection>>>,
}

/// Why a session stopped taking calls.
enum SessionEnd {
    /// The connection is lost.
    Lost(Trouble),
    /// The handshake must be repeated: the node may have forgotten locks, or our user could only
    /// read. The connection is kept.
    Newborn,
    /// A control request, to be carried out when no call is in flight.
    Control(Control),
    /// The node was dropped.
    Closed,
    /// The tokio runtime ends. Replies may be awaited until then.
    RuntimeEnds(Timestamp),
}

impl Link {
    pub(super) fn new(
        maker: SessionMaker,
        queue: WorkQueue,
        seed: u64,
        flush: Arc<FlushFlag>,
        detached: Arc<Mutex<Option<DetachedConnection>>>,
    ) -> Self {
        Self {
            confirming: Confirming::new(maker.handshake.sentinels.clone()),
            maker,
            queue,
            backoff: Backoff::new(seed),
            watch: ServerWatch::new(),
            flush,
            detached,
        }
    }

    /// Runs until the node is dropped and all calls are answered.
    pub(super) async fn run(mut self) {
        let mut kept = None;
        // Why the last attempt failed. While this is set, no call waits for a connection.
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
                        SessionEnd::Newborn => {
                            kept = Some(session.connection);
                            continue;
                        }
                        SessionEnd::Lost(trouble) => CallError::NotSent(trouble),
                        SessionEnd::RuntimeEnds(until) => return self.leave(session, until),
                        SessionEnd::Closed | SessionEnd::Control(_) => return,
                    }
                }
                Err(failure) => {
                    trouble = Some(failure.trouble().clone());
                    failure
                }
            };
            let node = &self.maker.handshake.reporter.node;
            tracing::debug!(target: "ringfence", %node, "{failure}");
            let rest = self.rest(began, trouble.is_none(), &failure);
            // After a lost connection, calls wait a moment for the next one. After a failed
            // attempt, and during the backoff, they are answered at once.
            if (trouble.is_some() || !rest.is_zero()) && !self.rest_during(rest, &failure).await {
                return;
            }
        }
    }

    fn clock(&self) -> &Clock {
        &self.maker.handshake.clock
    }

    /// Sends calls, and carries out control requests in between.
    async fn serve(&mut self, session: &mut Session) -> SessionEnd {
        loop {
            match self.attend(session).await {
                SessionEnd::Control(control) => {
                    if let Some(end) = self.control(session, control).await {
                        return end;
                    }
                }
                end => return end,
            }
        }
    }

    /// Sends calls and completes them until the session ends. Then no call is in flight.
    async fn attend(&mut self, session: &mut Session) -> SessionEnd {
        let mut in_flight = InFlight::default();
        let mut pending_end = None;
        let mut suspected = false;
        let (mut tick, mut look) = (every(TICK), every(LOOK_INTERVAL));
        if let Ok(membership) = &session.membership {
            self.watch.begin(membership.seen_at);
        }
        self.begin_confirming(session);
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
                    let lost = self.land(&mut in_flight, answers, session, &mut pending_end);
                    if lost.is_none() && pending_end.is_none() {
                        pending_end = self.refill(&mut in_flight, session, &mut look).await;
                    }
                    lost
                }
                work = self.queue.next(), if pending_end.is_none() && self.may_send(&in_flight) => {
                    pending_end = self.take(work, &mut in_flight, session, &mut look).await;
                    None
                }
                _ = look.tick(), if self.watch.is_on() && pending_end.is_none() => {
                    self.look(&mut in_flight, session);
                    None
                }
                _ = tick.tick(), if !in_flight.is_empty() => {
                    // At two ticks in a row: a process that was stopped sees the time elapsed
                    // before it has read the replies that arrived meanwhile.
                    let silence = self.silence(&in_flight);
                    let again = std::mem::replace(&mut suspected, silence.is_some());
                    silence.filter(|_| again)
                }
                // Last: nothing that it does may keep the link from noticing a server that hangs.
                () = self.confirming.news() => {
                    self.handle_news(&mut pending_end);
                    None
                }
            };
            if let Some(trouble) = lost {
                in_flight.abandon(&trouble, &mut self.watch);
                return SessionEnd::Lost(trouble);
            }
        }
    }

    /// Takes the next work. Returns how the session ends, if it must.
    async fn take(
        &mut self,
        work: Option<Work>,
        in_flight: &mut InFlight,
        session: &mut Session,
        look: &mut Interval,
    ) -> Option<SessionEnd> {
        match work {
            None => Some(SessionEnd::Closed),
            Some(Work::Control(control)) => Some(SessionEnd::Control(control)),
            Some(Work::Listen) => {
                self.subscribe(in_flight, session);
                None
            }
            // Until the Sentinels have answered.
            Some(Work::Call(call)) if self.must_wait() => {
                self.queue.put_back(Work::Call(call));
                None
            }
            Some(Work::Call(call)) => {
                self.gather(in_flight).await;
                let next = WorkQueue::try_next;
                let end = self.send_all(call, next, in_flight, session, bundle::pack);
                // After the calls, so that it delays none of them.
                if self.look(in_flight, session) {
                    look.reset();
                }
                end
            }
        }
    }

    /// Checks the server, if that is due. Returns whether it was.
    fn look(&mut self, in_flight: &mut InFlight, session: &mut Session) -> bool {
        let now = self.clock().now();
        let due = session.membership.is_ok() && in_flight.has_room() && self.watch.is_due(now);
        if due {
            self.look_now(in_flight, session, now);
        }
        due
    }

    /// Completes the oldest batch, and resends the commands whose script the server did not have.
    /// Returns the trouble if the connection is lost.
    fn land(
        &mut self,
        in_flight: &mut InFlight,
        answers: redis::RedisResult<Vec<redis::Value>>,
        session: &mut Session,
        pending_end: &mut Option<SessionEnd>,
    ) -> Option<Trouble> {
        let reporter = &self.maker.handshake.reporter;
        let now = self.clock().now();
        // Without a membership no call is sent, so this is the reply to a subscription.
        let Ok(membership) = session.membership.as_mut() else {
            in_flight.discard(now);
            return answers.err().map(|error| reporter.lost(&error));
        };
        match in_flight.land(answers, membership, &mut self.watch, reporter, now) {
            Err(error) => Some(reporter.lost(&error)),
            Ok(outcome) => {
                // These calls keep their order, but a later call may overtake them. That is safe: a
                // call after an unanswered acquire has an unknown fate and retires the ballot, and
                // no call of a token follows its release.
                let connection = &mut session.connection;
                membership.compare(self.watch.is_unseen(now), now);
                // With the full script, so that the server keeps it.
                in_flight.send(
                    outcome.unscripted,
                    connection,
                    membership,
                    ScriptForm::Text,
                    now,
                );
                let unusual = outcome.skipped.into_iter().map(Command::Single).collect();
                in_flight.send(unusual, connection, membership, ScriptForm::Hash, now);
                let look = outcome.look;
                let changed = look.is_some_and(|answers| self.has_changed(&answers, session));
                if (outcome.newborn || changed)
                    && !matches!(pending_end, Some(SessionEnd::Control(_)))
                {
                    *pending_end = Some(SessionEnd::Newborn);
                }
                None
            }
        }
    }
}

/// An interval. After a late tick, the next one is a whole `period` later.
fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
