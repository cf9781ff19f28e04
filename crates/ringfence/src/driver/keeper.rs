//! The one background task of a client: does what is due. Ends when the client is gone.

use std::sync::{Arc, Weak};

use super::Driver;
use super::closing::RuntimeWatch;
use super::schedule::{Due, Schedule};
use super::timer::Timer;

/// How much is done before others on the same thread get their turn.
const TURN: usize = 64;

/// Looks after `driver` until it is gone.
pub(crate) async fn keep(driver: Weak<Driver>, schedule: Arc<Schedule>, _watch: RuntimeWatch) {
    let Some(clock) = driver.upgrade().map(|driver| driver.sender.clock.clone()) else {
        return;
    };
    let mut timer = Timer::new(clock.clone());
    let mut attended: usize = 0;
    while driver.strong_count() > 0 {
        let now = clock.now();
        while let Some(due) = schedule.pop(now) {
            attend(&due, &driver);
            // Thousands may be due at once, and the thread is not ours alone.
            attended += 1;
            if attended.is_multiple_of(TURN) {
                drop(due);
                tokio::task::yield_now().await;
            }
        }
        while let Some(hold) = driver.upgrade().and_then(|driver| driver.renewals.next()) {
            hold.renew();
            attended += 1;
            if attended.is_multiple_of(TURN) {
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

fn attend(due: &Due, driver: &Weak<Driver>) {
    match due {
        Due::Hold(hold) => hold.time_out(),
        Due::Release(releasing) => releasing.time_out(),
        Due::Strays(strays) => strays.time_out(),
        Due::Sleeper(sleeper) => sleeper.wake_by_ref(),
        Due::Line => {
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
