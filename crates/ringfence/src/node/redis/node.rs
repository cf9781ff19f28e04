//! A Redis or Valkey server as a node, and the queue from the callers to the task of its connection.
//! The link takes work out of the queue. A call that cannot be sent soon is answered at once: an
//! unreachable node costs its vote, but never makes a caller wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::client::ConnectError;
use crate::client::handshake::with_sockets;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::environment::{OwnerProcess, own_task};
use crate::group::Group;
use crate::node::backlog::{Backlog, Urgency};
use crate::node::{
    Call, CallError, Completion, Confirmation, Facts, Hear, HearChange, InitMode, Node, Tier,
    Trouble, TroubleKind,
};
use crate::time::Timestamp;
use crate::url::{Address, RedisUrl};

use super::changes::ChangeWatch;
use super::detached::DetachedConnection;
use super::handshake::Handshake;
use super::handshake::server::UrlOptions;
use super::link::Link;
use super::report::Reporter;
use super::sentinel::{self, Sentinels};
use super::session_maker::{Backoff, SessionMaker};
use super::wire::connection_set::{ConnectionSet, ConnectionTask, FlushFlag};
use super::wire::dial::Dial;
use super::wire::wake_listeners::WakeListeners;

/// The most calls in one batch, so that one batch does not occupy a server for long.
pub(super) const BATCH_MAX: usize = 256;

/// A Redis or Valkey server as a node.
///
/// Dropping it ends its connection once all calls that were sent before are answered.
pub struct RedisNode {
    pub(super) name: Arc<str>,
    work: mpsc::UnboundedSender<Work>,
    /// The link as its task runs it.
    member: Arc<ConnectionTask>,
    /// The connection, after its tokio runtime has ended.
    detached: Arc<Mutex<Option<DetachedConnection>>>,
    listeners: Arc<WakeListeners>,
    tier: Arc<Mutex<Option<Tier>>>,
    /// The Sentinels that name the server, if its URL has any.
    pub(super) sentinels: Option<Arc<Sentinels>>,
    /// For connections beside that of the link.
    pub(super) dial: Arc<Dial>,
    pub(super) clock: Clock,
    reporter: Reporter,
    options: UrlOptions,
    process: OwnerProcess,
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        if !self.process.is_ours() {
            let connection = (Arc::clone(&self.member), Arc::clone(&self.detached));
            std::mem::forget((self.work.clone(), connection, self.sentinels.take()));
        }
    }
}

impl RedisNode {
    /// The node that `url` names. Returns at once. The connection is made in the background, and
    /// made again whenever it is lost.
    ///
    /// # Errors
    /// Outside a tokio runtime, or if the URL's TLS files cannot be used. An unreachable
    /// server is not an error here: the calls report it.
    pub fn connect(url: RedisUrl, clock: Clock) -> Result<Self, ConnectError> {
        let prepared = Self::prepare(url, clock, false)?;
        Ok(start([prepared])?.remove(0))
    }

    fn prepare(
        url: RedisUrl,
        clock: Clock,
        never_joins: bool,
    ) -> Result<PreparedNode, ConnectError> {
        let options = UrlOptions {
            never_joins,
            ..UrlOptions::of(&url)
        };
        let dial = Arc::new(Dial::url(&url)?);
        let name = url.address.to_string();
        let reporter = Reporter::of(&url);
        let sentinels = match &url.address {
            Address::Service(service) => {
                let login = url.sentinel.clone().unwrap_or_default();
                Some(Arc::new(Sentinels::of(service, &login, clock.clone())?))
            }
            Address::Tcp(..) | Address::Unix(_) => None,
        };
        Ok(Self::with_link(
            dial,
            name.into(),
            reporter,
            options,
            clock,
            sentinels,
            None,
        ))
    }

    /// Another node of the same server, with a connection of its own in the current tokio runtime.
    /// It asks the Sentinels itself.
    fn again(&self, group: Group) -> Result<Self, ConnectError> {
        let sentinels = self.sentinels.as_ref().map(|known| {
            let sentinels = known.again();
            sentinels.adopt(&group);
            Arc::new(sentinels)
        });
        let prepared = Self::with_link(
            Arc::clone(&self.dial),
            Arc::clone(&self.name),
            self.reporter.clone(),
            self.options,
            self.clock.clone(),
            sentinels,
            Some(group),
        );
        Ok(start([prepared])?.remove(0))
    }

    /// The nodes that `urls` name, as [`RedisNode::connect`] makes them, with one task for all
    /// their connections. If it `never_joins`, nothing is written to them.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub(crate) fn connect_all(
        urls: Vec<RedisUrl>,
        clock: &Clock,
        never_joins: bool,
    ) -> Result<Vec<Self>, ConnectError> {
        let prepared = urls
            .into_iter()
            .map(|url| Self::prepare(url, clock.clone(), never_joins));
        start(prepared.collect::<Result<Vec<_>, _>>()?)
    }

    /// The node that `client` connects to, with `name` as its name in messages.
    ///
    /// If `client` has TLS settings of its own (a root certificate or an identity), the crate
    /// `redis` makes and reads the connection, and does not bound the length of a reply. For a
    /// server that is not trusted, use a URL with `?ca=`, `?cert=` and `?key=`.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub fn from_client(
        client: redis::Client,
        name: &str,
        clock: Clock,
    ) -> Result<Self, ConnectError> {
        let settings = client.get_connection_info().redis_settings();
        let options = UrlOptions {
            // A server has no database with a negative number, and refuses it.
            database: u32::try_from(settings.db()).unwrap_or(u32::MAX),
            ..UrlOptions::default()
        };
        let reporter = Reporter::new(name, settings.username(), settings.password());
        let dial = Arc::new(Dial::client(client)?);
        let name = Arc::from(name);
        let prepared = Self::with_link(dial, name, reporter, options, clock, None, None);
        Ok(start([prepared])?.remove(0))
    }

    /// A node before its link runs. It joins `group` with its first connection, if that is known.
    fn with_link(
        dial: Arc<Dial>,
        name: Arc<str>,
        reporter: Reporter,
        options: UrlOptions,
        clock: Clock,
        sentinels: Option<Arc<Sentinels>>,
        group: Option<Group>,
    ) -> PreparedNode {
        let (work, arriving) = mpsc::unbounded_channel();
        let mut queue = WorkQueue::new(arriving, clock.clone());
        queue.group = group;
        let handshake = Handshake {
            reporter: reporter.clone(),
            options,
            clock: clock.clone(),
            sentinels: sentinels.clone(),
            told_unseen: AtomicBool::default(),
            replicas_seen: AtomicBool::default(),
        };
        let listeners = Arc::new(WakeListeners::new(clock.clone()));
        let tier = Arc::default();
        let maker = SessionMaker {
            dial: Arc::clone(&dial),
            handshake,
            listeners: Arc::clone(&listeners),
            tier: Arc::clone(&tier),
            backoff: Backoff::new(Entropy::default().seed()),
        };
        let (flush, detached) = (Arc::<FlushFlag>::default(), Arc::default());
        let link = Link::new(maker, queue, Arc::clone(&flush), Arc::clone(&detached));
        let asking = sentinels.as_ref().map(sentinel::run);
        let node = move |member| Self {
            name,
            work,
            member,
            detached,
            listeners,
            tier,
            sentinels,
            dial,
            clock,
            process: OwnerProcess::current(),
            reporter,
            options,
        };
        PreparedNode {
            node: Box::new(node),
            link,
            flush,
            asking: asking.map(|asking| Box::pin(asking) as Asking),
        }
    }
}

/// A node before its link runs.
struct PreparedNode {
    node: Box<dyn FnOnce(Arc<ConnectionTask>) -> RedisNode>,
    link: Link,
    flush: Arc<FlushFlag>,
    asking: Option<Asking>,
}

/// Asks the Sentinels of a node.
type Asking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts the links of `prepared` in one task.
fn start(prepared: impl IntoIterator<Item = PreparedNode>) -> Result<Vec<RedisNode>, ConnectError> {
    let runtime = with_sockets()?;
    let mut prepared: Vec<PreparedNode> = prepared.into_iter().collect();
    for asking in prepared.iter_mut().filter_map(|one| one.asking.take()) {
        runtime.spawn(own_task(asking));
    }
    let (nodes, links): (Vec<_>, Vec<_>) = prepared
        .into_iter()
        .map(|one| (one.node, (one.link.run(), one.flush)))
        .unzip();
    let set = ConnectionSet::new(links, Some(runtime.clone()));
    let members = set.members();
    runtime.spawn(own_task(set));
    let nodes = nodes.into_iter().zip(members);
    Ok(nodes.map(|(node, member)| node(member)).collect())
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode").field(&self.name).finish()
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Call) {
        self.enqueue(Work::Call(call));
    }

    /// The crate `redis` flushes the connections that only it can make, in its own task, if that
    /// still runs.
    fn flush(&self) {
        self.member.flush();
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.listeners.add(client, to);
        self.enqueue(Work::Listen);
    }

    fn watch_changes(&self, to: Weak<dyn HearChange>) {
        ChangeWatch::start(self, to);
    }

    fn tier(&self) -> Option<Tier> {
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn needs_confirmation(&self) -> bool {
        self.sentinels.is_some()
    }

    fn confirmation(&self) -> Option<Confirmation> {
        self.sentinels.as_ref()?.confirmation()
    }

    fn probe(&self, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Probe(done)));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.adopt(&group);
        }
        self.enqueue(Work::Control(Control::Join(group, done)));
    }

    fn second(&self, group: Group) -> Option<Arc<dyn Node>> {
        let node = self.again(group).ok()?;
        Some(Arc::new(node))
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Init(group, mode, done)));
    }
}

impl RedisNode {
    fn enqueue(&self, work: Work) {
        // The task ends before the node does only if the tokio runtime shuts down, or it panicked.
        if let Err(SendError(work)) = self.work.send(work) {
            if self.was_sent_detached(&work) {
                let what = format!(
                    "{} was sent the call, but its reply cannot be read: the tokio runtime has \
                     ended",
                    self.name
                );
                let trouble = Trouble::new(TroubleKind::Disconnected, what);
                return work.fail(CallError::Unknown(trouble));
            }
            let what = format!(
                "{} was not sent the call: the task of its connection has ended, perhaps with the \
                 tokio runtime",
                self.name
            );
            work.refuse(&CallError::NotSent(Trouble::new(
                TroubleKind::Disconnected,
                what,
            )));
        }
    }

    /// Whether `work` was written to the connection that remains after the tokio runtime has ended.
    fn was_sent_detached(&self, work: &Work) -> bool {
        let Work::Call(call) = work else {
            return false;
        };
        if !self.process.is_ours() {
            return false;
        }
        let mut detached = self.detached.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = detached.as_mut();
        connection.is_some_and(|connection| connection.send(&call.request))
    }
}

/// Work for the task of a node.
#[derive(Debug)]
pub(super) enum Work {
    /// A lock operation.
    Call(Call),
    /// A control request.
    Control(Control),
    /// A new listener for wakes was added.
    Listen,
}

/// A request to the node itself.
#[derive(Debug)]
pub(super) enum Control {
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Init(Group, InitMode, Completion<Facts>),
}

impl Work {
    fn urgency(&self) -> Urgency {
        match self {
            Self::Call(call) => Urgency::of(&call.request),
            Self::Control(_) | Self::Listen => Urgency::Control,
        }
    }

    /// Answers that the work was not sent, because of `failure`.
    pub(super) fn refuse(self, failure: &CallError) {
        match self {
            // Even if the handshake was carried out, the server has not received this call.
            Self::Call(call) => {
                call.done
                    .complete(Err(CallError::NotSent(failure.trouble().clone())));
            }
            Self::Control(control) => control.complete(Err(failure.clone())),
            // The next connection subscribes for all listeners.
            Self::Listen => {}
        }
    }

    /// Answers with `failure`, if the work has an answer.
    pub(super) fn fail(self, failure: CallError) {
        match self {
            Self::Call(call) => call.done.complete(Err(failure)),
            Self::Control(control) => control.complete(Err(failure)),
            Self::Listen => {}
        }
    }
}

impl Control {
    /// Delivers the answer.
    pub(super) fn complete(self, outcome: Result<Facts, CallError>) {
        match self {
            Self::Probe(done) | Self::Join(_, done) | Self::Init(_, _, done) => {
                done.complete(outcome);
            }
        }
    }
}

/// The work of one node, in the order in which it arrived. If there is more than fits into a batch,
/// releases go first.
pub(super) struct WorkQueue {
    arriving: UnboundedReceiver<Work>,
    /// Received, but not sent yet.
    held: Backlog<Work>,
    /// The node was dropped: no more work will arrive.
    closed: bool,
    /// The group of the last join, so that the node can join again.
    pub(super) group: Option<Group>,
    clock: Clock,
}

impl WorkQueue {
    pub(super) fn new(arriving: UnboundedReceiver<Work>, clock: Clock) -> Self {
        Self {
            arriving,
            held: Backlog::default(),
            closed: false,
            group: None,
            clock,
        }
    }

    /// The next work, or `None` if the node was dropped. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Work> {
        match self.next_of_many() {
            Some(work) => Some(work),
            None => self.arrive().await,
        }
    }

    /// How much work has arrived.
    pub(super) fn len(&self) -> usize {
        self.held.len + self.arriving.len()
    }

    /// The next work that has already arrived.
    pub(super) fn try_next(&mut self) -> Option<Work> {
        self.next_of_many().or_else(|| {
            let work = self.arriving.try_recv().ok()?;
            self.note(&work);
            Some(work)
        })
    }

    /// The next call of a holder that has already arrived and must not wait behind other work.
    pub(super) fn try_next_of_holder(&mut self) -> Option<Work> {
        self.take_in();
        self.held.pop_of_holder()
    }

    /// The next work, if more has arrived than fits into one batch: then releases go first.
    /// Otherwise all of it goes into one batch, and need not be sorted.
    fn next_of_many(&mut self) -> Option<Work> {
        if self.held.len == 0 && self.arriving.len() <= BATCH_MAX {
            return None;
        }
        self.take_in();
        self.held.pop()
    }

    /// Moves all work that has arrived to `held`.
    fn take_in(&mut self) {
        while let Ok(work) = self.arriving.try_recv() {
            self.note(&work);
            self.hold(work);
        }
    }

    fn hold(&mut self, work: Work) {
        let urgency = work.urgency();
        self.held.push(work, urgency);
    }

    /// Accepts no more work.
    pub(super) fn close(&mut self) {
        self.arriving.close();
    }

    /// Puts `work` back at the front.
    pub(super) fn put_back(&mut self, work: Work) {
        self.held.put_back(work);
    }

    /// Waits for `attempt` and holds the work that arrives meanwhile. Calls are held for at most
    /// `patience` and not beyond their own expiry; then they are answered with `trouble`. `None` if
    /// the node was dropped.
    pub(super) async fn hold_during<T>(
        &mut self,
        attempt: impl Future<Output = T>,
        patience: Duration,
        trouble: &Trouble,
    ) -> Option<T> {
        tokio::pin!(attempt);
        let failure = CallError::NotSent(trouble.clone());
        let patient_until = self.clock.now() + patience;
        loop {
            if self.closed && self.held.len == 0 {
                return None;
            }
            let due = self.answer_due(patient_until, &failure);
            let clock = self.clock.clone();
            tokio::select! {
                biased;
                outcome = &mut attempt => return Some(outcome),
                work = self.arrive(), if !self.closed => if let Some(work) = work {
                    self.hold(work);
                    self.take_in();
                },
                () = clock.sleep_until(due.unwrap_or(patient_until)), if due.is_some() => {}
            }
        }
    }

    /// Answers the held calls whose time is over. Returns when the time of the next call ends.
    fn answer_due(&mut self, patient_until: Timestamp, failure: &CallError) -> Option<Timestamp> {
        let now = self.clock.now();
        let mut next = None;
        for work in self.held.drain() {
            let due = match &work {
                Work::Call(call) => call.expires.min(patient_until),
                // Probes and joins wait for the attempt, which has a bound of its own.
                Work::Control(_) | Work::Listen => {
                    self.hold(work);
                    continue;
                }
            };
            if due <= now {
                work.refuse(failure);
            } else {
                next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
                self.hold(work);
            }
        }
        next
    }

    /// Answers all work with `failure` for the time `rest`. Returns false if the node was dropped.
    pub(super) async fn refuse_during(&mut self, rest: Duration, failure: &CallError) -> bool {
        for work in self.held.drain() {
            work.refuse(failure);
        }
        let until = self.clock.now() + rest;
        let clock = self.clock.clone();
        let rested = clock.sleep_until(until);
        tokio::pin!(rested);
        while !self.closed {
            tokio::select! {
                biased;
                work = self.arrive() => if let Some(work) = work { work.refuse(failure) },
                () = &mut rested => return true,
            }
        }
        false
    }

    async fn arrive(&mut self) -> Option<Work> {
        let work = self.arriving.recv().await;
        match &work {
            Some(work) => self.note(work),
            None => self.closed = true,
        }
        work
    }

    /// Remembers the group of a join: a node that is unreachable now must join when it is
    /// reachable.
    fn note(&mut self, work: &Work) {
        if let Work::Control(Control::Join(group, _)) = work {
            self.group = Some(*group);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::SteppedClock;
    use crate::message::{Op, PlainAcquire};
    use crate::node::backlog::tests::call_of;

    fn call(token: usize, op: Op) -> Work {
        Work::Call(call_of(token, op, Timestamp::from_nanos(u64::MAX)))
    }

    fn is_release(work: &Work) -> bool {
        matches!(work, Work::Call(call) if matches!(call.request.op, Op::PlainRelease))
    }

    /// The position of a release of token `of` that arrives behind `flood` acquires.
    fn position_of_release(flood: usize, of: usize) -> usize {
        let (to, arriving) = unbounded_channel();
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let mut queue = WorkQueue::new(arriving, clock);
        for token in 0..flood {
            to.send(call(token, Op::PlainAcquire(PlainAcquire { ttl_ms: 1 })))
                .unwrap();
        }
        to.send(call(of, Op::PlainRelease)).unwrap();
        let all: Vec<Work> = std::iter::from_fn(|| queue.try_next()).collect();
        assert_eq!(all.len(), flood + 1);
        all.iter().position(is_release).unwrap()
    }

    #[test]
    fn under_a_flood_a_release_goes_first() {
        assert_eq!(position_of_release(BATCH_MAX, 5_000), 0);
        assert_eq!(position_of_release(10_000, 50_000), 0);
    }

    #[test]
    fn a_release_never_goes_before_the_acquire_of_its_own_token() {
        assert_eq!(position_of_release(1_000, 999), 1_000);
    }

    #[test]
    fn work_that_fits_into_one_batch_keeps_its_order() {
        assert_eq!(position_of_release(BATCH_MAX - 1, 5_000), BATCH_MAX - 1);
    }
}
