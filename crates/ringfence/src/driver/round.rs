//! What a [`Flight`](super::flight::Flight) needs of the machine that it carries.

use crate::message::Reply;
use crate::node::CallError;
use crate::protocol::{
    Attempt, Discount, LatchRound, Verdict, Vote, Withdrawal, WithdrawalVerdict,
};
use crate::time::Timestamp;

/// A machine that takes replies and comes to a verdict.
pub(crate) trait Round: Send + 'static {
    type Verdict: Copy + Send;

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    );
    fn handle_timeout(&mut self, now: Timestamp);
    fn poll_timeout(&self) -> Option<Timestamp>;
    fn verdict(&self) -> Option<Self::Verdict>;
    /// The nodes that have been silent for too long, as far as this round can tell.
    fn silent(&self) -> Vec<usize>;
}

/// Hands on to the machine what it has under the same names.
macro_rules! hand_on {
    (replies) => {
        fn handle_reply(
            &mut self,
            node: usize,
            outcome: Result<Reply, CallError>,
            discount: Option<Discount>,
            now: Timestamp,
        ) {
            Self::handle_reply(self, node, outcome, discount, now);
        }
    };
    (timeouts) => {
        fn handle_timeout(&mut self, now: Timestamp) {
            Self::handle_timeout(self, now);
        }

        fn poll_timeout(&self) -> Option<Timestamp> {
            Self::poll_timeout(self)
        }
    };
}

impl Round for Attempt {
    type Verdict = Verdict;

    hand_on!(replies);
    hand_on!(timeouts);

    fn verdict(&self) -> Option<Verdict> {
        Self::verdict(self)
    }

    fn silent(&self) -> Vec<usize> {
        silent(self.votes())
    }
}

impl Round for Withdrawal {
    type Verdict = WithdrawalVerdict;

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        _discount: Option<Discount>,
        now: Timestamp,
    ) {
        Self::handle_reply(self, node, &outcome, now);
    }

    hand_on!(timeouts);

    fn verdict(&self) -> Option<WithdrawalVerdict> {
        Self::verdict(self)
    }

    /// Nobody waits for those who do not answer, and they are told again.
    fn silent(&self) -> Vec<usize> {
        Vec::new()
    }
}

impl Round for LatchRound {
    type Verdict = ();

    hand_on!(replies);
    hand_on!(timeouts);

    fn verdict(&self) -> Option<()> {
        self.is_over().then_some(())
    }

    fn silent(&self) -> Vec<usize> {
        Self::silent(self)
    }
}

fn silent<'a>(votes: impl IntoIterator<Item = &'a Vote>) -> Vec<usize> {
    let votes = votes.into_iter().enumerate();
    let silent = votes.filter(|(_, vote)| **vote == Vote::Silent);
    silent.map(|(node, _)| node).collect()
}
