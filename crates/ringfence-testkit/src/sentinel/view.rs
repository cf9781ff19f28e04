//! What Sentinels and servers of a group say about themselves, for the kit.

use crate::server::Server;

use super::{PERIODS, SentinelGroup};

/// What a Sentinel knows of its master.
pub(super) struct View {
    pub(super) port: String,
    pub(super) epoch: String,
    pub(super) others: String,
    pub(super) replicas: String,
}

pub(super) fn view(sentinel: &Server) -> Option<View> {
    if !sentinel.is_running() {
        return None;
    }
    let reply = sentinel
        .try_command(&["SENTINEL", "MASTER", SentinelGroup::SERVICE])
        .ok()?;
    let lines: Vec<&str> = reply.lines().collect();
    let field = |name: &str| {
        let pair = lines.chunks(2).find(|pair| pair[0] == name)?;
        pair.get(1).map(|value| (*value).to_owned())
    };
    Some(View {
        port: field("port")?,
        epoch: field("config-epoch")?,
        others: field("num-other-sentinels")?,
        replicas: field("num-slaves")?,
    })
}

/// The port of the master that `sentinel` names.
pub(super) fn address_named_by(sentinel: &Server) -> Option<String> {
    if !sentinel.is_running() {
        return None;
    }
    let question = [
        "SENTINEL",
        "GET-MASTER-ADDR-BY-NAME",
        SentinelGroup::SERVICE,
    ];
    let reply = sentinel.try_command(&question).ok()?;
    reply.lines().nth(1).map(str::to_owned)
}

pub(super) fn votes_for(server: &Server, named: &[String]) -> usize {
    let port = server.port().to_string();
    named.iter().filter(|named| **named == port).count()
}

pub(super) fn role_of(server: &Server) -> Option<String> {
    if !server.is_running() {
        return None;
    }
    let reply = server.try_command(&["ROLE"]).ok()?;
    reply.lines().next().map(str::to_owned)
}

pub(super) fn is_in_sync(server: &Server) -> bool {
    let replication = server
        .try_command(&["INFO", "replication"])
        .unwrap_or_default();
    replication.contains("master_link_status:up")
}

/// Gives `sentinel` short periods.
pub(super) fn hasten(sentinel: &Server) {
    let mut command = vec!["SENTINEL", "DEBUG"];
    command.extend(PERIODS.iter().flat_map(|(name, value)| [*name, *value]));
    sentinel.command(&command);
}
