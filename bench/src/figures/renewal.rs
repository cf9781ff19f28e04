//! Very many guards in one process that renew themselves: what the process costs.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Guard, Locks};
use ringfence_testkit::Fleet;
use serde_json::{Value, json};

use crate::cost::{core_seconds, resident_bytes};
use crate::sheet::{Aim, Cell, Sheet};

const TTL: Duration = Duration::from_secs(30);
/// Renewal is at a third of the TTL: this is two periods.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) fn measure(nodes: usize) -> Sheet {
    let title = format!("Renewal: guards in one process, TTL 30 s, {nodes} nodes");
    let mut sheet = Sheet::new(
        "renewal",
        title,
        &["% of one core", "bytes per guard", "lost"],
    );
    for (guards, bar) in [(10_000, 5.0), (100_000, 50.0)] {
        let fleet = Fleet::start(nodes);
        let this = env::current_exe().expect("this program");
        let watched = watch(&this, &fleet.urls_without_quarantine(), guards);
        let cell = |key: &str| Cell::of(watched[key].as_f64());
        sheet.row(
            format!("{guards} guards"),
            vec![cell("percent"), cell("bytes"), cell("lost")],
        );
        let percent = watched["percent"].as_f64();
        sheet.judge(
            format!("{guards} guards, % of one core"),
            percent,
            Aim::AtMost(bar),
        );
        let bytes = watched["bytes"].as_f64();
        sheet.judge(
            format!("{guards} guards, bytes each"),
            bytes,
            Aim::AtMost(1024.0),
        );
    }
    sheet
}

/// Runs [`hold`] in its own process, of this program or another build of it.
pub(super) fn watch(program: &Path, urls: &str, guards: usize) -> Value {
    let output = Command::new(program)
        .args(["hold", &guards.to_string(), urls])
        .stderr(Stdio::inherit())
        .output()
        .expect("a process");
    serde_json::from_slice(&output.stdout).expect("what it measured")
}

/// Takes `count` locks, holds them, and prints what that cost.
pub(crate) async fn hold(count: usize, urls: &str) {
    let this = std::process::id();
    let locks = Locks::connect(urls).await.expect("a client");
    drop(
        locks
            .mutex("bench:warm")
            .ttl(TTL)
            .lock()
            .await
            .expect("a lock"),
    );
    let before = resident_bytes(this);
    let guards = take(&locks, count).await;
    // The first renewals are over, and the temporary memory of taking the locks is freed.
    tokio::time::sleep(TTL / 3).await;
    let bytes = (resident_bytes(this) - before) / count as f64;

    let (begun, cost) = (Clock::System.now(), core_seconds(this));
    tokio::time::sleep(WATCHED).await;
    let seconds = Clock::System.now().since(begun).as_secs_f64();
    let percent = (core_seconds(this) - cost) / seconds * 100.0;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    println!(
        "{}",
        json!({ "percent": percent, "bytes": bytes, "lost": lost })
    );
    // Releasing all of them is not measured.
    std::process::exit(0);
}

async fn take(locks: &Locks, count: usize) -> Vec<Guard> {
    const AT_ONCE: usize = 128;
    let tasks = (0..AT_ONCE).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut guards = Vec::new();
            for number in (task..count).step_by(AT_ONCE) {
                let lock = locks.mutex(format!("bench:{number}")).ttl(TTL);
                guards.push(lock.lock().await.expect("a lock"));
            }
            guards
        })
    });
    let mut guards = Vec::with_capacity(count);
    for task in tasks.collect::<Vec<_>>() {
        guards.extend(task.await.expect("no panic"));
    }
    guards
}
