//! Three shards are imported at once; a reader of all of them waits until the last has arrived.
//!
//! ```text
//! cargo run -p ringfence --example latch
//! ```

use ringfence::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    // A latch opens once: what it is about belongs into its name.
    let imported = locks.latch("imported:2026-11-15", 3);

    let waiter = imported.clone();
    let waiting = tokio::spawn(async move { waiter.opened().await });
    for shard in ["eu", "us", "asia"] {
        // A shard that is imported twice, after a crash say, counts once.
        let arrival = imported.clone().party(shard).arrive().await?;
        println!("{shard} is there, {} missing", arrival.missing);
    }
    waiting.await??;
    println!("all are there");

    locks.close().await;
    Ok(())
}
