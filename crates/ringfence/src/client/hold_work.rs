//! Work that is only done while a lock is held.
//!
//! The lock cannot be released before its work has ended. So if the work waits for the same lock, it
//! waits in vain: the one wait of a task for itself that is certain.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use crate::message::Claim;
use crate::protocol::Lost;
use crate::runtime::ClientRuntime;
use crate::runtime::hold::HeldLock;

use super::error::{HoldError, ReleaseError};
use super::guard::Guard;
use super::lock::Lock;
use super::rw_lock::{ReadGuard, RwLock};

/// Does `$work` with `$guard` for as long as it is not lost, and then releases it, whatever kind of
/// guard it is.
macro_rules! while_held {
    ($guard:ident, $work:ident) => {{
        let done = tokio::select! {
            biased;
            why = $guard.lost() => Err(HoldError::Lost(why)),
            done = $crate::client::hold_work::under($guard.held_lock(), $work(&$guard)) => Ok(done),
        };
        let held = $guard.check();
        let released = $guard.release().await;
        if done.is_ok() {
            $crate::client::hold_work::trace_end(held, released);
        }
        done
    }};
}

pub(super) use while_held;

thread_local! {
    /// The locks under which this thread works now, the outermost first.
    static WORKS_UNDER: RefCell<Vec<Arc<HeldLock>>> = const { RefCell::new(Vec::new()) };
}

/// This thread works under a lock until this is dropped.
pub(crate) struct WorkUnder;

impl WorkUnder {
    pub(crate) fn begin(hold: &Arc<HeldLock>) -> Self {
        WORKS_UNDER.with_borrow_mut(|holds| holds.push(Arc::clone(hold)));
        Self
    }
}

impl Drop for WorkUnder {
    fn drop(&mut self) {
        // The hold is dropped after the list is free again: that may run other code.
        let ended = WORKS_UNDER.with_borrow_mut(Vec::pop);
        drop(ended);
    }
}

/// Does `work` under the lock of `hold`.
pub(super) async fn under<F: Future>(hold: &Arc<HeldLock>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _under = WorkUnder::begin(hold);
        work.as_mut().poll(cx)
    })
    .await
}

/// The lock of `runtime` under which this thread works and that keeps it from `claims`.
pub(super) fn works_under(runtime: &Arc<ClientRuntime>, claims: &[Claim]) -> Option<Arc<HeldLock>> {
    let found = |holds: &Vec<Arc<HeldLock>>| {
        let mut holds = holds.iter();
        holds.find(|hold| hold.excludes(runtime, claims)).cloned()
    };
    WORKS_UNDER.with_borrow(found)
}

/// Traces a loss or a failed release after work that is done. The caller gets the result all the
/// same.
pub(crate) fn trace_end(held: Result<(), Lost>, released: Result<(), ReleaseError>) {
    if let Err(why) = held {
        tracing::warn!(target: "ringfence", %why, "the lock was lost before the work was done: another client may have held it");
    } else if let Err(error) = released {
        tracing::warn!(target: "ringfence", %error, "released after the work was over");
    }
}

impl Lock {
    /// Takes the lock, does `work`, and releases. The work is dropped at its next await when the
    /// lock is lost.
    ///
    /// `Ok` once the work is done, whatever the release finds: the result is never masked. That is
    /// so also if the work did not await anything between the loss of the lock and its end; it may
    /// look at [`Guard::check`]. What the release found, and such a loss, is traced.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let fence = locks.mutex("job").hold(async |guard| guard.fence()).await?;
    /// # assert!(fence > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, HoldError> {
        let guard = self.lock().await?;
        while_held!(guard, work)
    }
}

impl RwLock {
    /// Takes a share, does `work`, and releases it. The work is dropped at its next await when
    /// the share is lost. See [`Lock::hold`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let config = locks.rw_lock("config");
    /// let fence = config.hold_read(async |guard| guard.fence()).await?;
    /// # assert!(fence > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold_read<T>(
        &self,
        work: impl AsyncFnOnce(&ReadGuard) -> T,
    ) -> Result<T, HoldError> {
        let guard = self.read().await?;
        while_held!(guard, work)
    }

    /// Takes the lock alone, does `work`, and releases. See [`Lock::hold`].
    pub async fn hold_write<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, HoldError> {
        let guard = self.write().await?;
        while_held!(guard, work)
    }
}
