//! What is the same in all states: times, the group, tokens and ballots. Every decision of the
//! product is made at one and the same date, since a state has none.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::group::{Failover, Group};
use ringfence_core::message::{Ballot, Claim, Kind, Mode, Request, Standing};
use ringfence_core::name::Name;
use ringfence_core::node::{Facts, Tier};
use ringfence_core::protocol::{
    AcquireTerms, Acquisition, Attempt, Cluster, Confirmation, Drift, GrantId, HoldPolicy, Line,
    Transmit,
};
use ringfence_core::time::Timestamp;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};

use super::scope::{FailoverScope, Ticks, Weakness};
use super::world::{CLIENTS, NEWCOMER};

/// Longer than what the product adds to a quarantine.
pub(super) const TICK: Duration = Duration::from_secs(10);
/// What the product adds to every quarantine. A time that is this much shorter ends just before a
/// tick.
const SECOND: Duration = Duration::from_secs(1);
/// How much longer `D` is than so many ticks: with less, a request would have to arrive before the
/// last of them.
const BIT: Duration = Duration::from_millis(1);
/// The date of every decision, in ticks.
const DATE: u32 = 10_000;
/// The window of the ballots. It is so wide that no ballot is outside of it.
const WINDOW: Duration = Duration::from_secs(10 * 5_000);

/// The epoch of the session over which a request is sent. What is confirmed is looked up by the
/// epoch itself.
pub(super) const EPOCH: u64 = 1;

/// The time now.
pub(super) fn now() -> Timestamp {
    Timestamp::ZERO + TICK * DATE
}

/// The time so many ticks ago.
pub(super) fn ago(age: Ticks) -> Timestamp {
    now() - TICK * u32::from(age)
}

/// When something ends that lasts for so many more ticks: just before the last of them.
pub(super) fn end_of(left: Ticks) -> Timestamp {
    now() + TICK * u32::from(left) - SECOND
}

/// How many more ticks something lasts that ends at `end`.
pub(super) fn left_until(end: Timestamp) -> Ticks {
    let ticks = end.since(now()).as_nanos().div_ceil(TICK.as_nanos());
    Ticks::try_from(ticks).unwrap_or(Ticks::MAX)
}

/// What is the same in all states.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) scope: FailoverScope,
    pub(super) group: Group,
    pub(super) policy: Arc<HoldPolicy>,
    pub(super) ttl: Duration,
    pub(super) label: Arc<str>,
    pub(super) tokens: [Token; CLIENTS],
    pub(super) grants: [GrantId; CLIENTS],
    /// What the hold of each client sends to extend the lock, and to restore it.
    pub(super) extends: Vec<Request>,
    pub(super) restores: Vec<Request>,
    /// An attempt of the newcomer that began so many ticks ago.
    pub(super) attempts: Vec<(Acquisition, Attempt)>,
    drift: Drift,
}

impl Setting {
    pub(super) fn new(scope: FailoverScope) -> Self {
        let times = |ticks: Ticks| TICK * u32::from(ticks);
        let ttl = times(scope.ttl()) - SECOND;
        let group = Group {
            window: WINDOW,
            quarantine: times(scope.quarantine()) - SECOND,
            failover: Failover::Auto,
            stale_master: times(scope.stale_master()),
            reply_within: times(scope.reply_within) + BIT,
            ..Group::new(1)
        };
        let drift = Drift::new(0.0, Duration::ZERO).expect("no drift is a drift");
        let label: Arc<str> = Arc::from("");
        let name = Name::new("", "model").expect("a good name");
        let mode = Mode::Exclusive;
        let claims: Arc<[Claim]> = Arc::from([Claim { name, mode }]);
        let tokens: [Token; CLIENTS] =
            std::array::from_fn(|n| Token::from_entropy([n as u8 + 1; TOKEN_ENTROPY_BYTES]));
        let grants = std::array::from_fn(|client| GrantId {
            claims: Arc::clone(&claims),
            token: tokens[client].clone(),
            ballot: ballot(client),
            kind: Kind::Exclusive,
            ticket: None,
            slots: None,
            receipt_delay_ms: 0,
        });
        let mut setting = Self {
            scope,
            group,
            policy: Arc::new(HoldPolicy {
                ttl,
                lock_delay: Duration::ZERO,
                hold_at_least: Duration::ZERO,
                // A round waits for its reply for as long as that may be under way.
                call_timeout: times(scope.latest() + 1),
                drift,
                renew: false,
                max_hold: None,
                label: Arc::clone(&label),
            }),
            ttl,
            label,
            tokens,
            grants,
            extends: Vec::new(),
            restores: Vec::new(),
            attempts: Vec::new(),
            drift,
        };
        let attempts = (0..=scope.latest()).map(|age| setting.attempt(ago(age)));
        setting.attempts = attempts.collect();
        let (extend, restore) = setting.transmits();
        let (label, grants) = (&setting.label, &setting.grants);
        let of = |transmit: Transmit| grants.iter().map(move |id| transmit.request(id, label));
        let (extends, restores) = (of(extend).collect(), of(restore).collect());
        Self {
            extends,
            restores,
            ..setting
        }
    }

    /// What a client knows of the node, and of its Sentinels.
    pub(super) fn cluster(&self, confirmation: Option<Confirmation>) -> Cluster {
        let mut cluster = Cluster::new(&self.group, self.drift, &[true]);
        cluster.require_confirmation(0);
        if let Some(confirmation) = confirmation {
            cluster.confirm(Line::First, 0, confirmation);
        }
        cluster
    }

    /// An attempt of the newcomer that began at `t0`.
    fn attempt(&self, t0: Timestamp) -> (Acquisition, Attempt) {
        let terms = AcquireTerms {
            nodes: 1,
            ttl: self.ttl,
            drift: self.drift,
            min_validity: Duration::ZERO,
            call_timeout: self.policy.call_timeout,
            wait: None,
            attempts: None,
            no_quorum_after: TICK * 1000,
            kind: Kind::Exclusive,
        };
        let mut cluster = self.cluster(None);
        cluster.observe_facts(0, &self.facts(t0));
        let mut acquisition = Acquisition::new(terms, t0, 0);
        let token = self.tokens[NEWCOMER].clone();
        let attempt = acquisition.begin(&mut cluster, t0, token);
        (acquisition, attempt)
    }

    /// What a handshake shows that took no time.
    fn facts(&self, at: Timestamp) -> Facts {
        Facts {
            standing: Some(self.standing(self.scope.quarantine())),
            clock_us: at.as_micros(),
            sent: at,
            received: at,
            group: Some(self.group),
            run_id: String::new(),
            version: String::new(),
            tier: Tier::Quarantined,
        }
    }

    /// How a server stands whose birth is of this age.
    pub(super) fn standing(&self, born_age: Ticks) -> Standing {
        Standing {
            incarnation: 1,
            born_us: self.born_us(born_age),
            clock_us: now().as_micros(),
            server: 0,
            replicated: true,
            epoch: Some(EPOCH),
        }
    }

    /// The birth of this age; zero after the quarantine.
    pub(super) fn born_us(&self, age: Ticks) -> u64 {
        match age < self.scope.quarantine() {
            true => ago(age).as_micros(),
            false => 0,
        }
    }

    pub(super) fn is(&self, weakness: Weakness) -> bool {
        self.scope.is(weakness)
    }
}

/// The ballot of a client, within the window and below that of an attempt that is under way. Its
/// place among the ballots is all that matters of it.
pub(super) fn ballot(client: usize) -> Ballot {
    let ticks = 300 - 100 * client as u32;
    Ballot::new((now() - TICK * ticks).as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the product allows the TTL of `scope`.
    fn is_allowed(scope: FailoverScope) -> bool {
        let setting = Setting::new(scope);
        let mut cluster = setting.cluster(None);
        cluster.observe_facts(0, &setting.facts(now()));
        let most = cluster.longest_lease().expect("a failover is behind it");
        setting.ttl <= most
    }

    #[test]
    fn the_ttl_is_one_that_the_product_allows() {
        for ticks in 0..3 {
            let scope = FailoverScope::FAILOVER.sized(Some(ticks), None, None);
            assert!(is_allowed(scope.unwrap()));
        }
        let short = FailoverScope::FAILOVER.without(Weakness::ShortQuarantine);
        assert!(!is_allowed(short));
    }
}
