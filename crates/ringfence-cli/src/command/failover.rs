//! What a failover behind a single server costs, in words for an operator.

use ringfence::Failover;
use ringfence_core::group::Group;
use ringfence_core::protocol::{Cluster, Drift};

use crate::duration;

/// What a failover costs the locks on the only node of `group`; `None` for several nodes.
/// `replicated`: the server has or had replicas, or Sentinels watch it.
pub(super) fn cost(group: &Group, replicated: bool) -> Option<String> {
    if group.nodes != 1 {
        return None;
    }
    let quarantine = quarantine(group);
    Some(match group.failover {
        Failover::Lossless => {
            "failover=lossless: a failover costs nothing, by the operator's word".to_owned()
        }
        Failover::Ignore => {
            "failover=ignore: after a failover two clients may hold one lock".to_owned()
        }
        level if level.quarantines(replicated) => format!(
            "after a failover it grants nothing new for {quarantine}, and holders keep their locks"
        ),
        _ => "reports no replicas; if a failover may replace it all the same, declare it with \
              ?failover=quarantine"
            .to_owned(),
    })
}

/// The quarantine of `group` as it is in force: with the allowance for clocks.
pub(super) fn quarantine(group: &Group) -> String {
    let in_force = Cluster::new(group, Drift::default(), &[]).quarantine();
    duration::show_ceil(in_force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_failover_depends_on_the_level_and_on_replicas() {
        let cost = |failover, replicated| {
            let group = Group {
                failover,
                ..Group::new(1)
            };
            cost(&group, replicated).unwrap()
        };
        for (failover, replicated, word) in [
            (Failover::Auto, true, "grants nothing new for 37 s"),
            (Failover::Auto, false, "?failover=quarantine"),
            (Failover::Quarantine, false, "holders keep their locks"),
            (Failover::Lossless, true, "costs nothing"),
            (Failover::Ignore, true, "two clients may hold one lock"),
        ] {
            let text = cost(failover, replicated);
            assert!(text.contains(word), "{failover} {replicated}: {text}");
        }
        assert_eq!(super::cost(&Group::new(3), true), None);
    }
}
