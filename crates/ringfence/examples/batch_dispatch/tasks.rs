//! The table of tasks, and how a task goes from one status to the next. Every step that may happen
//! twice is a conditional update: it names the status that it expects, and the number of changed
//! rows tells whether it was the first.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

/// How often a task is tried.
pub(crate) const MAX_RUNS: i64 = 2;

/// What `status` means. A task that succeeded is moved to `results`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending = 1,
    Enqueued = 2,
    Processing = 3,
    /// It failed, and will be tried again.
    Failed = 4,
    /// It failed for the last time.
    GivenUp = 5,
}

pub(crate) struct Tasks(Connection);

impl Tasks {
    pub(crate) fn open(database: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(database)?;
        connection.busy_timeout(Duration::from_secs(20))?;
        Ok(Self(connection))
    }

    /// New tables with `count` pending tasks, numbered from 1.
    pub(crate) fn create(&self, count: i64) -> rusqlite::Result<()> {
        self.0.execute_batch(
            "DROP TABLE IF EXISTS tasks;
             DROP TABLE IF EXISTS results;
             CREATE TABLE tasks (
                 id INTEGER PRIMARY KEY,
                 status INTEGER NOT NULL DEFAULT 1,
                 since REAL NOT NULL DEFAULT (unixepoch('subsec')), -- the clock of the database
                 runs INTEGER NOT NULL DEFAULT 0
             );
             CREATE TABLE results (task INTEGER PRIMARY KEY);",
        )?;
        for id in 1..=count {
            self.0.execute("INSERT INTO tasks (id) VALUES (?1)", [id])?;
        }
        Ok(())
    }

    /// The tasks that have to go into the queue.
    pub(crate) fn pending(&self) -> rusqlite::Result<Vec<i64>> {
        let sql = "SELECT id FROM tasks WHERE status IN (1, 4) ORDER BY id";
        let mut statement = self.0.prepare(sql)?;
        let ids = statement.query_map([], |row| row.get(0))?;
        ids.collect()
    }

    /// Marks a task as enqueued, whatever it was.
    pub(crate) fn mark_enqueued(&self, id: i64) -> rusqlite::Result<()> {
        let sql = "UPDATE tasks SET status = 2, since = unixepoch('subsec') WHERE id = ?1";
        self.0.execute(sql, [id]).map(|_| ())
    }

    /// Marks a task as enqueued if no other instance has: the update is the lock.
    pub(crate) fn claim(&self, id: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE tasks SET status = 2, since = unixepoch('subsec')
                   WHERE id = ?1 AND status IN (1, 4)";
        Ok(self.0.execute(sql, [id])? == 1)
    }

    /// The number of this run, if the task is enqueued and no other consumer has taken it.
    pub(crate) fn begin(&self, id: i64) -> rusqlite::Result<Option<i64>> {
        let sql = "UPDATE tasks SET status = 3, since = unixepoch('subsec'), runs = runs + 1
                   WHERE id = ?1 AND status = 2 RETURNING runs";
        self.0.query_row(sql, [id], |row| row.get(0)).optional()
    }

    /// Whether this run still had the task, which is done then.
    pub(crate) fn succeed(&mut self, id: i64, run: i64) -> rusqlite::Result<bool> {
        let transaction = self.0.transaction()?;
        let sql = "DELETE FROM tasks WHERE id = ?1 AND status = 3 AND runs = ?2";
        let ours = transaction.execute(sql, [id, run])? == 1;
        if ours {
            transaction.execute("INSERT INTO results VALUES (?1)", [id])?;
        }
        transaction.commit()?;
        Ok(ours)
    }

    /// Ends a run without success.
    pub(crate) fn fail(&self, id: i64, run: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE tasks SET status = CASE WHEN runs < ?3 THEN 4 ELSE 5 END,
                          since = unixepoch('subsec')
                   WHERE id = ?1 AND status = 3 AND runs = ?2";
        Ok(self.0.execute(sql, [id, run, MAX_RUNS])? == 1)
    }

    /// Brings back the tasks that have been enqueued or in work for longer than `limit`: the
    /// process that had to do the next step is gone. The limit must be well above the longest time
    /// that a message stays in the queue and a run lasts. A task that is brought back too early
    /// goes out twice, and the conditional updates keep it from running twice.
    pub(crate) fn recover(&self, limit: Duration) -> rusqlite::Result<usize> {
        let sql = "UPDATE tasks SET status = CASE WHEN status = 2 THEN 1
                                                  WHEN runs < ?2 THEN 4 ELSE 5 END,
                          since = unixepoch('subsec')
                   WHERE status IN (2, 3) AND since <= unixepoch('subsec') - ?1";
        self.0.execute(sql, params![limit.as_secs_f64(), MAX_RUNS])
    }

    /// The tasks with this status.
    pub(crate) fn with(&self, status: Status) -> rusqlite::Result<Vec<i64>> {
        let mut statement = self.0.prepare("SELECT id FROM tasks WHERE status = ?1")?;
        let ids = statement.query_map([status as i64], |row| row.get(0))?;
        ids.collect()
    }

    /// How many tasks have succeeded.
    pub(crate) fn succeeded(&self) -> rusqlite::Result<i64> {
        let sql = "SELECT count(*) FROM results";
        self.0.query_row(sql, [], |row| row.get(0))
    }
}
