//! A bad network in front of one server: a proxy whose faults a test switches while it runs.
//!
//! This file is the test's side of it: what can be switched. `relay.rs` accepts connections and
//! `pipe.rs` carries bytes. A fault applies to bytes at the moment they arrive, so a request that is
//! sent after a call such as [`Proxy::requests`] has returned is sure to meet that fault.

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

/// What happens to bytes that travel in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// They arrive.
    #[default]
    None,
    /// They arrive this much later, in order, even if their sender has hung up meanwhile.
    Delay(Duration),
    /// They wait, and arrive when the fault is lifted, even if their sender has hung up meanwhile.
    Hold,
    /// They vanish, and so does the news that their sender hung up: the connection is half open.
    /// A stream with a gap is of no use, so lifting the fault closes connections that lost bytes.
    BlackHole,
    /// They vanish and the connection is reset. On replies: the request was carried out, and the
    /// client cannot know.
    Reset,
    /// [`Reset`](Self::Reset) for the first bytes that come, then [`None`](Self::None).
    ResetOnce,
}

/// A proxy in front of one server. Dropping it closes every connection through it.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    url: String,
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that passes everything on to `server`.
    ///
    /// # Panics
    /// If the server has only a Unix socket.
    pub fn in_front_of(server: &Server) -> Self {
        let line = Arc::new(Line::to(server.addr()));
        let listener = relay::listen();
        let addr = listener.local_addr().expect("a listener has an address");
        let thread = thread::spawn({
            let line = Arc::clone(&line);
            move || relay::run(listener, &line)
        });
        Self {
            addr,
            url: server.url_through(addr.port()),
            line,
            thread: Some(thread),
        }
    }

    /// Where a client finds the server through this proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The proxy's address and port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Puts a fault on what clients send.
    pub fn requests(&self, fault: Fault) {
        self.line.rules.send_modify(|rules| rules.requests = fault);
    }

    /// Puts a fault on what the server sends.
    pub fn replies(&self, fault: Fault) {
        self.line.rules.send_modify(|rules| rules.replies = fault);
    }

    /// Lifts every fault: what was held goes on its way, new connections are accepted.
    pub fn pass(&self) {
        self.line.rules.send_modify(|rules| {
            let cuts = rules.cuts;
            *rules = Rules {
                cuts,
                ..Rules::default()
            };
        });
        self.wait_for("to listen again", |line| !line.is_refusing());
    }

    /// Closes every connection now. New ones are welcome.
    pub fn cut(&self) {
        self.line.rules.send_modify(|rules| rules.cuts += 1);
        self.wait_for("to cut its connections", Line::has_only_new_connections);
    }

    /// Leads to `server` from now on, as an address does that moves in a failover. Connections to
    /// the former one are closed.
    pub fn lead_to(&self, server: &Server) {
        *self.line.server() = server.addr();
        self.cut();
    }

    /// Closes every connection and refuses new ones, as a machine does whose server is down.
    pub fn refuse(&self) {
        self.line.rules.send_modify(|rules| {
            rules.refuses = true;
            rules.cuts += 1;
        });
        self.wait_for("to refuse", |line| {
            line.is_refusing() && line.has_only_new_connections()
        });
    }

    /// How many connections go through it.
    pub fn connections(&self) -> usize {
        self.line.open().len()
    }

    /// How many bytes [`Fault::Hold`] keeps back at present.
    pub fn held_bytes(&self) -> usize {
        self.line.held_bytes.load(Ordering::SeqCst)
    }

    fn wait_for(&self, what: &str, done: impl Fn(&Line) -> bool) {
        wait_until(&format!("the proxy {what}"), CHANGE_LIMIT, || {
            done(&self.line)
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.line.rules.send_modify(|rules| rules.stopped = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the test's thread and the proxy's thread share.
#[derive(Debug)]
pub(crate) struct Line {
    server: Mutex<SocketAddr>,
    pub(crate) rules: watch::Sender<Rules>,
    pub(crate) held_bytes: AtomicUsize,
    /// The refusal as carried out; the rules have it as ordered.
    pub(crate) refuses: AtomicBool,
    /// For each open connection, how many cuts there had been when it began.
    open: Mutex<Vec<usize>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) requests: Fault,
    pub(crate) replies: Fault,
    pub(crate) refuses: bool,
    /// Counts [`Proxy::cut`]: a connection that began before the latest one is to end.
    pub(crate) cuts: usize,
    pub(crate) stopped: bool,
}

impl Line {
    fn to(server: SocketAddr) -> Self {
        Self {
            server: Mutex::new(server),
            rules: watch::Sender::default(),
            held_bytes: AtomicUsize::default(),
            refuses: AtomicBool::default(),
            open: Mutex::default(),
        }
    }

    /// Where new connections lead.
    pub(crate) fn server(&self) -> MutexGuard<'_, SocketAddr> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, Vec<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that came in after the latest cut may stay.
    fn has_only_new_connections(&self) -> bool {
        let cuts = self.rules.borrow().cuts;
        self.open().iter().all(|&began| began >= cuts)
    }

    fn is_refusing(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }
}
