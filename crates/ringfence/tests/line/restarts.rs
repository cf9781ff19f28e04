//! Whoever has waited for long keeps its place when nodes restart, empty, while others are down.

use std::time::Duration;

use ringfence::{Guard, Locks, ReleaseError};
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::worker::{NAME, grown_up, in_line};

const PATIENCE: Duration = Duration::from_secs(20);
/// Renewed, and put back on nodes that forgot it, every two seconds.
const TTL: Duration = Duration::from_secs(6);
/// See `clocks`: they come one after the other by every clock.
const APART: Duration = Duration::from_millis(200);

/// A lock that is held, and those who wait for it, each a client of its own.
struct Scene {
    urls: String,
    locks: Locks,
    holder: Guard,
    came: usize,
    held: UnboundedSender<usize>,
    order: UnboundedReceiver<usize>,
}

impl Scene {
    async fn begin(fleet: &Fleet, urls: String) -> Self {
        let locks = connect(&urls).await;
        let (held, order) = unbounded_channel();
        let scene = Self {
            holder: locks.mutex(NAME).lock().await.unwrap(),
            locks,
            urls,
            came: 0,
            held,
            order,
        };
        // A majority is enough for a grant, but not if one of it is to forget.
        for server in fleet.iter() {
            scene.holder_is_on(server).await;
        }
        scene
    }

    /// One more comes, and is in line on the `nodes` that are up.
    async fn one_more(&mut self, nodes: usize) {
        let (number, locks, held) = (self.came, connect(&self.urls).await, self.held.clone());
        self.came += 1;
        tokio::spawn(async move {
            let guard = locks.mutex(NAME).lock().await.unwrap();
            held.send(number).unwrap();
            guard.release().await.unwrap();
        });
        in_line(&self.locks, self.came as u64, nodes).await;
        tokio::time::sleep(APART).await;
    }

    /// Waits until the holder is back on `server`. Somebody who waits may try there first, in vain.
    async fn holder_is_on(&self, server: &Server) {
        wait_until_async("the holder to be restored", PATIENCE, async || {
            assert_eq!(self.holder.check(), Ok(()));
            server.command(&["GET", NAME]) == self.holder.token().expose()
        })
        .await;
    }

    /// The holder lets go, and all go in the order in which they came.
    async fn ends_in_order(mut self) {
        // Of those who had it, one may be down.
        let released = self.holder.release().await;
        assert!(
            matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
            "{released:?}"
        );
        for expected in 0..self.came {
            let next = tokio::time::timeout(PATIENCE, self.order.recv()).await;
            assert_eq!(
                next,
                Ok(Some(expected)),
                "of {} who came in order",
                self.came
            );
        }
    }
}

async fn connect(urls: &str) -> Locks {
    let builder = Locks::builder().nodes(urls).ttl(TTL);
    builder.connect().await.unwrap()
}

/// Of five, one is down, and one forgets and does not vote: the other three do.
#[tokio::test]
async fn of_five_nodes_one_restarts_while_another_is_down() {
    let fleet = grown_up(5).await;
    let mut scene = Scene::begin(&fleet, fleet.urls()).await;
    scene.one_more(5).await;
    scene.one_more(5).await;
    fleet[0].kill();
    fleet[1].restart();
    // Back in line where they were forgotten, and nobody who comes later is ahead of them there.
    scene.one_more(4).await;
    scene.one_more(4).await;
    scene.ends_in_order().await;
}

/// Of three, the one that restarted must vote, or nobody could be granted anything: so it is allowed
/// to.
#[tokio::test]
async fn of_three_nodes_one_restarts_while_another_is_down() {
    let fleet = Fleet::start(3);
    let mut scene = Scene::begin(&fleet, fleet.urls_without_quarantine()).await;
    scene.one_more(3).await;
    scene.one_more(3).await;
    fleet[0].kill();
    fleet[1].restart();
    scene.holder_is_on(&fleet[1]).await;
    scene.one_more(2).await;
    scene.one_more(2).await;
    scene.ends_in_order().await;
}

/// In the end no node is left that was there when the first of them came.
#[tokio::test]
async fn all_nodes_restart_one_after_the_other() {
    let fleet = Fleet::start(3);
    let mut scene = Scene::begin(&fleet, fleet.urls_without_quarantine()).await;
    scene.one_more(3).await;
    for server in fleet.iter() {
        server.restart();
        scene.holder_is_on(server).await;
        scene.one_more(3).await;
    }
    scene.ends_in_order().await;
}
