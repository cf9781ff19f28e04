//! What the Sentinels say of the server of a link. A link sends a call only under a fresh
//! confirmation of its master, and moves when the Sentinels name another one.
//!
//! Exclusion does not depend on this: `Cluster` counts no vote without a confirmation. But a grant
//! that does not count could keep a holder from its lock that is carried through a failover and back
//! to the same server (`model/failover/` of `ringfence-verify`).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::group::Group;
use crate::message::Op;
use crate::node::Trouble;
use crate::protocol::MasterAddress;
use crate::time::Timestamp;

use super::sentinel::{Sentinels, SessionStanding};
use super::session::Session;

/// How long calls wait for the answers of the Sentinels. Then they are refused at once until the
/// Sentinels have answered.
const PATIENCE: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Confirming {
    sentinels: Arc<Sentinels>,
    news: watch::Receiver<u64>,
    gate: Gate,
    /// Whether the session has joined the group. If not, it takes no calls.
    joined: bool,
    /// The master of the last session that had joined.
    master: Option<MasterAddress>,
}

/// Whether calls may be sent.
enum Gate {
    Open,
    /// The Sentinels were asked; calls wait until this time.
    Waiting(Timestamp),
    /// The Sentinels have confirmed nothing in time.
    Closed(Trouble),
}

impl Gate {
    /// Takes account of what the Sentinels say about the session at `now`. Afterwards no call waits
    /// for a time that is over: the link would do nothing but look at the clock.
    fn update(
        &mut self,
        standing: &SessionStanding,
        now: Timestamp,
        trouble: impl FnOnce() -> Trouble,
    ) {
        match standing {
            SessionStanding::Fresh => *self = Self::Open,
            SessionStanding::Stale => {
                if matches!(self, Self::Waiting(until) if *until <= now) {
                    *self = Self::Closed(trouble());
                }
            }
            // The session ends, and takes no further calls.
            SessionStanding::OtherEpoch(_) | SessionStanding::OtherMaster(_) => *self = Self::Open,
        }
    }
}

impl Confirming {
    pub(super) fn new(sentinels: Arc<Sentinels>) -> Self {
        Self {
            news: sentinels.news(),
            sentinels,
            gate: Gate::Open,
            joined: false,
            master: None,
        }
    }

    /// The link of `node` takes calls over `session`. Tells of a failover since the last session.
    pub(super) fn begin(&mut self, session: &Session, node: &str, group: Option<Group>) {
        self.gate = Gate::Open;
        let membership = session.membership.as_ref().ok();
        self.joined = membership.is_some();
        let epoch = membership.map(|membership| membership.standing.epoch);
        let master = session.connection.master.clone();
        self.sentinels.set_session(master.clone().zip(epoch));
        let Some(master) = master.filter(|_| self.joined) else {
            return;
        };
        let former = self.master.replace(master.clone());
        let Some(former) = former.filter(|former| !former.is_same(&master)) else {
            return;
        };
        tracing::info!(target: "ringfence", %node, "failover: the Sentinels name {master} as the master, before it was {former}");
        let group = group.unwrap_or(Group::new(1));
        let quarantine = group.quarantine;
        match group.nodes > 1 || group.failover.quarantines(true) {
            true => {
                tracing::info!(target: "ringfence", %node, "failover: holders keep their locks, {master} grants no others for {quarantine:?}");
            }
            false => {
                tracing::info!(target: "ringfence", %node, "failover: {master} grants at once, because of failover={}", group.failover);
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.gate, Gate::Waiting(_))
    }

    /// Whether calls must wait for the Sentinels, which are asked then.
    pub(super) fn must_wait(&mut self, now: Timestamp) -> bool {
        if !self.joined {
            return false;
        }
        let fresh = self.sentinels.standing(now) == SessionStanding::Fresh;
        self.sentinels.want((!fresh).then_some(now));
        match &self.gate {
            Gate::Closed(_) if !fresh => {}
            _ if fresh => self.gate = Gate::Open,
            _ => self.gate = Gate::Waiting(now + PATIENCE),
        }
        self.is_waiting()
    }

    /// Why a call with `op` must not be sent, if so. Releases need no confirmation.
    pub(super) fn refusal(&self, op: &Op) -> Option<&Trouble> {
        match &self.gate {
            Gate::Closed(trouble) if op.votes() => Some(trouble),
            _ => None,
        }
    }

    /// Waits for an answer of a Sentinel, or until calls have waited long enough.
    pub(super) async fn news(&mut self) {
        let news = &mut self.news;
        let changed = async {
            if news.changed().await.is_err() {
                pending::<()>().await;
            }
        };
        match self.gate {
            Gate::Waiting(until) => tokio::select! {
                () = changed => {}
                () = self.sentinels.sleep_until(until) => {}
            },
            Gate::Open | Gate::Closed(_) => changed.await,
        }
    }

    /// A Sentinel has answered, or calls have waited long enough. Returns whether the handshake of
    /// `node` must be repeated, for a session that is not about to end anyway.
    pub(super) fn handle_news(&mut self, node: &str, now: Timestamp, ending: bool) -> bool {
        let standing = self.sentinels.standing(now);
        let trouble = || self.sentinels.trouble(now);
        self.gate.update(&standing, now, trouble);
        match standing {
            SessionStanding::Fresh | SessionStanding::Stale => false,
            _ if ending => false,
            SessionStanding::OtherEpoch(confirmed) => {
                let epoch = confirmed.epoch;
                tracing::debug!(target: "ringfence", %node, epoch, "has another configuration epoch; repeating the handshake");
                true
            }
            SessionStanding::OtherMaster(confirmed) => {
                let (master, epoch) = (&confirmed.address, confirmed.epoch);
                tracing::debug!(target: "ringfence", %node, %master, epoch, "another server is the master; connecting to it");
                true
            }
        }
    }

    /// Waits until the Sentinels name another master. Meanwhile they are asked: while the master
    /// cannot be reached, they will name another one.
    pub(super) async fn other_master(&self) {
        let before = self.sentinels.confirmed_address();
        let mut news = self.sentinels.news();
        self.sentinels.want(None);
        while self.sentinels.confirmed_address() == before {
            if news.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::TroubleKind;
    use crate::protocol::ConfirmedMaster;

    /// A master that hangs leaves a call in flight, so its session lasts on after the Sentinels have
    /// named another one.
    #[test]
    fn no_gate_waits_for_a_time_that_is_over() {
        let now = Timestamp::ZERO + Duration::from_secs(9);
        let confirmed = || ConfirmedMaster {
            address: MasterAddress {
                host: "h".into(),
                port: 1,
                ips: [].into(),
            },
            epoch: 7,
            asked_at: now,
            sentinels: 3,
            reported: 3,
        };
        for standing in [
            SessionStanding::Fresh,
            SessionStanding::Stale,
            SessionStanding::OtherEpoch(confirmed()),
            SessionStanding::OtherMaster(confirmed()),
        ] {
            let mut gate = Gate::Waiting(now);
            gate.update(&standing, now, || {
                Trouble::new(TroubleKind::Unconfirmed, "no")
            });
            assert!(!matches!(gate, Gate::Waiting(_)), "{standing:?}");
        }
    }
}
