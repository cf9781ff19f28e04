//! What happens to nodes without anybody asking for it: leases end, memory is lost, time passes.

use super::ledger::{Question, Slip};
use super::protocol::Protocol;
use super::world::World;

impl Protocol {
    /// A lease ends at any moment, whoever counts on it.
    pub(super) fn lapse(&self, world: &mut World, at: usize) {
        let node = &mut world.nodes[at];
        if let Some((holder, _)) = node.slip.holder {
            self.ask(node, Question::Lapse);
            let state = &mut world.clients[usize::from(holder)];
            state.intact = false;
            world.seen.lapsed |= state.holds();
        }
    }

    pub(super) fn crash(&self, world: &mut World, at: usize) {
        world.crashes_left -= 1;
        let node = &mut world.nodes[at];
        node.slip = Slip::default();
        node.born = Some(node.clock);
    }

    /// Time passes on a node, or its clock is set back.
    pub(super) fn turn(&self, world: &mut World, at: usize, by: i8) {
        let node = &mut world.nodes[at];
        node.clock = node.clock.map(|clock| clock.saturating_add_signed(by));
        self.ask(node, Question::Settle);
    }
}
