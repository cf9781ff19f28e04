//! The requests of a client, except those of an [`Attempt`](super::Attempt), which builds its own.
//! Code outside this crate builds no requests.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{
    Arrive, Attend, Ballot, Claim, Kind, Op, Refresh, RefreshSlots, Release, ReleaseKind, Request,
    Slots, Ticket,
};
use crate::name::Name;
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::latch_round::Question;
use super::{LatchRound, LatchTerms, Transmit};

/// The identity of a lock on the nodes: every request about the lock carries these values. Every
/// hold has one, so the parts that few holds need are boxed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantId {
    /// The claims. For a slot that was won, its one claim.
    pub claims: Arc<[Claim]>,
    /// The token of the caller.
    pub token: Token,
    /// The proposed ballot, which is the fence if it was granted.
    pub ballot: Ballot,
    /// The kind of lock.
    pub kind: Kind,
    /// The ticket that the acquire carried.
    pub ticket: Option<Box<Ticket>>,
    /// For a semaphore: all its claims, and the slots to release.
    pub slots: Option<Box<(Arc<[Claim]>, Slots)>>,
    /// Of a receipt: the lock delay. The process that has the receipt does not know the deadline of
    /// the hold, so the nodes decide whether it has passed. Zero for a guard. At most 49 days: a
    /// larger number would make every hold larger.
    pub receipt_delay_ms: u32,
}

impl GrantId {
    /// The ticket of a caller that waits for `claims`. It carries a token that holds nothing, so
    /// that a node that granted keeps the grant.
    pub fn of_ticket(claims: &Arc<[Claim]>, ticket: &Ticket, queue: Queue) -> Self {
        let (kind, slots) = match queue {
            Queue::Slot => (Kind::Slot, Some((Arc::clone(claims), Slots::All))),
            Queue::Lock | Queue::Latch { .. } => (Kind::Exclusive, None),
        };
        Self {
            claims: Arc::clone(claims),
            token: no_token(),
            ballot: Ballot::default(),
            kind,
            ticket: Some(Box::new(ticket.clone())),
            slots: slots.map(Box::new),
            receipt_delay_ms: 0,
        }
    }

    /// A lock that another process may have left behind (a receipt), with its lock delay.
    pub fn of_receipt(
        claims: Arc<[Claim]>,
        token: Token,
        ballot: Ballot,
        kind: Kind,
        delay: Duration,
    ) -> Self {
        Self {
            claims,
            token,
            ballot,
            kind,
            ticket: None,
            slots: None,
            receipt_delay_ms: u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// The same, for the `slot` that was won.
    pub fn with_slot(mut self, slot: u32) -> Self {
        if let Some(slots) = &mut self.slots {
            slots.1 = Slots::Only(slot);
            // The claim at index 0 is the admission record.
            self.claims = Arc::from([slots.0[slot as usize + 1].clone()]);
        }
        self
    }

    /// The same, for every slot except the `slot` that was won.
    pub fn without_slot(mut self, slot: u32) -> Self {
        if let Some(slots) = &mut self.slots {
            slots.1 = Slots::AllBut(slot);
        }
        self
    }

    /// The same lock, in shared mode.
    pub fn shared(&self) -> Self {
        Self {
            claims: self.claims.iter().map(Claim::shared).collect(),
            kind: Kind::Shared,
            ..self.clone()
        }
    }
}

/// The wait queue of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// A caller that waits for a lock.
    Lock,
    /// A caller that waits for a slot of a semaphore.
    Slot,
    /// A caller that waits for enough arrivals at a latch.
    Latch {
        /// How long the nodes keep the latch for the waiters.
        ttl_ms: u64,
    },
}

impl Transmit {
    /// The request for the lock `id`.
    pub fn request(&self, id: &GrantId, label: &Arc<str>) -> Request {
        Request {
            claims: Arc::clone(&id.claims),
            token: id.token.clone(),
            op: self.op(id, label),
        }
    }
}

/// The requests of a release or undo. Most nodes get the same request, which is built once.
#[derive(Debug)]
pub struct ReleaseRequests {
    /// For a node where the fate of the acquire is known.
    known: Arc<Request>,
    /// For a node where it is unknown.
    unknown: Option<Arc<Request>>,
    /// When the last lease of the lock has ended.
    until: Timestamp,
    /// Until when the lock is kept from others after the release.
    keep_until: Option<Timestamp>,
}

impl ReleaseRequests {
    /// Releases `id`, whose last lease ends at `until`. With `stays` the ticket stays in the queue.
    pub fn new(
        id: &GrantId,
        kind: ReleaseKind,
        stays: bool,
        until: Timestamp,
        keep_until: Option<Timestamp>,
    ) -> Self {
        let (claims, slots) = match id.slots.as_deref() {
            Some((claims, slots)) => (claims, *slots),
            None => (&id.claims, Slots::All),
        };
        let release = Release {
            ballot: id.ballot,
            kind,
            fate_unknown: false,
            ticket: id.ticket.as_deref().cloned(),
            stays,
            keep_ms: None,
            delay_ms: id.receipt_delay_ms.into(),
        };
        Self {
            known: Arc::new(Request {
                claims: Arc::clone(claims),
                token: id.token.clone(),
                op: id.kind.release(slots, release),
            }),
            unknown: None,
            until,
            keep_until,
        }
    }

    /// The first name that is released.
    pub fn first_name(&self) -> Option<Name> {
        let claim = self.known.claims.first();
        claim.map(|claim| claim.name.clone())
    }

    /// The token that is released.
    pub fn token(&self) -> &Token {
        &self.known.token
    }

    /// The request to send to a node at `now`, and until when it is useful. A request that is
    /// resent later keeps the lock from others for a shorter time. With `leaves` the caller gives
    /// up its ticket: an undo must not enter it again, because no caller waits with it any more.
    pub fn at(
        &mut self,
        fate_unknown: bool,
        leaves: bool,
        now: Timestamp,
    ) -> (Arc<Request>, Timestamp) {
        let expires = self
            .keep_until
            .map_or(self.until, |keep| keep.max(self.until));
        let request = match fate_unknown && !self.known.op.is_plain() {
            false => &self.known,
            true => {
                let unknown = || Arc::new(of_unknown_fate(&self.known));
                self.unknown.get_or_insert_with(unknown)
            }
        };
        let keep = self.keep_until.map(|until| until.since(now));
        let keep = keep.filter(|keep| !keep.is_zero());
        if keep.is_none() && !leaves {
            return (Arc::clone(request), expires);
        }
        let mut request = Request::clone(request);
        if let Some(release) = request.op.release_mut() {
            release.stays &= !leaves;
            release.keep_ms = keep.map(|keep| keep.as_nanos().div_ceil(1_000_000) as u64);
        }
        (Arc::new(request), expires)
    }
}

/// The same request, for a node where the acquire may arrive later or never.
fn of_unknown_fate(request: &Request) -> Request {
    let mut request = request.clone();
    if let Some(release) = request.op.release_mut() {
        release.fate_unknown = true;
    }
    request
}

impl LatchRound {
    /// The request of this round. `ticket` is that of a caller that waits for the latch to open.
    pub fn request(
        &self,
        claims: &Arc<[Claim]>,
        terms: &LatchTerms,
        ticket: Option<&Ticket>,
    ) -> Request {
        let ttl_ms = terms.ttl.as_millis() as u64;
        let op = match self.question() {
            Question::Look => Op::Attend(Attend {
                tickets: ticket.cloned().into_iter().collect(),
                list: true,
                ttl_ms,
            }),
            Question::Add { parties, since_us } => Op::Arrive(Arrive {
                parties: Arc::clone(parties),
                since_us: *since_us,
                count: terms.count,
                ttl_ms,
            }),
        };
        of_no_holder(Arc::clone(claims), op)
    }
}

/// Keeps the tickets of callers that wait for `claims`.
pub fn refresh<'a>(
    claims: &Arc<[Claim]>,
    queue: Queue,
    tickets: impl Iterator<Item = &'a Ticket>,
) -> Request {
    let again = |ticket: &Ticket| Ticket {
        first: false,
        ..ticket.clone()
    };
    let tickets = tickets.map(again).collect();
    let op = match queue {
        Queue::Lock => Op::Refresh(Refresh { tickets }),
        Queue::Slot => Op::RefreshSlots(RefreshSlots { tickets }),
        Queue::Latch { ttl_ms } => Op::Attend(Attend {
            tickets,
            list: false,
            ttl_ms,
        }),
    };
    of_no_holder(Arc::clone(claims), op)
}

/// Reports the holders of `claims`.
pub fn inspect(claims: Arc<[Claim]>) -> Request {
    of_no_holder(claims, Op::Inspect)
}

/// A request of a caller that holds nothing.
pub(super) fn of_no_holder(claims: Arc<[Claim]>, op: Op) -> Request {
    Request {
        claims,
        token: no_token(),
        op,
    }
}

/// A token that holds nothing on any node.
fn no_token() -> Token {
    Token::from_entropy([0; TOKEN_ENTROPY_BYTES])
}
