//! For resources that cannot compare numbers: only the holder that claimed it last may write.

use std::fmt;

use crate::token::Token;

/// A holder's mark on a resource that can only compare for equality: an object store with
/// `If-Match`, a cache with compare-and-swap, a row behind an interface that takes `expected`.
///
/// It is the public half of the guard's token, and the fence. No two holds have the same stamp,
/// and a client that reads it cannot release the lock. Store it in or beside the data, and
///
/// 1. **claim** when the lock is held: store the stamp, whatever the old one is;
/// 2. **read** the data;
/// 3. **write** only if the stamp is unchanged, in one step: compare and set.
///
/// Then no update is lost: between a holder's claim and its write no other holder has claimed, so
/// it replaces what it read. Equality cannot give the order of fences. A holder that lost its
/// lock *before* its claim may claim after its successor, and the successor is refused: no update
/// is lost, but the current holder must start again. If the resource can compare numbers, use
/// [`Marks`](super::Marks).
///
/// ```
/// use ringfence::resource::Stamp;
/// # use ringfence::receipt::Token;
/// # let (token, fence) = (&Token::parse("0123456789.secret")?, 7); // guard.token(), guard.fence()
///
/// let stamp = Stamp::new(token, fence);
/// // claim: UPDATE report SET stamp = $1 WHERE id = 1
/// // read:  SELECT …
/// // write: UPDATE report SET body = $1 WHERE id = 1 AND stamp = $2       0 rows: refused
/// # assert_eq!(stamp.as_str(), "0123456789.7");
/// # Ok::<(), ringfence::receipt::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Stamp(String);

impl Stamp {
    /// The stamp of the hold with this token and fence.
    pub fn new(token: &Token, fence: u64) -> Self {
        Self(format!("{}.{fence}", token.id()))
    }

    /// The text to store in the resource: ASCII letters, digits and one dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this hold still claims the resource, which now has the stamp `found`.
    pub fn check(&self, found: Option<&str>) -> Result<(), Displaced> {
        if found == Some(self.as_str()) {
            return Ok(());
        }
        Err(Displaced {
            stamp: self.clone(),
            by: found.map(str::to_owned),
        })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({})", self.0)
    }
}

/// This hold does not claim the resource, or no longer claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// The stamp of the refused writer.
    pub stamp: Stamp,
    /// The stamp that was found, if there is one.
    pub by: Option<String>,
}

impl fmt::Display for Displaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stamp {} is not on the resource", self.stamp)?;
        if let Some(by) = &self.by {
            // Escaped: other programs wrote it, and it is shown in terminals and logs.
            write!(f, ", {} is", by.escape_debug())?;
        }
        f.write_str(": another holder has claimed it; lock again and start over")
    }
}

impl std::error::Error for Displaced {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::token::TOKEN_ENTROPY_BYTES;

    fn stamp(byte: u8, fence: u64) -> Stamp {
        Stamp::new(&Token::from_entropy([byte; TOKEN_ENTROPY_BYTES]), fence)
    }

    #[test]
    fn a_stamp_is_unique_per_hold_and_has_no_secret() {
        assert_eq!(stamp(0xab, 7).as_str(), "ababababab.7");
        assert_ne!(stamp(1, 7), stamp(1, 8));
        assert_ne!(stamp(1, 7), stamp(2, 7));
    }

    proptest! {
        /// At its turns each holder first claims and reads, and then writes one more than it read.
        #[test]
        fn no_order_of_turns_loses_an_update(turns in prop::collection::vec(0..4u8, 0..40)) {
            let (mut claimed, mut number, mut written) = (None, 0, 0);
            let mut has_read = [None; 4];
            for holder in turns {
                let ours = stamp(holder, 1);
                match has_read[usize::from(holder)].take() {
                    None => {
                        claimed = Some(ours);
                        has_read[usize::from(holder)] = Some(number);
                    }
                    Some(read) => {
                        let found = claimed.as_ref().map(Stamp::as_str);
                        if ours.check(found).is_ok() {
                            number = read + 1;
                            written += 1;
                        }
                    }
                }
            }
            prop_assert_eq!(number, written);
        }
    }

    #[test]
    fn only_its_own_stamp_lets_a_holder_write() {
        let ours = stamp(1, 7);
        assert_eq!(ours.check(Some("0101010101.7")), Ok(()));
        let displaced = ours.check(Some("0202020202.8")).unwrap_err();
        let error = displaced.to_string();
        assert!(
            error.contains("0101010101.7 is not on the resource, 0202020202.8 is"),
            "{error}"
        );
        let error = ours.check(None).unwrap_err().to_string();
        assert!(error.contains("is not on the resource: another"), "{error}");
    }
}
