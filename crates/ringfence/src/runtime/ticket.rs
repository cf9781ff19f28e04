//! The ticket of a waiter on the nodes: records where it may be, and sends undos to the nodes
//! that must forget it ([`TicketNodes`](crate::protocol::TicketNodes) decides which).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::TICKET_MS;
use crate::message::Reply;
use crate::node::{CallError, Deliver};
use crate::protocol::{GrantId, Target, TicketFate};

use super::releasing::{Releasing, UndoOf};
use super::waiter::Waiter;
use super::{ClientRuntime, lock};

impl Waiter {
    /// Whether its caller no longer waits: from then on no request may enter its ticket.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.nodes).is_over()
    }

    /// Records what a call did to its ticket on `node`. Undoes a ticket that was entered too late.
    pub(super) fn note(&self, runtime: &Arc<ClientRuntime>, node: usize, fate: TicketFate) {
        let late = lock(&self.nodes).note(node, fate);
        if let Some(call_timeout) = late {
            let mut targets = vec![Target::Nothing; runtime.sender.nodes.len()];
            targets[node] = Target::Holds;
            self.forget(runtime, targets, call_timeout, UndoOf::Live);
        }
    }

    /// The undo of the last attempt removes the ticket from `targets`. Returns for each node
    /// whether it may have the ticket from before that attempt.
    pub(super) fn undone_on(&self, targets: &[Target]) -> Vec<bool> {
        let mut nodes = lock(&self.nodes);
        let had_ticket = nodes.had_before_last();
        nodes.told(targets);
        had_ticket
    }

    /// Its caller got the grant. `surplus`: the undo of surplus slots on these nodes removes the
    /// ticket too.
    pub(super) fn granted(
        &self,
        runtime: &Arc<ClientRuntime>,
        surplus: &[Target],
        call_timeout: Duration,
    ) {
        let mut targets = lock(&self.nodes).end(true, call_timeout);
        for (target, _) in targets
            .iter_mut()
            .zip(surplus)
            .filter(|(_, surplus)| **surplus != Target::Nothing)
        {
            *target = Target::Nothing;
        }
        self.forget(runtime, targets, call_timeout, UndoOf::Live);
    }

    /// Its caller ended without a grant.
    pub(super) fn gave_up(&self, runtime: &Arc<ClientRuntime>, call_timeout: Duration) {
        let targets = lock(&self.nodes).end(false, call_timeout);
        self.forget(runtime, targets, call_timeout, UndoOf::GoneTicket);
    }

    /// Removes the ticket from `targets`. Retried until they have answered, or the ticket has
    /// expired.
    fn forget(
        &self,
        runtime: &Arc<ClientRuntime>,
        targets: Vec<Target>,
        call_timeout: Duration,
        of: UndoOf,
    ) {
        if targets.iter().all(|target| *target == Target::Nothing) {
            return;
        }
        let id = GrantId::of_ticket(&self.claims, &self.ticket, self.queue);
        let lease = Duration::from_millis(TICKET_MS);
        Releasing::undo(runtime, &id, targets, lease, call_timeout, of);
    }
}

/// Receives the replies of an attempt that carries a ticket.
pub(super) struct TicketReplies {
    runtime: Arc<ClientRuntime>,
    waiter: Arc<Waiter>,
    /// The receiver that counts the votes.
    to: Arc<dyn Deliver<Reply>>,
    /// Whether `to` undoes what a node enters after the grant, the ticket included.
    undoes_late: bool,
}

impl TicketReplies {
    /// Of an attempt that is about to be sent to every node.
    pub(super) fn new(
        runtime: &Arc<ClientRuntime>,
        waiter: &Arc<Waiter>,
        to: Arc<dyn Deliver<Reply>>,
        undoes_late: bool,
    ) -> Self {
        lock(&waiter.nodes).sending();
        Self {
            runtime: Arc::clone(runtime),
            waiter: Arc::clone(waiter),
            to,
            undoes_late,
        }
    }
}

impl Deliver<Reply> for TicketReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let node = tag as usize;
        let fate = TicketFate::after_acquire(&outcome);
        lock(&self.waiter.nodes).answered(node);
        // Before the verdict: the caller that it wakes reads the state of the ticket.
        if !self.undoes_late || !self.waiter.is_over() {
            self.waiter.note(&self.runtime, node, fate);
        }
        self.to.deliver(tag, outcome);
    }

    fn is_wanted(&self, tag: u64) -> bool {
        self.to.is_wanted(tag)
    }

    fn withdrawn(&self, tag: u64) {
        lock(&self.waiter.nodes).answered(tag as usize);
        self.to.withdrawn(tag);
    }
}

impl fmt::Debug for TicketReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketReplies({:?})", self.waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::message::{Claim, Mode, Ticket};
    use crate::name::Name;
    use crate::node::memory::MemoryNode;
    use crate::node::{Completion, Facts, Node, NodeClock};
    use crate::protocol::Queue;
    use crate::runtime::waiting::Refreshing;

    const CALL_TIMEOUT: Duration = Duration::from_secs(1);

    struct ExpectOk;

    impl Deliver<Facts> for ExpectOk {
        fn deliver(&self, _: u64, outcome: Result<Facts, CallError>) {
            outcome.unwrap();
        }
    }

    fn claims() -> Arc<[Claim]> {
        Arc::from([Claim {
            name: Name::new("", "x").unwrap(),
            mode: Mode::Exclusive,
        }])
    }

    /// Three nodes, and a waiter for `x` whose ticket is on all of them.
    fn one_waiter() -> (Arc<ClientRuntime>, Vec<MemoryNode>, Arc<Waiter>) {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let node =
            |name| MemoryNode::with_clock(name, NodeClock::following(clock.clone(), 1 << 50));
        let nodes: Vec<MemoryNode> = ["a", "b", "c"].map(node).into();
        let all = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
        let runtime = ClientRuntime::of_group(all.collect(), clock);
        let group = *runtime.sender.cluster().group();
        for node in &nodes {
            node.join(group, Completion::new(Arc::new(ExpectOk), 0));
        }
        let ticket = Ticket {
            since_us: 1 << 50,
            id: runtime.room.new_ticket_id(),
            first: false,
            label: "waiter".into(),
        };
        let room = Arc::clone(&runtime.room);
        let waiter = room.enter(&runtime, &claims(), ticket, Queue::Lock);
        refresh(&runtime, &waiter);
        assert_eq!(lengths(&nodes), [1; 3]);
        (runtime, nodes, waiter)
    }

    fn refresh(runtime: &Arc<ClientRuntime>, waiter: &Arc<Waiter>) {
        Refreshing::begin(runtime, &claims(), Queue::Lock, vec![Arc::clone(waiter)]);
    }

    /// How many tickets are in the queue of each node.
    fn lengths(nodes: &[MemoryNode]) -> Vec<usize> {
        let name = &claims()[0].name;
        let length = |node: &MemoryNode| node.entry(name).queue.entries.len();
        nodes.iter().map(length).collect()
    }

    #[test]
    fn after_the_grant_every_node_that_may_have_the_ticket_forgets_it() {
        let (runtime, nodes, waiter) = one_waiter();
        waiter.note(&runtime, 0, TicketFate::Left);
        waiter.note(&runtime, 1, TicketFate::Left);
        waiter.note(&runtime, 2, TicketFate::Unchanged);
        waiter.granted(&runtime, &[], CALL_TIMEOUT);
        // In a real grant the first two nodes would have removed it themselves.
        assert_eq!(lengths(&nodes), [1, 1, 0]);
    }

    /// Another thread was about to send the refresh when the grant arrived.
    #[test]
    fn a_refresh_that_comes_after_the_grant_leaves_no_ticket() {
        let (runtime, nodes, waiter) = one_waiter();
        waiter.granted(&runtime, &[], CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [0; 3]);
        refresh(&runtime, &waiter);
        assert_eq!(lengths(&nodes), [0; 3]);
    }

    /// The answer to the refresh arrives between the grant of a node and the verdict.
    #[test]
    fn a_refresh_between_a_nodes_grant_and_the_verdict_leaves_no_ticket() {
        let (runtime, nodes, waiter) = one_waiter();
        for node in 0..3 {
            waiter.note(&runtime, node, TicketFate::Left);
        }
        refresh(&runtime, &waiter);
        waiter.granted(&runtime, &[], CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [0; 3]);
    }

    #[test]
    fn a_ticket_undone_with_a_surplus_slot_is_not_undone_twice() {
        let (runtime, nodes, waiter) = one_waiter();
        let surplus = [Target::Holds, Target::Nothing, Target::Unknown];
        waiter.granted(&runtime, &surplus, CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [1, 0, 1]);
    }
}
