//! Waiters keep their position when nodes restart without data while others are down.

use std::time::Duration;

use ringfence::{Guard, Locks, ReleaseError};
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::queue::worker::{NAME, until_in_queue, voting_fleet};

const PATIENCE: Duration = Duration::from_secs(20);
/// The lock is renewed, and restored on nodes that lost it, every two seconds.
const TTL: Duration = Duration::from_secs(6);
/// See `clocks`: the waiters arrive one after the other by every clock.
const APART: Duration = Duration::from_millis(200);

/// A held lock and its waiters, each with a client of its own.
struct Scene {
    urls: String,
    locks: Locks,
    holder: Guard,
    waiters: usize,
    held: UnboundedSender<usize>,
    order: UnboundedReceiver<usize>,
}

impl Scene {
    async fn start(fleet: &Fleet, urls: String) -> Self {
        let locks = connect(&urls).await;
        let (held, order) = unbounded_channel();
        let scene = Self {
            holder: locks.mutex(NAME).lock().await.unwrap(),
            locks,
            urls,
            waiters: 0,
            held,
            order,
        };
        // A majority is enough for a grant, but not if a node of the majority will lose its data.
        for server in fleet.iter() {
            scene.holder_is_on(server).await;
        }
        scene
    }

    /// Adds a waiter and waits until it is in the queue of the `nodes` that are up.
    async fn add_waiter(&mut self, nodes: usize) {
        let (number, locks, held) = (self.waiters, connect(&self.urls).await, self.held.clone());
        self.waiters += 1;
        tokio::spawn(async move {
            let guard = locks.mutex(NAME).lock().await.unwrap();
            held.send(number).unwrap();
            guard.release().await.unwrap();
        });
        until_in_queue(&self.locks, self.waiters as u64, nodes).await;
        tokio::time::sleep(APART).await;
    }

    /// Waits until the holder is on `server`. A waiter may try there first, in vain.
    async fn holder_is_on(&self, server: &Server) {
        wait_until_async("the holder to be restored", PATIENCE, async || {
            assert_eq!(self.holder.check(), Ok(()));
            server.command(&["GET", NAME]) == self.holder.token().expose()
        })
        .await;
    }

    /// The holder releases, and the waiters get the lock in the order of their arrival.
    async fn ends_in_order(mut self) {
        // A node that held the lock may be down.
        let released = self.holder.release().await;
        assert!(
            matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
            "{released:?}"
        );
        for expected in 0..self.waiters {
            let next = tokio::time::timeout(PATIENCE, self.order.recv()).await;
            assert_eq!(
                next,
                Ok(Some(expected)),
                "of {} waiters in order of arrival",
                self.waiters
            );
        }
    }
}

async fn connect(urls: &str) -> Locks {
    let builder = Locks::builder().nodes(urls).ttl(TTL);
    builder.connect().await.unwrap()
}

/// Of five nodes, one is down, and one lost its data and does not vote: the other three vote.
#[tokio::test]
async fn with_five_nodes_waiters_keep_their_order_if_one_restarts_while_one_is_down() {
    let fleet = voting_fleet(5).await;
    let mut scene = Scene::start(&fleet, fleet.urls()).await;
    scene.add_waiter(5).await;
    scene.add_waiter(5).await;
    fleet[0].kill();
    fleet[1].restart();
    // The waiters are in the queue of the restarted node again, before every later waiter.
    scene.add_waiter(4).await;
    scene.add_waiter(4).await;
    scene.ends_in_order().await;
}

/// Of three nodes, the restarted one must vote, or no majority is left: so the test turns off the
/// quarantine.
#[tokio::test]
async fn with_three_nodes_waiters_keep_their_order_if_one_restarts_while_one_is_down() {
    let fleet = Fleet::start(3);
    let mut scene = Scene::start(&fleet, fleet.urls_without_quarantine()).await;
    scene.add_waiter(3).await;
    scene.add_waiter(3).await;
    fleet[0].kill();
    fleet[1].restart();
    scene.holder_is_on(&fleet[1]).await;
    scene.add_waiter(2).await;
    scene.add_waiter(2).await;
    scene.ends_in_order().await;
}

/// In the end no node has the data of the time when the first waiter arrived.
#[tokio::test]
async fn waiters_keep_their_order_if_all_nodes_restart_one_after_the_other() {
    let fleet = Fleet::start(3);
    let mut scene = Scene::start(&fleet, fleet.urls_without_quarantine()).await;
    scene.add_waiter(3).await;
    for server in fleet.iter() {
        server.restart();
        scene.holder_is_on(server).await;
        scene.add_waiter(3).await;
    }
    scene.ends_in_order().await;
}
