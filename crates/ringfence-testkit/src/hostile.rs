//! A hostile server: a real one until a test turns it.
//!
//! It stands in front of a real server and relays commands and replies, so that handshakes and
//! scripts work. Then [`HostileServer::attack`] replaces replies by bytes that hurt the client, or
//! adds pushes that the client did not ask for. The attack begins with the next reply to a command
//! that it is aimed at. Attacks on every reply stop a client during its login; one that is aimed
//! at `EVALSHA` lets it log in and shake hands first, again and again.
//!
//! This file is the test's side. `hostile/connection.rs` relays, and `hostile/attack.rs` says what
//! an attack sends.

mod attack;
mod connection;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::relay;
use crate::server::Server;

/// What a hostile server does to its clients.
#[derive(Clone)]
pub enum Attack {
    /// Sends these bytes in place of a reply: see [`Attack::error`] and [`Attack::text`].
    Reply(Vec<u8>),
    /// Replies with a text of this many bytes: the length is announced, and all bytes are sent.
    LongText {
        /// How long the text is.
        bytes: u64,
    },
    /// Replies with an array of this many numbers, all of which are sent.
    ManyValues {
        /// How many numbers are in the array.
        count: u64,
    },
    /// Replies with an array in an array in an array, complete.
    Nested {
        /// How many arrays are in each other.
        depth: usize,
    },
    /// Sends bytes that are no RESP, as fast as the client takes them. Closes the connection after
    /// that many.
    Garbage {
        /// How many bytes are sent over each connection.
        bytes: u64,
    },
    /// Announces a text of a million bytes and sends one of them now and then, as a slow-loris does.
    Drip {
        /// The time from one byte to the next.
        every: Duration,
    },
    /// Replaces one line of a text such as INFO, `name:value`, and leaves the others as they are.
    /// Replies that are no text, or have no such line, are relayed.
    Field {
        /// What stands before the colon.
        name: &'static str,
        /// What to put behind it.
        value: String,
    },
    /// Relays every reply, and pushes this between them.
    Pushes {
        /// What is pushed.
        push: Push,
        /// How many pushes are sent over each connection.
        per_second: u32,
    },
}

/// One push message of RESP3, of which a hostile server sends many.
#[derive(Clone, Copy)]
pub enum Push {
    /// A message on the channel that the client subscribed to, or on `news` if there is none. The
    /// function writes it, from the channel and the number of the push.
    Message(fn(&str, u64) -> String),
    /// A kind that no client knows, and nothing else. Its name has this many bytes.
    Unknown {
        /// How long the name is.
        bytes: usize,
    },
}

/// A hostile server on a port of its own. Dropping it closes every connection to it.
#[derive(Debug)]
pub struct HostileServer {
    addr: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl HostileServer {
    /// Starts one that relays everything to `server`, and is not hostile yet.
    ///
    /// # Panics
    /// If the server wants TLS, which the relay cannot read, or has only a Unix socket.
    pub fn in_front_of(server: &Server) -> Self {
        assert!(!server.has_tls(), "a hostile server cannot relay TLS");
        let shared = Arc::new(Shared::new(server.addr()));
        let listener = relay::listen();
        let addr = listener.local_addr().expect("a listener has an address");
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || run(listener, &shared)
        });
        Self {
            addr,
            url: server.url_through(addr.port()),
            shared,
            thread: Some(thread),
        }
    }

    /// Where a client finds it.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Its address and port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Attacks with every reply from now on. Pushes begin at once on open connections, and on new
    /// ones with their first reply.
    pub fn attack(&self, attack: Attack) {
        self.order(Some(Order {
            attack,
            command: None,
        }));
    }

    /// Attacks with every reply to `command`, such as `INFO`, and relays replies to others. Pushes
    /// begin with the first reply to it.
    pub fn attack_replies_to(&self, command: &'static str, attack: Attack) {
        self.order(Some(Order {
            attack,
            command: Some(command),
        }));
    }

    /// Is honest from now on. Connections in the middle of an attack are closed.
    pub fn behave(&self) {
        self.order(None);
    }

    /// How many bytes of attacks clients have taken so far.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::SeqCst)
    }

    /// How many pushes clients have taken so far.
    pub fn pushes(&self) -> u64 {
        self.shared.pushes.load(Ordering::SeqCst)
    }

    /// How many attacks have begun: replies that were replaced, and floods of pushes.
    pub fn attacks(&self) -> usize {
        self.shared.attacks.load(Ordering::SeqCst)
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    fn order(&self, order: Option<Order>) {
        let order = order.map(Arc::new);
        self.shared.state.send_modify(|state| state.order = order);
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.stopped = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Attack {
    /// The reply `-text`: an error.
    pub fn error(text: &str) -> Self {
        Self::Reply(format!("-{text}\r\n").into_bytes())
    }

    /// The reply `text`, with its length before it.
    pub fn text(text: &str) -> Self {
        Self::Reply(crate::resp::bulk(text.as_bytes()))
    }
}

/// The contents may be megabytes.
impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(bytes) => write!(f, "a reply of {} bytes", bytes.len()),
            Self::LongText { bytes } => write!(f, "a text of {bytes} bytes"),
            Self::ManyValues { count } => write!(f, "an array of {count} values"),
            Self::Nested { depth } => write!(f, "{depth} nested arrays"),
            Self::Garbage { bytes } => write!(f, "{bytes} bytes of garbage"),
            Self::Drip { every } => write!(f, "one byte every {every:?}"),
            Self::Field { name, value } => write!(f, "a {name} of {} bytes", value.len()),
            Self::Pushes { push, per_second } => write!(f, "{per_second} {push:?} a second"),
        }
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(_) => f.write_str("pushed messages"),
            Self::Unknown { bytes } => write!(f, "unknown pushes of {bytes} bytes"),
        }
    }
}

/// What the test's thread and the server's thread share.
#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: watch::Sender<State>,
    sent_bytes: AtomicU64,
    pushes: AtomicU64,
    attacks: AtomicUsize,
    accepted: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Debug, Clone, Default)]
struct State {
    order: Option<Arc<Order>>,
    stopped: bool,
}

#[derive(Debug)]
struct Order {
    attack: Attack,
    /// The command whose replies it concerns, or all.
    command: Option<&'static str>,
}

impl Shared {
    fn new(server: SocketAddr) -> Self {
        Self {
            server,
            state: watch::Sender::default(),
            sent_bytes: AtomicU64::default(),
            pushes: AtomicU64::default(),
            attacks: AtomicUsize::default(),
            accepted: AtomicUsize::default(),
            open: AtomicUsize::default(),
        }
    }
}

/// Serves connections until the server is dropped.
fn run(listener: TcpListener, shared: &Arc<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("cannot start the hostile server's runtime");
    runtime
        .block_on(connection::accept_all(listener, shared))
        .expect("the hostile server cannot listen");
}
