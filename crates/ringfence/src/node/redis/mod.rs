//! A Redis or Valkey server as a node. The server runs the ledger in Lua, one file per operation.
//! The link handles the connection, in a task that all links of a client share.

mod bundle;
mod changes;
mod command;
mod detached;
mod key;
mod link;
mod queue;
mod record;
mod reply;
mod session;
mod session_maker;
mod terms;

mod access;
mod examine;
#[cfg(any(test, fuzzing))]
pub mod fuzz_inputs;
mod handshake;
mod report;
mod scripts;
mod sentinel;
mod transport;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use crate::client::{ConnectError, tokio_runtime};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::environment::{OwnerProcess, own_task};
use crate::group::Group;
use crate::node::Tier;
use crate::url::{Address, RedisUrl};

use self::detached::DetachedConnection;
use self::handshake::Handshake;
use self::handshake::server::UrlOptions;
use self::link::Link;
use self::queue::{Work, WorkQueue};
use self::report::Reporter;
use self::sentinel::Sentinels;
use self::session_maker::SessionMaker;
use self::transport::connection_set::{ConnectionSet, ConnectionTask, FlushFlag};
use self::transport::dial::Dial;
use self::transport::wake_listeners::WakeListeners;

pub use self::access::acl::acl_line;
pub(crate) use self::examine::Examiner;
pub use self::transport::tls::TlsError;

/// A Redis or Valkey server as a node.
///
/// Dropping it ends its connection once all calls that were sent before are answered.
pub struct RedisNode {
    name: Arc<str>,
    work: mpsc::UnboundedSender<Work>,
    /// The link as its task runs it.
    member: Arc<ConnectionTask>,
    /// The connection, after its tokio runtime has ended.
    detached: Arc<Mutex<Option<DetachedConnection>>>,
    listeners: Arc<WakeListeners>,
    tier: Arc<Mutex<Option<Tier>>>,
    /// The Sentinels that name the server, if its URL has any.
    sentinels: Option<Arc<Sentinels>>,
    /// For connections beside that of the link.
    dial: Arc<Dial>,
    clock: Clock,
    reporter: Reporter,
    options: UrlOptions,
    process: OwnerProcess,
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        if !self.process.is_ours() {
            let connection = (Arc::clone(&self.member), Arc::clone(&self.detached));
            std::mem::forget((self.work.clone(), connection, self.sentinels.take()));
        }
    }
}

impl RedisNode {
    /// The node that `url` names. Returns at once. The connection is made in the background, and
    /// made again whenever it is lost.
    ///
    /// # Errors
    /// Outside a tokio runtime, or if the URL's TLS files cannot be used. An unreachable
    /// server is not an error here: the calls report it.
    pub fn connect(url: RedisUrl, clock: Clock) -> Result<Self, ConnectError> {
        let prepared = Self::prepare(url, clock, false)?;
        Ok(start([prepared])?.remove(0))
    }

    fn prepare(
        url: RedisUrl,
        clock: Clock,
        never_joins: bool,
    ) -> Result<PreparedNode, ConnectError> {
        let options = UrlOptions {
            never_joins,
            ..UrlOptions::of(&url)
        };
        let dial = Arc::new(Dial::url(&url)?);
        let name = url.address.to_string();
        let reporter = Reporter::of(&url);
        let sentinels = match &url.address {
            Address::Service(service) => {
                let login = url.sentinel.clone().unwrap_or_default();
                Some(Arc::new(Sentinels::of(service, &login, clock.clone())?))
            }
            Address::Tcp(..) | Address::Unix(_) => None,
        };
        Ok(Self::with_link(
            dial,
            name.into(),
            reporter,
            options,
            clock,
            sentinels,
            None,
        ))
    }

    /// Another node of the same server, with a connection of its own in the current tokio runtime.
    /// It asks the Sentinels itself.
    fn again(&self, group: Group) -> Result<Self, ConnectError> {
        let sentinels = self.sentinels.as_ref().map(|known| {
            let sentinels = known.again();
            sentinels.adopt(&group);
            Arc::new(sentinels)
        });
        let prepared = Self::with_link(
            Arc::clone(&self.dial),
            Arc::clone(&self.name),
            self.reporter.clone(),
            self.options,
            self.clock.clone(),
            sentinels,
            Some(group),
        );
        Ok(start([prepared])?.remove(0))
    }

    /// The nodes that `urls` name, as [`RedisNode::connect`] makes them, with one task for all
    /// their connections. If it `never_joins`, nothing is written to them.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub(crate) fn connect_all(
        urls: Vec<RedisUrl>,
        clock: &Clock,
        never_joins: bool,
    ) -> Result<Vec<Self>, ConnectError> {
        let prepared = urls
            .into_iter()
            .map(|url| Self::prepare(url, clock.clone(), never_joins));
        start(prepared.collect::<Result<Vec<_>, _>>()?)
    }

    /// The node that `client` connects to, with `name` as its name in messages.
    ///
    /// If `client` has TLS settings of its own (a root certificate or an identity), the crate
    /// `redis` makes and reads the connection, and does not bound the length of a reply. For a
    /// server that is not trusted, use a URL with `?ca=`, `?cert=` and `?key=`.
    ///
    /// # Errors
    /// As [`RedisNode::connect`].
    pub fn from_client(
        client: redis::Client,
        name: &str,
        clock: Clock,
    ) -> Result<Self, ConnectError> {
        let settings = client.get_connection_info().redis_settings();
        let options = UrlOptions {
            // A server has no database with a negative number, and refuses it.
            database: u32::try_from(settings.db()).unwrap_or(u32::MAX),
            ..UrlOptions::default()
        };
        let reporter = Reporter::new(name, settings.username(), settings.password());
        let dial = Arc::new(Dial::client(client)?);
        let name = Arc::from(name);
        let prepared = Self::with_link(dial, name, reporter, options, clock, None, None);
        Ok(start([prepared])?.remove(0))
    }

    /// A node before its link runs. It joins `group` with its first connection, if that is known.
    fn with_link(
        dial: Arc<Dial>,
        name: Arc<str>,
        reporter: Reporter,
        options: UrlOptions,
        clock: Clock,
        sentinels: Option<Arc<Sentinels>>,
        group: Option<Group>,
    ) -> PreparedNode {
        let (work, arriving) = mpsc::unbounded_channel();
        let mut queue = WorkQueue::new(arriving, clock.clone());
        queue.group = group;
        let handshake = Handshake {
            reporter: reporter.clone(),
            options,
            clock: clock.clone(),
            sentinels: sentinels.clone(),
            told_unseen: AtomicBool::default(),
            replicas_seen: AtomicBool::default(),
        };
        let listeners = Arc::new(WakeListeners::new(clock.clone()));
        let tier = Arc::default();
        let maker = SessionMaker {
            dial: Arc::clone(&dial),
            handshake,
            listeners: Arc::clone(&listeners),
            tier: Arc::clone(&tier),
        };
        let (flush, detached) = (Arc::<FlushFlag>::default(), Arc::default());
        let link = Link::new(
            maker,
            queue,
            Entropy::default().seed(),
            Arc::clone(&flush),
            Arc::clone(&detached),
        );
        let asking = sentinels.as_ref().map(sentinel::run);
        let node = move |member| Self {
            name,
            work,
            member,
            detached,
            listeners,
            tier,
            sentinels,
            dial,
            clock,
            process: OwnerProcess::current(),
            reporter,
            options,
        };
        PreparedNode {
            node: Box::new(node),
            link,
            flush,
            asking: asking.map(|asking| Box::pin(asking) as Asking),
        }
    }
}

/// A node before its link runs.
struct PreparedNode {
    node: Box<dyn FnOnce(Arc<ConnectionTask>) -> RedisNode>,
    link: Link,
    flush: Arc<FlushFlag>,
    asking: Option<Asking>,
}

/// Asks the Sentinels of a node.
type Asking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts the links of `prepared` in one task.
fn start(prepared: impl IntoIterator<Item = PreparedNode>) -> Result<Vec<RedisNode>, ConnectError> {
    let runtime = tokio_runtime::with_sockets()?;
    let mut prepared: Vec<PreparedNode> = prepared.into_iter().collect();
    for asking in prepared.iter_mut().filter_map(|one| one.asking.take()) {
        runtime.spawn(own_task(asking));
    }
    let (nodes, links): (Vec<_>, Vec<_>) = prepared
        .into_iter()
        .map(|one| (one.node, (one.link.run(), one.flush)))
        .unzip();
    let set = ConnectionSet::new(links, Some(runtime.clone()));
    let members = set.members();
    runtime.spawn(own_task(set));
    let nodes = nodes.into_iter().zip(members);
    Ok(nodes.map(|(node, member)| node(member)).collect())
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode").field(&self.name).finish()
    }
}
