//! The latch calls of a client: it arrives at the current latch, or waits until it is open.

use std::time::Duration;

use ringfence::LatchError;

use crate::history::What;

use super::client::{Worker, first_line};
use super::journal::now_us;
use super::wish::{Wish, WishKind};

/// A latch opens once, so there is a new one every so often. All processes of a machine agree on
/// the time.
const ROUND: Duration = Duration::from_secs(3);
/// For how many arrivals a latch waits.
const COUNT: u32 = 3;
/// How many different parties arrive, some of them several times.
const PARTIES: u64 = 5;
/// How long a call continues while no majority answers or may vote.
const PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) async fn meet(&mut self, op: u64, wish: &Wish) {
        let round = now_us() / ROUND.as_micros() as u64;
        let name = format!("meeting-{round}");
        let party = format!("party-{}", self.random.between(1, PARTIES));
        let party = (wish.kind == WishKind::Arrive).then_some(party);
        let turned = What::Turned {
            op,
            client: self.client,
            latch: name.clone(),
            count: u64::from(COUNT),
            party: party.clone(),
        };
        self.journal.event(now_us(), turned);
        let latch = self.locks.latch(&name, COUNT).ttl(self.habits.latch_ttl);
        let latch = latch.no_quorum_after(PATIENCE);
        let meeting = async {
            match party {
                Some(party) => {
                    let arrival = latch.party(&party).arrive().await?;
                    Ok((Some(arrival.arrived), arrival.is_open()))
                }
                None => match latch.wait_for(wish.wait.unwrap_or_default()).wait().await {
                    Ok(()) => Ok((None, true)),
                    Err(LatchError::Shut { arrived, .. }) => Ok((Some(arrived), false)),
                    Err(error) => Err(error),
                },
            }
        };
        let answer = match wish.dropped_after {
            Some(patience) => tokio::time::timeout(patience, meeting).await,
            None => Ok(meeting.await),
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
        let pause_ms = self.random.between(20, 150);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
