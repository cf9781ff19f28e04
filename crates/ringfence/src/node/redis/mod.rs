//! A Redis or Valkey server as a node. The ledger is written in Lua there, one file per operation;
//! everything about the connection is the link's business, in a task that the links of a client share.

mod acl;
mod allowance;
mod backoff;
mod born;
mod bundle;
mod command;
mod denial;
mod dial;
mod ears;
mod examine;
mod flight;
mod flush;
mod frame;
mod handshake;
mod key;
mod last_words;
mod limits;
mod line;
mod link;
#[cfg(any(test, fuzzing))]
pub mod outside;
mod packer;
mod queue;
mod reply;
mod report;
mod rights;
mod script;
mod search;
mod server;
mod tls;
mod together;
mod watch;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::group::Group;
use crate::node::{
    Call, CallError, Completion, Facts, Hear, InitMode, Node, Tier, Trouble, TroubleKind,
};
use crate::url::RedisUrl;

use self::dial::Dial;
use self::ears::Ears;
use self::flush::FlushFlag;
use self::handshake::Handshake;
use self::last_words::LastWords;
use self::link::{Link, Maker};
use self::queue::{Control, Queue, Work};
use self::report::Reporter;
use self::server::Leniency;
use self::together::{Member, Together};

pub use self::acl::acl_line;
pub(crate) use self::examine::Examiner;
pub use self::tls::TlsError;

/// A Redis or Valkey server as a node.
///
/// Dropping it ends its connection once what was sent before is answered.
pub struct RedisNode {
    name: Arc<str>,
    work: mpsc::UnboundedSender<Work>,
    /// The link as its task runs it.
    member: Arc<Member>,
    /// The connection, after its runtime has ended.
    last_words: Arc<Mutex<Option<LastWords>>>,
    ears: Arc<Ears>,
    tier: Arc<Mutex<Option<Tier>>>,
}

/// Why a node cannot even be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no tokio runtime to run the node's task.
    #[error("a Redis node must be made inside a tokio runtime")]
    NoRuntime,
    /// The TLS files of the URL cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl RedisNode {
    /// The node that `url` names. Returns at once; the connection is made in the background, and
    /// made again whenever it is lost.
    ///
    /// # Errors
    /// Outside a tokio runtime, or if the URL's TLS files cannot be used. An unreachable server is no
    /// error here: it is what calls are answered with.
    pub fn connect(url: RedisUrl, clock: Clock) -> Result<Self, ConnectError> {
        let prepared = Self::prepare(url, clock)?;
        Ok(start([prepared])?.remove(0))
    }

    fn prepare(url: RedisUrl, clock: Clock) -> Result<Prepared, ConnectError> {
        let leniency = Leniency {
            no_quarantine: !url.quarantine,
            eviction_allowed: url.eviction_allowed,
            said_durable: url.durable,
        };
        let dial = Dial::url(&url)?;
        let name = url.address.to_string();
        let reporter = Reporter::new(&name, url.user.as_deref(), url.password.as_deref());
        Ok(Self::with_link(dial, name, reporter, leniency, clock))
    }

    /// The nodes that `urls` name, as [`RedisNode::connect`] makes them, with one task for all their
    /// connections.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub(crate) fn connect_all(
        urls: Vec<RedisUrl>,
        clock: &Clock,
    ) -> Result<Vec<Self>, ConnectError> {
        let prepared = urls
            .into_iter()
            .map(|url| Self::prepare(url, clock.clone()));
        start(prepared.collect::<Result<Vec<_>, _>>()?)
    }

    /// The node that `client` connects to, known to people as `name`.
    ///
    /// If `client` has TLS settings of its own (a root certificate or an identity), the connection is
    /// made and read by the crate `redis`, which does not bound how long a reply may be. Use a URL with
    /// `?ca=`, `?cert=` and `?key=` where a server is not trusted that far.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub fn from_client(
        client: redis::Client,
        name: &str,
        clock: Clock,
    ) -> Result<Self, ConnectError> {
        let leniency = Leniency {
            no_quarantine: false,
            eviction_allowed: false,
            said_durable: false,
        };
        let settings = client.get_connection_info().redis_settings();
        let reporter = Reporter::new(name, settings.username(), settings.password());
        let dial = Dial::client(client)?;
        let prepared = Self::with_link(dial, name.to_owned(), reporter, leniency, clock);
        Ok(start([prepared])?.remove(0))
    }

    /// A node before its link runs.
    fn with_link(
        dial: Dial,
        name: String,
        reporter: Reporter,
        leniency: Leniency,
        clock: Clock,
    ) -> Prepared {
        let name: Arc<str> = name.into();
        let (work, arriving) = mpsc::unbounded_channel();
        let queue = Queue::new(arriving, clock.clone());
        let handshake = Handshake {
            reporter,
            leniency,
            clock: clock.clone(),
        };
        let ears = Arc::new(Ears::new(clock));
        let tier = Arc::default();
        let maker = Maker {
            dial,
            handshake,
            ears: Arc::clone(&ears),
            tier: Arc::clone(&tier),
        };
        let (flush, last_words) = (Arc::<FlushFlag>::default(), Arc::default());
        let link = Link::new(
            maker,
            queue,
            Entropy::system().seed(),
            Arc::clone(&flush),
            Arc::clone(&last_words),
        );
        let node = move |member| Self {
            name,
            work,
            member,
            last_words,
            ears,
            tier,
        };
        Prepared {
            node: Box::new(node),
            link,
            flush,
        }
    }

    fn enqueue(&self, work: Work) {
        // The task ends before the node does only when its runtime is shut down, or it panicked.
        if let Err(mpsc::error::SendError(work)) = self.work.send(work) {
            if self.was_said_last(&work) {
                let what = format!(
                    "{} was told, but its reply cannot be read: the tokio runtime has ended",
                    self.name
                );
                let trouble = Trouble::new(TroubleKind::Disconnected, what);
                return work.fail(CallError::Unknown(trouble));
            }
            let what = format!(
                "{} was not asked: the task of its connection has ended, perhaps with its runtime",
                self.name
            );
            work.refuse(&CallError::NotSent(Trouble::new(
                TroubleKind::Disconnected,
                what,
            )));
        }
    }

    /// Whether `work` was written to a connection that its runtime has left behind.
    fn was_said_last(&self, work: &Work) -> bool {
        let Work::Call(call) = work else {
            return false;
        };
        let mut words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        words.as_mut().is_some_and(|words| words.say(&call.request))
    }
}

/// A node before its link runs.
struct Prepared {
    node: Box<dyn FnOnce(Arc<Member>) -> RedisNode>,
    link: Link,
    flush: Arc<FlushFlag>,
}

/// Starts the links of `prepared` in one task.
fn start(prepared: impl IntoIterator<Item = Prepared>) -> Result<Vec<RedisNode>, ConnectError> {
    let runtime = runtime()?;
    let (nodes, links): (Vec<_>, Vec<_>) = prepared
        .into_iter()
        .map(|one| (one.node, (one.link.run(), one.flush)))
        .unzip();
    let together = Together::new(links, Some(runtime.clone()));
    let members = together.members();
    runtime.spawn(together);
    let nodes = nodes.into_iter().zip(members);
    Ok(nodes.map(|(node, member)| node(member)).collect())
}

fn runtime() -> Result<tokio::runtime::Handle, ConnectError> {
    tokio::runtime::Handle::try_current().map_err(|_| ConnectError::NoRuntime)
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Call) {
        self.enqueue(Work::Call(call));
    }

    /// A connection that only the client library can make is flushed by the library's own task, if
    /// that still runs.
    fn flush(&self) {
        self.member.flush();
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.ears.add(client, to);
        self.enqueue(Work::Listen);
    }

    fn tier(&self) -> Option<Tier> {
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probe(&self, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Probe(done)));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Join(group, done)));
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Init(group, mode, done)));
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode").field(&self.name).finish()
    }
}
