//! Fills the arguments that the user left out with the settings of the files.

use std::time::Duration;

use super::{Config, LockSettings};
use crate::args::{JobArgs, LockArgs, LockCommand};

impl Config {
    /// Gives `command` the settings of its lock. An argument that was typed stays.
    pub(crate) fn apply(&self, command: &mut LockCommand) {
        let (name, label) = match command {
            LockCommand::Run(run) => {
                self.fill_job(&mut run.job, run.kind.shared);
                (&run.job.name, &mut run.label)
            }
            LockCommand::Elect(elect) => {
                self.fill_job(&mut elect.job, false);
                (&elect.job.name, &mut elect.label)
            }
            LockCommand::Acquire(acquire) => {
                let name = &acquire.name;
                self.fill_terms(name, &mut acquire.terms);
                if !acquire.kind.shared {
                    self.fill(name, &mut acquire.lock_delay, |of| of.lock_delay);
                }
                (name, &mut acquire.label)
            }
            _ => return,
        };
        if label.is_none() {
            let set = self.of_lock(Some(name), |of| of.label.clone());
            *label = set.map(|set| set.value);
        }
    }

    fn fill_job(&self, job: &mut JobArgs, shared: bool) {
        let name = &job.name;
        self.fill_terms(name, &mut job.terms);
        self.fill(name, &mut job.max_hold, |of| of.max_hold);
        // A share has no lock delay.
        if !shared {
            self.fill(name, &mut job.lock_delay, |of| of.lock_delay);
        }
        self.fill(name, &mut job.kill_grace, |of| of.kill_grace);
        self.fill(name, &mut job.stop_grace, |of| of.stop_grace);
    }

    fn fill_terms(&self, name: &str, terms: &mut LockArgs) {
        self.fill(name, &mut terms.ttl, |of| of.ttl);
        if !terms.no_wait {
            self.fill(name, &mut terms.wait, |of| of.wait);
        }
        self.fill(name, &mut terms.no_quorum_after, |of| of.no_quorum_after);
    }

    fn fill(
        &self,
        name: &str,
        argument: &mut Option<Duration>,
        of: impl Fn(&LockSettings) -> Option<Duration>,
    ) {
        if argument.is_none() {
            *argument = self.of_lock(Some(name), of).map(|set| set.value);
        }
    }
}
