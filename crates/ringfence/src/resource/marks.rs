//! The two marks of a resource: the specification that the script and the statements follow.

use std::fmt;

/// What a resource remembers of those who used it: the highest fence that read it, and the highest
/// that wrote it. A new resource has neither.
///
/// Whoever is admitted raises its mark first, then reads, then writes. Then nobody's work is lost:
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
    /// The marks as they stand in a row of the table of [`sql`](super::sql).
    pub fn from_row(read: i64, write: i64) -> Self {
        // Fences are positive: what is below zero was not written by these statements, and is low.
        let mark = |column| u64::try_from(column).unwrap_or(0);
        Self {
            read: mark(read),
            write: mark(write),
        }
    }

    /// The fence that a reader needs at least: nobody with a higher one has written.
    pub fn reader_needs(self) -> u64 {
        self.write
    }

    /// The fence that a writer needs at least: nobody with a higher one has written, nor read what
    /// would change under it.
    pub fn writer_needs(self) -> u64 {
        self.write.max(self.read)
    }

    /// The marks after a reader with this `fence`, or why it may not read.
    ///
    /// Higher fences that only read are no obstacle, since readers that share a lock have any order
    /// among themselves.
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

/// A resource does not let this fence in: its holder lost the lock, and a later holder was here.
///
/// Do not try again with the same guard. Lock again, and begin with reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The fence that was refused.
    pub fence: u64,
    /// The mark that it is below: the fence of a later holder.
    pub mark: u64,
}

impl Refused {
    /// The refusal that an error of a Redis client tells of, if it is one: looks for the words that
    /// the script of [`redis`](super::redis) answers with.
    pub fn in_message(message: &str) -> Option<Self> {
        let (before, after) = message.split_once(MARK_WORDS)?;
        let (_, fence) = before.rsplit_once(FENCE_WORDS)?;
        // Clients put words of their own around it.
        let end = after.find(|c: char| !c.is_ascii_digit());
        let mark = &after[..end.unwrap_or(after.len())];
        Some(Self {
            fence: fence.parse().ok()?,
            mark: mark.parse().ok()?,
        })
    }
}

/// The script says it in the same words.
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
    fn a_new_resource_admits_anybody() {
        assert_eq!(Marks::default().admit_read(0), Ok(marks(0, 0)));
        assert_eq!(Marks::default().admit_write(1), Ok(marks(0, 1)));
    }

    #[test]
    fn a_refusal_is_read_from_the_words_it_is_told_in() {
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
        /// Each holder reads, and then writes one more than it read, whenever its turn comes.
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
