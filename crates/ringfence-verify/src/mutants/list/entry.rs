//! The types of an entry in the list of mutants.

/// A rule that can be broken, and the edits that break it.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// The name, which is also the value of `RINGFENCE_MUTANT`.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The edits that together break it.
    pub edits: &'static [Edit],
}

/// One change in one file of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// The file, from the root of the workspace.
    pub file: &'static str,
    /// The function that contains the text; empty for the whole file.
    pub function: &'static str,
    /// The text to replace.
    pub text: &'static str,
    /// The replacement.
    pub replacement: &'static str,
}

/// Where the broken rule runs, which decides which tests can notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsOn {
    /// In the library.
    Library,
    /// In a script on a node.
    Node,
    /// In the script for fenced keys, on the server with the data.
    Data,
}

impl Mutant {
    /// Where the broken rule runs.
    pub fn runs_on(&self) -> RunsOn {
        match self.edits.first() {
            Some(edit) if edit.is_lua() && edit.file.contains("/resource/") => RunsOn::Data,
            Some(edit) if edit.is_lua() => RunsOn::Node,
            _ => RunsOn::Library,
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

/// The mutants of one part. The doc comment of each is the rule that it breaks.
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
