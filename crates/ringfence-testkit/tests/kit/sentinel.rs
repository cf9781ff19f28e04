//! Groups with Sentinels: they elect, fail over and come back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ringfence_testkit::{FakeSentinel, Flavor, SentinelGroup, Server, Testimony};

#[test]
fn a_group_of_either_flavor_fails_over_by_order_and_by_itself() {
    std::thread::scope(|scope| {
        for flavor in Flavor::ALL {
            scope.spawn(move || {
                let group = SentinelGroup::start(flavor);
                let first = group.master().port();
                assert_eq!(first, group.servers()[0].port());
                assert_eq!(group.replicas().count(), 2);
                group.fail_over();
                let second = group.master();
                assert_ne!(second.port(), first);
                group.wait_until_settled();
                second.kill();
                group.wait_for_new_master(second.port());
                second.restart();
                group.wait_until_settled();
                assert_ne!(group.master().port(), second.port());
            });
        }
    });
}

#[test]
fn a_group_names_its_sentinels_in_its_url() {
    let builder = SentinelGroup::builder(Flavor::Redis);
    let builder = builder.replicas(0).sentinels(1).requirepass("data");
    let group = builder.sentinel_password("watch").start();
    let port = group.sentinels()[0].port();
    let url = format!("redis+sentinel://:data@127.0.0.1:{port}/orders?sentinel_password=watch");
    assert_eq!(group.url(), url);
    let named = group.sentinels()[0].command(&["SENTINEL", "MASTERS"]);
    assert!(named.contains(&group.master().port().to_string()));
}

#[test]
fn a_fake_sentinel_says_what_it_is_told() {
    let server = Server::start(Flavor::Redis);
    let fake = FakeSentinel::start(Testimony {
        epochs: [3, 4],
        ..Testimony::of("orders", &"ab".repeat(20), server.addr())
    });
    let mut stream = TcpStream::connect(("127.0.0.1", fake.port())).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
        .write_all(b"SENTINEL MYID\r\nsentinel get-master-addr-by-name orders\r\n")
        .unwrap();
    let port = server.port().to_string();
    let id = "ab".repeat(20);
    let expected = format!(
        "$40\r\n{id}\r\n*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n",
        port.len()
    );
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
    assert_eq!(fake.asked(), 1);
}
