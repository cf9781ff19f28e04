//! What every script on claims is told of the group and the handshake, and what it checks.

use redis::RedisWrite;

use crate::ledger::Rules;
use crate::message::{AcquireSlot, Op};

use super::command::write_args;
use super::key::BORN_KEY;

/// The arguments of every lock operation that come from the group and the handshake.
#[derive(Debug, Clone)]
pub(super) struct ScriptTerms {
    /// The birth record as this connection saw it. A node with another birth record does nothing.
    born: String,
    /// The constants of the ledger.
    pub(super) rules: Rules,
    /// Whether scripts that write a holder compare the replication id, too.
    pub(super) compare: bool,
    /// Whether the quarantine of the only node of the group is over, on the node's clock.
    pub(super) quarantine_over: bool,
    /// Whether our user may only read: then scripts are run with `EVAL_RO`.
    pub(super) looks_only: bool,
    /// Whether our user may not run `INFO`: then no script does.
    pub(super) unseen: bool,
}

impl ScriptTerms {
    /// The terms under the birth record `born`, whose incarnation has these `rules`.
    pub(super) fn new(born: &str, rules: Rules) -> Self {
        Self {
            born: born.to_owned(),
            rules,
            compare: false,
            quarantine_over: rules.grants_from_us == 0,
            looks_only: false,
            unseen: false,
        }
    }

    /// What a script checks beside the birth record, for an operation `op`.
    pub(super) fn checks(&self, op: &Op) -> Checks {
        let may_refuse = matches!(op, Op::Acquire(_) | Op::AcquireSlot(_) | Op::Restore(_));
        let grants_from_us = self.rules.grants_from_us;
        Checks {
            unseen: self.unseen,
            compares: self.compare && op.writes_holder(),
            grants_from_us: (may_refuse && !self.quarantine_over).then_some(grants_from_us),
            not_after_us: match op {
                Op::Acquire(op) | Op::AcquireSlot(AcquireSlot { acquire: op, .. }) => {
                    op.not_after_us
                }
                _ => None,
            },
        }
    }

    /// Writes the last key and the first arguments of every script on claims.
    pub(super) fn write(&self, checks: Checks, out: &mut impl RedisWrite) {
        write_args(out, BORN_KEY);
        checks.write(&self.born, out);
        write_args(out, (self.rules.window_us, self.rules.retention_ms));
    }
}

/// What a script checks beside the birth record. Most servers have no failover behind them, and
/// check nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checks {
    /// Our user may not run `INFO`.
    unseen: bool,
    /// Compare the replication id.
    compares: bool,
    /// The node grants nothing before this time.
    grants_from_us: Option<u64>,
    /// The latest time at which an acquire may be executed.
    not_after_us: Option<u64>,
}

impl Checks {
    /// All checks of both.
    pub(super) fn and(self, other: Self) -> Self {
        let earlier = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            unseen: self.unseen || other.unseen,
            compares: self.compares || other.compares,
            grants_from_us: self.grants_from_us.or(other.grants_from_us),
            not_after_us: earlier(self.not_after_us, other.not_after_us),
        }
    }

    fn write(self, born: &str, out: &mut impl RedisWrite) {
        if !self.compares && self.grants_from_us.is_none() && self.not_after_us.is_none() {
            return write_args(out, born);
        }
        let text = |time: Option<u64>| time.map(|us| us.to_string()).unwrap_or_default();
        let (from, latest) = (text(self.grants_from_us), text(self.not_after_us));
        let sign = if self.unseen { '!' } else { '?' };
        write_args(out, format!("{sign}{from}:{latest} {born}"));
    }
}
