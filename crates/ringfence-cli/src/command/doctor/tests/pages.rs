//! The text output.

use ringfence::admin::{Machine, Role};
use ringfence::node::TroubleKind;

use super::{identity, nodes, second, trouble};
use crate::command::doctor::diagnosis::Diagnosis;
use crate::command::doctor::page;

#[test]
fn no_line_is_wider_than_80_columns_even_with_long_names() {
    let host = "h".repeat(253);
    let mut nodes = nodes(4);
    for (number, node) in nodes.iter_mut().enumerate() {
        node.node = format!("{host}{number}:6379");
        node.machine = Machine::ThisOne;
    }
    nodes[1].found = Err(trouble(TroubleKind::Other, &"long words ".repeat(40)));
    let diagnosis = Diagnosis::of(&nodes, None);
    let text = page::render(&diagnosis, page::Style::default());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.ends_with(' '), "{line:?}");
    }
    assert!(!text.contains('\x1b'), "plain unless asked for colour");
}

#[test]
fn the_end_repeats_the_problems_and_reports_whether_locks_can_be_taken() {
    let wrong = second(|server| identity(server).role = Role::Sentinel);
    let diagnosis = Diagnosis::of(&wrong, None);
    let style = |colour, quiet| page::Style { colour, quiet };
    let text = page::render(&diagnosis, style(false, false));
    let end = "\n\n  PROBLEM  n1:6379: is a Sentinel and stores no data\n\
               1 problem, 1 warning: locks can be taken with 2 of 3 nodes";
    assert!(text.ends_with(end), "{text}");
    let short = page::render(&diagnosis, style(false, true));
    assert!(!short.contains("ok  "), "{short}");
    assert!(short.ends_with(end), "{short}");
    assert!(page::render(&diagnosis, style(true, false)).contains("\x1b[1;31mPROBLEM"));
}
