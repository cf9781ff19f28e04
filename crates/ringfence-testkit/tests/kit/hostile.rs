//! Each attack of the hostile server, as a client sees it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ringfence_testkit::{Attack, Flavor, HostileServer, Push, Server, wait_until};

const SOON: Duration = Duration::from_secs(5);
/// More than the socket buffers between two processes can hold.
const MUCH: u64 = 20 << 20;

fn hostile_server() -> (Server, HostileServer) {
    let server = Server::start(Flavor::Redis);
    let hostile = HostileServer::in_front_of(&server);
    (server, hostile)
}

struct Client(TcpStream);

impl Client {
    fn connect(hostile: &HostileServer) -> Self {
        let stream = TcpStream::connect(hostile.addr()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn send(&mut self, command: &str) {
        self.0
            .write_all(format!("{command}\r\n").as_bytes())
            .unwrap();
    }

    /// Reads exactly what is expected.
    #[track_caller]
    fn expect_bytes(&mut self, expected: &[u8]) {
        let mut heard = vec![0; expected.len()];
        self.0.read_exact(&mut heard).unwrap();
        assert!(heard == expected, "{}", String::from_utf8_lossy(&heard));
    }

    #[track_caller]
    fn expect_reply(&mut self, command: &str, expected: &[u8]) {
        self.send(command);
        self.expect_bytes(expected);
    }

    /// One line without its end.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Reads the replies to HELLO and SUBSCRIBE: the last line is the number of subscriptions.
    fn expect_subscription(&mut self) {
        while self.line() != "subscribe" {}
        while self.line() != ":1" {}
    }

    /// Reads until the server closes the connection. Returns the number of bytes.
    fn drain(&mut self) -> u64 {
        let mut buffer = vec![0; 64 << 10];
        let mut count = 0;
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return count,
                Ok(size) => count += size as u64,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return count,
                Err(error) => panic!("{error} after {count} bytes"),
            }
        }
    }
}

#[test]
fn without_an_attack_everything_is_relayed() {
    let (server, hostile) = hostile_server();
    assert_eq!(hostile.url(), format!("redis://{}", hostile.addr()));
    let mut client = Client::connect(&hostile);
    client.expect_reply("SET key value", b"+OK\r\n");
    assert_eq!(server.command(&["GET", "key"]), "value");
    client.send("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nPING");
    client.expect_bytes(b"$5\r\nvalue\r\n+PONG\r\n");
    assert_eq!((hostile.attacks(), hostile.sent_bytes()), (0, 0));
    assert_eq!((hostile.accepted(), hostile.connections()), (1, 1));
    drop(client);
    wait_until("the connection to end", SOON, || hostile.connections() == 0);
}

#[test]
fn an_attack_replaces_replies_until_it_is_stopped() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack(Attack::error("ERR \x1b[31mred"));
    client.expect_reply("PING", b"-ERR \x1b[31mred\r\n");
    hostile.attack(Attack::text("a\tb"));
    client.expect_reply("PING", b"$3\r\na\tb\r\n");
    hostile.attack(Attack::Nested { depth: 3 });
    client.expect_reply("PING", b"*1\r\n*1\r\n*1\r\n:1\r\n");
    hostile.behave();
    client.expect_reply("PING", b"+PONG\r\n");
    assert_eq!(hostile.attacks(), 3);
}

#[test]
fn an_attack_on_one_command_does_not_affect_others() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack_replies_to("ECHO", Attack::text("no"));
    client.send("PING\r\nECHO yes\r\nPING");
    client.expect_bytes(b"+PONG\r\n$2\r\nno\r\n+PONG\r\n");
}

#[test]
fn long_replies_are_announced_and_complete() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack(Attack::LongText { bytes: MUCH + 1 });
    client.send("PING");
    assert_eq!(client.line(), format!("${}", MUCH + 1));
    client.expect_bytes(&vec![b'x'; MUCH as usize + 1]);
    client.expect_bytes(b"\r\n");
    hostile.attack(Attack::ManyValues { count: 100_001 });
    client.send("PING");
    assert_eq!(client.line(), "*100001");
    client.expect_bytes(&b":1\r\n".repeat(100_001));
    hostile.behave();
    client.expect_reply("PING", b"+PONG\r\n");
    assert!(hostile.sent_bytes() > MUCH + 400_004);
}

#[test]
fn garbage_begins_no_value_and_the_connection_ends_after_it() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack(Attack::Garbage { bytes: MUCH });
    client.send("PING");
    client.expect_bytes(b"\0");
    assert_eq!(client.drain(), MUCH - 1);
    assert_eq!(hostile.sent_bytes(), MUCH);
}

#[test]
fn a_client_that_does_not_read_does_not_keep_an_attack_alive() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack(Attack::Garbage { bytes: u64::MAX });
    client.send("PING");
    wait_until("the attack to begin", SOON, || hostile.sent_bytes() > 0);
    hostile.behave();
    wait_until("the connection to end", SOON, || hostile.connections() == 0);
    Client::connect(&hostile).expect_reply("PING", b"+PONG\r\n");
}

#[test]
#[allow(clippy::disallowed_methods)] // What is measured here is the kit's pace, not the product's.
fn a_slow_reply_never_completes_and_ends_when_it_is_stopped() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    let every = Duration::from_millis(20);
    hostile.attack(Attack::Drip { every });
    let begun = Instant::now();
    client.send("PING");
    client.expect_bytes(b"$1000000\r\nxxxxxx");
    assert!(begun.elapsed() >= every * 5);
    hostile.behave();
    client.drain();
}

#[test]
fn one_field_of_a_servers_information_is_replaced() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack(Attack::Field {
        name: "run_id",
        value: "r".repeat(1_000_000),
    });
    client.send("INFO server");
    let length: usize = client.line()[1..].parse().unwrap();
    let mut info = vec![0; length + 2];
    client.0.read_exact(&mut info).unwrap();
    let info = String::from_utf8(info).unwrap();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    assert_eq!(run_id.map(str::len), Some(1_000_000));
    assert!(info.contains("\nprocess_id:"), "the rest is as it was");
    client.expect_reply("PING", b"+PONG\r\n");
}

#[test]
fn messages_are_pushed_on_the_clients_channel_between_whole_replies() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    client.send("HELLO 3");
    client.send("SUBSCRIBE c");
    client.expect_subscription();
    hostile.attack(Attack::Pushes {
        push: Push::Message(|channel, number| format!("{number} for {channel}")),
        per_second: 500,
    });
    for number in 0..20 {
        let message = format!("{number} for c");
        client.expect_bytes(
            format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n", message.len()).as_bytes(),
        );
        client.expect_bytes(format!("{message}\r\n").as_bytes());
    }
    client.send("PING");
    while client.line() != "+PONG" {}
    hostile.behave();
    client.send("ECHO done");
    while client.line() != "done" {}
    assert!(hostile.pushes() >= 20);
    assert_eq!(hostile.attacks(), 1);
}

#[test]
#[allow(clippy::disallowed_methods)] // What is measured here is the kit's pace, not the product's.
fn a_flood_of_unknown_pushes_keeps_its_rate() {
    let (_server, hostile) = hostile_server();
    let mut client = Client::connect(&hostile);
    hostile.attack_replies_to(
        "ECHO",
        Attack::Pushes {
            push: Push::Unknown { bytes: 10 },
            per_second: 10_000,
        },
    );
    client.expect_reply("PING", b"+PONG\r\n");
    assert_eq!(hostile.pushes(), 0);
    client.expect_reply("ECHO x", b"$1\r\nx\r\n");
    let begun = Instant::now();
    for _ in 0..5_000 {
        client.expect_bytes(b">1\r\n$10\r\nxxxxxxxxxx\r\n");
    }
    let took = begun.elapsed();
    // The first of a hundred batches per second is sent at once.
    assert!(took >= Duration::from_millis(480), "{took:?}");
}
