//! Latches on real servers, some of which are killed and restarted without data.

use std::time::Duration;

use ringfence::{LatchError, Locks};
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};
use tokio::task::JoinSet;

use crate::fleet::stage::*;

const PARTIES: u32 = 12;

async fn look(locks: &Locks, count: u32) -> Result<(), LatchError> {
    let latch = locks.latch("x", count).wait(Duration::ZERO);
    latch.opened().await
}

async fn arrive(locks: &Locks, party: usize) {
    let latch = locks.latch("x", PARTIES).party(&party.to_string());
    latch.no_quorum_after(PATIENCE).arrive().await.unwrap();
}

/// How many parties have arrived, while the latch is shut.
async fn arrived(locks: &Locks) -> u64 {
    match look(locks, PARTIES).await {
        Err(LatchError::Shut { arrived, .. }) => arrived,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_opens_for_every_client_while_two_of_five_nodes_restart_without_data() {
    let fleet = Fleet::start_with(5, |node| Server::builder(Flavor::ALL[node % 2]));
    builder(&fleet.urls()).init().await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&fleet.urls()).await);
    }
    let mut waiting = JoinSet::new();
    for locks in &clients {
        let latch = locks.latch("x", PARTIES).wait(3 * PATIENCE);
        waiting.spawn(async move { latch.opened().await });
    }
    for party in 0..PARTIES as usize - 1 {
        match party {
            3 => fleet[1].kill(),
            5 => fleet[1].restart(),
            7 => fleet[3].kill(),
            9 => fleet[3].restart(),
            _ => {}
        }
        arrive(&clients[party % clients.len()], party).await;
        // The same arrival by another client counts once.
        arrive(&clients[(party + 1) % clients.len()], party).await;
        assert_eq!(arrived(&clients[0]).await, party as u64 + 1);
    }
    arrive(&clients[3], PARTIES as usize - 1).await;
    while let Some(opened) = waiting.join_next().await {
        opened.unwrap().unwrap();
    }
    clients.push(connect(&fleet.urls()).await);
    for locks in &clients {
        look(locks, PARTIES).await.unwrap();
    }
    // The two restarted nodes have lost the latch. Without one of the others there is no majority,
    // and no client may report that the latch is shut.
    fleet[0].kill();
    let error = look(&clients[4], PARTIES).await.unwrap_err();
    assert!(matches!(error, LatchError::NoQuorum { .. }), "{error}");
    says(&error, ["since the latch was made"]);
}

#[tokio::test]
async fn a_latch_that_is_open_for_one_majority_is_open_for_every_other() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init().await.unwrap();
    let (one, other) = (connect(&fleet.urls()).await, connect(&fleet.urls()).await);
    let away = |nodes: [usize; 2]| nodes.iter().for_each(|&node| fleet[node].pause());
    let back = |nodes: [usize; 2]| nodes.iter().for_each(|&node| fleet[node].resume());
    away([0, 1]);
    for party in 0..PARTIES as usize {
        arrive(&one, party).await;
    }
    look(&one, PARTIES).await.unwrap();
    back([0, 1]);
    for hung in [[2, 3], [3, 4], [2, 4], [0, 4]] {
        away(hung);
        // Never shut; a server that hung may need a moment to answer again.
        let latch = other.latch("x", PARTIES).wait(PATIENCE);
        latch.opened().await.unwrap();
        back(hung);
    }
}

#[tokio::test]
async fn a_waiter_is_woken_without_polling() {
    let fleet = Fleet::start(3);
    let (one, other) = (client_of(&fleet).await, client_of(&fleet).await);
    let rounds = 20;
    let (took, ()) = timed(async {
        for round in 0..rounds {
            let name = format!("round {round}");
            let latch = other.latch(&name, 1).wait(PATIENCE);
            let waiting = tokio::spawn(async move { latch.opened().await });
            let tickets =
                format!("ringfence:{{{name}}}:queue-leases:ringfence:{{{name}}}:latch:{name}");
            wait_until_async("a ticket on every node", PATIENCE, async || {
                let waits = |server: &Server| server.command(&["ZCARD", &tickets]) == "1";
                fleet.iter().all(waits)
            })
            .await;
            one.latch(&name, 1).arrive().await.unwrap();
            waiting.await.unwrap().unwrap();
        }
    })
    .await;
    // With polling alone it would be nine tenths of a second each time.
    assert!(took < rounds * Duration::from_millis(450), "{took:?}");
}

#[tokio::test]
async fn the_keys_of_a_latch_expire_with_its_ttl() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let latch = locks.latch("x", 2).ttl(Duration::from_secs(3));
    latch.arrive().await.unwrap();
    assert!(
        latch
            .clone()
            .wait(Duration::from_millis(50))
            .opened()
            .await
            .is_err()
    );
    for server in fleet.iter() {
        let keys = server.command(&["KEYS", "ringfence:{x}*"]);
        assert!(keys.contains("ringfence:{x}:latch:x"), "{keys}");
        for key in keys.lines() {
            let left: i64 = server.command(&["PTTL", key]).parse().unwrap();
            assert!(left > 0, "{key} stays for ever");
        }
    }
    wait_until_async("the latch to end", PATIENCE, async || {
        let gone = |server: &Server| server.command(&["KEYS", "ringfence:{x}*"]).is_empty();
        fleet.iter().all(gone)
    })
    .await;
}
