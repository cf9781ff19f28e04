//! `POST /api/v1/break`: a viewer with the token ends the hold of another client.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use ringfence::Locks;
use ringfence::admin::BreakError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::report::{Report, one_line, with_causes};

/// The longest body: the longest name twice, each byte escaped, and a reason.
const BODY_MAX_BYTES: usize = 16 * 1024;
/// How long a client may take to send it.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// What is kept of a proxy's words. A chain of five addresses fits.
const SAID_MAX_CHARS: usize = 100;

/// What the viewer typed and saw.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BreakOrder {
    name: String,
    /// The name again, typed by hand.
    confirm: String,
    reason: String,
    /// The fence of the hold that the viewer saw. A later hold is not broken.
    fence: Option<u64>,
    /// The slot of the semaphore `name`.
    slot: Option<u32>,
}

/// Why an order is refused or failed.
pub(super) type BreakProblem = (StatusCode, String);

impl BreakOrder {
    /// Reads the body of a request.
    pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Self, BreakProblem> {
        let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        // A form of another site cannot send this type without asking first.
        if kind != Some(b"application/json") {
            let why = "the content type must be application/json";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
        let body = tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY_MAX_BYTES)).await;
        let body = match body {
            Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "too slow".to_owned())),
            Ok(Err(_)) => {
                let why = format!("the body is longer than {BODY_MAX_BYTES} bytes, or broken off");
                return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
            }
            Ok(Ok(body)) => body,
        };
        let order: Self = serde_json::from_slice(&body)
            .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        order.check()?;
        Ok(order)
    }

    fn check(&self) -> Result<(), BreakProblem> {
        let why = if self.confirm != self.name {
            "\"confirm\" is not the name of the lock"
        } else if self.reason.trim().is_empty() {
            "a reason is needed"
        } else {
            return Ok(());
        };
        Err((StatusCode::UNPROCESSABLE_ENTITY, why.to_owned()))
    }

    /// Breaks the hold, and writes a line about it to stderr.
    pub(super) async fn run(
        &self,
        nodes: &str,
        by: &str,
        report: Report,
    ) -> Result<Value, BreakProblem> {
        // The client that collects may only look.
        let locks = Locks::builder().nodes(nodes).connect().await;
        let locks =
            locks.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, with_causes(&error)))?;
        let mut hold = locks
            .break_lock(&self.name)
            .by(by)
            .reason(self.reason.trim());
        if let Some(slot) = self.slot {
            hold = hold.slot(slot, slot.saturating_add(1));
        }
        if let Some(fence) = self.fence {
            hold = hold.seen(fence);
        }
        let broken = hold.run().await;
        let outcome = match &broken {
            Ok(broken) => format!("its fence is {} now", broken.fence),
            Err(error) => format!("failed: {}", with_causes(error)),
        };
        report.warn(&format!(
            "break of `{}` for {by}, reason \"{}\": {}",
            one_line(&self.name),
            one_line(self.reason.trim()),
            one_line(&outcome)
        ));
        match broken {
            Ok(broken) => Ok(json!({"fence": broken.fence, "holders": broken.holders})),
            Err(error) => Err((status(&error), with_causes(&error))),
        }
    }
}

/// Who asks, for the audit list: the address of the connection, which is that of the proxy if there is
/// one, and what the proxy says of its client, which only the proxy can know to be true.
pub(super) fn viewer(connected: SocketAddr, headers: &HeaderMap) -> String {
    let said = ["x-forwarded-for", "forwarded"]
        .into_iter()
        .find_map(|key| {
            let value = headers.get(key)?.to_str().ok()?;
            let short: String = value.chars().take(SAID_MAX_CHARS).collect();
            Some(format!(" ({key}: {short})"))
        });
    let address = connected.ip();
    format!("dashboard, viewer at {address}{}", said.unwrap_or_default())
}

fn status(error: &BreakError) -> StatusCode {
    match error {
        BreakError::Free { .. } | BreakError::Changed { .. } => StatusCode::CONFLICT,
        BreakError::Invalid(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(kind: &'static str, body: &str) -> Result<BreakOrder, StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        let order = BreakOrder::read(&headers, Body::from(body.to_owned())).await;
        order.map_err(|(status, _)| status)
    }

    #[test]
    fn a_viewer_behind_a_proxy_is_called_what_the_proxy_says_beside_its_own_address() {
        let connected: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(
            viewer(connected, &headers),
            "dashboard, viewer at 127.0.0.1"
        );
        headers.insert("x-forwarded-for", "192.0.2.7".parse().unwrap());
        let said = viewer(connected, &headers);
        assert_eq!(
            said,
            "dashboard, viewer at 127.0.0.1 (x-forwarded-for: 192.0.2.7)"
        );
        headers.insert("x-forwarded-for", "9".repeat(10_000).parse().unwrap());
        assert!(viewer(connected, &headers).len() < 200);
    }

    #[tokio::test]
    async fn an_order_needs_the_name_twice_and_a_reason() {
        let order = |confirm: &str, reason: &str| {
            json!({"name": "a", "confirm": confirm, "reason": reason}).to_string()
        };
        let kind = "application/json";
        assert!(read(kind, &order("a", "host-7 is gone")).await.is_ok());
        let refused = StatusCode::UNPROCESSABLE_ENTITY;
        assert_eq!(read(kind, &order("b", "x")).await.unwrap_err(), refused);
        assert_eq!(read(kind, &order("a", "  ")).await.unwrap_err(), refused);
        for body in ["", "[]", "{}", "{\"name\":\"a\",\"more\":1}"] {
            let status = read(kind, body).await.unwrap_err();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        }
        let long = order("a", &"x".repeat(BODY_MAX_BYTES));
        let status = read(kind, &long).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        for kind in ["text/plain", "application/x-www-form-urlencoded"] {
            let status = read(kind, &order("a", "x")).await.unwrap_err();
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
    }
}
