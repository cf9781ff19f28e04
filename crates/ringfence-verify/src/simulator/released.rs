//! The ballots that were released on a server, to notice a late request that makes a holder hold
//! again.

use std::collections::BTreeMap;

use ringfence_core::message::{Acquire, Answer, Mode, Op, Release, ReleaseKind, Request, Restore};

/// For each name and token, the highest ballot that was released: no later acquire with it may be
/// granted, and no restore.
#[derive(Debug, Clone, Default)]
pub(super) struct ReleasedBallots {
    acquires: BTreeMap<(String, String), u64>,
    restores: BTreeMap<(String, String), u64>,
}

impl ReleasedBallots {
    /// Records a request that was executed. `removed` has the names and holders that it freed; no
    /// record may exceed `ceiling_us` now. Returns the names on which the request made a released
    /// holder hold again. Shared claims are left out, because readers need no order among each
    /// other.
    pub(super) fn note(
        &mut self,
        request: &Request,
        answer: &Answer,
        removed: &[(String, String)],
        ceiling_us: u64,
    ) -> Vec<String> {
        let alone = request.claims.iter().filter(|c| c.mode == Mode::Exclusive);
        let id = request.token.id();
        let keys = alone.map(|claim| (claim.name.to_string(), id.to_owned()));
        match (&request.op, answer) {
            (
                Op::Release(Release {
                    ballot,
                    kind,
                    fate_unknown,
                    ..
                }),
                answer,
            ) if *answer != Answer::Newer && ballot.get() <= ceiling_us => {
                for key in keys {
                    if *fate_unknown || removed.contains(&key) {
                        raise(&mut self.acquires, key.clone(), ballot.get());
                    }
                    if *kind == ReleaseKind::Final {
                        raise(&mut self.restores, key, ballot.get());
                    }
                }
                Vec::new()
            }
            (Op::Acquire(Acquire { ballot, .. }), Answer::Granted) => {
                brought_back(&self.acquires, keys, ballot.get())
            }
            (Op::Restore(Restore { ballot, .. }), Answer::Restored) => {
                brought_back(&self.restores, keys, ballot.get())
            }
            _ => Vec::new(),
        }
    }
}

fn raise(of: &mut BTreeMap<(String, String), u64>, key: (String, String), ballot: u64) {
    let highest = of.entry(key).or_default();
    *highest = ballot.max(*highest);
}

fn brought_back(
    of: &BTreeMap<(String, String), u64>,
    keys: impl Iterator<Item = (String, String)>,
    ballot: u64,
) -> Vec<String> {
    let back = keys.filter(|key| of.get(key).is_some_and(|highest| ballot <= *highest));
    back.map(|(name, _)| name).collect()
}
