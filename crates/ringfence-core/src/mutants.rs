//! Every safety rule, switched off one at a time, to see that the tests notice.
//!
//! Where a rule is kept, `mutant!` names what breaks it. It is the constant `false`, and neither the
//! list nor the selector is compiled, unless the build has `--cfg ringfence_mutants`, which no feature
//! switches on. In such a build the variable `RINGFENCE_MUTANT` names the one rule to break.
//! `ringfence-verify mutants` makes that build and runs the tests on each of them.

#[cfg(ringfence_mutants)]
mod list;

#[cfg(ringfence_mutants)]
pub use list::{ALL, Described, Mutant, Place};

/// Whether the rule that this breaks is switched off. Never, in a normal build.
#[cfg(not(ringfence_mutants))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

#[cfg(ringfence_mutants)]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutants::is_chosen($crate::mutants::Mutant::$name)
    };
}

/// The variable that names the rule to break.
#[cfg(ringfence_mutants)]
pub const VARIABLE: &str = "RINGFENCE_MUTANT";

/// Whether `mutant` is the one that this process was started with.
///
/// # Panics
/// If there is no mutant of the name that was given: a run that breaks nothing proves nothing.
#[cfg(ringfence_mutants)]
pub fn is_chosen(mutant: Mutant) -> bool {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Option<Mutant>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let named = ALL.iter().find(|described| described.name == name);
        Some(named.unwrap_or_else(|| panic!("no mutant `{name}`")).mutant)
    });
    *CHOSEN == Some(mutant)
}

#[cfg(all(test, not(ringfence_mutants)))]
mod tests {
    #[test]
    fn a_normal_build_knows_no_mutant() {
        // A constant, whatever the environment says: this would not compile otherwise.
        const BROKEN: bool = mutant!(NoDriftTerm);
        const { assert!(!BROKEN) };
    }
}
