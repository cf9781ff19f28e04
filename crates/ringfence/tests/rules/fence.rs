//! G1 and G2: one holder at a time, and fences that only rise, whatever clocks and nodes do.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::{Builder, Guard, Locks};

use crate::rules::bench::{Bench, Dice, at_once, ms};
use crate::rules::delaying_node::DelayingNode;

const SECOND_US: i64 = 1_000_000;

#[tokio::test]
async fn g2_fences_rise_for_every_client_and_whatever_the_clocks_show() {
    let skews = [
        0,
        2 * SECOND_US,
        -2 * SECOND_US,
        3 * SECOND_US / 2,
        3600 * SECOND_US,
    ];
    let bench = Bench::skewed(&skews).await;
    let mut clients = vec![bench.client().await, bench.client().await];
    let mut clocks = vec![bench.time.clone()];
    // Two more whose own clocks are an hour fast and an hour slow.
    for start in [Duration::from_secs(4600), Duration::ZERO] {
        let time = SteppedClock::starting_at(start);
        let clock = Clock::Stepped(time.clone());
        clocks.push(time);
        let nodes = bench.nodes.iter().map(DelayingNode::before);
        let builder = nodes.fold(Locks::builder().clock(clock), Builder::node);
        clients.push(builder.connect().await.unwrap());
    }
    let mut dice = Dice::new(7);
    let mut last = 0;
    for round in 0..400 {
        let client = &clients[dice.roll(4) as usize];
        // One of the nodes whose clocks are right may be unreachable.
        let out = dice.roll(8) as usize;
        if out < 4 {
            bench.nodes[out].fail_with(Some(crate::rules::bench::unreachable()));
        }
        let lock = client.mutex("x");
        let guard = at_once(lock.lock()).await.unwrap();
        assert!(
            guard.fence() > last,
            "round {round}: {} after {last}",
            guard.fence()
        );
        last = guard.fence();
        bench.mend();
        at_once(guard.release()).await.unwrap();
        let span = ms(dice.roll(3) * dice.roll(2000));
        clocks.iter().for_each(|clock| clock.step(span));
    }
}

#[tokio::test]
async fn g2_a_fence_of_several_names_is_above_the_fences_of_each_name() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let mut last = 0;
    for round in 0..60 {
        let client = if round % 2 == 0 { &one } else { &other };
        let lock = match round % 3 {
            0 => client.mutex("a"),
            1 => client.multi(["a", "b"]),
            _ => client.multi(["c", "a"]),
        };
        let guard = at_once(lock.lock()).await.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
    }
}

#[tokio::test]
async fn g2_a_node_that_lost_its_data_does_not_make_a_fence_fall() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mut last = 0;
    for round in 0..30 {
        bench.nodes[round % 3].forget();
        let guard = bench
            .drive(bench.client().await.mutex("x").wait(ms(60_000)).lock())
            .await;
        let guard = guard.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        drop(guard);
        bench.pass_in(ms(37_000), ms(1000)).await;
    }
    drop(locks);
}

#[tokio::test]
async fn g1_no_two_clients_hold_a_valid_lock_at_once() {
    for seed in 0..12 {
        let bench = Bench::new(5).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(bench.client().await);
        }
        let mut guards: Vec<Option<Guard>> = (0..4).map(|_| None).collect();
        let mut dice = Dice::new(seed);
        let mut granted = 0;
        let mut last = 0;
        for _ in 0..300 {
            let client = dice.roll(4) as usize;
            let node = &bench.nodes[dice.roll(5) as usize];
            match dice.roll(10) {
                0 => node.hang(true),
                1 => node.hold_replies(true),
                2 => node.lose_replies(true),
                3 => node.fail_with(Some(crate::rules::bench::unreachable())),
                4 | 5 => bench.mend(),
                6 => guards[client] = None,
                _ => {
                    let renew = dice.roll(2) == 0;
                    let lock = clients[client].mutex("x").ttl(ms(1000)).renew(renew);
                    if let Ok(guard) = bench.drive(lock.try_lock()).await {
                        assert!(guard.fence() > last, "seed {seed}");
                        last = guard.fence();
                        granted += 1;
                        guards[client] = Some(guard);
                    }
                }
            }
            bench.pass(ms(dice.roll(150))).await;
            let inside = guards
                .iter()
                .flatten()
                .filter(|guard| guard.check().is_ok());
            assert!(inside.count() <= 1, "seed {seed}");
        }
        assert!(granted >= 5, "seed {seed}: only {granted} grants");
    }
}
