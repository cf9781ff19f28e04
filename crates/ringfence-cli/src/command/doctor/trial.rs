//! `doctor --try`: takes a lock of its own on all nodes, releases it, and reports what happened. So it
//! finds also what no node tells.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::votes::{Vote, Votes};
use ringfence::{AcquireError, Guard, Locks};

use super::finding::{Check, Finding};
use crate::report::{said_after, with_causes};

const CHECK: Check = Check("try");
/// How long a node may take to answer after a majority has granted the lock.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often to look whether all nodes have answered.
const INTERVAL: Duration = Duration::from_millis(20);

/// What happened.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) findings: Vec<Finding>,
    /// Whether the lock was taken; `None` if that was not tried.
    pub(super) taken: Option<bool>,
}

/// Takes a lock and releases it, unless it `can` not be taken. Its name begins with `name`, so that a
/// user with rights to such names may take it.
pub(super) async fn take_lock(nodes: &str, name: Option<&str>, can: bool) -> Trial {
    if !can {
        // To connect would make new nodes members of a group.
        let says = "no lock was taken to try it: it could not be";
        let finding = CHECK.note(says, "repair what is wrong above, and try again");
        return Trial {
            findings: vec![finding],
            taken: None,
        };
    }
    let locks = match Locks::builder().nodes(nodes).connect().await {
        Ok(locks) => locks,
        Err(error) => return failed(&with_causes(&error), None),
    };
    settle(&locks).await;
    let began = Clock::System.now();
    let prefix = name.map_or_else(String::new, |name| format!("{name}."));
    let name = format!("{prefix}doctor-try.{}", std::process::id());
    let trial = match locks
        .mutex(&name)
        .label("ringfence doctor")
        .try_lock()
        .await
    {
        Err(error) => failed(&described(&error), error.votes()),
        Ok(guard) => {
            let votes = all_votes(&guard).await;
            let mut findings = of_nodes(&votes);
            findings.push(match guard.release().await {
                Ok(()) => {
                    let took = super::server::exactly(Clock::System.now().since(began));
                    CHECK.ok(format!("a lock was taken and released in {took}"))
                }
                Err(error) => CHECK.problem(
                    format!("a lock was taken, but not released: {error}"),
                    "repair the nodes above that did not answer",
                ),
            });
            Trial {
                findings,
                taken: Some(true),
            }
        }
    };
    let _ = tokio::time::timeout(PATIENCE, locks.close()).await;
    trial
}

/// Waits until every node has joined, or had the time to: a client connects with a majority, and the
/// others may still be at it.
async fn settle(locks: &Locks) {
    let until = Clock::System.now() + PATIENCE;
    while Clock::System.now() < until {
        if locks.nodes().await.iter().all(|node| node.facts.is_ok()) {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn described(error: &AcquireError) -> String {
    format!("no lock can be taken: {error}")
}

fn failed(says: &str, votes: Option<&Votes>) -> Trial {
    let mut findings = votes.map(of_nodes).unwrap_or_default();
    let advice = "repair the nodes above; their logs may say more";
    findings.push(CHECK.problem(says, advice));
    Trial {
        findings,
        taken: Some(false),
    }
}

/// The votes, once every node has answered or had the time to.
async fn all_votes(guard: &Guard) -> Votes {
    let until = Clock::System.now() + PATIENCE;
    loop {
        let votes = guard.votes();
        let is_complete = votes.iter().all(|node| node.vote == Vote::Granted);
        if is_complete || Clock::System.now() >= until {
            return votes;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn of_nodes(votes: &Votes) -> Vec<Finding> {
    let findings = votes.iter().map(|node| {
        let said = said_after(&node.node, &node.said());
        let finding = match &node.vote {
            Vote::Granted => CHECK.ok("granted a lock"),
            _ => CHECK.problem(
                format!("did not grant a lock: {said}"),
                "repair it; its log may say more",
            ),
        };
        finding.of(&node.node)
    });
    findings.collect()
}
