//! When a command has to hear what, so that it is gone before its lock is. Pure: times in, times out.

use std::time::Duration;

use ringfence_core::time::Timestamp;

/// A time that does not come.
pub(super) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// What happens to the command when its lock is lost or about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// TERM first, KILL before the lock's deadline
    Term,
    /// KILL at once
    Kill,
    /// Say so and let the command go on
    Ignore,
}

/// The distances from a deadline that may still move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    on_lost: OnLost,
    kill_grace: Duration,
    stop_grace: Duration,
    ttl: Duration,
    margin: Duration,
}

impl Schedule {
    /// The schedule of a lock that lasts `ttl` per renewal.
    pub(crate) fn new(
        on_lost: OnLost,
        kill_grace: Duration,
        stop_grace: Duration,
        ttl: Duration,
    ) -> Self {
        // A killed process is not gone at once: the kernel has to run it one last time. The last
        // bound keeps a short lock from being all margin.
        let margin = (ttl / 50).max(Duration::from_millis(50)).min(ttl / 10);
        Self {
            on_lost,
            kill_grace,
            stop_grace,
            ttl,
            margin,
        }
    }

    /// The longest grace that leaves renewal, at a third of the TTL, time to fail and be retried.
    pub(crate) fn longest_grace(ttl: Duration) -> Duration {
        ttl / 2
    }

    /// What to do about a lost lock.
    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// When a deadline that has not moved means that the lock is being lost.
    pub(crate) fn give_up_at(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term => self.kill_by(deadline).min(deadline - self.kill_grace),
            OnLost::Kill => self.kill_by(deadline),
            OnLost::Ignore => deadline,
        }
    }

    /// When KILL has to go out for everything to be gone at the deadline.
    pub(crate) fn kill_by(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => deadline - self.margin,
            OnLost::Ignore => NEVER,
        }
    }

    /// When KILL follows a first signal of `now` that asks the command to stop, under a lock that
    /// is renewed meanwhile.
    pub(crate) fn kill_after_stop(&self, now: Timestamp) -> Timestamp {
        now + self.stop_grace
    }

    /// The same after a second such signal.
    pub(crate) fn kill_after_second_stop(&self, now: Timestamp) -> Timestamp {
        now + self.kill_grace.min(self.stop_grace)
    }

    /// When the watchdog kills everything if it hears of no later deadline. We come first, and the
    /// watchdog still has half of the margin.
    pub(crate) fn watchdog_kills_at(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => deadline - self.margin / 2,
            OnLost::Ignore => NEVER,
        }
    }

    /// When to look whether there is a later deadline than the one that the watchdog knows. The
    /// lock is renewed at a third of its TTL, so at half of it there usually is.
    pub(crate) fn look_again_at(&self, now: Timestamp, known: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => (known - self.ttl / 2).max(now + self.ttl / 10),
            OnLost::Ignore => NEVER,
        }
    }

    /// When KILL follows a TERM of `now` because the lock is lost.
    pub(crate) fn kill_after_term(&self, now: Timestamp, deadline: Timestamp) -> Timestamp {
        (now + self.kill_grace).min(self.kill_by(deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const GRACE: Duration = Duration::from_secs(3);
    const STOP: Duration = Duration::from_secs(25);

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn term_leaves_the_grace_and_kill_leaves_a_margin() {
        let schedule = Schedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(17_000));
        assert_eq!(schedule.kill_by(at(20_000)), at(19_800));
        assert_eq!(schedule.kill_after_term(at(17_000), at(20_000)), at(19_800));
    }

    #[test]
    fn on_proof_of_loss_the_grace_counts_from_now_but_never_past_the_deadline() {
        let schedule = Schedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.kill_after_term(at(11_000), at(20_000)), at(14_000));
        assert_eq!(schedule.kill_after_term(at(19_000), at(20_000)), at(19_800));
    }

    #[test]
    fn without_term_the_command_may_use_the_time_until_the_margin() {
        let schedule = Schedule::new(OnLost::Kill, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(19_800));
    }

    #[test]
    fn no_grace_means_kill_at_the_margin_not_at_the_deadline() {
        let schedule = Schedule::new(OnLost::Term, Duration::ZERO, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(19_800));
    }

    #[test]
    fn who_ignores_the_loss_is_not_killed_for_it() {
        let schedule = Schedule::new(OnLost::Ignore, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(20_000));
        assert_eq!(schedule.kill_after_term(at(30_000), at(20_000)), at(33_000));
    }

    #[test]
    fn a_short_lock_is_not_all_margin() {
        let schedule = Schedule::new(
            OnLost::Kill,
            Duration::ZERO,
            STOP,
            Duration::from_millis(100),
        );
        assert_eq!(schedule.kill_by(at(100)), at(90));
    }

    #[test]
    fn a_stop_has_its_own_grace_whatever_the_ttl() {
        let schedule = Schedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.kill_after_stop(at(1_000)), at(26_000));
        assert_eq!(schedule.kill_after_second_stop(at(2_000)), at(5_000));
        let short = Schedule::new(OnLost::Term, GRACE, Duration::from_secs(1), TTL);
        assert_eq!(short.kill_after_second_stop(at(2_000)), at(3_000));
    }

    #[test]
    fn the_watchdog_kills_after_us_and_before_the_deadline() {
        let schedule = Schedule::new(OnLost::Term, GRACE, STOP, TTL);
        let at_last = schedule.watchdog_kills_at(at(20_000));
        assert!(schedule.kill_by(at(20_000)) < at_last && at_last < at(20_000));
    }

    #[test]
    fn the_watchdog_hears_of_a_renewal_long_before_it_would_kill() {
        let schedule = Schedule::new(OnLost::Kill, Duration::ZERO, STOP, TTL);
        assert_eq!(schedule.look_again_at(at(10_000), at(20_000)), at(15_000));
        // And again, for as long as renewing fails.
        assert_eq!(schedule.look_again_at(at(15_000), at(20_000)), at(16_000));
    }
}
