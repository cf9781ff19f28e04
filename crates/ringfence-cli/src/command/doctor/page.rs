//! Formats a diagnosis. As text: at most 80 columns wide, problems in capitals. The problems are
//! repeated at the end, which is what a terminal shows. As JSON: the findings, and the measured values of
//! each node.

use std::fmt::Write as _;

use ringfence::admin::{Examination, Role};
use serde_json::{Value, json};

use super::cluster;
use super::diagnosis::Diagnosis;
use super::finding::{Finding, FindingVerdict};
use crate::report::{many, wrapped};

const WIDTH: usize = 80;
/// The column where sentences begin, after the verdict.
const INDENT: usize = 11;

/// The format of the text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// Use colours, for a terminal.
    pub(super) colour: bool,
    /// Leave out findings that are ok, and notes.
    pub(super) quiet: bool,
}

/// The whole diagnosis, without a newline at the end.
pub(super) fn render(diagnosis: &Diagnosis, style: Style) -> String {
    let mut text = String::new();
    let mut under: Option<&Option<String>> = None;
    for finding in &diagnosis.findings {
        if style.quiet && finding.verdict <= FindingVerdict::Note {
            continue;
        }
        if under != Some(&finding.node) {
            let heading = finding.node.as_deref().unwrap_or("all nodes");
            for line in wrapped(heading, WIDTH) {
                text += &paint(&line, "1", style);
                text.push('\n');
            }
            under = Some(&finding.node);
        }
        text += &lines(finding, &finding.says, style);
        if let Some(advice) = &finding.advice {
            indented(&mut text, &format!("-> {advice}"));
        }
    }
    text + &summary(diagnosis, style)
}

fn lines(finding: &Finding, says: &str, style: Style) -> String {
    let word = match finding.verdict {
        FindingVerdict::Problem => "PROBLEM",
        verdict => verdict.word(),
    };
    let word = paint(&format!("{word:<8}"), colour(finding.verdict), style);
    let mut says = wrapped(says, WIDTH - INDENT).into_iter();
    let mut text = format!("  {word} {}\n", says.next().unwrap_or_default());
    for line in says {
        let _ = writeln!(text, "{:INDENT$}{line}", "");
    }
    text
}

fn indented(text: &mut String, advice: &str) {
    for (number, line) in wrapped(advice, WIDTH - INDENT - 3).into_iter().enumerate() {
        let hang = if number == 0 { 0 } else { 3 };
        let _ = writeln!(text, "{:INDENT$}{:hang$}{line}", "", "");
    }
}

/// The problems again, and a last line: whether locks can be taken.
fn summary(diagnosis: &Diagnosis, style: Style) -> String {
    let mut text = String::new();
    let (problems, warnings) = (
        diagnosis.count(FindingVerdict::Problem),
        diagnosis.count(FindingVerdict::Warning),
    );
    if !(style.quiet && problems + warnings == 0) {
        text.push('\n');
    }
    let problem = |finding: &&Finding| finding.verdict == FindingVerdict::Problem;
    for finding in diagnosis.findings.iter().filter(problem) {
        let says = match &finding.node {
            Some(node) => format!("{node}: {}", finding.says),
            None => finding.says.clone(),
        };
        text += &lines(finding, &says, style);
    }
    let found = match (problems, warnings) {
        (0, 0) => "no problems".to_owned(),
        (0, warnings) => many(warnings, "warning"),
        (problems, 0) => many(problems, "problem"),
        (problems, warnings) => {
            format!(
                "{}, {}",
                many(problems, "problem"),
                many(warnings, "warning")
            )
        }
    };
    let (voting, nodes) = (diagnosis.voting(), diagnosis.voting.len());
    let locks = if diagnosis.has_quorum() {
        "locks can be taken"
    } else {
        "no lock can be taken"
    };
    let votes = match nodes {
        1 => String::new(),
        _ => format!(" with {voting} of {nodes} nodes"),
    };
    let line = format!("{found}: {locks}{votes}");
    text + &paint(&line, colour(diagnosis.verdict()), style)
}

fn colour(verdict: FindingVerdict) -> &'static str {
    match verdict {
        FindingVerdict::Ok => "32",
        FindingVerdict::Note => "36",
        FindingVerdict::Warning => "33",
        FindingVerdict::Problem => "1;31",
    }
}

fn paint(text: &str, colour: &str, style: Style) -> String {
    if style.colour {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

pub(super) fn json(diagnosis: &Diagnosis, nodes: &[Examination]) -> Value {
    let each = nodes.iter().zip(&diagnosis.voting);
    json!({
        "verdict": diagnosis.verdict().word(),
        "problems": diagnosis.count(FindingVerdict::Problem),
        "warnings": diagnosis.count(FindingVerdict::Warning),
        "quorum": diagnosis.has_quorum(),
        "nodes": each.map(|(node, votes)| measured(node, *votes)).collect::<Vec<_>>(),
        "findings": diagnosis.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "verdict": finding.verdict.word(),
        "check": finding.check,
        "node": finding.node,
        "says": finding.says,
        "advice": finding.advice,
    })
}

fn measured(node: &Examination, votes: bool) -> Value {
    let server = cluster::server(node);
    let identity = server.and_then(|server| server.identity.as_ref().ok());
    let clock = server.and_then(|server| server.clock.as_ref().ok());
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "node": node.node,
        "votes": votes,
        "version": identity.map(|found| &found.version),
        "role": identity.map(|found| role(&found.role)),
        "tier": identity.map(|found| found.tier.to_string()),
        "run_id": identity.map(|found| &found.run_id),
        "round_trip_us": clock.map(|clock| micros(clock.round_trip)),
        "clock_ahead_us": clock.map(|clock| clock.ahead_us),
    })
}

fn role(role: &Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Replica(_) => "replica",
        Role::ClusterNode => "cluster",
        Role::Sentinel => "sentinel",
    }
}
