//! The calls that wait to be sent to a node. Those of holders go first: a release that waits behind
//! thousands of acquires would expire unconfirmed, and these acquires wait for the lock that it
//! releases; and a renewal that waits too long loses the lock. The undos of callers that have given
//! up go last: no caller waits for them, and many callers may give up at once.
//!
//! Calls of one token keep their order: a release must not overtake the acquire or the extend that
//! it ends. Only an undo of a caller that has given up may be overtaken: no call of its attempt
//! follows. Nothing overtakes a control request to the node itself, such as joining a group.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::message::Request;

/// While undos wait, one of so many calls is an undo: a name stays blocked as long as what a caller
/// has left there is not undone.
const UNDO_EVERY: u32 = 8;

/// The class of an item, by which the backlog orders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A renewal or release of a holder, by the key of its token.
    Holder(u64),
    /// Another call, by the key of its token.
    Call(u64),
    /// The undo of a caller that has given up, by the key of its token.
    Undo(u64),
    /// A control request to the node itself.
    Control,
}

impl Urgency {
    /// The urgency of a call with `request`.
    pub(super) fn of(request: &Request) -> Self {
        // Two tokens with the same hash only keep their order needlessly.
        let key = FxBuildHasher.hash_one(request.token.expose());
        if request.op.is_of_holder() {
            Self::Holder(key)
        } else if request.op.is_late_undo() {
            Self::Undo(key)
        } else {
            Self::Call(key)
        }
    }
}

/// The waiting items, in three queues.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    /// Was put back: goes before everything.
    returned: Vec<T>,
    /// These go first.
    holders: VecDeque<T>,
    others: VecDeque<(Urgency, T)>,
    /// These go last, by the key of their token.
    undos: VecDeque<(u64, T)>,
    /// How many calls of each token are in `others`.
    tokens: FxHashMap<u64, u32>,
    /// How many control requests are in `others`.
    controls: usize,
    /// How many items went before the first of `undos`.
    before_undo: u32,
    /// How many items there are in total.
    pub(super) len: usize,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            returned: Vec::new(),
            holders: VecDeque::new(),
            others: VecDeque::new(),
            undos: VecDeque::new(),
            tokens: FxHashMap::default(),
            controls: 0,
            before_undo: 0,
            len: 0,
        }
    }
}

impl<T> Backlog<T> {
    /// Adds `item` behind everything that it must not overtake.
    pub(super) fn push(&mut self, item: T, urgency: Urgency) {
        self.len += 1;
        match urgency {
            Urgency::Holder(token) if self.controls == 0 && !self.tokens.contains_key(&token) => {
                self.holders.push_back(item);
            }
            Urgency::Undo(token) => self.undos.push_back((token, item)),
            Urgency::Holder(_) | Urgency::Call(_) => self.push_other(item, urgency),
            Urgency::Control => {
                for (token, undo) in std::mem::take(&mut self.undos) {
                    self.push_other(undo, Urgency::Undo(token));
                }
                self.push_other(item, urgency);
            }
        }
    }

    fn push_other(&mut self, item: T, urgency: Urgency) {
        match urgency.token() {
            Some(token) => *self.tokens.entry(token).or_default() += 1,
            None => self.controls += 1,
        }
        self.others.push_back((urgency, item));
    }

    /// Puts `item` back at the front.
    #[cfg(feature = "redis")]
    pub(super) fn put_back(&mut self, item: T) {
        self.len += 1;
        self.returned.push(item);
    }

    /// Removes the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        if let Some(item) = self.returned.pop() {
            self.len -= 1;
            return Some(item);
        }
        if self.is_undo_due() {
            return self.pop_undo();
        }
        self.before_undo += u32::from(!self.undos.is_empty());
        self.pop_of_holder()
            .or_else(|| self.pop_other())
            .or_else(|| self.pop_undo())
    }

    /// Removes the next call of a holder, if one may go before everything else.
    pub(super) fn pop_of_holder(&mut self) -> Option<T> {
        let item = self.holders.pop_front()?;
        self.len -= 1;
        Some(item)
    }

    fn pop_other(&mut self) -> Option<T> {
        let (urgency, item) = self.others.pop_front()?;
        self.len -= 1;
        match urgency.token() {
            Some(token) => {
                if let Some(count) = self.tokens.get_mut(&token) {
                    *count -= 1;
                    if *count == 0 {
                        self.tokens.remove(&token);
                    }
                }
            }
            None => self.controls -= 1,
        }
        Some(item)
    }

    /// Whether it is the turn of an undo, which overtakes neither a call of its own token nor a
    /// control request.
    fn is_undo_due(&self) -> bool {
        let due = self.before_undo + 1 >= UNDO_EVERY && self.controls == 0;
        due && matches!(self.undos.front(), Some((token, _)) if !self.tokens.contains_key(token))
    }

    fn pop_undo(&mut self) -> Option<T> {
        let (_, item) = self.undos.pop_front()?;
        self.len -= 1;
        self.before_undo = 0;
        Some(item)
    }

    /// Removes all items. Items that must keep their order keep it.
    #[cfg(feature = "redis")]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let Self {
            returned,
            holders,
            others,
            undos,
            ..
        } = std::mem::take(self);
        let first = returned.into_iter().rev().chain(holders);
        let rest = others.into_iter().map(|(_, item)| item);
        first
            .chain(rest)
            .chain(undos.into_iter().map(|(_, item)| item))
    }
}

impl Urgency {
    /// The key of the token; `None` for a control request.
    fn token(self) -> Option<u64> {
        match self {
            Self::Holder(token) | Self::Call(token) | Self::Undo(token) => Some(token),
            Self::Control => None,
        }
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

    use Urgency::{Call, Control, Holder, Undo};

    #[test]
    fn holders_go_before_the_calls_of_other_tokens() {
        let backlog = filled(&[
            ("acquire 1", Call(1)),
            ("acquire 2", Call(2)),
            ("release 3", Holder(3)),
            ("acquire 4", Call(4)),
            ("extend 5", Holder(5)),
        ]);
        let expected = [
            "release 3",
            "extend 5",
            "acquire 1",
            "acquire 2",
            "acquire 4",
        ];
        assert_eq!(order(backlog), expected);
    }

    #[test]
    fn the_undos_of_callers_that_gave_up_go_last() {
        let backlog = filled(&[
            ("undo 1", Undo(1)),
            ("undo 2", Undo(2)),
            ("acquire 3", Call(3)),
            ("undo 4", Undo(4)),
            ("extend 5", Holder(5)),
        ]);
        let expected = ["extend 5", "acquire 3", "undo 1", "undo 2", "undo 4"];
        assert_eq!(order(backlog), expected);
    }

    #[test]
    fn one_of_eight_calls_is_an_undo_as_long_as_undos_wait() {
        let mut backlog = Backlog::default();
        for token in 0..100 {
            backlog.push("acquire", Call(token));
        }
        for token in 100..105 {
            backlog.push("undo", Undo(token));
        }
        let order: Vec<_> = std::iter::from_fn(|| backlog.pop()).collect();
        let undos = order.iter().zip(1..).filter(|(item, _)| **item == "undo");
        let positions: Vec<u32> = undos.map(|(_, position)| position).collect();
        assert_eq!(positions, [8, 16, 24, 32, 40]);
        assert_eq!(order.len(), 105);
    }

    #[test]
    fn a_holder_never_overtakes_a_call_of_its_own_token() {
        let backlog = filled(&[
            ("acquire 1", Call(1)),
            ("acquire 2", Call(2)),
            ("release 2", Holder(2)),
            ("acquire 3", Call(3)),
            ("extend 3", Holder(3)),
            // Also behind the other release of its token.
            ("release 2 again", Holder(2)),
            ("release 4", Holder(4)),
        ]);
        let expected = [
            "release 4",
            "acquire 1",
            "acquire 2",
            "release 2",
            "acquire 3",
            "extend 3",
            "release 2 again",
        ];
        assert_eq!(order(backlog), expected);
    }

    #[test]
    fn an_undo_never_overtakes_the_acquire_of_its_own_token() {
        let mut backlog = Backlog::default();
        for token in 0..50 {
            backlog.push(("acquire", token), Call(token));
        }
        // The first of them would be due long before its acquire.
        for token in (0..50).rev() {
            backlog.push(("undo", token), Undo(token));
        }
        let order: Vec<_> = std::iter::from_fn(|| backlog.pop()).collect();
        let place = |item| order.iter().position(|other| *other == item).unwrap();
        for token in 0..50 {
            assert!(
                place(("acquire", token)) < place(("undo", token)),
                "{token}"
            );
        }
    }

    #[test]
    fn once_the_calls_of_its_token_are_gone_a_holder_goes_first_again() {
        let mut backlog = filled(&[("acquire 1", Call(1)), ("acquire 2", Call(2))]);
        assert_eq!(backlog.pop(), Some("acquire 1"));
        backlog.push("release 1", Holder(1));
        assert_eq!(order(backlog), ["release 1", "acquire 2"]);
    }

    #[test]
    fn nothing_overtakes_a_control_request() {
        let mut backlog = filled(&[
            ("undo 1", Undo(1)),
            ("join", Control),
            ("release 1", Holder(1)),
            ("undo 2", Undo(2)),
        ]);
        assert_eq!(backlog.pop(), Some("undo 1"));
        assert_eq!(backlog.pop(), Some("join"));
        backlog.put_back("join");
        assert_eq!(order(backlog), ["join", "release 1", "undo 2"]);
    }

    #[test]
    fn only_the_calls_of_holders_are_taken_as_such() {
        let mut backlog = filled(&[
            ("acquire 1", Call(1)),
            ("release 1", Holder(1)),
            ("undo 2", Undo(2)),
            ("release 3", Holder(3)),
        ]);
        assert_eq!(backlog.pop_of_holder(), Some("release 3"));
        assert_eq!(backlog.pop_of_holder(), None);
        assert_eq!(order(backlog), ["acquire 1", "release 1", "undo 2"]);
    }

    #[test]
    fn drain_keeps_the_order() {
        let mut backlog = filled(&[
            ("undo 3", Undo(3)),
            ("acquire 1", Call(1)),
            ("release 2", Holder(2)),
        ]);
        backlog.put_back("returned");
        let drained: Vec<_> = backlog.drain().collect();
        assert_eq!(drained, ["returned", "release 2", "acquire 1", "undo 3"]);
        assert_eq!(order(backlog), [""; 0]);
    }

    #[test]
    fn only_the_undo_of_a_caller_that_gave_up_goes_last() {
        use crate::message::{Ballot, Release, ReleaseKind};
        let urgency = |kind, stays| {
            let release = Release {
                ballot: Ballot::default(),
                kind,
                fate_unknown: false,
                ticket: None,
                stays,
                keep_ms: None,
                delay_ms: 0,
            };
            Urgency::of(&call_of(1, Op::Release(release), Timestamp::ZERO).request)
        };
        assert!(matches!(urgency(ReleaseKind::Final, false), Holder(_)));
        assert!(matches!(urgency(ReleaseKind::Undo, false), Undo(_)));
        // Its caller waits, and sends more calls of the same token.
        assert!(matches!(urgency(ReleaseKind::Undo, true), Call(_)));
    }
}
