//! The ledger's latches as rows: one for each latch, and one for each party that has arrived.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use crate::ledger::{LatchRecord, Moment};
use crate::name::Name;

use super::rows::{Damaged, signed};

/// The latch of `name`, even if it has expired.
pub(super) fn load(
    connection: &Connection,
    name: &Name,
) -> rusqlite::Result<Result<Option<LatchRecord>, Damaged>> {
    let sql = "SELECT since_us, until_ms FROM latch WHERE name = ?1";
    let row = connection
        .prepare_cached(sql)?
        .query_row([name.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let Some((since_us, until_ms)) = row else {
        return Ok(Ok(None));
    };
    let (Ok(since_us), Ok(until_ms)) = (u64::try_from(since_us), u64::try_from(until_ms)) else {
        return Ok(Err(Damaged));
    };
    let sql = "SELECT party FROM party WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let parties = statement.query_map([name.as_str()], |row| row.get::<_, Arc<str>>(0))?;
    Ok(Ok(Some(LatchRecord {
        since_us,
        parties: parties.collect::<rusqlite::Result<BTreeSet<_>>>()?,
        until_ms,
    })))
}

/// Writes `after` and its new parties. No party ever leaves a latch. If there was no latch, removes
/// the parties of an expired one.
pub(super) fn store(
    connection: &Connection,
    name: &Name,
    before: Option<&LatchRecord>,
    after: &LatchRecord,
    now: Moment,
) -> rusqlite::Result<()> {
    if before.is_none() {
        let sql = "DELETE FROM party WHERE name = ?1";
        connection.prepare_cached(sql)?.execute([name.as_str()])?;
    }
    let sql = "INSERT OR REPLACE INTO latch (name, since_us, until_ms, lasts_ms)
               VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![
        name.as_str(),
        signed(after.since_us),
        signed(after.until_ms),
        signed(after.until_ms.saturating_sub(now.lease_ms)),
    ])?;
    let known = |party: &&Arc<str>| before.is_some_and(|before| before.parties.contains(*party));
    for party in after.parties.iter().filter(|party| !known(party)) {
        let sql = "INSERT OR REPLACE INTO party (name, party) VALUES (?1, ?2)";
        let values = params![name.as_str(), party];
        connection.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

/// Deletes up to `most` expired latches with their parties.
pub(super) fn sweep(connection: &Connection, now: Moment, most: u32) -> rusqlite::Result<()> {
    let sql = "SELECT name FROM latch WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let over = statement.query_map(params![signed(now.lease_ms), most], |row| {
        row.get::<_, String>(0)
    })?;
    for name in over.collect::<rusqlite::Result<Vec<_>>>()? {
        for sql in [
            "DELETE FROM party WHERE name = ?1",
            "DELETE FROM latch WHERE name = ?1",
        ] {
            connection.prepare_cached(sql)?.execute([&name])?;
        }
    }
    Ok(())
}

/// After a boot: unlike holders, parties that have arrived stay. The remaining time of a latch is
/// not known, so it gets the time that it had when it was last written.
pub(super) fn carry_on(connection: &Connection, now: Moment) -> rusqlite::Result<()> {
    // Bounded, so that a damaged row does not overflow SQLite's integers.
    let sql = "UPDATE latch SET until_ms = ?1 + min(max(lasts_ms, 0), 31536000000)";
    connection.execute(sql, [signed(now.lease_ms)])?;
    Ok(())
}
