//! The names in the file, in order, for a list.

use rusqlite::{Connection, params};

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
