//! One simulated client: the product's own `Locks` in its own tokio runtime, which runs only when
//! the world lets it, on a clock that the world sets.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::entropy::Entropy;
use ringfence::{Builder, Locks, Owner};
use ringfence_core::group::Group;
use ringfence_core::time::Timestamp;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::dial::Dial;
use super::life::{Life, OpenWork, Witness};
use super::link::{Confirming, Link, SharedConfirmation};
use super::plan::{Plan, Step};
use super::port::{Outbox, Port};
use super::world::Happening;

/// What a client's clock shows at the beginning. Not zero, so that no code relies on zero.
const BOOT: Duration = Duration::from_secs(1_000);

/// How often a client tries to connect, and the pause between two tries. Together longer than an
/// address may lead to a wrong server.
const CONNECT_TRIES: u32 = 100;
const CONNECT_AGAIN: Duration = Duration::from_millis(500);

/// One client.
pub(super) struct Client {
    /// `None` after it was killed.
    runtime: Option<Runtime>,
    /// The task that does everything.
    life: JoinHandle<()>,
    clock: SteppedClock,
    pub(super) outbox: Outbox,
    pub(super) links: Vec<Link>,
    pub(super) open_work: OpenWork,
    /// It is paused until this time.
    pub(super) paused_until: Option<u64>,
    /// What arrived for it during the pause.
    pub(super) waiting: Vec<Happening>,
    /// Pause it for this long at the next reply, before its callers learn of that reply.
    pub(super) pause_at_reply: Option<u64>,
    /// The number of its latest alarm: earlier alarms are out of date.
    pub(super) tick: u64,
}

impl Client {
    /// A client that does `tasks`, each of them a list of steps.
    pub(super) fn new(
        at: usize,
        plan: &Plan,
        entropy: &Entropy,
        witness: &Witness,
        tasks: Vec<Vec<Step>>,
    ) -> Self {
        let clock = SteppedClock::starting_at(BOOT);
        let rate = plan.clients[at].rate;
        let outbox = Outbox::new(clock.clone(), Dial::new(BOOT.as_nanos() as u64, rate));
        let open_work = OpenWork::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a tokio runtime without I/O and timers can always be built");
        let sentinels = plan.sentinels.as_ref();
        let confirmation = sentinels.map(|_| SharedConfirmation::default());
        let link = || match sentinels.zip(confirmation.clone()) {
            None => Link::default(),
            Some((sentinels, shared)) => {
                let confirming = Confirming::new(sentinels.lists[at].clone(), shared);
                Link::behind_sentinels(confirming)
            }
        };
        let links = (0..plan.nodes.len()).map(|_| link()).collect();
        let startup = Startup {
            confirmation,
            at,
            nodes: plan.nodes.len(),
            group: plan.group,
            drift: plan.drift,
            calm: plan.faults.is_empty(),
            start: plan.clients[at].start,
            entropy: entropy.clone(),
            clock: clock.clone(),
            outbox: outbox.clone(),
            open_work: open_work.clone(),
            witness: witness.clone(),
        };
        let life = runtime.spawn(startup.run(tasks));
        Self {
            runtime: Some(runtime),
            life,
            clock,
            outbox,
            links,
            open_work,
            paused_until: None,
            waiting: Vec::new(),
            pause_at_reply: None,
            tick: 0,
        }
    }

    /// Whether it runs and still has something to do.
    pub(super) fn is_alive(&self) -> bool {
        self.runtime.is_some() && !self.open_work.is_finished()
    }

    /// What its clock shows.
    pub(super) fn shows(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs all its tasks until none can continue.
    pub(super) fn settle(&self) {
        if let Some(runtime) = &self.runtime {
            // A task that yields runs again after all others. Twice, because one turn of the
            // scheduler is limited.
            runtime.block_on(async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            });
            let ended = self.open_work.is_finished() || !self.life.is_finished();
            assert!(ended, "a client panicked: see above");
        }
    }

    /// When, in true time, its next timer fires.
    pub(super) fn due(&self) -> Option<u64> {
        let due = self.clock.next_due()?;
        Some(self.outbox.dial().when(due.as_nanos()))
    }

    /// Ends it at `now` without any further message.
    pub(super) fn kill(&mut self, now: u64, witness: &Witness) {
        self.outbox.close();
        self.open_work.abandon(now, &self.outbox.dial(), witness);
        self.waiting.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a client needs to connect and to begin its work.
struct Startup {
    at: usize,
    nodes: usize,
    group: Group,
    drift: (f64, Duration),
    calm: bool,
    start: Duration,
    entropy: Entropy,
    clock: SteppedClock,
    outbox: Outbox,
    open_work: OpenWork,
    witness: Witness,
    confirmation: Option<SharedConfirmation>,
}

impl Startup {
    /// Connects, does `tasks` and closes the client.
    async fn run(self, tasks: Vec<Vec<Step>>) {
        let clock = Clock::Stepped(self.clock.clone());
        clock.sleep_until(clock.now() + self.start).await;
        let locks = self.connect(&clock).await;
        let life = Life {
            client: self.at as u64,
            locks: locks.clone(),
            clock,
            outbox: self.outbox.clone(),
            witness: self.witness.clone(),
            open_work: self.open_work.clone(),
            owner: Owner::new(),
            drift: self.drift.0,
            calm: self.calm,
        };
        let mut running = tokio::task::JoinSet::new();
        for steps in tasks {
            running.spawn(life.clone().task(steps));
        }
        while let Some(done) = running.join_next().await {
            done.expect("no task panics");
        }
        drop(life);
        locks.close().await;
        self.open_work.finish();
    }

    /// Tries until it is connected: too many addresses may lead to one server for a while.
    async fn connect(&self, clock: &Clock) -> Locks {
        let mut tries = 0;
        loop {
            match self.builder().connect().await {
                Ok(locks) => break locks,
                Err(error) => assert!(tries < CONNECT_TRIES, "the client cannot connect: {error}"),
            }
            tries += 1;
            clock.sleep_until(clock.now() + CONNECT_AGAIN).await;
        }
    }

    fn builder(&self) -> Builder {
        let builder = Locks::builder()
            .clock(Clock::Stepped(self.clock.clone()))
            .entropy(self.entropy.clone())
            .label(&format!("client{}", self.at))
            .drift(self.drift.0, self.drift.1)
            .window(self.group.window)
            .quarantine(self.group.quarantine)
            .failover(self.group.failover)
            .stale_master(self.group.stale_master)
            .reply_within(self.group.reply_within);
        (0..self.nodes).fold(builder, |builder, node| {
            builder.node(Port {
                node,
                name: format!("n{node}"),
                outbox: self.outbox.clone(),
                confirmation: self.confirmation.clone(),
            })
        })
    }
}
