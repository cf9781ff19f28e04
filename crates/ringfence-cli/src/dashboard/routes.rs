//! The routes, the files of the page, and the guards that every request passes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use ringfence::Locks;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::http::access::{AccessRefusal, AccessRules};
use crate::http::connections::Endpoints;
use crate::report::Report;

use super::breaking::{self, BreakOrder};
use super::collector::Published;
use super::direct::DirectReads;
use super::events::EventStream;
use super::metrics_page;
use super::snapshot::FRESH_MS;
use super::timeline::{KEPT_MS, Timeline};

/// The most viewers that get events at a time. The rest of the connections stays for others.
const VIEWERS_MAX: usize = 64;
/// How many locks the time line shows unless the viewer wants fewer.
const TRACKS_MAX: usize = 60;

/// Sent with every answer. The page needs nothing from elsewhere, and no other site may embed it or
/// read from it.
const HEADERS: [(HeaderName, HeaderValue); 7] = [
    header(
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    header("x-content-type-options", "nosniff"),
    header("referrer-policy", "no-referrer"),
    header("x-frame-options", "DENY"),
    header("cross-origin-opener-policy", "same-origin"),
    header("cross-origin-resource-policy", "same-origin"),
    header("cache-control", "no-store"),
];

const fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )
}

/// A file that everyone may read: it contains no data.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

macro_rules! files {
    ($($path:literal $kind:ident $file:literal)*) => {
        [$(PageFile {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("assets/", $file)),
        }),*]
    };
}

/// All files of the page.
const PAGE_FILES: [PageFile; 11] = files! {
    "/" HTML "index.html"
    "/style.css" CSS "style.css"
    "/icon.svg" SVG "icon.svg"
    "/api/v1/openapi.json" JSON "openapi.json"
    "/app.js" SCRIPT "app.js"
    "/dom.js" SCRIPT "dom.js"
    "/stream.js" SCRIPT "stream.js"
    "/nodes.js" SCRIPT "nodes.js"
    "/locks.js" SCRIPT "locks.js"
    "/details.js" SCRIPT "details.js"
    "/timeline.js" SCRIPT "timeline.js"
};

/// What all requests share.
pub(super) struct Dashboard {
    access: AccessRules,
    /// The nodes, if viewers may break locks.
    break_on: Option<String>,
    published: Published,
    direct: DirectReads,
    viewers: Arc<Semaphore>,
    report: Report,
}

impl Dashboard {
    pub(super) fn new(
        access: AccessRules,
        locks: Locks,
        published: Published,
        break_on: Option<String>,
        report: Report,
    ) -> Self {
        Self {
            access,
            break_on,
            direct: DirectReads::new(locks, published.moments.clone()),
            published,
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            report,
        }
    }
}

type DashboardHandle = State<Arc<Dashboard>>;

/// All routes behind their guards.
pub(super) fn router(dashboard: Arc<Dashboard>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/api/v1/about", get(about))
        .route("/api/v1/cluster", get(cluster))
        .route("/api/v1/locks", get(locks))
        .route("/api/v1/lock", get(lock))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/events", get(events))
        .route("/api/v1/break", post(break_lock));
    for PageFile { path, kind, text } in PAGE_FILES {
        router = router.route(
            path,
            get(move || async move { ([(CONTENT_TYPE, kind)], text) }),
        );
    }
    router
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "this method is not possible here",
            )
        })
        .layer(from_fn_with_state(Arc::clone(&dashboard), guard))
        .with_state(dashboard)
}

/// Refuses what [`AccessRules`] refuse. Only files without data need no token.
async fn guard(
    State(dashboard): DashboardHandle,
    Extension(endpoints): Extension<Endpoints>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let path = request.uri().path();
    let is_public = path == "/healthz" || PAGE_FILES.iter().any(|file| file.path == path);
    let access = &dashboard.access;
    let mut checked = access.check_host(headers, endpoints.local);
    if !is_public {
        checked = checked.and_then(|()| access.check_token(headers));
    }
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(AccessRefusal::Host) => problem(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not ours; --allowed-host allows another one",
        ),
        Err(AccessRefusal::Site) => problem(
            StatusCode::FORBIDDEN,
            "requests from pages of other sites are refused",
        ),
        Err(AccessRefusal::Token) => problem(
            StatusCode::UNAUTHORIZED,
            "the header `Authorization: Bearer TOKEN` is needed, with the token of --token-file",
        ),
    };
    response.headers_mut().extend(HEADERS);
    response
}

fn problem(status: StatusCode, why: &str) -> Response {
    (status, answer(&json!({"error": why}))).into_response()
}

fn answer(value: &Value) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, JSON)], value.to_string())
}

/// For probes: the dashboard itself answers. It says nothing about the nodes.
async fn health() -> &'static str {
    "ok\n"
}

async fn metrics(State(dashboard): DashboardHandle) -> impl IntoResponse {
    let snapshot = Arc::clone(&dashboard.published.snapshots.borrow());
    let page = metrics_page::page(&snapshot, dashboard.published.moments.now_ms());
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        page,
    )
}

async fn about(State(dashboard): DashboardHandle) -> impl IntoResponse {
    answer(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "break_allowed": dashboard.break_on.is_some(),
        "token_needed": dashboard.access.needs_token(),
        "fresh_ms": FRESH_MS,
    }))
}

async fn cluster(State(dashboard): DashboardHandle) -> impl IntoResponse {
    let snapshot = Arc::clone(&dashboard.published.snapshots.borrow());
    answer(&json!(
        snapshot.cluster(dashboard.published.moments.now_ms())
    ))
}

async fn locks(State(dashboard): DashboardHandle) -> impl IntoResponse {
    let snapshot = Arc::clone(&dashboard.published.snapshots.borrow());
    answer(&json!({
        "now_ms": dashboard.published.moments.now_ms(),
        "list": snapshot.list,
        "locks": snapshot.rows.values().map(|row| json!(**row)).collect::<Vec<_>>(),
    }))
}

#[derive(Deserialize)]
struct WantedLock {
    name: String,
}

async fn lock(
    State(dashboard): DashboardHandle,
    wanted: Result<Query<WantedLock>, QueryRejection>,
) -> Response {
    let wanted = match wanted {
        Ok(Query(wanted)) => wanted,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    match dashboard.direct.read(&wanted.name).await {
        Ok(seen) => answer(&seen).into_response(),
        Err(error) => problem(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

#[derive(Deserialize)]
struct WantedTracks {
    /// A part of the names.
    #[serde(default)]
    search: String,
    limit: Option<usize>,
}

async fn timeline(
    State(dashboard): DashboardHandle,
    wanted: Result<Query<WantedTracks>, QueryRejection>,
) -> Response {
    let wanted = match wanted {
        Ok(Query(wanted)) => wanted,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let now_ms = dashboard.published.moments.now_ms();
    let snapshot = Arc::clone(&dashboard.published.snapshots.borrow());
    let timeline = dashboard.published.timeline();
    let search = wanted.search.to_lowercase();
    let limit = wanted.limit.unwrap_or(TRACKS_MAX).min(TRACKS_MAX);
    let mut value = tracks(&timeline, &search, limit);
    let nodes = timeline.nodes().zip(snapshot.nodes.iter());
    let nodes = nodes.map(|(track, card)| json!({"node": card.node, "spans": track.spans()}));
    value["nodes"] = nodes.collect();
    value["now_ms"] = now_ms.into();
    value["begin_ms"] = now_ms
        .saturating_sub(KEPT_MS)
        .max(timeline.dropped_until_ms())
        .into();
    answer(&value).into_response()
}

fn tracks(timeline: &Timeline, search: &str, limit: usize) -> Value {
    let tracks = timeline.locks(|key| key.name.to_lowercase().contains(search));
    let listed = tracks.iter().take(limit).map(|(key, track)| {
        json!({
            "name": key.name,
            "part": key.part,
            "slot": key.slot,
            "spans": track.spans(),
        })
    });
    json!({"track_count": tracks.len(), "tracks": listed.collect::<Vec<_>>()})
}

async fn events(State(dashboard): DashboardHandle) -> Response {
    let Ok(place) = Arc::clone(&dashboard.viewers).try_acquire_owned() else {
        return problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many viewers",
        );
    };
    let published = &dashboard.published;
    let stream = EventStream::new(
        published.snapshots.clone(),
        published.moments.clone(),
        place,
    );
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(stream)).into_response()
}

async fn break_lock(
    State(dashboard): DashboardHandle,
    Extension(endpoints): Extension<Endpoints>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(nodes) = &dashboard.break_on else {
        let why = "breaking locks is not allowed here; --allow-break allows it";
        return problem(StatusCode::FORBIDDEN, why);
    };
    let broken = async {
        let order = BreakOrder::read(&headers, body).await?;
        let by = breaking::viewer(endpoints.remote, &headers);
        order.run(nodes, &by, dashboard.report).await
    };
    match broken.await {
        Ok(value) => answer(&value).into_response(),
        Err((status, why)) => problem(status, &why),
    }
}
