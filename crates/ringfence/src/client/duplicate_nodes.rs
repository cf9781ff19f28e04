//! One server under two names has one vote: what a client does about it when it connects. Later
//! every reply says which server gave it (`protocol/duplicates.rs`).

use crate::node::{CallError, Facts, Trouble};
use crate::protocol::duplicates;

use super::error::ConfigError;

/// The first two nodes that are one server, if any are.
pub(super) fn find(run_ids: &[Option<&str>]) -> Option<(usize, usize)> {
    (0..run_ids.len()).find_map(|later| {
        let run_id = run_ids[later]?;
        let mut earlier = run_ids[..later].iter();
        let earlier = earlier.position(|other| *other == Some(run_id))?;
        Some((earlier, later))
    })
}

/// Every node must be a server of its own.
pub(super) fn refuse(
    names: &[String],
    answers: &[Result<Facts, CallError>],
) -> Result<(), ConfigError> {
    let run_ids: Vec<Option<&str>> = answers.iter().map(run_id).collect();
    match find(&run_ids) {
        Some((one, other)) => Err(same(&names[one], &names[other])),
        None => Ok(()),
    }
}

/// No node may be given twice. Addresses are compared when they are parsed; this is for nodes that
/// the caller made, which have only their names to compare.
pub(super) fn refuse_repeated(
    names: &[String],
    answers: &[Result<Facts, CallError>],
) -> Result<(), ConfigError> {
    let found = earlier(answers).into_iter().enumerate();
    let mut found = found.filter_map(|(later, earlier)| Some((later, earlier?)));
    match found.find(|(later, earlier)| names[*later] == names[*earlier]) {
        Some((later, earlier)) => Err(same(&names[earlier], &names[later])),
        None => Ok(()),
    }
}

/// The same answers, but a node that is the same server as an earlier one is refused.
pub(super) fn marked(
    names: &[String],
    answers: &[Result<Facts, CallError>],
) -> Vec<Result<Facts, CallError>> {
    let all = answers.iter().zip(earlier(answers)).enumerate();
    let marked = all.map(|(node, (answer, earlier))| match earlier {
        Some(earlier) => {
            let trouble = Trouble::duplicate(&names[node], &names[earlier]);
            Err(CallError::Refused(trouble))
        }
        None => answer.clone(),
    });
    marked.collect()
}

/// For each node the earlier one that is the same server, if there is one.
pub(super) fn earlier(answers: &[Result<Facts, CallError>]) -> Vec<Option<usize>> {
    let server = |answer| run_id(answer).map_or(0, crate::message::Standing::server_of);
    let servers: Vec<u64> = answers.iter().map(server).collect();
    duplicates(&servers)
}

fn run_id(answer: &Result<Facts, CallError>) -> Option<&str> {
    let run_id = answer.as_ref().ok()?.run_id.as_str();
    (!run_id.is_empty()).then_some(run_id)
}

fn same(one: &str, other: &str) -> ConfigError {
    ConfigError::DuplicateNode {
        first: one.to_owned(),
        second: other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_under_two_names_is_found_out() {
        let servers = |ids: [&'static str; 4]| {
            let known = ids.map(|id| (!id.is_empty()).then_some(id));
            find(&known)
        };
        assert_eq!(servers(["a", "b", "c", "b"]), Some((1, 3)));
        assert_eq!(servers(["a", "b", "c", "d"]), None);
        assert_eq!(servers(["", "b", "", "d"]), None, "silence is no name");
    }
}
