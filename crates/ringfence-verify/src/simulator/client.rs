//! One simulated client: the product's own `Locks` in a runtime of its own, which runs only when the
//! world lets it, on a clock that shows what the world says.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::time::Timestamp;
use ringfence::{Locks, Owner};
use tokio::runtime::Runtime;

use super::dial::Dial;
use super::life::{Affairs, Life, Witness};
use super::link::Link;
use super::plan::{Plan, Step};
use super::port::{Outbox, Port};
use super::world::Happening;

/// What a client's clock shows when the world begins, so that nothing rests on a clock at zero.
const BOOT: Duration = Duration::from_secs(1_000);

/// One client.
pub(super) struct Client {
    /// Gone once it was killed.
    runtime: Option<Runtime>,
    clock: SteppedClock,
    pub(super) outbox: Outbox,
    pub(super) links: Vec<Link>,
    pub(super) affairs: Affairs,
    /// It stands still until then.
    pub(super) paused_until: Option<u64>,
    /// What has come for it meanwhile.
    pub(super) waiting: Vec<Happening>,
    /// At the next answer it stands still for so long, before anybody learns of it.
    pub(super) pause_when_heard: Option<u64>,
    /// The last time that it was to be woken: earlier ones are out of date.
    pub(super) tick: u64,
}

impl Client {
    /// A client that does `tasks`, each of them a list of steps.
    pub(super) fn new(at: usize, plan: &Plan, witness: &Witness, tasks: Vec<Vec<Step>>) -> Self {
        let clock = SteppedClock::starting_at(BOOT);
        let rate = plan.clients[at].rate;
        let outbox = Outbox::new(clock.clone(), Dial::new(BOOT.as_nanos() as u64, rate));
        let affairs = Affairs::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime without any driver needs nothing");
        let mut builder = Locks::builder()
            .clock(Clock::Stepped(clock.clone()))
            .label(&format!("client{at}"))
            .drift(plan.drift.0, plan.drift.1)
            .window(plan.group.window)
            .quarantine(plan.group.quarantine);
        for node in 0..plan.nodes.len() {
            builder = builder.node(Port {
                node,
                name: format!("n{node}"),
                outbox: outbox.clone(),
            });
        }
        let (witness, mine) = (witness.clone(), affairs.clone());
        let (outbox_of_life, clock_of_life) = (outbox.clone(), clock.clone());
        let start = plan.clients[at].start;
        let drift = plan.drift.0;
        runtime.spawn(async move {
            let clock = Clock::Stepped(clock_of_life);
            clock.sleep_until(clock.now() + start).await;
            let locks = builder.connect().await.expect("the settings are good");
            let life = Life {
                client: at as u64,
                locks: locks.clone(),
                clock,
                outbox: outbox_of_life,
                witness,
                affairs: mine.clone(),
                owner: Owner::new(),
                drift,
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
            mine.finish();
        });
        Self {
            runtime: Some(runtime),
            clock,
            outbox,
            links: (0..plan.nodes.len()).map(|_| Link::default()).collect(),
            affairs,
            paused_until: None,
            waiting: Vec::new(),
            pause_when_heard: None,
            tick: 0,
        }
    }

    /// Whether it is there and has something to do still.
    pub(super) fn is_alive(&self) -> bool {
        self.runtime.is_some() && !self.affairs.is_finished()
    }

    /// What its clock shows.
    pub(super) fn shows(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets all its tasks run until none can.
    pub(super) fn settle(&self) {
        if let Some(runtime) = &self.runtime {
            // Whoever yields is run again when all others have been; twice, since a turn is bounded.
            runtime.block_on(async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            });
        }
    }

    /// When, in true time, it has something to do of its own accord.
    pub(super) fn due(&self) -> Option<u64> {
        let due = self.clock.next_due()?;
        Some(self.outbox.dial().when(due.as_nanos()))
    }

    /// Is gone at `now`, without another word.
    pub(super) fn kill(&mut self, now: u64, witness: &Witness) {
        self.outbox.close();
        self.affairs.abandon(now, &self.outbox.dial(), witness);
        self.waiting.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
