//! `ringfence serve`: locks for programs in every language, over HTTP on a Unix socket.
//!
//! `listener.rs` opens the sockets, `peer.rs` knows who is connected, `routes.rs` answers.
//! `order.rs` reads what a client wants, `hold.rs` holds a lock for as long as a request is open,
//! and `receipts.rs` takes locks that outlive their request. This file is the life of the service:
//! start, reload, stop.

mod hold;
mod listener;
mod order;
mod peer;
mod problem;
mod receipts;
mod routes;

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use ringfence::Locks;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::args::{DashboardArgs, Global, ServeArgs};
use crate::command::LEAVE_PATIENCE;
use crate::config::Config;
use crate::dashboard;
use crate::exit::Exit;
use crate::http::access::{self, AccessRules};
use crate::http::connections;
use crate::nodes;
use crate::report::{CliFailure, Report};
use crate::supervise::Signals;

use hold::Holds;
use listener::UnixSocket;
use peer::{LoopbackClients, UnixClients};

/// The most connections at a time, if the limit of open files allows it.
const CONNECTIONS_MAX: u64 = 4096;
/// The files that are left for the nodes, and for everything else.
const OTHER_FILES: u64 = 128;
/// How long `/v1/health` waits for a majority of the nodes.
const HEALTH_WITHIN: Duration = Duration::from_secs(1);
/// The time for the last lines to reach their clients.
const LAST_LINES: Duration = Duration::from_millis(100);

/// What all requests share.
struct Service {
    /// Replaced when SIGHUP brings other nodes. A hold keeps the client that it began with.
    locks: RwLock<Locks>,
    config: RwLock<Arc<Config>>,
    max_hold: Option<Duration>,
    access: AccessRules,
    holds: Holds,
    phase: watch::Sender<Phase>,
    metrics: PrometheusHandle,
}

/// Where the service is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Takes no new locks, and waits for the clients that hold some.
    Stopping,
    /// Renews nothing any more.
    Ended,
}

impl Phase {
    /// Completes once no new locks are taken.
    async fn stops(phase: &mut watch::Receiver<Self>) {
        let _ = phase.wait_for(|phase| *phase != Self::Serving).await;
    }
}

impl Service {
    fn locks(&self) -> Locks {
        let locks = self.locks.read();
        locks.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn config(&self) -> Arc<Config> {
        let config = self.config.read();
        Arc::clone(&config.unwrap_or_else(PoisonError::into_inner))
    }

    fn metrics_page(&self) -> String {
        self.metrics.run_upkeep();
        let holds = self.holds.count();
        format!(
            "{}# HELP ringfence_serve_holds Locks that clients of this service hold.\n\
             # TYPE ringfence_serve_holds gauge\nringfence_serve_holds {holds}\n",
            self.metrics.render()
        )
    }
}

/// Serves until a signal asks for the end.
pub(crate) async fn serve(
    args: ServeArgs,
    given: &Global,
    report: Report,
) -> Result<Exit, CliFailure> {
    let token = access::read_token(args.token_file.as_deref())?;
    let connections_max = raise_file_limit();
    let tcp = match args.listen {
        Some(address) if !address.ip().is_loopback() => {
            return Err(CliFailure::usage(format!(
                "{address} can be reached from other machines: --listen takes a loopback address"
            )));
        }
        Some(address) => {
            Some(TcpListener::bind(address).await.map_err(|error| {
                CliFailure::usage(format!("cannot listen on {address}: {error}"))
            })?)
        }
        None => None,
    };
    let mut signals = Signals::terminating()?;
    let config = Config::read(given.config.as_deref())?;
    let nodes = nodes::resolve(given, &config, report)?;
    // Before the client is connected: that is when the library registers its metrics.
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(io::Error::other)?;
    let socket = UnixSocket::open(&args)?;
    let locks = Locks::builder().nodes(nodes.urls()).connect().await?;
    let service = Arc::new(Service {
        locks: RwLock::new(locks),
        config: RwLock::new(Arc::new(config)),
        max_hold: args.max_hold,
        access: AccessRules::new(token, &[])?,
        holds: Holds::default(),
        phase: watch::Sender::new(Phase::Serving),
        metrics,
    });
    announce(&socket, tcp.as_ref(), report)?;
    {
        let mut urls = nodes.urls().to_owned();
        let serving = accept(&socket, tcp, connections_max, Arc::clone(&service))?;
        let shown = show_dashboard(args.dashboard, nodes.urls(), report);
        tokio::pin!(serving, shown);
        loop {
            tokio::select! {
                () = &mut serving => {}
                failed = &mut shown => return failed,
                signal = signals.recv() => match signal {
                    Signal::HUP => reload(&service, given, &mut urls, report).await,
                    _ => break,
                }
            }
        }
    }
    // No new connection is accepted from here on.
    drop(socket);
    stop(&service, args.stop_grace, report).await;
    Ok(Exit::Success)
}

fn announce(
    socket: &UnixSocket,
    tcp: Option<&TcpListener>,
    report: Report,
) -> Result<(), CliFailure> {
    let path = socket.path.display().to_string();
    let address = tcp.map(TcpListener::local_addr).transpose()?;
    let also = address.map_or_else(String::new, |address| format!(" and http://{address}/"));
    let value = json!({"socket": path, "listen": address.map(|address| address.to_string())});
    report.result(&format!("serving locks on {path}{also}"), &value)?;
    notify("READY=1");
    Ok(())
}

/// Answers requests on all sockets, for ever.
fn accept(
    socket: &UnixSocket,
    tcp: Option<TcpListener>,
    connections_max: usize,
    service: Arc<Service>,
) -> io::Result<impl Future<Output = ()> + use<>> {
    let listener = socket.listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let unix = UnixClients::new(UnixListener::from_std(listener)?, connections_max);
    let router = routes::router(service);
    Ok(async move {
        let over_unix = connections::serve(unix, router.clone(), connections_max);
        match tcp {
            None => over_unix.await,
            Some(tcp) => {
                let over_tcp = connections::serve(LoopbackClients(tcp), router, connections_max);
                tokio::join!(over_unix, over_tcp);
            }
        }
    })
}

/// The dashboard of the same nodes. Ends only if it fails.
async fn show_dashboard(
    listen: Option<std::net::SocketAddr>,
    urls: &str,
    report: Report,
) -> Result<Exit, CliFailure> {
    let Some(listen) = listen else {
        return std::future::pending().await;
    };
    let args = DashboardArgs {
        listen,
        token_file: None,
        allowed_host: Vec::new(),
        allow_break: false,
    };
    dashboard::dashboard(args, urls, report).await
}

/// Reads the config again. What cannot be used is reported, and the service goes on as before.
async fn reload(service: &Service, given: &Global, urls: &mut String, report: Report) {
    notify("RELOADING=1");
    let read = async {
        let config = Config::read(given.config.as_deref())?;
        let nodes = nodes::resolve(given, &config, report)?;
        if nodes.urls() != urls.as_str() {
            let locks = Locks::builder().nodes(nodes.urls()).connect().await?;
            *service
                .locks
                .write()
                .unwrap_or_else(PoisonError::into_inner) = locks;
            nodes.urls().clone_into(urls);
        }
        let mut used = service.config.write();
        **used.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut()) = Arc::new(config);
        Ok::<(), CliFailure>(())
    };
    match read.await {
        Ok(()) => report.tell("the config was read again"),
        Err(failure) => report.error(&format!(
            "the config was not read again, the service goes on as before: {}",
            failure.message
        )),
    }
    notify("READY=1");
}

/// Tells the clients that hold locks, and waits for them until the grace has passed.
async fn stop(service: &Service, grace: Duration, report: Report) {
    notify("STOPPING=1");
    service.phase.send_replace(Phase::Stopping);
    let held = service.holds.count();
    if held > 0 {
        report.tell(&format!("stopping: waiting for {held} locks that are held"));
        let _ = tokio::time::timeout(grace, service.holds.ended()).await;
    }
    let left = service.holds.count();
    service.phase.send_replace(Phase::Ended);
    if left > 0 {
        report.warn(&format!(
            "{left} locks are still held: they are not released, and end with their leases"
        ));
        let _ = tokio::time::timeout(LAST_LINES, service.holds.ended()).await;
    }
    if held > 0 {
        tokio::time::sleep(LAST_LINES).await;
    }
    let _ = tokio::time::timeout(LEAVE_PATIENCE, service.locks().close()).await;
}

/// Tells systemd, if it started us and wants to know.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::SocketAddr;
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&path)?,
        };
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::debug!(target: "ringfence", %error, "systemd was not notified");
    }
}

/// Allows as many files as we may have. Returns how many connections fit.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum.or(limit.current),
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(_) => limit,
    };
    let files = now.current.unwrap_or(u64::MAX);
    let fits = files.saturating_sub(OTHER_FILES).clamp(16, CONNECTIONS_MAX);
    usize::try_from(fits).unwrap_or(usize::MAX)
}
