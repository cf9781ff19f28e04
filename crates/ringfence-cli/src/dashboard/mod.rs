//! `ringfence dashboard`: one page in the browser that shows nodes, locks and a time line.
//!
//! One collector reads the nodes for all viewers (`collector.rs`) and publishes snapshots
//! (`snapshot.rs`, `cards.rs`, and the rows of `row.rs`) and a time line (`timeline.rs`). The rest is
//! HTTP: `http/` accepts connections and refuses what does not belong here, `routes.rs`
//! answers. The page is in `assets/`, and inside the program.

mod breaking;
mod cards;
mod collector;
mod direct;
mod events;
mod metrics_page;
#[cfg(any(test, fuzzing))]
pub(crate) mod raw_requests;
mod reading;
mod routes;
mod search;
mod snapshot;
mod timeline;

use std::net::SocketAddr;
use std::sync::Arc;

use ringfence::Locks;
use serde_json::json;
use tokio::net::TcpListener;

use crate::args::DashboardArgs;
use crate::exit::Exit;
use crate::http::access::{self, AccessRules};
use crate::http::connections;
use crate::report::{CliFailure, Report};

use collector::ClusterCollector;
use routes::Dashboard;

/// The most connections at a time. A browser has up to six.
const CONNECTIONS_MAX: usize = 128;

/// Serves the dashboard until the process is ended.
pub(crate) async fn dashboard(
    args: DashboardArgs,
    nodes: &str,
    report: Report,
) -> Result<Exit, CliFailure> {
    let token = access::read_token(args.token_file.as_deref())?;
    let is_local = args.listen.ip().is_loopback();
    if !is_local && token.is_none() {
        return Err(CliFailure::usage(format!(
            "{} can be reached from other machines: --token-file is needed, so that not everyone \
             sees the locks",
            args.listen
        )));
    }
    if !is_local {
        report.warn(
            "the token and the locks are sent unencrypted: put a proxy with TLS in front, and name \
             its host with --allowed-host",
        );
    }
    let access = AccessRules::new(token, &args.allowed_host)?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| CliFailure::usage(format!("cannot listen on {}: {error}", args.listen)))?;
    let locks = Locks::builder()
        .nodes(nodes)
        .without_joining()
        .connect()
        .await?;
    announce(listener.local_addr()?, report)?;
    let (collector, published) = ClusterCollector::new(locks.clone(), nodes);
    let break_on = args.allow_break.then(|| nodes.to_owned());
    let dashboard = Dashboard::new(access, locks, published, break_on, report);
    tokio::select! {
        () = collector.run() => {}
        () = connections::serve(listener, routes::router(Arc::new(dashboard)), CONNECTIONS_MAX) => {}
    }
    Ok(Exit::Success)
}

fn announce(address: SocketAddr, report: Report) -> Result<(), CliFailure> {
    let url = format!("http://{address}/");
    let value = json!({"url": url, "port": address.port()});
    report.result(&format!("the dashboard is at {url}"), &value)
}

/// What the dashboard shows of the nodes and their locks: rows, the cluster, and the metrics.
#[cfg(test)]
pub(crate) struct ShownPage {
    pub(crate) rows: Vec<serde_json::Value>,
    pub(crate) cluster: serde_json::Value,
    pub(crate) metrics: String,
}

#[cfg(test)]
pub(crate) async fn shown(locks: &Locks) -> ShownPage {
    let (collector, published) = ClusterCollector::new(locks.clone(), "");
    collector.collect_once().await;
    let snapshot = Arc::clone(&published.snapshots.borrow());
    ShownPage {
        rows: snapshot.rows.values().map(|row| json!(**row)).collect(),
        cluster: json!(snapshot.cluster(0)),
        metrics: metrics_page::page(&snapshot, 0),
    }
}
