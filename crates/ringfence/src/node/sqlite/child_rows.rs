//! The rows that a name may have many of: the tickets of its wait queue, its readers, the parties of
//! its latch, and its holds that operators broke. Of a thousand rows only those that changed are
//! written.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, Row, params, params_from_iter};

use crate::ledger::{Breaks, LatchRecord, Moment, QueueEntry, Seat};
use crate::message::BreakNote;
use crate::name::Name;

use super::rows::{ballot, number, signed};

/// A row with a lease, of which only the changed ones are written.
pub(super) trait ChildRow: PartialEq {
    /// Selects the rows of a name (`?1`) that have not ended at `?2`, in order. A negative time is
    /// damage, which must not go unnoticed.
    const LOAD: &'static str;
    /// Writes the name and all values.
    const WRITE: &'static str;
    /// Deletes the row with this name and key.
    const DELETE: &'static str;
    /// Selects the name and the key of at most `?2` rows that have ended before `?1`.
    const ENDED: &'static str;

    fn read(row: &Row<'_>) -> rusqlite::Result<Self>
    where
        Self: Sized;

    /// What orders the rows of a name. SQLite has the same order: it compares text byte by byte.
    fn key(&self) -> (u64, &str);

    fn values(&self) -> Vec<Value>;
}

impl ChildRow for QueueEntry {
    const LOAD: &'static str =
        "SELECT since_us, id, until_ms, refreshed_ms, elsewhere, shared, permits, label FROM ticket
         WHERE name = ?1 AND (until_ms >= ?2 OR until_ms < 0) ORDER BY since_us, id";
    const WRITE: &'static str = "INSERT OR REPLACE INTO ticket
             (name, since_us, id, until_ms, refreshed_ms, elsewhere, shared, permits, label)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    const DELETE: &'static str = "DELETE FROM ticket WHERE name = ?1 AND since_us = ?2 AND id = ?3";
    const ENDED: &'static str = "SELECT name, since_us, id FROM ticket WHERE until_ms < ?1
         ORDER BY until_ms LIMIT ?2";

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            since_us: number(row, 0)?,
            id: row.get(1)?,
            until_ms: number(row, 2)?,
            refreshed_ms: number(row, 3)?,
            elsewhere: row.get(4)?,
            shared: row.get(5)?,
            permits: row.get(6)?,
            label: row.get(7)?,
        })
    }

    fn key(&self) -> (u64, &str) {
        (self.since_us, &self.id)
    }

    fn values(&self) -> Vec<Value> {
        vec![
            signed(self.since_us).into(),
            self.id.clone().into(),
            signed(self.until_ms).into(),
            signed(self.refreshed_ms).into(),
            self.elsewhere.into(),
            self.shared.into(),
            self.permits.into(),
            self.label.clone().into(),
        ]
    }
}

impl ChildRow for Seat {
    const LOAD: &'static str = "SELECT token, ballot, label, until_ms FROM reader
         WHERE name = ?1 AND (until_ms >= ?2 OR until_ms < 0) ORDER BY token";
    const WRITE: &'static str =
        "INSERT OR REPLACE INTO reader (name, token, ballot, label, until_ms)
         VALUES (?1, ?2, ?3, ?4, ?5)";
    const DELETE: &'static str = "DELETE FROM reader WHERE name = ?1 AND token = ?2";
    const ENDED: &'static str =
        "SELECT name, token FROM reader WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2";

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            token: row.get(0)?,
            ballot: ballot(row, 1)?,
            label: row.get(2)?,
            until_ms: number(row, 3)?,
        })
    }

    fn key(&self) -> (u64, &str) {
        (0, &self.token)
    }

    fn values(&self) -> Vec<Value> {
        vec![
            self.token.clone().into(),
            signed(self.ballot.get()).into(),
            self.label.clone().into(),
            signed(self.until_ms).into(),
        ]
    }
}

/// The rows of `name` at `now`.
pub(super) fn load<R: ChildRow, C: FromIterator<R>>(
    connection: &Connection,
    name: &Name,
    now: Moment,
) -> rusqlite::Result<C> {
    select(
        connection,
        R::LOAD,
        params![name.as_str(), signed(now.lease_ms)],
        R::read,
    )
}

/// Writes the differences between `before` and `after`. Returns the number of rows written.
pub(super) fn store<'r, R: ChildRow + 'r>(
    connection: &Connection,
    name: &Name,
    before: impl IntoIterator<Item = &'r R>,
    after: impl IntoIterator<Item = &'r R>,
) -> rusqlite::Result<u32> {
    let mut written = 0;
    let mut old = before.into_iter().peekable();
    for new in after {
        while let Some(gone) = old.next_if(|old| old.key() < new.key()) {
            written += store_one(connection, name, Some(gone), None)?;
        }
        let known = old.next_if(|old| old.key() == new.key());
        written += store_one(connection, name, known, Some(new))?;
    }
    for gone in old {
        written += store_one(connection, name, Some(gone), None)?;
    }
    Ok(written)
}

/// Writes one row that was `old` and is `new`. Returns the number of rows written.
pub(super) fn store_one<R: ChildRow>(
    connection: &Connection,
    name: &Name,
    old: Option<&R>,
    new: Option<&R>,
) -> rusqlite::Result<u32> {
    let (sql, row) = match (old, new) {
        (old, Some(new)) if old != Some(new) => (R::WRITE, new),
        (Some(gone), None) => (R::DELETE, gone),
        _ => return Ok(0),
    };
    let mut statement = connection.prepare_cached(sql)?;
    let wanted = statement.parameter_count();
    let name = Value::from(name.as_str().to_owned());
    let values = std::iter::once(name).chain(row.values());
    statement.execute(params_from_iter(values.take(wanted)))?;
    Ok(1)
}

/// Deletes up to `most` rows that have ended.
pub(super) fn sweep<R: ChildRow>(
    connection: &Connection,
    now: Moment,
    most: u32,
) -> rusqlite::Result<()> {
    delete_ended(connection, R::ENDED, &[R::DELETE], now, most)
}

/// The latch of `name`, even if it has expired.
pub(super) fn load_latch(
    connection: &Connection,
    name: &Name,
) -> rusqlite::Result<Option<LatchRecord>> {
    let sql = "SELECT since_us, until_ms FROM latch WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let latch = statement
        .query_row([name.as_str()], |row| {
            Ok((number(row, 0)?, number(row, 1)?))
        })
        .optional()?;
    let Some((since_us, until_ms)) = latch else {
        return Ok(None);
    };
    let sql = "SELECT party FROM party WHERE name = ?1";
    let parties: BTreeSet<Arc<str>> = select(connection, sql, [name.as_str()], |row| row.get(0))?;
    Ok(Some(LatchRecord {
        since_us,
        parties,
        until_ms,
    }))
}

/// Writes the latch `after` and its new parties. No party ever leaves a latch. If there was no
/// latch, removes the parties of an expired one.
pub(super) fn store_latch(
    connection: &Connection,
    name: &Name,
    before: Option<&LatchRecord>,
    after: &LatchRecord,
    now: Moment,
) -> rusqlite::Result<()> {
    if before.is_none() {
        execute(
            connection,
            "DELETE FROM party WHERE name = ?1",
            [name.as_str()],
        )?;
    }
    let sql = "INSERT OR REPLACE INTO latch (name, since_us, until_ms, lasts_ms)
               VALUES (?1, ?2, ?3, ?4)";
    let values = params![
        name.as_str(),
        signed(after.since_us),
        signed(after.until_ms),
        signed(after.until_ms.saturating_sub(now.lease_ms)),
    ];
    execute(connection, sql, values)?;
    let known = |party: &&Arc<str>| before.is_some_and(|before| before.parties.contains(*party));
    for party in after.parties.iter().filter(|party| !known(party)) {
        let sql = "INSERT OR REPLACE INTO party (name, party) VALUES (?1, ?2)";
        execute(connection, sql, params![name.as_str(), party])?;
    }
    Ok(())
}

/// Deletes up to `most` expired latches with their parties.
pub(super) fn sweep_latches(
    connection: &Connection,
    now: Moment,
    most: u32,
) -> rusqlite::Result<()> {
    let ended = "SELECT name FROM latch WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2";
    let delete = [
        "DELETE FROM party WHERE name = ?1",
        "DELETE FROM latch WHERE name = ?1",
    ];
    delete_ended(connection, ended, &delete, now, most)
}

/// The broken holds of `name`, even if they have expired.
pub(super) fn load_breaks(
    connection: &Connection,
    name: &Name,
) -> rusqlite::Result<Option<Breaks>> {
    let sql = "SELECT at_us, fence, ballot, id, by, label, reason, until_us FROM broken
               WHERE name = ?1 ORDER BY number";
    let rows: Vec<(BreakNote, u64)> = select(connection, sql, [name.as_str()], |row| {
        let note = BreakNote {
            at_us: number(row, 0)?,
            fence: ballot(row, 1)?,
            ballot: ballot(row, 2)?,
            id: row.get(3)?,
            by: row.get(4)?,
            label: row.get(5)?,
            reason: row.get(6)?,
        };
        Ok((note, number(row, 7)?))
    })?;
    let until_us = rows.last().map(|(_, until_us)| *until_us);
    Ok(until_us.map(|until_us| Breaks {
        notes: rows.into_iter().map(|(note, _)| note).collect(),
        until_us,
    }))
}

/// Replaces the broken holds of `name`, and deletes all that have expired. Only a break adds rows,
/// so only a break has to delete some.
pub(super) fn store_breaks(
    connection: &Connection,
    name: &Name,
    after: &Breaks,
    now: Moment,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM broken WHERE name = ?1 OR until_us < ?2";
    execute(
        connection,
        sql,
        params![name.as_str(), signed(now.clock_us)],
    )?;
    let sql = "INSERT INTO broken
               (name, number, at_us, until_us, fence, ballot, id, by, label, reason)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    for (number, note) in (0i64..).zip(&after.notes) {
        let values = params![
            name.as_str(),
            number,
            signed(note.at_us),
            signed(after.until_us),
            signed(note.fence.get()),
            signed(note.ballot.get()),
            note.id,
            note.by,
            note.label,
            note.reason,
        ];
        execute(connection, sql, values)?;
    }
    Ok(())
}

/// After a boot there are no waiters and no readers, if all holders are dead.
pub(super) fn clear_waiters(connection: &Connection) -> rusqlite::Result<()> {
    execute(connection, "DELETE FROM ticket", [])
}

pub(super) fn clear_readers(connection: &Connection) -> rusqlite::Result<()> {
    execute(connection, "DELETE FROM reader", [])
}

/// Every reader gets as much time from now on as it had `by_ms` ago.
pub(super) fn postpone_readers(connection: &Connection, by_ms: u64) -> rusqlite::Result<()> {
    // Bounded, so that SQLite's integers do not overflow.
    let sql = "UPDATE reader SET until_ms = min(until_ms, ?2) + ?1";
    execute(connection, sql, [signed(by_ms), i64::MAX - signed(by_ms)])
}

/// After a boot: unlike holders, parties that have arrived stay. The remaining time of a latch is
/// not known, so it gets the time that it had when it was last written.
pub(super) fn carry_latches_on(connection: &Connection, now: Moment) -> rusqlite::Result<()> {
    // Bounded, so that a damaged row does not overflow SQLite's integers.
    let sql = "UPDATE latch SET until_ms = ?1 + min(max(lasts_ms, 0), 31536000000)";
    execute(connection, sql, [signed(now.lease_ms)])
}

/// The rows that `sql` selects.
fn select<T, C: FromIterator<T>>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<C> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map(params, read)?.collect()
}

fn execute(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(params).map(drop)
}

/// Deletes up to `most` rows. `ended` selects the parameters of the statements `delete`. (Two
/// statements: for one with a subquery SQLite makes a temporary table in every transaction, which
/// costs more than the rest of it.)
fn delete_ended(
    connection: &Connection,
    ended: &str,
    delete: &[&str],
    now: Moment,
    most: u32,
) -> rusqlite::Result<()> {
    let keys: Vec<Vec<Value>> = select(
        connection,
        ended,
        params![signed(now.lease_ms), most],
        |row| {
            (0..row.as_ref().column_count())
                .map(|column| row.get(column))
                .collect()
        },
    )?;
    for key in keys {
        for sql in delete {
            execute(connection, sql, params_from_iter(&key))?;
        }
    }
    Ok(())
}
