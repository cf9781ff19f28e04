//! One server under two names would vote twice. Whoever answers in time is found out when the client
//! connects; this looks after those that come later.

use std::sync::Weak;
use std::time::Duration;

use crate::driver::Driver;
use crate::driver::gather::{Rest, gather};
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::time::Timestamp;

/// How long a node may take to say which server it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pauses between two questions to a node that has not answered.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The first two nodes that are one server, if any are.
pub(super) fn find(run_ids: &[Option<String>]) -> Option<(usize, usize)> {
    if mutant!(OneServerTwice) {
        return None;
    }
    (0..run_ids.len()).find_map(|later| {
        let run_id = run_ids[later].as_ref()?;
        let earlier = run_ids[..later]
            .iter()
            .position(|other| other.as_ref() == Some(run_id))?;
        Some((earlier, later))
    })
}

/// Which server each node is, as far as it said.
pub(super) fn run_ids(answers: &[Result<Facts, CallError>]) -> Vec<Option<String>> {
    let known = |answer: &Result<Facts, CallError>| {
        let run_id = &answer.as_ref().ok()?.run_id;
        (!run_id.is_empty()).then(|| run_id.clone())
    };
    answers.iter().map(known).collect()
}

/// What is known from either of two rounds.
pub(super) fn merged(one: Vec<Option<String>>, other: Vec<Option<String>>) -> Vec<Option<String>> {
    let both = one.into_iter().zip(other);
    both.map(|(one, other)| one.or(other)).collect()
}

/// The words for two nodes that are one server.
pub(super) fn words(one: &str, other: &str) -> String {
    format!("{one} and {other} are the same server; every node must be a server of its own")
}

/// Learns which server each node is that is not in `known`, and takes the vote from one that turns
/// out to be another's twin. Most have only not answered *yet*: what they were asked at `asked` comes
/// in `rest`. The others are asked until they say.
pub(super) async fn watch(
    driver: Weak<Driver>,
    mut known: Vec<Option<String>>,
    mut rest: Rest<Facts>,
    asked: Timestamp,
) {
    while let Some((node, answer)) = rest.recv().await {
        let Some(driver) = driver.upgrade() else {
            return;
        };
        if let Ok(facts) = &answer {
            // Its clock counts as much as those of the nodes that were quicker.
            driver.hear_facts(node, facts, asked);
        }
        learn(&driver, &mut known, node, answer);
    }
    let mut pause = PAUSE_MIN;
    loop {
        let missing: Vec<usize> = (0..known.len()).filter(|&i| known[i].is_none()).collect();
        let Some(driver) = driver.upgrade().filter(|_| !missing.is_empty()) else {
            return;
        };
        let clock = driver.clock.clone();
        let until = clock.now() + PATIENCE;
        let ask = |index: usize, done| driver.nodes[missing[index]].probe(done);
        let answers = gather(missing.len(), &clock, until, ask, |_| false).await;
        for (&node, answer) in missing.iter().zip(answers) {
            learn(&driver, &mut known, node, answer);
        }
        drop(driver);
        clock.sleep_until(clock.now() + pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn learn(
    driver: &Driver,
    known: &mut [Option<String>],
    node: usize,
    answer: Result<Facts, CallError>,
) {
    let [run_id] = &mut run_ids(&[answer])[..] else {
        return;
    };
    if known[node].is_some() {
        return;
    }
    known[node] = run_id.take();
    if let Some((one, other)) = find(known) {
        let name = |node: usize| driver.nodes[node].name();
        let words = words(name(one), name(other));
        tracing::error!("{words}");
        // The one that just answered, so that the place of the other stays taken.
        driver.bar(node, Trouble::new(TroubleKind::Twice, words));
        known[node] = Some(format!("barred {node}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_under_two_names_is_found_out() {
        let servers = |ids: [&str; 4]| {
            let known = ids.map(|id| (!id.is_empty()).then(|| id.to_owned()));
            find(&known)
        };
        assert_eq!(servers(["a", "b", "c", "b"]), Some((1, 3)));
        assert_eq!(servers(["a", "b", "c", "d"]), None);
        assert_eq!(servers(["", "b", "", "d"]), None, "silence is no name");
    }
}
