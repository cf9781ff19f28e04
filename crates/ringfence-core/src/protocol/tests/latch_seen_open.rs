//! Once a client has seen a latch open, it is open for every client. Clients run the real machines
//! against ledgers that crash and lose data, with lost requests and replies, and with different
//! clocks.

use proptest::prelude::*;

use super::*;

const LIFE: Duration = Duration::from_secs(3600);
const COUNT: u64 = 3;

/// The next event.
#[derive(Debug, Clone)]
enum Event {
    /// The request of a client reaches a node, and the reply reaches the client; or one is lost.
    Deliver {
        client: usize,
        node: usize,
        fate: Fate,
    },
    /// A node is restarted without its data.
    Forget(usize),
    /// Time passes.
    Pass(u64),
    /// A client ends, and another takes its place.
    Replace(usize),
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives,
    RequestLost,
    ReplyLost,
}

fn any_event(nodes: usize) -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        8 => Just(Fate::Arrives),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::ReplyLost),
    ];
    let deliver = (0..CLIENTS, 0..nodes, fate).prop_map(|(client, node, fate)| Event::Deliver {
        client,
        node,
        fate,
    });
    prop_oneof![
        200 => deliver,
        2 => (0..nodes).prop_map(Event::Forget),
        6 => (0..300u64).prop_map(Event::Pass),
        6 => (10_000..60_000u64).prop_map(Event::Pass),
        4 => (0..CLIENTS).prop_map(Event::Replace),
    ]
}

const CLIENTS: usize = 6;

/// A node that may be born again.
struct Mortal {
    server: Server,
    born_us: u64,
}

/// One client: those with even numbers arrive, those with odd numbers wait.
struct Client {
    call: LatchCall,
    cluster: Cluster,
    round: LatchRound,
    asked: Vec<bool>,
    done: bool,
    /// Whether the latch had been seen open when the client started, and which parties had surely
    /// arrived.
    came_after: (bool, Vec<String>),
}

struct World {
    nodes: Vec<Mortal>,
    now: Timestamp,
    clients: Vec<Client>,
    born: u64,
    seen_open: bool,
    arrived: Vec<String>,
    /// How many waits began after it had been seen open and found it open.
    confirmed: usize,
}

impl World {
    fn new(offsets_us: &[i64]) -> Self {
        let nodes = offsets_us.iter().map(|offset_us| Mortal {
            server: Server::new(*offset_us),
            born_us: 0,
        });
        let mut world = Self {
            nodes: nodes.collect(),
            now: at(1_000),
            clients: Vec::new(),
            born: 0,
            seen_open: false,
            arrived: Vec::new(),
            confirmed: 0,
        };
        world.clients = (0..CLIENTS).map(|client| world.client(client)).collect();
        world
    }

    fn client(&mut self, number: usize) -> Client {
        let terms = LatchTerms {
            nodes: self.nodes.len(),
            count: COUNT,
            ttl: LIFE,
            call_timeout: CALL_TIMEOUT,
            wait: None,
            no_quorum_after: LIFE,
        };
        self.born += 1;
        let call = match number % 2 {
            0 => LatchCall::arriving(terms, self.party().into(), self.now, self.born),
            _ => LatchCall::waiting(terms, self.now, self.born),
        };
        let mut cluster = cluster_of(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let mut facts = node.server.facts(self.now);
            facts.standing = Some(node.standing(self.now));
            let _ = cluster.observe_facts(number, &facts);
        }
        Client {
            round: call.begin(&cluster, self.now),
            asked: vec![false; self.nodes.len()],
            call,
            cluster,
            done: false,
            came_after: (self.seen_open, self.arrived.clone()),
        }
    }

    fn party(&self) -> String {
        format!("party {}", self.born)
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Pass(ms) => {
                self.now = self.now + Duration::from_millis(ms);
                (0..CLIENTS).for_each(|client| self.advance(client));
            }
            Event::Forget(node) => {
                let node = &mut self.nodes[node];
                node.server.entry = Entry::default();
                node.born_us = node.server.clock_us(self.now);
            }
            Event::Replace(client) => self.clients[client] = self.client(client),
            Event::Deliver { client, node, fate } => {
                self.deliver(client, node, fate);
                self.advance(client);
            }
        }
    }

    fn deliver(&mut self, client: usize, node: usize, fate: Fate) {
        let client = &mut self.clients[client];
        // This node, or the next one that has not been asked.
        let nodes = (node..self.nodes.len()).chain(0..node);
        let Some(node) = nodes.into_iter().find(|node| !client.asked[*node]) else {
            return;
        };
        client.asked[node] = true;
        if let Fate::RequestLost = fate {
            return;
        }
        let ttl_ms = LIFE.as_millis() as u64;
        let op = match client.round.question().clone() {
            Question::Look => Op::Attend(Attend {
                tickets: Arc::from([]),
                list: true,
                ttl_ms,
            }),
            Question::Add { parties, since_us } => Op::Arrive(Arrive {
                parties,
                since_us,
                count: COUNT,
                ttl_ms,
            }),
        };
        let mortal = &mut self.nodes[node];
        let mut reply = mortal.server.ask(self.now, &token(0), op).unwrap();
        let standing = mortal.standing(self.now);
        reply.standing = standing;
        if let Fate::Arrives = fate {
            let (sent, reply) = (client.round.t0(), Ok(reply));
            let _ = client.cluster.observe(node, &reply, sent, self.now);
            let discount = client.cluster.discount(node, standing, sent, self.now);
            client.round.handle_reply(node, reply, discount, self.now);
        }
    }

    /// A client whose round is over, or should be, decides what follows.
    fn advance(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.round.handle_timeout(self.now);
        if client.done || client.round.verdict().is_none() {
            return;
        }
        let tally = client.round.tally(self.now);
        let looked = *client.round.question() == Question::Look;
        let (open, certain) = &client.came_after;
        if looked && tally.speaks {
            let has = |party: &String| tally.parties.contains(party.as_str());
            assert!(certain.iter().all(has), "{certain:?} {tally:?}");
            let enough = tally.parties.len() as u64 >= COUNT;
            assert!(!open || enough, "seen open before, and shut now: {tally:?}");
        }
        match client.call.conclude(&client.round, self.now) {
            LatchNext::Done { arrived } => {
                client.done = true;
                self.confirmed += usize::from(*open && looked);
                self.seen_open |= arrived >= COUNT;
                if let Question::Add { parties, .. } = client.round.question() {
                    self.arrived.extend(parties.iter().map(ToString::to_string));
                }
            }
            LatchNext::GiveUp(_) => client.done = true,
            LatchNext::Ask | LatchNext::Rest { .. } => {
                client.round = client.call.begin(&client.cluster, self.now);
                client.asked.fill(false);
            }
        }
        if self.clients[number].done {
            self.clients[number] = self.client(number);
        }
    }
}

impl Mortal {
    fn standing(&self, now: Timestamp) -> Standing {
        Standing {
            incarnation: self.born_us + 1,
            born_us: self.born_us,
            clock_us: self.server.clock_us(now),
            server: 0,
            replicated: false,
            epoch: None,
        }
    }
}

fn offsets(nodes: usize) -> impl Strategy<Value = Vec<i64>> {
    let window = WINDOW_US as i64;
    proptest::collection::vec(-window..window, nodes)
}

fn histories(nodes: usize) -> impl Strategy<Value = (Vec<i64>, Vec<Event>)> {
    let events = proptest::collection::vec(any_event(nodes), 100..800);
    (offsets(nodes), events)
}

#[test]
fn a_latch_that_was_seen_open_stays_open_for_every_client() {
    let confirmed = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let worlds = prop_oneof![histories(3), histories(5)];
    let outcome = runner.run(&worlds, |(offsets_us, events)| {
        let mut world = World::new(&offsets_us);
        events.iter().for_each(|event| world.take(event));
        confirmed.set(confirmed.get() + world.confirmed);
        Ok(())
    });
    outcome.unwrap();
    assert!(
        confirmed.get() > 100,
        "only {} waits checked it",
        confirmed.get()
    );
}
