//! Forgetting what cannot matter any more, so that states which differ by nothing else are one. Without
//! it the search would not end in an afternoon; each rule here says why nothing is lost by it.

use super::ledger::{Question, Slip, Word};
use super::protocol::Protocol;
use super::rounds::retire;
use super::scope::Variant;
use super::world::{CLIENTS, Client, Desk, Mail, NODES, Node, Number, Phase, Pile, World};

impl Protocol {
    /// Forgets what cannot matter any more, so that states which differ by nothing else are one.
    pub(super) fn forget(&self, world: &mut World) {
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
