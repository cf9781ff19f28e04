//! The command and everything it started, wherever it went.
//!
//! A process that leaves the command's group (`setsid`, a daemon) escapes a signal to the group. As
//! *child subreaper* ringfence becomes the parent of every descendant whose own parent dies, so the
//! descendants stay one tree below this process, and walking it finds them all.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::{Family, parent_of};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use portable::{Family, parent_of};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::collections::{HashMap, HashSet};
    use std::io;

    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
        set_child_subreaper,
    };

    /// All descendants of this process but those that were there before.
    pub(in super::super) struct Family {
        /// The command's process group; `None` once its leader was reaped, because the number may
        /// by then belong to a stranger.
        group: Option<Pid>,
        /// Children that a shell left us when it became ringfence with `exec`.
        strangers: HashSet<Pid>,
    }

    impl Family {
        /// Makes this process the one that orphans come to. Call it before the command starts.
        pub(in super::super) fn adopt() -> io::Result<Self> {
            set_child_subreaper(Some(getpid()))?;
            let mut family = Self {
                group: None,
                strangers: HashSet::new(),
            };
            family.strangers = family.members().iter().map(|process| process.pid).collect();
            Ok(family)
        }

        /// Notes that the command leads `group`.
        pub(in super::super) fn led_by(&mut self, group: Pid) {
            self.group = Some(group);
        }

        /// Notes that the command itself was reaped.
        pub(in super::super) fn leader_reaped(&mut self) {
            self.group = None;
        }

        /// Whether nothing is left, not even somebody dead who was not reaped: to `kill -0` those
        /// look alive. Once their parents are gone they come to us, and `reap.rs`
        /// reaps them.
        pub(in super::super) fn is_gone(&self) -> bool {
            self.members().is_empty()
        }

        /// Who is left, for people.
        pub(in super::super) fn roll_call(&self) -> String {
            let pids: Vec<_> = self.members().iter().map(|p| p.pid.to_string()).collect();
            pids.join(", ")
        }

        /// Sends `signal` to the command's group only, as a terminal would.
        pub(in super::super) fn signal_group(&self, signal: Signal) {
            if let Some(group) = self.group {
                // A group that is gone needs no signal.
                let _ = kill_process_group(group, signal);
            }
        }

        /// Sends `signal` to everyone. What is forked meanwhile may be missed: call it again.
        pub(in super::super) fn signal_all(&self, signal: Signal) {
            self.signal_group(signal);
            for process in self.members() {
                if Some(process.group) != self.group {
                    process.send(signal);
                }
            }
        }

        fn members(&self) -> Vec<Process> {
            let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
            for process in processes() {
                children.entry(process.parent).or_default().push(process);
            }
            let mut found = Vec::new();
            let mut parents = vec![getpid()];
            while let Some(parent) = parents.pop() {
                for process in children.remove(&parent).unwrap_or_default() {
                    if !self.strangers.contains(&process.pid) {
                        parents.push(process.pid);
                        found.push(process);
                    }
                }
            }
            found
        }
    }

    /// The parent of `pid`.
    pub(in super::super) fn parent_of(pid: Pid) -> Option<Pid> {
        Process::read(pid).map(|process| process.parent)
    }

    struct Process {
        pid: Pid,
        parent: Pid,
        group: Pid,
        /// With the number it identifies a process: numbers are used again.
        started: u64,
    }

    impl Process {
        fn read(pid: Pid) -> Option<Self> {
            Self::parse(
                pid,
                &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
            )
        }

        /// Reads `/proc/PID/stat`, see proc(5). The second field is the program's name in
        /// parentheses, and may itself contain spaces and parentheses.
        fn parse(pid: Pid, stat: &str) -> Option<Self> {
            let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
            let number = |field: usize| -> Option<u64> { fields.get(field - 3)?.parse().ok() };
            let process = |field| Pid::from_raw(number(field)?.try_into().ok()?);
            Some(Self {
                pid,
                parent: process(4)?,
                group: process(5)?,
                started: number(22)?,
            })
        }

        /// Sends `signal` to this very process: the descriptor pins it, and only then is it looked
        /// at again, so that a number that was used again meanwhile hits nobody.
        fn send(&self, signal: Signal) {
            let Ok(pinned) = pidfd_open(self.pid, PidfdFlags::empty()) else {
                return;
            };
            if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
                let _ = pidfd_send_signal(pinned, signal);
            }
        }
    }

    fn processes() -> impl Iterator<Item = Process> {
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
                Process::read(Pid::from_raw(pid)?)
            })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const STAT: &str = "71 (a) b (c) S 7 70 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 5 6";

        #[test]
        fn a_program_name_may_look_like_fields() {
            let process = Process::parse(Pid::from_raw(71).unwrap(), STAT).unwrap();
            assert_eq!(process.parent.as_raw_nonzero().get(), 7);
            assert_eq!(process.group.as_raw_nonzero().get(), 70);
            assert_eq!(process.started, 9876);
        }
    }
}

/// Without a subreaper the process group is the best there is: what leaves it escapes.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod portable {
    use std::io;

    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    pub(in super::super) struct Family {
        group: Option<Pid>,
    }

    impl Family {
        pub(in super::super) fn adopt() -> io::Result<Self> {
            Ok(Self { group: None })
        }

        pub(in super::super) fn led_by(&mut self, group: Pid) {
            self.group = Some(group);
        }

        /// The number is kept: here it is all there is to find the others by.
        pub(in super::super) fn leader_reaped(&mut self) {}

        pub(in super::super) fn is_gone(&self) -> bool {
            self.group
                .is_none_or(|group| test_kill_process_group(group).is_err())
        }

        pub(in super::super) fn roll_call(&self) -> String {
            self.group
                .map(|group| format!("group {group}"))
                .unwrap_or_default()
        }

        pub(in super::super) fn signal_group(&self, signal: Signal) {
            if let Some(group) = self.group {
                let _ = kill_process_group(group, signal);
            }
        }

        pub(in super::super) fn signal_all(&self, signal: Signal) {
            self.signal_group(signal);
        }
    }

    pub(in super::super) fn parent_of(_: Pid) -> Option<Pid> {
        None
    }
}
