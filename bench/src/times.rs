//! How long locks take.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;

/// How long each of `count` uncontended locks with their releases took.
pub(crate) async fn uncontended(locks: &Locks, count: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let lock = locks.mutex(format!("bench:{number}"));
        let begun = Clock::System.now();
        let guard = lock.lock().await.expect("a lock");
        guard.release().await.expect("a release");
        times.push(Clock::System.now().since(begun));
    }
    times
}

pub(crate) fn quantile(times: &mut [Duration], q: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * q) as usize]
}
