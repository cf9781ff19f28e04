//! The demo that Redlock articles end with: three nodes, a TTL of 10 s, one second of work. Run it
//! twice at once, and the second copy works when the first is done.
//!
//! ```text
//! for port in 7001 7002 7003; do redis-server --port $port --save '' --daemonize yes; done
//! export RINGFENCE_NODES=redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003
//! cargo run --release -- init
//! cargo build -p ringfence --example redlock_demo
//! target/debug/examples/redlock_demo & target/debug/examples/redlock_demo
//! ```

use std::time::Duration;

use ringfence::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::var("RINGFENCE_NODES").map_err(|_| "set RINGFENCE_NODES")?;
    let locks = Locks::connect(&nodes).await?;

    let guard = locks
        .mutex("this-is-a-key-002")
        .ttl(Duration::from_secs(10))
        .lock()
        .await?;
    println!("{} has begun, fence {}", std::process::id(), guard.fence());
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{} has finished", std::process::id());
    guard.release().await?;

    locks.close().await;
    Ok(())
}
