//! The calls that wait to be sent to a node. Releases go first: a release that waits behind
//! thousands of acquires would expire unconfirmed, and these acquires wait for the lock that it
//! releases.
//!
//! Calls of one token keep their order: a release must not overtake the acquire or the extend that
//! it ends. Nothing overtakes a control request to the node itself, such as joining a group.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::message::Request;

/// The class of an item, by which the backlog orders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A release or undo, by the key of its token.
    Release(u64),
    /// Another call, by the key of its token.
    Call(u64),
    /// A control request to the node itself.
    Control,
}

impl Urgency {
    /// The urgency of a call with `request`.
    pub(super) fn of(request: &Request) -> Self {
        let key = key(request.token.expose());
        match request.op.is_release() {
            true => Self::Release(key),
            false => Self::Call(key),
        }
    }
}

/// The waiting items, in two queues.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    /// These go first.
    releases: VecDeque<T>,
    others: VecDeque<(Urgency, T)>,
    /// How many calls of each token are in `others`.
    tokens: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    /// How many control requests are in `others`.
    controls: usize,
    /// How many items there are in total.
    pub(super) len: usize,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            releases: VecDeque::new(),
            others: VecDeque::new(),
            tokens: HashMap::default(),
            controls: 0,
            len: 0,
        }
    }
}

impl<T> Backlog<T> {
    /// Adds `item` behind everything that it must not overtake.
    pub(super) fn push(&mut self, item: T, urgency: Urgency) {
        self.len += 1;
        match urgency {
            Urgency::Release(token) if self.controls == 0 && !self.tokens.contains_key(&token) => {
                self.releases.push_back(item);
                return;
            }
            Urgency::Release(token) | Urgency::Call(token) => {
                *self.tokens.entry(token).or_default() += 1
            }
            Urgency::Control => self.controls += 1,
        }
        self.others.push_back((urgency, item));
    }

    /// Puts `item` back at the front.
    #[cfg(feature = "redis")]
    pub(super) fn put_back(&mut self, item: T) {
        self.len += 1;
        self.releases.push_front(item);
    }

    /// Removes the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.len = self.len.saturating_sub(1);
        if let Some(release) = self.releases.pop_front() {
            return Some(release);
        }
        let (urgency, item) = self.others.pop_front()?;
        match urgency {
            Urgency::Release(token) | Urgency::Call(token) => {
                if let Some(count) = self.tokens.get_mut(&token) {
                    *count -= 1;
                    if *count == 0 {
                        self.tokens.remove(&token);
                    }
                }
            }
            Urgency::Control => self.controls -= 1,
        }
        Some(item)
    }

    /// Removes all items, in the order in which `pop` would return them.
    #[cfg(feature = "redis")]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let Self {
            releases, others, ..
        } = std::mem::take(self);
        releases
            .into_iter()
            .chain(others.into_iter().map(|(_, item)| item))
    }
}

/// A hash of the token. Two tokens with the same hash only keep their order needlessly.
fn key(token: &str) -> u64 {
    token.as_bytes().chunks(8).fold(0, |key: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        // The fraction of the golden ratio: odd, and its bits look random.
        (key.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// For keys that are already hashes.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word.rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::{Op, Reply};
    use crate::node::{self, CallError, Completion, Deliver};
    use crate::time::Timestamp;
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    struct DiscardReply;

    impl Deliver<Reply> for DiscardReply {
        fn deliver(&self, _: u64, _: Result<Reply, CallError>) {}
    }

    /// A call of `op` with the token number `token`. Its answer is discarded.
    pub(in crate::node) fn call_of(token: usize, op: Op, expires: Timestamp) -> node::Call {
        let mut entropy = [0; TOKEN_ENTROPY_BYTES];
        entropy[..8].copy_from_slice(&(token as u64).to_le_bytes());
        let request = Request {
            claims: Arc::from([]),
            token: Token::from_entropy(entropy),
            op,
        };
        node::Call {
            request: Arc::new(request),
            expires,
            done: Completion::new(Arc::new(DiscardReply), 0),
        }
    }

    fn filled(items: &[(&'static str, Urgency)]) -> Backlog<&'static str> {
        let mut backlog = Backlog::default();
        for (item, urgency) in items {
            backlog.push(*item, *urgency);
        }
        backlog
    }

    fn order(mut backlog: Backlog<&'static str>) -> Vec<&'static str> {
        let order = std::iter::from_fn(|| backlog.pop()).collect();
        assert!(backlog.len == 0 && backlog.tokens.is_empty() && backlog.controls == 0);
        order
    }

    use Urgency::{Call, Control, Release};

    #[test]
    fn releases_go_before_the_calls_of_other_tokens() {
        let backlog = filled(&[
            ("acquire 1", Call(1)),
            ("acquire 2", Call(2)),
            ("release 3", Release(3)),
            ("acquire 4", Call(4)),
            ("release 5", Release(5)),
        ]);
        let expected = [
            "release 3",
            "release 5",
            "acquire 1",
            "acquire 2",
            "acquire 4",
        ];
        assert_eq!(order(backlog), expected);
    }

    #[test]
    fn a_release_never_overtakes_a_call_of_its_own_token() {
        let backlog = filled(&[
            ("acquire 1", Call(1)),
            ("acquire 2", Call(2)),
            ("undo 2", Release(2)),
            ("extend 3", Call(3)),
            ("release 3", Release(3)),
            // Also behind the other release of its token.
            ("undo 2 again", Release(2)),
            ("release 4", Release(4)),
        ]);
        let expected = [
            "release 4",
            "acquire 1",
            "acquire 2",
            "undo 2",
            "extend 3",
            "release 3",
            "undo 2 again",
        ];
        assert_eq!(order(backlog), expected);
    }

    #[test]
    fn once_the_calls_of_its_token_are_gone_a_release_goes_first_again() {
        let mut backlog = filled(&[("acquire 1", Call(1)), ("acquire 2", Call(2))]);
        assert_eq!(backlog.pop(), Some("acquire 1"));
        backlog.push("undo 1", Release(1));
        assert_eq!(order(backlog), ["undo 1", "acquire 2"]);
    }

    #[test]
    fn nothing_overtakes_a_control_request() {
        let mut backlog = filled(&[("join", Control), ("release 1", Release(1))]);
        assert_eq!(backlog.pop(), Some("join"));
        backlog.put_back("join");
        assert_eq!(order(backlog), ["join", "release 1"]);
    }

    #[test]
    fn drain_keeps_the_order() {
        let mut backlog = filled(&[("acquire 1", Call(1)), ("release 2", Release(2))]);
        let drained: Vec<_> = backlog.drain().collect();
        assert_eq!(drained, ["release 2", "acquire 1"]);
        assert_eq!(order(backlog), [""; 0]);
    }
}
