//! A hostile server: it behaves like a real server until a test starts an attack.
//!
//! It is in front of a real server and relays commands and replies, so handshakes and scripts work.
//! [`HostileServer::attack`] then replaces replies by bytes that harm the client, or adds pushes
//! that the client did not ask for. The attack begins with the next reply to its target command. An
//! attack on every reply stops a client during its login. An attack on `EVALSHA` replies lets the
//! client log in and finish its handshake every time.
//!
//! This file is the test's side. `hostile/connection.rs` relays, and `hostile/attack.rs` has the
//! bytes of each attack.

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
    /// Sends these bytes instead of a reply: see [`Attack::error`] and [`Attack::text`].
    Reply(Vec<u8>),
    /// Replies with a text of this many bytes, with its length first, and sends all of it.
    LongText {
        /// The length of the text.
        bytes: u64,
    },
    /// Replies with an array of this many numbers, and sends all of it.
    ManyValues {
        /// The number of elements.
        count: u64,
    },
    /// Replies with nested arrays, complete.
    Nested {
        /// The depth of the nesting.
        depth: usize,
    },
    /// Sends bytes that are not RESP, as fast as the client reads them. Closes the connection after
    /// that many.
    Garbage {
        /// The number of bytes for each connection.
        bytes: u64,
    },
    /// Announces a text of a million bytes and sends one byte at a time, like a slow-loris attack.
    Drip {
        /// The time between two bytes.
        every: Duration,
    },
    /// Replaces one line of a text such as INFO, `name:value`, and keeps the other lines. Relays
    /// replies that are not a text or have no such line.
    Field {
        /// The name before the colon.
        name: &'static str,
        /// The new value.
        value: String,
    },
    /// Lists names without end, in place of the locks that the server has, and says that each is held.
    /// Relays all other replies.
    EndlessList {
        /// The length of each name.
        name_bytes: usize,
    },
    /// Relays every reply, and sends pushes between them.
    Pushes {
        /// The push.
        push: Push,
        /// The number of pushes per second on each connection.
        per_second: u32,
    },
}

/// One push message of RESP3; a hostile server sends many of them.
#[derive(Clone, Copy)]
pub enum Push {
    /// A message on the channel that the client subscribed to, or on `news` if there is none. The
    /// function makes the text from the channel and the number of the push.
    Message(fn(&str, u64) -> String),
    /// A push of an unknown kind without content. Its name has this many bytes.
    Unknown {
        /// The length of the name.
        bytes: usize,
    },
}

/// A hostile server on its own port. Dropping it closes all its connections.
#[derive(Debug)]
pub struct HostileServer {
    addr: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl HostileServer {
    /// Starts one that relays everything to `server` and does not attack yet.
    ///
    /// # Panics
    /// If the server uses TLS, which the relay cannot read, or has only a Unix socket.
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

    /// The URL for a client.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Its address and port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Attacks with every reply from now on. Pushes begin at once on open connections, and on new
    /// connections with their first reply.
    pub fn attack(&self, attack: Attack) {
        self.order(Some(Order {
            attack,
            command: None,
        }));
    }

    /// Attacks with every reply to `command`, such as `INFO`, and relays all other replies. Pushes
    /// begin with the first reply to `command`.
    pub fn attack_replies_to(&self, command: &'static str, attack: Attack) {
        self.order(Some(Order {
            attack,
            command: Some(command),
        }));
    }

    /// Stops the attack. Connections in the middle of an attack are closed.
    pub fn behave(&self) {
        self.order(None);
    }

    /// How many bytes of attacks clients have read so far.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::SeqCst)
    }

    /// How many pushes clients have read so far.
    pub fn pushes(&self) -> u64 {
        self.shared.pushes.load(Ordering::SeqCst)
    }

    /// How many attacks have begun: replaced replies, and floods of pushes.
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
    /// The error reply `-text`.
    pub fn error(text: &str) -> Self {
        Self::Reply(format!("-{text}\r\n").into_bytes())
    }

    /// The reply `text`, with its length first.
    pub fn text(text: &str) -> Self {
        Self::Reply(crate::resp::bulk(text.as_bytes()))
    }
}

/// Without the contents, which may be megabytes.
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
            Self::EndlessList { name_bytes } => write!(f, "names of {name_bytes} bytes"),
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

/// The state that the test's thread and the server's thread share.
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
    /// The target command, or all commands.
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
