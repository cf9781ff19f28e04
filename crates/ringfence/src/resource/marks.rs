//! The two marks of a resource: the specification. The script of `redis.rs` and the statements of
//! `sql.rs` are tested against it.

use std::fmt;

/// The marks of a resource: the highest fence that read it, and the highest fence that wrote it.
/// A new resource has neither.
///
/// A holder raises its mark first, then reads, then writes. Then no update is lost:
///
/// ```
/// use ringfence::resource::{Marks, Refused};
///
/// let marks = Marks::default().admit_read(7)?; // the holder of fence 7 reads, and will write
/// assert!(marks.admit_read(6).is_ok()); // an older one may still see what is there …
/// assert_eq!(marks.admit_write(6), Err(Refused { fence: 6, mark: 7 })); // … but changes nothing
///
/// let marks = marks.admit_write(7)?;
/// assert_eq!(marks.admit_read(6), Err(Refused { fence: 6, mark: 7 }));
/// # Ok::<(), Refused>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// The highest fence that was admitted to read.
    pub read: u64,
    /// The highest fence that was admitted to write.
    pub write: u64,
}

impl Marks {
    /// The marks of a row in the table of [`sql`](super::sql).
    pub fn from_row(read: i64, write: i64) -> Self {
        // Fences are positive. These statements write no negative mark; read one as the lowest.
        let mark = |column| u64::try_from(column).unwrap_or(0);
        Self {
            read: mark(read),
            write: mark(write),
        }
    }

    /// The lowest fence that may read: no holder with a higher fence has written.
    pub fn reader_needs(self) -> u64 {
        self.write
    }

    /// The lowest fence that may write: no holder with a higher fence has written, or has read what
    /// this write would change.
    pub fn writer_needs(self) -> u64 {
        self.write.max(self.read)
    }

    /// The marks after a reader with this `fence`, or why it may not read.
    ///
    /// A higher fence that only read does not refuse it: readers that share a lock may come in
    /// any order.
    pub fn admit_read(self, fence: u64) -> Result<Self, Refused> {
        refuse_below(self.reader_needs(), fence)?;
        let read = self.read.max(fence);
        Ok(Self { read, ..self })
    }

    /// The marks after a writer with this `fence`, or why it may not write.
    pub fn admit_write(self, fence: u64) -> Result<Self, Refused> {
        refuse_below(self.writer_needs(), fence)?;
        let write = fence;
        Ok(Self { write, ..self })
    }
}

fn refuse_below(mark: u64, fence: u64) -> Result<(), Refused> {
    if fence < mark {
        return Err(Refused { fence, mark });
    }
    Ok(())
}

/// A resource refused this fence: its holder lost the lock, and a later holder has used the
/// resource.
///
/// Do not retry with the same guard. Lock again and start with reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The fence that was refused.
    pub fence: u64,
    /// The mark that it is below: the fence of a later holder.
    pub mark: u64,
}

impl Refused {
    /// Finds a refusal in the error message of a Redis client: it searches for the words of the
    /// error reply that the script of [`redis`](super::redis) returns.
    pub fn in_message(message: &str) -> Option<Self> {
        let (before, after) = message.split_once(MARK_WORDS)?;
        let (_, fence) = before.rsplit_once(FENCE_WORDS)?;
        // Clients add words before and after it.
        let end = after.find(|c: char| !c.is_ascii_digit());
        let mark = &after[..end.unwrap_or(after.len())];
        Some(Self {
            fence: fence.parse().ok()?,
            mark: mark.parse().ok()?,
        })
    }
}

/// The words of the error reply, which the script also uses.
const FENCE_WORDS: &str = "fence ";
const MARK_WORDS: &str = " is below the mark ";

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fence, mark } = self;
        write!(
            f,
            "{FENCE_WORDS}{fence}{MARK_WORDS}{mark}: the lock was lost and a later holder has used \
             the resource; lock again and start over"
        )
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks(read: u64, write: u64) -> Marks {
        Marks { read, write }
    }

    #[test]
    fn a_reader_needs_the_write_mark_and_raises_the_read_mark() {
        assert_eq!(marks(3, 5).admit_read(5), Ok(marks(5, 5)));
        assert_eq!(marks(9, 5).admit_read(7), Ok(marks(9, 5)));
        let refused = Refused { fence: 4, mark: 5 };
        assert_eq!(marks(3, 5).admit_read(4), Err(refused));
    }

    #[test]
    fn a_writer_needs_both_marks_and_raises_the_write_mark() {
        assert_eq!(marks(3, 5).admit_write(5), Ok(marks(3, 5)));
        assert_eq!(marks(7, 5).admit_write(7), Ok(marks(7, 7)));
        let by_reader = Refused { fence: 6, mark: 7 };
        assert_eq!(marks(7, 5).admit_write(6), Err(by_reader));
        let by_writer = Refused { fence: 4, mark: 5 };
        assert_eq!(marks(0, 5).admit_write(4), Err(by_writer));
    }

    #[test]
    fn a_new_resource_admits_every_fence() {
        assert_eq!(Marks::default().admit_read(0), Ok(marks(0, 0)));
        assert_eq!(Marks::default().admit_write(1), Ok(marks(0, 1)));
    }

    #[test]
    fn a_refusal_is_found_in_an_error_message() {
        let refused = Refused { fence: 5, mark: 17 };
        assert_eq!(Refused::in_message(&refused.to_string()), Some(refused));
        let client = "a fence was checked - STALEFENCE: fence 5 is below the mark 17 (script 1f)";
        assert_eq!(Refused::in_message(client), Some(refused));
        for other in [
            "",
            "fence 5",
            "fence x is below the mark 7",
            "fence 5 is below the mark ",
        ] {
            assert_eq!(Refused::in_message(other), None, "{other}");
        }
    }

    proptest! {
        /// At its turns each holder first reads, and then writes one more than it read.
        #[test]
        fn no_order_of_turns_loses_an_update(turns in prop::collection::vec(0..6usize, 0..40)) {
            let (mut marks, mut number, mut written) = (Marks::default(), 0, 0);
            let mut has_read = [None; 6];
            for holder in turns {
                let fence = holder as u64;
                let admitted = match has_read[holder] {
                    None => marks.admit_read(fence),
                    Some(_) => marks.admit_write(fence),
                };
                let Ok(raised) = admitted else {
                    continue;
                };
                marks = raised;
                match has_read[holder].take() {
                    None => has_read[holder] = Some(number),
                    Some(read) => {
                        number = read + 1;
                        written += 1;
                    }
                }
            }
            prop_assert_eq!(number, written);
        }
    }

    #[test]
    fn a_row_is_read_as_marks() {
        assert_eq!(Marks::from_row(3, 4), marks(3, 4));
        assert_eq!(Marks::from_row(-1, 4), marks(0, 4));
    }
}
