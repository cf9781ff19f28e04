//! What processes cost: time of a core, and memory, as Linux tells it.

use std::fs;

/// Linux reports times to programs in hundredths of a second, whatever it counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// The time of a core that process `pid` has had so far, in seconds. Zero if it is gone.
pub(crate) fn core_seconds(pid: u32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| ticks(&stat))
        .map_or(0.0, |ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// User and system time. The program's name comes before them, and may hold blanks and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// The memory that process `pid` has in use, in bytes. Zero if it is gone.
pub(crate) fn resident_bytes(pid: u32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
        })
        .map_or(0.0, |kilobytes| kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_stand_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident_bytes(std::process::id()) > 100_000.0);
        assert_eq!(core_seconds(u32::MAX), 0.0);
    }
}
