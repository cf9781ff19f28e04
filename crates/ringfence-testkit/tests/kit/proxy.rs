//! Each fault of the proxy, as a client and the server see it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{Fault, Flavor, Proxy, Server, wait_until};

const SOON: Duration = Duration::from_secs(5);
/// Long enough for a reply on loopback, short enough to wait for a reply that does not come.
const BRIEFLY: Duration = Duration::from_millis(100);

fn server_and_proxy() -> (Server, Proxy) {
    let server = Server::start(Flavor::Redis);
    let proxy = Proxy::in_front_of(&server);
    (server, proxy)
}

struct Client(TcpStream);

impl Client {
    /// A client that has been answered once, so that the proxy's own connection is open.
    fn connect(proxy: &Proxy) -> Self {
        let mut client = Self(TcpStream::connect(proxy.addr()).unwrap());
        assert_eq!(client.ask("PING").unwrap(), "+PONG");
        client
    }

    fn send(&mut self, command: &str) -> io::Result<()> {
        self.0.write_all(format!("{command}\r\n").as_bytes())
    }

    /// One reply of one line; the end of the stream is an error.
    fn receive(&mut self, within: Duration) -> io::Result<String> {
        self.0.set_read_timeout(Some(within))?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command)?;
        self.receive(SOON)
    }

    fn receives_nothing(&mut self) -> bool {
        matches!(self.receive(BRIEFLY), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn without_a_fault_everything_arrives() {
    let (server, proxy) = server_and_proxy();
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("SET key value").unwrap(), "+OK");
    assert_eq!(server.command(&["GET", "key"]), "value");
    assert_eq!(proxy.connections(), 1);
    drop(client);
    wait_until("the connection to end", SOON, || proxy.connections() == 0);
}

#[test]
fn large_values_arrive_complete() {
    let (server, proxy) = server_and_proxy();
    let value = "v".repeat(1_000_000);
    let mut client = Client::connect(&proxy);
    assert_eq!(
        client
            .ask(&format!(
                "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n{value}",
                value.len()
            ))
            .unwrap(),
        "+OK"
    );
    assert_eq!(server.command(&["GET", "key"]), value);
}

#[test]
fn a_cut_closes_open_connections_and_accepts_new_ones() {
    let (_server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert!(client.ask("PING").is_err());
    Client::connect(&proxy);
}

#[test]
fn a_refusing_proxy_is_a_closed_port_until_it_passes_again() {
    let (_server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.refuse();
    assert!(client.ask("PING").is_err());
    let error = TcpStream::connect(proxy.addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    proxy.pass();
    Client::connect(&proxy);
}

#[test]
#[allow(clippy::disallowed_methods)] // What is measured here is the kit's delay, not the product's.
fn a_delay_is_added_in_its_direction_and_not_once_per_message() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    let delay = Duration::from_millis(150);

    proxy.requests(Fault::Delay(delay));
    let sent = Instant::now();
    for _ in 0..10 {
        client.send("INCR counter").unwrap();
    }
    for count in 1..=10 {
        assert_eq!(client.receive(SOON).unwrap(), format!(":{count}"));
    }
    assert!((delay..delay * 10).contains(&sent.elapsed()));

    proxy.pass();
    proxy.replies(Fault::Delay(delay));
    let sent = Instant::now();
    client.send("INCR counter").unwrap();
    wait_until("the request to arrive", SOON, || {
        server.command(&["GET", "counter"]) == "11"
    });
    assert_eq!(client.receive(SOON).unwrap(), ":11");
    assert!(sent.elapsed() >= delay);
}

#[test]
fn a_black_hole_for_requests_keeps_them_from_the_server() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.requests(Fault::BlackHole);
    client.send("SET key value").unwrap();
    assert!(client.receives_nothing());
    assert_eq!(server.command(&["EXISTS", "key"]), "0");
}

#[test]
fn a_black_hole_for_replies_lets_requests_take_effect() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.replies(Fault::BlackHole);
    client.send("SET key value").unwrap();
    assert!(client.receives_nothing());
    assert_eq!(server.command(&["GET", "key"]), "value");
}

#[test]
fn a_connection_that_lost_bytes_is_closed_when_the_black_hole_is_lifted() {
    let (_server, proxy) = server_and_proxy();
    let mut harmed = Client::connect(&proxy);
    let mut unharmed = Client::connect(&proxy);
    proxy.replies(Fault::BlackHole);
    harmed.send("PING").unwrap();
    assert!(harmed.receives_nothing());
    proxy.pass();
    assert!(
        harmed
            .receive(SOON)
            .is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    );
    assert_eq!(unharmed.ask("PING").unwrap(), "+PONG");
}

#[test]
fn in_a_black_hole_the_server_does_not_learn_that_the_client_closed() {
    let (server, proxy) = server_and_proxy();
    let clients = || {
        server
            .command(&["CLIENT", "LIST"])
            .matches(" addr=127.0.0.1")
            .count()
    };
    let client = Client::connect(&proxy);
    proxy.requests(Fault::BlackHole);
    drop(client);
    std::thread::sleep(BRIEFLY);
    assert_eq!(clients(), 1, "the connection is half open");
    proxy.pass();
    wait_until("the server to notice", SOON, || clients() == 0);
}

#[test]
fn a_reset_on_replies_comes_after_the_request_took_effect() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.replies(Fault::ResetOnce);
    let error = client.ask("INCR counter").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.command(&["GET", "counter"]), "1");
    // The fault acts once: the next connection works.
    assert_eq!(Client::connect(&proxy).ask("INCR counter").unwrap(), ":2");
}

#[test]
fn a_reset_on_requests_comes_before_they_take_effect_and_stays() {
    let (server, proxy) = server_and_proxy();
    let mut clients = [Client::connect(&proxy), Client::connect(&proxy)];
    proxy.requests(Fault::Reset);
    for client in &mut clients {
        let error = client.ask("INCR counter").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(server.command(&["EXISTS", "counter"]), "0");
}

#[test]
fn a_held_request_arrives_late_even_after_its_client_has_gone() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.requests(Fault::Hold);
    client.send("SET key value").unwrap();
    wait_until("the request to be held", SOON, || proxy.held_bytes() > 0);
    drop(client);
    assert_eq!(server.command(&["EXISTS", "key"]), "0");
    proxy.pass();
    wait_until("the late request", SOON, || {
        server.command(&["GET", "key"]) == "value"
    });
    wait_until("the connection to end", SOON, || proxy.connections() == 0);
    assert_eq!(proxy.held_bytes(), 0);
}

#[test]
fn held_bytes_of_a_connection_that_was_cut_are_gone() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    proxy.requests(Fault::Hold);
    client.send("SET key value").unwrap();
    wait_until("the request to be held", SOON, || proxy.held_bytes() > 0);
    proxy.cut();
    assert_eq!(proxy.held_bytes(), 0);
    proxy.pass();
    assert_eq!(server.command(&["EXISTS", "key"]), "0");
}

#[test]
fn a_server_that_is_down_or_back_is_seen_through_the_proxy() {
    let (server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    server.kill();
    assert!(client.ask("PING").is_err());
    server.restart();
    Client::connect(&proxy);
}

#[test]
fn a_dropped_proxy_is_a_closed_port() {
    let (_server, proxy) = server_and_proxy();
    let mut client = Client::connect(&proxy);
    let addr = proxy.addr();
    drop(proxy);
    assert!(client.ask("PING").is_err());
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn an_address_that_moves_leads_to_the_other_server() {
    let (first, proxy) = server_and_proxy();
    let second = Server::start(Flavor::Valkey);
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("SET key first").unwrap(), "+OK");
    proxy.lead_to(&second);
    assert!(
        client.ask("PING").is_err(),
        "the old connection still works"
    );
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("SET key second").unwrap(), "+OK");
    assert_eq!(first.command(&["GET", "key"]), "first");
    assert_eq!(second.command(&["GET", "key"]), "second");
}

#[test]
fn no_connection_is_accepted_while_the_proxy_begins_to_refuse() {
    let (_server, proxy) = server_and_proxy();
    let addr = proxy.addr();
    for _ in 0..20 {
        let (stop, stopped) = channel::<()>();
        thread::scope(|scope| {
            // Connects all the time, like a replica that has lost its primary.
            scope.spawn(move || {
                let mut dialled = Vec::new();
                while stopped.try_recv() == Err(TryRecvError::Empty) {
                    dialled.extend(TcpStream::connect(addr));
                    thread::sleep(Duration::from_micros(50));
                }
            });
            wait_until("a client to connect", SOON, || proxy.connections() > 2);
            proxy.refuse();
            wait_until("all to be gone", SOON, || proxy.connections() == 0);
            drop(stop);
        });
        proxy.pass();
    }
}
