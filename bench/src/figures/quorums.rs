//! Names spread over several quorums of three, each with its own client: what all do together, and
//! what many more locks per second would need.

use std::thread;
use std::time::Duration;

use ringfence_peers::{Library, Peer, Report};

use crate::arena::Arena;
use crate::cost::Meter;
use crate::sheet::{Cell, Sheet};

const TASKS: usize = 64;
const HOPED_FOR: f64 = 200_000.0;

pub(crate) fn measure(rounds: usize, ms: u64) -> Sheet {
    let columns = [
        "locks per s",
        "client core µs per lock",
        "servers core µs per lock",
    ];
    let mut sheet = Sheet::new(
        "quorums",
        "Several quorums of 3, names spread over them",
        &columns,
    );
    let mut cheapest = None;
    for quorums in [1, 2, 4] {
        let rounds: Vec<[f64; 3]> = (0..rounds.min(3)).map(|_| one_round(quorums, ms)).collect();
        let column = |i: usize| Cell::of(rounds.iter().map(|round| round[i]));
        let cells = vec![column(0), column(1), column(2)];
        if let (Some(client), Some(servers)) = (cells[1], cells[2]) {
            cheapest = Some((client.median, servers.median));
        }
        sheet.row(format!("{quorums} quorums"), cells);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    sheet.notes.push(format!(
        "clients and servers share {cores} cores, so more quorums cannot be faster here"
    ));
    if let Some((client, servers)) = cheapest {
        sheet.notes.push(format!(
            "calculated: {HOPED_FOR} locks per s need {:.1} cores of clients and {:.1} of servers. \
             At {:.1} µs of one core for each server and lock, a quorum of 3 does {:.0} per s, so \
             {:.0} quorums are needed",
            HOPED_FOR * client / 1e6,
            HOPED_FOR * servers / 1e6,
            servers / 3.0,
            1e6 / (servers / 3.0),
            (HOPED_FOR * servers / 3.0 / 1e6).ceil(),
        ));
    }
    sheet
}

/// Locks per second, and what a lock cost the clients and the servers, in microseconds of a core.
fn one_round(quorums: usize, ms: u64) -> [f64; 3] {
    let arenas: Vec<Arena> = (0..quorums).map(|_| Arena::with_nodes(3)).collect();
    let mut peers: Vec<Peer> = arenas
        .iter()
        .map(|arena| arena.start(Library::Ringfence).expect("ours"))
        .collect();
    let command = format!("cycles {} {ms} bench 10000", TASKS / quorums);
    all(&mut peers, &command);
    let servers = arenas.iter().flat_map(Arena::pids);
    let meter = Meter::start(peers.iter().map(Peer::pid), servers);
    let reports = all(&mut peers, &command);
    let each = meter.per_lock(reports.iter().map(Report::total).sum());
    [
        reports.iter().map(Report::per_second).sum(),
        each.client_us,
        each.servers_us,
    ]
}

/// Runs `command` in all at once.
fn all(peers: &mut [Peer], command: &str) -> Vec<Report> {
    thread::scope(|scope| {
        let running: Vec<_> = peers
            .iter_mut()
            .map(|peer| scope.spawn(|| peer.run_within(Duration::from_secs(60), command)))
            .collect();
        running
            .into_iter()
            .map(|run| run.join().expect("no panic").expect("a report"))
            .collect()
    })
}
