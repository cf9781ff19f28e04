//! One task on a master under Sentinel: what the Sentinels add to a lock and its release. The same
//! master is measured in turn by its own address and through its three Sentinels.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Flavor, SentinelGroup};

use crate::sheet::{Aim, Cell, Sheet};
use crate::times;

/// How many locks are measured together, before a look at the time.
const CHUNK: usize = 100;

pub(crate) async fn measure(rounds: usize, ms: u64) -> Sheet {
    let group = SentinelGroup::start(Flavor::Redis);
    let url = group.url();
    // A database of its own: clients with Sentinels and without do not share a birth record.
    let master = format!("{}/1", group.master().url());
    let ways = [("plain URL", master.as_str()), ("Sentinel", url.as_str())];
    let mut clients = Vec::new();
    for (_, url) in ways {
        let builder = Locks::builder().nodes(url);
        builder.init().await.expect("init");
        clients.push(Locks::connect(url).await.expect("a client"));
    }
    let mut p50: [Vec<f64>; 2] = Default::default();
    let mut p99: [Vec<f64>; 2] = Default::default();
    for round in 0..=rounds {
        for turn in 0..2 {
            // In each round the other one is first. The first round is not counted.
            let way = (round + turn) % 2;
            let mut times = for_a_while(&clients[way], Duration::from_millis(ms)).await;
            if round > 0 {
                let us = |time: Duration| time.as_secs_f64() * 1e6;
                p50[way].push(us(times::quantile(&mut times, 0.5)));
                p99[way].push(us(times::quantile(&mut times, 0.99)));
            }
        }
    }
    let title = "Latency: lock + release, 1 task, one master with two replicas";
    let mut sheet = Sheet::new("sentinel", title, &["p50 µs", "p99 µs"]);
    for (way, (name, _)) in ways.iter().enumerate() {
        let cells = [&p50[way], &p99[way]].map(|rounds| Cell::of(rounds.iter().copied()));
        sheet.row(*name, cells.to_vec());
    }
    let ratios = p50[1].iter().zip(&p50[0]).map(|(ours, plain)| ours / plain);
    let ratio = Cell::of(ratios).map(|ratio| ratio.median);
    sheet.judge(
        "p50 with Sentinel to plain URL, round by round",
        ratio,
        Aim::AtMost(1.25),
    );
    sheet
}

async fn for_a_while(locks: &Locks, span: Duration) -> Vec<Duration> {
    let mut times = Vec::new();
    while times.iter().sum::<Duration>() < span {
        times.extend(times::uncontended(locks, CHUNK).await);
    }
    times
}
