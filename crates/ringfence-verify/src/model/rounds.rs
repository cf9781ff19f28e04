//! What clients do and nodes answer: the rounds of an attempt, of a release and of an extension.

use ringfence_core::protocol::quorum;

use super::ledger::{Question, Word};
use super::protocol::Protocol;
use super::scope::Variant;
use super::world::{Client, Mail, NODES, Number, Phase, Vote, World};

impl Protocol {
    pub(super) fn begin(&self, world: &mut World, client: usize, ballot: Number) {
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
    pub(super) fn give_up(&self, world: &mut World, client: usize) {
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
    pub(super) fn release(&self, world: &mut World, client: usize) {
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

    pub(super) fn extend(&self, world: &mut World, client: usize) {
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
    pub(super) fn carry_out(
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
    pub(super) fn hear(
        &self,
        world: &mut World,
        at: usize,
        client: usize,
        (mail, ballot): (Mail, Number),
    ) {
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
}

/// The client has no more to do; nothing about it matters any more.
pub(super) fn retire(world: &mut World, client: usize) {
    world.clients[client] = Client::new(0, 0);
    for node in &mut world.nodes {
        node.desks[client].vote = Vote::Pending;
        node.desks[client].drop_replies();
    }
}
