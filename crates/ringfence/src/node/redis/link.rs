//! The link to one node, for as long as the node exists: connects, does the handshake, sends the
//! calls and completes them, and starts again when the connection is lost.
//!
//! It sends all calls that wait together. To the only node of a group it sends at most half of those
//! that are under way: with one batch of all callers the server would have nothing to do while they
//! run, and they would have nothing to do while the server works. Several servers do not need this:
//! they do not all wait at the same time, and larger batches cost less.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::{Interval, MissedTickBehavior};

use crate::clock::Clock;
use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::codec::bundle::{self, BUNDLE_MAX};
use super::codec::reply::longest_reply;
use super::codec::{Command, ScriptForm};
use super::confirming::Confirming;
use super::detached::DetachedConnection;
use super::handshake::sections::Image;
use super::node::{BATCH_MAX, Control, Work, WorkQueue};
use super::scripts::SCRIPTS;
use super::session::{InFlight, LOOK_INTERVAL, ServerWatch, Session};
use super::session_maker::SessionMaker;
use super::wire::Connection;
use super::wire::connection_set::{Flush, FlushFlag, rest_of_this_poll};
use super::wire::resp::BATCH_MAX_MEMORY;
use super::wire::wake_listeners::wake_channel;

/// How long calls wait for a connection that is being made.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often the link checks whether a server has stopped answering.
const TICK: Duration = Duration::from_millis(100);
/// A server that does not answer for this long hangs, or the connection is half open.
const SILENCE: Duration = Duration::from_secs(1);
/// How often the link yields to other tasks before it sends a batch, if there are several callers:
/// once is not enough for callers on another thread.
const GATHER_YIELDS: usize = 6;
/// How long the link yields at most.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// See the module.
pub(super) struct Link {
    maker: SessionMaker,
    queue: WorkQueue,
    watch: ServerWatch,
    /// What the Sentinels say of the server; `None` without Sentinels.
    confirming: Option<Confirming>,
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
        flush: Arc<FlushFlag>,
        detached: Arc<Mutex<Option<DetachedConnection>>>,
    ) -> Self {
        Self {
            confirming: maker.handshake.sentinels.clone().map(Confirming::new),
            maker,
            queue,
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
                        SessionEnd::RuntimeEnds(until) => {
                            let trouble = self.runtime_ended();
                            let Self {
                                queue, detached, ..
                            } = self;
                            return DetachedConnection::leave(
                                &detached, session, queue, until, trouble,
                            );
                        }
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
            let rest = self.maker.rest(began, trouble.is_none(), &failure);
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

    /// Makes a session on the `kept` connection, or on a new one. `None` if the node was dropped.
    async fn establish(
        &mut self,
        kept: Option<Connection>,
        trouble: Option<&Trouble>,
    ) -> Option<Result<Session, CallError>> {
        let attempt = self.maker.session(kept, self.queue.group);
        let reporter = &self.maker.handshake.reporter;
        let slow = || reporter.trouble(TroubleKind::Timeout, "is slow to connect");
        let (patience, trouble) = match trouble {
            Some(trouble) => (Duration::ZERO, trouble.clone()),
            None => (PATIENCE, slow()),
        };
        self.queue.hold_during(attempt, patience, &trouble).await
    }

    /// Answers all work with `failure` for the time `rest`, or until the Sentinels name another
    /// master. Returns false if the node was dropped.
    async fn rest_during(&mut self, rest: Duration, failure: &CallError) -> bool {
        let refusing = self.queue.refuse_during(rest, failure);
        match &self.confirming {
            None => refusing.await,
            Some(confirming) => tokio::select! {
                open = refusing => open,
                () = confirming.other_master() => true,
            },
        }
    }

    /// Sends calls, and carries out control requests in between.
    async fn serve(&mut self, session: &mut Session) -> SessionEnd {
        loop {
            match Serving::begin(self, session).run().await {
                SessionEnd::Control(control) => {
                    if let Some(end) = self.control(session, control).await {
                        return end;
                    }
                }
                end => return end,
            }
        }
    }

    /// Carries out `control` while calls wait. Returns how the session ends, if it must.
    async fn control(&mut self, session: &mut Session, control: Control) -> Option<SessionEnd> {
        let reporter = &self.maker.handshake.reporter;
        let busy = reporter.trouble(TroubleKind::Timeout, "is slow to answer the handshake");
        let attempt = self.maker.control(session, &control);
        let held = self.queue.hold_during(attempt, PATIENCE, &busy).await;
        let Some(outcome) = held else {
            return Some(SessionEnd::Closed);
        };
        if let (Ok(_), Control::Init(group, mode, _)) = (&outcome, &control)
            && mode.writes()
        {
            self.queue.group = Some(*group);
        }
        let lost = match &outcome {
            Err(CallError::NotSent(trouble) | CallError::Unknown(trouble)) => Some(trouble.clone()),
            Ok(_) | Err(CallError::Refused(_)) => None,
        };
        control.complete(outcome);
        lost.map(SessionEnd::Lost)
    }

    fn runtime_ended(&self) -> Trouble {
        let what = "was sent the call, but its reply cannot be read: the tokio runtime has ended";
        let reporter = &self.maker.handshake.reporter;
        reporter.trouble(TroubleKind::Disconnected, what)
    }
}

/// A link while its session takes calls.
struct Serving<'a> {
    link: &'a mut Link,
    session: &'a mut Session,
    in_flight: InFlight,
    /// How the session ends as soon as no call is in flight.
    end: Option<SessionEnd>,
    /// When the server is checked next.
    look: Interval,
}

impl<'a> Serving<'a> {
    fn begin(link: &'a mut Link, session: &'a mut Session) -> Self {
        if let Ok(membership) = &session.membership {
            link.watch.begin(membership.seen_at);
        }
        if let Some(confirming) = &mut link.confirming {
            let node = &link.maker.handshake.reporter.node;
            confirming.begin(session, node, link.queue.group);
        }
        let mut serving = Self {
            link,
            session,
            in_flight: InFlight::default(),
            end: None,
            look: every(LOOK_INTERVAL),
        };
        serving.subscribe();
        serving
    }

    /// Sends calls and completes them until the session ends. Then no call is in flight.
    async fn run(mut self) -> SessionEnd {
        let (mut tick, mut suspected) = (every(TICK), false);
        loop {
            if self.in_flight.is_empty()
                && let Some(end) = self.end.take()
            {
                return end;
            }
            let lost = tokio::select! {
                biased;
                flush = self.link.flush.asked() => match self.write_now(flush).await {
                    Some(end) => return end,
                    None => None,
                },
                answers = self.session.connection.answers() => {
                    let lost = self.land(answers);
                    if lost.is_none() && self.end.is_none() {
                        self.refill().await;
                    }
                    lost
                }
                work = self.link.queue.next(), if self.end.is_none() && self.may_send() => {
                    self.take(work).await;
                    None
                }
                _ = self.look.tick(), if self.link.watch.is_on() && self.end.is_none() => {
                    self.look_if_due();
                    None
                }
                _ = tick.tick(), if !self.in_flight.is_empty() => {
                    // At two ticks in a row: a process that was stopped sees the time elapsed
                    // before it has read the replies that arrived meanwhile.
                    let silence = self.silence();
                    let again = std::mem::replace(&mut suspected, silence.is_some());
                    silence.filter(|_| again)
                }
                // Last: nothing that it does may keep the link from noticing a server that hangs.
                () = news(&mut self.link.confirming) => {
                    self.handle_news();
                    None
                }
            };
            if let Some(trouble) = lost {
                self.in_flight.abandon(&trouble, &mut self.link.watch);
                return SessionEnd::Lost(trouble);
            }
        }
    }

    /// Whether work may be sent now.
    fn may_send(&self) -> bool {
        let waits = self
            .link
            .confirming
            .as_ref()
            .is_some_and(Confirming::is_waiting);
        self.in_flight.has_room() && !waits
    }

    /// Takes the next work.
    async fn take(&mut self, work: Option<Work>) {
        match work {
            None => self.end = Some(SessionEnd::Closed),
            Some(Work::Control(control)) => self.end = Some(SessionEnd::Control(control)),
            Some(Work::Listen) => self.subscribe(),
            // Until the Sentinels have answered.
            Some(Work::Call(call)) if self.must_wait() => {
                self.link.queue.put_back(Work::Call(call));
            }
            Some(Work::Call(call)) => {
                self.gather().await;
                self.send_all(call, WorkQueue::try_next, bundle::pack);
                // After the calls, so that it delays none of them.
                if self.look_if_due() {
                    self.look.reset();
                }
            }
        }
    }

    /// Lets the callers of the batch that the only node has just answered run, and sends what they
    /// ask next. Two batches may be answered at once; the server works on this one while the answers
    /// to the other are handled.
    async fn refill(&mut self) {
        if self.in_flight.last_batch_calls <= 1 || !self.session.is_alone() || !self.may_send() {
            return;
        }
        tokio::task::yield_now().await;
        if let Some(work) = self.link.queue.try_next() {
            self.take(Some(work)).await;
        }
    }

    /// Yields for a moment, so that other callers can add their calls. Callers that were answered
    /// by one batch call again as soon as they run, and one batch costs less than many.
    async fn gather(&mut self) {
        if self.in_flight.last_batch_calls <= 1 {
            return;
        }
        let end = self.link.clock().now() + GATHER_MAX;
        for _ in 0..GATHER_YIELDS {
            if self.link.flush.is_asked() {
                return;
            }
            tokio::task::yield_now().await;
            if self.link.clock().now() >= end {
                return;
            }
        }
    }

    /// Sends `first` and the calls that `next` takes from the queue as one batch, grouped into
    /// commands by `pack`.
    fn send_all(
        &mut self,
        first: Call,
        next: impl Fn(&mut WorkQueue) -> Option<Work>,
        pack: impl FnOnce(Vec<Call>) -> Vec<Command>,
    ) {
        let now = self.link.clock().now();
        let (mut batch, mut replies) = (Vec::new(), 0);
        let limit = match self.session.is_alone() {
            true => half_batch(self.in_flight.calls() + 1 + self.link.queue.len()),
            false => BATCH_MAX,
        };
        let mut taken = Some(first);
        while let Some(call) = taken.take() {
            match self.unfit(&call, now) {
                _ if !call.done.is_wanted() => call.done.withdraw(),
                Some(trouble) => {
                    // Our user may have got the right meanwhile, or another client may have
                    // written the birth record.
                    if trouble.kind == TroubleKind::Denied
                        && self.session.connection.may_only_look()
                    {
                        self.end = Some(SessionEnd::Newborn);
                    }
                    call.done.complete(Err(CallError::NotSent(trouble)));
                }
                None => {
                    self.link.watch.note(&call.request, now);
                    replies += longest_reply(&call.request);
                    batch.push(call);
                }
            }
            // The connection is dropped if the replies to a batch take more memory than this.
            if batch.len() < limit && replies < BATCH_MAX_MEMORY / 2 {
                match next(&mut self.link.queue) {
                    Some(Work::Call(call)) => taken = Some(call),
                    Some(other) => self.link.queue.put_back(other),
                    None => {}
                }
            }
        }
        // A single call needs no bundle.
        let commands = match batch.len() {
            0 | 1 => batch.into_iter().map(Command::Single).collect(),
            _ => pack(batch),
        };
        self.send(commands, ScriptForm::Hash, now);
    }

    /// Sends `commands` as one batch.
    fn send(&mut self, commands: Vec<Command>, by: ScriptForm, now: Timestamp) {
        let Session {
            connection,
            membership: Ok(membership),
            ..
        } = &mut *self.session
        else {
            return;
        };
        membership.compare(self.link.watch.is_unseen(now), now);
        self.in_flight
            .send(commands, connection, membership, by, now);
    }

    /// Why `call` must not be sent, if so.
    fn unfit(&self, call: &Call, now: Timestamp) -> Option<Trouble> {
        let (reporter, session) = (&self.link.maker.handshake.reporter, &*self.session);
        let trouble = |kind, what: &str| Some(reporter.trouble(kind, what));
        let confirming = self.link.confirming.as_ref();
        if call.expires <= now {
            trouble(
                TroubleKind::Timeout,
                "was not sent the call: it had waited too long",
            )
        } else if session.connection.may_only_look() && !call.request.op.only_looks() {
            Some(reporter.may_only_look(&call.request))
        } else if let Err(trouble) = &session.membership {
            Some(trouble.clone())
        } else if let Some(trouble) = confirming.and_then(|c| c.refusal(&call.request.op)) {
            Some(trouble.clone())
        } else if call.request.claims.len() != 1 && call.request.op.is_plain() {
            trouble(
                TroubleKind::Other,
                "was not sent the call: a plain lock has exactly one name",
            )
        } else {
            None
        }
    }

    /// Completes the oldest batch, and resends the commands whose script the server did not have.
    /// Returns the trouble if the connection is lost.
    fn land(&mut self, answers: RedisResult<Vec<Value>>) -> Option<Trouble> {
        let Link { maker, watch, .. } = &mut *self.link;
        let reporter = &maker.handshake.reporter;
        let now = maker.handshake.clock.now();
        // Without a membership no call is sent, so this is the reply to a subscription.
        let Ok(membership) = &mut self.session.membership else {
            self.in_flight.discard(now);
            return answers.err().map(|error| reporter.lost(&error));
        };
        let landed = self
            .in_flight
            .land(answers, membership, watch, reporter, now);
        let outcome = match landed {
            Ok(outcome) => outcome,
            Err(error) => return Some(reporter.lost(&error)),
        };
        // These calls keep their order, but a later call may overtake them. That is safe: a call
        // after an unanswered acquire has an unknown fate and retires the ballot, and no call of a
        // token follows its release. With the full script, so that the server keeps it.
        if !outcome.unscripted.is_empty() {
            self.load_scripts_of_lookers(now);
        }
        self.send(outcome.unscripted, ScriptForm::Text, now);
        let unusual = outcome.skipped.into_iter().map(Command::Single).collect();
        self.send(unusual, ScriptForm::Hash, now);
        let changed = outcome
            .look
            .is_some_and(|answers| self.has_changed(&answers));
        if (outcome.newborn || changed) && !matches!(self.end, Some(SessionEnd::Control(_))) {
            self.end = Some(SessionEnd::Newborn);
        }
        None
    }

    /// Loads the scripts of users who may only look. The server dropped all scripts, and these users
    /// cannot load theirs.
    fn load_scripts_of_lookers(&mut self, now: Timestamp) {
        let session = &mut *self.session;
        if session.connection.may_only_look() {
            return;
        }
        let mut pipe = redis::pipe();
        for script in SCRIPTS.of_lookers() {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.text);
        }
        self.in_flight
            .ask(pipe, false, &mut session.connection, now);
    }

    /// Writes all queued calls at once, for a thread that may be the last to run. Returns how the
    /// session ends, if it must.
    async fn write_now(&mut self, flush: Flush) -> Option<SessionEnd> {
        self.send_queued(flush);
        self.session.connection.write_now().await;
        self.link.flush.finish(flush);
        if let Some(until) = flush.leave {
            let trouble = self.link.runtime_ended();
            self.in_flight.abandon(&trouble, &mut self.link.watch);
            return Some(SessionEnd::RuntimeEnds(until));
        }
        if self.session.connection.is_wire() {
            // The flushing thread must not spend its time on reading replies.
            rest_of_this_poll().await;
        }
        None
    }

    /// Sends the queued calls, each by itself. A bundle may skip a call, which is then sent again
    /// after the reply; but the process may end before the reply is read.
    ///
    /// Beyond the limit of batches it sends only the calls of holders: there are no more of them
    /// than locks. Attempts and undos wait for the replies, as without a flush. Otherwise callers
    /// that give up would send more than the server can answer. If the tokio runtime ends, all
    /// calls are sent.
    fn send_queued(&mut self, flush: Flush) {
        let single = |calls: Vec<Call>| calls.into_iter().map(Command::Single).collect();
        while self.end.is_none() {
            let next = match self.in_flight.has_room() {
                false if !self.session.connection.is_wire() => return,
                false if flush.leave.is_none() => WorkQueue::try_next_of_holder,
                _ => WorkQueue::try_next,
            };
            match next(&mut self.link.queue) {
                Some(Work::Call(call)) => self.send_all(call, next, single),
                Some(Work::Listen) => self.subscribe(),
                Some(Work::Control(control)) => self.end = Some(SessionEnd::Control(control)),
                None => return,
            }
        }
    }

    /// Subscribes to the wakes of all new listeners. The server carries out later commands later,
    /// so no client enters a queue and misses its first wake.
    fn subscribe(&mut self) {
        let session = &mut *self.session;
        let new = self.link.maker.listeners.clients_after(session.listening);
        if new.is_empty() || !session.connection.has_pushes() {
            return;
        }
        session.listening += new.len();
        let mut pipe = redis::pipe();
        for client in &new {
            pipe.cmd("SUBSCRIBE").arg(wake_channel(client));
        }
        let now = self.link.clock().now();
        self.in_flight
            .ask(pipe, false, &mut session.connection, now);
    }

    /// Checks the server, if that is due. Returns whether it was.
    fn look_if_due(&mut self) -> bool {
        let now = self.link.clock().now();
        let joined = self.session.membership.is_ok();
        let due = joined && self.in_flight.has_room() && self.link.watch.is_due(now);
        if !due {
            return false;
        }
        // After a flood of messages no listener was subscribed. The flood may be over.
        self.subscribe();
        if let Ok(membership) = &self.session.membership
            && !membership.terms.unseen
        {
            let connection = &mut self.session.connection;
            let questions = membership.image.questions(connection.may_ask_config());
            self.in_flight.ask(questions, true, connection, now);
            self.link.watch.look(now);
        }
        true
    }

    /// Whether the server has changed, by its answers to a check: then the handshake must be
    /// repeated.
    fn has_changed(&mut self, answers: &[Value]) -> bool {
        if Image::refuse_config(answers) {
            self.session.connection.refuse_config();
        }
        let membership = self.session.membership.as_ref().ok();
        match membership.and_then(|membership| membership.image.change(answers)) {
            None => self.link.watch.note_unchanged(),
            Some(change) => {
                let node = &self.link.maker.handshake.reporter.node;
                tracing::debug!(target: "ringfence", %node, "{change}; repeating the handshake");
                return true;
            }
        }
        false
    }

    /// The trouble, if the server has not answered for too long.
    fn silence(&self) -> Option<Trouble> {
        let since = self.in_flight.silent_since()?;
        (self.link.clock().now().since(since) >= SILENCE).then(|| {
            let what = format!("has not answered for {SILENCE:?}");
            let reporter = &self.link.maker.handshake.reporter;
            reporter.trouble(TroubleKind::Timeout, what)
        })
    }

    /// Whether calls must wait for the Sentinels, which are asked then.
    fn must_wait(&mut self) -> bool {
        let now = self.link.clock().now();
        let confirming = self.link.confirming.as_mut();
        confirming.is_some_and(|confirming| confirming.must_wait(now))
    }

    /// A Sentinel has answered, or calls have waited long enough.
    fn handle_news(&mut self) {
        let Link {
            maker, confirming, ..
        } = &mut *self.link;
        let (node, now) = (&maker.handshake.reporter.node, maker.handshake.clock.now());
        let ending = self.end.is_some();
        if let Some(confirming) = confirming
            && confirming.handle_news(node, now, ending)
        {
            self.end = Some(SessionEnd::Newborn);
        }
    }
}

/// Waits for news of the Sentinels; for ever without Sentinels.
async fn news(confirming: &mut Option<Confirming>) {
    match confirming {
        Some(confirming) => confirming.news().await,
        None => pending().await,
    }
}

/// The most calls of the next batch to the only node, if `calls` are in flight or wait. One bundle
/// is not divided: a script with fewer calls costs more for each.
fn half_batch(calls: usize) -> usize {
    calls.div_ceil(2).clamp(BUNDLE_MAX, BATCH_MAX)
}

/// An interval. After a late tick, the next one is a whole `period` later.
fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_most_half_of_the_calls_but_a_whole_bundle() {
        assert_eq!(
            [1, 32, 64, 65, 200, 10_000].map(half_batch),
            [32, 32, 32, 33, 100, 256]
        );
    }
}
