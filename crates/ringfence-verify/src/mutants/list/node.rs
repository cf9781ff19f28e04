//! The rules of each kind of node, and of a resource.

use super::{Edit, Mutant, edit};

const BACKLOG: &str = "crates/ringfence/src/node/backlog.rs";
const ALLOWANCE: &str = "crates/ringfence/src/node/redis/wire/wake_listeners.rs";
const REPORT: &str = "crates/ringfence/src/node/redis/report/mod.rs";
const RESP: &str = "crates/ringfence/src/node/redis/wire/resp.rs";
const HANDSHAKE: &str = "crates/ringfence/src/node/redis/handshake/mod.rs";
const SERVER: &str = "crates/ringfence/src/node/redis/handshake/server.rs";
const SESSION: &str = "crates/ringfence/src/node/redis/session.rs";
const LINK: &str = "crates/ringfence/src/node/redis/link.rs";
const CONFIRMING: &str = "crates/ringfence/src/node/redis/confirming.rs";
const CONNECTION: &str = "crates/ringfence/src/node/redis/wire/mod.rs";
const SCHEMA: &str = "crates/ringfence/src/node/sqlite/schema.rs";
const SHARING: &str = "crates/ringfence/src/node/sqlite/sharing.rs";
const NODE_ROW: &str = "crates/ringfence/src/node/sqlite/node_row.rs";
const QUEUE_CACHE: &str = "crates/ringfence/src/node/sqlite/queue_cache.rs";
const SYNC: &str = "crates/ringfence/src/node/sqlite/sync.rs";
const WORKER: &str = "crates/ringfence/src/node/sqlite/worker.rs";
const MARKS: &str = "crates/ringfence/src/resource/marks.rs";

/// Shared by DurableWithReplicas, EverySecondIsDurable.
#[rustfmt::skip]
const SERVER_LOOK: Edit = edit(SERVER, "look",
    "durable: on_disk == OnDisk::Always && !has_replicas,",
    "durable: on_disk == OnDisk::Always && (!has_replicas || mutant!(DurableWithReplicas))
         || on_disk == OnDisk::Later && mutant!(EverySecondIsDurable),");

mutants! {
    /// If a node is overloaded, releases are sent first.
    ReleasesWaitTheirTurn:
        edit(BACKLOG, "of",
            "if request.op.is_of_holder() {",
            "if request.op.is_of_holder() && !mutant!(ReleasesWaitTheirTurn) {");

    /// The undos of callers that have given up delay no other call.
    UndosDelayOthers:
        edit(BACKLOG, "of",
            "} else if request.op.is_late_undo() {",
            "} else if request.op.is_late_undo() && !mutant!(UndosDelayOthers) {");

    /// However many other calls there are, an undo is sent at last.
    UndosStarve:
        edit(BACKLOG, "is_undo_due",
            "let due = self.before_undo + 1 >= UNDO_EVERY && self.controls == 0;",
            "let due = self.before_undo + 1 >= UNDO_EVERY && self.controls == 0
                 && !mutant!(UndosStarve);");

    /// An undo is never sent before the acquire that it undoes.
    UndoOvertakesItsAcquire:
        edit(BACKLOG, "is_undo_due",
            "Some((token, _)) if !self.tokens.contains_key(token))",
            "Some((token, _))
                 if mutant!(UndoOvertakesItsAcquire) || !self.tokens.contains_key(token))");

    /// A flush keeps the limit of batches, except for the calls of holders.
    FlushWithoutLimit:
        edit(LINK, "send_queued",
            "false if flush.leave.is_none() => WorkQueue::try_next_of_holder,",
            "false if flush.leave.is_none() && !mutant!(FlushWithoutLimit) => {
                 WorkQueue::try_next_of_holder
             }");

    /// A release is never sent before an earlier call of its own token.
    ReleaseOvertakesItsAcquire:
        edit(BACKLOG, "push",
            "Urgency::Holder(token) if self.controls == 0 && !self.tokens.contains_key(&token) =>
                 {",
            "Urgency::Holder(token)
                 if self.controls == 0
                     && (!self.tokens.contains_key(&token)
                         || mutant!(ReleaseOvertakesItsAcquire)) =>
             {");

    /// After an error that reports a replica or a loading server, the client does a new handshake.
    ReadOnlyIsNotNewborn:
        edit(REPORT, "is_newborn",
            r#"match error.code() {
                   "READONLY" | "MASTERDOWN" | "LOADING" => true,
                   "ERR" => error
                       .details()
                       .is_some_and(|text| text.contains("user_script")
                           && text.contains("-READONLY ")),
                   _ => false,
               }"#,
            r#"let replica = match error.code() {
                   "READONLY" | "MASTERDOWN" | "LOADING" => true,
                   "ERR" => error
                       .details()
                       .is_some_and(|text| text.contains("user_script")
                           && text.contains("-READONLY ")),
                   _ => false,
               };
               replica && !mutant!(ReadOnlyIsNotNewborn)"#);

    /// All clients use the same values of the group.
    GroupsNotCompared:
        edit(HANDSHAKE, "check_group",
            "if group_fields(&born.group) == group_fields(group) {",
            "if group_fields(&born.group) == group_fields(group)
                 || mutant!(GroupsNotCompared) {");

    /// On a replicated server every script that writes a holder compares the replication id.
    ReplicatedNotCompared:
        edit(SESSION, "compare",
            "&& (server.replicated || unseen);",
            "&& (server.replicated && !mutant!(ReplicatedNotCompared) || unseen);");

    /// A client that has seen a replica does not take the server for durable after a restart.
    ReplicasForgotten:
        edit(HANDSHAKE, "look",
            "if self.replicas_seen.load(Ordering::Relaxed) {",
            "if self.replicas_seen.load(Ordering::Relaxed) && !mutant!(ReplicasForgotten) {");

    /// No call waits for a confirmation longer than it may, also if the Sentinels name another master.
    GateWaitsOn:
        edit(CONFIRMING, "update",
            "SessionStanding::OtherEpoch(_) | SessionStanding::OtherMaster(_) => *self = Self::Open,",
            "SessionStanding::OtherEpoch(_) | SessionStanding::OtherMaster(_) => {
                 if !mutant!(GateWaitsOn) {
                     *self = Self::Open;
                 }
             }");

    /// A node that may evict locks does not vote.
    EvictingNodeVotes:
        edit(SERVER, "refusal",
            "Role::Master if self.evicts && !options.eviction_allowed => Some((",
            "Role::Master if self.evicts && mutant!(EvictingNodeVotes) => None,
             Role::Master if self.evicts && !options.eviction_allowed => Some((");

    /// Nodes in cluster mode do not vote.
    ClusterNodeVotes:
        edit(SERVER, "refusal",
            "Role::ClusterNode => Some((",
            "Role::ClusterNode if mutant!(ClusterNodeVotes) => None,
             Role::ClusterNode => Some((");

    /// The birth record of an earlier run does not count for the current run.
    EarlierRunCounts:
        edit(SERVER, "own",
            "same_run && self.has_kept(born)",
            "same_run && self.has_kept(born) || mutant!(EarlierRunCounts)");

    /// Replicas do not vote.
    ReplicaVotes:
        edit(SERVER, "refusal",
            "Role::Replica(_) => Some((",
            "Role::Replica(_) if mutant!(ReplicaVotes) => None,
             Role::Replica(_) => Some((");

    /// Only `appendfsync always` is durable.
    EverySecondIsDurable:
        SERVER_LOOK;

    /// A master with replicas is not durable.
    DurableWithReplicas:
        SERVER_LOOK;

    /// Scripts compare the replication id if the last check of the server is older than a second.
    UnseenNotCompared:
        edit(SESSION, "is_unseen",
            "now >= self.seen + LOOK_INTERVAL",
            "now >= self.seen + LOOK_INTERVAL && !mutant!(UnseenNotCompared)");

    /// A server is checked once a second while locks are held or wanted there.
    NeverLookedAt:
        edit(SESSION, "is_on",
            "self.held > 0 || self.wanted.is_some()",
            "(self.held > 0 || self.wanted.is_some()) && !mutant!(NeverLookedAt)");

    /// A reply of a server is refused as soon as it is known to be too large.
    ReplyWithoutEnd:
        edit(RESP, "find",
            "if end > REPLY_MAX_BYTES as u64 {",
            "if end > REPLY_MAX_BYTES as u64 && !mutant!(ReplyWithoutEnd) {"),
        edit(RESP, "count",
            "if self.values > REPLY_MAX_VALUES {",
            "if self.values > REPLY_MAX_VALUES && !mutant!(ReplyWithoutEnd) {");

    /// A connection yields to others after a limited amount of work, even if more has arrived.
    TurnWithoutEnd:
        edit(CONNECTION, "is_turn_over",
            "self.spent >= TURN_BYTES",
            "self.spent >= TURN_BYTES && !mutant!(TurnWithoutEnd)");

    /// A connection is closed if the server pushes more messages than wakes are possible.
    PushesWithoutEnd:
        edit(ALLOWANCE, "spend",
            "if self.used_until <= burst {",
            "if self.used_until <= burst || mutant!(PushesWithoutEnd) {");

    /// The clock of a SQLite file never goes back.
    ClockSetBackCounts:
        edit(NODE_ROW, "advance",
            "clock_us: clock_us.min(Ballot::MAX.get()),",
            "clock_us: match mutant!(ClockSetBackCounts) {
                 false => clock_us.min(Ballot::MAX.get()),
                 true => ballot_clock(clock),
             },");

    /// After a reboot all holders of a SQLite file are gone.
    BootUnnoticed:
        edit(NODE_ROW, "advance",
            "let other_boot = self.boot_id != clock.boot_id();",
            "let other_boot = self.boot_id != clock.boot_id() && !mutant!(BootUnnoticed);");

    /// A fence below the mark is refused.
    MarksNotCompared:
        edit(MARKS, "refuse_below",
            "if fence < mark {",
            "if fence < mark && !mutant!(MarksNotCompared) {");

    /// A writer needs a fence that is not below the read mark.
    ReadMarkIgnored:
        edit(MARKS, "writer_needs",
            "self.write.max(self.read)",
            "if mutant!(ReadMarkIgnored) {
                 return self.write;
             }
             self.write.max(self.read)");

    /// A reader raises the read mark.
    ReadMarkNotRaised:
        edit(MARKS, "admit_read",
            "let read = self.read.max(fence);",
            "let read = if mutant!(ReadMarkNotRaised) {
                 self.read
             } else {
                 self.read.max(fence)
             };");

    /// The embedded file accepts no ballot above its promise on disk.
    PromiseNotRaised:
        edit(SYNC, "is_enough_for",
            "Durability::Promised(ballot) => self.present.has_promised(ballot),",
            "Durability::Promised(ballot) =>
                 self.present.has_promised(ballot) || mutant!(PromiseNotRaised),");

    /// A promise is synced before a ballot that it covers is accepted.
    PromiseNotSynced:
        edit(SYNC, "begin_synced",
            "let mut transaction = self.begin_once(Durability::Synced)?;",
            "let mut transaction = self.begin_once(if mutant!(PromiseNotSynced) {
                 Durability::Unsynced
             } else {
                 Durability::Synced
             })?;");

    /// A call that needs a sync is not carried out on the thread of its caller.
    DirectWithoutSync:
        edit(SYNC, "needs_no_sync",
            "self.is_enough_for(durability) &&",
            "(self.is_enough_for(durability) || mutant!(DirectWithoutSync)) &&");

    /// A call that is handed over to the thread of the embedded file goes before later ones.
    HandedOverOvertaken:
        edit(WORKER, "next_batch",
            "for message in handed_over.into_iter().map(WorkerMessage::Job).chain(sent) {",
            "let mut messages: Vec<_> =
                 handed_over.into_iter().map(WorkerMessage::Job).chain(sent).collect();
             if mutant!(HandedOverOvertaken) && !messages.is_empty() {
                 messages.rotate_left(1);
             }
             for message in messages {");

    /// After a boot the clock of the embedded file starts above its promise.
    BootBelowPromise:
        edit(NODE_ROW, "advance",
            "match booted && self.promised_us > 0 {",
            "match booted && self.promised_us > 0 && !mutant!(BootBelowPromise) {");

    /// Two boot ids within one boot of the machine are refused.
    OneBootTwoIds:
        edit(NODE_ROW, "advance",
            "if other_boot && self.is_same_boot(clock) {",
            "if other_boot && self.is_same_boot(clock) && !mutant!(OneBootTwoIds) {");

    /// A boot counts only if no other process has the embedded file open.
    BootWithoutProof:
        edit(SCHEMA, "connect_alone",
            "connection.pragma_update(None, \"locking_mode\", \"exclusive\")?;",
            "if !mutant!(BootWithoutProof) {
                 connection.pragma_update(None, \"locking_mode\", \"exclusive\")?;
             }");

    /// If a boot is not certain, the locks in the embedded file keep their leases.
    MaybeBootFreesAll:
        edit(NODE_ROW, "advance",
            "(true, false) => Boot::MaybeOther,",
            "(true, false) if mutant!(MaybeBootFreesAll) => Boot::Other,
             (true, false) => Boot::MaybeOther,");

    /// The embedded file is not used in another time namespace than the one it was made in.
    OtherTimeNamespaceUsed:
        edit(NODE_ROW, "advance",
            "if clock.time_namespace() != Some(&self.time_namespace) {",
            "if clock.time_namespace() != Some(&self.time_namespace)
                 && !mutant!(OtherTimeNamespaceUsed)
             {");

    /// A wait queue that another process has changed is read anew.
    ForeignQueueUnnoticed:
        edit(QUEUE_CACHE, "check",
            "if data_version(connection)? != self.version {",
            "if data_version(connection)? != self.version && !mutant!(ForeignQueueUnnoticed) {");

    /// A lock file that is a mount point is refused.
    MountPointUsed:
        edit(SHARING, "refuse_unfit",
            "if is_mount_point(&file) {",
            "if is_mount_point(&file) && !mutant!(MountPointUsed) {");

    /// A lock file with a second hard link is refused.
    SecondNameUsed:
        edit(SHARING, "refuse_unfit",
            "if found.nlink() > 1 {",
            "if found.nlink() > 1 && !mutant!(SecondNameUsed) {");

    /// A lock file with a rollback journal beside it is refused.
    JournalUsed:
        edit(SHARING, "refuse_unfit",
            "if *ending == JOURNAL {",
            "if *ending == JOURNAL && !mutant!(JournalUsed) {");

    /// The files beside a private lock file are its owner's.
    ForeignLogUsed:
        edit(SHARING, "is_of_sharer",
            "0 => uid == lock_file.uid(),",
            "0 => uid == lock_file.uid() || mutant!(ForeignLogUsed),");

    /// A lock file with tables that are not ours is refused.
    ForeignTablesUsed:
        edit(SCHEMA, "identity",
            "match tables(connection)? == our_tables()? {",
            "match mutant!(ForeignTablesUsed) || tables(connection)? == our_tables()? {");

    /// A version of SQLite in which two processes may damage the embedded file is not used.
    OldLibraryUsed:
        edit(SCHEMA, "refuse_library",
            "if number >= LIBRARY_MIN {",
            "if number >= LIBRARY_MIN || mutant!(OldLibraryUsed) {");

    /// Arrivals at a latch are synced.
    ArrivalNotSynced:
        edit(SYNC, "of",
            "(Op::Arrive(_), _) => Durability::Synced,",
            "(Op::Arrive(_), _) if mutant!(ArrivalNotSynced) => Durability::Unsynced,
             (Op::Arrive(_), _) => Durability::Synced,");

    /// After a failed sync of any process the log is copied into the database before the next one.
    FailedSyncForgotten:
        edit(SYNC, "begin",
            "&& !unfinished.is_made_good(number)",
            "&& !unfinished.is_made_good(number)
             && !mutant!(FailedSyncForgotten)");

    /// A copy of the log makes no sync good that was begun after it.
    LaterSyncMadeGood:
        edit(SYNC, "is_made_good",
            "self.made_good == Some(number)",
            "self.made_good == Some(number)
             || mutant!(LaterSyncMadeGood) && self.made_good.is_some()");

    /// A sync is begun anew if another process has begun one since.
    SyncOvertaken:
        edit(SYNC, "begin_synced",
            "if transaction.present.unfinished_sync() != Some(number) {",
            "if transaction.present.unfinished_sync() != Some(number) && !mutant!(SyncOvertaken) {");
}
