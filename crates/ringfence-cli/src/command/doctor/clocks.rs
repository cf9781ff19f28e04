//! Which nodes' clocks are close enough to each other for their votes to add up.

/// Which of the clocks accept the same ballot, if a client chooses the best ballot. Uses the
/// clients' rule, with a window that is a tenth smaller, because clocks drift until the next check.
pub(super) fn agreeing(clocks_us: &[i64], window_us: i64) -> Vec<bool> {
    let reach_us = window_us - window_us / 10;
    let accepts = |clock_us: i64, ballot_us: i64| {
        ballot_us > clock_us.saturating_sub(reach_us)
            && ballot_us <= clock_us.saturating_add(reach_us)
    };
    let median_us = median(clocks_us);
    let lowest = clocks_us
        .iter()
        .map(|clock_us| clock_us.saturating_sub(reach_us) + 1);
    let candidates = lowest.chain([median_us]);
    let best_us = candidates.max_by_key(|&ballot_us| {
        let accepting = clocks_us
            .iter()
            .filter(|&&clock_us| accepts(clock_us, ballot_us));
        (
            accepting.count(),
            -(ballot_us.saturating_sub(median_us)).saturating_abs(),
        )
    });
    let best_us = best_us.unwrap_or(median_us);
    let each = clocks_us.iter().map(|&clock_us| accepts(clock_us, best_us));
    each.collect()
}

/// The lower median; zero for an empty list.
pub(super) fn median(clocks_us: &[i64]) -> i64 {
    let mut sorted = clocks_us.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: i64 = 5_000_000;
    const S: i64 = 1_000_000;

    #[test]
    fn a_clock_that_is_an_hour_off_agrees_with_no_other() {
        let agreeing = |clocks_us: &[i64]| agreeing(clocks_us, WINDOW_US);
        assert_eq!(agreeing(&[0, 3600 * S, 5]), [true, false, true]);
        assert_eq!(agreeing(&[-3600 * S, 0, 5]), [false, true, true]);
        assert_eq!(agreeing(&[0, 3600 * S]), [true, false]);
        assert_eq!(agreeing(&[7]), [true]);
    }

    #[test]
    fn clocks_within_two_windows_of_each_other_agree() {
        assert_eq!(agreeing(&[0, 8 * S, 4 * S], WINDOW_US), [true; 3]);
        // No ballot suits all three, but two of them are enough for a majority.
        let two = agreeing(&[-6 * S, 0, 6 * S], WINDOW_US);
        assert_eq!(two.iter().filter(|agrees| **agrees).count(), 2, "{two:?}");
    }

    #[test]
    fn the_median_is_the_lower_one() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(median(&[4, 1]), 1);
        assert_eq!(median(&[]), 0);
    }
}
