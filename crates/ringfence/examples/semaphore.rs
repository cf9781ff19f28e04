//! At most two at once, each in a slot of its own.
//!
//! ```text
//! cargo run -p ringfence --example semaphore
//! ```

use ringfence::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    let downloads = locks.semaphore("downloads", 2);

    let (one, two) = (downloads.acquire().await?, downloads.acquire().await?);
    println!("slots {} and {} are taken", one.slot(), two.slot());
    println!(
        "a third is refused: {}",
        downloads.try_acquire().await.is_err()
    );
    one.release().await?;
    let three = downloads.acquire().await?;
    println!("slot {} again, with fence {}", three.slot(), three.fence());
    two.release().await?;
    three.release().await?;

    locks.close().await;
    Ok(())
}
