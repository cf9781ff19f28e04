//! The client's side of a connection as the product sees it: a [`Node`] that only collects the
//! requests. The world takes them from here.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::clock::SteppedClock;
use ringfence::node::{Call, Completion, Confirmation, Facts, Hear, InitMode, Node};
use ringfence_core::group::Group;
use tokio::sync::oneshot;

use super::dial::Dial;
use super::link::SharedConfirmation;
use super::resource::Visit;

/// One request of a client.
pub(super) enum Ask {
    Call(Call),
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Listen(String, Arc<dyn Hear>),
}

/// The requests of a client since the world last took them.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Mutex<Collected>>);

struct Collected {
    asks: Vec<(usize, u64, Ask)>,
    visits: Vec<(u64, String, Visit, oneshot::Sender<Option<u64>>)>,
    clock: SteppedClock,
    dial: Dial,
    /// The current true time when the client was last allowed to run.
    now: u64,
    /// For how long the client has been paused since then, in the middle of its work.
    stalled: u64,
    /// After this many more requests, pause for this long.
    stall: Option<(u32, u64)>,
    /// The client was killed: nothing is collected any more.
    dead: bool,
}

impl Outbox {
    pub(super) fn new(clock: SteppedClock, dial: Dial) -> Self {
        Self(Arc::new(Mutex::new(Collected {
            asks: Vec::new(),
            visits: Vec::new(),
            clock,
            dial,
            now: 0,
            stalled: 0,
            stall: None,
            dead: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is allowed to run at `now`: sets its clock.
    pub(super) fn set_now(&self, now: u64) {
        let mut collected = self.lock();
        collected.now = now;
        collected.stalled = 0;
        let shows = collected.dial.at(now);
        let ahead = shows.saturating_sub(collected.clock.now().as_nanos());
        let clock = collected.clock.clone();
        drop(collected);
        if ahead > 0 {
            clock.step(Duration::from_nanos(ahead));
        }
    }

    /// The current true time for the client.
    pub(super) fn now(&self) -> u64 {
        let collected = self.lock();
        collected.now + collected.stalled
    }

    /// For how long the client was paused while it last ran.
    pub(super) fn stalled(&self) -> u64 {
        self.lock().stalled
    }

    pub(super) fn dial(&self) -> Dial {
        self.lock().dial
    }

    pub(super) fn with_dial(&self, change: impl FnOnce(&mut Dial)) {
        change(&mut self.lock().dial);
    }

    /// Pauses the client for `nanos` after `sends` more requests.
    pub(super) fn stall_after(&self, sends: u32, nanos: u64) {
        self.lock().stall = Some((sends, nanos));
    }

    pub(super) fn close(&self) {
        self.lock().dead = true;
    }

    /// The requests to nodes, each with how long the client had been paused before it.
    pub(super) fn take_asks(&self) -> Vec<(usize, u64, Ask)> {
        std::mem::take(&mut self.lock().asks)
    }

    /// The requests to resources, in the same form.
    pub(super) fn take_visits(&self) -> Vec<(u64, String, Visit, oneshot::Sender<Option<u64>>)> {
        std::mem::take(&mut self.lock().visits)
    }

    /// Sends a request to the resource `name`. Never answered if the reply is lost.
    pub(super) fn visit(&self, name: &str, visit: Visit) -> oneshot::Receiver<Option<u64>> {
        let (answer, answered) = oneshot::channel();
        let mut collected = self.lock();
        if !collected.dead {
            let stalled = collected.stalled;
            collected
                .visits
                .push((stalled, name.to_owned(), visit, answer));
        }
        answered
    }

    fn ask(&self, node: usize, ask: Ask) {
        let mut collected = self.lock();
        if collected.dead {
            drop(collected);
            // Dropped outside the lock, because the drop may lead to another request.
            return drop(ask);
        }
        let mut pause = None;
        match &mut collected.stall {
            Some((0, nanos)) => {
                let nanos = *nanos;
                collected.stall = None;
                let shown = collected.dial.at(collected.now + collected.stalled);
                collected.stalled += nanos;
                let shows = collected.dial.at(collected.now + collected.stalled);
                pause = Some(Duration::from_nanos(shows - shown));
            }
            Some((sends, _)) => *sends -= 1,
            None => {}
        }
        let stalled = collected.stalled;
        collected.asks.push((node, stalled, ask));
        let clock = collected.clock.clone();
        drop(collected);
        if let Some(pause) = pause {
            clock.step(pause);
        }
    }
}

/// One node, as the product sees it.
pub(super) struct Port {
    pub(super) node: usize,
    pub(super) name: String,
    pub(super) outbox: Outbox,
    /// The last confirmation of the Sentinels, if the node has any.
    pub(super) confirmation: Option<SharedConfirmation>,
}

impl Node for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Call) {
        self.outbox.ask(self.node, Ask::Call(call));
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.outbox
            .ask(self.node, Ask::Listen(client.to_owned(), to));
    }

    fn probe(&self, done: Completion<Facts>) {
        self.outbox.ask(self.node, Ask::Probe(done));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.outbox.ask(self.node, Ask::Join(group, done));
    }

    fn needs_confirmation(&self) -> bool {
        self.confirmation.is_some()
    }

    fn confirmation(&self) -> Option<Confirmation> {
        let shared = self.confirmation.as_ref()?;
        *shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn init(&self, _group: Group, _mode: InitMode, done: Completion<Facts>) {
        // A simulated cluster is initialised from the start.
        drop(done);
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({})", self.name)
    }
}
