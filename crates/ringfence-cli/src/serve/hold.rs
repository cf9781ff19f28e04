//! `POST /v1/hold`: a lock that is held for as long as its request is open.
//!
//! A task owns the lock and writes JSON lines to the client. **Only the client ends a hold early**:
//! it closes the connection, or sends `DELETE`. Whenever the service itself ends a stream, the lock
//! is not released: its client may be inside the validity that it was told. Then renewal stops, and
//! the lease runs out.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use ringfence::admin::LockState;
use ringfence::{AcquireError, Held, Locks, ReleaseError};
use rustix::rand::GetRandomFlags;
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::order::CheckedOrder;
use super::peer::Peer;
use super::problem::Problem;
use super::{Phase, Service};
use crate::command::take::Taken;
use crate::row::millis;

/// A lock that is not granted within this time begins a stream with `waiting`. Before, a failure is
/// the status of the answer.
const SILENT: Duration = Duration::from_millis(200);
/// How often a client that waits is told what it waits for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A renewal is noticed after a tenth of the TTL, within this range.
const LOOK_OFTEN: Duration = Duration::from_millis(20);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How many lines are kept for a client that does not read. The socket holds many more.
const LINES_MAX: usize = 64;

type Taking = Pin<Box<dyn Future<Output = Result<Taken, AcquireError>> + Send>>;

/// Answers with the stream of a hold.
pub(super) async fn open(
    service: Arc<Service>,
    order: CheckedOrder,
    peer: Peer,
) -> Result<Response, Problem> {
    let (order, locks) = (Arc::new(order), service.locks());
    let mut taking: Taking = {
        let (order, locks) = (Arc::clone(&order), locks.clone());
        Box::pin(async move { order.take(&locks, true).await })
    };
    let mut phase = service.phase.subscribe();
    let taken = tokio::select! {
        taken = &mut taking => Some(taken?),
        () = tokio::time::sleep(SILENT) => None,
        () = Phase::stops(&mut phase) => return Err(stopping()),
    };
    let (lines, written) = mpsc::channel(LINES_MAX);
    let hold = HoldStream {
        service,
        order,
        locks,
        peer,
        lines,
        phase,
    };
    tokio::spawn(async move {
        match taken {
            Some(taken) => hold.hold(taken).await,
            None => hold.wait(taking).await,
        }
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(Lines(written))).into_response())
}

pub(super) fn stopping() -> Problem {
    Problem::unavailable("the service is stopping and takes no new locks")
}

/// The lines that the client reads.
struct Lines(mpsc::Receiver<Bytes>);

impl Stream for Lines {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

/// One request to hold a lock.
struct HoldStream {
    service: Arc<Service>,
    order: Arc<CheckedOrder>,
    locks: Locks,
    peer: Peer,
    /// Closed once the client has closed its connection.
    lines: mpsc::Sender<Bytes>,
    phase: watch::Receiver<Phase>,
}

/// The client does not read what it is told.
struct TooSlow;

impl HoldStream {
    /// Waits for the lock, and says what for. If the client goes, the attempt is undone.
    async fn wait(mut self, mut taking: Taking) {
        let mut said = Value::Null;
        let mut pause = Duration::ZERO;
        let taken = loop {
            tokio::select! {
                biased;
                () = self.lines.closed() => return,
                taken = &mut taking => break taken,
                () = Phase::stops(&mut self.phase) => {
                    let _ = self.say("refused", stopping().fields());
                    return;
                }
                obstacle = obstacle(&self.locks, &self.order, pause) => {
                    pause = LOOK_EVERY;
                    if obstacle != said && self.say("waiting", obstacle.clone()).is_err() {
                        return;
                    }
                    said = obstacle;
                }
            }
        };
        match taken {
            Ok(taken) => self.hold(taken).await,
            Err(error) => {
                let _ = self.say("refused", Problem::from(error).fields());
            }
        }
    }

    /// Holds the lock until the client goes, orders its release, or loses it.
    async fn hold(mut self, taken: Taken) {
        if self.lines.is_closed() {
            // It never heard of the lock.
            let _ = taken.release().await;
            return;
        }
        let held = HeldForClient(Some(taken));
        let (orders, mut releases) = mpsc::channel(1);
        let entry = self.service.holds.insert(&self.peer, orders);
        let pause = (self.order.ttl() / 10).clamp(LOOK_OFTEN, LOOK_SELDOM);
        let mut deadline = held.lock().exact_deadline();
        let mut said = self.say("held", self.held_fields(&held, &entry.id));
        while said.is_ok() {
            tokio::select! {
                biased;
                why = held.lock().lost() => {
                    let _ = self.say("lost", json!({"why": why.to_string()}));
                    return;
                }
                () = self.lines.closed() => {
                    let _ = held.release().await;
                    return;
                }
                Some(answer) = releases.recv() => {
                    let released = held.release().await;
                    let _ = match &released {
                        Ok(()) => self.say("released", json!({})),
                        Err(error) => self.say("lost", json!({"why": error.to_string()})),
                    };
                    let _ = answer.send(released);
                    return;
                }
                Ok(()) = self.phase.changed() => {
                    let phase = *self.phase.borrow_and_update();
                    if phase == Phase::Ended {
                        let why = "the service has ended; the lock is no longer renewed";
                        let _ = self.say("lost", json!({"why": why}));
                        return;
                    }
                    said = self.say("stopping", self.times(&held));
                }
                () = tokio::time::sleep(pause) => {
                    let renewed = held.lock().exact_deadline();
                    if renewed > deadline {
                        deadline = renewed;
                        said = self.say("renewed", self.times(&held));
                    }
                }
            }
        }
        // `held` ends here without a release: the client does not read.
    }

    fn held_fields(&self, held: &HeldForClient, id: &str) -> Value {
        let mut fields = self.times(held);
        let lock = held.lock();
        fields["id"] = id.into();
        fields["name"] = lock.name().into();
        fields["fence"] = lock.fence().into();
        fields["token_id"] = held.token_id().into();
        fields["slot"] = held.slot().into();
        fields["durability"] = lock.durability().to_string().into();
        fields
    }

    /// Until when the client may rely on the lock.
    fn times(&self, held: &HeldForClient) -> Value {
        let deadline = held.lock().exact_deadline();
        let mut fields = json!({"remaining_ms": millis(held.lock().remaining())});
        if self.peer.shares_boot_clock {
            fields["deadline_boot_ms"] = (deadline.as_nanos() / 1_000_000).into();
        }
        fields
    }

    /// Queues a line for the client. A line for a client that has gone is dropped.
    fn say(&self, event: &str, mut fields: Value) -> Result<(), TooSlow> {
        fields["event"] = event.into();
        match self.lines.try_send(format!("{fields}\n").into()) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(TooSlow),
        }
    }
}

/// A lock that its client relies on. Dropped, it is left to its lease.
struct HeldForClient(Option<Taken>);

impl HeldForClient {
    fn taken(&self) -> &Taken {
        self.0.as_ref().expect("it is there until it is released")
    }

    fn lock(&self) -> &dyn Held {
        self.taken().held()
    }

    fn slot(&self) -> Option<u32> {
        self.taken().slot()
    }

    fn token_id(&self) -> String {
        self.taken().token_id()
    }

    async fn release(mut self) -> Result<(), ReleaseError> {
        match self.0.take() {
            Some(taken) => taken.release().await,
            None => Ok(()),
        }
    }
}

impl Drop for HeldForClient {
    fn drop(&mut self) {
        if let Some(taken) = self.0.take() {
            taken.leave();
        }
    }
}

/// What the client waits for, after `pause`.
async fn obstacle(locks: &Locks, order: &CheckedOrder, pause: Duration) -> Value {
    tokio::time::sleep(pause).await;
    if let Some(permits) = order.permits() {
        return match locks.semaphore(&order.names()[0], permits).inspect().await {
            Ok(seen) => {
                let position = seen.queue.iter().position(|waiter| waiter.own);
                waiting(position, seen.waiting, None)
            }
            Err(error) => json!({"error": error.to_string()}),
        };
    }
    let mut told = Value::Null;
    for name in order.names() {
        let seen = match locks.inspect(name).await {
            Ok(seen) => seen,
            Err(error) => return json!({"error": error.to_string()}),
        };
        let is_held = seen.state == LockState::Held;
        if is_held || told.is_null() {
            let position = seen.queue.iter().position(|waiter| waiter.own);
            told = waiting(position, seen.waiting, seen.label.as_deref());
            told["name"] = name.as_str().into();
        }
        if is_held {
            break;
        }
    }
    told
}

fn waiting(position: Option<usize>, count: u64, holder: Option<&str>) -> Value {
    json!({
        "position": position.map(|ahead| ahead + 1),
        "waiting": count,
        "holder": holder,
    })
}

/// The holds of all clients, by their ids. An id is a secret: with it, a client can release the lock.
#[derive(Default)]
pub(super) struct Holds {
    controls: Mutex<HashMap<String, HoldControl>>,
    ended: Notify,
}

type ReleaseOrder = oneshot::Sender<Result<(), ReleaseError>>;

struct HoldControl {
    peer: Peer,
    orders: mpsc::Sender<ReleaseOrder>,
}

/// An entry that ends with its hold.
struct HoldEntry<'a> {
    id: String,
    holds: &'a Holds,
}

impl Holds {
    fn insert(&self, peer: &Peer, orders: mpsc::Sender<ReleaseOrder>) -> HoldEntry<'_> {
        let id = random_id();
        let control = HoldControl {
            peer: peer.clone(),
            orders,
        };
        self.by_id().insert(id.clone(), control);
        HoldEntry { id, holds: self }
    }

    /// How many locks are held.
    pub(super) fn count(&self) -> usize {
        self.by_id().len()
    }

    /// Waits until no lock is held.
    pub(super) async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Releases a lock for `peer`, which must be the same user as the one that holds it.
    pub(super) async fn release(&self, id: &str, peer: &Peer) -> Result<(), Problem> {
        let orders = match self.by_id().get(id) {
            Some(control) if control.peer.is_same_user(peer) => control.orders.clone(),
            _ => return Err(no_such_hold()),
        };
        let (answer, released) = oneshot::channel();
        orders.send(answer).await.map_err(|_| no_such_hold())?;
        match released.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ReleaseError::Unconfirmed)) => {
                let why = "no majority of the nodes confirmed the release; it goes on";
                Err(Problem::unavailable(why))
            }
            Ok(Err(error)) => Err(Problem::lost(error.to_string())),
            Err(_) => Err(no_such_hold()),
        }
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, HoldControl>> {
        let controls = self.controls.lock();
        controls.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HoldEntry<'_> {
    fn drop(&mut self) {
        self.holds.by_id().remove(&self.id);
        self.holds.ended.notify_waiters();
    }
}

fn no_such_hold() -> Problem {
    Problem::not_found("there is no such hold: it has ended, or it is another user's")
}

/// 128 random bits of the operating system.
fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // Blocks only before the generator of a freshly booted machine is ready.
        filled += rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .expect("the kernel has had this call since 3.17");
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
