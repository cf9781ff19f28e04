//! One simulated client: the product's own `Locks` in a runtime of its own, which runs only when the
//! world lets it, on a clock that shows what the world says.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::entropy::Entropy;
use ringfence::{Locks, Owner};
use ringfence_core::time::Timestamp;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::dial::Dial;
use super::life::{Affairs, Life, Witness};
use super::link::Link;
use super::plan::{Plan, Step};
use super::port::{Outbox, Port};
use super::world::Happening;

/// What a client's clock shows when the world begins, so that nothing rests on a clock at zero.
const BOOT: Duration = Duration::from_secs(1_000);

/// How often a client tries to connect, and how long it rests in between: longer in all than addresses
/// lead to the wrong server.
const CONNECT_TRIES: u32 = 100;
const CONNECT_AGAIN: Duration = Duration::from_millis(500);

/// One client.
pub(super) struct Client {
    /// Gone once it was killed.
    runtime: Option<Runtime>,
    /// All that it does.
    life: JoinHandle<()>,
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
        let affairs = Affairs::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime without any driver needs nothing");
        let (group, drift, nodes) = (plan.group, plan.drift, plan.nodes.len());
        let (of_builder, to_nodes) = (clock.clone(), outbox.clone());
        let entropy = entropy.clone();
        let builder = move || {
            let builder = Locks::builder()
                .clock(Clock::Stepped(of_builder.clone()))
                .entropy(entropy.clone())
                .label(&format!("client{at}"))
                .drift(drift.0, drift.1)
                .window(group.window)
                .quarantine(group.quarantine);
            (0..nodes).fold(builder, |builder, node| {
                builder.node(Port {
                    node,
                    name: format!("n{node}"),
                    outbox: to_nodes.clone(),
                })
            })
        };
        let (witness, mine) = (witness.clone(), affairs.clone());
        let (outbox_of_life, clock_of_life) = (outbox.clone(), clock.clone());
        let start = plan.clients[at].start;
        let life = runtime.spawn(async move {
            let clock = Clock::Stepped(clock_of_life);
            clock.sleep_until(clock.now() + start).await;
            let mut tries = 0;
            let locks = loop {
                match builder().connect().await {
                    Ok(locks) => break locks,
                    // Too many addresses lead to one server, for the time being.
                    Err(error) => assert!(tries < CONNECT_TRIES, "the settings are good: {error}"),
                }
                tries += 1;
                clock.sleep_until(clock.now() + CONNECT_AGAIN).await;
            };
            let life = Life {
                client: at as u64,
                locks: locks.clone(),
                clock,
                outbox: outbox_of_life,
                witness,
                affairs: mine.clone(),
                owner: Owner::new(),
                drift: drift.0,
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
            life,
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
            let ended = self.affairs.is_finished() || !self.life.is_finished();
            assert!(ended, "a client panicked: see above");
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
