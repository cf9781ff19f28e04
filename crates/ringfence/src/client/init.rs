//! `ringfence init`: the operator's word that a cluster is new.

use std::time::Duration;

use crate::driver::gather::gather;
use crate::group::Group;
use crate::node::InitMode;

use super::Builder;
use super::error::{InitError, Votes};
use super::handshake::{decide, votes};

/// How long every node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Builder {
    /// Marks a new cluster as grown up, so that it can be used at once instead of after the
    /// quarantine. Returns the group's values.
    ///
    /// Refused unless every node answers and none votes already or holds locks. `force` overrides
    /// the latter; the holders that may then be doubled are yours to know.
    pub async fn init(self, force: bool) -> Result<Group, InitError> {
        let locks = self.prepare()?;
        let driver = &locks.shared.driver;
        let ask = async |mode: InitMode, group: Group| {
            let until = driver.clock.now() + PATIENCE;
            let nodes = driver.nodes.len();
            let ask = |node: usize, done| driver.nodes[node].init(group, mode, done);
            gather(nodes, &driver.clock, until, ask, |_| false).await
        };
        let until = driver.clock.now() + PATIENCE;
        let answers = gather(
            driver.nodes.len(),
            &driver.clock,
            until,
            |node, done| driver.nodes[node].probe(done),
            |_| false,
        )
        .await;
        let names = &locks.shared.names;
        if answers.iter().any(Result::is_err) {
            let votes = Votes::worded("answers", names, votes(&answers));
            return Err(InitError::Unreachable { votes });
        }
        super::handshake::check_distinct(names, &answers)?;
        let group = if force {
            locks.shared.settings.wishes.over(Group::new(answers.len()))
        } else {
            decide(&answers, &locks.shared.settings.wishes)
        };
        // All are asked before any is written: half a new cluster is none.
        let rounds = if force {
            &[InitMode::Force][..]
        } else {
            &[InitMode::Check, InitMode::Write]
        };
        for &mode in rounds {
            let answers = ask(mode, group).await;
            if answers.iter().any(Result::is_err) {
                let votes = Votes::worded("answers", names, votes(&answers));
                return Err(InitError::Refused { votes });
            }
        }
        Ok(group)
    }
}
