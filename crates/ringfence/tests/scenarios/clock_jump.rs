//! The clock jump of the Redlock debate: five nodes, the lock is held on three of them, and the
//! clock of one of the three is set forward past the TTL, so that the lock expires there.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use ringfence::resource::Refused;
use ringfence::resource::redis::{FENCED, FencedCall, FencedKey};
use ringfence::{AcquireError, Builder, ExtendError, Locks, Lost};
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Server, WallClock, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::partition::Partition;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::until_held_by;

/// The node whose clock is set.
const JUMPS: usize = 2;

/// Servers, one of which has a clock that can be set.
fn clocked(flavor: Flavor) -> (Fleet, WallClock) {
    let clock = WallClock::ahead_by(0);
    let fleet = Fleet::start_with(5, |node| match node {
        JUMPS => Server::builder(flavor).wall_clock(&clock),
        _ => Server::builder(flavor),
    });
    (fleet, clock)
}

async fn jump(clock: &WallClock, fleet: &Fleet, by: Duration) {
    clock.set(i64::try_from(by.as_micros()).unwrap());
    for name in ["theirs", "ours"] {
        until_held_by(fleet, name, &[true, true, false, false, false]).await;
    }
}

/// Tries to acquire in vain until the jump was detected.
async fn refused_for_the_jump(locks: &Locks, name: &str) {
    wait_until_async("the jump to be detected", SOON, async || {
        let error = locks.mutex(name).try_lock().await;
        let error = error.expect_err("a second holder");
        matches!(error.votes().unwrap()[JUMPS].vote, Vote::ClockJumped { .. })
    })
    .await;
}

#[tokio::test]
async fn a_clock_step_of_redis_past_the_ttl_is_noticed_and_grants_no_second_lock() {
    a_step_past_the_ttl_is_noticed(Flavor::Redis).await;
}

#[tokio::test]
async fn a_clock_step_of_valkey_past_the_ttl_is_noticed_and_grants_no_second_lock() {
    a_step_past_the_ttl_is_noticed(Flavor::Valkey).await;
}

async fn a_step_past_the_ttl_is_noticed(flavor: Flavor) {
    const TTL: Duration = Duration::from_secs(6);
    let (fleet, clock) = clocked(flavor);
    builder(&fleet.urls()).init().await.unwrap();
    let party = Partition::before(&fleet, &[3, 4]);
    let (plain, plain_other) = (
        Redlock::connect(&party.urls()).await,
        Redlock::connect(&fleet.urls()).await,
    );
    let (locks, other) = (connect(&party.urls()).await, connect(&fleet.urls()).await);
    for locks in [&locks, &other] {
        until_granted_by(locks, "another", &[true; 5]).await;
    }
    party.begin();
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let lock = locks.mutex("ours").ttl(TTL);
    let first = lock.lock().await.unwrap();
    jump(&clock, &fleet, Duration::from_secs(30)).await;

    plain_other.grants_twice(&plain_first, TTL).await;

    refused_for_the_jump(&other, "ours").await;
    // A new client cannot detect the jump, but its ballots do not fit that clock.
    let new_client = connect(&fleet.urls()).await;
    let error = new_client.mutex("ours").try_lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    says(&error, ["refused a stale ballot"]);

    // Two nodes are not a majority: the holder gets an error now, and loses the lock at its
    // deadline.
    let error = first.extend(TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
    says(&error, ["its clock jumped forward"]);
    let waiting = async {
        let guard = other.mutex("ours").wait(PATIENCE).lock().await.unwrap();
        (now(), guard)
    };
    let losing = async {
        assert_eq!(first.lost().await, Lost::Expired);
        let (deadline, fence) = (first.exact_deadline(), first.fence());
        // The keys that its last renewals set on two nodes are released with the guard.
        drop(first);
        (deadline, fence)
    };
    let ((deadline, fence), (granted, second)) = tokio::join!(losing, waiting);
    assert!(granted > deadline && second.fence() > fence);
}

/// The step is within the window of the ballots, and the client is new, so it cannot detect the
/// step. A lease alone does not prevent this second holder; the fence makes it harmless.
#[tokio::test]
async fn a_new_client_that_cannot_detect_the_step_has_a_higher_fence_and_no_update_is_lost() {
    let wide = |urls: &str| -> Builder {
        let builder = builder(urls).window(Duration::from_secs(30));
        builder.quarantine(Duration::from_secs(100))
    };
    let (fleet, clock) = clocked(Flavor::Redis);
    wide(&fleet.urls()).init().await.unwrap();
    let party = Partition::before(&fleet, &[3, 4]);
    let plain = Redlock::connect(&party.urls()).await;
    let locks = wide(&party.urls()).connect().await.unwrap();
    let other = wide(&fleet.urls()).connect().await.unwrap();
    for locks in [&locks, &other] {
        until_granted_by(locks, "another", &[true; 5]).await;
    }
    party.begin();
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    jump(&clock, &fleet, Duration::from_secs(25)).await;

    refused_for_the_jump(&other, "ours").await;
    let plain_second = Redlock::connect(&fleet.urls()).await;
    let plain_second = plain_second.lock("theirs", TTL).await;
    let plain_second = plain_second.expect("Redlock grants it twice");
    let new_client = wide(&fleet.urls()).connect().await.unwrap();
    let second = new_client
        .mutex("ours")
        .wait(PATIENCE)
        .lock()
        .await
        .unwrap();
    assert!(plain_first.is_valid() && plain_second.is_valid());
    assert_eq!((first.check(), second.check()), (Ok(()), Ok(())));
    assert!(second.fence() > first.fence());

    // Both holders add to an account, the first holder last. Without fences one addition is lost.
    let store = Server::start(Flavor::Valkey);
    let mut store = Store::connect(&store).await;
    assert_eq!(store.read_unfenced().await, 100);
    store.write_unfenced(100 + 50).await;
    store.write_unfenced(100 + 20).await;
    assert_eq!(store.read_unfenced().await, 120);

    store.write_unfenced(100).await;
    assert_eq!(store.read(first.fence()).await, Ok(100));
    assert_eq!(store.read(second.fence()).await, Ok(100));
    store.write(second.fence(), 100 + 50).await.unwrap();
    let refused = store.write(first.fence(), 100 + 20).await.unwrap_err();
    assert_eq!(
        (refused.fence, refused.mark),
        (first.fence(), second.fence())
    );
    assert_eq!(store.read(second.fence()).await, Ok(150));
}

/// An account on its own server.
struct Store {
    connection: MultiplexedConnection,
    account: FencedKey,
}

impl Store {
    /// Connects, and sets the account to 100.
    async fn connect(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await;
        let account = FencedKey::new("account");
        let mut store = Self {
            connection: connection.unwrap(),
            account,
        };
        store.write_unfenced(100).await;
        store
    }

    async fn read_unfenced(&mut self) -> i64 {
        let mut get = redis::cmd("GET");
        let amount = get.arg("account").query_async(&mut self.connection);
        amount.await.unwrap()
    }

    async fn write_unfenced(&mut self, amount: i64) {
        let mut set = redis::cmd("SET");
        set.arg("account").arg(amount);
        set.exec_async(&mut self.connection).await.unwrap();
    }

    async fn read(&mut self, fence: u64) -> Result<i64, Refused> {
        let call = self.account.read(fence, ["GET"]);
        self.invoke(&call).await
    }

    async fn write(&mut self, fence: u64, amount: i64) -> Result<(), Refused> {
        let command = ["SET".to_owned(), amount.to_string()];
        let call = self.account.write(fence, command);
        self.invoke(&call).await
    }

    async fn invoke<T: redis::FromRedisValue>(&mut self, call: &FencedCall) -> Result<T, Refused> {
        let script = redis::Script::new(FENCED);
        let mut invocation = script.key(call.keys());
        invocation.arg(call.args());
        let answer = invocation.invoke_async(&mut self.connection).await;
        answer.map_err(|error| Refused::in_message(&error.to_string()).expect("a refusal"))
    }
}
