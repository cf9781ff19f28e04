//! The steps of a plan: what a client asks for, for how long, and how it ends the hold.

use std::fmt;
use std::time::Duration;

/// One step of a client: take a lock, work, and release it.
#[derive(Debug, Clone)]
pub struct Step {
    /// The number of the call in the history.
    pub op: u64,
    /// The client.
    pub client: usize,
    /// Steps of one task are done one after the other.
    pub task: usize,
    /// The pause before it.
    pub after: Duration,
    /// What it asks for.
    pub want: Want,
    /// The TTL.
    pub ttl: Duration,
    /// How long it waits: zero for not at all, `None` for no limit.
    pub wait: Option<Duration>,
    /// Whether the lock is renewed for it.
    pub renew: bool,
    /// How long it holds the lock.
    pub hold: Duration,
    /// How often it updates the resource while it holds.
    pub updates: u32,
    /// Whether it continues its work after the lock is lost.
    pub ignores_loss: bool,
    /// When it drops the call while it waits.
    pub cancel: Option<Duration>,
    /// The TTL with which it extends the lock by hand, if it does.
    pub extend: Option<Duration>,
    /// Whether it takes the lock for its client's owner, which may hold it already.
    pub owned: bool,
    /// The lock delay: how long a lost lock is kept from other clients.
    pub lock_delay: Duration,
    /// `hold_at_least`: how long a granted lock is kept from other clients at least.
    pub at_least: Duration,
    /// How it ends.
    pub end: End,
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// One name, exclusive.
    Mutex(String),
    /// Several names, all or none.
    Multi(Vec<String>),
    /// One name, shared.
    Read(String),
    /// One name, exclusive, of a read-write lock.
    Write(String),
    /// The same, downgraded to shared later.
    Downgrade(String),
    /// One permit of a semaphore with this many.
    Permit(String, u32),
    /// The lead of an election.
    Lead(String),
    /// One name, exclusive, without a fence.
    Plain(String),
    /// Observes an election for as long as it would hold a lock.
    Observe(String),
    /// Arrives at a latch of this count, as the party of this name.
    Arrive(String, u32, String),
    /// Waits for a latch of this count.
    Await(String, u32),
}

/// How a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guard is released, and the reply awaited.
    Release,
    /// The guard is dropped.
    Drop,
    /// The lock is left behind. It is extended and released by its receipt, early or late.
    Leave,
}

impl Step {
    /// Whether nodes may keep something of it after its client is done.
    pub(in crate::simulator) fn lingers(&self) -> bool {
        !self.lock_delay.is_zero() || !self.at_least.is_zero()
    }
}

impl Want {
    /// The names as the history has them.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Multi(names) => names.clone(),
            Self::Mutex(name)
            | Self::Read(name)
            | Self::Write(name)
            | Self::Downgrade(name)
            | Self::Permit(name, _)
            | Self::Lead(name)
            | Self::Plain(name)
            | Self::Observe(name)
            | Self::Arrive(name, ..)
            | Self::Await(name, _) => vec![name.clone()],
        }
    }
}

fn unless_zero(what: &str, span: Duration) -> String {
    match span.is_zero() {
        true => String::new(),
        false => format!(", {what} {span:?}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op {} of client {} task {}: after {:?} {:?}, ttl {:?}, wait {:?}, renew {}, \
             hold {:?} with {} updates{}{}{}{}{}{}, then {:?}",
            self.op,
            self.client,
            self.task,
            self.after,
            self.want,
            self.ttl,
            self.wait,
            self.renew,
            self.hold,
            self.updates,
            if self.ignores_loss {
                ", ignores loss"
            } else {
                ""
            },
            unless_zero("extending by", self.extend.unwrap_or_default()),
            if self.owned { ", owned" } else { "" },
            unless_zero("lock delay", self.lock_delay),
            unless_zero("at least", self.at_least),
            match self.cancel {
                Some(after) => format!(", cancelled after {after:?}"),
                None => String::new(),
            },
            self.end
        )
    }
}
