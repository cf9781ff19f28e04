//! The Rust clients behind the line protocol: rslock, and ringfence itself, so that all contenders
//! are processes of the same kind.

mod pause;
mod ringfence;
mod rslock;
mod workload;

use std::future::Future;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

pub use pause::pause;

/// A lock client with what the workloads need.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    /// What has to be released.
    type Held: Send;

    /// Takes `name`, waiting for it or not. `None` if it was refused.
    fn acquire(
        &self,
        name: &str,
        ttl: Duration,
        wait: bool,
    ) -> impl Future<Output = Result<Option<Self::Held>, String>> + Send;

    /// Releases it.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), String>> + Send;
}

/// Serves `LIBRARY URL,URL,…` until the input ends.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.collect();
    let [library, urls] = &arguments[..] else {
        eprintln!("usage: ringfence-peer ringfence|ringfence-plain|rslock URL,URL,…");
        return ExitCode::from(64);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(failure) => {
            eprintln!("ringfence-peer: {failure}");
            return ExitCode::from(70);
        }
    };
    let served = runtime.block_on(async {
        match library.as_str() {
            "ringfence" => converse(ringfence::Fenced::connect(urls).await?).await,
            "ringfence-plain" => converse(ringfence::Plain::connect(urls).await?).await,
            "rslock" => converse(rslock::Rslock::connect(urls)).await,
            other => Err(format!("unknown client: {other:?}")),
        }
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ringfence-peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Answers each line with one line.
async fn converse<C: Client>(client: C) -> Result<(), String> {
    let mut held = None;
    print_line("ready")?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|failure| failure.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = answer(&client, &mut held, &words).await;
        print_line(
            &reply.unwrap_or_else(|failure| format!("error {}", failure.replace('\n', " "))),
        )?;
    }
    Ok(())
}

fn print_line(line: &str) -> Result<(), String> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|failure| failure.to_string())
}

async fn answer<C: Client>(
    client: &C,
    held: &mut Option<C::Held>,
    words: &[&str],
) -> Result<String, String> {
    match *words {
        ["try", name, ttl] => {
            *held = client.acquire(name, millis(ttl)?, false).await?;
            Ok(if held.is_some() { "held" } else { "refused" }.to_owned())
        }
        ["release"] => {
            let held = held.take().ok_or("nothing is held")?;
            client.release(held).await.map(|()| "released".to_owned())
        }
        ["contend", name, ttl, length, witness] => {
            workload::contend(
                client,
                name,
                millis(ttl)?,
                millis(length)?,
                witness.as_ref(),
            )
            .await
        }
        ["cycles", tasks, length, prefix, ttl] => {
            let name = |task| format!("{prefix}:{task}");
            workload::again_and_again(
                client,
                count(tasks)?,
                millis(length)?,
                name,
                millis(ttl)?,
                Duration::ZERO,
            )
            .await
        }
        ["share", tasks, length, name, ttl, hold] => {
            let name = |_| name.to_owned();
            workload::again_and_again(
                client,
                count(tasks)?,
                millis(length)?,
                name,
                millis(ttl)?,
                micros(hold)?,
            )
            .await
        }
        ["drain", tasks, name, ttl, hold] => {
            workload::drain(client, count(tasks)?, name, millis(ttl)?, micros(hold)?).await
        }
        _ => Err(format!("unknown command: {}", words.join(" "))),
    }
}

fn count(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("not a number: {word}"))
}

fn millis(word: &str) -> Result<Duration, String> {
    Ok(Duration::from_millis(count(word)? as u64))
}

fn micros(word: &str) -> Result<Duration, String> {
    Ok(Duration::from_micros(count(word)? as u64))
}
