//! What an entry of the table is made of.

/// A rule that can be broken, and how.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name, as `RINGFENCE_MUTANT` takes it.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The edits that together break it.
    pub edits: &'static [Edit],
}

/// One change of one file of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// The file, from the root of the workspace.
    pub file: &'static str,
    /// The function in which the text stands; empty if that is the whole file.
    pub function: &'static str,
    /// What is replaced.
    pub text: &'static str,
    /// What takes its place.
    pub replacement: &'static str,
}

/// Where the broken rule is run, and so which tests are able to notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the library.
    Library,
    /// In a script, on a node.
    Node,
    /// In the script for fenced keys, on the server that has the data.
    Data,
}

impl Mutant {
    /// Where the broken rule is run.
    pub fn place(&self) -> Place {
        match self.edits.first() {
            Some(edit) if edit.is_lua() && edit.file.contains("/resource/") => Place::Data,
            Some(edit) if edit.is_lua() => Place::Node,
            _ => Place::Library,
        }
    }
}

impl Edit {
    /// Whether it changes a script.
    pub fn is_lua(&self) -> bool {
        self.file.ends_with(".lua")
    }
}

pub(super) const fn edit(
    file: &'static str,
    function: &'static str,
    text: &'static str,
    replacement: &'static str,
) -> Edit {
    Edit {
        file,
        function,
        text,
        replacement,
    }
}

/// The mutants of one room. The documentation of each is the rule that it breaks.
macro_rules! mutants {
    ($($(#[doc = $rule:literal])+ $name:ident: $($edit:expr),+;)+) => {
        pub(super) const MUTANTS: &[Mutant] = &[
            $(Mutant {
                name: stringify!($name),
                rule: concat!($($rule),+).trim_ascii(),
                edits: &[$($edit),+],
            },)+
        ];
    };
}
