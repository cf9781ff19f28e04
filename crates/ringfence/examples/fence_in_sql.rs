//! The fence at work: a holder that paused for too long comes back and writes, and the database
//! refuses, because somebody with a higher fence has written since.
//!
//! ```text
//! cargo run -p ringfence --features sqlite --example fence_in_sql
//! ```

use std::time::Duration;

use ringfence::Locks;
use rusqlite::{Connection, params};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER);
         INSERT INTO account VALUES (1, 100, 0);",
    )?;

    let lock = locks.mutex("account:1").ttl(Duration::from_millis(200));
    let paused = lock.clone().renew(false).lock().await?;
    println!(
        "the first holder has fence {} and falls asleep",
        paused.fence()
    );
    paused.lost().await;

    let awake = lock.lock().await?;
    println!("the second holder has fence {} and writes", awake.fence());
    assert!(write(&database, 150, awake.fence())?);
    awake.release().await?;

    println!("the first holder wakes up and writes");
    let accepted = write(&database, 90, paused.fence())?;
    println!("accepted: {accepted}");
    assert!(!accepted, "a late write got through");

    drop(paused);
    locks.close().await;
    Ok(())
}

/// Writes only if nobody with a higher fence has written before.
fn write(database: &Connection, balance: i64, fence: u64) -> rusqlite::Result<bool> {
    // Fences stay below 2^53.
    let fence = fence as i64;
    let changed = database.execute(
        "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2",
        params![balance, fence],
    )?;
    Ok(changed == 1)
}
