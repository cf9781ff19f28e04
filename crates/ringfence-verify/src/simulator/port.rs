//! The client's side of a connection, as the product sees it: a [`Node`] that only writes down what it
//! is asked. The world takes it from there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::clock::SteppedClock;
use ringfence::node::{Call, Completion, Facts, Hear, InitMode, Node};
use ringfence_core::group::Group;
use tokio::sync::oneshot;

use super::dial::Dial;
use super::resource::Visit;

/// One thing that a client asks for.
pub(super) enum Ask {
    Call(Call),
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Listen(String, Arc<dyn Hear>),
}

/// What a client has asked for since the world last looked.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Mutex<Letters>>);

struct Letters {
    asks: Vec<(usize, u64, Ask)>,
    visits: Vec<(u64, String, Visit, oneshot::Sender<Option<u64>>)>,
    clock: SteppedClock,
    dial: Dial,
    /// The present moment of true time, when the client was last let run.
    now: u64,
    /// For how long it has stood still since then, in the middle of what it does.
    stalled: u64,
    /// After so many more requests it stands still for so long.
    stall: Option<(u32, u64)>,
    /// Nobody reads this any more.
    dead: bool,
}

impl Outbox {
    pub(super) fn new(clock: SteppedClock, dial: Dial) -> Self {
        Self(Arc::new(Mutex::new(Letters {
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

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is let run at `now`: its clock shows what it should.
    pub(super) fn set_now(&self, now: u64) {
        let mut letters = self.lock();
        letters.now = now;
        letters.stalled = 0;
        let shows = letters.dial.at(now);
        let ahead = shows.saturating_sub(letters.clock.now().as_nanos());
        let clock = letters.clock.clone();
        drop(letters);
        if ahead > 0 {
            clock.step(Duration::from_nanos(ahead));
        }
    }

    /// The present moment of true time, as the client has it.
    pub(super) fn now(&self) -> u64 {
        let letters = self.lock();
        letters.now + letters.stalled
    }

    /// How long the client stood still while it was last let run.
    pub(super) fn stalled(&self) -> u64 {
        self.lock().stalled
    }

    pub(super) fn dial(&self) -> Dial {
        self.lock().dial
    }

    pub(super) fn with_dial(&self, change: impl FnOnce(&mut Dial)) {
        change(&mut self.lock().dial);
    }

    /// After `sends` more requests the client stands still for `nanos`.
    pub(super) fn stall_after(&self, sends: u32, nanos: u64) {
        self.lock().stall = Some((sends, nanos));
    }

    pub(super) fn close(&self) {
        self.lock().dead = true;
    }

    /// What was asked of nodes, each with how long the client had stood still before it.
    pub(super) fn take_asks(&self) -> Vec<(usize, u64, Ask)> {
        std::mem::take(&mut self.lock().asks)
    }

    /// The same of resources.
    pub(super) fn take_visits(&self) -> Vec<(u64, String, Visit, oneshot::Sender<Option<u64>>)> {
        std::mem::take(&mut self.lock().visits)
    }

    /// Asks the resource `name`. Never answered if the answer is lost.
    pub(super) fn visit(&self, name: &str, visit: Visit) -> oneshot::Receiver<Option<u64>> {
        let (answer, answered) = oneshot::channel();
        let mut letters = self.lock();
        if !letters.dead {
            let stalled = letters.stalled;
            letters
                .visits
                .push((stalled, name.to_owned(), visit, answer));
        }
        answered
    }

    fn ask(&self, node: usize, ask: Ask) {
        let mut letters = self.lock();
        if letters.dead {
            drop(letters);
            // Outside the lock: whoever hears that it was dropped may ask again.
            return drop(ask);
        }
        let mut pause = None;
        match &mut letters.stall {
            Some((0, nanos)) => {
                let nanos = *nanos;
                letters.stall = None;
                let shown = letters.dial.at(letters.now + letters.stalled);
                letters.stalled += nanos;
                let shows = letters.dial.at(letters.now + letters.stalled);
                pause = Some(Duration::from_nanos(shows - shown));
            }
            Some((sends, _)) => *sends -= 1,
            None => {}
        }
        let stalled = letters.stalled;
        letters.asks.push((node, stalled, ask));
        let clock = letters.clock.clone();
        drop(letters);
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

    fn init(&self, _group: Group, _mode: InitMode, done: Completion<Facts>) {
        // Nobody declares a simulated cluster new: it is so from the start.
        drop(done);
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({})", self.name)
    }
}
