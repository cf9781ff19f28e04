//! Many readers at once, or one writer; and a writer that becomes a reader without letting others
//! in.
//!
//! ```text
//! cargo run -p ringfence --example read_write
//! ```

use ringfence::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    let lock = locks.rw_lock("catalogue");

    let (one, two) = (lock.read().await?, lock.read().await?);
    println!(
        "two read at once; writing is refused: {}",
        lock.try_write().await.is_err()
    );
    one.release().await?;
    two.release().await?;

    let writer = lock.write().await?;
    println!("one writes, with fence {}", writer.fence());
    let reader = writer.downgrade().await?;
    println!(
        "and reads on, with others: {}",
        lock.try_read().await.is_ok()
    );
    reader.release().await?;

    locks.close().await;
    Ok(())
}
