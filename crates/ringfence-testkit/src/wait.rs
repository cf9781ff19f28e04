//! Waits until a condition holds, with a time limit and a clear message if it does not.

use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// Blocks until `condition` holds.
///
/// # Panics
/// If it does not hold within `within`; the message says `what` was waited for.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let patience = Patience::new(within);
    while !condition() {
        assert!(!patience.is_over(), "waited {within:?} for {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until `condition` holds, without blocking the tokio runtime. A check is never interrupted,
/// so a check that may hang needs its own time limit.
///
/// # Panics
/// If it does not hold within `within`; the message says `what` was waited for, and where.
#[track_caller]
pub fn wait_until_async(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let patience = Patience::new(within);
        while !condition().await {
            assert!(
                !patience.is_over(),
                "waited {within:?} for {what}, at {caller}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The time limit of a wait.
pub(crate) struct Patience {
    begun: Instant,
    within: Duration,
}

impl Patience {
    // The product's clock is under test, so the kit uses its own.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn new(within: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, within }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let mut looks = 0;
        wait_until("three looks", Duration::from_secs(5), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "for the moon to fall")]
    fn a_timeout_names_what_was_waited_for() {
        wait_until("the moon to fall", Duration::from_millis(5), || false);
    }

    #[tokio::test]
    async fn async_waiting_ends_when_the_condition_holds() {
        let mut looks = 0;
        wait_until_async("three looks", Duration::from_secs(5), async || {
            looks += 1;
            looks == 3
        })
        .await;
        assert_eq!(looks, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "for the moon to fall, at crates/ringfence-testkit/src/wait.rs")]
    async fn an_async_timeout_names_what_was_waited_for_and_where() {
        wait_until_async("the moon to fall", Duration::from_millis(5), async || false).await;
    }
}
