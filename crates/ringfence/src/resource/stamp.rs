//! For resources that cannot compare numbers: who claimed it last, and nobody else, may write.

use std::fmt;

use crate::token::Token;

/// A holder's mark on a resource that knows equality only: an object store with `If-Match`, a cache
/// with compare-and-swap, a row behind an interface that takes `expected`.
///
/// It is the public half of the guard's token, and the fence: no two holds have the same, and nobody
/// who reads it can release the lock. Keep it in or beside the data, and
///
/// 1. **claim** when the lock is held: put the stamp there, whatever stood there before;
/// 2. **read** the data;
/// 3. **write** only if the stamp is still there, in one step: compare and set.
///
/// Then no update is lost: between one holder's claim and its write no other has claimed, so what it
/// read is what it replaces. What equality cannot give is the order of fences. A holder that lost its
/// lock *before* its claim may claim after its successor, who is then refused: nothing is lost, but
/// the wrong one had to begin again. Where numbers can be compared, use [`Marks`](super::Marks).
///
/// ```
/// use ringfence::resource::Stamp;
/// # use ringfence::Token;
/// # let (token, fence) = (&Token::parse("0123456789.secret")?, 7); // guard.token(), guard.fence()
///
/// let stamp = Stamp::new(token, fence);
/// // claim: UPDATE report SET stamp = $1 WHERE id = 1
/// // read:  SELECT …
/// // write: UPDATE report SET body = $1 WHERE id = 1 AND stamp = $2       0 rows: refused
/// # assert_eq!(stamp.as_str(), "0123456789.7");
/// # Ok::<(), ringfence::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Stamp(String);

impl Stamp {
    /// The stamp of the hold with this token and fence.
    pub fn new(token: &Token, fence: u64) -> Self {
        Self(format!("{}.{fence}", token.id()))
    }

    /// The text to put into the resource: ASCII letters, digits and one dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the resource, where `found` stands now, is still claimed by this hold.
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

/// The resource is not claimed by this hold any more, or never was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// Whose write was refused.
    pub stamp: Stamp,
    /// What stands in its place, if anything does.
    pub by: Option<String>,
}

impl fmt::Display for Displaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stamp {} is not on the resource", self.stamp)?;
        if let Some(by) = &self.by {
            // What somebody else wrote there ends up in terminals and logs.
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
    fn a_stamp_tells_holds_apart_and_no_secret() {
        assert_eq!(stamp(0xab, 7).as_str(), "ababababab.7");
        assert_ne!(stamp(1, 7), stamp(1, 8));
        assert_ne!(stamp(1, 7), stamp(2, 7));
    }

    proptest! {
        /// Each holder claims and reads, and then writes one more than it read, whenever its turn
        /// comes.
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
        let said = displaced.to_string();
        assert!(
            said.contains("0101010101.7 is not on the resource, 0202020202.8 is"),
            "{said}"
        );
        let said = ours.check(None).unwrap_err().to_string();
        assert!(said.contains("is not on the resource: another"), "{said}");
    }
}
