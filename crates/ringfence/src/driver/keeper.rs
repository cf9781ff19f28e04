//! The one background task of a client: executes what is due (`schedule.rs`, `renewals.rs`). Ends
//! when the client is dropped.

use std::sync::{Arc, Weak};

use super::Driver;
use super::closing::RuntimeWatch;
use super::schedule::{Due, Schedule};
use super::timer::Timer;

/// After so many entries the keeper yields to other tasks of the thread.
const YIELD_AFTER: usize = 64;

/// Executes what is due for `driver` until it is dropped.
pub(crate) async fn keep(driver: Weak<Driver>, schedule: Arc<Schedule>, _watch: RuntimeWatch) {
    let Some(clock) = driver.upgrade().map(|driver| driver.sender.clock.clone()) else {
        return;
    };
    let mut timer = Timer::new(clock.clone());
    let mut done: usize = 0;
    while driver.strong_count() > 0 {
        let now = clock.now();
        while let Some(due) = schedule.pop(now) {
            execute(&due, &driver);
            // Thousands of entries may be due at once, and other tasks use this thread too.
            done += 1;
            if done.is_multiple_of(YIELD_AFTER) {
                drop(due);
                tokio::task::yield_now().await;
            }
        }
        while let Some(hold) = driver.upgrade().and_then(|driver| driver.renewals.next()) {
            hold.renew();
            done += 1;
            if done.is_multiple_of(YIELD_AFTER) {
                drop(hold);
                tokio::task::yield_now().await;
            }
        }
        match schedule.next() {
            Some(at) => tokio::select! {
                () = timer.sleep_until(at) => {}
                () = schedule.changed() => {}
            },
            None => schedule.changed().await,
        }
    }
}

fn execute(due: &Due, driver: &Weak<Driver>) {
    match due {
        Due::Hold(hold) => hold.time_out(),
        Due::Release(releasing) => releasing.time_out(),
        Due::Strays(surplus) => surplus.time_out(),
        Due::Sleeper(sleeper) => sleeper.wake_by_ref(),
        Due::Refresh => {
            if let Some(driver) = driver.upgrade() {
                driver.room.refresh(&driver);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.schedule.nudge();
    }
}
