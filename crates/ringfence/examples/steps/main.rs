//! From `SETNX` to a fenced lock in nine steps, the programs of `docs/guide.md`. Each shows how the
//! lock of the step before fails, and what repairs it, on real servers that it starts itself.
//!
//! ```text
//! cargo run -p ringfence --example steps            # all of them
//! cargo run -p ringfence --example steps -- quorum  # one
//! ```
//!
//! `redis-server` must be installed. The servers listen on free loopback ports and end with the
//! program.

mod failover;
mod no_expiry;
mod paused_holder;
mod quorum;
mod release;
mod renewal;
mod simple_client;
mod slow_acquire;
mod two_commands;
mod waiting;

use std::error::Error;

type Outcome = Result<(), Box<dyn Error>>;

const STEPS: [&str; 9] = [
    "no-expiry",
    "two-commands",
    "release",
    "waiting",
    "slow-acquire",
    "renewal",
    "failover",
    "quorum",
    "paused-holder",
];

// Several threads: a step may block one of them while it waits for a process.
#[tokio::main(flavor = "multi_thread")]
async fn main() -> Outcome {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    match chosen.as_slice() {
        [] => {
            for step in STEPS {
                println!("== {step}");
                run(step).await?;
            }
            Ok(())
        }
        // The process that the last step stops and continues.
        [step, urls] if step == paused_holder::PROCESS => paused_holder::hold(urls).await,
        [step] => run(step).await,
        _ => Err("name one step, or none for all".into()),
    }
}

async fn run(step: &str) -> Outcome {
    match step {
        "no-expiry" => no_expiry::run().await,
        "two-commands" => two_commands::run().await,
        "release" => release::run().await,
        "waiting" => waiting::run().await,
        "slow-acquire" => slow_acquire::run().await,
        "renewal" => renewal::run().await,
        "failover" => failover::run().await,
        "quorum" => quorum::run().await,
        "paused-holder" => paused_holder::run().await,
        _ => Err(format!("no such step: {step}; there are {}", STEPS.join(", ")).into()),
    }
}

/// Prints what a step shows, if it is true; otherwise the step has shown nothing and fails.
fn show(is_true: bool, what: &str) -> Outcome {
    if !is_true {
        return Err(format!("this did not happen: {what}").into());
    }
    println!("{what}");
    Ok(())
}
