//! What a test may do to a server, and what is left of the server afterwards.

use std::path::Path;
use std::thread;
use std::time::Duration;

use ringfence_testkit::{Flavor, Persistence, Proxy, Server, WallClock, wait_until};

fn is_process(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn every_flavor_starts_and_answers() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        assert_eq!(server.command(&["SET", "key", "value"]), "OK");
        assert_eq!(server.command(&["GET", "key"]), "value");
        assert_eq!(server.command(&["GET", "nothing"]), "");
        let about = server.command(&["INFO", "server"]);
        assert_eq!(about.contains("valkey_version"), flavor == Flavor::Valkey);
        assert!(about.contains(&format!("tcp_port:{}", server.port())));
        assert!(about.contains(&format!("process_id:{}", server.pid())));
    }
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = Server::start(Flavor::Redis);
    let (pid, socket) = (server.pid(), server.socket());
    let folder = socket.parent().expect("the socket lies in the folder");
    assert!(is_process(pid) && folder.exists());
    drop(server);
    assert!(!is_process(pid), "the process is still there");
    assert!(!folder.exists(), "the folder is still there");
}

#[test]
fn a_dropped_server_ends_even_while_paused() {
    let server = Server::start(Flavor::Redis);
    let pid = server.pid();
    server.pause();
    drop(server);
    assert!(!is_process(pid));
}

#[test]
fn the_server_of_a_panicking_test_ends() {
    let (send_pid, pid) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let server = Server::start(Flavor::Redis);
        send_pid.send(server.pid()).expect("the test receives it");
        panic!("as a failed assertion would");
    });
    assert!(test.join().is_err());
    assert!(!is_process(pid.recv().expect("the server had started")));
}

#[test]
fn a_paused_server_does_not_answer_until_it_is_resumed() {
    let server = Server::start(Flavor::Redis);
    server.pause();
    let asking = thread::scope(|scope| {
        let asking = scope.spawn(|| server.command(&["PING"]));
        // The command waits in the stopped server's socket buffer.
        thread::sleep(Duration::from_millis(50));
        assert!(!asking.is_finished());
        server.resume();
        asking.join().expect("the answer arrives after the pause")
    });
    assert_eq!(asking, "PONG");
}

#[test]
fn a_killed_server_refuses_and_restarts_on_the_same_port_without_its_data() {
    let server = Server::start(Flavor::Redis);
    let (port, pid) = (server.port(), server.pid());
    server.command(&["SET", "key", "value"]);
    server.kill();
    assert!(!is_process(pid));
    assert!(server.try_command(&["PING"]).is_err());
    assert!(std::net::TcpStream::connect(server.addr()).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "key"]), "");
}

#[test]
fn persistence_decides_what_a_kill_and_a_clean_shutdown_keep() {
    let survives = |persistence, end: fn(&Server)| {
        let server = Server::builder(Flavor::Redis)
            .persistence(persistence)
            .start();
        server.command(&["SET", "key", "value"]);
        end(&server);
        server.restart();
        server.command(&["GET", "key"]) == "value"
    };
    assert!(!survives(Persistence::None, Server::shutdown_cleanly));
    assert!(survives(Persistence::AofAlways, Server::kill));
    assert!(survives(Persistence::AofEverysec, Server::shutdown_cleanly));
    assert!(survives(Persistence::Snapshot, Server::shutdown_cleanly));
    assert!(!survives(Persistence::Snapshot, Server::kill));
}

#[test]
fn a_power_failure_removes_the_last_writes() {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor)
            .persistence(Persistence::AofEverysec)
            .start();
        server.command(&["SET", "first", "value"]);
        let limit = Duration::from_secs(5);
        // The server may delay a write while it syncs an earlier one.
        wait_until("the first to be written", limit, || server.written() > 0);
        let mark = server.written();
        server.command(&["SET", "last", "value"]);
        wait_until("the last to be written", limit, || server.written() > mark);
        server.kill();
        server.lose_writes_after(mark);
        server.restart();
        assert_eq!(server.command(&["GET", "first"]), "value");
        assert_eq!(server.command(&["GET", "last"]), "");
    }
}

#[test]
fn settings_reach_the_server() {
    let server = Server::builder(Flavor::Redis)
        .arg("--maxmemory", "10mb")
        .arg("--maxmemory-policy", "allkeys-lru")
        .start();
    let maxmemory = server.command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(maxmemory, "maxmemory\n10485760");
}

#[test]
fn a_preloaded_library_is_in_the_server() {
    // Part of every glibc, and not loaded by a server by itself.
    let library = "libanl.so.1";
    let server = Server::builder(Flavor::Redis)
        .preload(Path::new(library))
        .start();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    assert!(maps.contains(library));
}

#[test]
fn the_kit_can_connect_with_any_password_and_users() {
    let server = Server::builder(Flavor::Redis).requirepass("secret").start();
    assert_eq!(
        server.url(),
        format!("redis://:secret@127.0.0.1:{}", server.port())
    );
    assert_eq!(server.command(&["ACL", "WHOAMI"]), "testkit");

    let users = "user default off\nuser alice on >wonderland ~* &* +@all";
    let server = Server::builder(Flavor::Valkey).acl_file(users).start();
    assert_eq!(
        server.url_as("alice", "wonderland"),
        format!("redis://alice:wonderland@127.0.0.1:{}", server.port())
    );
    assert_eq!(server.command(&["ACL", "USERS"]), "alice\ndefault\ntestkit");
}

#[test]
fn an_error_reply_is_a_value_of_try_command() {
    let server = Server::start(Flavor::Redis);
    let error = server.try_command(&["NONSENSE"]).unwrap_err();
    assert!(error.starts_with("ERR unknown command"), "{error}");
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = Server::builder(Flavor::Redis).requirepass("secret").start();
    let replica = Server::builder(Flavor::Redis).replica_of(&primary).start();
    assert!(replica.command(&["ROLE"]).starts_with("slave\n"));
    primary.command(&["SET", "key", "value"]);
    wait_until("the write to arrive", Duration::from_secs(5), || {
        replica.command(&["GET", "key"]) == "value"
    });
}

#[test]
fn a_replica_behind_a_proxy_can_be_cut_off_from_its_primary() {
    let primary = Server::start(Flavor::Redis);
    let link = Proxy::in_front_of(&primary);
    let replica = Server::builder(Flavor::Redis)
        .replica_through(&link, &primary)
        .start();
    primary.command(&["SET", "before", "value"]);
    wait_until("the write to arrive", Duration::from_secs(5), || {
        replica.command(&["GET", "before"]) == "value"
    });
    link.refuse();
    primary.command(&["SET", "after", "value"]);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(replica.command(&["GET", "before"]), "value");
    assert_eq!(replica.command(&["GET", "after"]), "");
}

#[test]
fn a_server_in_cluster_mode_reports_it() {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor).cluster_mode().start();
        assert!(
            server
                .command(&["INFO", "cluster"])
                .contains("cluster_enabled:1")
        );
    }
}

#[test]
fn a_server_may_have_a_unix_socket_and_no_port() {
    let server = Server::builder(Flavor::Redis).unix_socket().start();
    assert_eq!(
        server.url(),
        format!("redis+unix://{}", server.socket().display())
    );
    assert_eq!(
        server.url_without_quarantine(),
        format!("redis+unix://{}?quarantine=off", server.socket().display())
    );
    assert_eq!(server.command(&["CONFIG", "GET", "port"]), "port\n0");
}

#[test]
#[should_panic(expected = "Redis did not start; its log:")]
fn a_server_that_cannot_start_reports_why() {
    Server::builder(Flavor::Redis)
        .arg("--no-such-setting", "yes")
        .start();
}

#[test]
fn a_wall_clock_of_its_own_can_be_set_while_it_runs() {
    const HOUR_US: i64 = 3_600_000_000;
    for flavor in Flavor::ALL {
        let clock = WallClock::ahead_by(HOUR_US);
        let fast = Server::builder(flavor).wall_clock(&clock).start();
        let true_one = Server::start(flavor);
        let seconds = |server: &Server| -> i64 {
            let time = server.command(&["TIME"]);
            let first = time.split_whitespace().next().unwrap();
            first.parse().unwrap()
        };
        let ahead = seconds(&fast) - seconds(&true_one);
        assert!((3590..=3610).contains(&ahead), "{flavor:?}: {ahead} s");
        clock.set(-HOUR_US);
        // A server reads the clock when it wakes up, not at every command.
        wait_until(
            "the clock to be read again",
            Duration::from_secs(10),
            || {
                let ahead = seconds(&fast) - seconds(&true_one);
                (-3610..=-3590).contains(&ahead)
            },
        );
    }
}
