//! The clock of a node that runs inside this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{Clock, wall_us};
use crate::time::Timestamp;

/// The clock of a node that runs inside this process: the client's clock plus an offset.
///
/// Time passes for the node as it does for the client. A test that wants a node with a wrong clock
/// steps the node's clock alone. Clones share their steps.
#[derive(Clone)]
pub struct NodeClock {
    follows: Clock,
    ahead_us: Arc<AtomicI64>,
    boot_id: Arc<str>,
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code))]
    time_namespace: Option<Arc<str>>,
}

impl NodeClock {
    /// The machine's clock. The wall clock is read once, here. From then on the time is that of the
    /// clock that counts suspend, so that setting the wall clock never makes a node jump.
    pub fn system() -> Self {
        Self {
            boot_id: system_boot_id(),
            time_namespace: system_time_namespace(),
            ..Self::following(Clock::System, wall_us())
        }
    }

    /// The clock of an embedded node whose client has `clock`: the machine's clock, or one that
    /// follows the test's clock.
    pub(crate) fn of(clock: &Clock) -> Self {
        match clock {
            Clock::System => Self::system(),
            #[cfg(any(test, feature = "test-util"))]
            Clock::Stepped(_) => Self::following(clock.clone(), wall_us()),
        }
    }

    /// A clock that shows `start_us` now and advances with `clock`.
    pub fn following(clock: Clock, start_us: u64) -> Self {
        let ahead_us = signed(start_us) - signed(clock.now().as_micros());
        Self {
            follows: clock,
            ahead_us: Arc::new(AtomicI64::new(ahead_us)),
            boot_id: Arc::from("a test's boot"),
            time_namespace: Some(Arc::from("")),
        }
    }

    /// The same clock under another boot of the machine.
    #[cfg(any(test, feature = "test-util"))]
    pub fn with_boot_id(self, boot_id: &str) -> Self {
        Self {
            boot_id: Arc::from(boot_id),
            ..self
        }
    }

    /// Steps the node's clock against the client's, forward or back.
    #[cfg(any(test, feature = "test-util"))]
    pub fn step_us(&self, by: i64) {
        self.ahead_us.fetch_add(by, Ordering::SeqCst);
    }

    /// The node's time in microseconds.
    pub fn now_us(&self) -> u64 {
        let ahead_us = self.ahead_us.load(Ordering::SeqCst);
        self.now().as_micros().saturating_add_signed(ahead_us)
    }

    /// The client's time. Calls expire by it, and leases within one boot may run on it.
    pub(super) fn now(&self) -> Timestamp {
        self.follows.now()
    }

    /// The boot id of the machine; empty if the system has none.
    #[cfg(feature = "sqlite")]
    pub(super) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The time namespace of this process: empty for the machine's own. `None` if the children of
    /// this process are in another one: then nobody can say how far its clock is off.
    #[cfg(feature = "sqlite")]
    pub(super) fn time_namespace(&self) -> Option<&str> {
        self.time_namespace.as_deref()
    }
}

impl fmt::Debug for NodeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeClock({} µs, {})", self.now_us(), self.boot_id)
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// Empty on systems other than Linux: there a lease clock that went back reveals a boot.
fn system_boot_id() -> Arc<str> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    Arc::from(id.unwrap_or_default().trim())
}

fn system_time_namespace() -> Option<Arc<str>> {
    let link = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}"));
        link.map(|link| link.display().to_string())
            .unwrap_or_default()
    };
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    time_namespace(&link("time"), &link("time_for_children"), &offsets).map(Arc::from)
}

/// `own` and `children` are empty on systems without time namespaces. The offsets are those of the
/// namespace of the children. They are part of the result, because the number of a namespace may be
/// used again for a later one.
fn time_namespace(own: &str, children: &str, offsets: &str) -> Option<String> {
    /// The first namespace of every Linux kernel.
    const MACHINE: &str = "time:[4026531834]";
    if own != children {
        return None;
    }
    if own == MACHINE || own.is_empty() {
        return Some(String::new());
    }
    let boot = offsets.lines().find(|line| line.starts_with("boottime"));
    let words: Vec<_> = boot.unwrap_or_default().split_whitespace().collect();
    Some(format!("{own} {}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_is_known_by_its_number_and_its_offset() {
        let (machine, other) = ("time:[4026531834]", "time:[4026532300]");
        let offsets = "monotonic           0         0\nboottime         1000         7\n";
        let found = |own, children| time_namespace(own, children, offsets);
        assert_eq!(found(machine, machine).as_deref(), Some(""));
        assert_eq!(found("", "").as_deref(), Some(""));
        let theirs = "time:[4026532300] boottime 1000 7";
        assert_eq!(found(other, other).as_deref(), Some(theirs));
        // After `unshare`, before the first child.
        assert_eq!(found(machine, other), None);
    }
}
