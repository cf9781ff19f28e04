//! The runtime in which a client was made. When it ends, so do the client's background tasks: nothing
//! is renewed, no timer fires, and no connection to a server is served. Calls from another runtime
//! must not grant anything then, nor wait for ever.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::time::Timestamp;

use super::{Driver, wait_for};

/// Goes with the keeper's task, and tells its client when the runtime drops that task.
pub(crate) struct RuntimeWatch(Weak<Driver>);

impl RuntimeWatch {
    pub(crate) fn of(driver: &Arc<Driver>) -> Self {
        Self(Arc::downgrade(driver))
    }
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.runtime_gone.store(true, Ordering::SeqCst);
            driver.closing.notify_waiters();
            driver.withdrawn.notify_waiters();
        }
    }
}

impl Driver {
    /// Whether the runtime of this client has ended.
    pub(crate) fn is_runtime_gone(&self) -> bool {
        self.runtime_gone.load(Ordering::SeqCst)
    }

    /// Completes at `at` if the runtime of this client has ended, never otherwise: for callers that
    /// rely on the keeper to tell them when time has passed.
    pub(crate) async fn outlives_runtime(&self, at: Timestamp) {
        wait_for(&self.closing, || self.is_runtime_gone()).await;
        self.clock.sleep_until(at).await;
    }
}
