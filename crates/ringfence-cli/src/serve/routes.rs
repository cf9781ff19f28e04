//! The routes of the service, and the checks that every request passes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use ringfence::admin::LockState;
use serde_json::json;

use super::order::{self, LockOrder};
use super::peer::Peer;
use super::problem::{Problem, answer};
use super::{Phase, Service, hold, receipts};
use crate::command::json as status;
use crate::http::access::AccessRefusal;

type ServiceHandle = State<Arc<Service>>;
type Answer = Result<Response, Problem>;

/// All routes behind their checks.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/hold", post(open_hold))
        .route("/v1/hold/{id}", delete(end_hold))
        .route("/v1/acquire", post(acquire))
        .route("/v1/extend", post(extend))
        .route("/v1/release", post(release))
        .route("/v1/locks/{*name}", get(lock))
        .route("/v1/health", get(health))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(metrics))
        .fallback(|| async { Problem::not_found("there is nothing here; see /v1/openapi.json") })
        .method_not_allowed_fallback(|| async { Problem::method() })
        .layer(from_fn_with_state(Arc::clone(&service), check))
        .with_state(service)
}

/// Refuses requests of web pages, and requests over TCP without the token.
async fn check(
    State(service): ServiceHandle,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let checked = match peer.local {
        // The rights of the socket decide. No browser sends requests to a Unix socket.
        None if headers.contains_key(ORIGIN) => Err(AccessRefusal::Site),
        None => Ok(()),
        Some(local) => {
            let host = service.access.check_host(headers, local);
            host.and_then(|()| service.access.check_token(headers))
        }
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(AccessRefusal::Token) => {
            let why = "the header `Authorization: Bearer TOKEN` is needed, with the token of \
                       --token-file";
            Problem::unauthorized(why).into_response()
        }
        Err(AccessRefusal::Host) => {
            Problem::forbidden("this host name is not ours").into_response()
        }
        Err(AccessRefusal::Site) => {
            Problem::forbidden("requests of web pages are refused").into_response()
        }
    }
}

async fn open_hold(
    State(service): ServiceHandle,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer {
    let order: LockOrder = order::read(body).await?;
    let order = order.check(&service.config(), &peer.label())?;
    let order = order.limited_to(service.max_hold);
    hold::open(service, order, peer).await
}

async fn end_hold(
    State(service): ServiceHandle,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer {
    service.holds.release(&id, &peer).await?;
    Ok(answer(&json!({"released": true})).into_response())
}

async fn acquire(
    State(service): ServiceHandle,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer {
    let order: LockOrder = order::read(body).await?;
    let order = order.check(&service.config(), &peer.label())?;
    let (locks, mut phase) = (service.locks(), service.phase.subscribe());
    tokio::select! {
        done = receipts::acquire(&locks, order, &peer) => done,
        () = Phase::stops(&mut phase) => Err(hold::stopping()),
    }
}

async fn extend(State(service): ServiceHandle, body: Body) -> Answer {
    let extended = receipts::extend(&service.locks(), order::read(body).await?).await?;
    Ok(answer(&extended).into_response())
}

async fn release(State(service): ServiceHandle, body: Body) -> Answer {
    let released = receipts::release(&service.locks(), order::read(body).await?).await?;
    Ok(answer(&released).into_response())
}

/// What `ringfence status NAME --json` prints. 503 if no majority of the nodes says so.
async fn lock(State(service): ServiceHandle, Path(name): Path<String>) -> Answer {
    let seen = service.locks().inspect_all(&name).await?;
    let body = answer(&status::name(&seen));
    Ok(match seen.state() {
        LockState::Unknown => (axum::http::StatusCode::SERVICE_UNAVAILABLE, body).into_response(),
        _ => body.into_response(),
    })
}

/// 200 if locks can be taken now.
async fn health(State(service): ServiceHandle) -> Answer {
    if *service.phase.borrow() != Phase::Serving {
        return Err(Problem::unavailable("the service is stopping"));
    }
    let ready = service.locks().ready_within(super::HEALTH_WITHIN).await;
    ready.map_err(Problem::from)?;
    Ok(answer(&json!({"ready": true, "holds": service.holds.count()})).into_response())
}

async fn openapi() -> impl IntoResponse {
    let text = include_str!("openapi.json");
    ([(CONTENT_TYPE, "application/json")], text)
}

async fn metrics(State(service): ServiceHandle) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], service.metrics_page())
}
