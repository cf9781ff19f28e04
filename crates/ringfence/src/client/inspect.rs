//! Inspection: the holder of a lock and the state of the nodes. Nothing is changed.

pub(super) mod majority;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Claim, Mode, Reply, View};
use crate::name::Name;
use crate::node::{CallError, Tier, Trouble, TroubleKind};
use crate::observation::Stats;
use crate::protocol::{Vote, duplicates, inspect};
use crate::runtime::gather::all;
use crate::runtime::waiting::WaitingRoom;

use super::error::InspectError;
use super::inspection::{
    Inspection, NameInspection, NodeFacts, NodeInspection, NodeStatus, SemaphoreInspection,
};
use super::votes::Votes;
use super::{ConfigError, Locks, PERMITS_MAX};

/// How long a node may take to answer an inspection.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many slots of a semaphore one request asks for, so that no call takes a server long.
const SLOTS_AT_ONCE: u32 = 64;

impl Locks {
    /// The holder of the lock `name`, as a majority of the nodes sees it. Changes nothing.
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
    /// Without a majority of votes the state is [unknown](crate::admin::LockState::Unknown), and what single
    /// nodes have is in [`reported`](Inspection::reported).
    ///
    /// # Errors
    /// If the name is not allowed, or if the client cannot be used.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, InspectError> {
        let inspecting = async {
            self.check_runtime()?;
            let claims = self.claims([name]).map_err(ConfigError::from)?;
            Ok(self.inspect_claims(claims).await)
        };
        self.own(inspecting).await
    }

    /// Everything with this name, as a majority of the nodes sees it: the lock, the semaphore and
    /// the latch. The caller need not know which of them there are. Changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let permit = locks.semaphore("downloads", 3).acquire().await?;
    /// let seen = locks.inspect_all("downloads").await?;
    /// let semaphore = seen.semaphore.expect("a permit is held");
    /// assert_eq!((semaphore.permits, semaphore.taken()), (3, 1));
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Without a majority of votes the state is [unknown](crate::admin::LockState::Unknown), and what single
    /// nodes have is in [`reported`](Inspection::reported).
    ///
    /// # Errors
    /// If the name is not allowed, or if the client cannot be used.
    pub async fn inspect_all(&self, name: impl AsRef<str>) -> Result<NameInspection, InspectError> {
        self.own(self.inspect_all_here(name.as_ref())).await
    }

    async fn inspect_all_here(&self, name: &str) -> Result<NameInspection, InspectError> {
        self.check_runtime()?;
        let own = self.claims([name]).map_err(ConfigError::from)?;
        let name = &own[0].name;
        let shown = || name.to_string();
        let parts = [name.clone(), name.admission(), name.latch()];
        let look = self.look_at(claims_of(parts)).await;
        let admission = look.of_claim(1, shown());
        let latch = majority::latch(&look.of_claim(2, shown()));
        let lock = look.of_claim(0, shown());
        let slots = self.slots_of(name).await;
        Ok(NameInspection {
            name: shown(),
            semaphore: majority::semaphore(shown(), &admission, slots),
            latch,
            lock,
        })
    }

    /// All slots that a semaphore `name` can have. Nodes forget the number of its permits after a
    /// while, even if some are held.
    async fn slots_of(&self, name: &Name) -> Vec<Inspection> {
        let mut slots = Vec::new();
        for first in (0..PERMITS_MAX).step_by(SLOTS_AT_ONCE as usize) {
            let numbers = first..(first + SLOTS_AT_ONCE).min(PERMITS_MAX);
            let count = numbers.len();
            let claims = claims_of(numbers.map(|slot| name.slot(slot)));
            let look = self.look_at(claims).await;
            slots.extend((0..count).map(|slot| look.of_claim(slot, name.to_string())));
        }
        slots
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
        let admission = look.of_claim(0, shown());
        Ok(SemaphoreInspection {
            name: name.to_owned(),
            permits: slots.len() as u64,
            waiting: admission.waiting,
            queue: admission.queue,
            slots: slots.map(|claim| look.of_claim(claim, shown())).collect(),
        })
    }

    /// The holder of the first of `claims`, as a majority of the nodes sees it.
    pub(super) async fn inspect_claims(&self, claims: Arc<[Claim]>) -> Inspection {
        let name = claims[0].name.to_string();
        self.look_at(claims).await.of_claim(0, name)
    }

    /// What every node says of `claims`.
    pub(super) async fn look_at(&self, claims: Arc<[Claim]>) -> NodeAnswers<'_> {
        let runtime = &self.shared.runtime;
        let request = Arc::new(inspect(Arc::clone(&claims)));
        let sent = runtime.sender.clock.now();
        let answers = runtime.sender.ask_all(&request, sent + PATIENCE, all).await;
        let names = &self.shared.names;
        let servers: Vec<u64> = answers.iter().map(server).collect();
        let (cluster, now) = (runtime.sender.cluster(), runtime.sender.clock.now());
        let answers = answers.into_iter().zip(duplicates(&servers)).enumerate();
        let answers = answers.map(|(node, (answer, earlier))| match (answer, earlier) {
            // One server behind two nodes has one view.
            (Ok(_), Some(earlier)) => {
                let trouble = Trouble::duplicate(&names[node], &names[earlier]);
                Err(CallError::Refused(trouble))
            }
            (answer, _) => answer.map(|reply| NodeAnswer {
                clock_us: reply.standing.clock_us,
                discount: cluster.discount(node, reply.standing, sent, now),
                views: match reply.answer {
                    Answer::Views(views) if views.len() == claims.len() => views,
                    _ => vec![View::default(); claims.len()],
                },
            }),
        });
        let answers = answers.collect();
        let nodes = runtime.sender.nodes.iter();
        NodeAnswers {
            names,
            room: &runtime.room,
            tiers: nodes.map(|node| node.tier()).collect(),
            answers,
        }
    }

    /// How often this client found that its own clock had stood still, as in a virtual machine that
    /// is paused. All its guards are lost each time.
    pub fn standstills(&self) -> u64 {
        self.shared.runtime.sender.freezes()
    }

    /// What this client has done since it was connected, and what it holds now. Asks no node.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders:42").lock().await?;
    /// let stats = locks.stats();
    /// assert_eq!((stats.granted, stats.held, stats.waiting), (1, 1, 0));
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        self.shared.runtime.sender.observation.stats()
    }

    /// The state of every node, in node order.
    pub async fn nodes(&self) -> Vec<NodeStatus> {
        let process = self.runtime().process;
        let statuses = process.call(async { Some(self.nodes_here().await) }, || None);
        statuses.await.unwrap_or_else(|| self.nodes_of_parent())
    }

    /// What a forked child says of the nodes.
    fn nodes_of_parent(&self) -> Vec<NodeStatus> {
        let names = self.shared.names.iter();
        let statuses = names.map(|node| {
            let detail = format!("{node}: {}", ConfigError::ForkedProcess);
            NodeStatus {
                node: node.clone(),
                facts: Err(CallError::NotSent(Trouble::new(
                    TroubleKind::Disconnected,
                    detail,
                ))),
                quarantine: None,
                discount: None,
                clock_jumps: 0,
            }
        });
        statuses.collect()
    }

    async fn nodes_here(&self) -> Vec<NodeStatus> {
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
                facts: facts.map(NodeFacts::from),
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

pub(super) fn claims_of(names: impl IntoIterator<Item = Name>) -> Arc<[Claim]> {
    let claims = names.into_iter().map(|name| Claim {
        name,
        mode: Mode::Exclusive,
    });
    claims.collect()
}

/// What each node said of some claims, in node order.
pub(super) struct NodeAnswers<'a> {
    names: &'a [String],
    room: &'a WaitingRoom,
    tiers: Vec<Option<Tier>>,
    answers: Vec<Result<NodeAnswer, CallError>>,
}

/// What one node said.
struct NodeAnswer {
    clock_us: u64,
    discount: Option<Vote>,
    views: Vec<View>,
}

impl NodeAnswers<'_> {
    /// A majority's view of the claim at position `claim`, which people know as `name`.
    pub(super) fn of_claim(&self, claim: usize, name: String) -> Inspection {
        let nodes = self.names.iter().zip(&self.tiers).zip(&self.answers);
        let nodes = nodes.map(|((node, tier), answer)| {
            let known = answer.as_ref().ok();
            NodeInspection {
                node: node.clone(),
                tier: *tier,
                discount: known.and_then(|answer| answer.discount.clone()),
                clock_us: known.map(|answer| answer.clock_us),
                view: answer
                    .as_ref()
                    .map(|answer| answer.views[claim].clone())
                    .map_err(Clone::clone),
            }
        });
        let mut seen = majority::view(name, nodes.collect());
        for waiter in &mut seen.queue {
            waiter.own = self.room.owns(&waiter.id);
        }
        seen
    }

    /// How many nodes answered.
    pub(super) fn answered(&self) -> usize {
        self.answers.iter().filter(|answer| answer.is_ok()).count()
    }

    /// Whether the node refused to show the claims, as it does if its user may not read one of them.
    pub(super) fn refused(&self, node: usize) -> bool {
        matches!(self.answers[node], Err(CallError::Refused(_)))
    }

    /// Which nodes answered, and why the others did not.
    pub(super) fn votes(&self) -> Votes {
        let votes = self.answers.iter().map(|answer| match answer {
            Ok(_) => Vote::Granted,
            Err(error) => Vote::Failed(error.clone()),
        });
        Votes::worded("answers", self.names, votes)
    }
}
