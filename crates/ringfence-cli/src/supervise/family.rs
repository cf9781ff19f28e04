//! Finds the command and all its descendants, also those that left its process group.
//!
//! A process that leaves the command's group (`setsid`, a daemon) does not get a signal to the
//! group. ringfence and its watchdog are *child subreapers*: the kernel makes them the parent of
//! every descendant whose own parent dies. So all descendants stay in one tree below the watchdog,
//! or below ringfence if the watchdog died. A walk through `/proc` finds them all.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::Family;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use portable::Family;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::collections::HashSet;
    use std::io;

    use rustix::process::{
        Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, set_child_subreaper, waitid,
    };

    use super::super::process::{Process, ProcessIdentity, Snapshot, has_child};

    /// The processes of the command, as ringfence or its watchdog finds them.
    pub(in super::super) struct Family {
        /// The command, the leader of a process group; `None` before it starts and after it ended.
        command: Option<ProcessIdentity>,
        /// The child of ringfence that is the parent of the command. `None` in the watchdog itself,
        /// and in ringfence once the watchdog has died.
        watchdog: Option<Pid>,
        /// Children that existed before the command. A shell that replaced itself with ringfence
        /// (`exec`) may have some.
        strangers: HashSet<ProcessIdentity>,
    }

    impl Family {
        /// Records the children that this process already has. Call it before it starts any.
        pub(in super::super) fn new() -> Self {
            let mut family = Self {
                command: None,
                watchdog: None,
                strangers: HashSet::new(),
            };
            if has_children() {
                family.strangers = family.members().iter().map(Process::identity).collect();
            }
            family
        }

        /// Makes this process the parent of orphaned descendants. Call it before the command
        /// starts.
        pub(in super::super) fn adopt_orphans() -> io::Result<()> {
            Ok(set_child_subreaper(Some(getpid()))?)
        }

        /// Records that the child `watchdog` will be the parent of the command. It is not a member.
        pub(in super::super) fn watched_by(&mut self, watchdog: Pid) {
            self.watchdog = Some(watchdog);
        }

        /// Records that the watchdog died: its children are now ours.
        pub(in super::super) fn watchdog_died(&mut self) {
            self.watchdog = None;
        }

        /// Records that `command` runs and leads a process group.
        pub(in super::super) fn led_by(&mut self, command: ProcessIdentity) {
            self.command = Some(command);
        }

        /// Records that the command was reaped: another process may soon get its number.
        pub(in super::super) fn leader_reaped(&mut self) {
            self.command = None;
        }

        /// Whether no member is left, not even a zombie: `kill -0` reports zombies as alive.
        ///
        /// A walk can miss a process that is orphaned during the walk. So two walks must agree,
        /// unless the kernel reports that the watchdog has no child.
        pub(in super::super) fn is_gone(&self) -> bool {
            match self.watchdog.and_then(has_child) {
                Some(true) => false,
                Some(false) if self.watchdog_lives() => true,
                _ => (0..2).all(|_| self.members().is_empty()),
            }
        }

        fn watchdog_lives(&self) -> bool {
            let watchdog = self.watchdog.and_then(Process::read);
            watchdog.is_some_and(|process| process.is_alive())
        }

        /// Whether a member runs or is stopped.
        pub(in super::super) fn is_alive(&self) -> bool {
            (0..2).any(|_| self.members().iter().any(Process::is_alive))
        }

        /// The process numbers of the members that are alive, for messages.
        pub(in super::super) fn living_pids(&self) -> String {
            let members = self.members();
            let alive = members.iter().filter(|process| process.is_alive());
            let pids: Vec<_> = alive.map(|process| process.pid.to_string()).collect();
            pids.join(", ")
        }

        /// Sends `signal` to the process of the command only.
        pub(in super::super) fn signal_command(&self, signal: Signal) -> rustix::io::Result<()> {
            match self.command {
                Some(command) => command.send(signal),
                None => Ok(()),
            }
        }

        /// Sends `signal` to the command's process group only, as a terminal would.
        pub(in super::super) fn signal_group(&self, signal: Signal) -> rustix::io::Result<()> {
            match self.command {
                // The leader's number identifies the group as long as the leader is not reaped.
                Some(command) if command.exists() => kill_process_group(command.pid, signal),
                _ => Ok(()),
            }
        }

        /// Sends `signal` to all members. It may miss a process that is forked meanwhile, so call
        /// it again.
        pub(in super::super) fn signal_all(&self, signal: Signal) {
            // Ignore errors: if a process survives, `living_pids` names it later.
            let _ = self.signal_group(signal);
            let command = self.command.filter(|command| command.exists());
            let group = command.map(|command| command.pid);
            for process in self.members() {
                if Some(process.group) != group {
                    let _ = process.identity().send_if(signal, |now| self.owns(now));
                }
            }
        }

        fn members(&self) -> Vec<Process> {
            let Some(watchdog) = self.watchdog else {
                return Snapshot::take().below(getpid(), &self.strangers);
            };
            let members = Snapshot::take().below(watchdog, &self.strangers);
            if self.watchdog_lives() {
                return members;
            }
            // The watchdog died and was not reaped yet: its children are now ours.
            let mut ours = Snapshot::take().below(getpid(), &self.strangers);
            ours.retain(|process| process.pid != watchdog);
            ours
        }

        /// Whether `process` is below us or our watchdog now.
        ///
        /// A walk is not atomic: a process number may be reused during the walk, and then a foreign
        /// process looks like a child of a member. So check every parent link up to us before the
        /// process gets a signal.
        fn owns(&self, mut process: Process) -> bool {
            loop {
                if self.strangers.contains(&process.identity()) {
                    return false;
                }
                if process.parent == getpid() || Some(process.parent) == self.watchdog {
                    return Some(process.pid) != self.watchdog;
                }
                let Some(parent) = Process::read(process.parent) else {
                    return false;
                };
                // The parent is the same before and after its entry was read, so the entry is its
                // own.
                match Process::read(process.pid) {
                    Some(again) if again.parent == process.parent => process = parent,
                    _ => return false,
                }
            }
        }
    }

    /// Whether this process has any child, dead or alive.
    fn has_children() -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
    }
}

/// Without a subreaper only the process group can be found. A process that leaves the group
/// escapes.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod portable {
    use std::io;

    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    use super::super::process::ProcessIdentity;

    pub(in super::super) struct Family {
        command: Option<ProcessIdentity>,
        reaped: bool,
    }

    impl Family {
        pub(in super::super) fn new() -> Self {
            Self {
                command: None,
                reaped: false,
            }
        }

        pub(in super::super) fn adopt_orphans() -> io::Result<()> {
            Ok(())
        }

        pub(in super::super) fn watched_by(&mut self, _: Pid) {}

        pub(in super::super) fn watchdog_died(&mut self) {}

        pub(in super::super) fn led_by(&mut self, command: ProcessIdentity) {
            self.command = Some(command);
        }

        /// Keeps the number: it is the only way to find the rest of the group.
        pub(in super::super) fn leader_reaped(&mut self) {
            self.reaped = true;
        }

        pub(in super::super) fn is_gone(&self) -> bool {
            self.command
                .is_none_or(|command| test_kill_process_group(command.pid).is_err())
        }

        pub(in super::super) fn is_alive(&self) -> bool {
            !self.is_gone()
        }

        pub(in super::super) fn living_pids(&self) -> String {
            self.command
                .map(|command| format!("group {}", command.pid))
                .unwrap_or_default()
        }

        pub(in super::super) fn signal_command(&self, signal: Signal) -> rustix::io::Result<()> {
            match self.command {
                Some(command) if !self.reaped => command.send(signal),
                _ => Ok(()),
            }
        }

        pub(in super::super) fn signal_group(&self, signal: Signal) -> rustix::io::Result<()> {
            match self.command {
                Some(command) => kill_process_group(command.pid, signal),
                None => Ok(()),
            }
        }

        pub(in super::super) fn signal_all(&self, signal: Signal) {
            let _ = self.signal_group(signal);
        }
    }
}
