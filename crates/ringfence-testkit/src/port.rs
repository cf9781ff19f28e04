//! Free loopback ports that stay free while their server is down.
//!
//! A port of the system's own range (`bind` to port 0) is free only until a test kills its server:
//! then any outgoing connection may get that port, and a client that keeps dialling it can connect
//! to itself. So these ports are below the system's range.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const LOWEST: u32 = 10_000;
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The first port of Linux's default range.
const USUAL_END: u32 = 32_768;
/// Odd, so that test processes with neighbouring ids begin far apart.
const STRIDE: u32 = 2_654_435_761;

/// A port without a listener at this moment. Another process may still take it first, so the caller
/// must be ready to ask again.
pub(crate) fn free() -> u16 {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let size = range_end() - LOWEST;
    let start = process::id().wrapping_mul(STRIDE) % size;
    (0..size)
        .map(|_| LOWEST + (start + DRAWN.fetch_add(1, Ordering::Relaxed)) % size)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("no free loopback port below the system's own range")
}

/// Where the system's own range begins, if there is room for ours below it.
fn range_end() -> u32 {
    const ROOM: u32 = 1_000;
    fs::read_to_string(RANGE_FILE)
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|&begin| (LOWEST + ROOM..=u32::from(u16::MAX)).contains(&begin))
        .unwrap_or(USUAL_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_calls_give_two_ports() {
        assert_ne!(free(), free());
    }

    #[test]
    fn the_port_is_outside_the_systems_own_range() {
        assert!(u32::from(free()) < range_end());
    }
}
