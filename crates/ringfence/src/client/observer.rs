//! Who leads an election: nodes are asked, and a majority decides. An observer holds nothing.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use crate::environment::{OwnerProcess, ProcessBound};
use crate::message::{Answer, Ballot, Claim, Reply, Request};
use crate::node::CallError;
use crate::protocol::{Vote, duplicates, inspect};
use crate::runtime::ClientRuntime;
use crate::runtime::gather::PartialAnswers;
use crate::time::Timestamp;

use super::election::Leader;
use super::error::InspectError;
use super::inspect::server;
use super::inspection::LockState;
use super::votes::Votes;

/// How long a node may take to answer who leads.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pauses between two looks: short after a change, longer while nothing happens.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// What an [`Observer`] reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaderChange {
    /// This leader holds a majority of the nodes.
    Elected(Leader),
    /// No candidate holds a majority of the nodes: there is no leader.
    Vacant,
}

impl LeaderChange {
    /// The leader, if there is one.
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Elected(leader) => Some(leader),
            Self::Vacant => None,
        }
    }
}

/// Watches an election. Made by [`Election::observe`](crate::Election::observe).
///
/// It reports the present state at first, and then every change: leaders in the order of their
/// terms, and when there is no leader. A leader or a vacancy that lasted only between two looks (20
/// ms to 500 ms) may be missed. It is also a [`Stream`] that ends when the client is closed, and in a
/// forked child.
pub struct Observer {
    /// `None` while it looks.
    watch: Option<Box<Watch>>,
    looking: Option<ProcessBound<Pin<Box<dyn Future<Output = Looked> + Send>>>>,
    name: String,
    /// The highest term that was reported.
    term: u64,
    process: OwnerProcess,
}

/// The end of a wait for a change.
type Looked = (Box<Watch>, Option<LeaderChange>);

impl Observer {
    pub(super) fn new(watch: Watch) -> Self {
        let names = watch.request.claims.iter().map(|claim| claim.name.as_str());
        Self {
            name: names.collect::<Vec<_>>().join(", "),
            process: watch.runtime.process,
            watch: Some(Box::new(watch)),
            looking: None,
            term: 0,
        }
    }

    /// The next change: the present state at first. `None` once the client is closed. Waits while
    /// too few nodes answer to decide. Cancel-safe.
    pub async fn next(&mut self) -> Option<LeaderChange> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next leader: as [`next`](Self::next), without the times when there is none.
    pub async fn next_leader(&mut self) -> Option<Leader> {
        loop {
            match self.next().await? {
                LeaderChange::Elected(leader) => return Some(leader),
                LeaderChange::Vacant => {}
            }
        }
    }
}

impl Stream for Observer {
    type Item = LeaderChange;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LeaderChange>> {
        if !self.process.is_ours() {
            return Poll::Ready(None);
        }
        if let Some(mut watch) = self.watch.take() {
            let looking = async move {
                let change = watch.next().await;
                (watch, change)
            };
            self.looking = Some(ProcessBound::new(Box::pin(looking)));
        }
        let Some(looking) = &mut self.looking else {
            return Poll::Ready(None);
        };
        let (watch, change) = ready!(looking.as_mut().poll(cx));
        self.looking = None;
        self.watch = Some(watch);
        if let Some(LeaderChange::Elected(leader)) = &change {
            self.term = leader.term;
        }
        Poll::Ready(change)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.name)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

/// The question who leads, and what was reported so far.
pub(super) struct Watch {
    runtime: Arc<ClientRuntime>,
    request: Arc<Request>,
    /// The highest term that was reported.
    term: Ballot,
    /// Whether the latest report was a vacancy; `None` before the first.
    vacant: Option<bool>,
    pause: Duration,
}

/// What the answers of some nodes show.
enum Sight {
    Leads(Leader),
    /// No candidate can have a majority, whatever the other nodes answer.
    Vacant,
    /// It depends on the other nodes.
    Undecided,
}

impl Watch {
    pub(super) fn new(runtime: Arc<ClientRuntime>, claims: Arc<[Claim]>) -> Self {
        Self {
            runtime,
            request: Arc::new(inspect(claims)),
            term: Ballot::default(),
            vacant: None,
            pause: LOOK_MIN,
        }
    }

    /// See [`Observer::next`].
    async fn next(&mut self) -> Option<LeaderChange> {
        loop {
            if self.runtime.closing.is_closed() {
                return None;
            }
            if let Some(change) = self.look().await {
                self.vacant = Some(change == LeaderChange::Vacant);
                if let LeaderChange::Elected(leader) = &change {
                    self.term = Ballot::new(leader.term);
                }
                self.pause = LOOK_MIN;
                return Some(change);
            }
            let clock = &self.runtime.sender.clock;
            tokio::select! {
                biased;
                () = self.runtime.closing.begun() => return None,
                () = clock.sleep_until(clock.now() + self.pause) => {}
            }
            self.pause = (self.pause * 2).min(LOOK_MAX);
        }
    }

    /// One round: what has changed since the latest report, if the answers decide that.
    async fn look(&self) -> Option<LeaderChange> {
        // The leader of before may have lost its majority and got it back.
        let is_news = |term: u64| term > self.term.get() || self.is_back(term);
        match self.ask().await.0 {
            Sight::Leads(leader) if is_news(leader.term) => Some(LeaderChange::Elected(leader)),
            Sight::Vacant if self.vacant != Some(true) => Some(LeaderChange::Vacant),
            _ => None,
        }
    }

    fn is_back(&self, term: u64) -> bool {
        self.vacant == Some(true) && term == self.term.get()
    }

    /// The leader, by one round.
    pub(super) async fn leader(&self) -> Result<Option<Leader>, InspectError> {
        let (sight, answers, sent) = self.ask().await;
        match sight {
            Sight::Leads(leader) => Ok(Some(leader)),
            Sight::Vacant => Ok(None),
            Sight::Undecided => {
                let votes = (0..).zip(&answers).map(|(node, answer)| match answer {
                    Ok(reply) => self
                        .discount(node, reply, sent)
                        .map_or(Vote::Granted, Vote::from),
                    Err(error) => Vote::Failed(error.clone()),
                });
                let names: Vec<String> = self.node_names();
                Err(InspectError::NoQuorum {
                    name: self.request.claims[0].name.to_string(),
                    votes: Votes::worded("answers", &names, votes),
                })
            }
        }
    }

    fn node_names(&self) -> Vec<String> {
        let nodes = self.runtime.sender.nodes.iter();
        nodes.map(|node| node.name().to_owned()).collect()
    }

    /// Asks all nodes once, until their answers decide.
    async fn ask(&self) -> (Sight, Vec<Result<Reply, CallError>>, Timestamp) {
        let runtime = &self.runtime;
        let sent = runtime.sender.clock.now();
        let enough = |answers: &PartialAnswers<Reply>| {
            let answers = answers.iter().map(Option::as_ref);
            !matches!(self.tally(answers, sent), Sight::Undecided)
        };
        let answers = runtime
            .sender
            .ask_all(&self.request, sent + PATIENCE, enough)
            .await;
        let answered = answers.iter().enumerate();
        for (node, answer) in answered.filter(|(_, answer)| answer.is_ok()) {
            // A client that only watches notices a restarted node, too.
            let now = runtime.sender.clock.now();
            runtime.sender.observe_reply(node, answer, sent, now);
        }
        let sight = self.tally(answers.iter().map(Some), sent);
        (sight, answers, sent)
    }

    /// The leader is the candidate that a majority holds under one and the same ballot. The ballot
    /// of the holder counts, not the fence: a candidate that failed raises that.
    fn tally<'a>(
        &self,
        answers: impl Iterator<Item = Option<&'a Result<Reply, CallError>>>,
        sent: Timestamp,
    ) -> Sight {
        let answers: Vec<_> = answers.collect();
        let servers: Vec<u64> = answers.iter().map(|one| one.map_or(0, server)).collect();
        let mut seated: Vec<Leader> = Vec::new();
        let mut unknown = 0;
        for (node, (answer, earlier)) in answers.into_iter().zip(duplicates(&servers)).enumerate() {
            // One server behind two nodes has one vote.
            if earlier.is_some() {
                continue;
            }
            match answer.and_then(|answer| answer.as_ref().ok()) {
                Some(reply) if self.discount(node, reply, sent).is_none() => {
                    seated.extend(seat_of(reply));
                }
                // No candidate counts the grant of a node whose answers do not count.
                _ => unknown += 1,
            }
        }
        let votes = |one: &Leader| {
            let same = seated
                .iter()
                .filter(|other| (&other.id, other.term) == (&one.id, one.term));
            same.count()
        };
        let most = seated.iter().max_by_key(|one| votes(one));
        let nodes = self.runtime.sender.nodes.len();
        match (LockState::of(most.map_or(0, votes), unknown, nodes), most) {
            (LockState::Held, Some(leader)) => Sight::Leads(leader.clone()),
            (LockState::Free, _) => Sight::Vacant,
            _ => Sight::Undecided,
        }
    }

    fn discount(
        &self,
        node: usize,
        reply: &Reply,
        sent: Timestamp,
    ) -> Option<crate::protocol::Vote> {
        let now = self.runtime.sender.clock.now();
        let cluster = self.runtime.sender.cluster();
        cluster.discount(node, reply.standing, sent, now)
    }
}

/// The holder that a node reports. A holder of another library has no id and no term.
fn seat_of(reply: &Reply) -> Option<Leader> {
    let Answer::Views(views) = &reply.answer else {
        return None;
    };
    let view = views.first()?;
    let holder = view.holder.as_ref().filter(|holder| !holder.is_kept())?;
    Some(Leader {
        label: holder.label.clone().unwrap_or_default(),
        id: holder.id.clone()?,
        term: view.ballot?.get(),
    })
}
