//! One state: two servers, what three Sentinels say, and two clients. All times are ages or what is
//! left of a time, so a state has no date, and the search has no last tick.

use super::scope::Ticks;

/// The servers: the master at first, and its replica.
pub(super) const SERVERS: usize = 2;
/// The clients: the holder at first, and a newcomer.
pub(super) const CLIENTS: usize = 2;
/// How many epochs there are at most. The first is zero.
pub(super) const EPOCHS: usize = 4;
/// How many Sentinels there are.
pub(super) const SENTINELS: usize = 3;

/// The client that holds the lock at first.
pub(super) const HOLDER: usize = 0;
/// The client that wants it.
pub(super) const NEWCOMER: usize = 1;

/// One state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct World {
    /// The servers.
    pub(super) servers: [Server; SERVERS],
    /// What the Sentinels say.
    pub(super) sentinels: Sentinels,
    /// The clients.
    pub(super) clients: [Client; CLIENTS],
    /// The latest epoch. Its master is the server that was promoted last.
    pub(super) epoch: u8,
    /// How many more restarts there may be.
    pub(super) restarts_left: u8,
    /// A holder that should keep its lock was kept from it.
    pub(super) robbed: bool,
    /// A client held again after its lock was lost.
    pub(super) revived: bool,
}

/// One server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Server {
    /// Whether it takes itself for a master. If not, it follows the other server.
    pub(super) is_master: bool,
    /// Its replication id. Which number that is does not matter.
    pub(super) replication_id: u8,
    /// Whether it remembers a former one.
    pub(super) former_id: bool,
    /// What it keeps.
    pub(super) data: Data,
}

/// What a server keeps, and a replica copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Data {
    /// Its birth record.
    pub(super) born: Option<Born>,
    /// Who holds the lock.
    pub(super) seat: Option<Seat>,
}

/// A birth record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Born {
    /// The run of which server it is about; none of those that run now after a restart.
    pub(super) run: Option<u8>,
    /// The replication id in it.
    pub(super) replication_id: u8,
    /// The epoch in it.
    pub(super) epoch: u8,
    /// How long ago that was. From the end of the quarantine on it does not matter.
    pub(super) age: Ticks,
}

/// A holder on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Seat {
    /// The client that holds.
    pub(super) client: u8,
    /// How many more ticks the lease lasts.
    pub(super) left: Ticks,
}

/// What the Sentinels say, whichever of them says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Sentinels {
    /// How many of them have this epoch.
    pub(super) at: [u8; EPOCHS],
    /// How long ago others had it last: the two that had it most lately.
    pub(super) left: [[Option<Ticks>; 2]; EPOCHS],
}

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    /// The epoch under which it last joined. Its server is the master of that epoch.
    pub(super) epoch: u8,
    /// Whether the incarnation that it joined is still there.
    pub(super) joined: bool,
    /// What it does.
    pub(super) phase: Phase,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    /// It wants the lock.
    Idle,
    /// It has asked for the lock.
    Trying(Call),
    /// It was granted the lock.
    Holding {
        /// How many more ticks it holds.
        left: Ticks,
        /// What it asks of a server.
        call: Option<Call>,
    },
    /// It has released the lock, or lost it.
    Done,
}

/// A request under way, or its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    /// What is asked.
    pub(super) kind: CallKind,
    /// How long ago its round began.
    pub(super) age: Ticks,
    /// The reply under way, once the server has executed the request.
    pub(super) reply: Option<Said>,
}

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CallKind {
    /// An acquire.
    Acquire,
    /// An extend.
    Extend,
    /// A restore.
    Restore,
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Said {
    /// The answer.
    pub(super) word: Word,
    /// The age of the server's birth when it answered.
    pub(super) born_age: Ticks,
}

/// The answers that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Word {
    /// The lock is granted.
    Granted,
    /// The lease is longer now.
    Extended,
    /// The lock is back.
    Restored,
    /// Another client holds.
    Held,
    /// The token holds nothing here.
    Gone,
    /// The server grants nothing yet.
    Quarantined,
    /// The acquire came too late.
    Late,
    /// The ballot is too low.
    Stale,
}

impl World {
    /// The server that the Sentinels name under `epoch`.
    pub(super) fn master_of(epoch: u8) -> usize {
        usize::from(epoch) % SERVERS
    }

    /// The server that was promoted last.
    pub(super) fn master(&self) -> usize {
        Self::master_of(self.epoch)
    }

    /// The incarnation of `server` that clients knew is gone, and with it what is under way to it.
    pub(super) fn end_sessions(&mut self, server: usize) {
        for client in &mut self.clients {
            if client.server() == server {
                client.joined = false;
                client.drop_call_if(|call| call.reply.is_none());
            }
        }
    }

    /// Whether a property is broken. What follows such a state does not matter.
    pub(super) fn is_broken(&self) -> bool {
        self.is_doubled() || self.robbed || self.revived
    }

    /// Whether both clients hold, each by its own word.
    pub(super) fn is_doubled(&self) -> bool {
        self.clients.iter().all(Client::holds)
    }

    /// Numbers the replication ids anew, in the order in which they appear. That of a replica does
    /// not matter: it gets another one when it copies its master or becomes one.
    pub(super) fn renumber(&mut self) {
        for at in 0..SERVERS {
            if !self.servers[at].is_master {
                self.servers[at].replication_id = self.servers[1 - at].replication_id;
                self.servers[at].former_id = false;
            }
        }
        let mut known = [u8::MAX; 2 * SERVERS];
        let mut renumbered = |id: &mut u8| {
            let at = known.iter().position(|k| *k == *id || *k == u8::MAX);
            let at = at.unwrap_or_default();
            known[at] = *id;
            *id = at as u8;
        };
        for server in &mut self.servers {
            renumbered(&mut server.replication_id);
        }
        for server in &mut self.servers {
            if let Some(born) = &mut server.data.born {
                renumbered(&mut born.replication_id);
            }
        }
    }

    /// A replication id that nothing has.
    pub(super) const FRESH_ID: u8 = 100;
}

impl Client {
    /// The server that it joined.
    pub(super) fn server(&self) -> usize {
        World::master_of(self.epoch)
    }

    /// Whether it holds the lock, by its own word.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding { left, .. } if left > 0)
    }

    /// What it has under way.
    pub(super) fn call(&self) -> Option<Call> {
        match self.phase {
            Phase::Trying(call) => Some(call),
            Phase::Holding { call, .. } => call,
            Phase::Idle | Phase::Done => None,
        }
    }

    /// Replaces what it has under way.
    pub(super) fn set_call(&mut self, new: Option<Call>) {
        self.phase = match (self.phase, new) {
            (Phase::Trying(_), Some(call)) => Phase::Trying(call),
            (Phase::Trying(_), None) => Phase::Idle,
            // Once its time is over, it waits only for what is under way.
            (Phase::Holding { left: 0, .. }, None) => Phase::Done,
            (Phase::Holding { left, .. }, call) => Phase::Holding { left, call },
            (phase @ (Phase::Idle | Phase::Done), _) => phase,
        };
    }

    pub(super) fn drop_call_if(&mut self, is_lost: impl FnOnce(&Call) -> bool) {
        if self.call().as_ref().is_some_and(is_lost) {
            self.set_call(None);
        }
    }
}
