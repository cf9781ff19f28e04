//! Getting to know the nodes: which group they belong to, and joining it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::driver::Driver;
use crate::driver::gather::{Rest, gather, gather_first};
use crate::group::Group;
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::protocol::{Vote, quorum};
use crate::time::Timestamp;

use super::builder::Wishes;
use super::error::{ConnectError, Votes};
use super::values::{most_told, settled, vetted};
use super::{Locks, twins};

/// After this a client starts without the nodes that have not answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause before nodes that could not be reached are asked again.
const AGAIN: Duration = Duration::from_millis(50);

type Answers = Vec<Result<Facts, CallError>>;

/// Joins the group of a majority of the nodes.
pub(super) async fn connect(locks: &Locks) -> Result<(), ConnectError> {
    let shared = &locks.shared;
    let driver = &shared.driver;
    let until = driver.clock.now() + PATIENCE;
    loop {
        let answers = vetted(&shared.names, probe(driver, PATIENCE).await);
        twins::refuse_repeated(&shared.names, &answers)?;
        check_fit(&shared.names, &answers)?;
        if is_majority(&answers) {
            let group = decide(&answers, &shared.settings.wishes);
            let (joined, rest, asked) = join(driver, group).await;
            tokio::spawn(hear_rest(Arc::downgrade(driver), rest, asked));
            twins::refuse_repeated(&shared.names, &joined)?;
            return check_fit(&shared.names, &joined);
        }
        // Only silence is worth waiting for: who says no at once is asked again in the background.
        let silent = answers.iter().any(
            |answer| matches!(answer, Err(error) if error.trouble().kind == TroubleKind::Timeout),
        );
        if !silent || driver.clock.now() >= until {
            break;
        }
        driver.clock.sleep_until(driver.clock.now() + AGAIN).await;
    }
    // No majority yet, so the group's values are not known: they are learnt as soon as one answers.
    tokio::spawn(join_later(Arc::downgrade(driver), shared.settings.wishes));
    Ok(())
}

/// Goes on asking until a majority answers. Until then every call answers that its node has not
/// joined, which is true.
async fn join_later(driver: Weak<Driver>, wishes: Wishes) {
    let mut pause = AGAIN;
    loop {
        let Some(driver) = driver.upgrade() else {
            return;
        };
        let names: Vec<String> = driver.nodes.iter().map(|n| n.name().to_owned()).collect();
        let answers = vetted(&names, probe(&driver, PATIENCE).await);
        if is_majority(&answers) {
            let (_, rest, asked) = join(&driver, decide(&answers, &wishes)).await;
            return hear_rest(Arc::downgrade(&driver), rest, asked).await;
        }
        let clock = driver.clock.clone();
        drop(driver);
        clock.sleep_until(clock.now() + pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Asks every node what it is, until a majority has said the same of the group's values.
pub(super) async fn probe(driver: &Driver, patience: Duration) -> Answers {
    let until = driver.clock.now() + patience;
    let nodes = driver.nodes.len();
    gather(
        nodes,
        &driver.clock,
        until,
        |node, done| driver.nodes[node].probe(done),
        settled,
    )
    .await
}

/// Has every node join `group`, and waits until a majority has. Tells when it began, too.
async fn join(driver: &Driver, group: Group) -> (Answers, Rest<Facts>, Timestamp) {
    driver.cluster().adopt(&group);
    let asked = driver.clock.now();
    let until = asked + PATIENCE;
    let nodes = driver.nodes.len();
    let (answers, rest) = gather_first(
        nodes,
        &driver.clock,
        until,
        |node, done| driver.nodes[node].join(group, done),
        |answers| answers.iter().filter(|a| matches!(a, Some(Ok(_)))).count() >= quorum(nodes),
    )
    .await;
    for (node, answer) in answers.iter().enumerate() {
        match answer {
            Ok(facts) => {
                tracing::debug!(target: "ringfence", node = driver.nodes[node].name(), version = %facts.version, tier = %facts.tier, "joined");
                driver.hear_facts(node, facts, asked);
            }
            Err(error) => {
                tracing::debug!(target: "ringfence", node = driver.nodes[node].name(), %error, "not joined yet");
            }
        }
    }
    (answers, rest, asked)
}

/// Hears the nodes that had not joined yet: their clocks count as much as those of quicker nodes.
async fn hear_rest(driver: Weak<Driver>, mut rest: Rest<Facts>, asked: Timestamp) {
    while let Some((node, answer)) = rest.recv().await {
        let Some(driver) = driver.upgrade() else {
            return;
        };
        if let Ok(facts) = &answer {
            driver.hear_facts(node, facts, asked);
        }
    }
}

/// The values of the group: what most nodes say, where nothing else was set explicitly.
pub(super) fn decide(answers: &[Result<Facts, CallError>], wishes: &Wishes) -> Group {
    let told: Vec<Group> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok()?.group)
        .filter(|group| group.nodes == answers.len())
        .collect();
    let own = wishes.over(Group::new(answers.len()));
    wishes.over(most_told(&told, &own).unwrap_or(own))
}

/// The values of a group that changes its number of nodes: those that most nodes had, where nothing
/// else was set explicitly.
pub(super) fn inherit(answers: &[Result<Facts, CallError>], wishes: &Wishes) -> Group {
    let told: Vec<Group> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok()?.group)
        // Judged as values of the group that is to be.
        .map(|group| Group {
            nodes: answers.len(),
            ..group
        })
        .collect();
    let nodes = answers.len();
    let own = wishes.over(Group::new(nodes));
    let group = most_told(&told, &own).unwrap_or(own);
    wishes.over(Group { nodes, ..group })
}

fn is_majority(answers: &[Result<Facts, CallError>]) -> bool {
    answers.iter().filter(|answer| answer.is_ok()).count() >= quorum(answers.len())
}

/// Waiting does not help where a majority is wrongly set up, or so many nodes are the same server that
/// the others make no majority.
fn check_fit(names: &[String], answers: &[Result<Facts, CallError>]) -> Result<(), ConnectError> {
    let marked = twins::marked(names, answers);
    let trouble =
        |answer: &Result<Facts, CallError>| Some(answer.as_ref().err()?.trouble().clone());
    let troubles: Vec<Trouble> = marked.iter().filter_map(trouble).collect();
    let unfit = troubles
        .iter()
        .filter(|trouble| trouble.is_misconfiguration());
    let twice = troubles.iter().filter(|t| t.kind == TroubleKind::Twice);
    let quorum = quorum(answers.len());
    if unfit.count() < quorum && answers.len() - twice.count() >= quorum {
        return Ok(());
    }
    Err(ConnectError::Misconfigured {
        votes: Votes::worded("answers", names, votes(&marked)),
    })
}

/// What each node said, as votes: an answer counts as granted.
pub(super) fn votes(answers: &[Result<Facts, CallError>]) -> impl Iterator<Item = Vote> {
    answers.iter().map(|answer| match answer {
        Ok(_) => Vote::Granted,
        Err(error) => Vote::Failed(error.clone()),
    })
}
