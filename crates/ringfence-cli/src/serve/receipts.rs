//! Locks without a stream, for clients that cannot keep a request open: `acquire`, `extend` and
//! `release` by a token. The lock is not renewed, and outlives the request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use ringfence::Locks;
use ringfence::receipt::Receipt;
use serde_json::{Value, json};

use super::order::{CheckedOrder, ReceiptOrder};
use super::peer::Peer;
use super::problem::Problem;
use crate::args::DEFAULT_TTL;
use crate::command::take::Taken;
use crate::row::millis;

/// Takes the lock, and answers with its token.
pub(super) async fn acquire(
    locks: &Locks,
    order: CheckedOrder,
    peer: &Peer,
) -> Result<Response, Problem> {
    let taken = order.take(locks, false).await?;
    let held = taken.held();
    let mut value = json!({
        "name": held.name(),
        "token": taken.receipt().with_ttl(order.ttl()).expose(),
        "fence": held.fence(),
        "slot": taken.slot(),
        "valid_for_ms": millis(held.remaining()),
        "durability": held.durability().to_string(),
    });
    if peer.shares_boot_clock {
        value["deadline_boot_ms"] = (held.exact_deadline().as_nanos() / 1_000_000).into();
    }
    let body = HandOver {
        taken: Some(taken),
        line: format!("{value}\n").into(),
    };
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((kind, Body::from_stream(body)).into_response())
}

/// The answer with the token. If it is dropped before it is sent, no client could release the lock:
/// then the guard releases it.
struct HandOver {
    taken: Option<Taken>,
    line: Bytes,
}

impl Stream for HandOver {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.taken.take().map(|taken| {
            taken.leave();
            Ok(self.line.clone())
        }))
    }
}

/// Prolongs a lock. Answers with how long it is valid.
pub(super) async fn extend(locks: &Locks, order: ReceiptOrder) -> Result<Value, Problem> {
    let receipt = receipt(&order)?;
    let ttl = order.ttl.or_else(|| receipt.ttl()).unwrap_or(DEFAULT_TTL);
    let valid_for = match receipt.permits() {
        Some(permits) => {
            let semaphore = locks.semaphore(&order.name, permits);
            semaphore.extend_receipt(&receipt, ttl).await?
        }
        None => {
            let lock = locks.mutex(&order.name);
            lock.extend_receipt(&receipt, ttl).await?
        }
    };
    Ok(json!({"name": order.name, "valid_for_ms": millis(valid_for)}))
}

/// Releases a lock.
pub(super) async fn release(locks: &Locks, order: ReceiptOrder) -> Result<Value, Problem> {
    let receipt = receipt(&order)?;
    match receipt.permits() {
        Some(permits) => {
            let semaphore = locks.semaphore(&order.name, permits);
            semaphore.release_receipt(&receipt).await?;
        }
        None => locks.mutex(&order.name).release_receipt(&receipt).await?,
    }
    Ok(json!({"name": order.name, "released": true}))
}

/// The token of an order. The error does not repeat it: it may be a secret with a typing mistake.
fn receipt(order: &ReceiptOrder) -> Result<Receipt, Problem> {
    Receipt::parse(&order.token)
        .map_err(|error| Problem::usage(format!("\"token\": {error}, as /v1/acquire returns it")))
}
