//! The holds that operators broke as rows: one for each hold, in the order in which they were
//! broken.

use rusqlite::{Connection, Row, params};

use crate::ledger::{Breaks, Moment};
use crate::message::{Ballot, BreakNote};
use crate::name::Name;

use super::rows::{Damaged, signed};

/// The broken holds of `name`, even if they have expired.
pub(super) fn load(
    connection: &Connection,
    name: &Name,
) -> rusqlite::Result<Result<Option<Breaks>, Damaged>> {
    let sql = "SELECT at_us, fence, ballot, id, by, label, reason, until_us FROM broken
               WHERE name = ?1 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([name.as_str()])?;
    let (mut notes, mut until_us) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        match note(row) {
            Ok((note, until)) => {
                notes.push(note);
                until_us = until;
            }
            Err(damaged) => return Ok(Err(damaged)),
        }
    }
    let breaks = Breaks { notes, until_us };
    Ok(Ok(Some(breaks).filter(|breaks| !breaks.notes.is_empty())))
}

/// A row of at least eight columns in the order of [`load`], and until when it is remembered.
pub(super) fn note(row: &Row<'_>) -> Result<(BreakNote, u64), Damaged> {
    let number = |column: usize| Ok::<_, Damaged>(u64::try_from(row.get::<_, i64>(column)?)?);
    let note = BreakNote {
        at_us: number(0)?,
        fence: Ballot::new(number(1)?),
        ballot: Ballot::new(number(2)?),
        id: row.get(3)?,
        by: row.get(4)?,
        label: row.get(5)?,
        reason: row.get(6)?,
    };
    Ok((note, number(7)?))
}

/// Replaces the broken holds of `name`.
pub(super) fn store(connection: &Connection, name: &Name, after: &Breaks) -> rusqlite::Result<()> {
    let sql = "DELETE FROM broken WHERE name = ?1";
    connection.prepare_cached(sql)?.execute([name.as_str()])?;
    let sql = "INSERT INTO broken
               (name, number, at_us, until_us, fence, ballot, id, by, label, reason)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    for (number, note) in (0i64..).zip(&after.notes) {
        connection.prepare_cached(sql)?.execute(params![
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
        ])?;
    }
    Ok(())
}

/// Deletes the rows that have expired. Only a break adds rows, so only a break has to sweep.
pub(super) fn sweep(connection: &Connection, now: Moment) -> rusqlite::Result<()> {
    let sql = "DELETE FROM broken WHERE until_us < ?1";
    let values = [signed(now.clock_us)];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}
