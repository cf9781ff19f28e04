//! One round: one request to all nodes. Counts the vote of each node, ends at a timeout, and has a
//! verdict as soon as the missing answers cannot change it. The purpose of the round ([`Purpose`])
//! decides what an answer means and what the votes amount to.
//!
//! A server behind two nodes has one vote. An address may be redirected to the server of another
//! node at any time (DNS, a virtual IP). So every reply names the server that sent it, and every
//! round compares the servers.
//!
//! The earlier node of the list votes for the server; the later one does not. The order of the
//! replies does not matter: the later node loses its vote when the earlier node answers. As long as
//! the earlier node does not answer, the later one votes for the server.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use crate::message::{Answer, BreakNote, Holder, Reply};
use crate::node::{CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

/// A machine that takes the replies of the nodes and comes to a verdict.
pub trait RoundMachine {
    /// The verdict.
    type Verdict: Copy;
    /// Whether its replies are votes on a lock.
    const VOTES: bool = false;

    /// Takes the outcome of the call to `node`. `discount`: why its answers do not count.
    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Vote>,
        now: Timestamp,
    );

    /// Time has passed.
    fn handle_timeout(&mut self, now: Timestamp);

    /// When to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// The verdict, as soon as it cannot change.
    fn verdict(&self) -> Option<Self::Verdict>;

    /// The nodes that did not answer before the timeout. Empty if the machine asks them again.
    fn silent(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// What a round is for.
pub trait Purpose: Sized {
    /// What the round keeps of a node beside its vote.
    type Note: fmt::Debug + Clone + Eq + Hash;
    /// The end of the round.
    type Verdict: fmt::Debug + Copy + Eq + Hash;
    /// Whether the replies are votes on a lock.
    const VOTES: bool = false;

    /// The vote of a node that answered, or whose call failed; `None` if the reply is ignored.
    fn vote(&mut self, note: &mut Self::Note, reply: RoundReply) -> Option<Vote>;

    /// The verdict, if the votes decide it.
    fn tally(round: &Round<Self>, now: Timestamp) -> Option<Self::Verdict>;
}

/// The end of one call of a round.
#[derive(Debug)]
pub struct RoundReply {
    /// The node.
    pub node: usize,
    /// What it answered.
    pub outcome: Result<Reply, CallError>,
    /// Why its answers do not count.
    pub discount: Option<Vote>,
    /// When the round began.
    pub t0: Timestamp,
    /// When the reply was read.
    pub now: Timestamp,
    /// Whether that was after the timeout of the round.
    pub late: bool,
    /// Whether it is the only node.
    pub alone: bool,
}

impl RoundReply {
    /// The vote for this outcome.
    pub(super) fn vote(self) -> Vote {
        Vote::of(self.outcome, self.discount)
    }
}

/// One request to all nodes, and their votes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Round<P: Purpose> {
    t0: Timestamp,
    timeout: Timestamp,
    pub(super) purpose: P,
    pub(super) nodes: Vec<RoundNode<P::Note>>,
    verdict: Option<P::Verdict>,
}

/// One node in a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RoundNode<N> {
    pub(super) vote: Vote,
    /// The server that answered; zero before the answer.
    server: u64,
    pub(super) note: N,
}

impl<P: Purpose> Round<P> {
    /// A round that begins at `t0`, which must be read before anything is sent. There is one note
    /// for each node.
    pub(super) fn begin(
        purpose: P,
        t0: Timestamp,
        timeout: Timestamp,
        notes: impl IntoIterator<Item = P::Note>,
    ) -> Self {
        let unheard = |note| RoundNode {
            vote: Vote::Pending,
            server: 0,
            note,
        };
        Self {
            t0,
            timeout,
            purpose,
            nodes: notes.into_iter().map(unheard).collect(),
            verdict: None,
        }
    }

    /// When the round began, before the first send. What it grants counts from here, however late
    /// the replies are.
    #[inline]
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// Every node's vote so far, in node order.
    pub fn votes(&self) -> impl Iterator<Item = &Vote> + Clone {
        self.nodes.iter().map(|node| &node.vote)
    }

    /// `node`'s vote so far.
    pub fn vote(&self, node: usize) -> &Vote {
        &self.nodes[node].vote
    }

    /// Whether every node has answered, so that nothing changes any more.
    pub fn is_complete(&self) -> bool {
        let awaited = |vote: &Vote| matches!(vote, Vote::Pending | Vote::TimedOut);
        !self.votes().any(awaited)
    }

    /// How many votes are `wanted`.
    pub(super) fn count(&self, wanted: impl Fn(&Vote) -> bool) -> usize {
        self.votes().filter(|vote| wanted(vote)).count()
    }

    /// How many nodes are a majority.
    pub(super) fn quorum(&self) -> usize {
        quorum(self.nodes.len())
    }

    /// The server that answered for each node; zero before the answer.
    pub(super) fn servers(&self) -> impl Iterator<Item = u64> + Clone {
        self.nodes.iter().map(|node| node.server)
    }
}

impl<P: Purpose> RoundMachine for Round<P> {
    type Verdict = P::Verdict;
    const VOTES: bool = P::VOTES;

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Vote>,
        now: Timestamp,
    ) {
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        let reply = RoundReply {
            node,
            outcome,
            discount,
            t0: self.t0,
            now,
            late: now >= self.timeout,
            alone: self.nodes.len() == 1,
        };
        let state = &mut self.nodes[node];
        let Some(vote) = self.purpose.vote(&mut state.note, reply) else {
            return;
        };
        (state.vote, state.server) = (vote, server);
        let nodes = self.nodes.iter_mut();
        count_once(server, nodes.map(|node| (node.server, &mut node.vote)));
        if self.verdict.is_none() {
            self.verdict = P::tally(self, now);
        }
    }

    /// After the timeout, nodes that have not answered do not count.
    fn handle_timeout(&mut self, now: Timestamp) {
        if self.verdict.is_some() || now < self.timeout {
            return;
        }
        for node in &mut self.nodes {
            if node.vote == Vote::Pending {
                node.vote = Vote::TimedOut;
            }
        }
        self.verdict = P::tally(self, now);
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.verdict.is_none().then_some(self.timeout)
    }

    #[inline]
    fn verdict(&self) -> Option<P::Verdict> {
        self.verdict
    }

    fn silent(&self) -> Vec<usize> {
        let silent = self.votes().enumerate();
        let silent = silent.filter(|(_, vote)| **vote == Vote::TimedOut);
        silent.map(|(node, _)| node).collect()
    }
}

/// Why a call failed, after any number of rounds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure<K> {
    /// The reason.
    pub kind: K,
    /// Every node's vote in the last round, in node order.
    pub votes: Vec<Vote>,
}

/// Declares the votes, each with its word in metrics and traces.
macro_rules! votes {
    ($($(#[$meta:meta])* $name:ident $(($held:ty))? $({ $($field:tt)* })? = $word:literal,)+) => {
        /// The vote of one node in a round.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Vote {
            $($(#[$meta])* $name $(($held))? $({ $($field)* })?,)+
        }

        /// A vote without its details.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "as in `Vote`")]
        pub enum VoteWord {
            $($name,)+
        }

        impl VoteWord {
            /// Every word.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The word for it in metrics and traces.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }

        impl From<&Vote> for VoteWord {
            fn from(vote: &Vote) -> Self {
                match vote {
                    $(Vote::$name { .. } => Self::$name,)+
                }
            }
        }
    };
}

votes! {
    /// The request was sent; there is no answer yet.
    Pending = "pending",
    /// The node holds our token.
    Granted = "granted",
    /// Another client holds the lock there.
    Held(Box<Holder>) = "held",
    /// The lock is free there, but other waiters are ahead in the queue.
    Behind {
        /// The number of waiters ahead.
        ahead: u64,
        /// When we may pass them if they do not acquire.
        pass_in: Option<Duration>,
    } = "behind",
    /// The node refused our ticket: it claims to be new but is too old.
    TicketOld = "ticket_old",
    /// Our ballot was not above the floor there.
    Stale = "stale",
    /// Our ballot was too far above the node's clock.
    Ahead = "ahead",
    /// The node does not hold our token, and no other holder is in conflict.
    Gone = "gone",
    /// An operator broke our hold.
    Broken(Box<BreakNote>) = "broken",
    /// The node may have lost locks, so its answers do not count yet.
    Quarantined {
        /// The remaining time without a vote.
        left: Duration,
    } = "quarantined",
    /// The node's clock jumped, so its locks may have expired early. Its answers do not count yet.
    ClockJumped {
        /// The size of the jump in microseconds, at least; negative if the clock was set back.
        by_us: i64,
        /// The remaining time without a vote.
        left: Duration,
    } = "clock_jumped",
    /// Our own clock froze since the request was sent, so the age of the answer is unknown.
    Outdated = "outdated",
    /// The node is the same server as an earlier node, which votes for it.
    Duplicate {
        /// The index of the earlier node.
        of: usize,
    } = "duplicate",
    /// The node became another server since the request was sent: it was restarted, or its address
    /// was redirected. Its answer may be about the same locks as an earlier answer of another node.
    Moved = "moved",
    /// Not enough Sentinels have lately confirmed that the node is the master.
    Unconfirmed = "unconfirmed",
    /// The request arrived too late, and the node did not execute it.
    Late = "late",
    /// The node was born after the latch was created, so it may have lost arrivals.
    BornLater = "born_later",
    /// No answer before the timeout.
    TimedOut = "timed_out",
    /// The call failed.
    Failed(CallError) = "failed",
}

impl Vote {
    /// The vote for the outcome of a call. `discount`: why the answers of the node do not count.
    pub(super) fn of(outcome: Result<Reply, CallError>, discount: Option<Self>) -> Self {
        let answer = match outcome {
            Ok(reply) => reply.answer,
            Err(error) => return Self::Failed(error),
        };
        if let Some(discount) = discount {
            return discount;
        }
        match answer {
            Answer::Granted
            | Answer::Extended
            | Answer::Downgraded
            | Answer::Restored
            | Answer::Removed { .. } => Self::Granted,
            Answer::Held(holder) => Self::Held(Box::new(holder)),
            Answer::Behind { ahead, for_ms } => Self::Behind {
                ahead,
                pass_in: for_ms.map(Duration::from_millis),
            },
            Answer::TicketOld => Self::TicketOld,
            Answer::Quarantined { left_ms } => Self::Quarantined {
                left: Duration::from_millis(left_ms),
            },
            Answer::Late => Self::Late,
            Answer::Stale => Self::Stale,
            Answer::Ahead => Self::Ahead,
            Answer::Gone => Self::Gone,
            Answer::Broken(note) => Self::Broken(note),
            Answer::Released
            | Answer::Newer
            | Answer::Turns(_)
            | Answer::Views(_)
            | Answer::Listed(_)
            | Answer::Arrivals(_)
            | Answer::Permit(_) => Self::Failed(CallError::Refused(Trouble::new(
                TroubleKind::Garbage,
                "the reply does not fit the request",
            ))),
        }
    }

    /// Whether the node answered about the lock, and the answer counts.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Granted
                | Self::Held(_)
                | Self::Behind { .. }
                | Self::TicketOld
                | Self::Stale
                | Self::Ahead
                | Self::Gone
                | Self::Broken(_)
        )
    }

    /// Whether the node answered that it does not hold our token.
    pub(super) fn proves_loss(&self) -> bool {
        matches!(self, Self::Gone | Self::Held(_) | Self::Broken(_))
    }

    /// When the answers of the node count again, if they do not count now for a limited time.
    pub(super) fn votes_in(&self) -> Option<Duration> {
        match self {
            Self::Quarantined { left } | Self::ClockJumped { left, .. } => Some(*left),
            Self::Outdated | Self::Moved | Self::Late => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether an operator has to change a setting before this node can vote.
    pub fn is_misconfigured(&self) -> bool {
        match self {
            Self::Duplicate { .. } => true,
            Self::Failed(error) => error.trouble().is_misconfiguration(),
            _ => false,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("not yet answered"),
            Self::Granted => f.write_str("granted"),
            Self::Held(holder) => fmt::Display::fmt(holder, f),
            Self::Behind { ahead, .. } => write!(f, "{ahead} ahead in the wait queue"),
            Self::TicketOld => f.write_str("refused a new ticket that is too old"),
            Self::Stale => f.write_str("refused a stale ballot"),
            Self::Ahead => f.write_str("refused a ballot ahead of its clock"),
            Self::Gone => f.write_str("does not hold our token"),
            Self::Broken(note) => fmt::Display::fmt(note, f),
            Self::Quarantined { left } => {
                write!(f, "new or restarted, may vote in {} s", ceil_secs(*left))
            }
            Self::ClockJumped { by_us, left } => write!(
                f,
                "its clock jumped {}, may vote in {} s",
                ClockJump(*by_us),
                ceil_secs(*left)
            ),
            Self::Outdated => f.write_str("answered a request from before a freeze of our clock"),
            Self::Duplicate { of } => write!(
                f,
                "the same server as node {} of the list, which votes for it; point each address to \
                 a server of its own",
                of + 1
            ),
            Self::Moved => f.write_str("was restarted or redirected during the call"),
            Self::Unconfirmed => f.write_str(
                "a majority of its Sentinels has not confirmed lately that it is the master",
            ),
            Self::Late => f.write_str("refused a request that arrived too late"),
            Self::BornLater => {
                f.write_str("new or restarted since the latch was made, does not vote on it")
            }
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// The size of a clock jump as text: `forward by 1.250 s`.
pub struct ClockJump(pub i64);

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.0 < 0 { "back" } else { "forward" };
        let ms = self.0.unsigned_abs() / 1000;
        write!(f, "{way} by {}.{:03} s", ms / 1000, ms % 1000)
    }
}

/// Whole seconds, rounded up and at least 1, because "in 0 s" would not help the reader.
pub fn ceil_secs(span: Duration) -> u64 {
    span.as_millis().div_ceil(1000).max(1) as u64
}

/// How many of `nodes` nodes are a majority. For an even number, half is not enough.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether two server numbers are the same server. Zero means unknown and equals no server.
pub(super) fn is_same_server(one: u64, other: u64) -> bool {
    one != 0 && one == other
}

/// Counts a server once. `nodes` are all nodes of the round in order, each with its server and its
/// vote. The first node that is `server` keeps its vote; the later ones become duplicates.
pub(super) fn count_once<'a>(server: u64, nodes: impl Iterator<Item = (u64, &'a mut Vote)>) {
    let nodes = nodes.enumerate();
    let mut same = nodes.filter(|(_, (other, _))| is_same_server(*other, server));
    if let Some((of, _)) = same.next() {
        same.for_each(|(_, (_, vote))| *vote = Vote::Duplicate { of });
    }
}

/// For each of `servers` in node order, the earlier node that is the same server, if there is one.
pub fn duplicates(servers: &[u64]) -> Vec<Option<usize>> {
    let earlier = |node: usize| {
        let mut others = servers[..node].iter();
        others.position(|&other| is_same_server(other, servers[node]))
    };
    (0..servers.len()).map(earlier).collect()
}
