//! Wakes between nodes on one SQLite file.

use super::*;

#[test]
fn a_wake_reaches_another_node_on_the_same_file() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let listener = WakeListener::at(&b, "b");
    let ballot = take(&a, "x", ALICE);
    ask(
        &b,
        "x",
        BOB,
        refresh(&[&ticket(WALL_US, "b.1"), &ticket(WALL_US, "c.1")]),
    );
    ask(&a, "x", ALICE, release(ballot));
    assert_eq!(listener.wait(), wake("b.1", 0));
    assert_eq!(listener.received(), []);
}

#[test]
fn hundreds_of_wakes_for_one_client_arrive() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let listener = WakeListener::at(&b, "b");
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ballot = next_ballot(&a, "x");
    reply(&a, &names, ALICE, acquire(ballot, TTL_MS));
    let padding = "x".repeat(100);
    for (i, name) in names.iter().enumerate() {
        let ticket = ticket(WALL_US, &format!("b.{padding}{i:03}"));
        ask(&b, name, BOB, refresh(&[&ticket]));
    }
    reply(&a, &names, ALICE, release(ballot));
    for i in 0..100 {
        assert_eq!(listener.wait(), wake(&format!("b.{padding}{i:03}"), 0));
    }
}

#[test]
fn wakes_arrive_in_a_deep_folder() {
    let machine = Machine::new();
    let folder = machine.scratch.path(&"deep".repeat(50));
    fs::create_dir(&folder).unwrap();
    let open = || {
        let node = SqliteNode::open(folder.join("locks.db"), machine.clock()).unwrap();
        join(&node, Group::new(1)).wait().unwrap();
        node
    };
    let (a, b) = (open(), open());
    let listener = WakeListener::at(&b, "0123456789abcdef");
    let ballot = take(&a, "x", ALICE);
    ask(
        &b,
        "x",
        BOB,
        refresh(&[&ticket(WALL_US, "0123456789abcdef.1")]),
    );
    ask(&a, "x", ALICE, release(ballot));
    assert_eq!(listener.wait(), wake("0123456789abcdef.1", 0));
}

#[test]
fn a_ticket_cannot_direct_a_wake_out_of_the_folder() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let outside = machine.scratch.path("outside");
    let socket = std::os::unix::net::UnixDatagram::bind(&outside).unwrap();
    socket.set_nonblocking(true).unwrap();
    fs::create_dir(machine.scratch.path("locks.db-wake-y")).unwrap();
    let ballot = take(&node, "x", ALICE);
    ask(
        &node,
        "x",
        BOB,
        refresh(&[&ticket(WALL_US, "y/../outside.1")]),
    );
    ask(&node, "x", ALICE, release(ballot));
    assert!(socket.recv(&mut [0; 16]).is_err());
}

#[test]
fn a_node_deletes_its_own_sockets_and_those_of_killed_processes() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let sockets = || {
        let files = fs::read_dir(machine.scratch.folder()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.contains("-wake-")).collect();
        names.sort();
        names
    };
    // A closed socket leaves its file, as a killed process does.
    for (client, age) in [("old", 60), ("young", 0)] {
        let path = machine.scratch.path(&format!("locks.db-wake-{client}"));
        drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        set_modified(&path, modified - Duration::from_secs(age));
    }
    let listener = WakeListener::at(&node, "b");
    assert_eq!(sockets(), ["locks.db-wake-b", "locks.db-wake-young"]);
    listener.listen(&node, "young");
    assert_eq!(sockets(), ["locks.db-wake-b", "locks.db-wake-young"]);
    drop(node);
    assert_eq!(sockets(), [""; 0]);
}

fn set_modified(path: &Path, to: std::time::SystemTime) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let since_1970 = to
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let time = Timespec {
        tv_sec: since_1970.as_secs().try_into().unwrap(),
        tv_nsec: since_1970.subsec_nanos().into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}
