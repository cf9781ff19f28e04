//! What a server must still be between two handshakes, and when that is looked at.
//!
//! A handshake finds out what a server is: master or replica, under which replication id, whether it may
//! evict locks, whether it keeps them over a crash. Operators change these while the server runs. So it
//! is looked at once a second, behind the calls that go out anyway, while something of ours may be held or
//! wanted there. A server that nobody uses is not asked.

use std::time::Duration;

use redis::{Pipeline, Value};

use crate::ledger::birth::Record;
use crate::message::{
    Acquire, AcquireSlot, Answer, Downgrade, Extend, Op, PlainAcquire, PlainExtend, Request,
    Restore,
};
use crate::node::OnDisk;
use crate::time::Timestamp;

use super::server::{Info, SYNC_SETTINGS, on_disk};

/// How often a server is looked at, and how old the last look may be before scripts look for themselves.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Those who wait are shown to the server more often than this.
const WANTED: Duration = Duration::from_secs(2);

/// Whether one server is to be looked at.
#[derive(Debug)]
pub(super) struct Watch {
    /// How many holders were written there and not taken away again: at least as many as there are.
    held: u64,
    /// When the last of them ends.
    held_until: Timestamp,
    /// Until when somebody may want something there.
    wanted: Option<Timestamp>,
    /// When the last look or handshake was sent that has been answered.
    seen: Timestamp,
    /// When the last look was sent.
    sent: Timestamp,
    under_way: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            held: 0,
            held_until: Timestamp::ZERO,
            wanted: None,
            seen: Timestamp::ZERO,
            sent: Timestamp::ZERO,
            under_way: false,
        }
    }

    /// Hands were shaken over a new session. What was seen of the server was seen after `sent`.
    pub(super) fn begin(&mut self, sent: Timestamp) {
        (self.seen, self.sent, self.under_way) = (sent, sent, false);
    }

    /// `request` goes out at `now`.
    pub(super) fn note(&mut self, request: &Request, now: Timestamp) {
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
            Op::Release { .. } | Op::ReleaseSlot { .. } | Op::PlainRelease | Op::Inspect => return,
        };
        self.held_until = self.held_until.max(now + Duration::from_millis(lease_ms));
    }

    /// The server answered so.
    pub(super) fn hear(&mut self, answer: &Answer) {
        match answer {
            Answer::Granted | Answer::Restored => self.held += 1,
            Answer::Permit(permit) if *permit.answer == Answer::Granted => self.held += 1,
            // Another process acquired it.
            Answer::Extended => self.held = self.held.max(1),
            Answer::Released => self.held = self.held.saturating_sub(1),
            _ => {}
        }
    }

    /// Nobody knows what became of a call: it may have written a holder.
    pub(super) fn miss(&mut self) {
        self.held = self.held.saturating_add(1);
    }

    /// Whether something may be held or wanted, as far as was known when it was last settled.
    pub(super) fn is_on(&self) -> bool {
        self.held > 0 || self.wanted.is_some()
    }

    /// Whether a look is to be sent now.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.held_until <= now {
            self.held = 0;
        }
        self.wanted = self.wanted.filter(|until| *until > now);
        self.is_on() && !self.under_way && now >= self.sent + INTERVAL
    }

    /// A look was sent.
    pub(super) fn look(&mut self, now: Timestamp) {
        (self.sent, self.under_way) = (now, true);
    }

    /// The look that was sent found everything as it was.
    pub(super) fn is_unchanged(&mut self) {
        (self.seen, self.under_way) = (self.sent, false);
    }

    /// Whether the server has not been seen for so long that scripts must look for themselves.
    pub(super) fn is_unseen(&self, now: Timestamp) -> bool {
        now >= self.seen + INTERVAL
    }
}

/// What a server was at its handshake, as far as it must stay so.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// What its birth record says of it.
    pub(super) server: Record<String>,
    /// Whether it may evict locks.
    pub(super) evicts: bool,
}

impl Image {
    /// What to ask a server. `CONFIG` only where durability depends on it, and it is not refused.
    pub(super) fn questions(&self, with_config: bool) -> Pipeline {
        let mut pipe = redis::pipe();
        for section in ["replication", "memory", "persistence"] {
            pipe.cmd("INFO").arg(section);
        }
        if self.server.durable && with_config {
            for setting in SYNC_SETTINGS {
                pipe.cmd("CONFIG").arg("GET").arg(setting);
            }
        }
        pipe
    }

    /// Whether the answers to [`Image::questions`] say that `CONFIG` is refused.
    pub(super) fn refuse_config(answers: &[Value]) -> bool {
        matches!(answers.get(3), Some(Value::ServerError(_)))
    }

    /// What has changed, by the answers to [`Image::questions`]: hands must be shaken again.
    pub(super) fn change(&self, answers: &[Value]) -> Option<&'static str> {
        let mut sections = answers.iter().map(Info::read);
        let mut section = || sections.next().flatten();
        let (Some(replication), Some(memory), Some(persistence)) =
            (section(), section(), section())
        else {
            return Some("does not tell its state any more");
        };
        let told = replication.replication_id();
        let known = self.server.replication_id.as_deref();
        let setting = |i| answers.get(i).unwrap_or(&Value::Nil);
        let synced = on_disk(&persistence, [setting(3), setting(4)]);
        match () {
            () if replication.get("role") == Some("slave") => Some("has become a replica"),
            () if known.is_some() && told.is_some() && told != known => {
                Some("has another replication id")
            }
            () if replication.has_replicas() && !self.server.replicated => {
                Some("has a replica now")
            }
            () if memory.memory().evicts() != self.evicts => {
                Some("has another maxmemory or maxmemory-policy")
            }
            () if self.server.durable && matches!(synced, OnDisk::Never | OnDisk::Later) => {
                Some("does not sync every write to its append-only file any more")
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Refresh;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn image() -> Image {
        Image {
            server: Record {
                run_id: "ab".to_owned(),
                replication_id: Some("e1".to_owned()),
                epoch: None,
                replicated: false,
                durable: true,
            },
            evicts: false,
        }
    }

    fn answers() -> Vec<Value> {
        vec![
            text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            text("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            text("aof_enabled:1\r\n"),
            Value::Array(vec![text("appendfsync"), text("always")]),
            Value::Array(vec![text("no-appendfsync-on-rewrite"), text("no")]),
        ]
    }

    #[test]
    fn a_server_that_did_not_change_is_let_be() {
        assert_eq!(image().change(&answers()), None);
        // Where CONFIG is refused INFO must do.
        assert_eq!(image().change(&answers()[..3]), None);
    }

    #[test]
    fn every_change_that_matters_is_noticed() {
        let everysec = Value::Array(vec![text("appendfsync"), text("everysec")]);
        for (answer, instead) in [
            (
                0,
                text("role:slave\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e2\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n"),
            ),
            (1, text("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n")),
            (2, text("aof_enabled:0\r\n")),
            (2, Value::Nil),
            (3, everysec),
        ] {
            let mut answers = answers();
            answers[answer] = instead.clone();
            assert!(image().change(&answers).is_some(), "{instead:?}");
        }
    }

    #[test]
    fn what_is_known_already_is_no_change() {
        let mut image = image();
        (image.server.replicated, image.server.durable) = (true, false);
        let mut answers = answers();
        answers[0] = text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n");
        answers[2] = text("aof_enabled:0\r\n");
        assert_eq!(image.change(&answers), None);
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn request(op: Op) -> Request {
        Request {
            claims: [].into(),
            token: crate::token::Token::from_entropy([0; crate::token::TOKEN_ENTROPY_BYTES]),
            op,
        }
    }

    #[test]
    fn a_server_is_looked_at_once_a_second_while_something_is_held() {
        let mut watch = Watch::new();
        watch.begin(at(10));
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        assert!(!watch.is_due(at(20)), "nothing is held yet");
        watch.hear(&Answer::Granted);
        assert!(!watch.is_due(at(10)) && watch.is_due(at(11)));
        watch.look(at(11));
        assert!(!watch.is_due(at(13)), "one at a time");
        assert!(watch.is_unseen(at(11)), "it has not been answered");
        watch.is_unchanged();
        assert!(!watch.is_unseen(at(11)) && watch.is_unseen(at(12)));
        assert!(watch.is_due(at(12)));
        watch.hear(&Answer::Released);
        assert!(!watch.is_due(at(12)), "nothing is held any more");
    }

    #[test]
    fn a_server_is_not_looked_at_for_a_lease_that_has_ended() {
        let mut watch = Watch::new();
        watch.note(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
            at(10),
        );
        watch.miss();
        assert!(watch.is_due(at(39)) && !watch.is_due(at(40)));
        watch.note(&request(Op::Refresh(Refresh { places: [].into() })), at(50));
        assert!(watch.is_due(at(51)) && !watch.is_due(at(52)));
    }
}
