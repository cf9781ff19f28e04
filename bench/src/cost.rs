//! What processes cost: core time and memory, as Linux reports them.

use std::fs;

/// Linux reports process times in hundredths of a second, whatever it counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures what a workload costs its clients and their servers.
#[derive(Debug)]
pub(crate) struct Meter {
    clients: Vec<u32>,
    servers: Vec<u32>,
    before: (f64, f64),
}

/// What a lock and its release cost, in microseconds of a core.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerLock {
    pub(crate) client_us: f64,
    /// Of all servers together.
    pub(crate) servers_us: f64,
}

impl Meter {
    /// Begins to measure these processes.
    pub(crate) fn start(
        clients: impl IntoIterator<Item = u32>,
        servers: impl IntoIterator<Item = u32>,
    ) -> Self {
        let mut meter = Self {
            clients: clients.into_iter().collect(),
            servers: servers.into_iter().collect(),
            before: (0.0, 0.0),
        };
        meter.before = meter.spent();
        meter
    }

    /// The cost of each of `locks` since the beginning.
    pub(crate) fn per_lock(&self, locks: u64) -> PerLock {
        let (clients, servers) = self.spent();
        let each = |seconds: f64| seconds * 1e6 / locks as f64;
        PerLock {
            client_us: each(clients - self.before.0),
            servers_us: each(servers - self.before.1),
        }
    }

    fn spent(&self) -> (f64, f64) {
        let all = |pids: &[u32]| pids.iter().map(|&pid| core_seconds(pid)).sum();
        (all(&self.clients), all(&self.servers))
    }
}

/// The core time of process `pid` so far, in seconds. Zero if it is gone.
pub(crate) fn core_seconds(pid: u32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| ticks(&stat))
        .map_or(0.0, |ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// User and system time. The program's name comes first, and may contain blanks and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// The memory in use by process `pid`, in bytes. Zero if it is gone.
pub(crate) fn resident_bytes(pid: u32) -> f64 {
    status_bytes(pid, "VmRSS:")
}

/// The most memory that process `pid` has used, in bytes. Zero if it is gone.
pub(crate) fn peak_resident_bytes(pid: u32) -> f64 {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| kilobytes(&status, field))
        .map_or(0.0, |kilobytes| kilobytes * 1024.0)
}

/// A field of `/proc/PID/status`.
fn kilobytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_follow_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn the_peak_is_not_the_memory_in_use() {
        let status = "VmPeak:\t  90 kB\nVmHWM:\t   30 kB\nVmRSS:\t   20 kB\nThreads:\t4\n";
        assert_eq!(kilobytes(status, "VmHWM:"), Some(30.0));
        assert_eq!(kilobytes(status, "VmRSS:"), Some(20.0));
        assert_eq!(kilobytes(status, "Threads:"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let this = std::process::id();
        assert!(resident_bytes(this) > 100_000.0);
        assert!(peak_resident_bytes(this) > 100_000.0);
        assert_eq!(resident_bytes(u32::MAX), 0.0);
        assert_eq!(core_seconds(u32::MAX), 0.0);
    }
}
