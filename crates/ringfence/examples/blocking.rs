//! The same without async.
//!
//! ```text
//! cargo run -p ringfence --features blocking --example blocking
//! ```

use std::time::Duration;

use ringfence::blocking::Locks;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes)?;

    let guard = locks
        .mutex("orders:42")
        .wait(Duration::from_secs(5))
        .lock()?;
    println!("holding {} with fence {}", guard.name(), guard.fence());
    guard.release()?;

    let fence = locks.mutex("orders:42").hold(|guard| guard.fence())?;
    println!("held it again with fence {fence}");

    locks.close();
    Ok(())
}
