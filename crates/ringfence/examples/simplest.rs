//! The simplest lock: take it, use the fence, give it back.
//!
//! ```text
//! cargo run -p ringfence --example simplest
//! cargo run -p ringfence --example simplest -- redis://127.0.0.1:6379
//! ```

use ringfence::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;

    let guard = locks.mutex("orders:42").lock().await?;
    println!("holding {} with fence {}", guard.name(), guard.fence());
    guard.release().await?;

    locks.close().await;
    Ok(())
}
