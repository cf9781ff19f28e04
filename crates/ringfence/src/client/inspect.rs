//! Inspection: the holder of a lock and the state of the nodes. Nothing is changed.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Claim, Holder, Reply, View};
use crate::node::{CallError, Facts, Tier, Trouble};
use crate::protocol::{Discount, Vote, duplicates, inspect, quorum};
use crate::runtime::gather::all;

use super::Locks;
use super::error::InspectError;
use super::votes::Votes;

/// How long a node may take to answer an inspection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A majority's view of one lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The lock.
    pub name: String,
    /// Whether a majority of the nodes has one and the same holder.
    pub held: bool,
    /// The holder's label, if it has one. Another library's client has none.
    pub label: Option<String>,
    /// The public half of the holder's token, if it is one of ours.
    pub holder_id: Option<String>,
    /// Whether it was released and is kept from other clients for a while (`hold_at_least`).
    pub kept: bool,
    /// How long until it may be free unless it is extended; `None` if never or not held.
    pub remaining: Option<Duration>,
    /// The holder's fence; `None` for a holder without one.
    pub fence: Option<u64>,
    /// What crashes of nodes may cost the holder: the tier of the best majority that has it.
    pub durability: Option<Tier>,
    /// How many wait in the queue, as a majority sees it.
    pub waiting: u64,
    /// Every node's own view, in node order.
    pub nodes: Vec<NodeInspection>,
}

/// A majority's view of a semaphore.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SemaphoreInspection {
    /// The semaphore.
    pub name: String,
    /// Its slots, each inspected as the lock that it is: as many as the inspecting client has
    /// permits.
    pub slots: Vec<Inspection>,
    /// How many wait in the queue for one of them, as a majority sees it.
    pub waiting: u64,
}

/// One node's view of a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeInspection {
    /// The name of the node.
    pub node: String,
    /// What a crash of it may cost, if that is known.
    pub tier: Option<Tier>,
    /// What it has of the lock, or why it did not answer.
    pub view: Result<View, CallError>,
}

/// The state of one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The name of the node.
    pub node: String,
    /// What it reports of itself, or why it did not answer.
    pub facts: Result<Facts, CallError>,
    /// For how long it does not vote yet.
    pub quarantine: Option<Duration>,
    /// Why it does not vote although it answers: a quarantine, or a clock that jumped.
    pub discount: Option<Discount>,
    /// How often this client proved that the node's clock had jumped. A client that has just
    /// begun has nothing to compare with.
    pub clock_jumps: u64,
}

impl Locks {
    /// The holder of `name`, as a majority of the nodes sees it. Changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders:42").label("checkout").lock().await?;
    /// let seen = locks.inspect("orders:42").await?;
    /// assert_eq!((seen.label.as_deref(), seen.fence), (Some("checkout"), Some(guard.fence())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no majority of the nodes answers, or if the name is not allowed.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, InspectError> {
        self.check_runtime()?;
        let claims = self.claims([name]).map_err(super::ConfigError::from)?;
        let name = claims[0].name.to_string();
        self.look_at(claims).await.of_claim(0, name)
    }

    /// The holders of the slots of the semaphore `name`. The first of `claims` is its admission
    /// record, the others are its slots.
    pub(super) async fn inspect_slots(
        &self,
        name: &str,
        claims: Arc<[Claim]>,
    ) -> Result<SemaphoreInspection, InspectError> {
        self.check_runtime()?;
        let slots = 1..claims.len();
        let look = self.look_at(claims).await;
        let shown = || name.escape_debug().to_string();
        Ok(SemaphoreInspection {
            name: name.to_owned(),
            waiting: look.of_claim(0, shown())?.waiting,
            slots: slots
                .map(|claim| look.of_claim(claim, shown()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// What every node says of `claims`.
    async fn look_at(&self, claims: Arc<[Claim]>) -> NodeAnswers<'_> {
        let runtime = &self.shared.runtime;
        let request = Arc::new(inspect(Arc::clone(&claims)));
        let until = runtime.sender.clock.now() + PATIENCE;
        let answers = runtime.sender.ask_all(&request, until, all).await;
        let names = &self.shared.names;
        let servers: Vec<u64> = answers.iter().map(server).collect();
        let answers = answers.into_iter().zip(duplicates(&servers)).enumerate();
        let views = answers.map(|(node, (answer, earlier))| match (answer, earlier) {
            // One server behind two nodes has one view.
            (Ok(_), Some(earlier)) => {
                let trouble = Trouble::duplicate(&names[node], &names[earlier]);
                Err(CallError::Refused(trouble))
            }
            (answer, _) => answer.map(|reply| match reply.answer {
                Answer::Views(views) if views.len() == claims.len() => views,
                _ => vec![View::default(); claims.len()],
            }),
        });
        NodeAnswers {
            names,
            tiers: runtime
                .sender
                .nodes
                .iter()
                .map(|node| node.tier())
                .collect(),
            views: views.collect(),
        }
    }

    /// How often this client found that its own clock had stood still, as in a virtual machine that
    /// is paused. All its guards are lost each time.
    pub fn standstills(&self) -> u64 {
        self.shared.runtime.sender.freezes()
    }

    /// The state of every node, in node order.
    pub async fn nodes(&self) -> Vec<NodeStatus> {
        let runtime = &self.shared.runtime;
        let asked = runtime.sender.clock.now();
        let answers = runtime.sender.probe(asked + PATIENCE, all).await;
        for (node, answer) in answers.iter().enumerate() {
            if let Ok(facts) = answer {
                runtime.sender.observe_facts(node, facts, asked);
            }
        }
        let cluster = runtime.sender.cluster();
        let statuses = answers.into_iter().enumerate().map(|(node, facts)| {
            let known = facts.as_ref().ok();
            let quarantine = known
                .and_then(|facts| cluster.quarantine_left(node, facts.standing?, facts.received));
            let discount = known.and_then(|facts| {
                let standing = facts.standing.unwrap_or_default();
                cluster.discount(node, standing, facts.sent, facts.received)
            });
            NodeStatus {
                node: self.shared.names[node].clone(),
                facts,
                quarantine,
                discount,
                clock_jumps: cluster.jumps(node),
            }
        });
        statuses.collect()
    }
}

/// Which server answered; zero if none did.
pub(super) fn server(answer: &Result<Reply, CallError>) -> u64 {
    answer.as_ref().map_or(0, |reply| reply.standing.server)
}

/// What each node said of some claims, in node order.
struct NodeAnswers<'a> {
    names: &'a [String],
    tiers: Vec<Option<Tier>>,
    views: Vec<Result<Vec<View>, CallError>>,
}

impl NodeAnswers<'_> {
    /// A majority's view of the claim at position `claim`, which people know as `name`.
    fn of_claim(&self, claim: usize, name: String) -> Result<Inspection, InspectError> {
        let nodes = self.names.iter().zip(&self.tiers).zip(&self.views);
        let nodes = nodes.map(|((node, tier), views)| NodeInspection {
            node: node.clone(),
            tier: *tier,
            view: views
                .as_ref()
                .map(|views| views[claim].clone())
                .map_err(Clone::clone),
        });
        majority_view(name, self.names, nodes.collect())
    }
}

/// What at least `quorum` nodes say alike.
fn agreed<T: Clone + PartialEq>(quorum: usize, said: impl Iterator<Item = Option<T>>) -> Option<T> {
    let said: Vec<Option<T>> = said.collect();
    let alike = |one: &&Option<T>| said.iter().filter(|other| other == one).count() >= quorum;
    said.iter().find(alike).cloned().flatten()
}

/// One of the readers of a name. Each node names the reader whose lease ends last there, so all
/// nodes can be right and name different ones.
fn some_reader(holders: &[&Holder]) -> Option<String> {
    let shared = |holder: &&Holder| holder.id.is_none() && holder.label.is_some();
    let label = holders.first().and_then(|holder| holder.label.clone());
    label.filter(|_| holders.iter().all(shared))
}

/// What nodes of `answered` say that have one and the same holder, if they are a majority.
fn same_holder<'a>(answered: &[&'a View], quorum: usize) -> Vec<&'a View> {
    // A holder without an id is another library's. Without its secret nothing shows whether two
    // nodes have the same one, so they count as one.
    let id_of = |view: &View| view.holder.as_ref().map(|holder| holder.id.clone());
    let same = |id: Option<String>| -> Vec<&View> {
        let views = answered.iter().copied();
        let has = |view: &&View| view.holder.as_ref().is_some_and(|holder| holder.id == id);
        views.filter(has).collect()
    };
    let holders = answered.iter().filter_map(|view| id_of(view)).map(same);
    let most = holders.max_by_key(Vec::len);
    most.filter(|views| views.len() >= quorum)
        .unwrap_or_default()
}

/// The largest number that at least `quorum` of `said` reach.
fn reached_by(quorum: usize, said: impl Iterator<Item = u64>) -> Option<u64> {
    let mut said: Vec<u64> = said.collect();
    said.sort_unstable_by(|a, b| b.cmp(a));
    said.get(quorum - 1).copied()
}

fn majority_view(
    name: String,
    names: &[String],
    nodes: Vec<NodeInspection>,
) -> Result<Inspection, InspectError> {
    let quorum = quorum(nodes.len());
    let answered: Vec<&View> = nodes.iter().filter_map(|n| n.view.as_ref().ok()).collect();
    if answered.len() < quorum {
        let votes = nodes.iter().map(|node| match &node.view {
            Ok(_) => Vote::Granted,
            Err(error) => Vote::Failed(error.clone()),
        });
        return Err(InspectError::NoQuorum {
            name,
            votes: Votes::worded("answers", names, votes),
        });
    }
    let holding = same_holder(&answered, quorum);
    let has_it = |node: &&NodeInspection| {
        let view = node.view.as_ref().ok();
        view.is_some_and(|view| holding.iter().any(|one| std::ptr::eq(*one, view)))
    };
    let tiers = nodes.iter().filter(has_it);
    let tiers = tiers.map(|node| node.tier.unwrap_or(Tier::BestEffort));
    let durability = Tier::of_majority(tiers, nodes.len());
    // What a minority says of the holder, more than its id, may be made up.
    let holders: Vec<&Holder> = holding.iter().filter_map(|v| v.holder.as_ref()).collect();
    let label = agreed(quorum, holders.iter().map(|holder| holder.label.clone()))
        .or_else(|| some_reader(&holders));
    let fence = agreed(quorum, holding.iter().map(|view| view.ballot));
    let holder = holders.first().copied();
    let lasts = holders.iter().map(|h| h.for_ms.unwrap_or(u64::MAX));
    let lasts = reached_by(quorum, lasts).filter(|ms| *ms != u64::MAX);
    // At least so many on a majority: a ticket on a minority is no position in the queue.
    let waiting = reached_by(quorum, answered.iter().map(|view| view.waiting));
    Ok(Inspection {
        name,
        held: holder.is_some(),
        label: label.filter(|label| !label.is_empty()),
        holder_id: holder.and_then(|h| h.id.clone()),
        kept: holder.is_some_and(Holder::is_kept),
        remaining: lasts.map(Duration::from_millis),
        fence: fence.map(|ballot| ballot.get()),
        durability,
        waiting: waiting.unwrap_or_default(),
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use crate::message::Ballot;

    use super::*;

    fn view(label: &str, ballot: u64) -> View {
        View {
            holder: Some(Holder {
                id: Some("0123456789".into()),
                label: Some(label.into()),
                for_ms: Some(1_000),
                ..Holder::default()
            }),
            ballot: Some(Ballot::new(ballot)),
            ..View::default()
        }
    }

    fn seen(views: Vec<View>) -> Inspection {
        let names: Vec<String> = (0..views.len()).map(|i| format!("n{i}")).collect();
        let nodes = views
            .into_iter()
            .zip(&names)
            .map(|(view, node)| NodeInspection {
                node: node.clone(),
                tier: None,
                view: Ok(view),
            });
        majority_view("x".into(), &names, nodes.collect()).unwrap()
    }

    #[test]
    fn fence_and_label_are_those_that_a_majority_names() {
        for liar in 0..3 {
            let mut views = vec![view("me", 7); 3];
            views[liar] = view("made up", 9_000);
            let seen = seen(views);
            assert_eq!((seen.label.as_deref(), seen.fence), (Some("me"), Some(7)));
            assert_eq!(seen.holder_id.as_deref(), Some("0123456789"));
        }
    }

    #[test]
    fn where_no_majority_agrees_nothing_is_made_up() {
        let seen = seen(vec![view("a", 7), view("b", 8), View::default()]);
        assert!(seen.held);
        assert_eq!((seen.label, seen.fence), (None, None));
    }

    #[test]
    fn of_several_readers_one_is_named() {
        let mut views = vec![view("a", 7), view("b", 7)];
        for view in &mut views {
            view.holder.as_mut().unwrap().id = None;
        }
        let seen = seen(views);
        assert_eq!((seen.label.as_deref(), seen.fence), (Some("a"), Some(7)));
    }
}
