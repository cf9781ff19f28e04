//! One round of extending a hold: renewal, an explicit extend, or a downgrade; and putting the lock
//! back on nodes that lost it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::{Answer, Op, Reply, Request};
use crate::node::{CallError, Deliver};
use crate::protocol::{Extension, ExtensionVerdict, Vote};

use super::flight::Flight;
use super::hold::Hold;
use super::lock;
use super::renewals::Turn;

/// One round of extending under way.
pub(crate) struct Extending {
    pub(super) flight: Flight<Extension>,
    hold: Arc<Hold>,
    ttl: Duration,
    /// If it is a renewal, for as long as it is open.
    turn: Mutex<Option<Turn>>,
}

/// What a round of extending is for.
pub(super) enum Kind {
    Extend,
    /// Begun by the keeper.
    Renew(Turn),
    /// The first of a shared hold that was an exclusive one.
    Downgrade,
}

impl Extending {
    pub(super) fn begin(hold: &Arc<Hold>, ttl: Duration, kind: Kind) -> Arc<Self> {
        let driver = hold.driver();
        let lease = hold.care().lease(ttl);
        let ttl_ms = lease.as_millis() as u64;
        let request = Arc::new(Request {
            claims: Arc::clone(&hold.traces().claims),
            token: hold.traces().token.clone(),
            op: if hold.traces().plain {
                Op::PlainExtend { ttl_ms }
            } else if matches!(kind, Kind::Downgrade) {
                Op::Downgrade {
                    ballot: hold.traces().ballot,
                    ttl_ms,
                }
            } else {
                Op::Extend {
                    ballot: hold.traces().ballot,
                    ttl_ms,
                }
            },
        });
        // t0 of this round, before anything is sent.
        let t0 = driver.clock.now();
        let call_timeout = hold.care().call_timeout;
        let round = Extension::new(driver.nodes.len(), t0, ttl, driver.drift, call_timeout);
        // The node may carry it out as late as its call expires.
        hold.leased_until(t0 + call_timeout + lease);
        let this = Arc::new(Self {
            flight: Flight::new(driver, round, t0),
            hold: Arc::clone(hold),
            ttl,
            turn: Mutex::new(match kind {
                Kind::Renew(turn) => Some(turn),
                Kind::Extend | Kind::Downgrade => None,
            }),
        });
        for node in 0..driver.nodes.len() {
            let to = Arc::clone(&this) as Arc<dyn Deliver<Reply>>;
            driver.send(node, &request, t0 + call_timeout, to);
        }
        this
    }

    /// Waits for what it comes to.
    pub(crate) async fn verdict(&self) -> ExtensionVerdict {
        let timeout = self.flight.with(|round| round.poll_timeout());
        let timeout = timeout.unwrap_or_else(|| self.flight.driver.clock.now());
        tokio::select! {
            biased;
            verdict = self.flight.verdict(|| self.time_out()) => verdict,
            () = self.flight.driver.outlives_runtime(timeout) => {
                self.time_out();
                self.flight.concluded().await
            }
        }
    }

    pub(crate) fn votes(&self) -> Vec<Vote> {
        self.flight.with(|round| round.votes().cloned().collect())
    }

    /// Its time is over.
    pub(crate) fn time_out(&self) {
        if self.flight.time_out() {
            self.conclude();
        }
    }

    /// There is a verdict: the hold takes it, and whoever lost our token gets it back.
    fn conclude(&self) {
        let (verdict, votes, to_restore, t0) = self.flight.with(|round| {
            let votes: Vec<Vote> = round.votes().cloned().collect();
            let to_restore: Vec<usize> = round.to_restore().collect();
            (round.verdict(), votes, to_restore, round.t0())
        });
        let Some(verdict) = verdict else { return };
        let turn = lock(&self.turn).take();
        if turn.is_some() {
            self.hold.renewal_over(self);
        }
        self.hold.conclude(verdict, votes, t0);
        for node in to_restore {
            self.restore(node);
        }
    }

    /// The verdict was there before: only this node is concerned.
    fn hear_late(&self, node: usize) {
        let (vote, deadline, restore, t0) = self.flight.with(|round| {
            let restore = round.to_restore().any(|vacant| vacant == node);
            (
                round.vote(node).clone(),
                round.late_deadline(),
                restore,
                round.t0(),
            )
        });
        self.hold.hear_late_vote(node, vote);
        if let Some(deadline) = deadline {
            self.hold.conclude_late(deadline, t0);
        }
        if restore {
            self.restore(node);
        }
    }

    /// Puts our token back on a node that lost it, unless there is no lock to put back. A restored
    /// key counts from the next round on.
    fn restore(&self, node: usize) {
        let traces = self.hold.traces();
        if traces.plain || !self.hold.begin_restore(node) {
            return;
        }
        let request = Arc::new(Request {
            claims: Arc::clone(&traces.claims),
            token: traces.token.clone(),
            op: Op::Restore {
                ballot: traces.ballot,
                ttl_ms: self.hold.care().lease(self.ttl).as_millis() as u64,
                label: Arc::clone(&self.hold.care().label),
            },
        });
        tracing::debug!(
            target: "ringfence",
            node = self.flight.driver.nodes[node].name(),
            token = %traces.token,
            "putting the lock back on a node that lost it"
        );
        let driver = &self.flight.driver;
        let to = Arc::new(Restoring(Arc::clone(&self.hold)));
        driver.send(node, &request, self.hold.deadline(), to);
    }
}

impl Deliver<Reply> for Extending {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let node = tag as usize;
        let (over, decisive) = self.flight.take(node, outcome, |round, news| {
            (round.verdict().is_some(), news.decisive)
        });
        if decisive {
            self.conclude();
        } else if over {
            self.hear_late(node);
        }
    }
}

/// Where the answer to a restore goes: nobody waits for it, but until it is there the restore may be
/// carried out.
struct Restoring(Arc<Hold>);

impl Deliver<Reply> for Restoring {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        match &outcome {
            Err(error) if error.may_have_been_applied() => {}
            _ => self.0.restore_answered(tag as usize),
        }
        if let Ok(reply) = &outcome
            && reply.answer == Answer::Restored
        {
            tracing::debug!(target: "ringfence", token = %self.0.traces().token, node = tag, "the lock is back");
        }
    }
}
