//! What is known of a caller's ticket, and telling nodes to forget it
//! ([`TicketNodes`](crate::protocol::TicketNodes) says which).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::TICKET_MS;
use crate::message::Reply;
use crate::node::{CallError, Deliver};
use crate::protocol::{GrantId, Target, TicketFate};

use super::releasing::Releasing;
use super::waiter::Waiter;
use super::{Driver, lock};

impl Waiter {
    /// Whether its caller no longer waits: nothing may enter its ticket any more.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.nodes).is_over()
    }

    /// Hears what a call did to its ticket on `node`.
    pub(super) fn note(&self, driver: &Arc<Driver>, node: usize, fate: TicketFate) {
        let told = lock(&self.nodes).note(node, fate);
        if let Some(call_timeout) = told {
            let mut targets = vec![Target::Nothing; driver.sender.nodes.len()];
            targets[node] = Target::Holds;
            self.forget(driver, targets, call_timeout);
        }
    }

    /// The undo of the last attempt takes the ticket back from `targets`.
    pub(super) fn is_told_to(&self, targets: &[Target]) {
        lock(&self.nodes).told(targets);
    }

    /// Its caller has what it waited for. `strays`: what else is taken back from these nodes, the
    /// ticket with it.
    pub(super) fn granted(&self, driver: &Arc<Driver>, strays: &[Target], call_timeout: Duration) {
        let mut targets = lock(&self.nodes).end(true, call_timeout);
        for (target, _) in targets
            .iter_mut()
            .zip(strays)
            .filter(|(_, stray)| **stray != Target::Nothing)
        {
            *target = Target::Nothing;
        }
        self.forget(driver, targets, call_timeout);
    }

    /// Its caller gave up.
    pub(super) fn gave_up(&self, driver: &Arc<Driver>, call_timeout: Duration) {
        let targets = lock(&self.nodes).end(false, call_timeout);
        self.forget(driver, targets, call_timeout);
    }

    /// Has `targets` forget the ticket; retried until they have answered, or the ticket has run out.
    fn forget(&self, driver: &Arc<Driver>, targets: Vec<Target>, call_timeout: Duration) {
        if targets.iter().all(|target| *target == Target::Nothing) {
            return;
        }
        let id = GrantId::of_ticket(&self.claims, &self.place, self.queue);
        let lease = Duration::from_millis(TICKET_MS);
        Releasing::undo(driver, &id, targets, lease, call_timeout, None);
    }
}

/// Where the replies of an attempt go that carries a ticket.
pub(super) struct TicketReplies {
    driver: Arc<Driver>,
    waiter: Arc<Waiter>,
    /// Whoever tallies them.
    to: Arc<dyn Deliver<Reply>>,
    /// Whether that one takes back what comes after the grant, the ticket with it.
    takes_back: bool,
}

impl TicketReplies {
    /// Of an attempt that is about to be sent to every node.
    pub(super) fn new(
        driver: &Arc<Driver>,
        waiter: &Arc<Waiter>,
        to: Arc<dyn Deliver<Reply>>,
        takes_back: bool,
    ) -> Self {
        lock(&waiter.nodes).sending();
        Self {
            driver: Arc::clone(driver),
            waiter: Arc::clone(waiter),
            to,
            takes_back,
        }
    }
}

impl Deliver<Reply> for TicketReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let node = tag as usize;
        let fate = TicketFate::after_acquire(&outcome);
        lock(&self.waiter.nodes).answered(node);
        // Before the verdict: whoever wakes by it looks at what is known of the ticket.
        if !self.takes_back || !self.waiter.is_over() {
            self.waiter.note(&self.driver, node, fate);
        }
        self.to.deliver(tag, outcome);
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
    use crate::driver::refreshing::Refreshing;
    use crate::message::{Claim, Mode, Place};
    use crate::name::Name;
    use crate::node::memory::MemoryNode;
    use crate::node::{Completion, Facts, Node, NodeClock};
    use crate::protocol::Queue;

    const CALL_TIMEOUT: Duration = Duration::from_secs(1);

    struct Nobody;

    impl Deliver<Facts> for Nobody {
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

    /// Three nodes, and one who waits for `x` with a ticket that all of them have.
    fn one_waits() -> (Arc<Driver>, Vec<MemoryNode>, Arc<Waiter>) {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let node =
            |name| MemoryNode::with_clock(name, NodeClock::following(clock.clone(), 1 << 50));
        let nodes: Vec<MemoryNode> = ["a", "b", "c"].map(node).into();
        let all = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
        let driver = Driver::of_group(all.collect(), clock);
        let group = *driver.sender.cluster().group();
        for node in &nodes {
            node.join(group, Completion::new(Arc::new(Nobody), 0));
        }
        let place = Place {
            since_us: 1 << 50,
            id: driver.room.ticket(),
            first: false,
        };
        let room = Arc::clone(&driver.room);
        let waiter = room.enter(&driver, &claims(), place, Queue::Lock);
        refresh(&driver, &waiter);
        assert_eq!(lengths(&nodes), [1; 3]);
        (driver, nodes, waiter)
    }

    fn refresh(driver: &Arc<Driver>, waiter: &Arc<Waiter>) {
        Refreshing::begin(driver, &claims(), Queue::Lock, vec![Arc::clone(waiter)]);
    }

    /// How many tickets stand in line on each node.
    fn lengths(nodes: &[MemoryNode]) -> Vec<usize> {
        let name = &claims()[0].name;
        let length = |node: &MemoryNode| node.entry(name).line.tickets.len();
        nodes.iter().map(length).collect()
    }

    #[test]
    fn after_the_grant_every_node_that_may_have_the_ticket_is_told() {
        let (driver, nodes, waiter) = one_waits();
        waiter.note(&driver, 0, TicketFate::Left);
        waiter.note(&driver, 1, TicketFate::Left);
        waiter.note(&driver, 2, TicketFate::Unchanged);
        waiter.granted(&driver, &[], CALL_TIMEOUT);
        // The first two took it out themselves, had this been a real grant.
        assert_eq!(lengths(&nodes), [1, 1, 0]);
    }

    /// A refresh that another thread was about to send when the grant came.
    #[test]
    fn a_refresh_that_comes_after_the_grant_leaves_no_ticket() {
        let (driver, nodes, waiter) = one_waits();
        waiter.granted(&driver, &[], CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [0; 3]);
        refresh(&driver, &waiter);
        assert_eq!(lengths(&nodes), [0; 3]);
    }

    /// The same with the answer to the refresh between the grant of a node and the verdict.
    #[test]
    fn a_refresh_between_a_nodes_grant_and_the_verdict_leaves_no_ticket() {
        let (driver, nodes, waiter) = one_waits();
        for node in 0..3 {
            waiter.note(&driver, node, TicketFate::Left);
        }
        refresh(&driver, &waiter);
        waiter.granted(&driver, &[], CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [0; 3]);
    }

    #[test]
    fn what_strays_take_back_is_not_taken_back_twice() {
        let (driver, nodes, waiter) = one_waits();
        let strays = [Target::Holds, Target::Nothing, Target::Unknown];
        waiter.granted(&driver, &strays, CALL_TIMEOUT);
        assert_eq!(lengths(&nodes), [1, 0, 1]);
    }
}
