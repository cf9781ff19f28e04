//! When a command gets which signal, so that it has ended before its lock ends.
//!
//! Pure: times in, times out. The supervisor sends the signals.

use std::time::Duration;

use ringfence_core::time::Timestamp;

/// A time that never comes.
pub(super) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// What happens to the command when its lock is lost or is about to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// TERM first, KILL before the lock's deadline
    Term,
    /// KILL at once
    Kill,
    /// Report it and let the command run on
    Ignore,
}

/// Times relative to a deadline. Renewals move the deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopSchedule {
    on_lost: OnLost,
    kill_grace: Duration,
    stop_grace: Duration,
    ttl: Duration,
    margin: Duration,
}

impl StopSchedule {
    /// The schedule for a lock that lasts `ttl` after each renewal.
    pub(crate) fn new(
        on_lost: OnLost,
        kill_grace: Duration,
        stop_grace: Duration,
        ttl: Duration,
    ) -> Self {
        // A killed process does not end at once: the kernel has to schedule it one last time. The
        // upper bound leaves most of a short TTL to the command.
        let margin = (ttl / 50).max(Duration::from_millis(50)).min(ttl / 10);
        Self {
            on_lost,
            kill_grace,
            stop_grace,
            ttl,
            margin,
        }
    }

    /// The longest grace that leaves time to retry a failed renewal. Renewal begins at a third of
    /// the TTL.
    pub(crate) fn longest_grace(ttl: Duration) -> Duration {
        ttl / 2
    }

    /// What to do about a lost lock.
    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// If the deadline has not moved by this time, the lock counts as lost.
    pub(crate) fn give_up_at(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term => self.kill_by(deadline).min(deadline - self.kill_grace),
            OnLost::Kill => self.kill_by(deadline),
            OnLost::Ignore => deadline,
        }
    }

    /// The latest time for KILL, so that all processes have ended at the deadline.
    pub(crate) fn kill_by(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => deadline - self.margin,
            OnLost::Ignore => NEVER,
        }
    }

    /// When KILL follows a first signal at `now` that asks the command to end. The lock is renewed
    /// meanwhile.
    pub(crate) fn kill_after_stop(&self, now: Timestamp) -> Timestamp {
        now + self.stop_grace
    }

    /// The same after a second such signal.
    pub(crate) fn kill_after_second_stop(&self, now: Timestamp) -> Timestamp {
        now + self.kill_grace.min(self.stop_grace)
    }

    /// When the watchdog kills all processes if it is told of no later deadline. This is after our
    /// own KILL, with half of the margin left.
    pub(crate) fn watchdog_kills_at(&self, deadline: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => deadline - self.margin / 2,
            OnLost::Ignore => NEVER,
        }
    }

    /// When to check for a later deadline than the one that the watchdog knows. The lock is renewed
    /// at a third of its TTL, so at half of it there usually is a later one.
    pub(crate) fn look_again_at(&self, now: Timestamp, known: Timestamp) -> Timestamp {
        match self.on_lost {
            OnLost::Term | OnLost::Kill => (known - self.ttl / 2).max(now + self.ttl / 10),
            OnLost::Ignore => NEVER,
        }
    }

    /// When KILL follows a TERM that was sent at `now` because the lock is lost.
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
        let schedule = StopSchedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(17_000));
        assert_eq!(schedule.kill_by(at(20_000)), at(19_800));
        assert_eq!(schedule.kill_after_term(at(17_000), at(20_000)), at(19_800));
    }

    #[test]
    fn on_proof_of_loss_the_grace_counts_from_now_but_never_past_the_deadline() {
        let schedule = StopSchedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.kill_after_term(at(11_000), at(20_000)), at(14_000));
        assert_eq!(schedule.kill_after_term(at(19_000), at(20_000)), at(19_800));
    }

    #[test]
    fn without_term_the_command_may_use_the_time_until_the_margin() {
        let schedule = StopSchedule::new(OnLost::Kill, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(19_800));
    }

    #[test]
    fn no_grace_means_kill_at_the_margin_not_at_the_deadline() {
        let schedule = StopSchedule::new(OnLost::Term, Duration::ZERO, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(19_800));
    }

    #[test]
    fn with_ignore_the_command_is_not_killed_after_a_loss() {
        let schedule = StopSchedule::new(OnLost::Ignore, GRACE, STOP, TTL);
        assert_eq!(schedule.give_up_at(at(20_000)), at(20_000));
        assert_eq!(schedule.kill_after_term(at(30_000), at(20_000)), at(33_000));
    }

    #[test]
    fn the_margin_of_a_short_lock_is_a_tenth_of_its_ttl() {
        let schedule = StopSchedule::new(
            OnLost::Kill,
            Duration::ZERO,
            STOP,
            Duration::from_millis(100),
        );
        assert_eq!(schedule.kill_by(at(100)), at(90));
    }

    #[test]
    fn the_stop_grace_does_not_depend_on_the_ttl() {
        let schedule = StopSchedule::new(OnLost::Term, GRACE, STOP, TTL);
        assert_eq!(schedule.kill_after_stop(at(1_000)), at(26_000));
        assert_eq!(schedule.kill_after_second_stop(at(2_000)), at(5_000));
        let short = StopSchedule::new(OnLost::Term, GRACE, Duration::from_secs(1), TTL);
        assert_eq!(short.kill_after_second_stop(at(2_000)), at(3_000));
    }

    #[test]
    fn the_watchdog_kills_after_us_and_before_the_deadline() {
        let schedule = StopSchedule::new(OnLost::Term, GRACE, STOP, TTL);
        let at_last = schedule.watchdog_kills_at(at(20_000));
        assert!(schedule.kill_by(at(20_000)) < at_last && at_last < at(20_000));
    }

    #[test]
    fn the_watchdog_is_told_of_a_renewal_long_before_it_would_kill() {
        let schedule = StopSchedule::new(OnLost::Kill, Duration::ZERO, STOP, TTL);
        assert_eq!(schedule.look_again_at(at(10_000), at(20_000)), at(15_000));
        // And repeatedly while renewal fails.
        assert_eq!(schedule.look_again_at(at(15_000), at(20_000)), at(16_000));
    }
}
