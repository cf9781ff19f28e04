//! Reentrant locks: holds of one owner are counted here, inside the client. The nodes know one.
//!
//! Two tokens do not fit one plain key, and an inner hold with a fence of its own would make the
//! resource refuse the outer guard: so all holds share one token, fence and deadline.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, Notify};

use crate::environment::OwnerProcess;
use crate::message::{Claim, Mode};
use crate::runtime::extending::Extending;
use crate::runtime::hold::HeldLock;
use crate::runtime::{ClientRuntime, lock, wait_for};

use super::error::{AcquireError, ConfigError};
use super::guard::GuardState;
use super::lock::LockTerms;

/// The owner of reentrant locks, which can take the same lock several times: a task, a request, a
/// call tree. Clones are the same owner.
///
/// What an owner takes again must be the same lock: while it has `a`, or waits for it, it cannot
/// take `a` and `b` together, nor the other way round; and while it shares `a` after a downgrade, it
/// cannot take `a` exclusively. The same holds for two clients of the same nodes: what one of them
/// has for the owner, the other cannot take for it. It would wait for itself, so that is an error
/// ([`ConfigError::OwnerOverlap`](crate::ConfigError::OwnerOverlap)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// let owner = ringfence::Owner::new();
/// let outer = locks.mutex("orders:42").owner(&owner).lock().await?;
/// let inner = locks.mutex("orders:42").owner(&owner).lock().await?;
/// assert_eq!(outer.fence(), inner.fence());
/// outer.release().await?; // still held
/// inner.release().await?; // free
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Owner {
    seats: Arc<Mutex<HashMap<OwnerKey, Weak<OwnerLock>>>>,
    process: OwnerProcess,
}

/// A client, by address, and a set of claims in the order of their names. A seat that lives has
/// guards or callers, and these keep their client, so no address is used twice.
type OwnerKey = (usize, Vec<Claim>);

/// Where the holds of one owner on one set of names meet.
struct OwnerLock {
    /// Held by the one caller that asks the nodes; the others join what it gets.
    turn: Turn<()>,
    current: Mutex<Option<Arc<Joint>>>,
    /// The last hold that became shared because all its guards were downgraded.
    downgraded: Mutex<Weak<Joint>>,
    /// There is a new `current`, or a hold became shared.
    taken: Notify,
    /// The names of the client's nodes.
    nodes: Vec<String>,
    /// How many callers ask for it.
    callers: AtomicUsize,
}

/// One hold and how many guards share it.
struct Joint {
    hold: Arc<HeldLock>,
    /// What the guards that were downgraded hold once no other is left.
    shared: OnceLock<Arc<HeldLock>>,
    count: Mutex<Count>,
}

struct Count {
    /// Those that count on holding it alone.
    guards: usize,
    /// Those that were downgraded.
    readers: usize,
    /// One of the guards was left behind: the last one must not release.
    left_behind: bool,
}

/// A guard's part in a hold.
#[derive(Clone)]
pub(super) struct Share {
    seat: Arc<OwnerLock>,
    joint: Arc<Joint>,
}

/// What a guard that goes has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// Nothing: others go on holding.
    OthersHold,
    /// It was the last: release.
    Last,
    /// It was the last, and the lock is to be left behind.
    LastLeaves,
}

impl Owner {
    /// A new owner, different from all others.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more caller of this owner asks for `claims`. An error if the owner has, or asks for,
    /// some but not all of them in another lock: it would wait for itself.
    fn ask_for(
        &self,
        runtime: &Arc<ClientRuntime>,
        claims: &[Claim],
    ) -> Result<Caller, ConfigError> {
        if !self.process.is_ours() {
            return Err(ConfigError::ForkedProcess);
        }
        let mut claims = claims.to_vec();
        claims.sort_by(|one, other| one.name.cmp(&other.name));
        let nodes = runtime.sender.nodes.iter();
        let nodes: Vec<String> = nodes.map(|node| node.name().to_owned()).collect();
        let mut seats = lock(&self.seats);
        seats.retain(|_, seat| seat.strong_count() > 0);
        let key = (Arc::as_ptr(runtime).addr(), claims);
        let in_the_way = |(other, seat): (&OwnerKey, &Weak<OwnerLock>)| {
            // The names mean other locks where two clients have no node in common.
            let meets = |seat: &Arc<OwnerLock>| other.0 == key.0 || seat.shares_a_node(&nodes);
            let seat = seat.upgrade().filter(meets)?;
            let overlaps = *other != key && exclude_each_other(&other.1, &key.1);
            let upgrades = || seat.is_downgraded() && excludes_readers(&key.1, &other.1);
            ((overlaps && seat.is_in_use()) || upgrades()).then(|| names(&other.1))
        };
        if let Some(has) = seats.iter().find_map(in_the_way) {
            let wants = names(&key.1);
            return Err(ConfigError::OwnerOverlap { has, wants });
        }
        let known = seats.get(&key).and_then(Weak::upgrade);
        let seat = known.unwrap_or_else(|| {
            let seat = Arc::new(OwnerLock {
                turn: Turn::new(()),
                current: Mutex::new(None),
                downgraded: Mutex::new(Weak::new()),
                taken: Notify::new(),
                nodes,
                callers: AtomicUsize::new(0),
            });
            seats.insert(key, Arc::downgrade(&seat));
            seat
        });
        // Under the same lock: of two callers that overlap, one sees the other.
        seat.callers.fetch_add(1, Ordering::SeqCst);
        Ok(Caller { seat })
    }
}

fn exclude_each_other(some: &[Claim], others: &[Claim]) -> bool {
    excludes_readers(some, others) || excludes_readers(others, some)
}

/// Whether `wanted` excludes readers of a name in `others`.
fn excludes_readers(wanted: &[Claim], others: &[Claim]) -> bool {
    let exclusive = wanted.iter().filter(|claim| claim.mode == Mode::Exclusive);
    let among_others = |claim: &Claim| others.iter().any(|other| other.name == claim.name);
    exclusive.into_iter().any(among_others)
}

fn names(claims: &[Claim]) -> String {
    let shown = |claim: &Claim| match claim.mode {
        Mode::Exclusive => claim.name.to_string(),
        Mode::Shared => format!("{} (shared)", claim.name),
    };
    let names: Vec<String> = claims.iter().map(shown).collect();
    names.join(", ")
}

/// A caller that asks for what its owner's seat is about. Dropped, it no longer asks.
struct Caller {
    seat: Arc<OwnerLock>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.seat.callers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl LockTerms {
    /// Takes the lock for `owner`: joins what it holds, or what another of its callers is about to
    /// get. Each caller keeps to its own wait.
    pub(super) async fn take_for(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<GuardState, AcquireError> {
        let claims = self.wanted(wait)?.claims;
        let runtime = self.locks.runtime();
        let clock = &runtime.sender.clock;
        let caller = owner.ask_for(runtime, &claims)?;
        let seat = &caller.seat;
        let end = wait.map(|wait| clock.now() + wait);
        let over = async || match end {
            Some(end) => clock.sleep_until(end).await,
            None => pending().await,
        };
        loop {
            if let Some(share) = seat.join() {
                let (hold, name) = (Arc::clone(&share.joint.hold), Arc::clone(&self.name));
                return Ok(GuardState::new(&self.locks, hold, name).shared(share));
            }
            // The caller that got it may have downgraded it before this one could join.
            seat.refuse_upgrade(&claims)?;
            let turn = tokio::select! {
                biased;
                () = seat.has_news() => continue,
                turn = seat.turn.lock() => Some(turn),
                () = over() => None,
                () = runtime.closing.begun() => None,
            };
            // Out of time while another caller asks for us all: one attempt of our own says what is
            // in the way.
            let left = match &turn {
                Some(_) => end.map(|end| end.since(clock.now())),
                None => Some(Duration::ZERO),
            };
            let guard = tokio::select! {
                biased;
                () = seat.has_news() => continue,
                guard = self.take_alone(left) => guard?,
            };
            let share = seat.fill(guard.hold());
            return Ok(guard.shared(share));
        }
    }
}

impl OwnerLock {
    /// A share in what is held, if anything is.
    fn join(self: &Arc<Self>) -> Option<Share> {
        let joint = lock(&self.current).clone()?;
        joint.hold.check().ok()?;
        let mut count = lock(&joint.count);
        if count.guards == 0 {
            return None;
        }
        count.guards += 1;
        drop(count);
        Some(Share {
            seat: Arc::clone(self),
            joint,
        })
    }

    /// Completes when there is something to join, or the owner would wait for its own share.
    async fn has_news(&self) {
        wait_for(&self.taken, || self.is_held() || self.is_downgraded()).await;
    }

    /// An error if the owner shares what it now wants alone: it would wait for itself.
    fn refuse_upgrade(&self, wanted: &[Claim]) -> Result<(), ConfigError> {
        if !self.is_downgraded() {
            return Ok(());
        }
        let shared: Vec<Claim> = wanted.iter().map(Claim::shared).collect();
        Err(ConfigError::OwnerOverlap {
            has: names(&shared),
            wants: names(wanted),
        })
    }

    fn shares_a_node(&self, nodes: &[String]) -> bool {
        self.nodes.iter().any(|node| nodes.contains(node))
    }

    fn is_held(&self) -> bool {
        let current = lock(&self.current);
        let joint = current.as_ref();
        joint.is_some_and(|joint| joint.hold.check().is_ok() && lock(&joint.count).guards > 0)
    }

    /// Whether the owner has this, or asks for it.
    fn is_in_use(&self) -> bool {
        self.callers.load(Ordering::SeqCst) > 0 || self.is_held()
    }

    /// Whether the owner still shares a lock that it held alone before.
    fn is_downgraded(&self) -> bool {
        let joint = lock(&self.downgraded).upgrade();
        let shared = joint.as_ref().and_then(|joint| joint.shared.get());
        shared.is_some_and(|shared| shared.check().is_ok())
    }

    /// `hold` is what all share from now on. Guards of an earlier one, which is lost, keep that.
    fn fill(self: &Arc<Self>, hold: &Arc<HeldLock>) -> Share {
        let joint = Arc::new(Joint {
            hold: Arc::clone(hold),
            shared: OnceLock::new(),
            count: Mutex::new(Count {
                guards: 1,
                readers: 0,
                left_behind: false,
            }),
        });
        *lock(&self.current) = Some(Arc::clone(&joint));
        self.taken.notify_waiters();
        Share {
            seat: Arc::clone(self),
            joint,
        }
    }
}

impl Share {
    /// What the guards that were downgraded hold, if the lock is shared by now.
    pub(super) fn shared(&self) -> Option<&Arc<HeldLock>> {
        self.joint.shared.get()
    }

    /// The guard is downgraded. The round of telling the nodes, if no other holds it alone.
    pub(super) fn read(&self) -> Option<Extending> {
        let mut count = lock(&self.joint.count);
        count.guards -= 1;
        count.readers += 1;
        let last = count.guards == 0 && !count.left_behind;
        drop(count);
        last.then(|| self.downgrade())
    }

    /// The guard goes, which `reads` if it was downgraded; with `leave` it leaves the lock behind.
    pub(super) fn part(&self, reads: bool, leave: bool) -> Parting {
        let mut count = lock(&self.joint.count);
        count.left_behind |= leave;
        if !reads && count.guards == 1 && count.readers > 0 && !count.left_behind {
            // It stays as one of the readers until they have their share: none of them may be the
            // last before that.
            drop(count);
            self.read();
            return self.part(true, leave);
        }
        match reads {
            true => count.readers -= 1,
            false => count.guards -= 1,
        }
        let parting = match (count.guards + count.readers, count.left_behind) {
            (0, false) => Parting::Last,
            (0, true) => Parting::LastLeaves,
            _ => Parting::OthersHold,
        };
        drop(count);
        if parting != Parting::OthersHold {
            self.vacate();
        }
        parting
    }

    /// No guard holds it alone any more: those that were downgraded get their share.
    fn downgrade(&self) -> Extending {
        self.vacate();
        let publish = |shared: &Arc<HeldLock>| {
            // The last of those that hold it alone goes once.
            let _ = self.joint.shared.set(Arc::clone(shared));
        };
        let telling = self.joint.hold.downgrade(publish).1;
        *lock(&self.seat.downgraded) = Arc::downgrade(&self.joint);
        self.seat.taken.notify_waiters();
        telling
    }

    /// No caller joins this hold any more.
    fn vacate(&self) {
        let mut current = lock(&self.seat.current);
        let same = |joint: &Arc<Joint>| Arc::ptr_eq(joint, &self.joint);
        if current.as_ref().is_some_and(same) {
            *current = None;
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:p})", Arc::as_ptr(&self.seats))
    }
}
