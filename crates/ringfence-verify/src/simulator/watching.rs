//! Calls that hold nothing: observers of elections, and latches.

use std::time::Duration;

use ringfence::LatchError;

use ringfence::observe::LeaderChange;

use crate::history::What;

use super::life::Life;
use super::plan::Step;

/// Longer than any schedule, because a latch that expired proves nothing.
const LATCH_TTL: Duration = Duration::from_secs(600);
/// How long a latch call without a limit waits: not all parties may arrive.
const AWHILE: Duration = Duration::from_secs(20);

impl Life {
    /// Observes for as long as the step would hold a lock.
    pub(super) async fn observe(&self, step: &Step, name: &str) {
        let observer = self.locks.election(name).ttl(step.ttl).observe();
        let mut observer = observer.expect("the settings are valid");
        let end = self.clock.now() + step.hold;
        loop {
            let change = tokio::select! {
                biased;
                change = observer.next() => change,
                () = self.clock.sleep_until(end) => None,
            };
            let (op, name) = (step.op, name.to_owned());
            match change {
                None => return,
                Some(LeaderChange::Elected(leader)) => {
                    let by = leader.label.strip_prefix("op");
                    let by = by.and_then(|by| by.parse().ok());
                    self.note(What::Told {
                        op,
                        name,
                        leader: by.expect("every label names a call"),
                        term: leader.term,
                    });
                }
                Some(_) => self.note(What::Vacant { op, name }),
            }
        }
    }

    pub(super) async fn arrive(&self, step: &Step, name: &str, count: u32, party: &str) {
        let op = step.op;
        self.turn(op, name, count, Some(party));
        let latch = self.locks.latch(name, count).ttl(LATCH_TTL).party(party);
        if let Some(arrival) = self.ask(step, latch.arrive()).await {
            self.note(What::Found {
                op,
                arrived: Some(arrival.arrived),
                open: arrival.is_open(),
            });
        }
    }

    pub(super) async fn wait_at(&self, step: &Step, name: &str, count: u32) {
        let op = step.op;
        self.turn(op, name, count, None);
        let latch = self.locks.latch(name, count).ttl(LATCH_TTL);
        let latch = latch.wait(step.wait.unwrap_or(AWHILE));
        let waited = async {
            match latch.opened().await {
                Ok(()) => Ok((None, true)),
                Err(LatchError::Shut { arrived, .. }) => Ok((Some(arrived), false)),
                Err(error) => Err(error),
            }
        };
        if let Some((arrived, open)) = self.ask(step, waited).await {
            self.note(What::Found { op, arrived, open });
        }
    }

    fn turn(&self, op: u64, latch: &str, count: u32, party: Option<&str>) {
        self.note(What::Turned {
            op,
            client: self.client,
            latch: latch.to_owned(),
            count: u64::from(count),
            party: party.map(str::to_owned),
        });
    }
}
