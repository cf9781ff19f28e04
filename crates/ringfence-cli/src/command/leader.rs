//! `ringfence elect --http`: campaigns, and answers whether this candidate leads. For a program
//! beside it that cannot be started by ringfence.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use ringfence::{Election, Leadership};
use serde_json::json;
use tokio::net::TcpListener;

use super::{CommandContext, take};
use crate::args::LockArgs;
use crate::exit::Exit;
use crate::http::access::AccessRules;
use crate::http::connections::{self, Endpoints};
use crate::report::CliFailure;
use crate::row::millis;

const CONNECTIONS_MAX: usize = 128;

/// What is asked for.
struct Candidate {
    name: String,
    access: AccessRules,
    /// The leadership, once there is one. It may be lost by now.
    lead: Mutex<Option<Arc<Leadership>>>,
}

/// Campaigns for ever, again after each loss, and answers on `address`.
pub(super) async fn answer_on(
    address: SocketAddr,
    context: &CommandContext,
    mut election: Election,
    name: &str,
    terms: &LockArgs,
) -> Result<Exit, CliFailure> {
    if !address.ip().is_loopback() {
        return Err(CliFailure::usage(format!(
            "{address} can be reached from other machines: --http takes a loopback address"
        )));
    }
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| CliFailure::usage(format!("cannot listen on {address}: {error}")))?;
    let url = format!("http://{}/", listener.local_addr()?);
    let candidate = Arc::new(Candidate {
        name: name.to_owned(),
        access: AccessRules::new(None, &[])?,
        lead: Mutex::default(),
    });
    let said = format!("whether this candidate leads is at {url}");
    let value = json!({"url": url, "port": listener.local_addr()?.port()});
    context.report.result(&said, &value)?;
    let router = Router::new()
        .fallback(whether)
        .with_state(Arc::clone(&candidate));
    let campaign = async {
        loop {
            let lead = take::lead(context, &election, name, terms).await?;
            let lead = Arc::new(lead);
            *candidate.lead() = Some(Arc::clone(&lead));
            context
                .report
                .tell(&format!("leads with fence {}", lead.fence()));
            let why = lead.lost().await;
            context.report.warn(&format!("no longer leads: {why}"));
            *candidate.lead() = None;
            // The nodes have answered before, so the addresses are right.
            if terms.no_quorum_after.is_none() {
                election = election.no_quorum_after(Duration::MAX);
            }
        }
    };
    tokio::select! {
        failed = campaign => failed,
        () = connections::serve(listener, router, CONNECTIONS_MAX) => Ok(Exit::Success),
    }
}

impl Candidate {
    fn lead(&self) -> std::sync::MutexGuard<'_, Option<Arc<Leadership>>> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `GET /` says whether this candidate leads. `GET /leader` has the status 503 unless it does, for
/// probes that look at the status only. It leads only inside its validity, whatever the nodes say.
async fn whether(
    State(candidate): State<Arc<Candidate>>,
    Extension(endpoints): Extension<Endpoints>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if candidate
        .access
        .check_host(&headers, endpoints.local)
        .is_err()
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    let lead = candidate.lead().clone();
    let lead = lead.filter(|lead| lead.check().is_ok());
    let status = match uri.path() {
        "/" => StatusCode::OK,
        "/leader" if lead.is_some() => StatusCode::OK,
        "/leader" => StatusCode::SERVICE_UNAVAILABLE,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let value = json!({
        "name": candidate.name,
        "leader": lead.is_some(),
        "fence": lead.as_ref().map(|lead| lead.fence()),
        "remaining_ms": lead.as_ref().map(|lead| millis(lead.remaining())),
    });
    let body = ([(CONTENT_TYPE, "application/json")], format!("{value}\n"));
    (status, body).into_response()
}
