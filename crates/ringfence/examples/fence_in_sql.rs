//! The fence at work: a holder that paused for too long comes back and writes, and the database
//! refuses, because a holder with a higher fence has written since.
//!
//! ```text
//! cargo run -p ringfence --features sqlite --example fence_in_sql
//! ```

use std::time::Duration;

use ringfence::Locks;
use ringfence::resource::sql::{self, SQLITE};
use ringfence::resource::{Marks, Refused};
use rusqlite::{Connection, TransactionBehavior, params};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    let mut database = Connection::open_in_memory()?;
    database.execute(SQLITE.create, [])?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER);
         INSERT INTO account VALUES (1, 100);",
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
    deposit(&mut database, 50, awake.fence())?;
    awake.release().await?;

    println!("the first holder wakes up and writes");
    let outcome = deposit(&mut database, -10, paused.fence());
    let refusal = outcome.expect_err("a late write got through");
    println!("refused: {refusal}");

    drop(paused);
    locks.close().await;
    Ok(())
}

/// Adds to the balance, unless a holder with a higher fence has used the account before.
fn deposit(
    database: &mut Connection,
    amount: i64,
    fence: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Raise the mark first, then read, then write, all in one transaction.
    let resource = "account:1";
    if transaction.execute(SQLITE.admit_write, params![resource, sql::number(fence)])? == 0 {
        let marks = transaction.query_row(SQLITE.marks, [resource], |row| {
            Ok(Marks::from_row(row.get(0)?, row.get(1)?))
        })?;
        let mark = marks.writer_needs();
        return Err(Refused { fence, mark }.into());
    }
    let update = "UPDATE account SET balance = balance + ?1 WHERE id = 1";
    transaction.execute(update, [amount])?;
    transaction.commit()?;
    Ok(())
}
