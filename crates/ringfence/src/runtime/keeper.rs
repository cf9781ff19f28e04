//! The one background task of a client: executes what is due (`schedule.rs`, `renewals.rs`). Ends
//! when the client is dropped.

use std::sync::{Arc, Weak};

use crate::environment::Timer;
use crate::protocol::Line;

use super::ClientRuntime;
use super::closing::RuntimeWatch;
use super::schedule::{Due, Schedule};

/// After so many entries the keeper yields to other tasks of the thread.
const YIELD_AFTER: usize = 64;

/// Executes what is due for `driver` until it is dropped.
pub(crate) async fn keep(
    runtime: Weak<ClientRuntime>,
    schedule: Arc<Schedule>,
    _watch: RuntimeWatch,
) {
    let Some(clock) = runtime
        .upgrade()
        .map(|runtime| runtime.sender.clock.clone())
    else {
        return;
    };
    let mut timer = Timer::new(clock.clone());
    if let Some(kernel_timer) = timer.kernel_timer() {
        schedule.wakes_by(kernel_timer);
    }
    let mut done: usize = 0;
    while runtime.strong_count() > 0 {
        let now = clock.now();
        while let Some(due) = schedule.pop(now) {
            execute(&due, &runtime);
            // Thousands of entries may be due at once, and other tasks use this thread too.
            done += 1;
            if done.is_multiple_of(YIELD_AFTER) {
                drop(due);
                tokio::task::yield_now().await;
            }
        }
        while let Some(hold) = runtime
            .upgrade()
            .and_then(|runtime| runtime.renewals.next(now))
        {
            hold.renew(Line::First);
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

fn execute(due: &Due, runtime: &Weak<ClientRuntime>) {
    match due {
        Due::HeldLock(hold) => hold.time_out(),
        Due::Release(releasing) => releasing.time_out(),
        Due::SurplusSlots(surplus) => surplus.time_out(),
        Due::Sleeper(sleeper) => sleeper.wake_by_ref(),
        Due::Refresh => {
            if let Some(runtime) = runtime.upgrade() {
                runtime.room.refresh(&runtime);
            }
        }
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        if !self.process.is_ours() {
            // Nodes have sockets and threads, and the schedule has the keeper's timer.
            std::mem::forget(std::mem::take(&mut self.sender.nodes));
            std::mem::forget(std::mem::take(&mut self.sender.second));
            std::mem::forget((Arc::clone(&self.schedule), Arc::clone(&self.room)));
            return;
        }
        self.schedule.nudge();
        self.schedule.leave_second();
    }
}
