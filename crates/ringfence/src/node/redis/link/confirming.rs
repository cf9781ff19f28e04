//! A link to a service behind Sentinels sends a call only under a fresh confirmation of its master,
//! and moves when the Sentinels name another one.
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
use crate::node::{CallError, Trouble};
use crate::protocol::MasterAddress;
use crate::time::Timestamp;

use super::{Link, SessionEnd};
use crate::node::redis::sentinel::{Sentinels, SessionStanding};
use crate::node::redis::session::Session;

/// How long calls wait for the answers of the Sentinels. Then they are refused at once until the
/// Sentinels have answered.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a link knows of the Sentinels; nothing for a server without Sentinels.
pub(super) struct Confirming {
    sentinels: Option<Arc<Sentinels>>,
    news: Option<watch::Receiver<u64>>,
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
    pub(super) fn new(sentinels: Option<Arc<Sentinels>>) -> Self {
        Self {
            news: sentinels.as_ref().map(|sentinels| sentinels.news()),
            sentinels,
            gate: Gate::Open,
            joined: false,
            master: None,
        }
    }

    /// The link takes calls over `session`. Returns the former master, if this is another one.
    fn begin(&mut self, session: &Session) -> Option<MasterAddress> {
        self.gate = Gate::Open;
        self.joined = session.membership.is_ok();
        if let Some(sentinels) = &self.sentinels {
            let epoch = session.membership.as_ref().ok();
            let epoch = epoch.map(|membership| membership.standing.epoch);
            sentinels.set_session(session.connection.master.clone().zip(epoch));
        }
        let master = session.connection.master.clone().filter(|_| self.joined)?;
        let former = self.master.replace(master.clone());
        former.filter(|former| !former.is_same(&master))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.gate, Gate::Waiting(_))
    }

    /// Why a call with `op` must not be sent, if so. Releases need no confirmation.
    pub(super) fn refusal(&self, op: &Op) -> Option<&Trouble> {
        match &self.gate {
            Gate::Closed(trouble) if needs_confirmation(op) => Some(trouble),
            _ => None,
        }
    }

    /// Waits for an answer of a Sentinel, or until calls have waited long enough.
    pub(super) async fn news(&mut self) {
        let (Some(news), Some(sentinels)) = (&mut self.news, &self.sentinels) else {
            return pending().await;
        };
        let changed = async {
            if news.changed().await.is_err() {
                pending::<()>().await;
            }
        };
        match self.gate {
            Gate::Waiting(until) => tokio::select! {
                () = changed => {}
                () = sentinels.sleep_until(until) => {}
            },
            Gate::Open | Gate::Closed(_) => changed.await,
        }
    }
}

impl Link {
    /// The link takes calls over `session`. Tells of a failover since the last session.
    pub(super) fn begin_confirming(&mut self, session: &Session) {
        let former = self.confirming.begin(session);
        let (Some(former), Some(master)) = (former, &session.connection.master) else {
            return;
        };
        let node = &self.maker.handshake.reporter.node;
        tracing::info!(target: "ringfence", %node, "failover: the Sentinels name {master} as the master, before it was {former}");
        let group = self.queue.group.unwrap_or(Group::new(1));
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

    /// Whether calls must wait for the Sentinels, which are asked then.
    pub(super) fn must_wait(&mut self) -> bool {
        let now = self.clock().now();
        let Some(sentinels) = &self.confirming.sentinels else {
            return false;
        };
        if !self.confirming.joined {
            return false;
        }
        let fresh = sentinels.standing(now) == SessionStanding::Fresh;
        sentinels.want((!fresh).then_some(now));
        match &self.confirming.gate {
            Gate::Closed(_) if !fresh => false,
            _ if fresh => {
                self.confirming.gate = Gate::Open;
                false
            }
            _ => {
                self.confirming.gate = Gate::Waiting(now + PATIENCE);
                true
            }
        }
    }

    /// A Sentinel has answered, or calls have waited long enough.
    pub(super) fn handle_news(&mut self, pending_end: &mut Option<SessionEnd>) {
        let now = self.clock().now();
        let Some(sentinels) = &self.confirming.sentinels else {
            return;
        };
        let node = &self.maker.handshake.reporter.node;
        let standing = sentinels.standing(now);
        let trouble = || sentinels.trouble(now);
        self.confirming.gate.update(&standing, now, trouble);
        match standing {
            SessionStanding::Fresh | SessionStanding::Stale => {}
            // The session is about to end anyway.
            _ if pending_end.is_some() => {}
            SessionStanding::OtherEpoch(confirmed) => {
                let epoch = confirmed.epoch;
                tracing::debug!(target: "ringfence", %node, epoch, "has another configuration epoch; repeating the handshake");
                *pending_end = Some(SessionEnd::Newborn);
            }
            SessionStanding::OtherMaster(confirmed) => {
                let (master, epoch) = (&confirmed.address, confirmed.epoch);
                tracing::debug!(target: "ringfence", %node, %master, epoch, "another server is the master; connecting to it");
                *pending_end = Some(SessionEnd::Newborn);
            }
        }
    }

    /// Answers all work with `failure` for the time `rest`, or until the Sentinels name another
    /// master. Returns false if the node was dropped.
    pub(super) async fn rest_during(&mut self, rest: Duration, failure: &CallError) -> bool {
        let Some(sentinels) = self.confirming.sentinels.clone() else {
            return self.queue.refuse_during(rest, failure).await;
        };
        let before = sentinels.confirmed_address();
        let mut news = sentinels.news();
        let moved = async {
            while sentinels.confirmed_address() == before {
                if news.changed().await.is_err() {
                    pending::<()>().await;
                }
            }
        };
        // While the master cannot be reached, the Sentinels will name another one.
        sentinels.want(None);
        tokio::select! {
            open = self.queue.refuse_during(rest, failure) => open,
            () = moved => true,
        }
    }
}

/// Whether a reply to `op` counts as a vote.
fn needs_confirmation(op: &Op) -> bool {
    !matches!(
        op,
        Op::Release { .. } | Op::ReleaseSlot { .. } | Op::PlainRelease | Op::Inspect | Op::List(_)
    )
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
