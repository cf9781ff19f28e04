//! Turns facts about the nodes into findings. Pure, so that tests need no server.

use std::time::Duration;

use ringfence::admin::{Examination, Found, Voting};

use super::finding::{Check, Finding, FindingVerdict, failed};
use super::trial::Trial;
use super::{cluster, file, server};

/// All findings about the nodes.
#[derive(Debug)]
pub(super) struct Diagnosis {
    /// Node by node, then those about all nodes.
    pub(super) findings: Vec<Finding>,
    /// Which nodes may vote, in node order.
    pub(super) voting: Vec<bool>,
    /// Whether a lock was taken, if that was tried.
    taken: Option<bool>,
}

impl Diagnosis {
    /// The diagnosis of `nodes`. If `name` is given, the facts include the rights to that lock.
    pub(super) fn of(nodes: &[Examination], name: Option<&str>) -> Self {
        let mut others = cluster::clocks(nodes);
        others.extend(cluster::strangers(nodes));
        let mut findings = Vec::new();
        let mut voting = Vec::new();
        let mut waiting = Vec::new();
        for node in nodes {
            let mut own: Vec<Finding> = alone(node, nodes.len(), name)
                .into_iter()
                .map(|finding| finding.of(&node.node))
                .collect();
            own.extend(others.extract_if(.., |finding| finding.node.as_ref() == Some(&node.node)));
            let is_well = own
                .iter()
                .all(|finding| finding.verdict < FindingVerdict::Problem);
            let wait = wait(node).filter(|_| is_well);
            voting.push(is_well && wait.is_none());
            waiting.extend(wait);
            findings.extend(own);
        }
        findings.extend(others);
        let count = voting.iter().filter(|votes| **votes).count();
        findings.extend(cluster::findings(nodes, count, &waiting));
        Self {
            findings,
            voting,
            taken: None,
        }
    }

    /// Adds what happened when a lock was taken: below each node what it said.
    pub(super) fn add_trial(&mut self, trial: Trial) {
        self.taken = trial.taken;
        for finding in trial.findings {
            let node = finding.node.clone();
            let same = |other: &Finding| node.is_some() && other.node == node;
            let last = self.findings.iter().rposition(same);
            let place = last.map_or(self.findings.len(), |last| last + 1);
            self.findings.insert(place, finding);
        }
    }

    /// The worst verdict of all findings. A note counts as ok.
    pub(super) fn verdict(&self) -> FindingVerdict {
        let verdicts = self.findings.iter().map(|finding| finding.verdict);
        let verdicts = verdicts.filter(|verdict| *verdict > FindingVerdict::Note);
        verdicts.max().unwrap_or(FindingVerdict::Ok)
    }

    /// How many findings have this verdict.
    pub(super) fn count(&self, verdict: FindingVerdict) -> u64 {
        let findings = self.findings.iter();
        findings
            .filter(|finding| finding.verdict == verdict)
            .count() as u64
    }

    /// How many nodes may vote.
    pub(super) fn voting(&self) -> usize {
        self.voting.iter().filter(|votes| **votes).count()
    }

    /// Whether locks can be taken. A client refuses a list that has one server twice.
    pub(super) fn has_quorum(&self) -> bool {
        let is_duplicate = |finding: &Finding| {
            finding.check == cluster::DUPLICATES.0 && finding.verdict == FindingVerdict::Problem
        };
        let enough = self.voting() >= cluster::quorum(self.voting.len());
        enough && self.taken != Some(false) && !self.findings.iter().any(is_duplicate)
    }
}

/// The findings about one node that do not depend on the other nodes.
fn alone(node: &Examination, nodes: usize, name: Option<&str>) -> Vec<Finding> {
    match &node.found {
        Err(trouble) => vec![failed(Check("reach"), trouble, &node.node)],
        Ok(Found::Server(found)) => server::findings(found, &node.node, nodes, name),
        Ok(Found::File(found)) => file::findings(found),
        Ok(Found::Memory) => vec![Check("file").problem(
            "keeps locks in the memory of one process: they exclude no other process",
            "use sqlite:/path on one machine, or Redis",
        )],
        Ok(Found::Given(facts)) => vec![Check("reach").ok(facts.version.clone())],
    }
}

/// What a node waits for before its votes count; `None` if it votes.
fn wait(node: &Examination) -> Option<Wait> {
    let server = cluster::server(node)?;
    if server.identity.as_ref().is_ok_and(|found| found.loading) {
        return Some(Wait::Loading);
    }
    match server.birth.as_ref().ok()?.voting {
        Voting::Now => None,
        Voting::In(left) => Some(Wait::Quarantine(Some(left))),
        Voting::NeverMet | Voting::Restarted => Some(Wait::Quarantine(None)),
    }
}

/// What a node waits for before its votes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It loads its data.
    Loading,
    /// It may have forgotten locks. The remaining time, if it is known.
    Quarantine(Option<Duration>),
}
