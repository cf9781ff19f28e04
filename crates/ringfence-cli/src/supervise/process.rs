//! Identifies processes, so that a signal reaches the intended process and no other.
//!
//! The system reuses a process number after the process was reaped. The number together with the
//! start time of the process is unique.

use rustix::process::{Pid, Signal};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Identifies one process, and never a later process with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    #[serde(serialize_with = "write_pid", deserialize_with = "read_pid")]
    pub(super) pid: Pid,
    /// Its start time in ticks since boot; zero on systems that do not report it.
    pub(super) started: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn write_pid<S: Serializer>(pid: &Pid, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i32(pid.as_raw_pid())
}

fn read_pid<'de, D: Deserializer<'de>>(from: D) -> Result<Pid, D::Error> {
    Pid::from_raw(i32::deserialize(from)?).ok_or_else(|| D::Error::custom("not a process number"))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::{Process, Snapshot, has_child, parent_of};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::collections::{HashMap, HashSet};

    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

    use super::{Pid, ProcessIdentity, Signal};

    impl ProcessIdentity {
        /// The process that has the number `pid` now.
        pub(in super::super) fn of(pid: Pid) -> Option<Self> {
            Process::read(pid).map(|process| process.identity())
        }

        /// Whether it runs, or has ended and was not reaped yet.
        pub(in super::super) fn exists(self) -> bool {
            Self::of(self.pid) == Some(self)
        }

        /// Sends `signal` to this process; does nothing if it was reaped.
        pub(in super::super) fn send(self, signal: Signal) -> rustix::io::Result<()> {
            self.send_if(signal, |_| true)
        }

        /// Sends `signal` if the process still exists and `condition` holds for it. Opens a
        /// descriptor of the process before the check, so that the checked process gets the signal.
        pub(in super::super) fn send_if(
            self,
            signal: Signal,
            condition: impl FnOnce(Process) -> bool,
        ) -> rustix::io::Result<()> {
            let pinned = pidfd_open(self.pid, PidfdFlags::empty());
            match Process::read(self.pid) {
                Some(now) if now.identity() == self && condition(now) => {}
                _ => return Ok(()),
            }
            match pinned {
                Ok(pinned) => pidfd_send_signal(pinned, signal),
                // The kernel does not support these descriptors, or a sandbox forbids them.
                Err(Errno::NOSYS | Errno::PERM) => kill_process(self.pid, signal),
                Err(error) => Err(error),
            }
        }
    }

    /// The parent of `pid`.
    pub(in super::super) fn parent_of(pid: Pid) -> Option<Pid> {
        Process::read(pid).map(|process| process.parent)
    }

    /// Whether `pid`, which has one thread, has a child, dead or alive; `None` if the kernel does
    /// not provide this file.
    pub(in super::super) fn has_child(pid: Pid) -> Option<bool> {
        let children = std::fs::read(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Some(!children.is_empty())
    }

    /// The state of a process when `/proc` was read.
    #[derive(Debug, Clone, Copy)]
    pub(in super::super) struct Process {
        pub(in super::super) pid: Pid,
        pub(in super::super) parent: Pid,
        pub(in super::super) group: Pid,
        started: u64,
        state: u8,
    }

    impl Process {
        pub(in super::super) fn read(pid: Pid) -> Option<Self> {
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            Self::parse(pid, &String::from_utf8_lossy(&stat))
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
                state: *fields.first()?.as_bytes().first()?,
            })
        }

        pub(in super::super) fn identity(&self) -> ProcessIdentity {
            ProcessIdentity {
                pid: self.pid,
                started: self.started,
            }
        }

        /// Whether it has not ended. A stopped process is alive.
        pub(in super::super) fn is_alive(&self) -> bool {
            !matches!(self.state, b'Z' | b'X')
        }
    }

    /// All processes, read one after the other.
    pub(in super::super) struct Snapshot(HashMap<Pid, Process>);

    impl Snapshot {
        pub(in super::super) fn take() -> Self {
            let read = |entry: std::io::Result<std::fs::DirEntry>| {
                let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
                let process = Process::read(Pid::from_raw(pid)?)?;
                Some((process.pid, process))
            };
            let entries = std::fs::read_dir("/proc").into_iter().flatten();
            let mut snapshot = Self(entries.filter_map(read).collect());
            snapshot.follow_orphans();
            snapshot
        }

        /// Reads each process again whose parent ended while the others were read: the process has
        /// a new parent now.
        fn follow_orphans(&mut self) {
            let is_orphan = |process: &&Process| !self.0.contains_key(&process.parent);
            let orphans: Vec<Pid> = self.0.values().filter(is_orphan).map(|p| p.pid).collect();
            for pid in orphans {
                if let Some(process) = Process::read(pid) {
                    self.0.insert(pid, process);
                }
            }
        }

        /// The descendants of `root`, parents first, without `strangers` and their descendants.
        pub(in super::super) fn below(
            &self,
            root: Pid,
            strangers: &HashSet<ProcessIdentity>,
        ) -> Vec<Process> {
            let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
            for process in self.0.values() {
                children.entry(process.parent).or_default().push(*process);
            }
            let mut found = Vec::new();
            let mut parents = vec![root];
            while let Some(parent) = parents.pop() {
                for process in children.remove(&parent).unwrap_or_default() {
                    if !strangers.contains(&process.identity()) {
                        parents.push(process.pid);
                        found.push(process);
                    }
                }
            }
            found
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::{BufRead, Write};
        use std::process::{Command, Stdio};

        use super::*;

        const STAT: &str = "71 (a) b (c) S 7 70 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 5 6";

        fn pid(number: i32) -> Pid {
            Pid::from_raw(number).unwrap()
        }

        fn process(number: i32, parent: i32, started: u64) -> Process {
            Process {
                pid: pid(number),
                parent: pid(parent),
                group: pid(number),
                started,
                state: b'S',
            }
        }

        #[test]
        fn a_program_name_may_contain_spaces_and_parentheses() {
            let process = Process::parse(pid(71), STAT).unwrap();
            assert_eq!(process.parent, pid(7));
            assert_eq!(process.group, pid(70));
            assert_eq!(process.started, 9876);
            assert!(process.is_alive());
        }

        #[test]
        fn a_descendant_that_reuses_the_number_of_a_stranger_is_found() {
            let snapshot = Snapshot([(pid(20), process(20, 10, 500))].into());
            let former = HashSet::from([process(20, 10, 300).identity()]);
            assert_eq!(snapshot.below(pid(10), &former).len(), 1);
            let present = HashSet::from([process(20, 10, 500).identity()]);
            assert_eq!(snapshot.below(pid(10), &present).len(), 0);
        }

        #[test]
        fn the_kernel_reports_whether_a_process_has_children() {
            let mut parent = Command::new("sh")
                .args([
                    "-c",
                    "sleep 1000 & echo started; read go; kill $!; wait; echo; read go",
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = std::io::BufReader::new(parent.stdout.take().unwrap()).lines();
            let mut stdin = parent.stdin.take().unwrap();
            let number = pid(parent.id().cast_signed());
            lines.next().unwrap().unwrap();
            assert_eq!(has_child(number), Some(true));
            stdin.write_all(b"go\n").unwrap();
            lines.next().unwrap().unwrap();
            assert_eq!(has_child(number), Some(false));
            drop(stdin);
            parent.wait().unwrap();
            assert_eq!(has_child(number), None);
        }

        #[test]
        fn a_signal_does_not_reach_a_later_process_with_the_same_number() {
            let mut child = Command::new("sleep")
                .arg("1000")
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let process = ProcessIdentity::of(pid(child.id().cast_signed())).unwrap();
            let former = ProcessIdentity {
                started: process.started - 1,
                ..process
            };
            former.send(Signal::KILL).unwrap();
            assert!(!former.exists() && process.exists());
            process.send(Signal::TERM).unwrap();
            // If the first signal had arrived, the child would have died of KILL.
            let status = child.wait().unwrap();
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(15)
            );
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use portable::parent_of;

/// On other systems only the number is known.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod portable {
    use super::{Pid, ProcessIdentity, Signal};

    impl ProcessIdentity {
        pub(in super::super) fn of(pid: Pid) -> Option<Self> {
            Some(Self { pid, started: 0 })
        }

        pub(in super::super) fn send(self, signal: Signal) -> rustix::io::Result<()> {
            rustix::process::kill_process(self.pid, signal)
        }
    }

    pub(in super::super) fn parent_of(_: Pid) -> Option<Pid> {
        None
    }
}
