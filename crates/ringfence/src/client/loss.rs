//! The signal that a lock is lost, for tasks and threads that do not have its guard.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use crate::environment::OwnerProcess;
use crate::protocol::Lost;
use crate::runtime::hold::HeldLock;

use super::held::{HeldFuture, until_lost};
use super::owner::Share;

/// Tells when a lock is lost. Made by [`Guard::loss`](crate::Guard::loss) and
/// [`Held::loss`](crate::Held::loss). Cheap to clone, and independent of the guard: give a clone to
/// every task and thread that works under the lock.
///
/// It says [`Lost::Released`] once the lock was released, its guard was dropped, or it was
/// downgraded: the work under it must end then, too. (If several guards of an
/// [`Owner`](crate::Owner) share the lock: once the last of them is gone.)
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// # async fn upload(_part: u32) {}
/// let guard = locks.mutex("orders:42").lock().await?;
/// let parts = (0..4).map(|part| {
///     let loss = guard.loss();
///     tokio::spawn(async move { loss.run(upload(part)).await }) // stopped if the lock is lost
/// });
/// for part in parts.collect::<Vec<_>>() {
///     part.await??;
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// With a `CancellationToken` of `tokio-util`:
///
/// ```
/// # #[derive(Clone)]
/// # struct CancellationToken;
/// # impl CancellationToken { fn cancel(&self) {} }
/// # fn spawn(guard: &ringfence::Guard, token: CancellationToken) {
/// let loss = guard.loss();
/// tokio::spawn(async move {
///     let why = loss.await;
///     eprintln!("{why}");
///     token.cancel();
/// });
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a signal does nothing unless it is asked or awaited"]
pub struct Loss {
    hold: Arc<HeldLock>,
    /// The shares of the owner's guards, if the guard was one of them and was downgraded.
    share: Option<Share>,
    process: OwnerProcess,
}

impl Loss {
    pub(super) fn new(hold: &Arc<HeldLock>, share: Option<Share>, process: OwnerProcess) -> Self {
        let hold = Arc::clone(hold);
        Self {
            hold,
            share,
            process,
        }
    }

    /// What is held now: the owner's guards may have become a share meanwhile.
    fn hold(&self) -> &Arc<HeldLock> {
        let shared = self.share.as_ref().and_then(Share::shared);
        shared.unwrap_or(&self.hold)
    }

    /// Whether the lock is lost, by the local clock.
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the lock is lost; `None` while it is held.
    pub fn reason(&self) -> Option<Lost> {
        self.check().err()
    }

    /// Checks on the local clock that the lock is still held. See
    /// [`Guard::check`](crate::Guard::check).
    ///
    /// # Errors
    /// Why the lock is lost.
    pub fn check(&self) -> Result<(), Lost> {
        if !self.process.is_ours() {
            return Err(Lost::ForkedProcess);
        }
        loop {
            let hold = self.hold();
            let held = hold.check();
            // It may have become a share meanwhile.
            if held.is_ok() || Arc::ptr_eq(hold, self.hold()) {
                return held;
            }
        }
    }

    /// Completes once the lock is lost: at its deadline, or at the first proof. Cancel-safe. The
    /// same as to await the signal itself.
    pub async fn lost(&self) -> Lost {
        let waiting = async {
            loop {
                let hold = self.hold();
                let why = hold.lost().await;
                // It may have become a share meanwhile.
                if Arc::ptr_eq(hold, self.hold()) {
                    return why;
                }
            }
        };
        self.process.call(waiting, || Lost::ForkedProcess).await
    }

    /// Runs `work` and drops it when the lock is lost. See [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    /// Why the lock is lost. The work was stopped at its latest await.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        until_lost(self.lost(), work).await
    }
}

impl IntoFuture for Loss {
    type Output = Lost;
    type IntoFuture = HeldFuture<'static, Lost>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.lost().await })
    }
}

impl Drop for Loss {
    /// A forked child keeps what it has: to drop it may lock a mutex.
    fn drop(&mut self) {
        if !self.process.is_ours() {
            std::mem::forget((Arc::clone(&self.hold), self.share.take()));
        }
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loss").field(&self.reason()).finish()
    }
}
