//! The stored clock of the node, and its present time.
//!
//! Leases run on the machine's clock since boot, which is valid only within one boot. Ballots are
//! compared with the higher of the wall clock and the node's stored clock plus the elapsed time.
//! Otherwise a wall clock that was set back by an hour would stop all grants until the records
//! lapse, and then lower the fences.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::group::Group;
use crate::ledger::Moment;
use crate::message::Ballot;
use crate::node::{CallError, NodeClock, Trouble, TroubleKind};

use super::error::{damaged, refused};

/// The one row of the table `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRow {
    /// The boot of the machine in which the row was written.
    boot_id: String,
    /// When it was written, on the clock since that boot.
    boot_us: u64,
    /// The node's clock at that time.
    clock_us: u64,
    /// The group, once a client has joined.
    pub(super) group: Option<Group>,
}

/// The columns of the row. Signed, since SQLite has no unsigned integers.
type Columns = (String, i64, i64, [Option<i64>; 3]);

impl NodeRow {
    pub(super) fn beginning(clock: &NodeClock) -> Self {
        Self {
            boot_id: clock.boot_id().to_owned(),
            boot_us: clock.now().as_micros(),
            clock_us: ballot_clock(clock),
            group: None,
        }
    }

    pub(super) fn load(path: &Path, connection: &Connection) -> Result<Self, CallError> {
        let sql = "SELECT boot_id, boot_us, clock_us, window_us, quarantine_us, grace_us FROM node";
        let columns = connection
            .prepare_cached(sql)
            .and_then(|mut node| node.query_row([], columns).optional())
            .map_err(|error| refused(path, &error))?;
        columns
            .and_then(Self::from_columns)
            .ok_or_else(|| damaged(path, "the node's own row is invalid"))
    }

    fn from_columns((boot_id, boot_us, clock_us, group): Columns) -> Option<Self> {
        let clock_us = u64::try_from(clock_us).ok()?;
        let group = match group {
            [None, None, None] => None,
            [Some(window), Some(quarantine), Some(grace)] => Some(Group {
                nodes: 1,
                window: Duration::from_micros(u64::try_from(window).ok()?),
                quarantine: Duration::from_micros(u64::try_from(quarantine).ok()?),
                grace: Duration::from_micros(u64::try_from(grace).ok()?),
            }),
            _ => return None,
        };
        (clock_us <= Ballot::MAX.get()).then_some(Self {
            boot_id,
            boot_us: u64::try_from(boot_us).ok()?,
            clock_us,
            group,
        })
    }

    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(
            connection,
            "INSERT INTO node (one, boot_id, boot_us, clock_us, window_us, quarantine_us, grace_us)
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)",
        )
    }

    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(
            connection,
            "UPDATE node SET boot_id = ?1, boot_us = ?2, clock_us = ?3,
                 window_us = ?4, quarantine_us = ?5, grace_us = ?6",
        )
    }

    fn write(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let values = self.group.map(|group| {
            [group.window, group.quarantine, group.grace]
                .map(|value| i64::try_from(value.as_micros()).unwrap_or(i64::MAX))
        });
        let [window, quarantine, grace] = values.map_or([None; 3], |values| values.map(Some));
        connection.prepare_cached(sql)?.execute(params![
            self.boot_id,
            self.boot_us.cast_signed(),
            self.clock_us.cast_signed(),
            window,
            quarantine,
            grace,
        ])?;
        Ok(())
    }

    /// The present state after this one, and whether the machine was booted in between.
    pub(super) fn advance(
        &self,
        path: &Path,
        clock: &NodeClock,
    ) -> Result<(Self, bool), CallError> {
        let boot_us = clock.now().as_micros();
        let went_back = boot_us < self.boot_us;
        // Without boot ids, only a clock that went back reveals a boot.
        let other_boot = self.boot_id != clock.boot_id();
        let booted = other_boot || (went_back && self.boot_id.is_empty());
        if went_back && !booted {
            let detail = format!(
                "{}: the clock since boot went back within one boot: do processes in different \
                 time namespaces share the file?",
                path.display()
            );
            return Err(CallError::Refused(Trouble::new(TroubleKind::Other, detail)));
        }
        let since_us = if booted { 0 } else { boot_us - self.boot_us };
        let carried_us = self.clock_us.saturating_add(since_us);
        let present = Self {
            boot_id: clock.boot_id().to_owned(),
            boot_us,
            clock_us: carried_us.max(ballot_clock(clock)).min(Ballot::MAX.get()),
            group: self.group,
        };
        Ok((present, booted))
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            clock_us: self.clock_us,
            lease_ms: self.boot_us / 1000,
        }
    }
}

fn ballot_clock(clock: &NodeClock) -> u64 {
    clock.now_us().min(Ballot::MAX.get())
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    let group = [row.get(3)?, row.get(4)?, row.get(5)?];
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, group))
}
