//! The first contact with the nodes: which group they belong to, and joining it. Also the tokio
//! runtime in which a client connects: whether it has the drivers that a client needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::environment::own_task;
use crate::group::Group;
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::protocol::{ExplicitValues, Vote, quorum, refuse_unsafe, settled};
use crate::runtime::ClientRuntime;
use crate::runtime::gather::{Answers, LateAnswers, PartialAnswers};
use crate::time::Timestamp;

use super::error::ConnectError;
use super::votes::Votes;
use super::{Locks, duplicate_nodes};

/// After this a client starts without the nodes that have not answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause before nodes that could not be reached are asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long nodes are asked again that refuse our password or are not found by their names: both
/// may be about to change where a program starts.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

/// Joins the group of a majority of the nodes.
pub(super) async fn connect(locks: &Locks) -> Result<(), ConnectError> {
    let shared = &locks.shared;
    let runtime = &shared.runtime;
    let began = runtime.sender.clock.now();
    let until = began + PATIENCE;
    let answers = loop {
        let answers = runtime
            .sender
            .probe(runtime.sender.clock.now() + PATIENCE, settled)
            .await;
        let answers = refuse_unsafe(&shared.names, answers);
        duplicate_nodes::refuse_repeated(&shared.names, &answers)?;
        let looks = shared.settings.never_joins;
        match check_fit(&shared.names, &answers) {
            // A client that takes no locks shows which nodes are not fit.
            Err(_) if looks => {}
            Err(Unfit { votes, may_pass })
                if !may_pass || runtime.sender.clock.now() >= began + SECOND_CHANCE =>
            {
                return Err(ConnectError::Misconfigured { votes });
            }
            Err(_) => {
                pause(runtime).await;
                continue;
            }
            Ok(()) => {}
        }
        if let Some(group) = shared.settings.wishes.decide(&answers) {
            let (joined, rest, asked) = join(runtime, group).await;
            let rest = hear_rest(Arc::downgrade(runtime), rest, asked);
            tokio::spawn(own_task(rest));
            duplicate_nodes::refuse_repeated(&shared.names, &joined)?;
            if looks {
                return Ok(());
            }
            let fit = check_fit(&shared.names, &joined);
            return fit.map_err(|unfit| ConnectError::Misconfigured { votes: unfit.votes });
        }
        // Only a node that has not answered is worth waiting for. A node that refused at once is
        // asked again in the background.
        let silent = answers.iter().any(
            |answer| matches!(answer, Err(error) if error.trouble().kind == TroubleKind::Timeout),
        );
        if !silent || runtime.sender.clock.now() >= until {
            break answers;
        }
        pause(runtime).await;
    };
    let votes = Votes::worded("answers", &shared.names, votes(&answers));
    tracing::warn!(
        target: "ringfence",
        "connected without a majority of the nodes, so no lock can be taken until one answers: {votes}"
    );
    runtime.sender.observation.told_all_gone();
    // A client that writes nothing can ask single nodes, by what they say of their group.
    if shared.settings.never_joins && answers.iter().any(Result::is_ok) {
        join_few(runtime, shared.settings.wishes.adopt(&answers)).await;
    }
    // No majority yet, so the group's values are not known: they are learnt as soon as one answers.
    let joining = join_later(Arc::downgrade(runtime), shared.settings.wishes);
    tokio::spawn(own_task(joining));
    Ok(())
}

/// Has the nodes that answer join `group`, although they are no majority.
async fn join_few(runtime: &Arc<ClientRuntime>, group: Group) {
    let (_, rest, asked) = join(runtime, group).await;
    let rest = hear_rest(Arc::downgrade(runtime), rest, asked);
    tokio::spawn(own_task(rest));
}

async fn pause(runtime: &ClientRuntime) {
    let clock = &runtime.sender.clock;
    clock.sleep_until(clock.now() + AGAIN).await;
}

/// Asks again until a majority answers. Until then every call fails because its node has not
/// joined.
async fn join_later(runtime: Weak<ClientRuntime>, wishes: ExplicitValues) {
    let mut pause = AGAIN;
    loop {
        let Some(runtime) = runtime.upgrade() else {
            return;
        };
        let names: Vec<String> = runtime
            .sender
            .nodes
            .iter()
            .map(|n| n.name().to_owned())
            .collect();
        let answers = runtime
            .sender
            .probe(runtime.sender.clock.now() + PATIENCE, settled)
            .await;
        let answers = refuse_unsafe(&names, answers);
        if let Some(group) = wishes.decide(&answers) {
            let (_, rest, asked) = join(&runtime, group).await;
            return hear_rest(Arc::downgrade(&runtime), rest, asked).await;
        }
        let clock = runtime.sender.clock.clone();
        drop(runtime);
        clock.sleep_until(clock.now() + pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Has every node join `group`, and waits until a majority has. If these do not vote yet, no lock can be
/// taken before the others answer: it waits for them, too, so that the first error does not name a node
/// that is only slow. Also returns when it began.
async fn join(
    runtime: &ClientRuntime,
    group: Group,
) -> (Answers<Facts>, LateAnswers<Facts>, Timestamp) {
    runtime.sender.cluster().adopt(&group);
    let asked = runtime.sender.clock.now();
    let quorum = quorum(runtime.sender.nodes.len());
    let votes = |(node, answer): (usize, &Option<Result<Facts, CallError>>)| {
        let Some(Ok(facts)) = answer else {
            return false;
        };
        let standing = facts.standing.unwrap_or_default();
        let cluster = runtime.sender.cluster();
        let discount = cluster.discount(node, standing, facts.sent, facts.received);
        discount.is_none()
    };
    let enough = |answers: &PartialAnswers<Facts>| {
        let voting = answers.iter().enumerate().filter(|&answer| votes(answer));
        voting.count() >= quorum
    };
    let (answers, rest) = runtime.sender.join(group, asked + PATIENCE, enough).await;
    for (node, answer) in answers.iter().enumerate() {
        match answer {
            Ok(facts) => {
                tracing::debug!(target: "ringfence", node = runtime.sender.nodes[node].name(), version = %facts.version, tier = %facts.tier, "joined");
                runtime.sender.observe_facts(node, facts, asked);
            }
            // It may only be slower than the majority.
            Err(error) if error.trouble().kind == TroubleKind::Timeout => {}
            Err(_) => runtime.sender.observe_failure(node, answer),
        }
    }
    runtime.joined.store(true, Ordering::SeqCst);
    (answers, rest, asked)
}

/// Takes the answers of nodes that had not joined yet: their clocks count as much as those of
/// faster nodes.
async fn hear_rest(runtime: Weak<ClientRuntime>, mut rest: LateAnswers<Facts>, asked: Timestamp) {
    while let Some((node, answer)) = rest.recv().await {
        let Some(runtime) = runtime.upgrade() else {
            return;
        };
        match &answer {
            Ok(facts) => runtime.sender.observe_facts(node, facts, asked),
            Err(_) => runtime.sender.observe_failure(node, &answer),
        }
    }
}

/// The nodes are not fit to hold locks.
struct Unfit {
    votes: Votes,
    /// Whether to ask again may help, although no setting is changed here.
    may_pass: bool,
}

/// Waiting does not help where a majority is wrongly set up, or so many nodes are the same server
/// that the others make no majority. At the first contact a wrong host name or certificate is a
/// mistake, too.
fn check_fit(names: &[String], answers: &[Result<Facts, CallError>]) -> Result<(), Unfit> {
    let marked = duplicate_nodes::marked(names, answers);
    let trouble =
        |answer: &Result<Facts, CallError>| Some(answer.as_ref().err()?.trouble().clone());
    let troubles: Vec<Trouble> = marked.iter().filter_map(trouble).collect();
    let (lasting, passing): (Vec<_>, Vec<_>) = troubles
        .iter()
        .filter(|trouble| trouble.is_misconfiguration() || trouble.is_first_mistake())
        .partition(|trouble| !trouble.is_first_mistake());
    let twice = troubles.iter().filter(|t| t.kind == TroubleKind::Duplicate);
    let quorum = quorum(answers.len());
    let too_few = answers.len() - twice.count() < quorum;
    if lasting.len() + passing.len() < quorum && !too_few {
        return Ok(());
    }
    Err(Unfit {
        votes: Votes::worded("answers", names, votes(&marked)),
        may_pass: lasting.len() < quorum && !too_few,
    })
}

/// What each node said, as votes: an answer counts as granted.
pub(super) fn votes(answers: &[Result<Facts, CallError>]) -> impl Iterator<Item = Vote> {
    answers.iter().map(|answer| match answer {
        Ok(_) => Vote::Granted,
        Err(error) => Vote::Failed(error.clone()),
    })
}

/// The tokio runtime of the caller, for a client with this clock.
///
/// # Errors
/// If there is none, or if it was built without the timer that the clock of the system needs.
pub(crate) fn with_timer_for(clock: &Clock) -> Result<Handle, ConnectError> {
    // With test doubles there is a clock that a test steps.
    match matches!(clock, Clock::System) {
        true => with_timer(),
        false => Handle::try_current().map_err(|_| ConnectError::NoRuntime),
    }
}

fn with_timer() -> Result<Handle, ConnectError> {
    let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
    match panics(|| drop(tokio::time::sleep(Duration::ZERO))) {
        true => Err(ConnectError::RuntimeWithout {
            missing: "enable_time",
        }),
        false => Ok(runtime),
    }
}

/// The same, for a client that also needs sockets.
#[cfg(feature = "redis")]
pub(crate) fn with_sockets() -> Result<Handle, ConnectError> {
    let runtime = with_timer()?;
    // Not connected to anything. If the system has no socket left, that is reported later.
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    let Ok(socket) = socket else {
        return Ok(runtime);
    };
    match panics(|| drop(tokio::net::UdpSocket::from_std(socket))) {
        true => Err(ConnectError::RuntimeWithout {
            missing: "enable_io",
        }),
        false => Ok(runtime),
    }
}

/// Whether `attempt` panics. Tokio cannot be asked whether a runtime has a driver, and panics where
/// one is missing: later, in a task of ours.
fn panics(attempt: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}
