//! The first contact with the nodes: which group they belong to, and joining it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::driver::Driver;
use crate::driver::gather::{Answers, Rest, SoFar};
use crate::group::Group;
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::protocol::{Vote, Wishes, quorum, settled, vetted};
use crate::time::Timestamp;

use super::error::ConnectError;
use super::votes::Votes;
use super::{Locks, twins};

/// After this a client starts without the nodes that have not answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause before nodes that could not be reached are asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// Joins the group of a majority of the nodes.
pub(super) async fn connect(locks: &Locks) -> Result<(), ConnectError> {
    let shared = &locks.shared;
    let driver = &shared.driver;
    let until = driver.sender.clock.now() + PATIENCE;
    loop {
        let answers = driver
            .sender
            .probe(driver.sender.clock.now() + PATIENCE, settled)
            .await;
        let answers = vetted(&shared.names, answers);
        twins::refuse_repeated(&shared.names, &answers)?;
        check_fit(&shared.names, &answers)?;
        if let Some(group) = shared.settings.wishes.decide(&answers) {
            let (joined, rest, asked) = join(driver, group).await;
            tokio::spawn(hear_rest(Arc::downgrade(driver), rest, asked));
            twins::refuse_repeated(&shared.names, &joined)?;
            return check_fit(&shared.names, &joined);
        }
        // Only a node that has not answered is worth waiting for. A node that refused at once is
        // asked again in the background.
        let silent = answers.iter().any(
            |answer| matches!(answer, Err(error) if error.trouble().kind == TroubleKind::Timeout),
        );
        if !silent || driver.sender.clock.now() >= until {
            break;
        }
        driver
            .sender
            .clock
            .sleep_until(driver.sender.clock.now() + AGAIN)
            .await;
    }
    // No majority yet, so the group's values are not known: they are learnt as soon as one answers.
    tokio::spawn(join_later(Arc::downgrade(driver), shared.settings.wishes));
    Ok(())
}

/// Asks again until a majority answers. Until then every call fails because its node has not
/// joined.
async fn join_later(driver: Weak<Driver>, wishes: Wishes) {
    let mut pause = AGAIN;
    loop {
        let Some(driver) = driver.upgrade() else {
            return;
        };
        let names: Vec<String> = driver
            .sender
            .nodes
            .iter()
            .map(|n| n.name().to_owned())
            .collect();
        let answers = driver
            .sender
            .probe(driver.sender.clock.now() + PATIENCE, settled)
            .await;
        let answers = vetted(&names, answers);
        if let Some(group) = wishes.decide(&answers) {
            let (_, rest, asked) = join(&driver, group).await;
            return hear_rest(Arc::downgrade(&driver), rest, asked).await;
        }
        let clock = driver.sender.clock.clone();
        drop(driver);
        clock.sleep_until(clock.now() + pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Has every node join `group`, and waits until a majority has. Also returns when it began.
async fn join(driver: &Driver, group: Group) -> (Answers<Facts>, Rest<Facts>, Timestamp) {
    driver.sender.cluster().adopt(&group);
    let asked = driver.sender.clock.now();
    let quorum = quorum(driver.sender.nodes.len());
    let joined = |answer: &&Option<_>| matches!(answer, Some(Ok(_)));
    let enough = |answers: &SoFar<Facts>| answers.iter().filter(joined).count() >= quorum;
    let (answers, rest) = driver.sender.join(group, asked + PATIENCE, enough).await;
    for (node, answer) in answers.iter().enumerate() {
        match answer {
            Ok(facts) => {
                tracing::debug!(target: "ringfence", node = driver.sender.nodes[node].name(), version = %facts.version, tier = %facts.tier, "joined");
                driver.sender.hear_facts(node, facts, asked);
            }
            Err(error) => {
                tracing::debug!(target: "ringfence", node = driver.sender.nodes[node].name(), %error, "not joined yet");
            }
        }
    }
    (answers, rest, asked)
}

/// Takes the answers of nodes that had not joined yet: their clocks count as much as those of
/// faster nodes.
async fn hear_rest(driver: Weak<Driver>, mut rest: Rest<Facts>, asked: Timestamp) {
    while let Some((node, answer)) = rest.recv().await {
        let Some(driver) = driver.upgrade() else {
            return;
        };
        if let Ok(facts) = &answer {
            driver.sender.hear_facts(node, facts, asked);
        }
    }
}

/// Waiting does not help where a majority is wrongly set up, or so many nodes are the same server
/// that the others make no majority.
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
