//! Five real servers through contention, a loss, a dead node and a quarantine.

use std::time::Duration;

use ringfence::{Locks, Lost};
use ringfence_testkit::{Flavor, Fleet, Server, WallClock, wait_until_async};

use crate::metrics::exporter::{Exporter, Page};
use crate::metrics::prometheus::Prometheus;

/// Long enough for a busy machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const ACQUIRES: &str = "ringfence_acquire_duration_seconds_count";
const HOLDS: &str = "ringfence_hold_duration_seconds_count";
/// The node whose clock is ahead, the one that dies, and the one that is restarted.
const AHEAD: usize = 2;
const DEAD: usize = 3;
const RESTARTED: usize = 4;

struct Scene {
    fleet: Fleet,
    locks: Locks,
    exporter: Exporter,
    _clock: WallClock,
}

impl Scene {
    async fn set_up() -> Self {
        let exporter = Exporter::install();
        let clock = WallClock::ahead_by(2_000_000);
        let fleet = Fleet::start_with(5, |node| match node {
            AHEAD => Server::builder(Flavor::Redis).wall_clock(&clock),
            _ => Server::builder(Flavor::Redis),
        });
        let builder = Locks::builder()
            .nodes(&fleet.urls())
            .node_timeout(Duration::from_secs(1))
            .metric_names(["orders:{}", "scheduler"]);
        builder.clone().init().await.expect("a new cluster");
        let locks = builder.connect().await.expect("a client");
        Self {
            fleet,
            locks,
            exporter,
            _clock: clock,
        }
    }

    fn node(&self, node: usize) -> &str {
        &self.locks.node_names()[node]
    }

    /// Waits until the exporter's page satisfies `done`.
    #[track_caller]
    fn shows(&self, what: &str, done: impl Fn(&Page) -> bool) -> impl Future<Output = ()> {
        wait_until_async(what, PATIENCE, async move || done(&self.exporter.scrape()))
    }

    /// Takes and releases locks until the page satisfies `done`.
    async fn lock_until(&self, what: &str, done: impl Fn(&Page) -> bool) {
        wait_until_async(what, PATIENCE, async || {
            let guard = self.locks.mutex("probe").lock().await.expect("a majority");
            guard.release().await.expect("a majority");
            done(&self.exporter.scrape())
        })
        .await;
    }
}

#[tokio::test]
async fn an_exporter_shows_contention_a_loss_a_dead_node_and_a_quarantine() {
    let scene = Scene::set_up().await;
    // A client is connected once a majority has joined.
    let all_vote = |page: &Page| {
        let granted = page.samples("ringfence_votes_total");
        let granted = granted.filter(|sample| sample.contains("vote=\"granted\""));
        granted.filter(|sample| !sample.ends_with(" 0")).count() == 5
    };
    scene.lock_until("all nodes to vote", all_vote).await;
    contention(&scene).await;
    an_election(&scene).await;
    renewals_and_a_loss(&scene).await;
    clocks(&scene).await;
    a_dead_node(&scene).await;
    a_quarantine(&scene).await;
    totals(&scene);
    prometheus_agrees(&scene).await;
}

/// A holder, a caller that waits and a caller that does not.
async fn contention(scene: &Scene) {
    let lock = scene.locks.mutex("orders:42");
    let mutex = [("kind", "mutex"), ("name", "orders:{}")];
    let outcome = |outcome: &'static str| [mutex[0], mutex[1], ("outcome", outcome)];
    let guard = lock.lock().await.expect("it is free");
    assert_eq!(scene.exporter.scrape().value("ringfence_held", &mutex), 1.0);
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    let is_waiting = |page: &Page| page.find("ringfence_waiting", &mutex) == Some(1.0);
    scene.shows("a waiter", is_waiting).await;
    lock.try_lock().await.expect_err("it is held");
    let page = scene.exporter.scrape();
    assert_eq!(page.value(ACQUIRES, &outcome("held")), 1.0);
    assert_eq!(page.value(ACQUIRES, &outcome("granted")), 1.0);
    // A verdict needs only a majority, so the reply of one node may be late.
    let has_voted = |page: &Page| {
        let votes = |vote| {
            let labels = [("node", scene.node(0)), ("vote", vote)];
            page.value("ringfence_votes_total", &labels)
        };
        votes("granted") >= 1.0 && votes("held") >= 2.0
    };
    scene.shows("the votes of a node", has_voted).await;
    guard.release().await.expect("a majority");
    let second = waiter.await.expect("no panic").expect("it is free");
    let page = scene.exporter.scrape();
    assert_eq!(page.value("ringfence_waiting", &mutex), 0.0);
    assert_eq!(page.value("ringfence_held", &mutex), 1.0);
    assert_eq!(page.value(ACQUIRES, &outcome("granted")), 2.0);
    assert_eq!(page.value(HOLDS, &mutex), 1.0);
    second.release().await.expect("a majority");
    assert_eq!(scene.exporter.scrape().value("ringfence_held", &mutex), 0.0);
    let given_up = tokio::spawn({
        let held = lock.lock().await.expect("it is free");
        let lock = lock.clone();
        async move {
            let call = tokio::time::timeout(Duration::from_millis(50), lock.lock()).await;
            assert!(call.is_err());
            held.release().await
        }
    });
    given_up.await.expect("no panic").expect("a majority");
    let page = scene.exporter.scrape();
    assert_eq!(page.value(ACQUIRES, &outcome("dropped")), 1.0);
    assert_eq!(page.value("ringfence_waiting", &mutex), 0.0);
}

async fn an_election(scene: &Scene) {
    let named = [("name", "scheduler")];
    let lead = scene.locks.election("scheduler").campaign().await;
    let lead = lead.expect("no other candidate");
    let page = scene.exporter.scrape();
    assert_eq!(page.value("ringfence_leading", &named), 1.0);
    let held = page.value("ringfence_held", &[("kind", "election"), named[0]]);
    assert_eq!(held, 1.0);
    lead.resign().await.expect("a majority");
    assert_eq!(
        scene.exporter.scrape().value("ringfence_leading", &named),
        0.0
    );
}

async fn renewals_and_a_loss(scene: &Scene) {
    let renewed = |page: &Page| {
        let labels = [("outcome", "renewed"), ("name", "orders:{}")];
        page.value("ringfence_renewals_total", &labels) >= 1.0
    };
    let lock = scene.locks.mutex("orders:7").ttl(Duration::from_secs(6));
    let guard = lock.lock().await.expect("it is free");
    scene.shows("a renewal", renewed).await;
    guard.release().await.expect("a majority");
    let lost = [("reason", "expired"), ("name", "orders:{}")];
    let page = scene.exporter.scrape();
    assert_eq!(page.value("ringfence_losses_total", &lost), 0.0);
    let lock = lock.ttl(Duration::from_secs(1)).renew(false);
    let guard = lock.lock().await.expect("it is free");
    assert_eq!(guard.lost().await, Lost::Expired);
    let page = scene.exporter.scrape();
    assert_eq!(page.value("ringfence_losses_total", &lost), 1.0);
    assert_eq!(page.sum("ringfence_losses_total"), 1.0);
    let held = [("kind", "mutex"), ("name", "orders:{}")];
    assert_eq!(page.value("ringfence_held", &held), 0.0);
}

async fn clocks(scene: &Scene) {
    let page = scene.exporter.scrape();
    for node in 0..5 {
        let labels = [("node", scene.node(node))];
        let offset = page.value("ringfence_node_clock_offset_seconds", &labels);
        let wanted = if node == AHEAD { 2.0 } else { 0.0 };
        // The reply of a busy machine may take long.
        assert!((offset - wanted).abs() < 0.9, "{node}: {offset}");
        let trips = page.value("ringfence_node_round_trip_seconds_count", &labels);
        let seconds = page.value("ringfence_node_round_trip_seconds_sum", &labels);
        let votes = page.samples("ringfence_votes_total");
        let votes = votes.filter(|sample| sample.contains(scene.node(node)));
        assert!(trips >= 1.0 && seconds > 0.0, "{node}: {trips} {seconds}");
        assert!(votes.count() > 10, "every vote has its series");
    }
}

async fn a_dead_node(scene: &Scene) {
    let node = scene.node(DEAD);
    scene.fleet[DEAD].kill();
    let labels = [("node", node), ("vote", "failed")];
    let is_dead = |page: &Page| page.value("ringfence_votes_total", &labels) >= 1.0;
    scene
        .lock_until("the dead node to be noticed", is_dead)
        .await;
    let page = scene.exporter.scrape();
    let other = [("node", scene.node(0)), ("vote", "failed")];
    assert_eq!(page.value("ringfence_votes_total", &other), 0.0);
}

async fn a_quarantine(scene: &Scene) {
    let labels = [("node", scene.node(RESTARTED))];
    let quarantined = |page: &Page| page.value("ringfence_node_quarantined", &labels);
    assert_eq!(quarantined(&scene.exporter.scrape()), 0.0);
    scene.fleet[RESTARTED].restart();
    scene
        .lock_until("the quarantine", |page| quarantined(page) == 1.0)
        .await;
    let page = scene.exporter.scrape();
    assert_eq!(page.sum("ringfence_node_quarantined"), 1.0);
    let vote = [labels[0], ("vote", "quarantined")];
    scene
        .lock_until("a vote that does not count", |page| {
            page.value("ringfence_votes_total", &vote) >= 1.0
        })
        .await;
}

/// The exporter and the stats say the same.
fn totals(scene: &Scene) {
    let (page, stats) = (scene.exporter.scrape(), scene.locks.stats());
    let granted = page.samples(ACQUIRES);
    let granted = granted.filter(|sample| sample.contains("outcome=\"granted\""));
    let granted: f64 = granted
        .map(|sample| sample.rsplit_once(' ').expect("a value").1)
        .map(|value| value.parse::<f64>().expect("a number"))
        .sum();
    assert_eq!(granted, stats.granted as f64);
    assert_eq!(page.sum(HOLDS), (stats.released + stats.lost) as f64);
    assert_eq!(page.sum("ringfence_held"), 0.0);
    assert!(stats.nodes[DEAD].failed > 0);
    let unnamed = page.samples("ringfence_held");
    let unnamed = unnamed.filter(|sample| sample.contains("probe"));
    assert_eq!(unnamed.count(), 0, "a name without a template is no label");
}

/// A real Prometheus scrapes the exporter, and has every series with its labels and its value.
async fn prometheus_agrees(scene: &Scene) {
    let prometheus = Prometheus::scraping(scene.exporter.address());
    let (mut shown, mut stored) = Default::default();
    wait_until_async("Prometheus to have every series", PATIENCE, async || {
        shown = scene.exporter.scrape().series();
        stored = prometheus.series("{__name__=~\"ringfence_.+\"}");
        shown == stored
    })
    .await;
    assert!(shown.len() > 200, "{shown:?}");
}
