//! A program as a new user writes it: `main` with `?`, errors with `anyhow`, and a log at the defaults
//! of `tracing_subscriber::fmt()`. The tests beside it start it and read what it prints.
//!
//! Arguments: what to do, and the nodes.

use std::error::Error;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use ringfence::Locks;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut args = std::env::args().skip(1);
    let what = args.next().ok_or("what to do")?;
    let nodes = args.next().ok_or("the nodes")?;
    let runtime = tokio::runtime::Runtime::new()?;
    match what.as_str() {
        // Rust prints `Error: ` and the `Debug` text of what `main` returns.
        "main" => runtime.block_on(work(&nodes))?,
        "ready" => runtime.block_on(async {
            let locks = Locks::connect(&nodes).await?;
            locks.ready_within(Duration::from_millis(500)).await
        })?,
        "anyhow main" | "anyhow line" => {
            if let Err(error) = runtime.block_on(work_with_context(&nodes)) {
                match what.as_str() {
                    "anyhow main" => eprintln!("Error: {error:?}"),
                    _ => eprintln!("Error: {error:#}"),
                }
                return Ok(ExitCode::FAILURE);
            }
        }
        "lines" => runtime.block_on(lock_at_each_line(&nodes))?,
        _ => return Err("unknown".into()),
    }
    Ok(ExitCode::SUCCESS)
}

async fn work(nodes: &str) -> Result<(), Box<dyn Error>> {
    let locks = Locks::connect(nodes).await?;
    let lock = locks.mutex("orders:42").wait(Duration::from_millis(500));
    let guard = lock.lock().await?;
    guard.release().await?;
    Ok(())
}

async fn work_with_context(nodes: &str) -> anyhow::Result<()> {
    let locks = Locks::connect(nodes).await?;
    let lock = locks.mutex("orders:42").wait(Duration::from_millis(500));
    lock.lock().await?.release().await?;
    Ok(())
}

/// Takes a lock and releases it at each line of the input.
async fn lock_at_each_line(nodes: &str) -> Result<(), Box<dyn Error>> {
    let locks = Locks::connect(nodes).await?;
    for line in std::io::stdin().lock().lines() {
        let lock = locks.mutex(line?).wait(Duration::from_millis(500));
        match lock.lock().await {
            Ok(guard) => println!("fence {}", guard.fence()),
            Err(error) => println!("no lock: {error}"),
        }
    }
    Ok(())
}
