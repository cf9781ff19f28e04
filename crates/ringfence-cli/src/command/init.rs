//! `ringfence init`: the operator declares that the nodes are new. Also, in words for an operator, what
//! a failover behind a single server costs.

use ringfence::url::{NodeUrl, parse_nodes};
use ringfence::{Failover, Locks};
use ringfence_core::group::Group;
use ringfence_core::protocol::{Cluster, Drift};
use serde_json::json;

use crate::args::InitArgs;
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, Report, one_line};
use crate::row::millis;

pub(super) async fn init(args: InitArgs, nodes: &str, report: Report) -> Result<Exit, CliFailure> {
    let mut builder = Locks::builder().nodes(nodes);
    if let Some(quarantine) = args.quarantine {
        builder = builder.quarantine(quarantine);
    }
    let done = if args.regroup {
        builder.regroup().await?
    } else if args.force {
        builder.init_by_force().await?
    } else {
        builder.init().await?
    };
    for node in &done.overridden {
        report.warn(&format!("{}: {}", node.node, one_line(&node.said())));
    }
    let group = done.group;
    let quarantine = duration::show_ceil(done.quarantine);
    let text = match group.nodes {
        1 => {
            // `init` declares that there is nothing to lose yet, so only the level is of interest.
            let cost = failover_cost(&group.into(), group.failover == Failover::Auto);
            let cost = cost
                .filter(|_| is_server(nodes))
                .map(|cost| format!("; if it is replicated, {cost}"));
            format!("1 node may vote now{}", cost.unwrap_or_default())
        }
        count => {
            format!("{count} nodes may vote now; a restarted node does not vote for {quarantine}")
        }
    };
    let overridden = done.overridden.iter();
    let overridden = overridden.map(|node| json!({"node": node.node, "said": node.said()}));
    let value = json!({
        "nodes": group.nodes,
        "quarantine_ms": millis(group.quarantine),
        "window_ms": millis(group.window),
        "failover": group.failover.to_string(),
        "overridden": overridden.collect::<Vec<_>>(),
    });
    report.result(&text, &value)?;
    Ok(Exit::Success)
}

/// Whether the only node is a server. An embedded file has no replicas.
fn is_server(nodes: &str) -> bool {
    parse_nodes(nodes).is_ok_and(|urls| matches!(urls.as_slice(), [NodeUrl::Redis(_)]))
}

/// What a failover costs the locks on the only node of `group`; `None` for several nodes.
/// `replicated`: the server has or had replicas, or Sentinels watch it.
pub(super) fn failover_cost(group: &Group, replicated: bool) -> Option<String> {
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
            failover_cost(&group, replicated).unwrap()
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
        assert_eq!(failover_cost(&Group::new(3), true), None);
    }
}
