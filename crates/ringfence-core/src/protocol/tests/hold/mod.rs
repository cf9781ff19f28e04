//! The life of a hold, with stepped time: what it sends when, and how it ends.

mod ending;
mod release;
mod renewal;
mod restore;

use super::super::attempt::Timing;
use super::*;

/// A third of the TTL, rounded down.
const THIRD: Duration = Duration::from_nanos(3_333_333_333);

/// A hold on three nodes, the time, and the outputs so far.
#[derive(Clone)]
struct Life {
    hold: Hold,
    now: Timestamp,
    /// When a freeze of our own clock was found.
    froze: Option<Timestamp>,
    cluster: Cluster,
    events: Vec<HoldEvent>,
}

fn policy() -> HoldPolicy {
    HoldPolicy {
        ttl: TTL,
        lock_delay: Duration::ZERO,
        hold_at_least: Duration::ZERO,
        call_timeout: CALL_TIMEOUT,
        drift: Drift::default(),
        renew: true,
        max_hold: None,
        label: Arc::from("job"),
    }
}

/// What the attempt of every hold won.
fn grant_id() -> GrantId {
    let (token, ballot) = (token(1), Ballot::new(7));
    GrantId::of_receipt(
        Arc::from([]),
        token,
        ballot,
        Kind::Exclusive,
        Duration::ZERO,
    )
}

/// An attempt on three nodes that began at 0 and got these answers at 1 ms.
fn attempt(outcomes: [Option<Outcome>; 3]) -> Attempt {
    let timing = Timing {
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        timeout: at(100),
        reply_by: None,
    };
    let suspects = [false; 3].into_iter();
    let mut attempt = Attempt::new(token(1), Ballot::new(7), None, at(0), timing, suspects);
    for (node, outcome) in outcomes.into_iter().enumerate() {
        if let Some(outcome) = outcome {
            attempt.handle_reply(node, outcome, None, at(1));
        }
    }
    attempt
}

impl Life {
    /// Won at 1 ms in an attempt that began at 0, with the answers of all nodes.
    fn won(policy: HoldPolicy) -> Self {
        let granted = || Some(reply(Answer::Granted));
        Self::of(
            &attempt([granted(), granted(), granted()]),
            policy,
            Kind::Exclusive,
        )
    }

    fn of(attempt: &Attempt, policy: HoldPolicy, kind: Kind) -> Self {
        let deadline = at(0) + VALIDITY;
        let hold = Hold::new(attempt, deadline, Arc::new(policy), kind, at(1));
        Self::with(hold, at(1))
    }

    fn with(hold: Hold, now: Timestamp) -> Self {
        let (froze, cluster, events) = (None, cluster_of(3), Vec::new());
        Self {
            hold,
            now,
            froze,
            cluster,
            events,
        }
    }

    fn clock(&self) -> ClockReading {
        ClockReading {
            now: self.now,
            froze: self.froze,
        }
    }

    /// Takes all requests, and collects the events.
    fn drain(&mut self) -> Vec<Transmit> {
        let mut sent = Vec::new();
        loop {
            let clock = self.clock();
            if let Some(transmit) = self.hold.poll_transmit(|| clock) {
                sent.push(transmit);
            } else if let Some(event) = self.hold.poll_event() {
                self.events.push(event);
            } else {
                return sent;
            }
        }
    }

    /// Lets time pass until `now`, and calls the hold at each of its timeouts. Renewals get
    /// capacity at once. Returns what it sent.
    fn pass(&mut self, now: Timestamp) -> Vec<Transmit> {
        let mut sent = Vec::new();
        while let Some(wake) = self.hold.poll_timeout().filter(|wake| *wake <= now) {
            self.now = self.now.max(wake);
            let clock = self.clock();
            self.hold.handle_timeout(clock, &mut self.cluster);
            sent.extend(self.drain());
            if self.events.last() == Some(&HoldEvent::RenewalDue) {
                self.events.pop();
                assert!(self.hold.renew(self.clock(), Line::First));
                sent.extend(self.drain());
            }
        }
        self.now = now;
        sent
    }

    /// `node` answers in the round of `request`. Returns what the hold then sends.
    fn answer(&mut self, request: Transmit, node: usize, outcome: Outcome) -> Vec<Transmit> {
        let clock = self.clock();
        self.hold
            .handle_reply(request.round, node, outcome, None, clock);
        self.drain()
    }

    /// All nodes give this answer in the round of `request`.
    fn all_answer(&mut self, request: Transmit, answer: &Answer) {
        for node in 0..3 {
            self.answer(request, node, reply(answer.clone()));
        }
    }

    fn check(&mut self) -> Result<(), Lost> {
        let clock = self.clock();
        self.hold.check(clock)
    }

    fn release(&mut self) -> Option<FinalRelease> {
        let clock = self.clock();
        self.hold.release(clock)
    }

    /// The ends that the hold reported.
    fn ends(&self) -> Vec<Lost> {
        let ends = self.events.iter().filter_map(|event| match event {
            HoldEvent::Ended(why) => Some(*why),
            _ => None,
        });
        ends.collect()
    }
}

/// The nodes, and what each is asked for.
fn asked(sent: &[Transmit]) -> Vec<(usize, HoldAction)> {
    sent.iter().map(|one| (one.node, one.action)).collect()
}

fn to_all(action: HoldAction) -> Vec<(usize, HoldAction)> {
    (0..3).map(|node| (node, action)).collect()
}
