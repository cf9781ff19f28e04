//! The steps of `docs/guide.md`: each lock fails as the guide shows, on real servers, and the output
//! is word for word what the guide prints.

use crate::examples::{document, example, output_of};

/// The output of a step in the guide: the block after its comment.
fn in_the_guide(step: &str) -> String {
    let guide = document("docs/guide.md");
    let (_, rest) = guide
        .split_once(&format!("<!-- step {step} -->\n```text\n"))
        .unwrap_or_else(|| panic!("the guide has no output of the step `{step}`"));
    let (block, _) = rest.split_once("```\n").unwrap();
    block.to_owned()
}

#[track_caller]
fn happens_as_the_guide_shows(step: &str) {
    let printed = output_of(example("steps").arg(step));
    assert_eq!(printed, in_the_guide(step));
}

#[test]
fn a_lock_without_an_expiry_outlives_its_holder() {
    happens_as_the_guide_shows("no-expiry");
}

#[test]
fn an_expiry_in_a_second_command_gets_lost() {
    happens_as_the_guide_shows("two-commands");
}

#[test]
fn a_late_release_deletes_the_lock_of_another() {
    happens_as_the_guide_shows("release");
}

#[test]
fn a_client_that_polls_is_overtaken() {
    happens_as_the_guide_shows("waiting");
}

#[test]
fn a_slow_acquire_returns_a_lock_that_has_ended() {
    happens_as_the_guide_shows("slow-acquire");
}

#[test]
fn work_outlasts_a_lock_that_is_not_renewed() {
    happens_as_the_guide_shows("renewal");
}

#[test]
fn a_failover_of_one_master_makes_two_holders() {
    happens_as_the_guide_shows("failover");
}

#[test]
fn a_server_that_forgot_makes_two_majorities() {
    happens_as_the_guide_shows("quorum");
}

#[test]
fn a_paused_holder_overwrites_the_next_unless_the_store_checks_the_fence() {
    happens_as_the_guide_shows("paused-holder");
}

#[test]
fn the_guide_has_every_step_in_order() {
    let guide = document("docs/guide.md");
    let steps = guide.split("<!-- step ").skip(1);
    let steps: Vec<&str> = steps.map(|rest| rest.split(' ').next().unwrap()).collect();
    let program = document("crates/ringfence/examples/steps/main.rs");
    let (_, list) = program.split_once("const STEPS: [&str; 9] = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let known: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(steps, known);
}
