//! The ledger's readers as rows, one for each reader: of a thousand readers, only those that
//! changed are written.

use rusqlite::{Connection, Row, params};

use crate::ledger::{Moment, Seat};
use crate::message::Ballot;
use crate::name::Name;

use super::rows::{Damaged, signed};

const DELETE: &str = "DELETE FROM reader WHERE name = ?1 AND token = ?2";

/// The readers of `name` at `now`, by token.
pub(super) fn load(
    connection: &Connection,
    name: &Name,
    now: Moment,
) -> rusqlite::Result<Result<Vec<Seat>, Damaged>> {
    let sql = "SELECT token, ballot, label, until_ms FROM reader
               WHERE name = ?1 AND (until_ms >= ?2 OR until_ms < 0) ORDER BY token";
    let mut statement = connection.prepare_cached(sql)?;
    let values = params![name.as_str(), signed(now.lease_ms)];
    let rows = statement.query_map(values, |row| Ok(reader(row)))?;
    rows.collect()
}

/// Writes the differences in `after`.
pub(super) fn store(
    connection: &Connection,
    name: &Name,
    before: &[Seat],
    after: &[Seat],
) -> rusqlite::Result<()> {
    let mut old = before.iter().peekable();
    for new in after {
        while let Some(gone) = old.next_if(|old| old.token < new.token) {
            delete(connection, name, gone)?;
        }
        if old.next_if(|old| old.token == new.token) != Some(new) {
            insert(connection, name, new)?;
        }
    }
    old.try_for_each(|gone| delete(connection, name, gone))
}

/// Deletes up to `most` readers whose lease has ended.
pub(super) fn sweep(connection: &Connection, now: Moment, most: u32) -> rusqlite::Result<()> {
    let sql = "SELECT name, token FROM reader WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let over = statement.query_map(params![signed(now.lease_ms), most], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    for reader in over.collect::<rusqlite::Result<Vec<_>>>()? {
        connection.prepare_cached(DELETE)?.execute(reader)?;
    }
    Ok(())
}

/// Every reader gets as much time from now on as it had `by_ms` ago.
pub(super) fn postpone(connection: &Connection, by_ms: u64) -> rusqlite::Result<()> {
    // Bounded, so that SQLite's integers do not overflow.
    connection.execute(
        "UPDATE reader SET until_ms = min(until_ms, ?2) + ?1",
        [signed(by_ms), i64::MAX - signed(by_ms)],
    )?;
    Ok(())
}

/// After a boot there are no readers.
pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM reader", [])?;
    Ok(())
}

fn insert(connection: &Connection, name: &Name, reader: &Seat) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO reader (name, token, ballot, label, until_ms)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute(params![
        name.as_str(),
        reader.token,
        signed(reader.ballot.get()),
        reader.label,
        signed(reader.until_ms),
    ])?;
    Ok(())
}

fn delete(connection: &Connection, name: &Name, reader: &Seat) -> rusqlite::Result<()> {
    let values = params![name.as_str(), reader.token];
    connection.prepare_cached(DELETE)?.execute(values)?;
    Ok(())
}

fn reader(row: &Row<'_>) -> Result<Seat, Damaged> {
    let number =
        |column| -> Result<u64, Damaged> { Ok(u64::try_from(row.get::<_, i64>(column)?)?) };
    let ballot = number(1)?;
    if ballot > Ballot::MAX.get() {
        return Err(Damaged);
    }
    Ok(Seat {
        token: row.get(0)?,
        ballot: Ballot::new(ballot),
        label: row.get(2)?,
        until_ms: number(3)?,
    })
}
