//! `ringfence init`: the operator declares that the nodes are new.

use ringfence::url::{NodeUrl, parse_nodes};
use ringfence::{Failover, Locks};
use serde_json::json;

use super::failover;
use crate::args::InitArgs;
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, Report, one_line};

pub(super) async fn init(args: InitArgs, nodes: &str, report: Report) -> Result<Exit, CliFailure> {
    let mut builder = Locks::builder().nodes(nodes);
    if let Some(quarantine) = args.quarantine {
        builder = builder.quarantine(quarantine);
    }
    let done = if args.regroup {
        builder.regroup().await?
    } else {
        builder.init(args.force).await?
    };
    for node in &done.overridden {
        report.warn(&format!("{}: {}", node.node, one_line(&node.said())));
    }
    let group = done.group;
    let quarantine = duration::show_ceil(done.quarantine);
    let text = match group.nodes {
        1 => {
            // `init` declares that there is nothing to lose yet, so only the level is of interest.
            let cost = failover::cost(&group, group.failover == Failover::Auto);
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
        "quarantine_ms": super::millis(group.quarantine),
        "window_ms": super::millis(group.window),
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
