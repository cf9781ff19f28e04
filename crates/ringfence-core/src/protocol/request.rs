//! The requests of a client, but for those of an [`Attempt`](super::Attempt), which makes its own. No
//! file outside of this crate makes one.

use std::sync::Arc;

use crate::message::{
    Arrive, Attend, Ballot, Claim, Kind, Op, Place, Refresh, RefreshSlots, Release, ReleaseKind,
    Request, Slots,
};
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::latch_round::Question;
use super::{LatchRound, LatchTerms, Transmit};

/// What the nodes know a lock by that was asked for: every request about it names this. Every hold
/// has one, so what few of them have is in a box.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantId {
    /// What was asked for. Of a slot that was won, its one claim.
    pub claims: Arc<[Claim]>,
    /// Who asked.
    pub token: Token,
    /// What was proposed: the fence, if it was granted.
    pub ballot: Ballot,
    /// What it is.
    pub kind: Kind,
    /// The place in line under which it was asked for.
    pub place: Option<Box<Place>>,
    /// For slots of a semaphore: all its claims, and which of the slots.
    pub slots: Option<Box<(Arc<[Claim]>, Slots)>>,
}

impl GrantId {
    /// The ticket of a caller that waits for `claims` at `place`. The token is of no grant: a node
    /// that granted must keep the grant.
    pub fn of_ticket(claims: &Arc<[Claim]>, place: &Place, queue: Queue) -> Self {
        let (kind, slots) = match queue {
            Queue::Slot => (Kind::Slot, Some((Arc::clone(claims), Slots::All))),
            Queue::Lock | Queue::Latch { .. } => (Kind::Exclusive, None),
        };
        Self {
            claims: Arc::clone(claims),
            token: no_token(),
            ballot: Ballot::default(),
            kind,
            place: Some(Box::new(place.clone())),
            slots: slots.map(Box::new),
        }
    }

    /// A lock that another process may have left behind.
    pub fn of_receipt(claims: Arc<[Claim]>, token: Token, ballot: Ballot, kind: Kind) -> Self {
        Self {
            claims,
            token,
            ballot,
            kind,
            place: None,
            slots: None,
        }
    }

    /// `slot` of the semaphore was won.
    pub fn with_slot(mut self, slot: u32) -> Self {
        if let Some(slots) = &mut self.slots {
            slots.1 = Slots::Only(slot);
            // The gate comes first.
            self.claims = Arc::from([slots.0[slot as usize + 1].clone()]);
        }
        self
    }

    /// The other slots of the semaphore of which `slot` was won.
    pub fn without_slot(mut self, slot: u32) -> Self {
        if let Some(slots) = &mut self.slots {
            slots.1 = Slots::AllBut(slot);
        }
        self
    }

    /// The same lock, shared with readers.
    pub fn shared(&self) -> Self {
        Self {
            claims: self.claims.iter().map(Claim::shared).collect(),
            kind: Kind::Shared,
            ..self.clone()
        }
    }
}

/// In which queue a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// For its turn to hold a lock.
    Lock,
    /// For its turn to have a slot of a semaphore.
    Slot,
    /// For enough arrivals at a latch.
    Latch {
        /// How long the latch is kept for the sake of the callers that wait.
        ttl_ms: u64,
    },
}

impl Transmit {
    /// The request for the lock `id`.
    pub fn request(&self, id: &GrantId, label: &Arc<str>) -> Request {
        Request {
            claims: Arc::clone(&id.claims),
            token: id.token.clone(),
            op: self.op(id.kind, id.ballot, label),
        }
    }
}

/// What a release or undo says to the nodes: to most of them the same, which is made once.
#[derive(Debug)]
pub struct ReleaseRequests {
    /// To a node of which the fate of the acquire is known.
    known: Arc<Request>,
    /// To the others.
    unknown: Option<Arc<Request>>,
    /// When the last lease of what is given back has ended.
    until: Timestamp,
    /// Until when what is given back is kept from others.
    keep_until: Option<Timestamp>,
}

impl ReleaseRequests {
    /// Gives `id` back, the last lease of which ends at `until`. If the caller `stays`, its place in
    /// line is kept.
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
            place: id.place.as_deref().cloned(),
            stays,
            keep_ms: None,
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

    /// The token of what is given back.
    pub fn token(&self) -> &Token {
        &self.known.token
    }

    /// What to say at `now` to a node, and until when it is worth sending. Said again later, it keeps
    /// for a shorter time. If the caller `leaves`, it gives up its place: entered again, the ticket
    /// would outlive its use.
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

/// The same as `request`, to a node that may get the acquire later, or never.
fn of_unknown_fate(request: &Request) -> Request {
    let mut request = request.clone();
    if let Some(release) = request.op.release_mut() {
        release.fate_unknown = true;
    }
    request
}

impl LatchRound {
    /// Puts the question of this round to a node. A caller that waits to be told has a `place`.
    pub fn request(
        &self,
        claims: &Arc<[Claim]>,
        terms: &LatchTerms,
        place: Option<&Place>,
    ) -> Request {
        let ttl_ms = terms.ttl.as_millis() as u64;
        let op = match self.question() {
            Question::Look => Op::Attend(Attend {
                places: place.cloned().into_iter().collect(),
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

/// Shows the nodes that the callers at `places` still wait for `claims`.
pub fn refresh<'a>(
    claims: &Arc<[Claim]>,
    queue: Queue,
    places: impl Iterator<Item = &'a Place>,
) -> Request {
    let again = |place: &Place| Place {
        first: false,
        ..place.clone()
    };
    let places = places.map(again).collect();
    let op = match queue {
        Queue::Lock => Op::Refresh(Refresh { places }),
        Queue::Slot => Op::RefreshSlots(RefreshSlots { places }),
        Queue::Latch { ttl_ms } => Op::Attend(Attend {
            places,
            list: false,
            ttl_ms,
        }),
    };
    of_no_holder(Arc::clone(claims), op)
}

/// Asks who holds `claims`.
pub fn inspect(claims: Arc<[Claim]>) -> Request {
    of_no_holder(claims, Op::Inspect)
}

/// A request of a caller that holds nothing.
fn of_no_holder(claims: Arc<[Claim]>, op: Op) -> Request {
    Request {
        claims,
        token: no_token(),
        op,
    }
}

/// A token that no holder has.
fn no_token() -> Token {
    Token::from_entropy([0; TOKEN_ENTROPY_BYTES])
}
