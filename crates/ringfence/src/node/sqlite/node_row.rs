//! The stored clock of the node, and its present time.
//!
//! Leases run on the machine's clock since boot, which is valid only within one boot. Ballots are
//! compared with the higher of the wall clock and the node's stored clock plus the elapsed time.
//! Otherwise a wall clock that was set back by an hour would stop all grants until the records
//! lapse, and then lower the fences.
//!
//! Most transactions are not synced to the disk, so a power cut may lose the last of them. Holders
//! and wait queues of the old boot are void after it, but fences must not go back. So the node
//! stores a promise, synced, that it accepts no ballot above [`NodeRow::promised_us`]. After a boot
//! its clock starts above the promise, and with it the floor of every name.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::group::Group;
use crate::ledger::Moment;
use crate::message::Ballot;
use crate::node::{CallError, NodeClock, Trouble, TroubleKind};

use super::error::{damaged, unreadable};
use super::rows::{ballot, damage, number, optional, signed};

/// How far ahead of its clock the node promises: one sync is enough for this long.
const PROMISE_AHEAD_US: u64 = 10_000_000;

/// Two boots of one machine begin further apart than this.
const SAME_BOOT_US: u64 = 2_000_000;

/// The one row of the table `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRow {
    /// The boot of the machine in which the row was written.
    boot_id: String,
    /// The time namespace in which the file was made: in another one the clock since boot is
    /// another one.
    time_namespace: String,
    /// When it was written, on the clock since that boot.
    boot_us: u64,
    /// The node's clock at that time.
    clock_us: u64,
    /// The highest ballot that the node may have accepted. It is on disk before such a ballot is
    /// accepted.
    promised_us: u64,
    /// When the machine was booted, on the wall clock of the process that wrote this.
    boot_moment_us: i64,
    /// How many syncs were begun, by all processes.
    syncs_begun: u64,
    /// The number of the last sync that succeeded. Earlier ones that failed do not matter then.
    syncs_done: u64,
    /// About how many pages all processes have written to the log since it was last copied.
    pub(super) log_pages: u64,
    /// The group, once a client has joined.
    pub(super) group: Option<Group>,
}

/// Whether the row was written in an earlier boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boot {
    Same,
    /// The boot id is another one. But a container may have a boot id of its own, and the wall
    /// clock may have been set.
    MaybeOther,
    /// The clock since boot began anew.
    Other,
}

impl NodeRow {
    pub(super) fn beginning(clock: &NodeClock) -> Self {
        Self {
            boot_id: clock.boot_id().to_owned(),
            time_namespace: clock.time_namespace().unwrap_or_default().to_owned(),
            boot_us: clock.now().as_micros(),
            clock_us: ballot_clock(clock),
            promised_us: 0,
            boot_moment_us: boot_moment(clock),
            syncs_begun: 0,
            syncs_done: 0,
            log_pages: 0,
            group: None,
        }
    }

    pub(super) fn load(path: &Path, connection: &Connection) -> Result<Self, CallError> {
        let sql = "SELECT boot_id, time_namespace, boot_us, clock_us, promised_us, boot_moment_us,
                       syncs_begun, syncs_done, log_pages, window_us, quarantine_us, grace_us
                   FROM node";
        let what = || "the node's own row is invalid".to_owned();
        let row = connection
            .prepare_cached(sql)
            .and_then(|mut node| node.query_row([], Self::read).optional())
            .map_err(|error| unreadable(path, &error, what))?;
        row.ok_or_else(|| damaged(path, &what()))
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            boot_id: row.get(0)?,
            time_namespace: row.get(1)?,
            boot_us: number(row, 2)?,
            clock_us: ballot(row, 3)?.get(),
            promised_us: ballot(row, 4)?.get(),
            boot_moment_us: row.get(5)?,
            syncs_begun: number(row, 6)?,
            syncs_done: number(row, 7)?,
            log_pages: number(row, 8)?,
            group: group(row)?,
        })
    }

    /// Writes the only row.
    pub(super) fn store(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO node (one, boot_id, time_namespace, boot_us, clock_us,
                       promised_us, boot_moment_us, syncs_begun, syncs_done, log_pages, window_us,
                       quarantine_us, grace_us)
                   VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let micros = |value: fn(&Group) -> Duration| {
            let group = self.group.as_ref();
            group.map(|group| i64::try_from(value(group).as_micros()).unwrap_or(i64::MAX))
        };
        connection.prepare_cached(sql)?.execute(params![
            self.boot_id,
            self.time_namespace,
            signed(self.boot_us),
            signed(self.clock_us),
            signed(self.promised_us),
            self.boot_moment_us,
            signed(self.syncs_begun),
            signed(self.syncs_done),
            signed(self.log_pages),
            micros(|group| group.window),
            micros(|group| group.quarantine),
            micros(|group| group.grace),
        ])?;
        Ok(())
    }

    /// The present state after this one, and whether the machine was booted in between.
    pub(super) fn advance(
        &self,
        path: &Path,
        clock: &NodeClock,
    ) -> Result<(Self, Boot), CallError> {
        if clock.time_namespace() != Some(&self.time_namespace) {
            return Err(not_one_machine(
                path,
                "made in another time namespace, where the clock since boot is another one: run all \
                 processes that share the file in one time namespace",
            ));
        }
        let boot_us = clock.now().as_micros();
        let went_back = boot_us < self.boot_us;
        // Without boot ids, only a clock that went back reveals a boot.
        let other_boot = self.boot_id != clock.boot_id();
        let booted = other_boot || (went_back && self.boot_id.is_empty());
        if went_back && !booted {
            return Err(not_one_machine(
                path,
                "the clock since boot went back within one boot: do processes in different time \
                 namespaces share the file?",
            ));
        }
        let boot = match (booted, went_back) {
            (false, _) => Boot::Same,
            (true, true) => Boot::Other,
            (true, false) => Boot::MaybeOther,
        };
        if other_boot && self.is_same_boot(clock) {
            return Err(not_one_machine(
                path,
                "processes of one boot see different boot ids: do containers share the file? Give \
                 them the same /proc/sys/kernel/random/boot_id",
            ));
        }
        let since_us = if booted { 0 } else { boot_us - self.boot_us };
        let carried_us = self.clock_us.saturating_add(since_us);
        // Every ballot that was accepted before the boot is at or below the new floor.
        let above_promise_us = match booted && self.promised_us > 0 {
            true => self.promised_us.saturating_add(self.window_us()),
            false => 0,
        };
        let clock_us = carried_us.max(above_promise_us).max(ballot_clock(clock));
        let present = Self {
            boot_id: clock.boot_id().to_owned(),
            time_namespace: self.time_namespace.clone(),
            boot_us,
            clock_us: clock_us.min(Ballot::MAX.get()),
            promised_us: self.promised_us,
            boot_moment_us: boot_moment(clock),
            syncs_begun: self.syncs_begun,
            // After a boot the file has what is on the disk.
            syncs_done: if booted {
                self.syncs_begun
            } else {
                self.syncs_done
            },
            log_pages: self.log_pages,
            group: self.group,
        };
        Ok((present, boot))
    }

    /// Whether the row was written in the present boot, although its boot id is another. Believing
    /// the ids would free the locks of holders that are alive.
    fn is_same_boot(&self, clock: &NodeClock) -> bool {
        let both_known = !self.boot_id.is_empty() && !clock.boot_id().is_empty();
        both_known && self.boot_moment_us.abs_diff(boot_moment(clock)) <= SAME_BOOT_US
    }

    /// Whether the node may accept `ballot`. A ballot above its ceiling is not accepted anyway.
    pub(super) fn has_promised(&self, ballot: Ballot) -> bool {
        let ceiling_us = self.clock_us.saturating_add(self.window_us());
        ballot.get().min(ceiling_us) <= self.promised_us
    }

    /// Promises for a while. The transaction that writes this must be synced before it is answered.
    pub(super) fn promise(&mut self) {
        let ceiling_us = self.clock_us.saturating_add(self.window_us());
        let ahead_us = ceiling_us.saturating_add(PROMISE_AHEAD_US);
        self.promised_us = ahead_us.min(Ballot::MAX.get()).max(self.promised_us);
    }

    /// The number of the last sync, if it has not succeeded.
    pub(super) fn unfinished_sync(&self) -> Option<u64> {
        (self.syncs_begun != self.syncs_done).then_some(self.syncs_begun)
    }

    /// Begins a sync. Returns its number.
    pub(super) fn begin_sync(&mut self) -> u64 {
        self.syncs_begun = self.syncs_begun.wrapping_add(1) & (u64::MAX >> 1);
        self.syncs_begun
    }

    /// All syncs up to the present one have succeeded, or what they synced was synced again.
    pub(super) fn end_sync(&mut self) {
        self.syncs_done = self.syncs_begun;
    }

    fn window_us(&self) -> u64 {
        let window = self.group.unwrap_or(Group::new(1)).window;
        u64::try_from(window.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            clock_us: self.clock_us,
            lease_ms: self.boot_us / 1000,
        }
    }
}

pub(super) fn not_one_machine(path: &Path, what: &str) -> CallError {
    let detail = format!("{}: {what}", path.display());
    CallError::Refused(Trouble::new(TroubleKind::Other, detail))
}

/// When the machine was booted, on the wall clock.
fn boot_moment(clock: &NodeClock) -> i64 {
    let (wall_us, boot_us) = (clock.now_us(), clock.now().as_micros());
    wall_us.cast_signed().saturating_sub(boot_us.cast_signed())
}

fn ballot_clock(clock: &NodeClock) -> u64 {
    clock.now_us().min(Ballot::MAX.get())
}

fn group(row: &Row<'_>) -> rusqlite::Result<Option<Group>> {
    let micros = |column| -> rusqlite::Result<_> {
        Ok(optional(row, column, number)?.map(Duration::from_micros))
    };
    match (micros(9)?, micros(10)?, micros(11)?) {
        (None, None, None) => Ok(None),
        (Some(window), Some(quarantine), Some(grace)) => Ok(Some(Group {
            window,
            quarantine,
            grace,
            // No failover replaces a file.
            ..Group::new(1)
        })),
        _ => Err(damage(9)),
    }
}
