//! Fenced rows in SQLite and PostgreSQL: statements for any database driver, in any language.
//!
//! The marks are in a small table beside the data. The statement that raises a mark changes one
//! row, or none if the fence is refused, and every database driver returns how many rows changed.
//! It is the first statement of the transaction that does the work:
//!
//! ```sql
//! BEGIN;               -- SQLite: BEGIN IMMEDIATE
//! -- admit_write: 1 row, continue; 0 rows, read the marks and ROLLBACK
//! SELECT …; UPDATE …;  -- raise first, then read, then write
//! COMMIT;
//! ```
//!
//! From this statement until the end of the transaction no other client is admitted to the
//! resource: PostgreSQL locks the row of the marks, SQLite locks the file. Without a transaction
//! a holder might pause between the check and its work, and another holder might write in
//! between.
//!
//! Do not use what was read in a transaction that was rolled back: the mark that protects it was
//! rolled back too. Commit also after a transaction that only reads. Use the primary: a replica
//! cannot raise a mark.
//!
//! Each placeholder is used once and in order, resource and fence, so that the text also fits
//! database drivers with other placeholders (`%s`, `?`). Fences stay below 2<sup>53</sup> and fit
//! a `BIGINT`: [`number`] converts one for binding.
//!
//! The isolation level of PostgreSQL matters. With `READ COMMITTED`, the default, the second
//! transaction waits and then sees the marks of the first. With `REPEATABLE READ` and
//! `SERIALIZABLE` it gets a serialization failure (40001) and must start again. No update is lost
//! either way.
//!
//! In SQLite a plain `BEGIN` also works if this statement comes first. After a `SELECT` the file
//! may have changed, and the statement fails at once (`SQLITE_BUSY_SNAPSHOT`). `BEGIN IMMEDIATE`
//! waits.

/// The statements for one database product. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statements {
    /// Creates the table if it does not exist.
    pub create: &'static str,
    /// Parameters: resource, fence. Changes one row if this fence may read, none if it is refused.
    pub admit_read: &'static str,
    /// Parameters: resource, fence. Changes one row if this fence may write (and read), none if
    /// it is refused.
    pub admit_write: &'static str,
    /// Parameter: resource. A row with the read mark and the write mark, for
    /// [`Marks::from_row`](super::Marks::from_row). No row if no fence was ever admitted.
    pub marks: &'static str,
}

/// The same text for both products, except for the placeholders.
macro_rules! statements {
    ($first:literal, $second:literal) => {
        Statements {
            create: "\
CREATE TABLE IF NOT EXISTS ringfence_marks (
    resource   TEXT   PRIMARY KEY,
    read_mark  BIGINT NOT NULL,
    write_mark BIGINT NOT NULL
)",
            admit_read: concat!(
                "\
INSERT INTO ringfence_marks AS mark (resource, read_mark, write_mark)
VALUES (",
                $first,
                ", ",
                $second,
                ", 0)
ON CONFLICT (resource) DO UPDATE
SET read_mark = CASE WHEN mark.read_mark < excluded.read_mark
                     THEN excluded.read_mark ELSE mark.read_mark END
WHERE mark.write_mark <= excluded.read_mark"
            ),
            admit_write: concat!(
                "\
INSERT INTO ringfence_marks AS mark (resource, read_mark, write_mark)
VALUES (",
                $first,
                ", 0, ",
                $second,
                ")
ON CONFLICT (resource) DO UPDATE
SET write_mark = excluded.write_mark
WHERE mark.write_mark <= excluded.write_mark
  AND mark.read_mark <= excluded.write_mark"
            ),
            marks: concat!(
                "SELECT read_mark, write_mark FROM ringfence_marks WHERE resource = ",
                $first
            ),
        }
    };
}

/// For SQLite 3.24 and newer.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ringfence::resource::sql::{self, SQLITE};
/// use ringfence::resource::{Marks, Refused};
/// use rusqlite::{Connection, TransactionBehavior, params};
///
/// let mut database = Connection::open_in_memory()?;
/// database.execute(SQLITE.create, [])?;
/// # database.execute("CREATE TABLE account (id, balance)", [])?;
/// # database.execute("INSERT INTO account VALUES (1, 100)", [])?;
/// # let fence = 7;
///
/// let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// let parameters = params!["account:1", sql::number(fence)];
/// if transaction.execute(SQLITE.admit_write, parameters)? == 0 {
///     let marks = transaction.query_row(SQLITE.marks, ["account:1"], |row| {
///         Ok(Marks::from_row(row.get(0)?, row.get(1)?))
///     })?;
///     return Err(Refused { fence, mark: marks.writer_needs() }.into());
/// }
/// transaction.execute("UPDATE account SET balance = balance + 50 WHERE id = 1", [])?;
/// transaction.commit()?;
/// # Ok(())
/// # }
/// # #[cfg(feature = "sqlite")]
/// # example().unwrap();
/// ```
pub const SQLITE: Statements = statements!("?1", "?2");

/// For PostgreSQL 9.5 and newer.
pub const POSTGRES: Statements = statements!("$1", "$2");

/// A fence as a signed number, as databases store it. Every fence of a guard fits.
pub fn number(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_used_once_and_in_order() {
        for (statements, sign) in [(SQLITE, '?'), (POSTGRES, '$')] {
            for text in [statements.admit_read, statements.admit_write] {
                let found: Vec<_> = text.match_indices(sign).collect();
                assert_eq!(found.len(), 2, "{text}");
                assert_eq!(text.as_bytes()[found[0].0 + 1], b'1', "{text}");
                assert_eq!(text.as_bytes()[found[1].0 + 1], b'2', "{text}");
            }
            assert_eq!(statements.marks.matches(sign).count(), 1);
        }
    }

    #[test]
    fn a_fence_keeps_its_order_as_a_signed_number() {
        assert_eq!(number((1 << 53) - 1), (1 << 53) - 1);
        assert_eq!(number(u64::MAX), i64::MAX);
    }
}
