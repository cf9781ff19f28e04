//! Which addresses get the password: beside a Sentinel or a master that lies, and with a certificate
//! of the wrong authority.

use std::io::Read;
use std::net::TcpListener;
use std::process::Output;

use ringfence_testkit::{
    Attack, Certificates, FakeSentinel, Flavor, HostileServer, SentinelGroup, Server, Testimony,
    host_with_ips,
};

use super::scene::{PATIENCE, Scene};

/// A host with two addresses: the master's, and one where somebody else listens.
#[test]
fn a_host_that_one_sentinel_names_does_not_get_the_password() {
    let group = SentinelGroup::builder(Flavor::Redis)
        .replicas(0)
        .requirepass("very-secret")
        .start();
    let port = group.master().port();
    let attacker = TcpListener::bind(("127.0.0.2", port)).unwrap();
    attacker.set_nonblocking(true).unwrap();
    let hostile = FakeSentinel::start(Testimony {
        master: ("evil.test".to_owned(), port),
        ..Testimony::of(
            SentinelGroup::SERVICE,
            &"ab".repeat(20),
            group.master().addr(),
        )
    });
    let sentinels = group.sentinels();
    // The majority needs the hostile one.
    sentinels[1].pause();
    for ports in [
        [hostile.port(), sentinels[0].port(), sentinels[1].port()],
        [sentinels[0].port(), sentinels[1].port(), hostile.port()],
    ] {
        let scene = Scene::on(&group.url_at(&ports));
        for command in [
            &["init", "--force"][..],
            &["run", "x", "--", "true"],
            &["doctor"],
        ] {
            let output = scene
                .ringfence(command)
                .envs(host_with_ips("evil.test", &["127.0.0.2", "127.0.0.1"]))
                .output()
                .unwrap();
            assert_eq!(received(&attacker), None, "{command:?}");
            assert!(output.status.success(), "{command:?}: {}", told(&output));
        }
    }
    assert!(hostile.asked() > 0);
}

#[test]
fn an_authority_in_the_url_replaces_those_of_the_system() {
    let (own, public) = (Certificates::generate(), Certificates::generate());
    let server = Server::builder(Flavor::Redis).tls(&public).start();
    let look = |parameter: &str| {
        let scene = Scene::on(&format!("{}{parameter}", server.url()));
        // What this system trusts.
        scene
            .ringfence(&["doctor"])
            .env("SSL_CERT_FILE", public.authority_file())
            .output()
            .unwrap()
    };
    let trusted = look("");
    assert!(trusted.status.success(), "{}", told(&trusted));
    let refused = look(&format!("?ca={}", own.authority_file().display()));
    assert!(!refused.status.success(), "{}", told(&refused));
    assert!(told(&refused).contains("certificate"), "{}", told(&refused));
}

/// The master names any address as one of its replicas.
#[test]
fn an_address_that_the_master_lists_as_a_replica_gets_the_password_only_if_asked_to() {
    let builder = Server::builder(Flavor::Redis).requirepass("very-secret");
    let server = builder.start();
    let master = HostileServer::in_front_of(&server);
    let attacker = TcpListener::bind("127.0.0.1:0").unwrap();
    attacker.set_nonblocking(true).unwrap();
    let port = attacker.local_addr().unwrap().port();
    master.attack_replies_to(
        "INFO",
        Attack::Field {
            name: "role",
            value: format!("master\r\nslave0:ip=127.0.0.1,port={port},state=online,offset=9,lag=0"),
        },
    );
    let sentinel = FakeSentinel::start(Testimony {
        others: 0,
        ..Testimony::of("orders", &"ab".repeat(20), master.addr())
    });
    let scene = Scene::on(&format!(
        "redis+sentinel://:very-secret@127.0.0.1:{}/orders",
        sentinel.port()
    ));
    let output = scene.ringfence(&["doctor"]).output().unwrap();
    assert_eq!(received(&attacker), None, "{}", told(&output));
    let text = told(&output);
    assert!(
        text.contains("the clock of 1 replica was not compared"),
        "{text}"
    );
    let output = scene.ringfence(&["doctor", "--replicas"]).output().unwrap();
    let sent = received(&attacker).unwrap_or_else(|| panic!("{}", told(&output)));
    assert!(sent.contains("very-secret"), "{sent}");
}

/// What the first connection to `attacker` has sent, if there is one.
fn received(attacker: &TcpListener) -> Option<String> {
    let (mut stream, _) = attacker.accept().ok()?;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut sent = [0; 4096];
    let count = stream.read(&mut sent).unwrap_or(0);
    Some(String::from_utf8_lossy(&sent[..count]).into_owned())
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}
