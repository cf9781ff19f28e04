//! While all waiters refresh their tickets, grants follow the order of the tickets.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

/// The next action of a waiter.
#[derive(Debug, Clone, Copy)]
enum Action {
    Acquire,
    /// Releases what it holds, or stops waiting.
    Release,
    Undo,
    Extend,
    /// Tries to acquire without its ticket.
    AcquireWithoutTicket,
}

#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    who: usize,
    action: Action,
}

const WAITERS: usize = 5;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        6 => Just(Action::Acquire),
        3 => Just(Action::Release),
        1 => Just(Action::Undo),
        1 => Just(Action::Extend),
        1 => Just(Action::AcquireWithoutTicket),
    ];
    let step = (0u64..40, 0..WAITERS, action).prop_map(|(pass_ms, who, action)| Step {
        pass_ms,
        who,
        action,
    });
    prop::collection::vec(step, 1..120)
}

/// The node, its waiters and its holder.
struct Scene {
    node: TestNode,
    tickets: [Option<Ticket>; WAITERS],
    holder: Option<usize>,
    /// Alice holds the lock until the first release.
    alice_holds: bool,
    /// The time since the last release.
    idle_ms: u64,
    /// The number of the last ticket.
    number: u32,
}

impl Scene {
    fn new() -> Self {
        let mut node = TestNode::new();
        node.ask(ALICE, acquire(node.ballot(0)));
        node.refresh(&["x"], &[]);
        Self {
            node,
            tickets: Default::default(),
            holder: None,
            alice_holds: true,
            idle_ms: 0,
            number: 0,
        }
    }

    fn is_free(&self) -> bool {
        self.holder.is_none() && !self.alice_holds
    }

    fn pass_ms(&mut self, ms: u64) {
        self.node.pass_ms(ms);
        self.idle_ms += ms;
        let waiting: Vec<Ticket> = self.tickets.iter().flatten().cloned().collect();
        let waiting: Vec<&Ticket> = waiting.iter().collect();
        self.node.refresh(&["x"], &waiting);
    }

    /// Before the grace has passed the head acquires, as a live one does. An undo does not restart
    /// the grace.
    fn let_head_acquire(&mut self) -> Result<(), TestCaseError> {
        if !self.is_free() || self.idle_ms <= GRACE_MS / 2 {
            return Ok(());
        }
        let waiting = (0..WAITERS).filter(|i| self.tickets[*i].is_some());
        let Some(head) = waiting.min_by_key(|i| self.tickets[*i].clone()) else {
            return Ok(());
        };
        let ticket = self.tickets[head].clone().unwrap();
        let answer = self.node.acquire_queued(head as u8 + 1, &ticket);
        prop_assert_eq!(answer, Answer::Granted);
        self.holder = Some(head);
        Ok(())
    }

    fn run(&mut self, waiter: usize, action: Action) -> Result<(), TestCaseError> {
        let who = waiter as u8 + 1;
        match action {
            Action::Acquire if self.holder != Some(waiter) => self.acquire(waiter)?,
            Action::Acquire => {}
            Action::Release => self.release(waiter)?,
            // The grace counts from the last release, and an undo does not stop it. After an
            // undo later than this, another waiter could rightly pass.
            Action::Undo if self.idle_ms > GRACE_MS / 2 => {}
            Action::Undo => {
                if let Some(ticket) = self.tickets[waiter].clone() {
                    self.node.undo_attempt(&["x"], who, &ticket);
                    self.holder = self.holder.filter(|holder| *holder != waiter);
                    let mut wakes = self.node.wakes.iter();
                    prop_assert!(wakes.all(|wake| *wake.ticket != *ticket.id));
                }
            }
            Action::Extend => {
                let free_since = |node: &TestNode| node.entry("x").record.map(|r| r.free_since_ms);
                let before = free_since(&self.node);
                self.node.ask(who, extend(self.node.ballot(0), TTL_MS));
                prop_assert_eq!(free_since(&self.node), before);
            }
            Action::AcquireWithoutTicket => {
                let free = self.is_free() && self.tickets.iter().all(Option::is_none);
                let ballot = self.node.next_ballot(&["x"]);
                let answer = self.node.ask(DAVE, acquire(ballot));
                prop_assert_eq!(answer == Answer::Granted, free);
                self.node.ask(DAVE, undo(ballot));
            }
        }
        Ok(())
    }

    fn acquire(&mut self, waiter: usize) -> Result<(), TestCaseError> {
        let who = waiter as u8 + 1;
        self.number += 1;
        let new = self.node.ticket(&format!("{who}.{}", self.number));
        let ticket = self.tickets[waiter].get_or_insert(new).clone();
        let answer = self.node.acquire_queued(who, &ticket);
        let ticket = reentered(&ticket);
        let tickets = self.tickets.iter().flatten();
        let first = tickets.map(|p| (p.since_us, &p.id)).min();
        let is_first = first == Some((ticket.since_us, &ticket.id));
        if answer == Answer::Granted {
            prop_assert!(is_first && self.is_free());
            self.holder = Some(waiter);
        } else {
            prop_assert!(!is_first || !self.is_free(), "{answer:?}");
        }
        self.tickets[waiter] = Some(ticket);
        Ok(())
    }

    fn release(&mut self, waiter: usize) -> Result<(), TestCaseError> {
        let who = waiter as u8 + 1;
        if self.alice_holds {
            self.node.release_final(&["x"], ALICE, None);
            self.alice_holds = false;
            self.idle_ms = 0;
        } else if self.holder == Some(waiter) {
            let ticket = self.tickets[waiter].take();
            let answer = self.node.release_final(&["x"], who, ticket.as_ref());
            prop_assert_eq!(answer, Answer::Released);
            self.holder = None;
            self.idle_ms = 0;
        } else if let Some(ticket) = self.tickets[waiter].take() {
            self.node.cancel(&["x"], who, &ticket);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every waiter here is alive, and no head waits as long as the grace. So after a release, the
    /// waiter that is granted is always the first in the queue.
    #[test]
    fn grants_follow_the_tickets(steps in steps()) {
        let mut scene = Scene::new();
        for step in steps {
            scene.pass_ms(step.pass_ms);
            scene.let_head_acquire()?;
            scene.run(step.who, step.action)?;
        }
    }
}
