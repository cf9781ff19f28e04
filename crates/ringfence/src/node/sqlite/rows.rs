//! The ledger's entries as rows. What is read may be damaged or hostile; what is written is exact.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::ledger::{Entry, Moment, PlainKey, Record, Seat};
use crate::message::Ballot;
use crate::name::Name;

/// The entry under `name`; `Ok(None)` for a row that makes no sense.
pub(super) fn load(connection: &Connection, name: &Name) -> rusqlite::Result<Option<Entry>> {
    let sql = "SELECT key_value, key_until_ms, fence, closed, record_until_ms,
                   seat_token, seat_ballot, seat_label FROM entry WHERE name = ?1";
    let row = connection
        .prepare_cached(sql)?
        .query_row([name.as_str()], |row| Ok(entry(row).ok().flatten()))
        .optional()?;
    Ok(row.unwrap_or_else(|| Some(Entry::default())))
}

/// Writes the entry under `name`, or takes it away if nothing is left of it.
pub(super) fn store(connection: &Connection, name: &Name, entry: &Entry) -> rusqlite::Result<()> {
    if *entry == Entry::default() {
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
    let lapses_ms = if stays {
        None
    } else {
        key_until_ms.max(record_until_ms)
    };
    let sql = "INSERT OR REPLACE INTO entry (name, key_value, key_until_ms, fence, closed,
                   record_until_ms, seat_token, seat_ballot, seat_label, lapses_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(sql)?.execute(params![
        name.as_str(),
        key.map(|key| &key.value),
        key_until_ms,
        record.map(|record| signed(record.fence.get())),
        record.map(|record| signed(record.closed.get())),
        record_until_ms,
        seat.map(|seat| &seat.token),
        seat.map(|seat| signed(seat.ballot.get())),
        seat.map(|seat| &seat.label),
        lapses_ms.unwrap_or(i64::MAX),
    ])?;
    Ok(())
}

/// Clears away up to `most` rows of which nothing stands any more and whose fence the ground has
/// overtaken ([`Record::is_lapsed`] says why both).
pub(super) fn sweep(
    connection: &Connection,
    now: Moment,
    ground: Ballot,
    most: u32,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM entry WHERE name IN
                   (SELECT name FROM entry WHERE lapses_ms < ?1 ORDER BY lapses_ms LIMIT ?3)
               AND max(ifnull(fence, 0), ifnull(closed, 0)) <= ?2";
    let values = [signed(now.lease_ms), signed(ground.get()), i64::from(most)];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// After a boot all holders are dead, but what they were granted counts: keys go, and fences stay
/// for a whole retention on the new boot's clock.
pub(super) fn free_all(connection: &Connection, record_until_ms: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM entry WHERE fence IS NULL", [])?;
    connection.execute(
        "UPDATE entry SET key_value = NULL, key_until_ms = NULL,
             record_until_ms = ?1, lapses_ms = ?1",
        [signed(record_until_ms)],
    )?;
    Ok(())
}

/// Whether anything at all is kept.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM entry)", [], |row| {
        row.get(0)
    })
}

/// The entry in `row`; `Ok(None)`, or an error for a column of the wrong type, if it makes no sense.
fn entry(row: &Row<'_>) -> rusqlite::Result<Option<Entry>> {
    let key = match (row.get(0)?, row.get::<_, Option<i64>>(1)?) {
        (Some(value), until) => match until.map(u64::try_from).transpose() {
            Ok(until_ms) => Some(PlainKey { value, until_ms }),
            Err(_) => return Ok(None),
        },
        (None, None) => None,
        (None, Some(_)) => return Ok(None),
    };
    let record = (
        ballot(row, 2)?,
        ballot(row, 3)?,
        row.get::<_, Option<i64>>(4)?,
    );
    let seat = (row.get(5)?, ballot(row, 6)?, row.get(7)?);
    let seat = match seat {
        (Some(token), Some(ballot), Some(label)) => Some(Seat {
            token,
            ballot,
            label,
        }),
        (None, None, None) => None,
        _ => return Ok(None),
    };
    let record = match record {
        (Some(fence), Some(closed), Some(until_ms)) => Some(Record {
            fence,
            closed,
            seat,
            until_ms: match u64::try_from(until_ms) {
                Ok(until_ms) => until_ms,
                Err(_) => return Ok(None),
            },
        }),
        (None, None, None) if seat.is_none() => None,
        _ => return Ok(None),
    };
    Ok(Some(Entry { key, record }))
}

fn ballot(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Ballot>> {
    let Some(value) = row.get::<_, Option<i64>>(column)? else {
        return Ok(None);
    };
    match u64::try_from(value) {
        Ok(value) if value <= Ballot::MAX.get() => Ok(Some(Ballot::new(value))),
        _ => Err(rusqlite::Error::IntegralValueOutOfRange(column, value)),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
