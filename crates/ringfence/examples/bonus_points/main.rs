//! Points for an order, once. The message "order 17 was paid" may arrive twice: at the same time
//! (a user clicks twice), or a day later (a queue delivers again). A lock keeps two workers apart.
//! It does not know that the work was done yesterday: that is the job of the database.
//!
//! ```text
//! cargo run -p ringfence --features sqlite --example bonus_points
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use ringfence::Locks;
use rusqlite::{Connection, params};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The source of points: no source may give a user points twice.
const SOURCE: (i64, &str, i64) = (7, "order", 17);
const POINTS: i64 = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let nodes = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let locks = Locks::connect(&nodes).await?;
    let folder = tempfile::tempdir()?;

    let ledger = Ledger::create(&folder.path().join("lock-only.db"), "")?;
    for _ in 0..2 {
        locks
            .mutex("bonus:7")
            .hold(async |_| ledger.add())
            .await??;
    }
    show(
        ledger.points()? == 2 * POINTS,
        "lock only:        the message arrives again later: 200 points",
    )?;

    let (one, two) = Ledger::pair(&folder.path().join("check-only.db"))?;
    let both_unknown = !one.is_known()? && !two.is_known()?;
    one.add()?;
    two.add()?;
    show(
        both_unknown && one.points()? == 2 * POINTS,
        "check only:       two workers check, then both add: 200 points",
    )?;

    let ledger = Ledger::create(&folder.path().join("both.db"), "")?;
    for _ in 0..2 {
        let add = async |_: &_| {
            if ledger.is_known()? {
                Ok(())
            } else {
                ledger.add()
            }
        };
        locks.mutex("bonus:7").hold(add).await??;
    }
    show(
        ledger.points()? == POINTS,
        "lock and check:   100 points, as long as every worker has the lock in time",
    )?;

    let added = add_at_once(&folder.path().join("unique.db"), 10).await?;
    show(
        added == (1, POINTS),
        "unique key:       ten workers at once, no lock, no check: 1 added, 100 points",
    )?;
    locks.close().await;
    Ok(())
}

/// Ten workers add at the same time, each with its own connection; how many did, and the points.
async fn add_at_once(database: &Path, workers: usize) -> Outcome<(usize, i64)> {
    let ledger = Ledger::create(database, ", UNIQUE (user, source_type, source_id)")?;
    let mut adding = Vec::new();
    for _ in 0..workers {
        let worker = Ledger::open(database)?;
        adding.push(tokio::task::spawn_blocking(move || worker.add_once()));
    }
    let mut added = 0;
    for worker in adding {
        added += worker.await??;
    }
    Ok((added, ledger.points()?))
}

/// The table of points.
struct Ledger(Connection);

impl Ledger {
    fn create(database: &Path, constraint: &str) -> rusqlite::Result<Self> {
        let ledger = Self::open(database)?;
        ledger.0.execute_batch(&format!(
            "CREATE TABLE bonus (user INTEGER, source_type TEXT, source_id INTEGER,
                                 points INTEGER{constraint})"
        ))?;
        Ok(ledger)
    }

    /// The connections of two workers.
    fn pair(database: &Path) -> rusqlite::Result<(Self, Self)> {
        Ok((Self::create(database, "")?, Self::open(database)?))
    }

    fn open(database: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(database)?;
        connection.busy_timeout(Duration::from_secs(20))?;
        Ok(Self(connection))
    }

    fn is_known(&self) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM bonus
                   WHERE user = ?1 AND source_type = ?2 AND source_id = ?3)";
        self.0.query_row(sql, SOURCE, |row| row.get(0))
    }

    fn add(&self) -> rusqlite::Result<()> {
        let (user, kind, id) = SOURCE;
        let sql = "INSERT INTO bonus VALUES (?1, ?2, ?3, ?4)";
        self.0
            .execute(sql, params![user, kind, id, POINTS])
            .map(|_| ())
    }

    /// The unique key decides: 1 if this worker was the first, otherwise 0.
    fn add_once(&self) -> rusqlite::Result<usize> {
        let (user, kind, id) = SOURCE;
        let sql = "INSERT INTO bonus VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        self.0.execute(sql, params![user, kind, id, POINTS])
    }

    fn points(&self) -> rusqlite::Result<i64> {
        self.0
            .query_row("SELECT sum(points) FROM bonus", [], |row| row.get(0))
    }
}

/// Prints what the program shows, if it is true.
fn show(is_true: bool, what: &str) -> Outcome {
    if !is_true {
        return Err(format!("this did not happen: {what}").into());
    }
    println!("{what}");
    Ok(())
}
