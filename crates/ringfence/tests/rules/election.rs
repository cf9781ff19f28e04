//! Elections: one leader at a time, terms that only rise, and observers that see only real leaders.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ringfence::clock::Clock;
use ringfence::node::memory::MemoryNode;
use ringfence::node::{Call, Node};
use ringfence::{Builder, Locks, Lost, ReleaseError};

use crate::rules::bench::{Bench, Dice, at_once, foreign, ms, poll_once, unreachable, waits};
use crate::rules::wrapper::delegate;

/// A node that can be made unreachable for one client alone.
#[derive(Debug)]
struct CutOff(MemoryNode, Arc<AtomicBool>);

impl Node for CutOff {
    delegate!(0: name listen probe join init);

    fn send(&self, call: Call) {
        if self.1.load(Ordering::SeqCst) {
            call.done.complete(Err(unreachable()));
        } else {
            self.0.send(call);
        }
    }
}

#[tokio::test]
async fn the_next_candidate_is_elected_when_the_leader_resigns() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let first = at_once(one.election("e").label("one").campaign())
        .await
        .unwrap();
    assert_eq!(first.term(), first.fence());
    let second = other.election("e").label("two");
    let mut second = pin!(second.campaign());
    assert!(waits(second.as_mut()).await);
    bench.pass(ms(60_000)).await;
    assert_eq!(first.check(), Ok(()));
    assert!(waits(second.as_mut()).await);
    let term = first.term();
    at_once(first.resign()).await.unwrap();
    let second = bench.drive(second).await.unwrap();
    assert!(second.term() > term);
}

#[tokio::test]
async fn a_leadership_may_last_longer_than_an_hour() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let leader = at_once(locks.election("e").ttl(ms(600_000)).campaign())
        .await
        .unwrap();
    bench.pass_in(ms(2 * 3_600_000), ms(60_000)).await;
    assert_eq!(leader.check(), Ok(()));
}

#[tokio::test]
async fn a_leader_that_loses_quorum_steps_down_before_another_is_elected() {
    let bench = Bench::new(3).await;
    let cut = Arc::new(AtomicBool::new(false));
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let behind_cut = |node: &MemoryNode| CutOff(node.clone(), Arc::clone(&cut));
    let builder = bench
        .nodes
        .iter()
        .map(behind_cut)
        .fold(builder, Builder::node);
    let leader = builder.connect().await.unwrap().election("e");
    let leader = at_once(leader.campaign()).await.unwrap();
    let others = bench.client().await;
    let next = others.election("e");
    let mut next = pin!(next.campaign());
    assert!(waits(next.as_mut()).await);
    cut.store(true, Ordering::SeqCst);
    let lost = bench
        .drive(async {
            tokio::select! {
                biased;
                _ = next.as_mut() => None,
                why = leader.lost() => Some(why),
            }
        })
        .await;
    assert_eq!(
        lost,
        Some(Lost::Expired),
        "the leader ends before the next begins"
    );
    let next = bench.drive(next).await.unwrap();
    assert!(next.term() > leader.term());
    cut.store(false, Ordering::SeqCst);
    assert_eq!(at_once(leader.resign()).await, Err(ReleaseError::Taken));
    assert_eq!(next.check(), Ok(()));
}

#[tokio::test]
async fn observers_see_each_leader_once_and_terms_rise() {
    let bench = Bench::new(3).await;
    let (locks, watching) = (bench.client().await, bench.client().await);
    let mut observer = watching.election("e").observe().unwrap();
    {
        let mut next = pin!(observer.next_leader());
        assert!(waits(next.as_mut()).await, "there is no leader");
    }
    let first = at_once(locks.election("e").label("one").campaign())
        .await
        .unwrap();
    let seen = bench.drive(observer.next_leader()).await.unwrap();
    assert_eq!((seen.label.as_str(), seen.term), ("one", first.term()));
    assert_eq!(seen.id, first.token().id());
    {
        let mut next = pin!(observer.next_leader());
        assert!(waits(next.as_mut()).await);
        bench.pass(ms(20_000)).await;
        assert!(
            poll_once(next.as_mut()).await.is_pending(),
            "each leader is reported once, renewals are not"
        );
    }
    at_once(first.resign()).await.unwrap();
    let second = at_once(locks.election("e").label("two").campaign())
        .await
        .unwrap();
    let seen = bench.drive(observer.next_leader()).await.unwrap();
    assert_eq!((seen.label.as_str(), seen.term), ("two", second.term()));
}

#[tokio::test]
async fn neither_a_holder_without_a_ballot_nor_a_kept_key_is_reported_as_leader() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let election = locks.election("e");
    let mut observer = election.observe().unwrap();
    bench.occupy(0, "e", &foreign(1), 60_000);
    bench.occupy(1, "e", &foreign(2), 60_000);
    bench.occupy(2, "e", &foreign(2), 60_000);
    {
        let mut next = pin!(observer.next_leader());
        assert!(waits(next.as_mut()).await);
        bench.pass(ms(2000)).await;
        assert!(
            poll_once(next.as_mut()).await.is_pending(),
            "a holder without a ballot has no term"
        );
    }
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("k").hold_at_least(ms(60_000)).lock())
        .await
        .unwrap();
    at_once(guard.release()).await.unwrap();
    let mut observer = locks.election("k").observe().unwrap();
    let mut next = pin!(observer.next_leader());
    assert!(waits(next.as_mut()).await);
    bench.pass(ms(2000)).await;
    assert!(
        poll_once(next.as_mut()).await.is_pending(),
        "a released lock has no leader, even if its key is kept"
    );
}

#[tokio::test]
async fn a_candidate_that_needs_a_node_in_quarantine_is_not_reported() {
    let bench = Bench::new(3).await;
    let (locks, watching) = (bench.client().await, bench.client().await);
    bench.nodes[0].forget();
    bench.nodes[1].hang(true);
    let mut observer = watching.election("e").observe().unwrap();
    let failing = locks.election("e").wait(ms(3000));
    let (mut failing, mut next) = (pin!(failing.campaign()), pin!(observer.next_leader()));
    let mut held_two = false;
    for _ in 0..600 {
        bench.pass(ms(5)).await;
        if let std::task::Poll::Ready(done) = poll_once(failing.as_mut()).await {
            assert!(done.is_err());
            break;
        }
        held_two |= bench.holding("e") == 2;
        assert!(poll_once(next.as_mut()).await.is_pending());
    }
    assert!(held_two, "the candidate never held two of three nodes");
}

#[tokio::test]
async fn among_many_candidates_observers_see_only_leaders_and_in_order() {
    let bench = Bench::new(3).await;
    let led = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for candidate in 0..6u64 {
        let locks = bench.client().await;
        let led = Arc::clone(&led);
        let clock = Clock::Stepped(bench.time.clone());
        tasks.spawn(async move {
            let mut dice = Dice::new(candidate);
            for _ in 0..5 {
                let election = locks.election("e").ttl(ms(2000));
                // Some candidates give up before they are elected.
                let until = clock.now() + ms(1 + dice.roll(200));
                let leadership = tokio::select! {
                    elected = election.campaign() => elected.unwrap(),
                    () = clock.sleep_until(until) => continue,
                };
                led.lock()
                    .unwrap()
                    .push((leadership.token().id().to_owned(), leadership.term()));
                clock.sleep_until(clock.now() + ms(dice.roll(60))).await;
                leadership.resign().await.unwrap();
            }
        });
    }
    let watching = bench.client().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&seen);
    let mut observer = watching.election("e").observe().unwrap();
    let watcher = tokio::spawn(async move {
        while let Some(leader) = observer.next_leader().await {
            reports.lock().unwrap().push((leader.id, leader.term));
        }
    });
    bench
        .drive(async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        })
        .await;
    bench.drive(watching.close()).await;
    bench.drive(watcher).await.unwrap();
    let (led, seen) = (led.lock().unwrap(), seen.lock().unwrap());
    assert!(!seen.is_empty());
    assert!(
        seen.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "{seen:?}"
    );
    for leader in seen.iter() {
        assert!(led.contains(leader), "{leader:?} never led");
    }
}

#[tokio::test]
async fn a_bad_name_is_refused_before_anything_is_sent() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    assert!(locks.election("").observe().is_err());
    assert!(at_once(locks.election("").campaign()).await.is_err());
}

#[test]
fn the_blocking_api_elects_and_observes() {
    let locks = ringfence::blocking::Locks::connect("memory:").unwrap();
    let election = locks.election("e").label("blocking");
    let first = election.campaign().unwrap();
    let mut observer = election.observe().unwrap();
    let seen = observer.next_leader().unwrap();
    assert_eq!((seen.label.as_str(), seen.term), ("blocking", first.term()));
    first.check().unwrap();
    first.resign().unwrap();
    let second = election.campaign().unwrap();
    assert_eq!(observer.next_leader().unwrap().term, second.term());
}
