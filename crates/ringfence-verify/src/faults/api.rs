//! How a client process calls the product: through the async API, or through the blocking one on
//! threads of its own. Both make the same calls.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ringfence::admin::{BreakError, BreakRequest, Broken};
use ringfence::blocking;
use ringfence::votes::Votes;
use ringfence::{
    AcquireError, Builder, ExtendError, Guard, LatchError, Leadership, Locks, Lost, Owner,
    ReadGuard, ReleaseError, SemaphoreGuard,
};
use ringfence_core::protocol::Vote;

use super::call::{Call, CallKind, PERMITS, POOL};
use super::unheld::ANY_TTL;

/// For how long the nodes remember a break. Short, so that it ends with the run.
const BREAK_REMEMBERED: Duration = Duration::from_secs(5);
/// How often a caller of the blocking API checks whether it still holds the lock.
const CHECK: Duration = Duration::from_millis(5);
/// How long a call of a latch continues while no majority answers or may vote.
const LATCH_PATIENCE: Duration = Duration::from_secs(1);

/// A client of the product.
#[derive(Clone)]
pub(super) enum Api {
    Async(Locks),
    Blocking(blocking::Locks),
}

/// A hold that can be broken: the slot, if it is one of a semaphore, and the fence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Breakable {
    pub(super) slot: Option<u32>,
    pub(super) fence: u64,
}

/// One call of a latch.
#[derive(Debug, Clone)]
pub(super) struct LatchCall {
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) ttl: Duration,
    /// The party that arrives. `None`: the call waits until the latch is open.
    pub(super) party: Option<String>,
    pub(super) wait: Duration,
}

/// Runs a call of the blocking API on a thread that may block.
async fn on_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(call).await;
    done.expect("a call of the blocking API does not panic")
}

/// One call for a lock. `await` is given for the async API only.
macro_rules! acquire {
    ($locks:expr, $call:expr, $op:expr $(, $wait:tt)?) => {{
        let (call, wait) = ($call, $call.wait.unwrap_or_default());
        let waits = call.wait.is_some();
        match call.kind {
            CallKind::Mutex | CallKind::Multi => {
                let lock = $locks.multi(&call.names).ttl(call.ttl).wait(wait);
                let lock = lock.renew(call.renew);
                match waits {
                    true => lock.lock()$(.$wait)?.map(Guards::Alone),
                    false => lock.try_lock()$(.$wait)?.map(Guards::Alone),
                }
            }
            CallKind::Owned => {
                let owner = Owner::new();
                let lock = $locks.mutex(call.names[0]).ttl(call.ttl).wait(wait);
                let lock = lock.renew(call.renew).owner(&owner);
                let outer = lock.lock()$(.$wait)??;
                let inner = lock.lock()$(.$wait)??;
                drop(outer);
                Ok(Guards::Alone(inner))
            }
            CallKind::Read | CallKind::Write => {
                let lock = $locks.rw_lock(call.names[0]).ttl(call.ttl).wait(wait);
                let lock = lock.renew(call.renew);
                match (call.kind, waits) {
                    (CallKind::Read, true) => lock.read()$(.$wait)?.map(Guards::Sharing),
                    (CallKind::Read, false) => lock.try_read()$(.$wait)?.map(Guards::Sharing),
                    (_, true) => lock.write()$(.$wait)?.map(Guards::Alone),
                    (_, false) => lock.try_write()$(.$wait)?.map(Guards::Alone),
                }
            }
            CallKind::Permit => {
                let pool = $locks.semaphore(call.names[0], PERMITS);
                let pool = pool.ttl(call.ttl).wait(wait).renew(call.renew);
                match waits {
                    true => pool.acquire()$(.$wait)?.map(Guards::Permit),
                    false => pool.try_acquire()$(.$wait)?.map(Guards::Permit),
                }
            }
            CallKind::Lead => {
                let election = $locks.election(call.names[0]).ttl(call.ttl).wait(wait);
                let election = election.label(&label_of($op));
                election.campaign()$(.$wait)?.map(Guards::Leading)
            }
            CallKind::Arrive | CallKind::Await | CallKind::Break => {
                unreachable!("this call takes no lock")
            }
        }
    }};
}

/// One call of a latch: how many have arrived, if the answer says so, and whether it is open.
macro_rules! turn {
    ($locks:expr, $call:expr $(, $wait:tt)?) => {{
        let latch = $locks.latch(&$call.name, $call.count).ttl($call.ttl);
        let latch = latch.no_quorum_after(LATCH_PATIENCE);
        match &$call.party {
            Some(party) => {
                let arrival = latch.party(party).arrive()$(.$wait)?;
                arrival.map(|arrival| (Some(arrival.arrived), arrival.is_open()))
            }
            None => match latch.wait($call.wait).opened()$(.$wait)? {
                Ok(()) => Ok((None, true)),
                Err(LatchError::Shut { arrived, .. }) => Ok((Some(arrived), false)),
                Err(error) => Err(error),
            },
        }
    }};
}

/// What is held under the name of `$call` at present. The first slot that is held, of a semaphore.
macro_rules! find_breakable {
    ($locks:expr, $call:expr $(, $wait:tt)?) => {{
        let name = $call.names[0];
        let looks = match name {
            POOL => {
                let pool = $locks.semaphore(name, PERMITS).ttl(ANY_TTL).inspect()$(.$wait)?;
                pool.map_or_else(|_| Vec::new(), |pool| (0..).map(Some).zip(pool.slots).collect())
            }
            _ => match $locks.inspect(name)$(.$wait)? {
                Ok(look) => vec![(None, look)],
                Err(_) => Vec::new(),
            },
        };
        looks.into_iter().find_map(|(slot, look)| {
            let fence = look.holders.iter().filter_map(|holder| holder.fence).max()?;
            Some(Breakable { slot, fence })
        })
    }};
}

impl Api {
    pub(super) async fn connect(builder: Builder, blocks: bool) -> Result<Self, Box<dyn Error>> {
        Ok(match blocks {
            true => Self::Blocking(on_thread(move || blocking::Locks::build(builder)).await?),
            false => Self::Async(builder.connect().await?),
        })
    }

    pub(super) fn is_blocking(&self) -> bool {
        matches!(self, Self::Blocking(_))
    }

    /// Asks for a lock.
    pub(super) async fn acquire(&self, op: u64, call: &Call) -> Result<Held, AcquireError> {
        match self {
            Self::Async(locks) => acquire!(locks, call, op, await).map(Held::Async),
            Self::Blocking(locks) => {
                let (locks, call) = (locks.clone(), call.clone());
                let acquired = on_thread(move || acquire!(locks, &call, op)).await;
                acquired.map(|guards| Held::Blocking(Arc::new(guards)))
            }
        }
    }

    /// Arrives at a latch, or waits until it is open.
    pub(super) async fn turn(&self, call: LatchCall) -> Result<(Option<u64>, bool), LatchError> {
        match self {
            Self::Async(locks) => turn!(locks, call, await),
            Self::Blocking(locks) => {
                let locks = locks.clone();
                on_thread(move || turn!(locks, call)).await
            }
        }
    }

    /// The hold that `call` is to break, if there is one.
    pub(super) async fn breakable(&self, call: &Call) -> Option<Breakable> {
        match self {
            Self::Async(locks) => find_breakable!(locks, call, await),
            Self::Blocking(locks) => {
                let (locks, call) = (locks.clone(), call.clone());
                on_thread(move || find_breakable!(locks, call)).await
            }
        }
    }

    /// Breaks a hold.
    pub(super) async fn break_hold(
        &self,
        name: &'static str,
        hold: Breakable,
    ) -> Result<Broken, BreakError> {
        let complete = move |request: BreakRequest| {
            let request = request.seen(hold.fence).remembered(BREAK_REMEMBERED);
            match hold.slot {
                Some(slot) => request.slot(slot, PERMITS),
                None => request,
            }
        };
        match self {
            Self::Async(locks) => complete(locks.break_lock(name)).run().await,
            Self::Blocking(locks) => {
                let locks = locks.clone();
                on_thread(move || locks.break_lock(complete(locks.breaking(name)))).await
            }
        }
    }

    /// For each node, whether it answered.
    pub(super) async fn answered(&self) -> Vec<bool> {
        let nodes = match self {
            Self::Async(locks) => locks.nodes().await,
            Self::Blocking(locks) => {
                let locks = locks.clone();
                on_thread(move || locks.nodes()).await
            }
        };
        nodes.iter().map(|node| node.facts.is_ok()).collect()
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Async(locks) => locks.close().await,
            Self::Blocking(locks) => {
                let locks = locks.clone();
                on_thread(move || locks.close()).await;
            }
        }
    }
}

/// The label of a candidate, by which observers report it.
pub(super) fn label_of(op: u64) -> String {
    format!("op-{op}")
}

/// The call of the candidate with this label.
pub(super) fn op_of(label: &str) -> Option<u64> {
    label.strip_prefix("op-")?.parse().ok()
}

/// A guard of any kind, of one API.
#[derive(Debug)]
pub(super) enum Guards<A, S, P, L> {
    Alone(A),
    Sharing(S),
    Permit(P),
    Leading(L),
}

type AsyncGuards = Guards<Guard, ReadGuard, SemaphoreGuard, Leadership>;
type BlockingGuards =
    Guards<blocking::Guard, blocking::ReadGuard, blocking::SemaphoreGuard, blocking::Leadership>;

/// A guard of any kind, of either API.
#[derive(Debug)]
pub(super) enum Held {
    Async(AsyncGuards),
    Blocking(Arc<BlockingGuards>),
}

macro_rules! of_one_api {
    ($guards:expr, $guard:ident => $what:expr) => {
        match $guards {
            Guards::Alone($guard) => $what,
            Guards::Sharing($guard) => $what,
            Guards::Permit($guard) => $what,
            Guards::Leading($guard) => $what,
        }
    };
}

macro_rules! each {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            Held::Async(guards) => of_one_api!(guards, $guard => $what),
            Held::Blocking(guards) => of_one_api!(&**guards, $guard => $what),
        }
    };
}

impl Held {
    pub(super) fn fence(&self) -> u64 {
        each!(self, guard => guard.fence())
    }

    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Async(Guards::Permit(guard)) => Some(guard.slot()),
            Self::Blocking(guards) => match &**guards {
                Guards::Permit(guard) => Some(guard.slot()),
                _ => None,
            },
            Self::Async(_) => None,
        }
    }

    pub(super) fn deadline_us(&self) -> u64 {
        each!(self, guard => guard.exact_deadline()).as_micros()
    }

    pub(super) async fn lost(&self) -> Lost {
        match self {
            Self::Async(guards) => of_one_api!(guards, guard => guard.lost().await),
            Self::Blocking(guards) => loop {
                if let Err(lost) = of_one_api!(&**guards, guard => guard.check()) {
                    return lost;
                }
                tokio::time::sleep(CHECK).await;
            },
        }
    }

    /// The nodes that granted it.
    pub(super) fn granted_by(&self) -> Vec<u64> {
        let votes: Votes = each!(self, guard => guard.votes());
        let votes = (0..).zip(votes.iter());
        let granted = votes.filter(|(_, node)| node.vote == Vote::Granted);
        granted.map(|(node, _)| node).collect()
    }

    pub(super) async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        match self {
            Self::Async(guards) => of_one_api!(guards, guard => guard.extend(ttl).await),
            Self::Blocking(guards) => {
                let guards = Arc::clone(guards);
                on_thread(move || of_one_api!(&*guards, guard => guard.extend(ttl))).await
            }
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Async(guards) => of_one_api!(guards, guard => guard.release().await),
            Self::Blocking(guards) => {
                on_thread(move || of_one_api!(only_reference(guards), guard => guard.release()))
                    .await
            }
        }
    }

    /// Makes a write lock a shared one. Any other lock stays as it is.
    pub(super) async fn downgrade(self) -> Result<Self, Lost> {
        match self {
            Self::Async(Guards::Alone(guard)) => {
                let guard = guard.downgrade().await?;
                Ok(Self::Async(Guards::Sharing(guard)))
            }
            Self::Blocking(guards) if matches!(*guards, Guards::Alone(_)) => {
                let guards = on_thread(move || match only_reference(guards) {
                    Guards::Alone(guard) => guard.downgrade().map(Guards::Sharing),
                    other => Ok(other),
                });
                Ok(Self::Blocking(Arc::new(guards.await?)))
            }
            other => Ok(other),
        }
    }
}

/// The guard itself. Every call that borrowed it has ended.
fn only_reference(guards: Arc<BlockingGuards>) -> BlockingGuards {
    Arc::into_inner(guards).expect("no other call uses the guard")
}
