//! The world: true time, a list of what happens next, and everybody to whom it happens. One thread,
//! no clock and no chance but the seed's, so that the same plan gives the same run.

mod arrivals;
mod faults;
mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use ringfence::entropy::Entropy;
use tokio::sync::oneshot;

use crate::history::{Event, History, What};

pub use roles::Changes;

use super::client::Client;
use super::dial::Dial;
use super::life::Witness;
use super::link::{Alarm, Out, Parcel, Word};
use super::network::Network;
use super::plan::{Parts, Plan, Step};
use super::port::Ask;
use super::resource::{Resources, Visit};
use super::server::Server;
use crate::random::Random;

/// What the nodes' clocks show when the world begins.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);
/// How long everybody has to end after the last fault.
const PATIENCE: Duration = Duration::from_secs(150);
/// So much may happen in one schedule; more is a loop.
const HAPPENINGS_MAX: u64 = 200_000;
/// The longest that anything stands on a node once nobody asks for it: a lease and a place in line,
/// on the slowest of clocks.
const LINGER: Duration = Duration::from_secs(12);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What happened.
    pub history: History,
    /// Every message, if they were asked for.
    pub trace: String,
    /// How much happened.
    pub happenings: u64,
    /// What happened to roles and addresses.
    pub changes: Changes,
}

/// Something that happens.
pub(super) enum Happening {
    Arrives {
        client: usize,
        node: usize,
        connection: u64,
        number: u64,
        parcel: Parcel,
        /// It was already late when its connection ended.
        late: bool,
    },
    Answered {
        client: usize,
        node: usize,
        connection: u64,
        number: u64,
        word: Word,
    },
    Rings {
        client: usize,
        node: usize,
        alarm: Alarm,
    },
    /// A client has something to do of its own accord.
    Due {
        client: usize,
        tick: u64,
    },
    Visits {
        client: usize,
        resource: String,
        visit: Visit,
        answer: oneshot::Sender<Option<u64>>,
    },
    Visited {
        client: usize,
        value: Option<u64>,
        answer: oneshot::Sender<Option<u64>>,
    },
    Fault(usize),
    /// A node's clock is set, as part of a fault.
    Strobe {
        node: usize,
        by_us: i64,
    },
    /// A client that stood still goes on.
    Resumes {
        client: usize,
    },
    /// A server that stood still or was down goes on.
    Recovers {
        server: usize,
    },
    /// An address that led to another node's server leads to its own again.
    PointsBack {
        node: usize,
        connections_stay: bool,
    },
    /// The connections of a node that do not lead where its address does end.
    Strays {
        node: usize,
    },
    Heals,
}

struct World<'a> {
    plan: &'a Plan,
    now: u64,
    next: BTreeMap<(u64, u64), Happening>,
    happenings: u64,
    /// One for each node, and after those one for each node's standby.
    servers: Vec<Host>,
    /// To which server each node's address leads.
    addresses: Vec<usize>,
    /// To which server each connection leads: client, node and number.
    routes: BTreeMap<(usize, usize, u64), usize>,
    clients: Vec<Client>,
    network: Network,
    resources: Resources,
    witness: Witness,
    random: Random,
    /// On which nodes the calls that wait have their place.
    queued: BTreeMap<u64, BTreeSet<usize>>,
    /// Which nodes granted a call which ballot.
    seated: BTreeMap<(u64, u64), BTreeSet<usize>>,
    /// Whose wakes go to which client.
    ears: BTreeMap<String, usize>,
    trace: Option<String>,
    /// Whether all that was taken back can be gone as soon as clients are.
    prompt: bool,
    /// Nodes whose own server was promoted again.
    failed_back: BTreeSet<usize>,
    changes: Changes,
}

/// A server, and how it is reached.
struct Host {
    server: Server,
    hung_until: Option<u64>,
    /// What came while it stood still.
    backlog: Vec<Happening>,
}

/// Runs the `parts` of `plan`; with every message written down if `traced`.
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
        let nodes = plan.nodes.iter().chain(&plan.nodes).enumerate();
        let servers = nodes.map(|(number, node)| {
            let shows = (EPOCH.as_nanos() as u64).saturating_add_signed(node.ahead_us * 1_000);
            let dial = Dial::new(shows, node.rate);
            let mut server = Server::new(number, dial, node.durable, plan.group);
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
        // One generator for all clients, so that no two draw the same token.
        let entropy = Entropy::seeded(plan.seed);
        let clients = (0..plan.clients.len()).map(|client| {
            let mut tasks: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
            for step in parts.steps.iter().map(|&at| &plan.steps[at]) {
                if step.client == client {
                    tasks.entry(step.task).or_default().push(step.clone());
                }
            }
            let tasks = tasks.into_values().collect();
            Client::new(client, plan, &entropy, &witness, tasks)
        });
        let network = Network::new(plan);
        let mut world = Self {
            now: 0,
            next: BTreeMap::new(),
            happenings: 0,
            servers: servers.collect(),
            addresses: (0..plan.nodes.len()).collect(),
            routes: BTreeMap::new(),
            clients: clients.collect(),
            network,
            resources: Resources::default(),
            random: Random::apart(plan.seed, u64::MAX),
            queued: BTreeMap::new(),
            seated: BTreeMap::new(),
            ears: BTreeMap::new(),
            trace: traced.then(String::new),
            prompt: parts.steps.iter().all(|&at| !plan.steps[at].lingers()),
            failed_back: BTreeSet::new(),
            changes: Changes::default(),
            witness,
            plan,
        };
        for &at in &parts.faults {
            let when = nanos(plan.faults[at].at);
            world.schedule(when, Happening::Fault(at));
        }
        world.schedule(nanos(plan.healed), Happening::Heals);
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
            self.let_run(client);
        }
        let limit = nanos(self.plan.healed + PATIENCE);
        while let Some(((at, _), happening)) = self.next.pop_first() {
            if at > limit || self.happenings > HAPPENINGS_MAX {
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        if self.clients.iter().all(|client| !client.is_alive()) {
            self.look_for_remains();
        }
        if self.happenings <= HAPPENINGS_MAX || self.clocks_in_reach() {
            self.note(What::Over);
        }
    }

    /// Whether one ballot could please all nodes. Where it cannot, and another node may not vote yet, callers in
    /// line wake each other with their undos until that one may: so much happens that there is no time
    /// left for them to end.
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

    fn tell(&mut self, line: impl FnOnce() -> String) {
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
            | Happening::Visited { client, .. } => self.reach(client, happening),
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
            Happening::Strays { node } => self.end_strays(node),
            Happening::Heals => self.heal(),
        }
    }

    /// Something comes to a client.
    fn reach(&mut self, at: usize, happening: Happening) {
        let client = &mut self.clients[at];
        if !client.is_alive() {
            return;
        }
        if client.paused_until.is_some() {
            client.waiting.push(happening);
            return;
        }
        client.outbox.set_now(self.now);
        let shows = client.shows();
        match happening {
            Happening::Answered {
                node,
                connection,
                number,
                word,
                ..
            } => {
                self.tell(|| format!("client {at} hears n{node} {connection}.{number} {word:?}"));
                self.clients[at].links[node].hear(connection, number, word, shows);
                if let Some(lasts) = self.clients[at].pause_when_heard.take() {
                    self.pause(at, lasts);
                    return;
                }
            }
            Happening::Rings { node, alarm, .. } => client.links[node].ring(alarm, shows),
            Happening::Visited { value, answer, .. } => {
                // Nobody waits for it any more, perhaps.
                let _ = answer.send(value);
            }
            Happening::Due { tick, .. } if tick != client.tick => return,
            _ => {}
        }
        self.let_run(at);
    }

    /// Lets a client do all it can do now, and sends what it wants sent.
    fn let_run(&mut self, at: usize) {
        loop {
            let client = &self.clients[at];
            client.settle();
            let asks = client.outbox.take_asks();
            let visits = client.outbox.take_visits();
            let idle = asks.is_empty() && visits.is_empty();
            for (node, stalled, ask) in asks {
                let client = &mut self.clients[at];
                if let Ask::Listen(id, _) = &ask {
                    self.ears.insert(id.clone(), at);
                }
                let shows = client.shows();
                client.links[node].ask(ask, shows);
                self.send_from(at, node, stalled);
            }
            for (stalled, resource, visit, answer) in visits {
                let after = stalled + self.network.resource_delay();
                let client = at;
                let happening = Happening::Visits {
                    client,
                    resource,
                    visit,
                    answer,
                };
                self.schedule(self.now + after, happening);
            }
            for node in 0..self.addresses.len() {
                self.send_from(at, node, 0);
            }
            if idle {
                break;
            }
        }
        let client = &mut self.clients[at];
        client.affairs.observe(&client.outbox, &self.witness, false);
        if !client.is_alive() {
            return;
        }
        let stalled = client.outbox.stalled();
        if stalled > 0 {
            self.tell(|| format!("client {at} stood still while it sent, for {stalled} ns"));
            self.pause(at, stalled);
            return;
        }
        if let Some(due) = client.due() {
            client.tick += 1;
            let tick = client.tick;
            self.schedule(due, Happening::Due { client: at, tick });
        }
    }

    /// Does what a link wants done, `stalled` after now.
    fn send_from(&mut self, client: usize, node: usize, stalled: u64) {
        let out = std::mem::take(&mut self.clients[client].links[node].out);
        let connection = self.clients[client].links[node].connection;
        let now = self.now + stalled;
        for out in out {
            match out {
                Out::Alarm { after, alarm } => {
                    let happening = Happening::Rings {
                        client,
                        node,
                        alarm,
                    };
                    self.schedule(now + after, happening);
                }
                Out::Send { number, parcel } => {
                    self.tell(|| {
                        format!(
                            "client {client} to n{node} {connection}.{number} {}",
                            shown(&parcel)
                        )
                    });
                    let route = self.network.there(client, node, connection, now);
                    for at in route {
                        let happening = Happening::Arrives {
                            client,
                            node,
                            connection,
                            number,
                            parcel: parcel.clone(),
                            late: false,
                        };
                        self.schedule(at, happening);
                    }
                }
            }
        }
    }

    /// Everybody is gone, and nothing is on its way any more.
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
        // In the order of true time: a client that stood still while it did something is ahead of it.
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

fn shown(parcel: &Parcel) -> String {
    match parcel {
        Parcel::Call { request, .. } => format!("{:?} {:?}", request.token, request.op),
        Parcel::Probe | Parcel::Join => format!("{parcel:?}"),
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}
