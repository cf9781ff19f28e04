//! Brings about one failover after the other, and records when each began, when the new master was
//! named, and when a newcomer was granted a lock again.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fault, SentinelGroup};
use tokio::runtime::Runtime;

use crate::history::What;
use crate::random::Random;

use super::super::journal::{Journal, Note, now_us};
use super::servers::SentinelServers;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// After which time a failover is ordered again.
const AGAIN: Duration = Duration::from_secs(15);
/// Latches need a node that has been up for longer than a quarantine and the TTL of a
/// latch, so some failovers are followed by more time.
const LONG_CALM: Duration = Duration::from_secs(12);

/// How a failover is brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailoverKind {
    /// SIGKILL of the master, which starts again without data.
    Kill,
    /// SIGSTOP of the master, which goes on after the promotion.
    Stop,
    /// `SENTINEL FAILOVER`.
    Planned,
    /// Two of them, one right after the other.
    Twice,
    /// What the old master sends to the Sentinels and the replicas is lost. It receives what they
    /// send, and goes on serving all clients.
    OneWay,
    /// The old master is cut off together with one Sentinel and half of the clients, and goes on
    /// serving them.
    Partition,
}

impl FailoverKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Kill,
        Self::Stop,
        Self::Planned,
        Self::Twice,
        Self::OneWay,
        Self::Partition,
    ];

    /// How many masters follow each other in it.
    pub fn promotions(self) -> usize {
        match self {
            Self::Twice => 2,
            _ => 1,
        }
    }

    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "master killed",
            Self::Stop => "master stopped",
            Self::Planned => "SENTINEL FAILOVER",
            Self::Twice => "SENTINEL FAILOVER twice",
            Self::OneWay => "one way: what the master sends to the others is lost",
            Self::Partition => "master, one Sentinel and half of the clients cut off",
        }
    }
}

impl fmt::Display for FailoverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// At least `failovers` failovers: rounds of all kinds, each in an order of its own.
pub fn plan(seed: u64, failovers: usize) -> Vec<FailoverKind> {
    let mut random = Random::apart(seed, 0);
    let (mut plan, mut count) = (Vec::new(), 0);
    while count < failovers {
        let mut round = FailoverKind::ALL.to_vec();
        while !round.is_empty() && count < failovers {
            let at = random.between(0, round.len() as u64 - 1) as usize;
            let kind = round.swap_remove(at);
            count += kind.promotions();
            plan.push(kind);
        }
    }
    plan
}

pub(super) struct FailoverInjector<'a> {
    pub(super) servers: &'a SentinelServers,
    pub(super) journal: &'a Journal,
    pub(super) random: Random,
    pub(super) runtime: &'a Runtime,
    /// The newcomer.
    pub(super) probe: &'a Locks,
    /// The configuration epoch after the last promotion that is known.
    pub(super) epoch: Option<u64>,
}

impl FailoverInjector<'_> {
    /// Brings about all failovers of `plan` and calls `progress` with each.
    pub(super) fn direct(
        &mut self,
        plan: &[FailoverKind],
        mut progress: impl FnMut(usize, &str),
    ) -> Result<(), Box<dyn Error>> {
        let mut done = 0;
        for (number, kind) in plan.iter().enumerate() {
            progress(done, &format!("waiting, then: {kind}"));
            self.rest(number);
            self.settle()?;
            progress(done, kind.name());
            self.fail_over(*kind)?;
            done += kind.promotions();
        }
        progress(done, "clients continue without faults");
        self.rest(0);
        self.settle()
    }

    /// Waits until the group is whole. On a busy machine a master may be silent for too long, so
    /// that the Sentinels replace it: holders meet one more failover, at an unknown time.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        self.until("the group to settle", |group| group.is_settled())?;
        let epoch = self.servers.group.epoch();
        if self.epoch.is_some() && self.epoch != epoch {
            self.journal.note(now_us(), &Note::Unplanned);
        }
        self.epoch = epoch;
        Ok(())
    }

    fn rest(&mut self, number: usize) {
        std::thread::sleep(Duration::from_millis(self.random.between(3_000, 6_000)));
        if number % 10 == 9 {
            std::thread::sleep(LONG_CALM);
        }
    }

    fn fail_over(&mut self, kind: FailoverKind) -> Result<(), Box<dyn Error>> {
        let master = self.servers.master_host();
        let replicas = self.servers.replica_hosts(master);
        let network = &self.servers.network;
        // Replication is asynchronous: most of the time the replicas miss the last writes.
        if self.random.chance(70) {
            network.replies(master, &replicas, Fault::Hold);
            let missed_ms = self.random.between(200, 900);
            std::thread::sleep(Duration::from_millis(missed_ms));
        }
        let from_us = now_us();
        let fault = What::Fault {
            what: kind.name().to_owned(),
            timing: false,
        };
        self.journal.event(from_us, fault);
        self.fault(kind, master)?;
        self.promoted(master, kind)?;
        // What was held back is lost, like writes that an old master never sent.
        network.cut(master, &replicas);
        network.replies(master, &replicas, Fault::None);
        if kind == FailoverKind::Twice {
            let second = self.servers.master_host();
            self.request_failover()?;
            self.promoted(second, kind)?;
        }
        let promoted_us = now_us();
        self.epoch = self.servers.group.epoch();
        self.mend(kind, master);
        let healed_us = now_us();
        let granted_us = self.newcomer_granted();
        let note = Note::Failover {
            kind: kind.name().to_owned(),
            promotions: kind.promotions() as u64,
            from_us,
            promoted_us,
            healed_us,
            granted_us,
        };
        self.journal.note(now_us(), &note);
        Ok(())
    }

    fn fault(&mut self, kind: FailoverKind, master: usize) -> Result<(), Box<dyn Error>> {
        let server = &self.servers.group.servers()[master];
        match kind {
            FailoverKind::Kill => server.kill(),
            FailoverKind::Stop => server.pause(),
            FailoverKind::Planned | FailoverKind::Twice => self.request_failover()?,
            FailoverKind::OneWay => self.servers.silence(master),
            FailoverKind::Partition => {
                let sentinel = self.random.next() as usize % 3;
                self.servers.cut_off(master, sentinel);
            }
        }
        Ok(())
    }

    /// Ends the fault some time after the promotion.
    fn mend(&mut self, kind: FailoverKind, master: usize) {
        let server = &self.servers.group.servers()[master];
        let most_ms = match kind {
            FailoverKind::Kill | FailoverKind::Stop => 4_000,
            FailoverKind::OneWay | FailoverKind::Partition => 8_000,
            FailoverKind::Planned | FailoverKind::Twice => return,
        };
        std::thread::sleep(Duration::from_millis(self.random.between(0, most_ms)));
        match kind {
            FailoverKind::Kill => server.restart(),
            FailoverKind::Stop => server.resume(),
            _ => self.servers.network.heal(),
        }
    }

    /// A Sentinel refuses while it still reconfigures replicas after the last failover.
    fn request_failover(&self) -> Result<(), Box<dyn Error>> {
        const FAILOVER: [&str; 3] = ["SENTINEL", "FAILOVER", SentinelGroup::SERVICE];
        self.until("a Sentinel to begin a failover", |group| {
            let mut sentinels = group.sentinels().iter();
            sentinels.any(|sentinel| sentinel.try_command(&FAILOVER).is_ok())
        })
    }

    /// Waits until another server than the one on `host` is the master.
    fn promoted(&self, host: usize, kind: FailoverKind) -> Result<(), Box<dyn Error>> {
        let port = self.servers.group.servers()[host].port();
        let what = format!("a new master ({kind})");
        let planned = matches!(kind, FailoverKind::Planned | FailoverKind::Twice);
        let ordered_us = Cell::new(now_us());
        self.until(&what, |group| {
            // A Sentinel gives up if the replica takes too long, and then it needs another order.
            if planned && now_us() > ordered_us.get() + AGAIN.as_micros() as u64 {
                let _ = self.request_failover();
                ordered_us.set(now_us());
            }
            group.has_new_master(port)
        })
    }

    /// When a client that holds nothing is granted a lock; nothing if it is not.
    fn newcomer_granted(&self) -> Option<u64> {
        let lock = self.probe.mutex("newcomer").wait(LIMIT);
        let lock = lock.no_quorum_after(LIMIT);
        self.runtime.block_on(async {
            let guard = lock.lock().await.ok()?;
            let granted_us = now_us();
            let _ = guard.release().await;
            Some(granted_us)
        })
    }

    fn until(
        &self,
        what: &str,
        done: impl Fn(&SentinelGroup) -> bool,
    ) -> Result<(), Box<dyn Error>> {
        let until_us = now_us() + LIMIT.as_micros() as u64;
        while !done(&self.servers.group) {
            if now_us() > until_us {
                return Err(format!("waited {LIMIT:?} for {what}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_enough_failovers_of_all_kinds() {
        for seed in 1..20 {
            let plan = plan(seed, 36);
            let count: usize = plan.iter().map(|kind| kind.promotions()).sum();
            assert!((36..=37).contains(&count), "{count}");
            for kind in FailoverKind::ALL {
                assert!(
                    plan.iter().filter(|one| **one == kind).count() >= 4,
                    "{kind}"
                );
            }
        }
    }
}
