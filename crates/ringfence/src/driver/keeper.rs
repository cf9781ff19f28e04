//! The one background task of a client: does what is due. Ends when the client is gone.

use std::sync::{Arc, Weak};

use super::Driver;
use super::schedule::{Due, Schedule};
use super::timer::Timer;

/// Looks after `driver` until it is gone.
pub(crate) async fn keep(driver: Weak<Driver>, schedule: Arc<Schedule>) {
    let Some(clock) = driver.upgrade().map(|driver| driver.clock.clone()) else {
        return;
    };
    let mut timer = Timer::new(clock.clone());
    while driver.strong_count() > 0 {
        let now = clock.now();
        while let Some(due) = schedule.pop(now) {
            attend(&due);
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

fn attend(due: &Due) {
    match due {
        Due::Hold(hold) => {
            if let Some(renewal) = hold.overdue() {
                renewal.time_out();
            }
            hold.due();
        }
        Due::Withdrawal(withdrawal) => withdrawal.time_out(),
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.schedule.nudge();
    }
}
