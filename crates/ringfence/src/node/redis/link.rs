//! What goes on with one node for as long as somebody may want it: connects, shakes hands, sends what is
//! wanted and answers it, and begins anew when the connection is lost. Everything that is pending goes
//! out as one batch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::group::Group;
use crate::message::Op;
use crate::node::{Call, CallError, Facts, InitMode, Tier, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::backoff::Backoff;
use super::bundle::{self, Parcel};
use super::command::By;
use super::dial::Dial;
use super::ears::Ears;
use super::flight::Flight;
use super::flush::{FlushFlag, rest_of_this_poll};
use super::handshake::{Handshake, Membership};
use super::key::wake_channel;
use super::last_words::LastWords;
use super::limits::{BATCH_MAX_MEMORY, longest_reply};
use super::line::Line;
use super::queue::{BATCH_MAX, Control, Queue, Work};
use super::search::{SEARCH_MAX, SEARCH_STEP};
use super::watch::{self, Image, Watch};

/// How long connecting and logging in may take, and how long the handshake after it.
const STEP: Duration = Duration::from_secs(1);
/// How long calls wait for a connection that is being made.
const PATIENCE: Duration = Duration::from_millis(100);
/// A server that is asked and says nothing for this long is hung, or the connection half open.
const SILENCE: Duration = Duration::from_secs(1);
/// How often that is looked at.
const TICK: Duration = Duration::from_millis(100);
/// A connection that held this long was a good one: the next is made without waiting.
const GOOD: Duration = Duration::from_secs(1);
/// The longest rest after a connection that had shaken hands: its server is there, and votes are
/// lost while we rest. Not none, or a server that hangs up on everybody would be stormed.
const REST_MAX: Duration = Duration::from_millis(50);
/// How often other tasks are let run before a batch is sent, where there are several callers: once is
/// not enough for those who run in another thread. And for how long at most, where they take their time.
const GATHERINGS: usize = 6;
const GATHER_MAX: Duration = Duration::from_micros(200);

/// See the module.
pub(super) struct Link {
    maker: Maker,
    queue: Queue,
    backoff: Backoff,
    watch: Watch,
    flush: Arc<FlushFlag>,
    /// Where the connection is left when the runtime ends.
    last_words: Arc<Mutex<Option<LastWords>>>,
}

/// Makes connections that calls can be sent over.
pub(super) struct Maker {
    pub(super) dial: Dial,
    pub(super) handshake: Handshake,
    pub(super) ears: Arc<Ears>,
    /// What a crash of the server may cost, as the last handshake found it.
    pub(super) tier: Arc<Mutex<Option<Tier>>>,
}

/// A connection after its handshake.
struct Session {
    line: Line,
    /// Or why no call may be sent: no group is known, or the node belongs to another.
    membership: Result<Membership, Trouble>,
    /// How many of those who listen are subscribed to.
    listening: usize,
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
        maker: Maker,
        queue: Queue,
        seed: u64,
        flush: Arc<FlushFlag>,
        last_words: Arc<Mutex<Option<LastWords>>>,
    ) -> Self {
        Self {
            maker,
            queue,
            backoff: Backoff::new(seed),
            watch: Watch::new(),
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
                            kept = Some(session.line);
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
            // A server that sends far too much must not do so again at once over the next connection.
            let excessive =
                failure.trouble().kind == TroubleKind::Garbage || self.maker.ears.were_flooded();
            let good = trouble.is_none() && !excessive;
            if good && self.clock().now().since(began) >= GOOD {
                self.backoff.reset();
            }
            let mut rest = self.backoff.next();
            if good {
                rest = rest.min(REST_MAX);
            }
            if excessive && rest.is_zero() {
                rest = self.backoff.next();
            }
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

    /// Makes a session, on the connection that is `kept` or a new one. `None` if everybody left.
    async fn establish(
        &mut self,
        kept: Option<Line>,
        trouble: Option<&Trouble>,
    ) -> Option<Result<Session, CallError>> {
        let group = self.queue.group();
        let attempt = self.maker.session(kept, group);
        match trouble {
            Some(trouble) => {
                self.queue
                    .hold_during(attempt, Duration::ZERO, trouble)
                    .await
            }
            None => {
                let reporter = &self.maker.handshake.reporter;
                let slow = reporter.trouble(TroubleKind::Timeout, "is slow to connect");
                self.queue.hold_during(attempt, PATIENCE, &slow).await
            }
        }
    }

    async fn serve(&mut self, session: &mut Session) -> End {
        loop {
            match self.attend(session).await {
                End::Control(control) => {
                    let reporter = &self.maker.handshake.reporter;
                    let busy = reporter.trouble(TroubleKind::Timeout, "is slow to shake hands");
                    let attempt = self.maker.control(session, &control);
                    let held = self.queue.hold_during(attempt, PATIENCE, &busy).await;
                    let Some(outcome) = held else {
                        return End::Closed;
                    };
                    if let (Ok(_), Control::Init(group, mode, _)) = (&outcome, &control)
                        && mode.writes()
                    {
                        self.queue.set_group(*group);
                    }
                    let lost = match &outcome {
                        Err(CallError::NotSent(trouble) | CallError::Unknown(trouble)) => {
                            Some(trouble.clone())
                        }
                        Ok(_) | Err(CallError::Refused(_)) => None,
                    };
                    control.complete(outcome);
                    if let Some(trouble) = lost {
                        return End::Lost(trouble);
                    }
                }
                end => return end,
            }
        }
    }

    /// Sends calls and completes them, until something else must be done; by then none is under way.
    async fn attend(&mut self, session: &mut Session) -> End {
        let mut flight = Flight::new();
        let mut pending_end = None;
        let mut suspected = false;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(watch::INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        if let Ok(membership) = &session.membership {
            self.watch.begin(membership.seen_at);
        }
        self.subscribe(&mut flight, session);
        loop {
            if flight.is_empty()
                && let Some(end) = pending_end.take()
            {
                return end;
            }
            let lost = tokio::select! {
                biased;
                flush = self.flush.asked() => {
                    self.send_queued(&mut flight, session, &mut pending_end);
                    session.line.write_now().await;
                    self.flush.finish(flush);
                    if let Some(until) = flush.leave {
                        flight.abandon(&self.runtime_ended(), &mut self.watch);
                        return End::RuntimeEnds(until);
                    }
                    if session.line.is_wire() {
                        // The thread that flushes has other things to do than to read replies.
                        rest_of_this_poll().await;
                    }
                    None
                }
                answers = session.line.answers() => {
                    self.land(&mut flight, answers, session, &mut pending_end)
                }
                work = self.queue.next(), if pending_end.is_none() && flight.has_room() => {
                    pending_end = match work {
                        None => Some(End::Closed),
                        Some(Work::Control(control)) => Some(End::Control(control)),
                        Some(Work::Listen) => {
                            self.subscribe(&mut flight, session);
                            None
                        }
                        Some(Work::Call(call)) => {
                            self.gather(&flight).await;
                            let again =
                                self.send_all(call, &mut flight, session, bundle::pack);
                            // Behind the calls, so that it delays none of them.
                            if self.look(&mut flight, session) {
                                look.reset();
                            }
                            again
                        }
                    };
                    None
                }
                _ = look.tick(), if self.watch.is_on() && pending_end.is_none() => {
                    self.look(&mut flight, session);
                    None
                }
                _ = tick.tick(), if !flight.is_empty() => {
                    // At two looks in a row: a process that was stopped finds the time over before
                    // it has read what arrived meanwhile.
                    let silence = self.silence(&flight);
                    let again = std::mem::replace(&mut suspected, silence.is_some());
                    silence.filter(|_| again)
                }
            };
            if let Some(trouble) = lost {
                flight.abandon(&trouble, &mut self.watch);
                return End::Lost(trouble);
            }
        }
    }

    /// Subscribes to the wakes of everybody who listens and is not subscribed to yet. What is sent
    /// afterwards is carried out afterwards, so nobody enters a line and misses its first wake.
    fn subscribe(&self, flight: &mut Flight, session: &mut Session) {
        let new = self.maker.ears.clients_after(session.listening);
        if new.is_empty() || !session.line.hears() {
            return;
        }
        session.listening += new.len();
        let channels: Vec<String> = new.iter().map(|client| wake_channel(client)).collect();
        flight.subscribe(&channels, &mut session.line, self.clock().now());
    }

    /// Looks at the server, if that is due. Whether it was.
    fn look(&mut self, flight: &mut Flight, session: &mut Session) -> bool {
        let now = self.clock().now();
        let due = session.membership.is_ok() && flight.has_room() && self.watch.is_due(now);
        if !due {
            return false;
        }
        // After a flood of messages nobody was subscribed to. That may be over.
        self.subscribe(flight, session);
        if let Ok(membership) = &session.membership {
            let line = &mut session.line;
            let questions = membership.image.questions(line.may_ask_config());
            flight.look(questions, line, now);
            self.watch.look(now);
        }
        due
    }

    /// Lets those call who are about to, for a moment. Several who were answered at once each call again
    /// as soon as they run, and one batch costs less than many.
    async fn gather(&self, flight: &Flight) {
        if flight.crowd() <= 1 {
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

    /// Sends everything that is queued, each call by itself: a bundle may leave a call undone, to be
    /// sent again after its reply, and perhaps nobody will be there to read the reply.
    fn send_queued(
        &mut self,
        flight: &mut Flight,
        session: &mut Session,
        pending_end: &mut Option<End>,
    ) {
        let alone = |calls: Vec<Call>| calls.into_iter().map(Parcel::Alone).collect();
        while pending_end.is_none() && (flight.has_room() || session.line.is_wire()) {
            match self.queue.try_next() {
                Some(Work::Call(call)) => {
                    *pending_end = self.send_all(call, flight, session, alone);
                }
                Some(Work::Listen) => self.subscribe(flight, session),
                Some(Work::Control(control)) => *pending_end = Some(End::Control(control)),
                None => return,
            }
        }
    }

    /// The runtime ends: leaves the connection to releases that come later.
    fn leave(mut self, session: Session, until: Timestamp) {
        let Ok(membership) = session.membership else {
            return;
        };
        let Some(mut remainder) = session.line.detach() else {
            return;
        };
        remainder.read_missing(until);
        let failure = CallError::Unknown(self.runtime_ended());
        let mut place = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut words = LastWords::new(remainder, membership.terms);
        // Under the lock: what can no longer be queued is said right behind what still was.
        self.queue.close();
        let mut left = Vec::new();
        while let Some(work) = self.queue.try_next() {
            if let (Some(words), Work::Call(call)) = (&mut words, &work) {
                words.say(&call.request);
            }
            left.push(work);
        }
        *place = words;
        drop(place);
        // After the lock: an answer may lead to the next call.
        left.into_iter().for_each(|work| work.fail(failure.clone()));
    }

    fn runtime_ended(&self) -> Trouble {
        let what = "was asked, but its reply cannot be read: the tokio runtime has ended";
        let reporter = &self.maker.handshake.reporter;
        reporter.trouble(TroubleKind::Disconnected, what)
    }

    /// Sends `first` and all the calls that wait behind it as one batch, as `pack` packs them. How the
    /// session ends, if it must.
    fn send_all(
        &mut self,
        first: Call,
        flight: &mut Flight,
        session: &mut Session,
        pack: impl FnOnce(Vec<Call>) -> Vec<Parcel>,
    ) -> Option<End> {
        let now = self.clock().now();
        let (mut batch, mut replies) = (Vec::new(), 0);
        let mut end = None;
        let mut next = Some(first);
        while let Some(call) = next.take() {
            match self.unfit(&call, session, now) {
                Some(trouble) => {
                    // Our user may have been given the right meanwhile, or the node been met.
                    if trouble.kind == TroubleKind::Denied && session.line.may_only_look() {
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
            let parcels = pack(batch);
            flight.send(parcels, &mut session.line, membership, By::Hash, now);
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
        } else if session.line.may_only_look() && call.request.op != Op::Inspect {
            Some(reporter.may_only_look(&call.request))
        } else if let Err(trouble) = &session.membership {
            Some(trouble.clone())
        } else if call.request.op.is_plain() && call.request.claims.len() != 1 {
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
        flight: &mut Flight,
        answers: redis::RedisResult<Vec<redis::Value>>,
        session: &mut Session,
        pending_end: &mut Option<End>,
    ) -> Option<Trouble> {
        let reporter = &self.maker.handshake.reporter;
        let now = self.clock().now();
        // Without membership no call is sent, so all that can land is a subscription.
        let Ok(membership) = session.membership.as_mut() else {
            return flight
                .discard(answers, now)
                .map(|error| lost_in_use(&self.maker.handshake, &error));
        };
        match flight.land(answers, membership, &mut self.watch, reporter, now) {
            Err(error) => Some(lost_in_use(&self.maker.handshake, &error)),
            Ok(landing) => {
                // The order among these calls stays, but a later call may overtake them. Whatever
                // follows an acquire that has not been answered is said of one whose fate is unknown,
                // and retires its ballot; nothing of a token follows its release.
                let line = &mut session.line;
                membership.compare(self.watch.is_unseen(now));
                // In full, so that the server keeps the script.
                flight.send(landing.unscripted, line, membership, By::Text, now);
                let unusual = landing.unusual.into_iter().map(Parcel::Alone).collect();
                flight.send(unusual, line, membership, By::Hash, now);
                let mut newborn = landing.newborn;
                if let Some(answers) = landing.look {
                    if Image::refuse_config(&answers) {
                        line.refuse_config();
                    }
                    match membership.image.change(&answers) {
                        None => self.watch.is_unchanged(),
                        Some(change) => {
                            tracing::debug!(target: "ringfence", node = %reporter.node, "{change}; shaking hands again");
                            newborn = true;
                        }
                    }
                }
                if newborn && !matches!(pending_end, Some(End::Control(_))) {
                    *pending_end = Some(End::Newborn);
                }
                None
            }
        }
    }

    fn silence(&self, flight: &Flight) -> Option<Trouble> {
        let since = flight.silent_since()?;
        (self.clock().now().since(since) >= SILENCE).then(|| {
            let what = format!("has been asked and has said nothing for {SILENCE:?}");
            self.maker
                .handshake
                .reporter
                .trouble(TroubleKind::Timeout, what)
        })
    }
}

fn lost_in_use(handshake: &Handshake, error: &redis::RedisError) -> Trouble {
    let trouble = handshake.reporter.connection(error);
    match trouble.kind {
        TroubleKind::Unreachable => handshake.reporter.trouble(
            TroubleKind::Disconnected,
            "ended the connection before it answered",
        ),
        _ => trouble,
    }
}

impl Maker {
    /// A connection with its handshake done, joined to `group` if that is known.
    async fn session(
        &self,
        kept: Option<Line>,
        group: Option<Group>,
    ) -> Result<Session, CallError> {
        let reporter = &self.handshake.reporter;
        let mut line = match kept {
            Some(line) => line,
            None => match tokio::time::timeout(STEP, self.dial.connect(&self.ears)).await {
                Ok(Ok(line)) => line,
                Ok(Err(error)) => {
                    let trouble = reporter.connection(&error);
                    return Err(match trouble.kind {
                        TroubleKind::Unreachable => CallError::NotSent(trouble),
                        _ => CallError::Refused(trouble),
                    });
                }
                Err(_) => {
                    let why = format!("no connection and login after {STEP:?}");
                    return Err(CallError::NotSent(reporter.unreachable(&why)));
                }
            },
        };
        let handshake = async {
            let seen = match self.handshake.probe(&mut line).await {
                Ok(seen) => seen,
                // The connection stays, so that it can be told to overwrite the birth record.
                Err(CallError::Refused(trouble))
                    if trouble.kind == TroubleKind::Version && group.is_none() =>
                {
                    return Ok(Err(trouble));
                }
                Err(error) => return Err(error),
            };
            let Some(group) = group else {
                let what =
                    "is there, but was not asked: its group is not known before a majority answers";
                return Ok(Err(reporter.trouble(TroubleKind::Other, what)));
            };
            match self.handshake.join(&mut line, seen, &group).await {
                Ok((membership, facts)) => {
                    self.found(&facts);
                    Ok(membership)
                }
                // The connection stays, so that somebody can look at the group and join the right one.
                Err(CallError::Refused(trouble)) if trouble.kind == TroubleKind::Group => {
                    Ok(Err(trouble))
                }
                Err(error) => Err(error),
            }
        };
        let membership = self.in_time(handshake).await?;
        Ok(Session {
            line,
            membership,
            listening: 0,
        })
    }

    /// Does what `control` wants over a session on which nothing else is under way.
    async fn control(&self, session: &mut Session, control: &Control) -> Result<Facts, CallError> {
        let Session {
            line, membership, ..
        } = session;
        // The search of an `init` takes many steps, each of which is bounded by itself.
        let limit = match control {
            Control::Init(..) => STEP + SEARCH_MAX + SEARCH_STEP,
            Control::Probe(_) | Control::Join(..) => STEP,
        };
        self.within(limit, async {
            let (joined, facts) = match control {
                Control::Probe(_) => return Ok(self.handshake.probe(line).await?.1),
                Control::Join(group, _) => {
                    let seen = self.handshake.probe(line).await?;
                    let joined = self.handshake.join(line, seen, group).await;
                    // Calls that follow mean this group, and no longer one that was joined before.
                    joined.inspect_err(|error| *membership = Err(error.trouble().clone()))?
                }
                Control::Init(group, mode, _) => {
                    let server = match mode {
                        // Whatever stands there is overwritten.
                        InitMode::Force => self.in_time(self.handshake.look(line)).await?,
                        _ => self.in_time(self.handshake.probe(line)).await?.0,
                    };
                    let init = self.handshake.init(line, &server, group, *mode);
                    match init.await? {
                        (Some(joined), facts) => (Ok(joined), facts),
                        (None, facts) => return Ok(facts),
                    }
                }
            };
            *membership = joined;
            self.found(&facts);
            Ok(facts)
        })
        .await
    }

    fn found(&self, facts: &Facts) {
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.tier);
    }

    async fn in_time<T>(
        &self,
        step: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.within(STEP, step).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        step: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(limit, step).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let what = format!("accepts connections but says nothing for {limit:?}");
                let trouble = self.handshake.reporter.trouble(TroubleKind::Timeout, what);
                Err(CallError::Unknown(trouble))
            }
        }
    }
}
