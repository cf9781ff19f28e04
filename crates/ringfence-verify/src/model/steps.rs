//! What can happen next. Clients are paused by not being chosen, and die that way too.

use std::fmt;

use ringfence::protocol::quorum;
use stateright::{Model, Property};

use super::ledger::{Ledger, Question, Slip, Word};
use super::properties::properties;
use super::scope::{Scope, Variant};
use super::world::{
    Born, CLIENTS, Client, Desk, Mail, NODES, Node, Number, Phase, Pile, Seen, Vote, World,
};

/// The protocol within a scope.
#[derive(Debug)]
pub struct Protocol {
    scope: Scope,
    ledger: Ledger,
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client asks all nodes.
    Begin {
        /// Which client.
        client: usize,
        /// What it proposes.
        ballot: Number,
    },
    /// A client gives its attempt up, and takes back what it may have left.
    GiveUp {
        /// Which client.
        client: usize,
    },
    /// A holder is done.
    Release {
        /// Which client.
        client: usize,
    },
    /// A holder extends.
    Extend {
        /// Which client.
        client: usize,
    },
    /// Something arrives: at a node, which carries it out, or a reply at a client.
    Arrive {
        /// At or from which node.
        node: usize,
        /// From or at which client.
        client: usize,
        /// What.
        mail: Mail,
        /// Of which attempt.
        ballot: Number,
        /// Its answer gets lost.
        mute: bool,
    },
    /// The lease on a node ends.
    Lapse {
        /// Which node.
        node: usize,
    },
    /// A node forgets everything.
    Crash {
        /// Which node.
        node: usize,
    },
    /// A tick passes on a node.
    Tick {
        /// Which node.
        node: usize,
    },
    /// A node's clock is set back.
    SetBack {
        /// Which node.
        node: usize,
        /// How far.
        by: i8,
    },
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
    fn counts(&self, node: &Node) -> bool {
        let grown_up = |born: Born| match (born, node.clock, self.scope.time) {
            (Some(born), Some(now), Some(time)) => now >= born + time.quarantine,
            _ => false,
        };
        self.scope.variant == Variant::NoQuarantine || node.born.is_none_or(grown_up)
    }

    fn ask(&self, node: &mut Node, question: Question) -> Word {
        let (slip, word) = self.ledger.ask(node.slip, node.clock, question);
        node.slip = slip;
        word
    }

    fn begin(&self, world: &mut World, client: usize, ballot: Number) {
        for node in &mut world.nodes {
            node.desks[client].vote = Vote::Pending;
            node.desks[client].pile(Mail::Acquire).put(ballot);
        }
        let state = &mut world.clients[client];
        state.phase = Phase::Asking;
        state.ballot = ballot;
        state.after = world.fences.highest();
        state.intact = true;
        state.attempts_left -= 1;
    }

    /// The undo goes to nodes that granted or have not answered.
    fn give_up(&self, world: &mut World, client: usize) {
        let ballot = world.clients[client].ballot;
        for node in &mut world.nodes {
            let desk = &mut node.desks[client];
            match desk.vote {
                Vote::Counted | Vote::Doubted => desk.pile(Mail::Undo).put(ballot),
                Vote::Pending => desk.pile(Mail::Retire).put(ballot),
                Vote::Refused => {}
            }
            if self.scope.variant != Variant::OldVotes {
                desk.drop_replies();
            }
            desk.vote = Vote::Pending;
        }
        let state = &mut world.clients[client];
        state.phase = Phase::Idle;
        state.after = 0;
    }

    /// A final release goes to all.
    fn release(&self, world: &mut World, client: usize) {
        let ballot = world.clients[client].ballot;
        for node in &mut world.nodes {
            let desk = &mut node.desks[client];
            let mail = match desk.vote {
                Vote::Pending => Mail::ReleaseUnknown,
                _ => Mail::Release,
            };
            desk.pile(mail).put(ballot);
        }
        retire(world, client);
    }

    fn extend(&self, world: &mut World, client: usize) {
        let state = &mut world.clients[client];
        state.phase = Phase::Extending;
        state.extends_left -= 1;
        for node in &mut world.nodes {
            let desk = &mut node.desks[client];
            desk.vote = Vote::Pending;
            desk.pile(Mail::Extend).put(state.ballot);
        }
    }

    /// A node carries a request out. `None` if that is another step too.
    fn carry_out(
        &self,
        world: &mut World,
        at: usize,
        client: usize,
        (mail, ballot): (Mail, Number),
        mute: bool,
    ) -> Option<()> {
        let node = &mut world.nodes[at];
        let seated = node.slip.record.map_or(0, |memo| memo.seated);
        let word = self.ask(node, Question::Mail(client as u8, mail, ballot));
        let counts = self.counts(node);
        let state = &world.clients[client];
        let asks = state.asks(ballot);
        let desk = &mut node.desks[client];
        let old_votes = self.scope.variant == Variant::OldVotes && state.phase != Phase::Done;
        match (mail, word) {
            // A reply that is a message of its own is lost by never arriving.
            (Mail::Acquire | Mail::Extend, Word::Done) if mute && self.scope.slow_replies => {
                return None;
            }
            (Mail::Acquire, Word::Done) if !mute && (asks || old_votes) => {
                let reply = if counts { Mail::Granted } else { Mail::Doubted };
                desk.pile(reply).put(ballot);
                if !self.scope.slow_replies {
                    self.hear(world, at, client, (reply, ballot));
                }
            }
            // Only whoever may have to undo cares.
            (Mail::Acquire, _) if asks && !mute && state.attempts_left > 0 => {
                desk.vote = Vote::Refused;
            }
            (Mail::Acquire, Word::Stale) if !asks => {
                let fence = node.slip.record.map_or(0, |memo| memo.fence);
                world.seen.late_acquire_refused |= fence == ballot;
            }
            (Mail::Undo | Mail::Retire, Word::Newer) => {
                world.seen.late_undo_refused |= seated > ballot;
            }
            (Mail::Extend, Word::Done) if state.phase == Phase::Extending && counts && !mute => {
                desk.pile(Mail::Extended).put(ballot);
            }
            // What nobody holds is put back, unless the holder is done or the answer was lost.
            (Mail::Extend, Word::Gone) if state.holds() && !mute => {
                desk.pile(Mail::Restore).put(ballot);
            }
            (Mail::Restore, Word::Done) => {
                world.seen.restored_after_crash |= node.born.is_some();
            }
            (Mail::Restore, Word::Gone) => {
                world.seen.late_restore_refused |= state.phase == Phase::Done;
            }
            _ => {}
        }
        Some(())
    }

    /// A client hears a reply.
    fn hear(&self, world: &mut World, at: usize, client: usize, (mail, ballot): (Mail, Number)) {
        let node = &mut world.nodes[at];
        let old = node.born.is_some() && mail == Mail::Granted;
        let desk = &mut node.desks[client];
        desk.pile(mail).take(ballot);
        let state = world.clients[client];
        let of_this_round = match mail {
            Mail::Extended => state.phase == Phase::Extending,
            _ => {
                state.asks(ballot)
                    || (self.scope.variant == Variant::OldVotes && state.phase == Phase::Asking)
            }
        };
        if !of_this_round {
            return;
        }
        desk.vote = match mail {
            Mail::Doubted => Vote::Doubted,
            _ => Vote::Counted,
        };
        world.seen.doubted |= mail == Mail::Doubted;
        let votes = world.nodes.iter().map(|node| node.desks[client].vote);
        let counted = votes.filter(|vote| *vote == Vote::Counted).count();
        let enough = match self.scope.variant {
            Variant::NoMajority => 1,
            _ => quorum(NODES),
        };
        if counted < enough {
            return;
        }
        let crashed = world.nodes.iter().any(|node| node.born.is_some());
        let state = &mut world.clients[client];
        if mail == Mail::Extended {
            state.phase = Phase::Holding;
            world.seen.extended_after_crash |= crashed;
        } else {
            world.seen.grown_up |= old && self.scope.time.is_some();
            state.phase = Phase::Holding;
            world.duplicate |= world.fences.has(state.ballot);
            world.disorder |= state.ballot <= state.after;
            world.fences.put(state.ballot);
            state.after = 0;
            world.seen.grants += 1;
            let holders = world.clients.iter().filter(|c| c.holds() && c.intact);
            world.doubled |= holders.count() > 1;
        }
        for node in &mut world.nodes {
            node.desks[client].drop_replies();
        }
    }

    /// A lease ends at any moment, whoever counts on it.
    fn lapse(&self, world: &mut World, at: usize) {
        let node = &mut world.nodes[at];
        if let Some((holder, _)) = node.slip.holder {
            self.ask(node, Question::Lapse);
            let state = &mut world.clients[usize::from(holder)];
            state.intact = false;
            world.seen.lapsed |= state.holds();
        }
    }

    fn crash(&self, world: &mut World, at: usize) {
        world.crashes_left -= 1;
        let node = &mut world.nodes[at];
        node.slip = Slip::default();
        node.born = Some(node.clock);
    }

    /// Time passes on a node, or its clock is set back.
    fn turn(&self, world: &mut World, at: usize, by: i8) {
        let node = &mut world.nodes[at];
        node.clock = node.clock.map(|clock| clock.saturating_add_signed(by));
        self.ask(node, Question::Settle);
    }
}

impl Protocol {
    /// Forgets what cannot matter any more, so that states which differ by nothing else are one.
    fn forget(&self, world: &mut World) {
        let may_begin = |c: &Client| c.phase == Phase::Idle;
        let asks = |c: &Client| c.phase == Phase::Asking;
        let renews = self.scope.extends > 0 && world.clients.iter().any(Client::holds);
        if !renews && !world.clients.iter().any(|c| may_begin(c) || asks(c)) {
            // Nobody can be granted anything any more.
            for node in &mut world.nodes {
                node.slip = Slip::default();
                node.clock = None;
                node.born = None;
                node.desks = [Desk::default(); CLIENTS];
            }
            world.clients = [Client::new(0, 0); CLIENTS];
            world.fences = Pile::default();
            world.crashes_left = 0;
            world.steps_left = 0;
            return;
        }
        // What follows from the rules does not follow without them.
        let sound = self.scope.variant == Variant::Sound;
        for at in 0..NODES {
            let node = &mut world.nodes[at];
            if self.scope.extends == 0 {
                node.without_restores();
                if sound && node.clock.is_none() && node.born.is_some() {
                    // In a quarantine without end nothing that it does counts.
                    node.slip = Slip::default();
                    node.desks.iter_mut().for_each(Desk::drop_requests);
                }
            }
            if sound && world.nodes[at].clock.is_none() {
                for client in 0..CLIENTS {
                    self.refuse_doomed(world, at, client);
                    world.nodes[at].without_idle_undos(client);
                }
            }
        }
        if self.scope.extends == 0 {
            for client in 0..CLIENTS {
                let state = world.clients[client];
                if state.holds() && !(state.intact && self.scope.time.is_none()) {
                    retire(world, client);
                }
            }
        }
        if !world.clients.iter().any(may_begin) {
            // Only those who ask can still be granted a fence a second time.
            let mut fences = Pile::default();
            for asker in world.clients.iter().filter(|c| asks(c)) {
                if world.fences.has(asker.ballot) {
                    fences.put(asker.ballot);
                }
            }
            world.fences = fences;
        }
    }
}

impl Protocol {
    /// An acquire that nobody waits for, and that a fence is sure to stop, may as well arrive at once.
    fn refuse_doomed(&self, world: &mut World, at: usize, client: usize) {
        let node = &mut world.nodes[at];
        let fence = node.slip.record.map_or(0, |memo| memo.fence);
        let holds = node
            .slip
            .holder
            .is_some_and(|(h, _)| usize::from(h) == client);
        let asked = world.clients[client];
        for ballot in 0..=fence {
            let acquires = node.desks[client].pile(Mail::Acquire);
            if !holds && !asked.asks(ballot) && acquires.has(ballot) && node.born.is_none() {
                acquires.take(ballot);
                let word = self.ask(node, Question::Mail(client as u8, Mail::Acquire, ballot));
                world.seen.late_acquire_refused |= word == Word::Stale && fence == ballot;
            }
        }
    }
}

impl Node {
    /// Only a restore asks what was closed, and else a final release is an undo.
    fn without_restores(&mut self) {
        if let Some(memo) = &mut self.slip.record {
            memo.closed = 0;
        }
        for desk in &mut self.desks {
            for (mail, same) in [
                (Mail::Release, Mail::Undo),
                (Mail::ReleaseUnknown, Mail::Retire),
            ] {
                let pile = std::mem::take(desk.pile(mail));
                desk.pile(same).merge(pile);
            }
        }
    }

    /// An undo does nothing once the fence is where it would raise it to, nothing of its ballot is held,
    /// and no acquire of its ballot is on its way.
    fn without_idle_undos(&mut self, client: usize) {
        let fence = self.slip.record.map_or(0, |memo| memo.fence);
        let holds = self
            .slip
            .holder
            .is_some_and(|(h, _)| usize::from(h) == client);
        let desk = &mut self.desks[client];
        let awaited = desk.pile(Mail::Acquire).lowest();
        let awaited = awaited.min(desk.pile(Mail::Restore).lowest());
        for mail in [Mail::Undo, Mail::Retire] {
            for ballot in 0..=fence {
                if !holds && awaited > ballot {
                    desk.pile(mail).take(ballot);
                }
            }
        }
        // The same, where it would not raise anything.
        if !holds && awaited == Number::MAX {
            *desk.pile(Mail::Undo) = Pile::default();
        }
    }
}

/// The client has no more to do; nothing about it matters any more.
fn retire(world: &mut World, client: usize) {
    world.clients[client] = Client::new(0, 0);
    for node in &mut world.nodes {
        node.desks[client].vote = Vote::Pending;
        node.desks[client].drop_replies();
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = |at: usize| ["A", "B", "C"][at];
        match *self {
            Self::Begin { client, ballot } => {
                write!(f, "client {client} asks all nodes with ballot {ballot}")
            }
            Self::GiveUp { client } => write!(f, "client {client} gives up and undoes"),
            Self::Release { client } => write!(f, "client {client} releases"),
            Self::Extend { client } => write!(f, "client {client} extends"),
            Self::Arrive {
                node: at,
                client,
                mail,
                ballot,
                mute,
            } => {
                let at = node(at);
                if mail.is_reply() {
                    return write!(f, "client {client} hears {mail:?} of {at}, ballot {ballot}");
                }
                let lost = if mute { "; its answer is lost" } else { "" };
                write!(
                    f,
                    "{at} gets {mail:?} of client {client}, ballot {ballot}{lost}"
                )
            }
            Self::Lapse { node: at } => write!(f, "the lease on {} ends", node(at)),
            Self::Crash { node: at } => write!(f, "{} forgets everything", node(at)),
            Self::Tick { node: at } => write!(f, "a tick passes on {}", node(at)),
            Self::SetBack { node: at, by } => {
                write!(f, "the clock of {} is set back by {by}", node(at))
            }
        }
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
