//! How many messages a server may push. Pushes arrive without a request, so a hostile server, or
//! another client that publishes on our channel, could keep a client busy with them.
//!
//! An honest server pushes wakes, and each wake has a cause and an effect. The cause is a release,
//! which wakes one waiter or two (and all readers at the front of the queue). The effect is that
//! the woken waiter calls the same server. So most wakes of a busy client are paid for by its own
//! calls. The rest is a burst: another process ends and frees thousands of names at once, for each
//! of which a caller of this client waits.
//!
//! The changes that a server reports for a list have an allowance of their own, which protects the
//! server: each costs it a few microseconds.

use std::time::Duration;

use crate::time::Timestamp;

use super::limits::Excess;

/// The interval of pushes that no call pays for: 4,096 in a second.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 4_096);
/// How many such pushes may arrive at once: more than a process has waiters, and about as many as a
/// server can publish in a second.
const BURST: u32 = 65_536;
/// How many pushes a call pays for. A release of ours may wake two of our waiters, and so may the
/// release of another client that let our acquire in.
const PER_CALL: u32 = 4;
/// A longer push counts as several: a wake takes about 100 bytes.
const BYTES: usize = 256;
/// The interval of reported changes (see `changes.rs`): 400 in a second cost a server less than half
/// a per cent of its time.
const CHANGE_INTERVAL: Duration = Duration::from_micros(2_500);
/// How many changes may be reported at once.
const CHANGE_BURST: u32 = 4_000;
/// For how long we do not subscribe after a flood. Waiters retry by themselves about once a second.
const UNSUBSCRIBED: Duration = Duration::from_secs(60);

/// See the module. One for each node, not for each connection: a server must not get a new
/// allowance by making us connect again.
#[derive(Debug)]
pub(crate) struct Allowance {
    interval: Duration,
    burst: u32,
    /// The time up to which the allowance is used, at one push per `interval`; in the future after a
    /// burst.
    used_until: Timestamp,
    blocked_until: Timestamp,
}

/// For wakes.
impl Default for Allowance {
    fn default() -> Self {
        Self::new(INTERVAL, BURST)
    }
}

impl Allowance {
    fn new(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            burst,
            used_until: Timestamp::ZERO,
            blocked_until: Timestamp::ZERO,
        }
    }

    /// For the changes that a server reports.
    pub(crate) fn of_changes() -> Self {
        Self::new(CHANGE_INTERVAL, CHANGE_BURST)
    }

    /// Counts a push of `bytes`, with `calls` sent since the push before.
    ///
    /// # Errors
    /// If the allowance is exceeded.
    pub(crate) fn charge(
        &mut self,
        bytes: usize,
        calls: u32,
        now: Timestamp,
    ) -> Result<(), Excess> {
        let paid = self.interval * calls.saturating_mul(PER_CALL);
        self.used_until = (self.used_until - paid).max(now);
        self.spend(bytes / BYTES + 1, now)
    }

    /// Counts as many pushes.
    ///
    /// # Errors
    /// If the allowance is exceeded.
    pub(crate) fn spend(&mut self, count: usize, now: Timestamp) -> Result<(), Excess> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let burst = now + self.interval * self.burst;
        self.used_until = self.used_until.max(now) + self.interval * count;
        if self.used_until <= burst {
            return Ok(());
        }
        // Do not carry the excess over: the connection is dropped for it.
        self.used_until = burst;
        self.blocked_until = now + UNSUBSCRIBED;
        Err(Excess::Pushes)
    }

    /// Whether there was a flood lately: then we do not subscribe.
    pub(crate) fn is_blocked(&self, now: Timestamp) -> bool {
        now < self.blocked_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a wake on the wire.
    const WAKE_BYTES: usize = 100;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// How many wakes are allowed at once.
    fn burst(allowance: &mut Allowance, now: Timestamp) -> u32 {
        let pushes = 0..10 * BURST;
        let allowed = pushes.take_while(|_| allowance.charge(WAKE_BYTES, 0, now).is_ok());
        allowed.count() as u32
    }

    #[test]
    fn a_burst_of_wakes_is_allowed_and_more_than_that_is_a_flood() {
        let mut allowance = Allowance::default();
        assert_eq!(burst(&mut allowance, at(1_000)), BURST);
        assert_eq!(burst(&mut allowance, at(1_000)), 0);
        // A quarter of a second later, the pushes of a quarter of a second are allowed again.
        assert_eq!(burst(&mut allowance, at(1_250)), 1_024);
        assert_eq!(burst(&mut allowance, at(60_000)), BURST);
    }

    #[test]
    fn ten_thousand_pushes_a_second_are_a_flood_within_twenty_seconds() {
        let mut allowance = Allowance::default();
        let flood = (0..1_000_000).find(|n| {
            let now = at(1_000) + Duration::from_micros(100 * n);
            allowance.charge(WAKE_BYTES, 0, now).is_err()
        });
        let seconds = flood.unwrap() / 10_000;
        assert!((5..20).contains(&seconds), "{seconds}");
    }

    /// The busiest client: 50,000 times a second it is woken twice and calls twice, for twenty
    /// seconds.
    #[test]
    fn wakes_that_are_followed_by_calls_are_never_a_flood() {
        let mut allowance = Allowance::default();
        for n in 0..50_000 * 20 {
            let now = at(1_000) + Duration::from_micros(20 * n);
            allowance.charge(WAKE_BYTES, 1, now).unwrap();
            allowance.charge(WAKE_BYTES, 1, now).unwrap();
        }
    }

    #[test]
    fn calls_of_long_ago_pay_for_nothing() {
        let mut allowance = Allowance::default();
        allowance.charge(WAKE_BYTES, u32::MAX, at(1_000)).unwrap();
        assert_eq!(burst(&mut allowance, at(1_000)), BURST - 1);
    }

    #[test]
    fn a_long_push_counts_as_many() {
        let mut allowance = Allowance::default();
        let megabytes = (0..100).take_while(|_| allowance.charge(1 << 20, 0, at(1_000)).is_ok());
        assert_eq!(megabytes.count(), 15);
        assert!(allowance.charge(usize::MAX, 0, at(90_000)).is_err());
    }

    #[test]
    fn the_renewals_of_a_thousand_locks_are_reported_and_those_of_ten_thousand_are_not() {
        for (locks, floods) in [(1_000, false), (10_000, true)] {
            let mut allowance = Allowance::of_changes();
            // Each lock every 3.3 seconds, for a minute.
            let changes = (0..locks * 18).map(|n| at(1_000 + n * 3_300 / locks));
            let mut spent = changes.map(|now| allowance.spend(1, now));
            assert_eq!(spent.any(|spent| spent.is_err()), floods, "{locks}");
        }
    }

    #[test]
    fn after_a_flood_we_are_deaf_for_a_minute() {
        let mut allowance = Allowance::default();
        assert!(!allowance.is_blocked(at(1_000)));
        burst(&mut allowance, at(1_000));
        assert!(allowance.is_blocked(at(1_000)) && allowance.is_blocked(at(60_999)));
        assert!(!allowance.is_blocked(at(61_000)));
    }
}
