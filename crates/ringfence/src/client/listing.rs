//! The list of the locks that are held or queued for, and of those that operators broke.
//!
//! There is no index of the locks: it would cost every lock a write. So the nodes are searched for
//! their records ([`search`](self::search)), and the names that were found are inspected
//! ([`reading`](self::reading)).

mod memory;
mod reading;
mod search;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::message::BreakNote;
use crate::name::Name;
use crate::node::CallError;
use crate::protocol::{Vote, quorum};
use crate::time::Timestamp;

use super::Locks;
use super::error::{InspectError, ListError};
use super::inspection::{Inspection, LatchInspection, SemaphoreInspection};

use reading::{KEYS_AT_ONCE, NAMES_AT_ONCE, Parts};
use search::GroupSearch;

/// About how much memory the locks of a [`LockList`] may take.
const LIST_MAX_BYTES: usize = 64 << 20;

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
    /// [votes](Self::has_quorum) and the list is not [shortened](Self::is_shortened), a lock that
    /// was not in any step of the round is free.
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
    /// Whether it ended because the locks take too much memory.
    is_full: bool,
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
    pub discount: Option<Vote>,
    /// Its search ended after this many names, because it has more: a list is limited to 100,000
    /// names of a node, or to 8 MiB of them.
    pub cut_after: Option<usize>,
}

impl ListStep {
    /// Whether a majority of the nodes answers and votes. Otherwise the list shows what single nodes
    /// have, and locks that no client can see may be missing.
    pub fn has_quorum(&self) -> bool {
        has_quorum(&self.nodes)
    }

    /// Whether locks may be missing because the nodes have too many names
    /// ([`NodeSearch::cut_after`]). [`Listing::only`] lists fewer.
    pub fn is_shortened(&self) -> bool {
        is_shortened(&self.nodes)
    }
}

impl LockList {
    /// As [`ListStep::has_quorum`].
    pub fn has_quorum(&self) -> bool {
        has_quorum(&self.nodes)
    }

    /// As [`ListStep::is_shortened`]; also if the list would take more than about 64 MiB. Then use
    /// [`Listing::step`].
    pub fn is_shortened(&self) -> bool {
        self.is_full || is_shortened(&self.nodes)
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

/// A lock that a majority has is found on any majority that was searched to its end.
fn is_shortened(nodes: &[NodeSearch]) -> bool {
    let whole = |node: &&NodeSearch| node.error.is_none() && node.cut_after.is_none();
    let is_cut = |node: &NodeSearch| node.cut_after.is_some();
    nodes.iter().filter(whole).count() < quorum(nodes.len()) && nodes.iter().any(is_cut)
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
            for found in found {
                for (key, note) in found.portion.breaks {
                    let Some(name) = self.name_of_user(&key) else {
                        continue;
                    };
                    if !search.takes_break(found.node) {
                        break;
                    }
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
            search.check_quorum()?;
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
        if self.is_complete() {
            self.search.restart();
            self.found.clear();
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
                self.unread.clear();
                return Err(error);
            }
        };
        Ok(ListStep {
            locks,
            unreadable,
            complete: self.is_complete(),
            round_age: self.search.round_age(),
            nodes: self.search.nodes(),
        })
    }

    /// Whether the round is over.
    fn is_complete(&self) -> bool {
        self.search.is_complete() && self.unread.is_empty()
    }

    /// Searches until the round is over, or until the list takes too much memory
    /// ([`LockList::is_shortened`]).
    ///
    /// # Errors
    /// If no node answers.
    pub async fn collect(mut self) -> Result<LockList, ListError> {
        let (mut locks, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        let mut bytes = 0;
        loop {
            let step = self.step().await?;
            bytes += step.memory();
            let found = step.locks.into_iter();
            locks.extend(found.map(|lock| (lock.name.clone(), lock)));
            let failed = step.unreadable.into_iter();
            unreadable.extend(failed.map(|one| (one.name.clone(), one)));
            let is_full = bytes > LIST_MAX_BYTES;
            if step.complete || is_full {
                return Ok(LockList {
                    is_full,
                    locks: locks.into_values().collect(),
                    unreadable: unreadable.into_values().collect(),
                    took: self.search.round_age(),
                    nodes: step.nodes,
                });
            }
        }
    }

    /// The names of which the next portions show something new, and what was found of them. If there
    /// are many, the others wait for the next step; so do those that do not fill a request.
    async fn find(&mut self) -> Result<Vec<(Parts, Name)>, ListError> {
        let mut changed = std::mem::take(&mut self.unread);
        if changed.len() < NAMES_AT_ONCE && !self.search.is_complete() {
            for found in self.search.next_portions().await? {
                self.note(found.node, found.portion.names, &mut changed);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let mut keys = 0;
        let fit = changed.iter().take_while(|name| {
            let is_first = keys == 0;
            keys += self.found.get(name).map_or(0, Parts::key_count);
            is_first || keys <= KEYS_AT_ONCE
        });
        let mut fit = fit.count();
        if fit > NAMES_AT_ONCE && !self.search.is_complete() {
            fit -= fit % NAMES_AT_ONCE;
        }
        self.unread = changed.split_off(fit);
        let parts = changed.into_iter();
        let parts = parts.filter_map(|name| Some((self.found.get(&name)?.clone(), name)));
        Ok(parts.collect())
    }

    /// Notes the `keys` that `node` has, and adds the names of which they show something new to
    /// `changed`. A node that has too many names is not searched any further: it may be hostile and
    /// make them up.
    fn note(&mut self, node: usize, keys: Vec<Name>, changed: &mut Vec<Name>) {
        for key in keys {
            let Some(UserName { given, name }) = self.search.locks().name_of_user(&key) else {
                continue;
            };
            if self.wanted.as_ref().is_some_and(|wanted| !wanted(&given)) {
                continue;
            }
            let parts = match self.found.entry(name.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) if self.search.takes(node, given.len()) => {
                    new.insert(Parts::new(Arc::from(given)))
                }
                Entry::Vacant(_) => continue,
            };
            if parts.add(&key) {
                changed.push(name);
            }
        }
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
