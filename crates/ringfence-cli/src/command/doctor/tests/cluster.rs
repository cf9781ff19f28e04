//! Findings about all nodes together.

use std::time::Duration;

use ringfence::admin::{Found, Machine, Voting};
use ringfence::node::TroubleKind;

use ringfence_core::group::Group;

use super::{healthy, identity, nodes, only, says, second, trouble};
use crate::command::doctor::diagnosis::Diagnosis;
use crate::command::doctor::finding::FindingVerdict;

#[test]
fn a_node_in_quarantine_is_a_warning_while_the_others_vote() {
    for (voting, word) in [
        (Voting::In(Duration::from_secs(27)), "27 s"),
        (Voting::NeverMet, "init"),
        (Voting::Restarted, "restarted"),
    ] {
        let quarantined = second(|server| server.birth.as_mut().unwrap().voting = voting);
        says(
            &quarantined,
            "birth",
            FindingVerdict::Warning,
            false,
            &[word],
        );
    }
    let damaged = second(|server| {
        server.birth = Err(trouble(TroubleKind::Other, "has a damaged birth record"));
    });
    says(
        &damaged,
        "birth",
        FindingVerdict::Problem,
        false,
        &["damaged"],
    );
}

#[test]
fn a_cluster_in_quarantine_is_a_problem_that_names_init() {
    let mut nodes = nodes(3);
    for (number, node) in nodes.iter_mut().enumerate() {
        let (_, mut server) = healthy(number as u8, 3);
        server.birth.as_mut().unwrap().voting = Voting::In(Duration::from_secs(20 + number as u64));
        node.found = Ok(Found::Server(Box::new(server)));
    }
    let diagnosis = Diagnosis::of(&nodes, None);
    let finding = only(&diagnosis, "votes");
    assert_eq!(finding.verdict, FindingVerdict::Problem);
    assert!(!diagnosis.has_quorum());
    let advice = finding.advice.unwrap();
    assert!(
        advice.contains("`ringfence init`") && advice.contains("22 s"),
        "{advice}"
    );
    // With two of them down, neither init nor waiting helps.
    nodes[0].found = Err(trouble(TroubleKind::Unreachable, "refused"));
    nodes[1].found = Err(trouble(TroubleKind::Unreachable, "refused"));
    let finding = only(&Diagnosis::of(&nodes, None), "votes");
    assert!(finding.advice.unwrap().starts_with("repair"));
}

#[test]
fn one_server_under_two_names_is_a_problem() {
    let duplicate = second(|server| identity(server).run_id = "0".to_owned());
    let diagnosis = Diagnosis::of(&duplicate, None);
    let finding = only(&diagnosis, "duplicates");
    assert_eq!(finding.verdict, FindingVerdict::Problem);
    assert!(
        finding.says.starts_with("n0:6379 and n1:6379 are"),
        "{finding:?}"
    );
    assert!(!diagnosis.has_quorum(), "a client would refuse these nodes");
}

#[test]
fn nodes_on_one_host_are_a_warning() {
    let mut near = nodes(3);
    near[2].machine = near[0].machine.clone();
    let finding = only(&Diagnosis::of(&near, None), "hosts");
    assert_eq!(finding.verdict, FindingVerdict::Warning);
    assert!(
        finding
            .says
            .starts_with("n0:6379 and n2:6379 run on one host"),
        "{finding:?}"
    );
    for node in &mut near {
        node.machine = Machine::ThisOne;
    }
    assert!(
        only(&Diagnosis::of(&near, None), "hosts")
            .says
            .contains("n0:6379, n1:6379 and n2")
    );
    for node in &mut near {
        node.machine = Machine::Unknown;
    }
    assert_eq!(Diagnosis::of(&near, None).verdict(), FindingVerdict::Ok);
}

#[test]
fn an_even_number_of_nodes_is_a_warning() {
    let finding = only(&Diagnosis::of(&nodes(4), None), "count");
    assert_eq!(finding.verdict, FindingVerdict::Warning);
    assert_eq!(finding.advice.as_deref(), Some("use 3 or 5"));
}

#[test]
fn nodes_of_different_groups_are_a_problem() {
    let five = second(|server| server.birth.as_mut().unwrap().group = Some(Group::new(5)));
    says(
        &five,
        "group",
        FindingVerdict::Problem,
        false,
        &["5 nodes", "3 were given"],
    );
    let other = second(|server| {
        let group = server.birth.as_mut().unwrap().group.as_mut().unwrap();
        group.quarantine = Duration::from_secs(60);
    });
    says(
        &other,
        "group",
        FindingVerdict::Problem,
        false,
        &["quarantine 60s"],
    );
}
