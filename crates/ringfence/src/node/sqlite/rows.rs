//! The ledger's entries as rows, without what a name may have many of (`child_rows.rs`).
//!
//! Stored rows may be damaged or hostile, so they are checked when they are read. A value that we
//! never write is an error of the row ([`is_damage`]).

use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::ledger::{Entry, Moment, PlainKey, Record, Seat};
use crate::message::Ballot;
use crate::name::Name;

/// The entry of `name`, without waiters and readers; the empty entry if there is no row.
pub(super) fn load(connection: &Connection, name: &Name) -> rusqlite::Result<Entry> {
    let sql = "SELECT key_value, key_until_ms, fence, closed, record_until_ms,
                   seat_token, seat_ballot, seat_label,
                   seat_until_ms, stranger, free_since_ms, read_fence FROM entry WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([name.as_str()], entry).optional()?;
    Ok(row.unwrap_or_default())
}

/// Writes the entry of `name`, or deletes it if it is empty. Its wait queue is in another table.
pub(super) fn store(connection: &Connection, name: &Name, entry: &Entry) -> rusqlite::Result<()> {
    if entry.key.is_none() && entry.record.is_none() {
        let sql = "DELETE FROM entry WHERE name = ?1";
        connection.prepare_cached(sql)?.execute([name.as_str()])?;
        return Ok(());
    }
    let key = entry.key.as_ref();
    let record = entry.record.as_ref();
    let seat = record.and_then(|record| record.seat.as_ref());
    let key_until_ms = key.and_then(|key| key.until_ms).map(signed);
    let record_until_ms = record.map(|record| signed(record.until_ms));
    let stays = key.is_some_and(|key| key.until_ms.is_none());
    let lapses_ms = match stays {
        true => i64::MAX,
        false => key_until_ms
            .max(record_until_ms)
            .map_or(i64::MAX, rounded_up),
    };
    let values = params![
        name.as_str(),
        key.map(|key| &key.value),
        key_until_ms,
        record.map(|record| signed(record.fence.get())),
        record.map(|record| signed(record.closed.get())),
        record_until_ms,
        seat.map(|seat| &seat.token),
        seat.map(|seat| signed(seat.ballot.get())),
        seat.map(|seat| &seat.label),
        seat.map_or(0, |seat| signed(seat.until_ms)),
        record.is_some_and(|record| record.stranger),
        record.map_or(0, |record| signed(record.free_since_ms)),
        lapses_ms,
        record.map_or(0, |record| signed(record.read_fence.get())),
    ];
    // The usual write changes no index, so it writes one page less.
    let sql = "UPDATE entry SET key_value = ?2, key_until_ms = ?3, fence = ?4, closed = ?5,
                   record_until_ms = ?6, seat_token = ?7, seat_ballot = ?8, seat_label = ?9,
                   seat_until_ms = ?10, stranger = ?11, free_since_ms = ?12, read_fence = ?14
               WHERE name = ?1 AND lapses_ms = ?13";
    if connection.prepare_cached(sql)?.execute(values)? > 0 {
        return Ok(());
    }
    let sql = "INSERT OR REPLACE INTO entry (name, key_value, key_until_ms, fence, closed,
                   record_until_ms, seat_token, seat_ballot, seat_label, seat_until_ms,
                   stranger, free_since_ms, lapses_ms, read_fence)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// When a row may be swept: in whole seconds, so that it seldom changes.
fn rounded_up(lapses_ms: i64) -> i64 {
    const STEP_MS: i64 = 1_000;
    let beyond = lapses_ms.rem_euclid(STEP_MS);
    match beyond {
        0 => lapses_ms,
        _ => lapses_ms.saturating_add(STEP_MS - beyond),
    }
}

/// Deletes up to `most` rows that have expired and whose fence is below the lowest one that counts
/// ([`Record::is_lapsed`] explains why both).
pub(super) fn sweep(
    connection: &Connection,
    now: Moment,
    ground: Ballot,
    most: u32,
) -> rusqlite::Result<()> {
    // Two statements, here and for readers and tickets: for one with a subquery SQLite makes a
    // temporary table in every transaction, which costs more than the rest of it.
    let sql = "SELECT name FROM entry WHERE lapses_ms < ?1 ORDER BY lapses_ms LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let over = statement.query_map(params![signed(now.lease_ms), most], |row| {
        row.get::<_, String>(0)
    })?;
    for name in over.collect::<rusqlite::Result<Vec<_>>>()? {
        let sql = "DELETE FROM entry WHERE name = ?1
                   AND max(ifnull(fence, 0), ifnull(closed, 0), read_fence) <= ?2";
        connection
            .prepare_cached(sql)?
            .execute(params![name, signed(ground.get())])?;
    }
    Ok(())
}

/// After a boot all holders are dead, but their fences count: deletes keys, and keeps fences for a
/// whole retention on the new boot's clock. Times of the old boot are invalid.
pub(super) fn free_all(connection: &Connection, record_until_ms: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM entry WHERE fence IS NULL", [])?;
    connection.execute(
        "UPDATE entry SET key_value = NULL, key_until_ms = NULL,
             record_until_ms = ?1, lapses_ms = ?1,
             seat_until_ms = 0, stranger = 0, free_since_ms = 0",
        [signed(record_until_ms)],
    )?;
    Ok(())
}

/// Every lease and every record gets as much time from now on as it had when the file was last
/// written, `by_ms` ago on the clock since boot.
pub(super) fn postpone(connection: &Connection, by_ms: u64) -> rusqlite::Result<()> {
    // Bounded, so that SQLite's integers do not overflow.
    connection.execute(
        "UPDATE entry SET key_until_ms = min(key_until_ms, ?2) + ?1,
             record_until_ms = min(record_until_ms, ?2) + ?1,
             lapses_ms = min(lapses_ms, ?2) + ?1,
             seat_until_ms = min(seat_until_ms, ?2) + ?1,
             free_since_ms = min(free_since_ms, ?2) + ?1",
        [signed(by_ms), i64::MAX - signed(by_ms)],
    )?;
    Ok(())
}

/// Whether the file has no entries, tickets, readers and latches.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM entry) AND NOT EXISTS (SELECT 1 FROM ticket)
                   AND NOT EXISTS (SELECT 1 FROM latch)";
    connection.query_row(sql, [], |row| row.get(0))
}

/// The first `most` names behind `cursor` that have a row of any kind; with `breaks`, those with
/// broken holds.
pub(super) fn names(
    connection: &Connection,
    cursor: &str,
    most: u32,
    breaks: bool,
) -> rusqlite::Result<Vec<String>> {
    // Each table by itself, so that a portion reads few rows of a large file.
    let sql = match breaks {
        true => "SELECT DISTINCT name FROM broken WHERE name > ?1 ORDER BY name LIMIT ?2",
        false => {
            "SELECT name FROM (
                 SELECT * FROM
                     (SELECT name FROM entry WHERE name > ?1 ORDER BY name LIMIT ?2)
                 UNION SELECT * FROM
                     (SELECT DISTINCT name FROM ticket WHERE name > ?1 ORDER BY name LIMIT ?2)
                 UNION SELECT * FROM
                     (SELECT name FROM latch WHERE name > ?1 ORDER BY name LIMIT ?2)
             ) ORDER BY name LIMIT ?2"
        }
    };
    let mut statement = connection.prepare_cached(sql)?;
    let names = statement.query_map(params![cursor, most], |row| row.get(0))?;
    names.collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        key: key(row)?,
        record: record(row)?,
        ..Entry::default()
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<Option<PlainKey>> {
    match (row.get(0)?, optional(row, 1, number)?) {
        (Some(value), until_ms) => Ok(Some(PlainKey { value, until_ms })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(damage(0)),
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<Option<Record>> {
    let (fence, closed) = (optional(row, 2, ballot)?, optional(row, 3, ballot)?);
    match (fence, closed, optional(row, 4, number)?, seat(row)?) {
        (Some(fence), Some(closed), Some(until_ms), seat) => Ok(Some(Record {
            fence,
            read_fence: ballot(row, 11)?,
            closed,
            seat,
            stranger: row.get(9)?,
            free_since_ms: number(row, 10)?,
            until_ms,
        })),
        (None, None, None, None) => Ok(None),
        _ => Err(damage(2)),
    }
}

fn seat(row: &Row<'_>) -> rusqlite::Result<Option<Seat>> {
    match (row.get(5)?, optional(row, 6, ballot)?, row.get(7)?) {
        (Some(token), Some(ballot), Some(label)) => Ok(Some(Seat {
            token,
            ballot,
            label,
            until_ms: number(row, 8)?,
        })),
        (None, None, None) => Ok(None),
        _ => Err(damage(5)),
    }
}

/// A column that may be empty.
pub(super) fn optional<T>(
    row: &Row<'_>,
    column: usize,
    read: fn(&Row<'_>, usize) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    match row.get_ref(column)?.data_type() {
        Type::Null => Ok(None),
        _ => read(row, column).map(Some),
    }
}

/// A number that is not negative.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| damage(column))
}

pub(super) fn ballot(row: &Row<'_>, column: usize) -> rusqlite::Result<Ballot> {
    let value = number(row, column)?;
    // `Ballot::new` would lower it silently, and a lowered fence is worse than an error.
    match value > Ballot::MAX.get() {
        true => Err(damage(column)),
        false => Ok(Ballot::new(value)),
    }
}

/// The error for a value that we never write.
pub(super) fn damage(column: usize) -> Error {
    Error::IntegralValueOutOfRange(column, 0)
}

/// Whether a row was read, and has a value that we never write.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::FromSqlConversionFailure(..)
            | Error::Utf8Error(..)
    )
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node::sqlite::schema;

    fn number() -> impl Strategy<Value = Option<i64>> {
        let near = prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(1), Just(i64::MAX)];
        proptest::option::of(prop_oneof![near, any::<i64>()])
    }

    fn text() -> impl Strategy<Value = Option<String>> {
        proptest::option::of("\\PC{0,12}")
    }

    proptest! {
        /// Every row is either damaged, or an entry that is the same after it is written and read
        /// again.
        #[test]
        fn no_row_makes_it_panic(
            texts in [text(), text(), text()],
            numbers in proptest::array::uniform6(number()),
            always in proptest::array::uniform3(number()),
        ) {
            let connection = schema::in_memory();
            let name = Name::new("", "job").unwrap();
            let [key, token, label] = texts;
            let [key_until, fence, closed, record_until, ballot, read_fence] = numbers;
            let [seat_until, stranger, free_since] = always.map(Option::unwrap_or_default);
            connection
                .execute(
                    "INSERT INTO entry (name, key_value, key_until_ms, fence, closed, record_until_ms,
                         seat_token, seat_ballot, seat_label, seat_until_ms, stranger, free_since_ms,
                         lapses_ms, read_fence)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, ?13)",
                    params![
                        name.as_str(), key, key_until, fence, closed, record_until, token, ballot,
                        label, seat_until, stranger, free_since, read_fence.unwrap_or_default(),
                    ],
                )
                .unwrap();
            match load(&connection, &name) {
                Ok(entry) => {
                    store(&connection, &name, &entry).unwrap();
                    prop_assert_eq!(load(&connection, &name).unwrap(), entry);
                }
                Err(error) => prop_assert!(is_damage(&error), "{}", error),
            }
        }
    }
}
