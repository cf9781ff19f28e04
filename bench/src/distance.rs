//! A network with distance in front of one server: every segment arrives later, some of them much
//! later.
//!
//! The delay is the same for every contender, because they all connect through the same relay.
//! Bytes keep their order, as on a TCP connection: a late segment also delays the segments behind
//! it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::splitmix::SplitMix64;
use ringfence_core::time::Timestamp;

/// How much is read at once. What one read returns is one segment.
const SEGMENT_MAX: usize = 16 << 10;

/// How far away a server is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distance {
    /// How long a segment takes in one direction.
    pub(crate) one_way: Duration,
    /// Of a hundred segments, so many are late.
    pub(crate) late_percent: u64,
    /// How much later a late segment arrives.
    pub(crate) late_by: Duration,
}

impl Distance {
    /// Servers in another zone: half a millisecond away, and one segment of a hundred lost and sent
    /// again.
    pub(crate) const ZONE: Self = Self {
        one_way: Duration::from_micros(500),
        late_percent: 1,
        late_by: Duration::from_millis(20),
    };

    /// A server that is `one_way` away, over a connection that loses nothing.
    pub(crate) const fn steady(one_way: Duration) -> Self {
        Self {
            one_way,
            late_percent: 0,
            late_by: Duration::ZERO,
        }
    }
}

/// Starts a relay to `server` at this distance. Its threads end with the program.
pub(crate) fn relay_to(server: SocketAddr, distance: Distance, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let seeds = Arc::new(AtomicU64::new(seed));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A server that has stopped refuses. Its client notices that the connection ends.
            if let Ok(upstream) = TcpStream::connect(server) {
                let _ = join(&client, &upstream, distance, &seeds);
            }
        }
    });
    addr
}

/// Relays both directions of one connection.
fn join(
    client: &TcpStream,
    server: &TcpStream,
    distance: Distance,
    seeds: &AtomicU64,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client, server), (server, client)] {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let random = SplitMix64::new(seeds.fetch_add(1, Ordering::Relaxed));
        let (queue, segments) = channel();
        thread::spawn(move || receive(from, &queue, distance, random));
        thread::spawn(move || deliver(to, &segments));
    }
    Ok(())
}

/// Bytes under way, and when they arrive.
struct Segment {
    bytes: Vec<u8>,
    due: Timestamp,
}

fn receive(
    mut from: TcpStream,
    queue: &Sender<Segment>,
    distance: Distance,
    mut random: SplitMix64,
) {
    let mut buffer = vec![0; SEGMENT_MAX];
    while let Ok(size @ 1..) = from.read(&mut buffer) {
        let mut due = Clock::System.now() + distance.one_way;
        if random.draw() % 100 < distance.late_percent {
            due = due + distance.late_by;
        }
        let bytes = buffer[..size].to_vec();
        if queue.send(Segment { bytes, due }).is_err() {
            return;
        }
    }
}

/// Delivers segments in order, none before it is due.
fn deliver(mut to: TcpStream, segments: &Receiver<Segment>) {
    for segment in segments {
        let wait = segment.due.since(Clock::System.now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        if to.write_all(&segment.bytes).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that returns what it receives.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte).unwrap();
            }
        });
        addr
    }

    #[test]
    fn a_round_trip_takes_at_least_twice_the_distance_and_keeps_the_order() {
        let one_way = Duration::from_millis(5);
        let relay = relay_to(echo(), Distance::steady(one_way), 1);
        let mut client = TcpStream::connect(relay).unwrap();
        let begun = Clock::System.now();
        client.write_all(b"abc").unwrap();
        let mut reply = [0; 3];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"abc");
        assert!(Clock::System.now().since(begun) >= 2 * one_way);
    }
}
