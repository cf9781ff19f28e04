//! The world: true time, a queue of what happens next, and all clients and servers. It runs on one
//! thread, without a real clock, and all random numbers come from the seed, so the same plan gives
//! the same run.

mod arrivals;
mod clients;
mod faults;
mod happening;
mod roles;
mod sentinels;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use ringfence::entropy::Entropy;

use crate::history::{Event, History, What};

pub(super) use happening::Happening;
pub use roles::Changes;
use sentinels::Sentinels;

use super::client::Client;
use super::dial::Dial;
use super::life::Witness;
use super::network::Network;
use super::plan::{Parts, Plan, Step};
use super::resource::Resources;
use super::server::Server;
use crate::random::Random;

/// What the nodes' clocks show at the beginning.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);
/// How long all calls may take to end after the last fault.
const PATIENCE: Duration = Duration::from_secs(150);
/// How much may happen in one schedule; more is a loop.
const HAPPENINGS_MAX: u64 = 200_000;
/// The longest time that anything remains on a node without requests: a lease and a ticket, on the
/// slowest clock.
const LINGER: Duration = Duration::from_secs(12);

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The events.
    pub history: History,
    /// Every message, if they were traced.
    pub trace: String,
    /// How much happened.
    pub happenings: u64,
    /// Changes of roles and addresses.
    pub changes: Changes,
}

struct World<'a> {
    plan: &'a Plan,
    now: u64,
    next: BTreeMap<(u64, u64), Happening>,
    happenings: u64,
    /// One for each node, then one standby for each node.
    servers: Vec<Host>,
    /// The server that each node's address leads to.
    addresses: Vec<usize>,
    /// The server that each connection leads to: client, node and number.
    routes: BTreeMap<(usize, usize, u64), usize>,
    clients: Vec<Client>,
    network: Network,
    resources: Resources,
    witness: Witness,
    random: Random,
    /// The nodes on which a waiting call has its ticket.
    queued: BTreeMap<u64, BTreeSet<usize>>,
    /// The nodes that granted a call, by its ballot.
    seated: BTreeMap<(u64, u64), BTreeSet<usize>>,
    /// The client that receives the wakes of each id.
    listeners: BTreeMap<String, usize>,
    trace: Option<String>,
    /// Whether everything that was released is gone as soon as all clients are.
    prompt: bool,
    /// Nodes whose own server was promoted again.
    failed_back: BTreeSet<usize>,
    changes: Changes,
    sentinels: Option<Sentinels>,
}

/// A server, and what waits for it.
struct Host {
    server: Server,
    hung_until: Option<u64>,
    /// What arrived while it hung.
    backlog: Vec<Happening>,
}

/// Runs the `parts` of `plan`. Records every message if `traced`.
pub fn run(plan: &Plan, parts: &Parts, traced: bool) -> Run {
    let mut world = World::new(plan, parts, traced);
    world.go();
    Run {
        happenings: world.happenings,
        changes: world.changes,
        trace: world.trace.take().unwrap_or_default(),
        history: world.into_history(),
    }
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, parts: &Parts, traced: bool) -> Self {
        let witness = Witness::default();
        let mut world = Self {
            now: 0,
            next: BTreeMap::new(),
            happenings: 0,
            servers: servers(plan),
            addresses: (0..plan.nodes.len()).collect(),
            routes: BTreeMap::new(),
            clients: clients(plan, parts, &witness),
            network: Network::new(plan),
            resources: Resources::default(),
            random: Random::apart(plan.seed, u64::MAX),
            queued: BTreeMap::new(),
            seated: BTreeMap::new(),
            listeners: BTreeMap::new(),
            trace: traced.then(String::new),
            prompt: parts.steps.iter().all(|&at| !plan.steps[at].lingers()),
            failed_back: BTreeSet::new(),
            changes: Changes::default(),
            sentinels: Sentinels::new(plan),
            witness,
            plan,
        };
        for &at in &parts.faults {
            let when = nanos(plan.faults[at].at);
            world.schedule(when, Happening::Fault(at));
        }
        world.schedule(nanos(plan.healed), Happening::Heals);
        if plan.two_lines {
            // A schedule in which a waiter was passed by a later one is known (seed 5251). So the
            // order of grants is judged only without a second connection.
            let what = "renewals take two connections".to_owned();
            world.note(What::Fault {
                what,
                timing: false,
            });
        }
        if plan.clocks_apart() {
            let what = "the nodes' clocks are too far apart to agree on an order".to_owned();
            world.note(What::Fault {
                what,
                timing: false,
            });
        }
        world
    }

    fn schedule(&mut self, at: u64, happening: Happening) {
        self.happenings += 1;
        self.next
            .insert((at.max(self.now), self.happenings), happening);
    }

    fn go(&mut self) {
        for client in 0..self.clients.len() {
            self.run_client(client);
        }
        let limit = nanos(self.plan.healed + PATIENCE);
        while let Some(((at, _), happening)) = self.next.pop_first() {
            if at > limit || self.happenings > HAPPENINGS_MAX {
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        // A client that was stalled during its work, and is done, is ahead of the world's time.
        let ahead = self.clients.iter().map(|client| client.outbox.now()).max();
        self.now = self.now.max(ahead.unwrap_or_default());
        if self.clients.iter().all(|client| !client.is_alive()) {
            self.look_for_remains();
        }
        if self.happenings <= HAPPENINGS_MAX || self.clocks_in_reach() {
            self.note(What::Over);
        }
    }

    /// Whether one ballot could be accepted by all nodes. If not, and one more node may not vote
    /// yet, waiting callers wake each other with their undos until that node may vote. So much
    /// happens then that no time is left for them to end.
    fn clocks_in_reach(&self) -> bool {
        let clocks = || {
            self.addresses
                .iter()
                .map(|&server| self.servers[server].server.clock_us(self.now))
        };
        let apart = clocks().max().unwrap_or_default() - clocks().min().unwrap_or_default();
        Duration::from_micros(apart) < self.plan.group.window
    }

    fn note(&self, what: What) {
        self.witness.note(self.now, what);
    }

    fn trace_line(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>15} {}", self.now, line());
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives { .. } => self.arrive(happening),
            Happening::Answered { client, .. }
            | Happening::Rings { client, .. }
            | Happening::Due { client, .. }
            | Happening::Says { client, .. }
            | Happening::Visited { client, .. } => self.reach(client, happening),
            Happening::Asks {
                client,
                index,
                sentinel,
                asked_at,
            } => self.answer_question(client, (index, sentinel), asked_at),
            Happening::Learns { sentinel, named } => self.learn(sentinel, named),
            Happening::Visits {
                client,
                resource,
                visit,
                answer,
            } => self.visit(client, &resource, &visit, answer),
            Happening::Fault(at) => self.fault(at),
            Happening::Strobe { node, by_us } => self.step_clock(node, by_us),
            Happening::Resumes { client } => self.resume(client),
            Happening::Recovers { server } => self.recover(server),
            Happening::PointsBack {
                node,
                connections_stay,
            } => self.point_back(node, connections_stay),
            Happening::CloseMisrouted { node } => self.end_misrouted(node),
            Happening::Heals => self.heal(),
        }
    }

    /// Records what is left after all clients are gone and nothing is on its way any more.
    fn look_for_remains(&mut self) {
        let mut looks = vec![(LINGER, true)];
        if self.prompt {
            looks.insert(0, (Duration::ZERO, false));
        }
        for (after, places) in looks {
            self.now += nanos(after);
            for server in 0..self.servers.len() {
                let node = self.node_of(server);
                for (name, what) in self.servers[server].server.remains(self.now, places) {
                    self.note(What::Remains { node, name, what });
                }
            }
        }
    }

    fn into_history(self) -> History {
        // By true time: a client that was stalled during its work is ahead of the world's time.
        let mut noted = self.witness.take();
        noted.sort_by_key(|(at, _)| *at);
        let events = noted.into_iter().map(|(at, what)| Event {
            at_us: at / 1_000,
            what,
        });
        History {
            events: events.collect(),
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for client in &mut self.clients {
            client.kill(self.now, &Witness::default());
        }
    }
}

/// The servers of `plan`: one for each node, then one standby for each node.
fn servers(plan: &Plan) -> Vec<Host> {
    let nodes = plan.nodes.iter().chain(&plan.nodes).enumerate();
    let servers = nodes.map(|(number, node)| {
        let shows = (EPOCH.as_nanos() as u64).saturating_add_signed(node.ahead_us * 1_000);
        let dial = Dial::new(shows, node.rate);
        let epoch = plan.sentinels.as_ref().map(|_| 1);
        let mut server = Server::new(number, dial, node.durable, plan.group, epoch);
        if number >= plan.nodes.len() {
            // A standby, which is started when it is attached.
            server.forget();
            server.up = false;
        }
        Host {
            server,
            hung_until: None,
            backlog: Vec::new(),
        }
    });
    servers.collect()
}

/// The clients of `plan`, each with its tasks.
fn clients(plan: &Plan, parts: &Parts, witness: &Witness) -> Vec<Client> {
    // One generator for all clients, so that all tokens are different.
    let entropy = Entropy::seeded(plan.seed);
    let clients = (0..plan.clients.len()).map(|client| {
        let mut tasks: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
        for step in parts.steps.iter().map(|&at| &plan.steps[at]) {
            if step.client == client {
                tasks.entry(step.task).or_default().push(step.clone());
            }
        }
        let tasks = tasks.into_values().collect();
        Client::new(client, plan, &entropy, witness, tasks)
    });
    clients.collect()
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}
