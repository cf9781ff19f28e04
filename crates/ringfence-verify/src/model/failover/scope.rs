//! How large the world of the failovers is, and under which rules it is searched.

use super::world::EPOCHS;

/// A number of ticks: an age, or what is left of a time.
pub(super) type Ticks = u8;

/// How large the world is, and under which rules it is searched.
#[derive(Debug, Clone, Copy)]
pub struct FailoverScope {
    /// What it is called on the command line.
    pub name: &'static str,
    /// How many times the Sentinels promote the other server.
    pub promotions: u8,
    /// How many times a server is restarted.
    pub restarts: u8,
    /// `D` in whole ticks. It is a little longer, so that a request that is sent in one tick may
    /// arrive in the last of them.
    pub reply_within: Ticks,
    /// An acquire is sent also if its reply cannot count.
    pub sends_unconfirmed: bool,
    /// The condition that is left out, if one is.
    pub weakness: Option<Weakness>,
}

/// One condition of the rules F1 to F5 that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weakness {
    /// F1: the word of one Sentinel is enough.
    OneSentinel,
    /// F1: extends count without the word of the Sentinels.
    OnlyAcquiresConfirmed,
    /// F1: the Sentinels of a majority name one server, but under different epochs.
    EpochsOfSentinelsDiffer,
    /// F1: the word of the Sentinels counts at any age.
    OldWord,
    /// F1: a grant counts that is read later than `D`.
    LateReply,
    /// F2: no epoch is part of an incarnation.
    NoEpoch,
    /// F3: no replication id is part of an incarnation.
    NoReplicationId,
    /// F4: no quarantine follows a birth.
    NoQuarantine,
    /// F4: the quarantine is a tick shorter than TTL + X.
    ShortQuarantine,
    /// F5: an extend counts in every quarantine.
    CarriedAtOnce,
    /// F5: an extend counts a tick too early by the validity that is left.
    CarriedWithLess,
    /// F5: a node executes an acquire at any time.
    LateAcquire,
    /// F1 and F5: neither the node nor the client minds how late an acquire is.
    LateAcquireAndReply,
    /// F5: the only node grants in its quarantine.
    GrantsInQuarantine,
}

impl FailoverScope {
    /// A promotion, and the way back.
    pub const FAILOVER: Self = Self {
        name: "failover",
        promotions: 2,
        restarts: 0,
        reply_within: 0,
        sends_unconfirmed: false,
        weakness: None,
    };

    /// A promotion and a restart.
    pub const RESTART: Self = Self {
        name: "failover-restart",
        promotions: 1,
        restarts: 1,
        ..Self::FAILOVER
    };

    /// All of them.
    pub const ALL: [Self; 2] = [Self::FAILOVER, Self::RESTART];

    /// The most promotions: there is an epoch more.
    const PROMOTIONS_MAX: u8 = EPOCHS as u8 - 1;
    /// The most ticks of `D`, and the most restarts.
    const MOST: u8 = 4;

    /// The same in another size; what is not given stays.
    ///
    /// # Errors
    /// If it cannot be searched; says why.
    pub fn sized(
        self,
        ticks: Option<u8>,
        promotions: Option<u8>,
        restarts: Option<u8>,
    ) -> Result<Self, String> {
        let within = |what: &str, number: Option<u8>, most: u8| match number {
            Some(number) if number > most => Err(format!("there may be up to {most} {what}")),
            _ => Ok(number),
        };
        let promotions = within("promotions", promotions, Self::PROMOTIONS_MAX)?;
        Ok(Self {
            promotions: promotions.unwrap_or(self.promotions),
            restarts: within("crashes", restarts, Self::MOST)?.unwrap_or(self.restarts),
            reply_within: within("ticks", ticks, Self::MOST)?.unwrap_or(self.reply_within),
            ..self
        })
    }

    /// The same with one promotion.
    #[must_use]
    pub const fn once(self) -> Self {
        Self {
            promotions: 1,
            ..self
        }
    }

    /// The same without one condition.
    #[must_use]
    pub const fn without(self, weakness: Weakness) -> Self {
        Self {
            weakness: Some(weakness),
            ..self
        }
    }

    pub(super) fn is(&self, weakness: Weakness) -> bool {
        self.weakness == Some(weakness)
    }

    /// `X`.
    pub(super) fn stale_master(&self) -> Ticks {
        1
    }

    /// The shortest TTL with which a holder can renew a tick after it was granted the lock, and be
    /// carried through.
    pub(super) fn ttl(&self) -> Ticks {
        self.stale_master() + self.reply_within + 2
    }

    /// The shortest quarantine that the TTL allows.
    pub(super) fn quarantine(&self) -> Ticks {
        let least = self.ttl() + self.stale_master();
        least - u8::from(self.is(Weakness::ShortQuarantine))
    }

    /// How late a request and its reply may be together. Later ones are lost.
    pub(super) fn latest(&self) -> Ticks {
        self.reply_within + 1
    }

    /// How old a word of the Sentinels can be, and still matter.
    pub(super) fn oldest_word(&self) -> Ticks {
        self.stale_master() + self.latest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_searched_and_the_rest_stays() {
        let scope = FailoverScope::FAILOVER;
        let larger = scope.sized(Some(1), None, Some(2)).unwrap();
        assert_eq!((larger.reply_within, larger.restarts), (1, 2));
        assert_eq!(larger.promotions, scope.promotions);
        assert_eq!((larger.ttl(), larger.quarantine()), (4, 5));
        let longer = scope.sized(None, Some(3), None).unwrap();
        assert_eq!((longer.promotions, longer.reply_within), (3, 0));
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        let scope = FailoverScope::FAILOVER;
        assert!(scope.sized(Some(5), None, None).is_err());
        assert!(scope.sized(None, Some(4), None).is_err());
        assert!(scope.sized(None, None, Some(5)).is_err());
    }
}
