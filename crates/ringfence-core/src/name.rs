//! Lock names, checked once. What a name becomes on a node is the node's business.

use std::fmt;
use std::sync::Arc;

/// The longest name (with its prefix), in bytes.
pub const NAME_MAX_BYTES: usize = 1024;

/// The most names that one lock may cover.
pub const NAMES_MAX: usize = 128;

/// Keys that begin like this are our own side records; a lock there would overwrite them.
const RESERVED: &str = "ringfence:";

/// The full key of one lock: 1 to 1,024 bytes, prefix included.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a lock's name must not be empty")]
    Empty,
    /// The name is longer than [`NAME_MAX_BYTES`].
    #[error("a lock's name may have {NAME_MAX_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The name begins with the prefix of our own records.
    #[error("names that begin with `{RESERVED}` are kept for ringfence's own records")]
    Reserved,
    /// A lock over several names got none.
    #[error("a lock over several names needs at least one")]
    None,
    /// A lock over several names got more than [`NAMES_MAX`].
    #[error("a lock may cover {NAMES_MAX} names, this one has {0}")]
    TooMany(usize),
    /// A lock over several names got the same one twice.
    #[error("the name `{0}` is given twice")]
    Twice(Name),
}

impl Name {
    /// Checks `name` under `prefix`.
    pub fn new(prefix: &str, name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let bytes = prefix.len() + name.len();
        if bytes > NAME_MAX_BYTES {
            return Err(NameError::TooLong(bytes));
        }
        let key: Arc<str> = if prefix.is_empty() {
            Arc::from(name)
        } else {
            Arc::from(format!("{prefix}{name}"))
        };
        if key.starts_with(RESERVED) {
            return Err(NameError::Reserved);
        }
        Ok(Self(key))
    }

    /// Checks a whole set: not empty, not too many, none twice. The order given is kept.
    pub fn set<S: AsRef<str>>(
        prefix: &str,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Arc<[Self]>, NameError> {
        let names = names
            .into_iter()
            .map(|name| Self::new(prefix, name.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        match names.len() {
            0 => return Err(NameError::None),
            n if n > NAMES_MAX => return Err(NameError::TooMany(n)),
            _ => {}
        }
        let mut sorted: Vec<&Self> = names.iter().collect();
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NameError::Twice(pair[0].clone()));
        }
        Ok(names.into())
    }

    /// Where those wait who want a permit of the semaphore of this name. Not a name that anybody
    /// could give: a semaphore and a lock of one name have nothing to do with each other.
    pub fn gate(&self) -> Self {
        self.part("gate")
    }

    /// The slot number `slot` of the semaphore of this name: a lock of its own.
    pub fn slot(&self, slot: u32) -> Self {
        self.part(&format!("slot{slot}"))
    }

    /// Where those stand who have arrived at the latch of this name. A lock or semaphore of the same
    /// name has nothing to do with it.
    pub fn latch(&self) -> Self {
        self.part("latch")
    }

    /// A key of ours in which the hash tag comes first, so that a semaphore stands in one cluster
    /// slot. Where the name has no tag and cannot be one, it is one without its closing braces.
    fn part(&self, part: &str) -> Self {
        let tag = hash_tag(&self.0).map_or_else(|| self.0.replace('}', ""), str::to_owned);
        let tag = if tag.is_empty() { "-" } else { &tag };
        Self(format!("{RESERVED}{{{tag}}}{part}:{}", self.0).into())
    }

    /// The name that was given for the lock, semaphore or latch that this key belongs to.
    pub fn given(&self) -> &str {
        let part = self.0.strip_prefix(RESERVED);
        let after_tag = part.and_then(|part| part.split_once('}'));
        let given = after_tag.and_then(|(_, part)| part.split_once(':'));
        given.map_or(&self.0, |(_, given)| given)
    }

    /// The key as it stands on a node.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key for people. Nearly always it is the key itself, and shared with it.
    pub fn shown(&self) -> Arc<str> {
        match self.0.escape_debug().eq(self.0.chars()) {
            true => Arc::clone(&self.0),
            false => self.to_string().into(),
        }
    }
}

/// Redis' rule: what stands between the first `{` and the first `}` after it, unless that is empty.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from users and end up in terminals and logs: no raw control characters.
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_1024_bytes_with_its_prefix() {
        assert_eq!(Name::new("", ""), Err(NameError::Empty));
        assert_eq!(Name::new("app:", ""), Err(NameError::Empty));
        assert!(Name::new("", &"x".repeat(1024)).is_ok());
        assert_eq!(
            Name::new("", &"x".repeat(1025)),
            Err(NameError::TooLong(1025))
        );
        assert_eq!(
            Name::new("p", &"x".repeat(1024)),
            Err(NameError::TooLong(1025))
        );
    }

    #[test]
    fn our_own_records_cannot_be_locked() {
        assert_eq!(Name::new("", "ringfence:born"), Err(NameError::Reserved));
        assert_eq!(Name::new("ring", "fence:x"), Err(NameError::Reserved));
        assert!(Name::new("app:", "ringfence:x").is_ok());
    }

    #[test]
    fn a_set_names_what_is_given_twice() {
        assert_eq!(
            Name::set("", ["b", "a", "b"]),
            Err(NameError::Twice(Name::new("", "b").unwrap()))
        );
        assert_eq!(Name::set::<&str>("", []), Err(NameError::None));
        assert!(matches!(
            Name::set("", (0..129).map(|i| i.to_string())),
            Err(NameError::TooMany(129))
        ));
    }

    #[test]
    fn the_parts_of_a_semaphore_or_latch_share_a_hash_tag_and_are_nobody_s_name() {
        let parts = |name: &str| {
            let name = Name::new("", name).unwrap();
            [name.gate(), name.slot(0), name.slot(12), name.latch()]
                .map(|part| part.as_str().to_owned())
        };
        assert_eq!(parts("{x}y")[3], "ringfence:{x}latch:{x}y");
        assert_eq!(parts("x")[0], "ringfence:{x}gate:x");
        assert_eq!(parts("{x}y")[2], "ringfence:{x}slot12:{x}y");
        for (name, tag) in [
            ("x", "x"),
            ("{x}y", "x"),
            ("a}b", "ab"),
            ("}", "-"),
            ("{}", "{"),
        ] {
            for part in parts(name) {
                assert_eq!(hash_tag(&part), Some(tag), "{part}");
                assert_eq!(Name(part.as_str().into()).given(), name);
                assert_eq!(Name::new("", &part), Err(NameError::Reserved));
            }
        }
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        let name = Name::new("", "a\u{1b}[2Jb").unwrap();
        assert_eq!(name.to_string(), "a\\u{1b}[2Jb");
        assert_eq!(&*name.shown(), "a\\u{1b}[2Jb");
    }
}
