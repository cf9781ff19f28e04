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
use super::guard::{Guard, ReadGuard};
use super::kind::{Kind, OneWay, RwLock};
use super::lock::Lock;

/// Work that was done under a lock, and whether the lock was held until then. The methods of the
/// locks that end with `_to_end` return it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the lock may have been lost"]
pub struct WorkDone<T> {
    /// What the work returned.
    pub output: T,
    /// Why the lock was lost before the work was done: another client may have held it meanwhile.
    /// `None` if it was held until the end.
    pub lost: Option<Lost>,
}

impl<T> WorkDone<T> {
    /// The output, if the lock was held until the work was done.
    ///
    /// # Errors
    /// [`HoldError::Lost`] if it was not. The output is dropped.
    pub fn held(self) -> Result<T, HoldError> {
        match self.lost {
            None => Ok(self.output),
            Some(why) => Err(HoldError::Lost(why)),
        }
    }

    /// What a guard says right after the work, and its release. A failed release is traced: the
    /// lock was held for as long as the work needed it.
    pub(crate) fn new(
        output: T,
        held: Result<(), Lost>,
        released: Result<(), ReleaseError>,
    ) -> Self {
        let lost = held.err();
        if lost.is_none()
            && let Err(error) = released
        {
            tracing::warn!(target: "ringfence", %error, "released after the work was over");
        }
        Self { output, lost }
    }
}

/// Does `work` with `guard` for as long as it is not lost, and then releases it.
async fn while_held<K: Kind, T>(
    guard: Guard<K>,
    work: impl AsyncFnOnce(&Guard<K>) -> T,
) -> Result<WorkDone<T>, HoldError> {
    let done = tokio::select! {
        biased;
        why = guard.lost() => Err(HoldError::Lost(why)),
        done = under(guard.held_lock(), work(&guard)) => Ok(done),
    };
    let held = guard.check();
    let released = guard.release().await;
    done.map(|done| WorkDone::new(done, held, released))
}

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

impl<K: OneWay> Lock<K> {
    /// Takes the lock, does `work`, and releases. The work is dropped at its next await when the
    /// lock is lost.
    ///
    /// `Ok` only if the lock was held until the work was done, whatever the release finds after
    /// that. Work that awaits nothing cannot be stopped. If it goes on after the loss, this is
    /// [`HoldError::Lost`], too; [`hold_to_end`](Self::hold_to_end) returns the output all the same.
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
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    pub async fn hold<T>(&self, work: impl AsyncFnOnce(&Guard<K>) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work).await?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also of work that was done after the lock was
    /// lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let done = locks.mutex("job").hold_to_end(async |guard| guard.fence()).await?;
    /// match done.lost {
    ///     None => println!("done under fence {}", done.output),
    ///     Some(why) => println!("done under fence {}, perhaps not alone: {why}", done.output),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost and the work was stopped.
    pub async fn hold_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        while_held(self.taken().await?, work).await
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
        self.hold_read_to_end(work).await?.held()
    }

    /// As [`hold_read`](Self::hold_read), but returns the output also of work that was done after
    /// the share was lost. See [`Lock::hold_to_end`].
    ///
    /// # Errors
    /// If the share was not granted, or if it was lost and the work was stopped.
    pub async fn hold_read_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&ReadGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        while_held(self.read().await?, work).await
    }

    /// Takes the lock alone, does `work`, and releases. See [`Lock::hold`].
    pub async fn hold_write<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, HoldError> {
        self.hold_write_to_end(work).await?.held()
    }

    /// As [`hold_write`](Self::hold_write), but returns the output also of work that was done after
    /// the lock was lost. See [`Lock::hold_to_end`].
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost and the work was stopped.
    pub async fn hold_write_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        while_held(self.write().await?, work).await
    }
}
