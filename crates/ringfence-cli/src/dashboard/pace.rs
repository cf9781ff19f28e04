//! How often the nodes are searched for locks, and how often a lock is read: as often as one per cent
//! of a server's time allows, and not more often than a person can see. Pure.
//!
//! A search costs a server about a fifth of what it costs to read all locks that it finds. So new
//! locks are noticed sooner than changes of old ones.

use std::time::Duration;

/// The shortest time between two searches, and between two readings of a lock.
const SHORTEST: Duration = Duration::from_millis(250);
/// The longest time between two searches.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);
/// What a search costs a server for each lock, times 250.
const SEARCH_FOR_EACH: Duration = Duration::from_millis(1);
/// What the reading of a lock costs a server, times 250.
const READ_FOR_EACH: Duration = Duration::from_millis(5);

/// The time from the beginning of a round that found `locks` to the beginning of the next one. Twice
/// as long if the nodes tell of new locks, which costs them about as much as that saves.
pub(super) fn search_interval(locks: usize, told_of_new: bool) -> Duration {
    let times = if told_of_new { 2 } else { 1 };
    let interval = SEARCH_FOR_EACH.saturating_mul(count(locks).saturating_mul(times));
    interval.clamp(SHORTEST, LONGEST_SEARCH)
}

/// The time after which a lock is read again, if there are `locks` of them.
pub(super) fn read_interval(locks: usize) -> Duration {
    READ_FOR_EACH.saturating_mul(count(locks)).max(SHORTEST)
}

/// How long a lock may stay unread while a round of the search goes on, if there are `locks` of them.
pub(super) fn longest_unread(locks: usize) -> Duration {
    let interval = read_interval(locks).saturating_mul(2);
    interval.max(LONGEST_SEARCH)
}

/// The pause after a lock was read directly.
pub(super) fn pause_of_a_read() -> Duration {
    READ_FOR_EACH
}

fn count(locks: usize) -> u32 {
    u32::try_from(locks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_locks_are_looked_at_often_and_many_less_often() {
        let ms = Duration::from_millis;
        for (locks, search, search_if_told, read) in [
            (0, ms(250), ms(250), ms(250)),
            (50, ms(250), ms(250), ms(250)),
            (400, ms(400), ms(800), ms(2_000)),
            (1_000, ms(1_000), ms(2_000), ms(5_000)),
            (20_000, ms(2_000), ms(2_000), ms(100_000)),
        ] {
            assert_eq!(search_interval(locks, false), search);
            assert_eq!(search_interval(locks, true), search_if_told);
            assert_eq!(read_interval(locks), read);
        }
    }
}
