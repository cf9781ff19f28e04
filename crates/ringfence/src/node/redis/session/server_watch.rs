//! When a server is checked between two handshakes.
//!
//! An operator may change the server meanwhile: its role, its replication id, whether it may evict
//! locks, whether it keeps them over a crash. So the link checks the server once a second, while
//! clients of ours may hold or want locks there.

use std::time::Duration;

use crate::message::{
    Acquire, AcquireSlot, Answer, Downgrade, Extend, Op, PlainAcquire, PlainExtend, Request,
    Restore,
};
use crate::time::Timestamp;

/// How often a server is checked, and how old the last check may be before scripts compare the
/// replication id themselves.
pub(in crate::node::redis) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Waiters refresh their tickets more often than this.
const WANTED: Duration = Duration::from_secs(2);

/// Decides when one server is to be checked.
#[derive(Debug)]
pub(in crate::node::redis) struct ServerWatch {
    /// An upper bound of the holders that we wrote there and did not release.
    held: u64,
    /// When the last of their leases ends.
    held_until: Timestamp,
    /// Until when a client of ours may want a lock there.
    wanted: Option<Timestamp>,
    /// When the last answered check or handshake was sent.
    seen: Timestamp,
    /// When the last check was sent.
    sent: Timestamp,
    in_flight: bool,
}

impl ServerWatch {
    pub(in crate::node::redis) fn new() -> Self {
        Self {
            held: 0,
            held_until: Timestamp::ZERO,
            wanted: None,
            seen: Timestamp::ZERO,
            sent: Timestamp::ZERO,
            in_flight: false,
        }
    }

    /// A new session has done its handshake. The server was examined after `sent`.
    pub(in crate::node::redis) fn begin(&mut self, sent: Timestamp) {
        (self.seen, self.sent, self.in_flight) = (sent, sent, false);
    }

    /// Notes that `request` is sent at `now`.
    pub(in crate::node::redis) fn note(&mut self, request: &Request, now: Timestamp) {
        let lease_ms = match &request.op {
            Op::Acquire(Acquire { ttl_ms, .. })
            | Op::AcquireSlot(AcquireSlot {
                acquire: Acquire { ttl_ms, .. },
                ..
            })
            | Op::Extend(Extend { ttl_ms, .. })
            | Op::Downgrade(Downgrade { ttl_ms, .. })
            | Op::Restore(Restore { ttl_ms, .. })
            | Op::PlainAcquire(PlainAcquire { ttl_ms })
            | Op::PlainExtend(PlainExtend { ttl_ms }) => *ttl_ms,
            Op::Refresh { .. }
            | Op::RefreshSlots { .. }
            | Op::Arrive { .. }
            | Op::Attend { .. } => {
                self.wanted = Some(now + WANTED);
                return;
            }
            Op::Release { .. }
            | Op::ReleaseSlot { .. }
            | Op::PlainRelease
            | Op::Break(_)
            | Op::Inspect
            | Op::List(_) => return,
        };
        self.held_until = self.held_until.max(now + Duration::from_millis(lease_ms));
    }

    /// Notes an answer of the server.
    pub(in crate::node::redis) fn note_answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Granted | Answer::Restored => self.held += 1,
            Answer::Permit(permit) if *permit.answer == Answer::Granted => self.held += 1,
            // Another process acquired it.
            Answer::Extended => self.held = self.held.max(1),
            Answer::Released => self.held = self.held.saturating_sub(1),
            _ => {}
        }
    }

    /// Notes a call with an unknown outcome: it may have written a holder.
    pub(in crate::node::redis) fn note_unknown(&mut self) {
        self.held = self.held.saturating_add(1);
    }

    /// Whether locks may be held or wanted, as of the last call of [`ServerWatch::is_due`].
    pub(in crate::node::redis) fn is_on(&self) -> bool {
        self.held > 0 || self.wanted.is_some()
    }

    /// Whether a check is to be sent now.
    pub(in crate::node::redis) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.held_until <= now {
            self.held = 0;
        }
        self.wanted = self.wanted.filter(|until| *until > now);
        self.is_on() && !self.in_flight && now >= self.sent + LOOK_INTERVAL
    }

    /// Notes that a check was sent.
    pub(in crate::node::redis) fn look(&mut self, now: Timestamp) {
        (self.sent, self.in_flight) = (now, true);
    }

    /// Notes that the check found the server unchanged.
    pub(in crate::node::redis) fn note_unchanged(&mut self) {
        (self.seen, self.in_flight) = (self.sent, false);
    }

    /// Whether the last check is so old that scripts must compare the replication id themselves.
    pub(in crate::node::redis) fn is_unseen(&self, now: Timestamp) -> bool {
        now >= self.seen + LOOK_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Refresh;
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn request(op: Op) -> Request {
        Request {
            claims: [].into(),
            token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
            op,
        }
    }

    #[test]
    fn a_server_is_checked_once_a_second_while_a_lock_is_held() {
        let mut watch = ServerWatch::new();
        watch.begin(at(10));
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        assert!(!watch.is_due(at(20)), "nothing is held yet");
        watch.note_answer(&Answer::Granted);
        assert!(!watch.is_due(at(10)) && watch.is_due(at(11)));
        watch.look(at(11));
        assert!(!watch.is_due(at(13)), "one at a time");
        assert!(watch.is_unseen(at(11)), "it has not been answered");
        watch.note_unchanged();
        assert!(!watch.is_unseen(at(11)) && watch.is_unseen(at(12)));
        assert!(watch.is_due(at(12)));
        watch.note_answer(&Answer::Released);
        assert!(!watch.is_due(at(12)), "nothing is held any more");
    }

    #[test]
    fn a_server_is_not_checked_for_a_lease_that_has_ended() {
        let mut watch = ServerWatch::new();
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        watch.note_unknown();
        assert!(watch.is_due(at(39)) && !watch.is_due(at(40)));
        watch.note(
            &request(Op::Refresh(Refresh { tickets: [].into() })),
            at(50),
        );
        assert!(watch.is_due(at(51)) && !watch.is_due(at(52)));
    }
}
