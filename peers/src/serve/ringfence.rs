//! ringfence, with and without its fence.

use std::time::Duration;

use ringfence::{AcquireError, Guard, Locks, PlainGuard};

use super::Client;

/// The default: every grant has a fence, and waiters are served in the order of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Fenced(Locks);

/// `plain_mutex`: what the other clients do.
#[derive(Debug, Clone)]
pub(crate) struct Plain(Locks);

impl Fenced {
    pub(crate) async fn connect(urls: &str) -> Result<Self, String> {
        connect(urls).await.map(Self)
    }
}

impl Plain {
    pub(crate) async fn connect(urls: &str) -> Result<Self, String> {
        connect(urls).await.map(Self)
    }
}

async fn connect(urls: &str) -> Result<Locks, String> {
    Locks::connect(urls)
        .await
        .map_err(|failure| failure.to_string())
}

impl Client for Fenced {
    type Held = Guard;

    async fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: bool,
    ) -> Result<Option<Guard>, String> {
        let lock = self.0.mutex(name).ttl(ttl);
        taken(if wait {
            lock.lock().await
        } else {
            lock.try_lock().await
        })
    }

    async fn release(&self, held: Guard) -> Result<(), String> {
        held.release().await.map_err(|failure| failure.to_string())
    }
}

impl Client for Plain {
    type Held = PlainGuard;

    async fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: bool,
    ) -> Result<Option<PlainGuard>, String> {
        let lock = self.0.plain_mutex(name).ttl(ttl);
        taken(if wait {
            lock.lock().await
        } else {
            lock.try_lock().await
        })
    }

    async fn release(&self, held: PlainGuard) -> Result<(), String> {
        held.release().await.map_err(|failure| failure.to_string())
    }
}

/// A lock that another client holds is a refusal; everything else is a failure.
fn taken<G>(result: Result<G, AcquireError>) -> Result<Option<G>, String> {
    match result {
        Ok(guard) => Ok(Some(guard)),
        Err(AcquireError::Held { .. }) => Ok(None),
        Err(failure) => Err(match failure.votes() {
            Some(votes) => format!("{failure}: {votes}"),
            None => failure.to_string(),
        }),
    }
}
