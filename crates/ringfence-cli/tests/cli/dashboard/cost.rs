//! What the dashboard costs the nodes, by the servers' own processor time.
//!
//! Prints the figures of `docs/dashboard.md`; with `RINGFENCE_LONG` it measures for longer. Tests do
//! not assert times, because machines differ. What it checks is that viewers need no connection to
//! the nodes.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ringfence_testkit::{Fleet, Server, wait_until};

use super::super::scene::{PATIENCE, Scene};
use super::cast::Cast;
use super::http::{connect, get};
use super::{DashboardProcess, TOKEN, init};

const VIEWERS: usize = 10;

#[test]
fn viewers_cost_the_nodes_nothing() {
    let is_long = env::var_os("RINGFENCE_LONG").is_some();
    let (locks, span) = match is_long {
        true => (1_000, Duration::from_secs(20)),
        false => (100, Duration::from_secs(1)),
    };
    let fleet = Fleet::start(5);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    let mut cast = Cast::on(&fleet.urls());
    cast.act(&["many", &locks.to_string()]);
    let without = processor_share(&fleet, span);
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    wait_until("the list", PATIENCE, || {
        let cluster = get(dashboard.port, "/api/v1/cluster").json();
        cluster["counts"]["held"] == locks
    });
    let alone = processor_share(&fleet, span);
    let clients = connections(&fleet);
    let _viewers: Vec<_> = (0..VIEWERS).map(|_| viewer(dashboard.port)).collect();
    let watched = processor_share(&fleet, span);
    // An examination has a connection of its own, every 20 s.
    wait_until("as many connections as before", PATIENCE, || {
        connections(&fleet) <= clients
    });
    println!("{locks} locks on 5 nodes, percent of a core of the busiest node:");
    println!(
        "  {without:.2} without the dashboard, {alone:.2} with it, {watched:.2} with {VIEWERS} viewers"
    );
}

/// Opens the stream of events, and reads its first line. A thread reads the rest.
fn viewer(port: u16) -> TcpStream {
    let mut socket = connect(port);
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("written");
    let mut lines = BufReader::new(socket.try_clone().expect("a socket")).lines();
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with('{')))
        .expect("an event")
        .expect("text");
    thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    socket
}

/// The share of a core that the busiest server uses during `span`, in percent.
fn processor_share(fleet: &Fleet, span: Duration) -> f64 {
    let before: Vec<f64> = fleet.iter().map(processor_s).collect();
    thread::sleep(span);
    let after = fleet.iter().map(processor_s);
    let used = after.zip(before).map(|(after, before)| after - before);
    used.fold(0.0, f64::max) / span.as_secs_f64() * 100.0
}

fn processor_s(server: &Server) -> f64 {
    field(server, "cpu", "used_cpu_user:") + field(server, "cpu", "used_cpu_sys:")
}

fn connections(fleet: &Fleet) -> f64 {
    fleet
        .iter()
        .map(|server| field(server, "clients", "connected_clients:"))
        .sum()
}

fn field(server: &Server, section: &str, name: &str) -> f64 {
    let text = server.command(&["INFO", section]);
    let mut lines = text.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.parse().ok())
        .expect("a number")
}
