//! The ledger's wait queues as rows, one for each ticket: of a thousand tickets, only those that
//! changed are written.

use std::cmp::Ordering;

use rusqlite::{Connection, Row, params};

use crate::ledger::{Moment, QueueEntry, WaitQueue};
use crate::name::Name;

use super::rows::{Damaged, signed};

const DELETE: &str = "DELETE FROM ticket WHERE name = ?1 AND since_us = ?2 AND id = ?3";

/// The wait queue of `name` at `now`.
pub(super) fn load(
    connection: &Connection,
    name: &Name,
    now: Moment,
) -> rusqlite::Result<Result<WaitQueue, Damaged>> {
    let sql = "SELECT since_us, id, until_ms, refreshed_ms, elsewhere, shared, permits, label
               FROM ticket
               WHERE name = ?1 AND (until_ms >= ?2 OR until_ms < 0) ORDER BY since_us, id";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![name.as_str(), signed(now.lease_ms)], |row| {
        Ok(ticket(row))
    })?;
    let tickets = rows.collect::<rusqlite::Result<Result<Vec<_>, _>>>()?;
    Ok(tickets.map(|tickets| WaitQueue { entries: tickets }))
}

/// Writes the differences in `after`. Returns the number of rows written.
pub(super) fn store(
    connection: &Connection,
    name: &Name,
    before: &WaitQueue,
    after: &WaitQueue,
) -> rusqlite::Result<u32> {
    let mut written = 0;
    let mut old = before.entries.iter().peekable();
    for new in &after.entries {
        while let Some(gone) = old.next_if(|old| order(old, new).is_lt()) {
            delete(connection, name, gone)?;
            written += 1;
        }
        let known = old.next_if(|old| order(old, new).is_eq());
        written += store_one(connection, name, known, Some(new))?;
    }
    for gone in old {
        delete(connection, name, gone)?;
        written += 1;
    }
    Ok(written)
}

/// Writes one ticket that was `old` and is `new`. Returns the number of rows written.
pub(super) fn store_one(
    connection: &Connection,
    name: &Name,
    old: Option<&QueueEntry>,
    new: Option<&QueueEntry>,
) -> rusqlite::Result<u32> {
    match (old, new) {
        (old, Some(new)) if old != Some(new) => insert(connection, name, new)?,
        (Some(gone), None) => delete(connection, name, gone)?,
        _ => return Ok(0),
    }
    Ok(1)
}

/// Deletes up to `most` expired tickets.
pub(super) fn sweep(connection: &Connection, now: Moment, most: u32) -> rusqlite::Result<()> {
    let sql = "SELECT name, since_us, id FROM ticket WHERE until_ms < ?1
               ORDER BY until_ms LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let over = statement.query_map(params![signed(now.lease_ms), most], |row| {
        let (name, id) = (row.get::<_, String>(0)?, row.get::<_, String>(2)?);
        Ok((name, row.get::<_, i64>(1)?, id))
    })?;
    for ticket in over.collect::<rusqlite::Result<Vec<_>>>()? {
        connection.prepare_cached(DELETE)?.execute(ticket)?;
    }
    Ok(())
}

/// After a boot there are no waiters.
pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM ticket", [])?;
    Ok(())
}

fn insert(connection: &Connection, name: &Name, entry: &QueueEntry) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO ticket
                   (name, since_us, id, until_ms, refreshed_ms, elsewhere, shared, permits, label)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.prepare_cached(sql)?.execute(params![
        name.as_str(),
        signed(entry.since_us),
        entry.id,
        signed(entry.until_ms),
        signed(entry.refreshed_ms),
        entry.elsewhere,
        entry.shared,
        entry.permits,
        entry.label,
    ])?;
    Ok(())
}

fn delete(connection: &Connection, name: &Name, entry: &QueueEntry) -> rusqlite::Result<()> {
    let values = params![name.as_str(), signed(entry.since_us), entry.id];
    connection.prepare_cached(DELETE)?.execute(values)?;
    Ok(())
}

fn ticket(row: &Row<'_>) -> Result<QueueEntry, Damaged> {
    let number =
        |column| -> Result<u64, Damaged> { Ok(u64::try_from(row.get::<_, i64>(column)?)?) };
    Ok(QueueEntry {
        since_us: number(0)?,
        id: row.get(1)?,
        until_ms: number(2)?,
        refreshed_ms: number(3)?,
        elsewhere: row.get(4)?,
        shared: row.get(5)?,
        permits: row.get(6)?,
        label: row.get(7)?,
    })
}

/// The order of the ledger and of SQLite: text is compared byte by byte.
fn order(a: &QueueEntry, b: &QueueEntry) -> Ordering {
    (a.since_us, &a.id).cmp(&(b.since_us, &b.id))
}
