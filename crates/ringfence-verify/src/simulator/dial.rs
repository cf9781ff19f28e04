//! A clock of the simulated world: what it shows at each moment of true time. It may run too fast
//! or too slow, freeze, or be set.

/// The rate of a correct clock, in parts per million of true time.
pub(super) const TRUE_RATE: u64 = 1_000_000;

/// A clock. All times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dial {
    /// When, in true time, its rate last changed or it was set, and what it showed then.
    since: u64,
    showed: u64,
    /// How fast it runs, in parts per million of true time.
    rate: u64,
    stopped: bool,
}

impl Dial {
    pub(super) fn new(shows: u64, rate: u64) -> Self {
        Self {
            since: 0,
            showed: shows,
            rate,
            stopped: false,
        }
    }

    /// What it shows at `now`.
    pub(super) fn at(&self, now: u64) -> u64 {
        if self.stopped {
            return self.showed;
        }
        let gone = u128::from(now.saturating_sub(self.since));
        self.showed + (gone * u128::from(self.rate) / u128::from(TRUE_RATE)) as u64
    }

    /// When, in true time, it will show `shown` if nothing changes.
    pub(super) fn when(&self, shown: u64) -> u64 {
        let left = u128::from(shown.saturating_sub(self.showed));
        let rate = u128::from(self.rate);
        self.since + (left * u128::from(TRUE_RATE)).div_ceil(rate) as u64
    }

    /// Sets it forward or back.
    pub(super) fn step(&mut self, now: u64, by: i64) {
        self.showed = self.at(now).saturating_add_signed(by);
        self.since = now;
    }

    /// Freezes it, or lets it continue from the time that it shows.
    pub(super) fn stop(&mut self, now: u64, stopped: bool) {
        if self.stopped == stopped {
            return;
        }
        self.showed = self.at(now);
        self.since = now;
        self.stopped = stopped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_shows_more_and_reaches_a_time_sooner() {
        let fast = Dial::new(1_000, 1_250_000);
        assert_eq!(fast.at(400), 1_500);
        assert_eq!(fast.when(1_500), 400);
    }

    #[test]
    fn a_clock_continues_from_where_it_was_set_or_frozen() {
        let mut dial = Dial::new(0, TRUE_RATE);
        dial.step(100, -40);
        assert_eq!(dial.at(110), 70);
        dial.stop(110, true);
        assert_eq!(dial.at(500), 70);
        dial.stop(500, false);
        assert_eq!((dial.at(510), dial.when(80)), (80, 510));
    }
}
