//! The workloads of a client: the same in every language.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use ringfence::clock::Clock;
use serde_json::json;

use super::{Client, pause};

/// Enters the lock repeatedly. The witness is a file that only one client can create.
pub(super) async fn contend<C: Client>(
    client: &C,
    name: &str,
    ttl: Duration,
    length: Duration,
    witness: &Path,
) -> Result<String, String> {
    let end = Clock::System.now() + length;
    let mut entered = 0;
    while Clock::System.now() < end {
        let Some(held) = client.acquire(name, ttl, false).await? else {
            pause(Duration::from_millis(5)).await;
            continue;
        };
        let alone = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(witness);
        if alone.is_err() {
            return Ok("broken another client was inside".to_owned());
        }
        entered += 1;
        pause(Duration::from_millis(2)).await;
        fs::remove_file(witness).map_err(|failure| failure.to_string())?;
        client.release(held).await?;
    }
    Ok(format!("entered {entered}"))
}

/// Locks and releases until the time is over. Times the wait if the lock is held, otherwise both.
pub(super) async fn again_and_again<C: Client>(
    client: &C,
    tasks: usize,
    length: Duration,
    name_of: impl Fn(usize) -> String,
    ttl: Duration,
    hold: Duration,
) -> Result<String, String> {
    let work = |task: usize| {
        let (client, name) = (client.clone(), name_of(task));
        async move {
            let mut times = Vec::new();
            let end = Clock::System.now() + length;
            loop {
                let begun = Clock::System.now();
                if begun >= end {
                    return Ok(times);
                }
                let held = client.acquire(&name, ttl, true).await?.ok_or("refused")?;
                let waited = Clock::System.now().since(begun);
                if !hold.is_zero() {
                    pause(hold).await;
                }
                client.release(held).await?;
                let both = Clock::System.now().since(begun);
                times.push(if hold.is_zero() { both } else { waited });
            }
        }
    };
    let (took, times) = together(tasks, work).await?;
    let counts = times.iter().map(Vec::len).collect();
    Ok(report(counts, took, times.concat()))
}

/// All tasks start at once, and each takes the lock once.
pub(super) async fn drain<C: Client>(
    client: &C,
    tasks: usize,
    name: &str,
    ttl: Duration,
    hold: Duration,
) -> Result<String, String> {
    let work = |_| {
        let (client, name) = (client.clone(), name.to_owned());
        async move {
            let held = client.acquire(&name, ttl, true).await?.ok_or("refused")?;
            pause(hold).await;
            client.release(held).await
        }
    };
    let (took, _) = together(tasks, work).await?;
    Ok(report(vec![1; tasks], took, Vec::new()))
}

/// Runs `work` for all tasks at once. Returns the time until the last was done.
async fn together<T, F>(
    tasks: usize,
    work: impl Fn(usize) -> F,
) -> Result<(Duration, Vec<T>), String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let begun = Clock::System.now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    let mut results = Vec::with_capacity(tasks);
    for task in running {
        results.push(task.await.map_err(|failure| failure.to_string())??);
    }
    Ok((Clock::System.now().since(begun), results))
}

fn report(counts: Vec<usize>, took: Duration, mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let quantile = |q: f64| {
        let at = (times.len().saturating_sub(1) as f64 * q) as usize;
        times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    json!({
        "counts": counts,
        "took_us": took.as_micros() as u64,
        "p50_us": quantile(0.5),
        "p99_us": quantile(0.99),
    })
    .to_string()
}
