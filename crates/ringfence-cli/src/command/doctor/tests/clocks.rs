//! Findings about clocks that differ.

use ringfence::admin::Found;

use super::HOUR_US;
use super::{healthy, nodes, only, says, second};
use crate::command::doctor::diagnosis::Diagnosis;
use crate::command::doctor::finding::FindingVerdict;

#[test]
fn a_node_whose_clock_is_an_hour_off_cannot_vote() {
    for (ahead_us, words) in [(HOUR_US, "1 h ahead of"), (-HOUR_US, "1 h behind")] {
        let wrong = second(|server| server.clock.as_mut().unwrap().ahead_us = ahead_us);
        says(
            &wrong,
            "clock",
            FindingVerdict::Problem,
            false,
            &[words, "cannot vote"],
        );
    }
    let off = second(|server| server.clock.as_mut().unwrap().ahead_us = 2_000_000);
    says(
        &off,
        "clock",
        FindingVerdict::Warning,
        true,
        &["2000 ms ahead"],
    );
}

#[test]
fn a_wrong_clock_of_this_machine_is_a_warning() {
    let mut nodes = nodes(3);
    for (number, node) in nodes.iter_mut().enumerate() {
        let (_, mut server) = healthy(number as u8, 3);
        server.clock.as_mut().unwrap().ahead_us += HOUR_US;
        node.found = Ok(Found::Server(Box::new(server)));
    }
    let diagnosis = Diagnosis::of(&nodes, None);
    let finding = only(&diagnosis, "own-clock");
    assert_eq!(finding.verdict, FindingVerdict::Warning);
    assert!(finding.says.contains("1 h behind"), "{finding:?}");
    assert_eq!(diagnosis.voting(), 3);
}
