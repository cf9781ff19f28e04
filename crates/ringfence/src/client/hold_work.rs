//! Work that is only done while a lock is held.

use super::error::HoldError;
use super::guard::Guard;
use super::lock::Lock;

impl Lock {
    /// Takes the lock, does `work`, and releases. The work is dropped at its next await when the
    /// lock is lost.
    ///
    /// `Ok` once the work is done, whatever the release finds: the result is never masked. What
    /// the release found is traced.
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
        let done = tokio::select! {
            biased;
            why = guard.lost() => Err(HoldError::Lost(why)),
            done = work(&guard) => Ok(done),
        };
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "released after the work was over");
        }
        done
    }
}
