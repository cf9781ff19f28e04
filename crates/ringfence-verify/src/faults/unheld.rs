//! The calls of a client that hold nothing: it arrives at latches and waits for them, breaks the
//! holds of others, and observes the election.

use std::sync::Arc;
use std::time::Duration;

use ringfence::observe::LeaderChange;
use tokio::sync::watch;

use crate::history::{History, What};
use crate::random::Random;

use super::api::{Api, LatchCall, op_of};
use super::call::{Call, CallKind, LEAD};
use super::client::{Worker, first_line};
use super::journal::{Journal, now_us};

/// A latch opens once, so there is a new one every so often. All processes of a machine agree on
/// the time.
const ROUND: Duration = Duration::from_secs(3);
/// For how many arrivals a latch waits.
const COUNT: u32 = 3;
/// How many different parties arrive, some of them several times.
const PARTIES: u64 = 5;
/// No call asks for a longer TTL, also to extend a lock.
const LONGEST_TTL: Duration = Duration::from_secs(2);
/// A TTL that every group of these runs allows. An observer does not use it, but it is checked.
pub(super) const ANY_TTL: Duration = Duration::from_secs(1);

impl Worker {
    /// One call of the current latch.
    pub(super) async fn turn(&mut self, op: u64, call: &Call) {
        let round = now_us() / ROUND.as_micros() as u64;
        let party = format!("party-{}", self.random.between(1, PARTIES));
        let latch = LatchCall {
            name: format!("latch-{round}"),
            count: COUNT,
            ttl: self.workload.latch_ttl,
            party: (call.kind == CallKind::Arrive).then_some(party),
            wait: call.wait.unwrap_or_default(),
        };
        let turned = What::Turned {
            op,
            client: self.client,
            latch: latch.name.clone(),
            count: u64::from(COUNT),
            party: latch.party.clone(),
        };
        self.journal.event(now_us(), turned);
        let turning = self.api.turn(latch);
        let answer = match call.dropped_after.filter(|_| !self.api.is_blocking()) {
            Some(patience) => tokio::time::timeout(patience, turning).await,
            None => Ok(turning.await),
        };
        let what = match answer {
            Ok(Ok((arrived, open))) => What::Found { op, arrived, open },
            Ok(Err(error)) => What::Refused {
                op,
                why: first_line(&error.to_string()),
            },
            // A dropped arrival may have been counted.
            Err(_) => What::Unknown { op },
        };
        self.journal.event(now_us(), what);
    }

    /// Breaks the hold of whoever has the lock, if a client has it.
    pub(super) async fn break_hold(&mut self, op: u64, call: &Call) {
        let Some(hold) = self.api.breakable(call).await else {
            return;
        };
        let breaks = What::Breaks {
            op,
            client: self.client,
            name: call.names[0].to_owned(),
            slot: hold.slot,
            up_to: hold.fence,
        };
        self.journal.event(now_us(), breaks);
        let what = match self.api.break_hold(call.names[0], hold).await {
            Ok(broken) => What::Broken {
                op,
                fence: broken.fence,
                until_us: now_us() + LONGEST_TTL.as_micros() as u64,
            },
            Err(error) => What::Refused {
                op,
                why: first_line(&error.to_string()),
            },
        };
        self.journal.event(now_us(), what);
    }
}

/// Observes the election, one observer after the other, and records what each reports.
pub(super) struct Observing {
    pub(super) api: Api,
    /// The number of the next observer.
    pub(super) next_op: u64,
    pub(super) random: Random,
    pub(super) journal: Arc<Journal>,
}

impl Observing {
    pub(super) async fn work(mut self, mut stop: watch::Receiver<bool>) {
        match self.api.clone() {
            Api::Async(locks) => {
                while !*stop.borrow() {
                    let op = self.next_op;
                    self.next_op += 1;
                    let span = Duration::from_millis(self.random.between(1_000, 12_000));
                    let election = locks.election(LEAD).ttl(ANY_TTL);
                    let mut observer = election.observe().expect("a valid election");
                    let observing = async {
                        while let Some(change) = observer.next().await {
                            self.report(op, &change);
                        }
                    };
                    tokio::select! {
                        _ = tokio::time::timeout(span, observing) => {}
                        _ = stop.changed() => {}
                    }
                }
            }
            // Its observer ends when the client is closed.
            Api::Blocking(locks) => {
                let observing = tokio::task::spawn_blocking(move || {
                    let election = locks.election(LEAD).ttl(ANY_TTL);
                    let mut observer = election.observe().expect("a valid election");
                    drop((election, locks));
                    while let Some(change) = observer.next() {
                        self.report(self.next_op, &change);
                    }
                });
                observing.await.expect("the observer does not panic");
            }
        }
    }

    fn report(&self, op: u64, change: &LeaderChange) {
        let name = LEAD.to_owned();
        let what = match change {
            LeaderChange::Elected(leader) => What::Told {
                op,
                name,
                // A leader that is none of our candidates was never seated.
                leader: op_of(&leader.label).unwrap_or(u64::MAX),
                term: leader.term,
            },
            _ => What::Vacant { op, name },
        };
        self.journal.event(now_us(), what);
    }
}

/// Adds [`What::Seated`] for every reported leader that can have been one. Real servers do not
/// record when a majority granted a call, and a candidate may not learn of its grant. But a leader
/// was a candidate before it was reported, its term is not above the fence that it was granted, and
/// no other candidate has the same term.
pub(super) fn add_seats(history: &mut History) {
    use std::collections::{HashMap, HashSet};
    let mut fences = HashMap::new();
    for event in &history.events {
        if let What::Granted { op, fence, .. } = &event.what {
            fences.insert(*op, fence.unwrap_or(u64::MAX));
        }
    }
    let mut candidates = HashSet::new();
    let mut leader_of_term: HashMap<u64, u64> = HashMap::new();
    let mut seated = Vec::new();
    for event in &history.events {
        match &event.what {
            What::Invoked { op, names, .. } if names.iter().any(|name| name == LEAD) => {
                candidates.insert(*op);
            }
            What::Told { leader, term, .. } => {
                let is_first = *leader_of_term.entry(*term).or_insert(*leader) == *leader;
                let granted = fences.get(leader).copied().unwrap_or(u64::MAX);
                if candidates.contains(leader) && is_first && *term <= granted {
                    let (op, ballot) = (*leader, *term);
                    seated.push((event.at_us, What::Seated { op, ballot }));
                }
            }
            _ => {}
        }
    }
    // Before everything else of the same time.
    let mut events = History::default();
    seated
        .into_iter()
        .for_each(|(at_us, what)| events.push(at_us, what));
    events.events.append(&mut history.events);
    events.events.sort_by_key(|event| event.at_us);
    *history = events;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant};
    use crate::invariants::terms;

    /// Op 1 is granted term 10 and op 2 leads without knowing it. An observer learns of `reports`.
    fn is_possible(reports: &[(u64, u64)]) -> bool {
        let mut history = History::default();
        history.invoke(0, 1, exclusive(LEAD));
        history.invoke(0, 2, exclusive(LEAD));
        history.push(5, grant(1, 10, 100));
        history.invoke(6, 4, exclusive("a"));
        for (at_us, &(leader, term)) in (7..).zip(reports) {
            let (op, name) = (9, LEAD.to_owned());
            let told = What::Told {
                op,
                name,
                leader,
                term,
            };
            history.push(at_us, told);
        }
        history.invoke(50, 3, exclusive(LEAD));
        add_seats(&mut history);
        terms::check(&history).is_ok()
    }

    #[test]
    fn only_candidates_with_terms_of_their_own_can_have_been_seated() {
        assert!(is_possible(&[(1, 10), (2, 20)]));
        assert!(is_possible(&[(1, 9), (1, 10)]), "an attempt before");
        assert!(!is_possible(&[(1, 11)]), "a term above its fence");
        assert!(!is_possible(&[(2, 20), (1, 10)]), "a term that falls");
        assert!(!is_possible(&[(1, 10), (2, 10)]), "one term, two leaders");
        assert!(!is_possible(&[(3, 10)]), "no candidate yet");
        assert!(!is_possible(&[(4, 10)]), "a candidate for another lock");
    }
}
