//! The mutant that this process was started with. `ringfence-verify mutants` writes this file.

use std::sync::LazyLock;

/// All mutants.
const NAMES: &[&str] = &[] /* names */;

/// Pieces of scripts: the mutant, the piece, and its replacement.
const PIECES: &[(&str, &str, &str)] = &[] /* pieces */;

static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| {
    let name = std::env::var("RINGFENCE_MUTANT").ok()?;
    // An unknown name would test the unbroken product.
    assert!(NAMES.contains(&&*name), "no mutant `{name}`");
    Some(name)
});

/// Whether this process was started with this mutant.
pub fn is_chosen(mutant: &str) -> bool {
    CHOSEN.as_deref() == Some(mutant)
}

/// The text of a script, with the replacement of the chosen mutant if it has one for this script.
pub fn script(text: &'static str) -> &'static str {
    let mut broken = text.to_owned();
    for (mutant, piece, instead) in PIECES {
        if is_chosen(mutant) {
            broken = broken.replace(piece, instead);
        }
    }
    if broken == text { text } else { broken.leak() }
}
