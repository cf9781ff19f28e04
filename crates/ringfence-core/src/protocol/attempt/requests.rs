//! The requests of an attempt.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Acquire, Claim, Op, Request, Slots};
use crate::protocol::{Asked, GrantId};

use super::Attempt;

impl Attempt {
    /// The request for `claims`, with the lease that each node grants.
    pub fn request(&self, claims: &Arc<[Claim]>, lease: Duration, label: &Arc<str>) -> Request {
        let slot = match self.asked {
            Some(Asked::Slot(slot)) => Some(slot),
            Some(Asked::Any) | None => None,
        };
        let acquire = Acquire {
            ballot: self.ballot,
            ttl_ms: lease.as_millis() as u64,
            label: Arc::clone(label),
            ticket: self.ticket.clone(),
            not_after_us: self.not_after_us,
        };
        Request {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            op: match self.inspects_only {
                false => self.kind.acquire(slot, acquire),
                true => Op::Inspect,
            },
        }
    }

    /// The identity of what this attempt may have left on the nodes.
    pub fn grant_id(&self, claims: &Arc<[Claim]>) -> GrantId {
        let slots = self.asked.map(|asked| match asked {
            Asked::Any => Slots::All,
            Asked::Slot(slot) => Slots::Only(slot),
        });
        GrantId {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            ballot: self.ballot,
            kind: self.kind,
            ticket: self.ticket.clone().map(Box::new),
            slots: slots.map(|slots| Box::new((Arc::clone(claims), slots))),
        }
    }
}
