//! One node of three is hostile. A lock that is held stays held and is renewed, and new locks are
//! granted by the other two nodes, whatever the hostile node sends.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Attack, Fleet, HostileServer, Push, wait_until_async};

use crate::fleet::stage::*;

/// The TTL of the locks here. A renewal is due every two seconds, and no call may stall for longer
/// than the TTL.
const HELD: Duration = Duration::from_secs(6);
/// Allows for a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a lock is renewed during an attack.
const RENEWALS: u32 = 2;
/// How much longer the median lock may take during an attack, and a duration that is always
/// acceptable. The hostile server and its client share the processors, so an attack costs
/// something.
const SLOWDOWN: u32 = 50;
const USUAL: Duration = Duration::from_millis(100);
/// The number of locks taken before the attack, to measure how long that takes on this machine.
const PRACTICE: usize = 20;
/// The command with which locks are taken and renewed. An attack on its replies lets the client log
/// in and shake hands first.
const CALLS: &str = "EVALSHA";

/// Three nodes, the first of which can become hostile.
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
        let builder = builder(&urls.join(","))
            .ttl(HELD)
            .node_timeout(NODE_TIMEOUT);
        builder.connect().await.unwrap()
    }
}

/// Holds a lock during the attack that `begin` starts, until it was renewed twice, and takes other
/// locks meanwhile. Then the hostile node behaves, and votes again. Returns how many bytes the
/// client read of each attack.
async fn withstands(begin: impl Fn(&HostileServer)) -> u64 {
    let siege = Siege::prepare();
    let locks = siege.connect().await;
    until_granted_by(&locks, "n", &[true; 3]).await;
    let mut practice = Vec::new();
    for _ in 0..PRACTICE {
        practice.push(timed(round(&locks, "other")).await.0);
    }
    let held = locks.mutex("held").lock().await.unwrap();
    begin(&siege.hostile);
    let begun = now();
    let (mut deadline, mut renewals, mut times) = (held.exact_deadline(), 0, Vec::new());
    while renewals < RENEWALS {
        held.check().expect("the lock is held");
        let (took, _) = timed(round(&locks, "other")).await;
        assert!(took < HELD, "a lock took {took:?}");
        times.push(took);
        renewals += u32::from(held.exact_deadline() > deadline);
        deadline = held.exact_deadline();
        let waited = now().since(begun);
        assert!(waited < PATIENCE, "{renewals} renewals in {waited:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (attacks, bytes) = (siege.hostile.attacks(), siege.hostile.sent_bytes());
    let taken = times.len();
    let (usual, during) = (median(practice), median(times));
    println!("{taken} locks, {during:?} each, before {usual:?}; {attacks} attacks, {bytes} bytes");
    assert!(attacks > 0, "no attack took place");
    assert!(
        during < (usual * SLOWDOWN).max(USUAL),
        "half of {taken} locks took {during:?}, and {usual:?} before"
    );
    held.release().await.unwrap();
    siege.hostile.behave();
    until_granted_by(&locks, "n", &[true; 3]).await;
    locks.close().await;
    no_key_remains(siege.fleet.iter()).await;
    bytes / attacks as u64
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The client disconnects long before the end, also if the bytes are little work.
#[tokio::test]
async fn a_text_of_60_mb_does_not_stall_the_client() {
    let bytes = 60 << 20;
    let taken =
        withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::LongText { bytes })).await;
    assert!(taken < bytes / 2, "{taken} bytes");
}

/// The client accepts these: each is a little shorter than its limit.
#[tokio::test]
async fn texts_of_a_million_bytes_do_not_stall_the_client() {
    let bytes = 1_000_000;
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::LongText { bytes })).await;
}

#[tokio::test]
async fn an_array_of_millions_of_values_does_not_stall_the_client() {
    // 60 MB.
    let count = 15_000_000;
    let taken =
        withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::ManyValues { count })).await;
    assert!(taken < count * 4 / 2, "{taken} bytes");
}

/// A little deeper than the client reads.
#[tokio::test]
async fn nested_arrays_do_not_stall_the_client() {
    let depth = 17;
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Nested { depth })).await;
}

#[tokio::test]
async fn deeply_nested_arrays_do_not_stall_the_client() {
    let depth = 1_000_000;
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Nested { depth })).await;
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
async fn a_reply_of_single_bytes_does_not_stall_the_client() {
    let every = Duration::from_millis(10);
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::Drip { every })).await;
}

#[tokio::test]
async fn single_bytes_from_the_first_reply_on_do_not_stall_the_client() {
    let every = Duration::from_millis(10);
    withstands(|hostile| hostile.attack(Attack::Drip { every })).await;
}

#[tokio::test]
async fn an_error_of_megabytes_does_not_stall_the_client() {
    let error = format!("ERR {}", "x".repeat(8 << 20));
    withstands(|hostile| hostile.attack_replies_to(CALLS, Attack::error(&error))).await;
}

/// As many pushes as the connection carries: more than the client can handle.
#[tokio::test]
async fn a_flood_of_wakes_does_not_starve_the_other_nodes() {
    let push = Push::Message(|channel, number| {
        let client = channel.trim_start_matches("ringfence:wake:");
        format!("0 {client}.{}", number % 64)
    });
    let per_second = 1_000_000;
    withstands(|hostile| hostile.attack(Attack::Pushes { push, per_second })).await;
}

#[tokio::test]
async fn a_flood_of_tiny_pushes_does_not_starve_the_other_nodes() {
    let push = Push::Unknown { bytes: 1 };
    let per_second = 10_000_000;
    withstands(|hostile| hostile.attack(Attack::Pushes { push, per_second })).await;
}

#[tokio::test]
async fn a_flood_of_large_pushes_does_not_starve_the_other_nodes() {
    let push = Push::Unknown { bytes: 1_000_000 };
    let per_second = 1_000;
    withstands(|hostile| hostile.attack(Attack::Pushes { push, per_second })).await;
}

/// The run id is part of every call to a node, so the client must not accept a long one.
#[tokio::test]
async fn a_long_run_id_is_not_accepted() {
    for length in [1_000, 100_000, 4 << 20] {
        let siege = Siege::prepare();
        let value = "r".repeat(length);
        let name = "run_id";
        siege.hostile.attack(Attack::Field { name, value });
        let locks = siege.connect().await;
        wait_until_async("the attack to begin", PATIENCE, async || {
            round(&locks, "n").await;
            siege.hostile.attacks() > 0
        })
        .await;
        for _ in 0..5 {
            let guard = locks.mutex("n").lock().await.unwrap();
            guard.extend(HELD).await.unwrap();
            assert!(!granted_by(&guard)[0], "a run id of {length} bytes");
            guard.release().await.unwrap();
        }
        let born = siege.fleet[0].command(&["EXISTS", "ringfence:born"]);
        assert_eq!(born, "0", "a run id of {length} bytes");
    }
}
