//! All clients at once on one name: never two inside.

use std::thread;

use ringfence_peers::{Library, Peer};

use crate::stage::Stage;

const TTL_MS: u64 = 10_000;

/// All `libraries` against each other on `nodes`. The witness is a file that only one client can
/// create; a client that finds it reports that.
fn contend(nodes: usize, libraries: &[Library], name: &str, seconds: u32) {
    let stage = Stage::with_nodes(nodes);
    let folder = tempfile::tempdir().expect("a folder");
    let witness = folder.path().join("inside");
    let command = format!("contend {name} {TTL_MS} {seconds}000 {}", witness.display());
    let peers: Vec<Peer> = libraries
        .iter()
        .filter_map(|&library| stage.start(library))
        .collect();

    let entered: Vec<(Library, String)> = thread::scope(|scope| {
        let asking = peers.into_iter().map(|mut peer| {
            let command = &command;
            scope.spawn(move || (peer.library(), peer.ask(command)))
        });
        let asking: Vec<_> = asking.collect();
        asking
            .into_iter()
            .map(|thread| thread.join().expect("an answer"))
            .collect()
    });
    for (library, reply) in &entered {
        let times = reply
            .strip_prefix("entered ")
            .and_then(|times| times.parse::<u64>().ok());
        let times = times.unwrap_or_else(|| panic!("{library}: {reply} ({entered:?})"));
        assert!(times > 0, "{library} never got in: {entered:?}");
    }
}

#[test]
fn never_two_inside_on_three_nodes() {
    let all = [
        Library::Ringfence,
        Library::RingfencePlain,
        Library::Rslock,
        Library::Redsync,
        Library::Redlock,
        Library::RedlockPy,
        Library::Pottery,
        Library::Aioredlock,
    ];
    contend(3, &all, "redlock:job", 20);
}

#[test]
fn never_two_inside_on_one_node() {
    let all = [
        Library::Ringfence,
        Library::RingfencePlain,
        Library::RedisPy,
        Library::Redislock,
    ];
    contend(1, &all, "job", 5);
}
