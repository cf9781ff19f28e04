//! One node of three is hostile. A lock that is held stays held and is renewed, and new locks are
//! granted by the other two nodes, whatever the hostile node sends.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Attack, Fleet, HostileServer, wait_until_async};

use crate::stage::*;

/// The TTL of the locks here: a renewal is due every second, and no call may stall for longer.
const HELD: Duration = Duration::from_secs(3);
/// Half of the locks must be granted faster than this. Without an attack it takes some milliseconds.
const USUAL: Duration = Duration::from_millis(100);
/// The commands with which locks are taken and renewed. An attack that is aimed at them lets the
/// client log in and shake hands before.
const CALLS: &str = "EVALSHA";

/// Three nodes, the first of which can be turned.
struct Siege {
    fleet: Fleet,
    hostile: HostileServer,
}

impl Siege {
    fn prepare() -> Self {
        let fleet = Fleet::start(3);
        let hostile = HostileServer::in_front_of(&fleet[0]);
        Self { fleet, hostile }
    }

    async fn connect(&self) -> Locks {
        let urls = [
            format!("{}?quarantine=off", self.hostile.url()),
            self.fleet[1].url_without_quarantine(),
            self.fleet[2].url_without_quarantine(),
        ];
        let locks = builder(&urls.join(",")).ttl(HELD).connect().await.unwrap();
        until_granted_by(&locks, "n", &[true; 3]).await;
        locks
    }
}

/// Holds a lock while the attack that `begin` starts goes on, until the lock was renewed three
/// times, and takes others meanwhile. Then the hostile node behaves, and votes again.
/// How many bytes the client took from each attack.
async fn withstands(begin: impl Fn(&HostileServer)) -> u64 {
    let siege = Siege::prepare();
    let locks = siege.connect().await;
    let held = locks.mutex("held").lock().await.unwrap();
    begin(&siege.hostile);
    let begun = now();
    let (mut deadline, mut renewals, mut times) = (held.deadline(), 0, Vec::new());
    while renewals < 3 {
        held.check().expect("the lock is held");
        let (took, _) = timed(round(&locks, "other")).await;
        assert!(took < HELD, "a lock took {took:?}");
        times.push(took);
        renewals += u32::from(held.deadline() > deadline);
        deadline = held.deadline();
        let waited = now().since(begun);
        assert!(waited < PATIENCE, "{renewals} renewals in {waited:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (attacks, bytes) = (siege.hostile.attacks(), siege.hostile.sent_bytes());
    times.sort();
    let (taken, median) = (times.len(), times[times.len() / 2]);
    println!("{taken} locks in {median:?} each, {attacks} attacks, {bytes} bytes");
    assert!(attacks > 0, "no attack took place");
    assert!(median < USUAL, "half of {taken} locks took {median:?}");
    held.release().await.unwrap();
    siege.hostile.behave();
    until_granted_by(&locks, "n", &[true; 3]).await;
    locks.close().await;
    no_key_remains(siege.fleet.iter()).await;
    bytes / attacks as u64
}

#[tokio::test]
async fn deeply_nested_arrays_do_not_stall_the_client() {
    for depth in [99, 101, 1_000_000] {
        withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Nested { depth })).await;
    }
}

#[tokio::test]
async fn garbage_does_not_stall_the_client() {
    let bytes = 1 << 30;
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Garbage { bytes })).await;
}

#[tokio::test]
async fn garbage_from_the_first_reply_on_does_not_stall_the_client() {
    let bytes = 1 << 30;
    withstands(|hostile| hostile.attack(Attack::Garbage { bytes })).await;
}

#[tokio::test]
async fn a_slow_loris_does_not_stall_the_client() {
    let every = Duration::from_millis(10);
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Drip { every })).await;
}

#[tokio::test]
async fn a_slow_loris_from_the_first_reply_on_does_not_stall_the_client() {
    let every = Duration::from_millis(10);
    withstands(|hostile| hostile.attack(Attack::Drip { every })).await;
}

#[tokio::test]
async fn an_error_of_megabytes_does_not_stall_the_client() {
    let error = format!("ERR {}", "x".repeat(8 << 20));
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::error(&error))).await;
}

/// The run id is part of what every call tells a node, so a long one must not be taken over.
#[tokio::test]
async fn a_run_id_of_megabytes_is_not_believed() {
    let siege = Siege::prepare();
    let value = "r".repeat(4 << 20);
    siege.hostile.attack(Attack::Field {
        name: "run_id",
        value,
    });
    let urls = [
        format!("{}?quarantine=off", siege.hostile.url()),
        siege.fleet[1].url_without_quarantine(),
        siege.fleet[2].url_without_quarantine(),
    ];
    let locks = connect(&urls.join(",")).await;
    wait_until_async("the attack to begin", PATIENCE, async || {
        round(&locks, "n").await;
        siege.hostile.attacks() > 0
    })
    .await;
    for _ in 0..5 {
        let guard = locks.mutex("n").lock().await.unwrap();
        guard.extend(TTL).await.unwrap();
        assert!(!granted_by(&guard)[0]);
        guard.release().await.unwrap();
    }
    assert_eq!(siege.fleet[0].command(&["EXISTS", "ringfence:born"]), "0");
}
