//! A faulty network in front of one server: a proxy whose faults a test switches while it runs.
//!
//! This file is the test's side. `relay.rs` accepts connections and `pipe.rs` carries bytes. A
//! fault applies to bytes when they arrive, so it certainly applies to a request that is sent after
//! a call such as [`Proxy::requests`] has returned.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::relay;
use crate::server::Server;
use crate::wait::wait_until;

const CHANGE_LIMIT: Duration = Duration::from_secs(5);

/// What happens to bytes in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// They arrive.
    #[default]
    None,
    /// They arrive this much later, in order, even if their sender has closed the connection
    /// meanwhile.
    Delay(Duration),
    /// They wait, and arrive when the fault ends, even if their sender has closed the connection
    /// meanwhile.
    Hold,
    /// They are lost, and so is the close of their sender: the connection is half open. When the
    /// fault ends, connections that lost bytes are closed, because a stream with a gap is useless.
    BlackHole,
    /// They are lost and the connection is reset. On replies: the request was executed, and the
    /// client does not know.
    Reset,
    /// [`Reset`](Self::Reset) for the first bytes that arrive, then [`None`](Self::None).
    ResetOnce,
}

/// A proxy in front of one server. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    url: String,
    state: Arc<ProxyState>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that relays everything to `server`.
    ///
    /// # Panics
    /// If the server has only a Unix socket.
    pub fn in_front_of(server: &Server) -> Self {
        let state = Arc::new(ProxyState::to(server.addr()));
        let listener = relay::listen();
        let addr = listener.local_addr().expect("a listener has an address");
        let thread = thread::spawn({
            let state = Arc::clone(&state);
            move || relay::run(listener, &state)
        });
        Self {
            addr,
            url: server.url_through(addr.port()),
            state,
            thread: Some(thread),
        }
    }

    /// The URL of the server through this proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The proxy's address and port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the fault for what clients send.
    pub fn requests(&self, fault: Fault) {
        self.state.rules.send_modify(|rules| rules.requests = fault);
    }

    /// Sets the fault for what the server sends.
    pub fn replies(&self, fault: Fault) {
        self.state.rules.send_modify(|rules| rules.replies = fault);
    }

    /// Ends every fault: held bytes are delivered, and new connections are accepted.
    pub fn pass(&self) {
        self.state.rules.send_modify(|rules| {
            let cuts = rules.cuts;
            *rules = Rules {
                cuts,
                ..Rules::default()
            };
        });
        self.wait_for("to listen again", |state| !state.is_refusing());
    }

    /// Closes every connection now. Accepts new ones.
    pub fn cut(&self) {
        self.state.rules.send_modify(|rules| rules.cuts += 1);
        self.wait_for(
            "to cut its connections",
            ProxyState::has_only_new_connections,
        );
    }

    /// Leads to `server` from now on, like an address that moves in a failover. Closes the
    /// connections to the former server.
    pub fn lead_to(&self, server: &Server) {
        *self.state.server() = server.addr();
        self.cut();
    }

    /// Closes every connection and refuses new ones, like a machine whose server is down.
    pub fn refuse(&self) {
        self.state.rules.send_modify(|rules| {
            rules.refuses = true;
            rules.cuts += 1;
        });
        self.wait_for("to refuse", |state| {
            state.is_refusing() && state.has_only_new_connections()
        });
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.state.open().len()
    }

    /// How many bytes [`Fault::Hold`] holds at present.
    pub fn held_bytes(&self) -> usize {
        self.state.held_bytes.load(Ordering::SeqCst)
    }

    fn wait_for(&self, what: &str, done: impl Fn(&ProxyState) -> bool) {
        wait_until(&format!("the proxy {what}"), CHANGE_LIMIT, || {
            done(&self.state)
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.rules.send_modify(|rules| rules.stopped = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state that the test's thread and the proxy's thread share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    server: Mutex<SocketAddr>,
    pub(crate) rules: watch::Sender<Rules>,
    pub(crate) held_bytes: AtomicUsize,
    /// Whether new connections are refused already; the rules have what was ordered.
    pub(crate) refuses: AtomicBool,
    /// For each open connection, the number of cuts before it began.
    open: Mutex<Vec<usize>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) requests: Fault,
    pub(crate) replies: Fault,
    pub(crate) refuses: bool,
    /// Counts [`Proxy::cut`]: a connection from before the latest cut is to end.
    pub(crate) cuts: usize,
    pub(crate) stopped: bool,
}

impl ProxyState {
    fn to(server: SocketAddr) -> Self {
        Self {
            server: Mutex::new(server),
            rules: watch::Sender::default(),
            held_bytes: AtomicUsize::default(),
            refuses: AtomicBool::default(),
            open: Mutex::default(),
        }
    }

    /// The server for new connections.
    pub(crate) fn server(&self) -> MutexGuard<'_, SocketAddr> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, Vec<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all open connections began after the latest cut.
    fn has_only_new_connections(&self) -> bool {
        let cuts = self.rules.borrow().cuts;
        self.open().iter().all(|&began| began >= cuts)
    }

    fn is_refusing(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }
}
