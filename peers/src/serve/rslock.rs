//! rslock, as its users run it.

use std::time::Duration;

use rslock::{Lock, LockError, LockManager};

use super::Client;

/// One manager that tries once, and one without a limit of tries; both with the library's own
/// pauses.
#[derive(Debug, Clone)]
pub(crate) struct Rslock {
    once: LockManager,
    patient: LockManager,
}

impl Rslock {
    pub(crate) fn connect(urls: &str) -> Self {
        let pause = Duration::from_millis(200);
        let manager = |attempts| {
            let mut manager = LockManager::new(urls.split(',').collect());
            manager.set_retry(attempts, pause);
            manager
        };
        Self {
            once: manager(1),
            patient: manager(u32::MAX),
        }
    }
}

impl Client for Rslock {
    type Held = Lock;

    async fn acquire(&self, name: &str, ttl: Duration, wait: bool) -> Result<Option<Lock>, String> {
        let manager = if wait { &self.patient } else { &self.once };
        match manager.lock(name.as_bytes(), ttl).await {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Unavailable) => Ok(None),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn release(&self, held: Lock) -> Result<(), String> {
        held.release().await;
        Ok(())
    }
}
