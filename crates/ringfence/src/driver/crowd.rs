//! How many callers of this client ask for a name at the moment. Whoever is not the only one need not
//! find out from the nodes that there is a line to stand in.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::message::{Claim, Mode};
use crate::name::Name;

use super::lock;

/// Who asks for what.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    asking: Mutex<HashMap<Name, usize>>,
}

/// One of them. Dropped, it no longer asks.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    crowd: &'a Crowd,
    claims: &'a [Claim],
    /// Whether somebody else asked for one of its names before, and has not got it yet.
    pub(crate) in_company: bool,
}

impl Crowd {
    /// One more asks for `claims`. Those who would share them are in nobody's way.
    pub(crate) fn join<'a>(&'a self, claims: &'a [Claim]) -> Asking<'a> {
        let mut asking = lock(&self.asking);
        let mut in_company = false;
        for claim in exclusive(claims) {
            let others = asking.entry(claim.name.clone()).or_default();
            in_company |= *others > 0;
            *others += 1;
        }
        Asking {
            crowd: self,
            claims,
            in_company,
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asking = lock(&self.crowd.asking);
        for claim in exclusive(self.claims) {
            if let Some(all) = asking.get_mut(&claim.name) {
                *all -= 1;
                if *all == 0 {
                    asking.remove(&claim.name);
                }
            }
        }
    }
}

fn exclusive(claims: &[Claim]) -> impl Iterator<Item = &Claim> {
    let exclusive = |claim: &&Claim| claim.mode == Mode::Exclusive;
    claims.iter().filter(exclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims<const N: usize>(names: [&str; N], mode: Mode) -> [Claim; N] {
        names.map(|name| Claim {
            name: Name::new("", name).unwrap(),
            mode,
        })
    }

    #[test]
    fn whoever_comes_second_is_in_company_until_the_first_has_gone() {
        let crowd = Crowd::default();
        let (one, both) = (
            claims(["a"], Mode::Exclusive),
            claims(["a", "b"], Mode::Exclusive),
        );
        let other = claims(["c"], Mode::Exclusive);
        let first = crowd.join(&one);
        assert!(!first.in_company);
        assert!(!crowd.join(&other).in_company);
        let second = crowd.join(&both);
        assert!(second.in_company);
        drop(first);
        assert!(crowd.join(&one).in_company, "the second still asks");
        drop(second);
        assert!(!crowd.join(&both).in_company);
        assert!(lock(&crowd.asking).is_empty());
    }

    #[test]
    fn those_who_share_are_no_company() {
        let crowd = Crowd::default();
        let shared = claims(["a"], Mode::Shared);
        let _first = crowd.join(&shared);
        assert!(!crowd.join(&shared).in_company);
        assert!(!crowd.join(&claims(["a"], Mode::Exclusive)).in_company);
    }
}
