//! The protocol as a model: where it begins, what can happen next, and what comes of that. Clients are
//! paused by not being chosen, and die that way too.

use stateright::{Model, Property};

use super::ledger::{Ledger, Question, Slip, Word};
use super::properties::properties;
use super::scope::{Scope, Variant};
use super::step::Step;
use super::world::{
    Born, CLIENTS, Client, Desk, Mail, NODES, Node, Number, Phase, Pile, Seen, World,
};

/// The protocol within a scope.
#[derive(Debug)]
pub struct Protocol {
    pub(super) scope: Scope,
    ledger: Ledger,
}

impl Protocol {
    /// The protocol within `scope`.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            ledger: Ledger::new(&scope),
        }
    }

    /// How much is searched.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether what `node` says counts.
    pub(super) fn counts(&self, node: &Node) -> bool {
        let grown_up = |born: Born| match (born, node.clock, self.scope.time) {
            (Some(born), Some(now), Some(time)) => now >= born + time.quarantine,
            _ => false,
        };
        self.scope.variant == Variant::NoQuarantine || node.born.is_none_or(grown_up)
    }

    pub(super) fn ask(&self, node: &mut Node, question: Question) -> Word {
        let (slip, word) = self.ledger.ask(node.slip, node.clock, question);
        node.slip = slip;
        word
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let node = Node {
            slip: Slip::default(),
            clock: None,
            born: None,
            desks: [Desk::default(); CLIENTS],
        };
        let mut nodes = [node; NODES];
        nodes[0].clock = self.scope.time.map(|time| time.start);
        let mut clients = self.scope.attempts.map(|attempts| Client::new(attempts, 0));
        clients[0].extends_left = self.scope.extends;
        vec![World {
            nodes,
            clients,
            fences: Pile::default(),
            crashes_left: self.scope.crashes,
            steps_left: u8::from(self.scope.time.is_some_and(|time| time.step > 0)),
            duplicate: false,
            disorder: false,
            doubled: false,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let (lowest, highest) = self.scope.ballots;
        for (client, state) in world.clients.iter().enumerate() {
            match state.phase {
                Phase::Idle => {
                    // All attempts of one token have rising ballots.
                    let mut ballots = lowest.max(state.ballot + 1)..=highest;
                    if self.scope.extends > 0 {
                        // It is about what follows a grant: one order of the ballots is enough.
                        ballots = lowest + client as Number..=lowest + client as Number;
                    }
                    steps.extend(ballots.map(|ballot| Step::Begin { client, ballot }));
                }
                // Of a last attempt, being given up is being paused for ever: where a lease may end at any
                // moment, its undo can do nothing that could not happen without it.
                Phase::Asking if state.attempts_left > 0 => steps.push(Step::GiveUp { client }),
                // The same is true of a release, unless a restore may bring back what it gave back.
                Phase::Holding | Phase::Extending if client == 0 && self.scope.extends > 0 => {
                    steps.push(Step::Release { client });
                    if state.phase == Phase::Holding && state.extends_left > 0 {
                        steps.push(Step::Extend { client });
                    }
                }
                Phase::Asking | Phase::Holding | Phase::Extending | Phase::Done => {}
            }
        }
        for (at, node) in world.nodes.iter().enumerate() {
            self.actions_at(world, at, node, steps);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = *last;
        match step {
            Step::Begin { client, ballot } => self.begin(&mut world, client, ballot),
            Step::GiveUp { client } => self.give_up(&mut world, client),
            Step::Release { client } => self.release(&mut world, client),
            Step::Extend { client } => self.extend(&mut world, client),
            Step::Arrive {
                node,
                client,
                mail,
                ballot,
                mute,
            } => {
                if mail.is_reply() {
                    self.hear(&mut world, node, client, (mail, ballot));
                } else {
                    world.nodes[node].desks[client].pile(mail).take(ballot);
                    self.carry_out(&mut world, node, client, (mail, ballot), mute)?;
                }
            }
            Step::Lapse { node } => self.lapse(&mut world, node),
            Step::Crash { node } => self.crash(&mut world, node),
            Step::Tick { node } => self.turn(&mut world, node, 1),
            Step::SetBack { node, by } => {
                world.steps_left -= 1;
                self.turn(&mut world, node, -by);
            }
        }
        self.forget(&mut world);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties(self)
    }
}

impl Protocol {
    fn actions_at(&self, world: &World, at: usize, node: &Node, steps: &mut Vec<Step>) {
        for (client, desk) in node.desks.iter().enumerate() {
            for (mail, ballot) in desk.all_mail() {
                let arrive = |mute| Step::Arrive {
                    node: at,
                    client,
                    mail,
                    ballot,
                    mute,
                };
                steps.push(arrive(false));
                let state = &world.clients[client];
                let undoes = state.asks(ballot) && state.attempts_left > 0;
                if mail == Mail::Acquire && undoes || mail == Mail::Extend {
                    steps.push(arrive(true));
                }
            }
        }
        if let (Some(time), Some(clock)) = (self.scope.time, node.clock) {
            if clock < time.end {
                steps.push(Step::Tick { node: at });
            }
            if world.steps_left > 0 {
                let by = (1..).take_while(|by| *by <= time.step as i8);
                steps.extend(by.map(|by| Step::SetBack { node: at, by }));
            }
        } else if node.slip.holder.is_some() {
            steps.push(Step::Lapse { node: at });
        }
        // Where time matters, it is about the one node on which it does.
        if world.crashes_left > 0 && node.clock.is_some() == self.scope.time.is_some() {
            steps.push(Step::Crash { node: at });
        }
    }
}
