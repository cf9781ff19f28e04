//! The protocol as a model: where it begins, what can happen next, and what comes of that. Clients
//! are paused by not being chosen, and die that way too.

use std::sync::Arc;

use ringfence_core::ledger::Entry;
use ringfence_core::message::Ballot;
use stateright::{Model, Property};

use super::client;
use super::message::MessageKind;
use super::properties::{Event, properties};
use super::scope::{Scope, Ticks};
use super::step::Step;
use super::tables::{Cause, Tables};
use super::view::{Stage, View};
use super::world::{Aside, CLIENTS, Client, Mail, NODES, Node, World};

/// The protocol within a scope.
#[derive(Debug)]
pub struct Protocol {
    pub(super) tables: Arc<Tables>,
    /// The number of a client that is done, and of one that has left.
    pub(super) done: u32,
    pub(super) left: u32,
    /// The number of an entry in which there is nothing.
    pub(super) nothing: u32,
}

impl Protocol {
    /// The protocol within `scope`.
    pub fn new(scope: Scope) -> Self {
        let tables = Tables::new(scope);
        Self {
            done: tables.begin(client::Client::done()),
            left: tables.begin(client::Client::left()),
            nothing: tables.entry(Entry::default()),
            tables: Arc::new(tables),
        }
    }

    /// How much is searched.
    pub fn scope(&self) -> &Scope {
        &self.tables.setting.scope
    }

    pub(super) fn view(&self, world: &World, client: usize) -> View {
        self.tables.view(world.clients[client].machine)
    }

    /// Whether a client undoes its present attempt, if it is lost.
    pub(super) fn undoes(&self, view: &View) -> bool {
        self.scope().span().is_some() && (view.tries_again || self.scope().undoes_last)
    }

    /// The time of `node`; `None` if that stands still.
    pub(super) fn clock(&self, world: &World, node: &Node) -> Option<Ticks> {
        node.clock.or(self.scope().span().map(|_| world.now))
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let scope = self.scope();
        let mut nodes = [Node {
            clock: None,
            born: None,
            entry: self.nothing,
        }; NODES];
        nodes[0].clock = scope.node_time().map(|time| time.start);
        let clients = std::array::from_fn(|client| {
            let renewals = if client == 0 { scope.renewals } else { 0 };
            let machines =
                client::Client::new(&self.tables.setting, scope.attempts[client], renewals);
            Client {
                machine: self.tables.begin(machines),
                after: Ballot::default(),
            }
        });
        vec![World {
            now: 0,
            nodes,
            clients,
            mail: Vec::new(),
            fences: [Ballot::default(); CLIENTS],
            crashes_left: scope.crashes,
            steps_left: u8::from(scope.node_time().is_some_and(|time| time.step > 0)),
            duplicate: false,
            disorder: false,
            doubled: false,
            left_behind: false,
            revived: false,
            tables: Aside(Arc::clone(&self.tables)),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for client in 0..CLIENTS {
            if client == 0 || self.is_renewed(world) {
                self.actions_of(world, client, steps);
            }
        }
        for mail in &world.mail {
            self.arrivals(world, *mail, steps);
        }
        for (node, state) in world.nodes.iter().enumerate() {
            self.actions_at(world, node, state, steps);
        }
        let goes_on = self
            .scope()
            .span()
            .is_some_and(|span| world.now < span.ticks);
        if goes_on && self.is_granted(world) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        match step {
            Step::Begin { client, ballot } => {
                world.clients[client].after = world.highest_fence();
                self.cause(&mut world, client, Cause::Begin { ballot });
            }
            Step::Conclude { client } => {
                self.cause(&mut world, client, Cause::Conclude);
                let holds = self.view(&world, client).stage == Stage::Holding;
                self.tables.note(Event::ReadLate, !holds);
            }
            Step::TimeOut { client } => self.cause(&mut world, client, Cause::TimeOut),
            Step::Release { client } => self.cause(&mut world, client, Cause::Release),
            Step::Arrive { mail, what, mute } => {
                world.take(mail);
                match what.kind {
                    MessageKind::Reply(word) => self.hear(&mut world, mail, word),
                    _ => self.carry_out(&mut world, mail, what, mute),
                }
            }
            Step::Lapse { node } => self.lapse(&mut world, node),
            Step::Crash { node } => self.crash(&mut world, node),
            Step::Tick => self.tick(&mut world),
            Step::NodeTick { node } => self.turn(&mut world, node, 1),
            Step::SetBack { node, by } => {
                world.steps_left -= 1;
                self.turn(&mut world, node, -by);
            }
        }
        self.judge(&mut world);
        self.forget(&mut world);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties(self)
    }
}

impl Protocol {
    /// Where renewals are searched, it is about what follows a grant: time passes from then on.
    fn is_granted(&self, world: &World) -> bool {
        let asks = matches!(self.view(world, 0).stage, Stage::Waiting | Stage::Trying);
        self.scope().renewals == 0 || !asks
    }

    /// There, the holder renews before another client asks, and before it releases.
    fn is_renewed(&self, world: &World) -> bool {
        self.scope().renewals == 0 || self.view(world, 0).renewals_left < self.scope().renewals
    }

    /// There, nodes forget before another client asks.
    fn may_crash(&self, world: &World) -> bool {
        let mut others = (1..CLIENTS).map(|client| self.view(world, client).stage);
        let asked = others.any(|stage| matches!(stage, Stage::Trying | Stage::Holding));
        self.scope().renewals == 0 || self.is_granted(world) && !asked
    }

    fn actions_of(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let view = self.view(world, client);
        let is_now = |at: Option<Ticks>| at.is_some_and(|at| at <= world.now);
        if is_now(view.begins_at) {
            match self.scope().node_time() {
                None => steps.push(Step::Begin {
                    client,
                    ballot: None,
                }),
                Some(time) => {
                    let ballots = time.ballots.0..=time.ballots.1;
                    steps.extend(ballots.map(|ballot| Step::Begin {
                        client,
                        ballot: Some(ballot),
                    }));
                }
            }
        }
        if view.is_won {
            steps.push(Step::Conclude { client });
        }
        let is_timed = self.scope().span().is_some();
        if is_now(view.due_at) && is_timed && (view.stage != Stage::Trying || self.undoes(&view)) {
            steps.push(Step::TimeOut { client });
        }
        // Where leases end at any moment, a release does nothing that could not happen without it.
        if is_timed && view.stage == Stage::Holding && self.is_renewed(world) {
            steps.push(Step::Release { client });
        }
    }

    fn arrivals(&self, world: &World, mail: Mail, steps: &mut Vec<Step>) {
        let what = self.tables.what(mail.message);
        let arrive = |mute| Step::Arrive { mail, what, mute };
        steps.push(arrive(false));
        // A reply that is a message of its own is lost by never arriving.
        if mail.is_reply || self.scope().slow_replies {
            return;
        }
        let view = self.view(world, mail.client.into());
        // That a request was carried out and its answer is lost matters to a client that has to
        // undo it. To a hold it is as good as a request that never arrived: the node only keeps the
        // lock for longer.
        let undoes = self.undoes(&view) && what.kind == MessageKind::Acquire;
        if undoes && self.tables.is_awaited(&view, mail.message) {
            steps.push(arrive(true));
        }
    }

    fn actions_at(&self, world: &World, node: usize, state: &Node, steps: &mut Vec<Step>) {
        if let (Some(time), Some(clock)) = (self.scope().node_time(), state.clock) {
            if clock < time.end {
                steps.push(Step::NodeTick { node });
            }
            if world.steps_left > 0 {
                let by = (1..).take_while(|by| *by <= time.step as i8);
                steps.extend(by.map(|by| Step::SetBack { node, by }));
            }
        } else if self.scope().span().is_none() && self.tables.kept(state.entry).key.is_some() {
            steps.push(Step::Lapse { node });
        }
        // Where one clock runs by itself, it is about the node that has it.
        let concerned = state.clock.is_some() || self.scope().span().is_some();
        if world.crashes_left > 0 && concerned && self.may_crash(world) {
            steps.push(Step::Crash { node });
        }
    }
}
