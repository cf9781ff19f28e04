//! What was given back on a server, so that it is noticed when something late brings it back.

use std::collections::BTreeMap;

use ringfence_core::message::{Acquire, Answer, Mode, Op, Release, ReleaseKind, Request, Restore};

/// By name and token, the highest ballot that was given back: so that no acquire of it may be granted any
/// more, and no restore.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenBack {
    acquires: BTreeMap<(String, String), u64>,
    restores: BTreeMap<(String, String), u64>,
}

impl GivenBack {
    /// Takes note of a request that was carried out. `removed` are the names and holders that it freed,
    /// `ceiling_us` what no record may exceed now. The names on which it brought back what had been given
    /// back; shares are left out, since those who share a name need no order among themselves.
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
