//! The list of the locks that are held or queued for, and of those that operators broke.
//!
//! There is no index of the locks: it would cost every lock a write. So the nodes are searched for
//! their records ([`search`](self::search)), and the names that were found are inspected
//! ([`reading`](self::reading)).

mod reading;
mod search;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::message::BreakNote;
use crate::name::Name;
use crate::node::CallError;
use crate::protocol::{Discount, quorum};
use crate::time::Timestamp;

use super::Locks;
use super::error::{InspectError, ListError};
use super::inspection::{Inspection, LatchInspection, SemaphoreInspection};

use reading::{NAMES_AT_ONCE, Parts};
use search::GroupSearch;

/// A search of all nodes for the locks that are held or queued for. [`Locks::list`] makes it.
///
/// It goes on step by step, for as long as the caller wants: after the last step of a round the
/// next step begins the next round. Each step searches a small portion of every node's keys, and
/// waits before it if that is necessary: the search takes at most one per cent of a server's time.
/// Dropping it at any time leaves nothing behind.
#[must_use = "nothing is searched before `step` or `collect` is called"]
pub struct Listing {
    search: GroupSearch,
    wanted: Option<NameFilter>,
    /// Whether locks are listed that only a minority of the nodes has.
    remnants: bool,
    /// What was found in this round, by the name of the user.
    found: BTreeMap<Name, Parts>,
    /// Names that were found and not yet inspected.
    unread: Vec<Name>,
}

type NameFilter = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What one step of a [`Listing`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListStep {
    /// The locks that are held or queued for. A lock that was found before in this round replaces
    /// the earlier one: more of it was found.
    pub locks: Vec<ListedLock>,
    /// Names that were found but could not be inspected.
    pub unreadable: Vec<UnreadableName>,
    /// Whether the round is over: every node that answers was searched completely. If a majority
    /// [votes](Self::has_quorum), a lock that was not in any step of the round is free.
    pub complete: bool,
    /// How long ago the round began.
    pub round_age: Duration,
    /// How far the search of each node is, in node order.
    pub nodes: Vec<NodeSearch>,
}

/// All locks that one round of a [`Listing`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockList {
    /// The locks, by name.
    pub locks: Vec<ListedLock>,
    /// Names that were found but could not be inspected.
    pub unreadable: Vec<UnreadableName>,
    /// How long the round took. A lock that was taken meanwhile may be missing.
    pub took: Duration,
    /// How the search of each node ended, in node order.
    pub nodes: Vec<NodeSearch>,
}

/// A name in a list, as a majority of the nodes sees it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ListedLock {
    /// The name, without the prefix of the client. It comes from other programs: escape it before
    /// it reaches a terminal.
    pub name: String,
    /// The lock of this name, if it is held or queued for.
    pub lock: Option<Inspection>,
    /// The semaphore of this name, if it is held or queued for. Slots behind the last one that is
    /// held may be missing.
    pub semaphore: Option<SemaphoreInspection>,
    /// The latch of this name, if a party has arrived there or a client waits.
    pub latch: Option<LatchInspection>,
    read_at: Timestamp,
    clock: Clock,
}

/// A name in a list that could not be inspected.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnreadableName {
    /// The name, as in [`ListedLock::name`].
    pub name: String,
    /// Why: for example, the user of this client may not read it.
    pub error: InspectError,
}

/// The search of one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeSearch {
    /// The name of the node.
    pub node: String,
    /// Whether its search of this round is over.
    pub done: bool,
    /// Why it was not searched completely in this round.
    pub error: Option<CallError>,
    /// Why it does not vote although it answers: a quarantine, or a clock that jumped.
    pub discount: Option<Discount>,
}

impl ListStep {
    /// Whether a majority of the nodes answers and votes. Otherwise the list shows what single nodes
    /// have, and locks that no client can see may be missing.
    pub fn has_quorum(&self) -> bool {
        has_quorum(&self.nodes)
    }
}

impl LockList {
    /// As [`ListStep::has_quorum`].
    pub fn has_quorum(&self) -> bool {
        has_quorum(&self.nodes)
    }
}

impl NodeSearch {
    /// Whether it answers and its vote counts.
    pub fn votes(&self) -> bool {
        self.error.is_none() && self.discount.is_none()
    }
}

fn has_quorum(nodes: &[NodeSearch]) -> bool {
    let voting = nodes.iter().filter(|node| node.votes()).count();
    voting >= quorum(nodes.len())
}

/// A hold that an operator broke, as the nodes remember it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListedBreak {
    /// The name, as in [`ListedLock::name`].
    pub name: String,
    /// The slot, if a permit of the semaphore of this name was broken.
    pub slot: Option<u32>,
    /// Who broke whose hold, and why.
    pub note: BreakNote,
    /// How long ago, by the clock of the node that remembers it longest.
    pub ago: Duration,
    /// How many nodes remember it.
    pub nodes: usize,
}

impl Locks {
    /// Searches all nodes for the locks that are held or queued for.
    ///
    /// Plain locks and locks of other libraries have no record, so they cannot be found.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders:42").label("checkout").lock().await?;
    /// let list = locks.list().collect().await?;
    /// let lock = list.locks[0].lock.as_ref().expect("a mutex");
    /// assert_eq!(list.locks[0].name, "orders:42");
    /// assert_eq!((lock.label.as_deref(), lock.fence), (Some("checkout"), Some(guard.fence())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> Listing {
        Listing {
            search: GroupSearch::new(self.clone(), false),
            wanted: None,
            remnants: false,
            found: BTreeMap::new(),
            unread: Vec::new(),
        }
    }

    /// The holds that operators broke lately, the latest first: at most 8 of each name. Nodes
    /// remember them for 7 days unless the operator said otherwise.
    ///
    /// # Errors
    /// If no majority of the nodes answers.
    pub async fn list_breaks(&self) -> Result<Vec<ListedBreak>, ListError> {
        self.own(self.list_breaks_here()).await
    }

    async fn list_breaks_here(&self) -> Result<Vec<ListedBreak>, ListError> {
        let mut search = GroupSearch::new(self.clone(), true);
        let mut breaks: BTreeMap<(Name, u64, String), ListedBreak> = BTreeMap::new();
        loop {
            let found = search.next_portions().await?;
            search.check_quorum()?;
            for found in found {
                for (key, note) in found.portion.breaks {
                    let Some(name) = self.name_of_user(&key) else {
                        continue;
                    };
                    let passed = found.clock_us.saturating_sub(note.at_us);
                    let ago = Duration::from_micros(passed);
                    let slot = key.slot_number();
                    let key = (key, note.fence.get(), note.id.clone());
                    let one = breaks.entry(key).or_insert_with(|| ListedBreak {
                        name: name.given,
                        slot,
                        note,
                        ago,
                        nodes: 0,
                    });
                    one.ago = one.ago.max(ago);
                    one.nodes += 1;
                }
            }
            if search.is_complete() {
                break;
            }
        }
        let mut breaks: Vec<ListedBreak> = breaks.into_values().collect();
        breaks.sort_by_key(|one| one.ago);
        Ok(breaks)
    }

    /// The name that a user of this client gives to the lock, semaphore or latch at `key`. `None`
    /// if it does not begin with the prefix of this client.
    pub(super) fn name_of_user(&self, key: &Name) -> Option<UserName> {
        let prefix = &*self.shared.settings.prefix;
        let given = key.given().strip_prefix(prefix)?.to_owned();
        let name = Name::new(prefix, &given).ok()?;
        Some(UserName { given, name })
    }
}

/// A name as the user of a client gives it, and with the prefix of the client.
pub(super) struct UserName {
    pub(super) given: String,
    name: Name,
}

impl Listing {
    /// Lists only the names for which `wanted` returns true. Others are not inspected.
    pub fn only(mut self, wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.wanted = Some(Box::new(wanted));
        self
    }

    /// Also lists locks that no majority of the nodes has: what a failed release or a crashed
    /// attempt left on a minority, or a vote that is split between several clients.
    pub fn with_remnants(mut self) -> Self {
        self.remnants = true;
        self
    }

    /// Searches the next portion of every node, and inspects the names that were found there.
    ///
    /// # Errors
    /// If no node answers. The next step begins a new round.
    pub async fn step(&mut self) -> Result<ListStep, ListError> {
        let locks = self.search.locks().clone();
        locks.own(self.step_here()).await
    }

    async fn step_here(&mut self) -> Result<ListStep, ListError> {
        if self.search.is_complete() {
            self.search.restart();
            self.found.clear();
            self.unread.clear();
        }
        let read = match self.find().await {
            Ok(parts) => {
                let searched = self.search.searched();
                let locks = self.search.locks();
                locks.read(parts, &searched, self.remnants).await
            }
            Err(error) => Err(error),
        };
        let (locks, unreadable) = match read {
            Ok(read) => read,
            Err(error) => {
                self.search.give_up();
                return Err(error);
            }
        };
        Ok(ListStep {
            locks,
            unreadable,
            complete: self.search.is_complete(),
            round_age: self.search.round_age(),
            nodes: self.search.nodes(),
        })
    }

    /// Searches until the round is over.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn collect(mut self) -> Result<LockList, ListError> {
        let (mut locks, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        loop {
            let step = self.step().await?;
            let found = step.locks.into_iter();
            locks.extend(found.map(|lock| (lock.name.clone(), lock)));
            let failed = step.unreadable.into_iter();
            unreadable.extend(failed.map(|one| (one.name.clone(), one)));
            if step.complete {
                return Ok(LockList {
                    locks: locks.into_values().collect(),
                    unreadable: unreadable.into_values().collect(),
                    took: self.search.round_age(),
                    nodes: step.nodes,
                });
            }
        }
    }

    /// The names of which the next portions show something new, and what was found of them. If there
    /// are many, those that do not fill a request wait for the next step.
    async fn find(&mut self) -> Result<Vec<(Parts, Name)>, ListError> {
        let found = self.search.next_portions().await?;
        let mut changed = std::mem::take(&mut self.unread);
        let keys = found.into_iter().flat_map(|found| found.portion.names);
        for key in keys {
            let Some(UserName { given, name }) = self.search.locks().name_of_user(&key) else {
                continue;
            };
            if self.wanted.as_ref().is_some_and(|wanted| !wanted(&given)) {
                continue;
            }
            let parts = self.found.entry(name.clone());
            let parts = parts.or_insert_with(|| Parts::new(Arc::from(given)));
            if parts.add(&key) {
                changed.push(name);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        if changed.len() > NAMES_AT_ONCE && !self.search.is_complete() {
            let whole = changed.len() - changed.len() % NAMES_AT_ONCE;
            self.unread = changed.split_off(whole);
        }
        let parts = changed.into_iter();
        let parts = parts.filter_map(|name| Some((self.found.get(&name)?.clone(), name)));
        Ok(parts.collect())
    }
}

impl ListedLock {
    /// How long ago it was inspected.
    pub fn age(&self) -> Duration {
        self.clock.now().since(self.read_at)
    }
}

impl fmt::Debug for ListedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListedLock")
            .field("name", &self.name)
            .field("lock", &self.lock)
            .field("semaphore", &self.semaphore)
            .field("latch", &self.latch)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("nodes", &self.search.nodes())
            .finish_non_exhaustive()
    }
}
