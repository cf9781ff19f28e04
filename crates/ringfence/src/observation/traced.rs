//! The trace of one attempt: a child span for the call to each node, with the attributes of
//! OpenTelemetry's conventions for database clients. Made only if such spans are enabled.

use std::sync::{Arc, Mutex};

use tracing::field::Empty;
use tracing::{Level, Span, debug_span, span_enabled};

use crate::message::{Op, Reply, Request};
use crate::node::{CallError, Deliver};
use crate::runtime::lock;

use super::Observation;
use super::labels::vote_word;

/// Receives the replies to an attempt, ends the span of each call, and hands the replies on.
struct TracedReplies {
    to: Arc<dyn Deliver<Reply>>,
    /// The span of each call, in node order, until it has ended.
    spans: Mutex<Vec<Option<Span>>>,
}

impl Observation {
    /// `to`, or a receiver in front of it that traces each call of `request`.
    pub(crate) fn traced(
        &self,
        request: &Request,
        to: Arc<dyn Deliver<Reply>>,
    ) -> Arc<dyn Deliver<Reply>> {
        if !span_enabled!(target: "ringfence", Level::DEBUG, "node call") {
            return to;
        }
        let spans = (0..self.nodes.len()).map(|node| Some(self.call_span(node, &request.op)));
        Arc::new(TracedReplies {
            to,
            spans: Mutex::new(spans.collect()),
        })
    }

    fn call_span(&self, node: usize, op: &Op) -> Span {
        let node = &self.nodes[node];
        let system = node.system();
        let (command, script) = command(op);
        let is_server = matches!(system, Some("redis" | "valkey"));
        let (address, port) = address(&node.name);
        // Without a server there is no command: the operation has the script's name.
        let (operation, script) = match is_server {
            true => (command, script),
            false => (script.unwrap_or(command), None),
        };
        let span = debug_span!(
            target: "ringfence",
            "node call",
            otel.name = script.map_or(operation.to_owned(), |script| format!("{operation} {script}")),
            otel.kind = "client",
            db.system.name = Empty,
            db.operation.name = operation,
            db.stored_procedure.name = Empty,
            server.address = Empty,
            server.port = Empty,
            ringfence.answer = Empty,
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        span.record("db.system.name", system);
        span.record("db.stored_procedure.name", script);
        if is_server {
            span.record("server.address", address);
            span.record("server.port", port);
        }
        span
    }
}

impl Deliver<Reply> for TracedReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let span = lock(&self.spans)
            .get_mut(tag as usize)
            .and_then(Option::take);
        if let Some(span) = &span {
            if let Some(word) = vote_word(&outcome, None) {
                span.record("ringfence.answer", word.as_str());
            }
            if let Err(error) = &outcome {
                span.record("error.type", tracing::field::debug(error.trouble().kind));
                span.record("otel.status_code", "ERROR");
            }
        }
        // Ends with the reply: what the client does with it is not the node's time.
        drop(span);
        self.to.deliver(tag, outcome);
    }

    fn is_wanted(&self, tag: u64) -> bool {
        self.to.is_wanted(tag)
    }

    fn withdrawn(&self, tag: u64) {
        if let Some(span) = lock(&self.spans).get_mut(tag as usize) {
            *span = None;
        }
        self.to.withdrawn(tag);
    }
}

/// The command and the script of an attempt.
fn command(op: &Op) -> (&'static str, Option<&'static str>) {
    match op {
        Op::PlainAcquire(_) => ("SET", None),
        Op::AcquireSlot(_) => ("EVALSHA", Some("acquire_slot")),
        Op::Break(_) => ("EVALSHA", Some("break")),
        Op::Inspect => ("EVALSHA", Some("inspect")),
        Op::List(_) => ("EVALSHA", Some("list")),
        _ => ("EVALSHA", Some("acquire")),
    }
}

/// The host or socket in a node's name (`redis://user@host:port/2`), and its port.
fn address(name: &str) -> (&str, Option<u16>) {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    let name = name.rsplit_once('@').map_or(name, |(_, rest)| rest);
    if name.starts_with('/') {
        return (name.split_once('?').map_or(name, |(path, _)| path), None);
    }
    let name = name.split_once('/').map_or(name, |(host, _)| host);
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
        _ => (name, None),
    };
    let ip_v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    (ip_v6.unwrap_or(host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_node_is_in_its_name() {
        for (name, wanted) in [
            ("redis://a.example:6379", ("a.example", Some(6379))),
            ("rediss://me@a.example:6379/2", ("a.example", Some(6379))),
            ("127.0.0.1:6379", ("127.0.0.1", Some(6379))),
            ("redis://[::1]:6380", ("::1", Some(6380))),
            (
                "redis+unix:///run/redis.sock?db=2",
                ("/run/redis.sock", None),
            ),
            ("a", ("a", None)),
        ] {
            assert_eq!(address(name), wanted, "{name}");
        }
    }
}
