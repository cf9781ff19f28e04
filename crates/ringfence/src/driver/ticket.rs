//! Which nodes may have a caller's ticket in their wait queue. When the caller no longer waits, each
//! of them is told to forget it: a ticket that outlives its use keeps others out.
//!
//! A node that grants takes the ticket out of its queue in the same step. Every other node that was
//! shown the ticket is told here: one that refused the winning attempt, one that failed in it and was
//! shown the ticket earlier, and one where a refresh or an undo came after the grant.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::ledger::TICKET_MS;
use crate::message::{Answer, Ballot, Kind, ReleaseKind, Reply, Slots};
use crate::node::{CallError, Deliver};
use crate::protocol::Target;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::taker::Taker;
use super::waiting::{Waiter, WaitsFor};
use super::withdraw::{Traces, Withdrawing};
use super::{Driver, lock};

/// What one call to a node did to the ticket there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TicketFate {
    /// It is in the queue now, or may be.
    Entered,
    /// It was granted, and so left the queue.
    Left,
    /// The call changed nothing.
    Unchanged,
}

impl TicketFate {
    /// After an acquire that carried the ticket.
    pub(super) fn after_acquire(outcome: &Result<Reply, CallError>) -> Self {
        let answer = match outcome {
            Ok(reply) => match &reply.answer {
                Answer::Permit(permit) => &*permit.answer,
                answer => answer,
            },
            Err(error) if error.may_have_been_applied() => return Self::Entered,
            Err(_) => return Self::Unchanged,
        };
        match answer {
            Answer::Granted => Self::Left,
            Answer::TicketOld => Self::Unchanged,
            _ => Self::Entered,
        }
    }

    /// After a refresh of the ticket.
    pub(super) fn after_refresh(outcome: &Result<Reply, CallError>) -> Self {
        match outcome {
            Ok(_) => Self::Entered,
            Err(error) if error.may_have_been_applied() => Self::Entered,
            Err(_) => Self::Unchanged,
        }
    }

    /// After an undo that keeps the place: where it takes a grant back, it enters the ticket again.
    pub(super) fn after_undo(outcome: &Result<Reply, CallError>) -> Self {
        match outcome {
            Ok(reply) if reply.answer == Answer::Released => Self::Entered,
            Ok(_) => Self::Unchanged,
            Err(_) => Self::after_refresh(outcome),
        }
    }
}

/// Which nodes may have a ticket.
#[derive(Debug)]
pub(super) struct TicketNodes(Mutex<State>);

#[derive(Debug)]
struct State {
    /// By node: it may have the ticket.
    may_have: Vec<bool>,
    /// By node: how many acquires with the ticket it has not answered.
    unanswered: Vec<u32>,
    /// The caller no longer waits, and how long a node may take to answer when it is told so.
    over: Option<Duration>,
}

impl TicketNodes {
    pub(super) fn new(nodes: usize) -> Self {
        Self(Mutex::new(State {
            may_have: vec![false; nodes],
            unanswered: vec![0; nodes],
            over: None,
        }))
    }

    /// An acquire with the ticket is about to be sent to every node.
    fn sending(&self) {
        let mut state = lock(&self.0);
        state.unanswered.iter_mut().for_each(|count| *count += 1);
    }

    /// `node` has answered an acquire with the ticket.
    fn answered(&self, node: usize) {
        let mut state = lock(&self.0);
        state.unanswered[node] = state.unanswered[node].saturating_sub(1);
    }

    /// Notes what a call did to the ticket on `node`. If the caller no longer waits and the node may
    /// have the ticket all the same: how long it may take to answer when it is told to forget it.
    fn note(&self, node: usize, fate: TicketFate) -> Option<Duration> {
        let mut state = lock(&self.0);
        match fate {
            TicketFate::Entered => {}
            TicketFate::Left => {
                state.may_have[node] = false;
                return None;
            }
            TicketFate::Unchanged => return None,
        }
        state.may_have[node] = state.over.is_none();
        state.over
    }

    /// The nodes in `targets` are told by the undo of the last attempt.
    fn told(&self, targets: &[Target]) {
        let state = &mut *lock(&self.0);
        let nodes = state.may_have.iter_mut().zip(&mut state.unanswered);
        for ((may_have, unanswered), _) in nodes
            .zip(targets)
            .filter(|(_, target)| **target != Target::Nothing)
        {
            (*may_have, *unanswered) = (false, 0);
        }
    }

    /// The caller no longer waits: which nodes are to be told. After a grant a node that has not
    /// answered yet is not: mostly it grants, too, and its answer decides.
    fn end(&self, granted: bool, call_timeout: Duration) -> Vec<Target> {
        let mut state = lock(&self.0);
        if state.over.replace(call_timeout).is_some() {
            return Vec::new();
        }
        let may_have = std::mem::take(&mut state.may_have);
        state.may_have = vec![false; may_have.len()];
        let unanswered = state.unanswered.iter().map(|count| *count > 0 && !granted);
        let tell = may_have.iter().zip(unanswered);
        let target = |(may_have, unanswered): (&bool, bool)| match *may_have || unanswered {
            true => Target::Holds,
            false => Target::Nothing,
        };
        tell.map(target).collect()
    }

    fn is_over(&self) -> bool {
        lock(&self.0).over.is_some()
    }
}

impl Waiter {
    /// Whether its caller no longer waits: nothing may enter its ticket any more.
    pub(super) fn is_over(&self) -> bool {
        self.nodes.is_over()
    }

    /// Hears what a call did to its ticket on `node`.
    pub(super) fn note(&self, driver: &Arc<Driver>, node: usize, fate: TicketFate) {
        if let Some(call_timeout) = self.nodes.note(node, fate) {
            let mut targets = vec![Target::Nothing; driver.nodes.len()];
            targets[node] = Target::Holds;
            self.forget(driver, targets, call_timeout);
        }
    }

    /// The undo of the last attempt takes the ticket back from `targets`.
    pub(super) fn is_told_to(&self, targets: &[Target]) {
        self.nodes.told(targets);
    }

    /// Its caller has what it waited for. `strays`: what else is taken back from these nodes, the
    /// ticket with it.
    pub(super) fn granted(&self, driver: &Arc<Driver>, strays: &[Target], call_timeout: Duration) {
        let mut targets = self.nodes.end(true, call_timeout);
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
        let targets = self.nodes.end(false, call_timeout);
        self.forget(driver, targets, call_timeout);
    }

    /// Has `targets` forget the ticket; retried until they have answered, or the ticket has run out.
    /// The token is nobody's: a node that granted must keep the grant.
    fn forget(&self, driver: &Arc<Driver>, targets: Vec<Target>, call_timeout: Duration) {
        if targets.iter().all(|target| *target == Target::Nothing) {
            return;
        }
        let (kind, slots) = match self.waits_for() {
            WaitsFor::Slot => (Kind::Slot, Some((Arc::clone(self.claims()), Slots::All))),
            WaitsFor::Lock | WaitsFor::Latch { .. } => (Kind::Exclusive, None),
        };
        let traces = Traces {
            claims: Arc::clone(self.claims()),
            token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
            ballot: Ballot::default(),
            kind,
            taker: Taker::default(),
            place: Some(Box::new(self.place().clone())),
            slots: slots.map(Box::new),
        };
        let lease = Duration::from_millis(TICKET_MS);
        Withdrawing::begin(
            driver,
            ReleaseKind::Undo,
            &traces,
            targets,
            lease,
            call_timeout,
        );
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
        waiter.nodes.sending();
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
        self.waiter.nodes.answered(node);
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
    use crate::message::{Claim, Mode, Place, Standing};
    use crate::name::Name;
    use crate::node::memory::MemoryNode;
    use crate::node::{Completion, Facts, Node, NodeClock, Trouble, TroubleKind};

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
        let group = *driver.cluster().group();
        for node in &nodes {
            node.join(group, Completion::new(Arc::new(Nobody), 0));
        }
        let place = Place {
            since_us: 1 << 50,
            id: driver.room.ticket(),
            first: false,
        };
        let room = Arc::clone(&driver.room);
        let waiter = room.enter(&driver, &claims(), place, WaitsFor::Lock);
        refresh(&driver, &waiter);
        assert_eq!(lengths(&nodes), [1; 3]);
        (driver, nodes, waiter)
    }

    fn refresh(driver: &Arc<Driver>, waiter: &Arc<Waiter>) {
        Refreshing::begin(driver, &claims(), WaitsFor::Lock, vec![Arc::clone(waiter)]);
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

    #[test]
    fn only_a_grant_takes_the_ticket_out_and_only_what_arrived_enters_it() {
        let standing = Standing::default();
        let said = |answer| {
            Ok(Reply {
                stamp: None,
                standing,
                answer,
            })
        };
        let trouble = || Trouble::new(TroubleKind::Disconnected, "gone");
        let after = |outcome: Result<Reply, CallError>| {
            [
                TicketFate::after_acquire(&outcome),
                TicketFate::after_refresh(&outcome),
                TicketFate::after_undo(&outcome),
            ]
        };
        use TicketFate::{Entered, Left, Unchanged};
        let unknown = Err(CallError::Unknown(trouble()));
        let not_sent = Err(CallError::NotSent(trouble()));
        assert_eq!(after(said(Answer::Granted))[0], Left);
        assert_eq!(after(said(Answer::TicketOld))[0], Unchanged);
        assert_eq!(after(said(Answer::Stale)), [Entered, Entered, Unchanged]);
        assert_eq!(after(said(Answer::Released))[2], Entered);
        assert_eq!(after(unknown), [Entered; 3]);
        assert_eq!(after(not_sent), [Unchanged; 3]);
    }
}
