//! Work that stops when its lock is lost: `hold` drops it at its next await, and the caller learns
//! why. Here the lock may be held for half a second in all, and the work wants longer.
//!
//! ```text
//! cargo run -p ringfence --example hold_and_cancel
//! ```

use std::time::Duration;

use ringfence::{HoldError, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;

    let lock = locks
        .mutex("nightly-report")
        .max_hold(Duration::from_millis(500));
    let outcome = lock
        .hold(async |guard| {
            for step in 1.. {
                println!("step {step}, {:?} left", guard.remaining());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    match outcome {
        Ok(()) => println!("done"),
        Err(HoldError::Lost(why)) => println!("stopped in time: {why}"),
        Err(error) => return Err(error.into()),
    }

    locks.close().await;
    Ok(())
}
