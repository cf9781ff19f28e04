//! What can be broken: each mutant with the rule that it breaks.

/// One mutant.
#[derive(Debug, Clone, Copy)]
pub struct Described {
    /// The mutant itself.
    pub mutant: Mutant,
    /// Its name, as `RINGFENCE_MUTANT` takes it.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// Where that rule is kept.
    pub place: Place,
}

/// Where a rule is kept, and so which tests are likely to see it broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the two pure machines, and in the client around them.
    Machines,
    /// In what is known of one kind of node: handshake, file, resource.
    Nodes,
    /// In the scripts of the Redis node.
    Scripts,
    /// In the script for fenced keys, where the data is.
    Data,
}

macro_rules! list {
    ($($place:ident { $($(#[doc = $rule:literal])+ $name:ident,)+ })+) => {
        /// A rule to break. The documentation of each is the rule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($($(#[doc = $rule])+ $name,)+)+
        }

        /// All of them, in the order of the design.
        pub const ALL: &[Described] = &[
            $($(Described {
                mutant: Mutant::$name,
                name: stringify!($name),
                rule: concat!($($rule),+),
                place: Place::$place,
            },)+)+
        ];
    };
}

list! {
    Machines {
        // Time and validity.

        /// Validity is shorter than the TTL by the drift.
        NoDriftTerm,
        /// Durations are measured on a clock that counts suspend and is never set.
        WallClock,
        /// t0 is read before the first send.
        T0ReadLate,
        /// t0 is read again for each attempt.
        T0NotReadAgain,
        /// t0 of an extension is read before its first send.
        ExtendT0ReadLate,
        /// A grant with less than `min_validity` left is not returned.
        GrantBelowMinValidity,
        /// A grant is looked at again when its caller wakes, who may have stood still.
        GrantNotLookedAtAgain,
        /// An extension that a majority confirms after its own deadline is none.
        ExtendedTooLate,
        /// Nor does one that comes after the lock is over bring it back.
        LateConfirmationRevives,
        /// Nor does any other verdict of a round that is read after the deadline, timer or not.
        VerdictAfterDeadline,
        /// The deadline never moves back.
        DeadlineMovesBack,
        /// A lock is lost when its deadline passes.
        DeadlineNotWatched,
        /// `max_hold` bounds renewal.
        NoMaxHold,
        /// Renewal begins at a third of the TTL.
        RenewedTooLate,

        // Majorities.

        /// A grant needs a majority.
        QuorumOneShort,
        /// A tie is no majority.
        TieWins,
        /// An extension needs a majority.
        ExtendedByFewer,
        /// A release is confirmed by a majority.
        ReleasedByFewer,
        /// An attempt ends as soon as its verdict cannot change.
        VerdictAwaitsAll,
        /// A dead node that fails at once makes no outage of a held lock.
        OutageDecidedEarly,
        /// A node that was silent last time does not delay a lost verdict.
        SilentNodeAwaited,
        /// So many nodes without our token that no majority can hold it are proof of loss.
        LossNotProved,
        /// Votes for different slots do not add up.
        PermitsCountedPerNode,
        /// A leader sits on a majority.
        LeaderOfFewer,
        /// Only rising terms are reported.
        TermsFall,
        /// One server behind two nodes has one vote.
        DuplicateCountsTwice,
        /// A server that was restarted between the answers of two nodes that lead to it has one vote.
        MovedNodeVotes,

        // Ballots and tokens.

        /// A node that no longer answers has no say in the choice of a ballot.
        SilentNodesHaveASay,
        /// Both ends of a node's window are taken with a margin.
        NoBallotMargin,
        /// Only replies to the present ballot count.
        EarlierBallotCounts,
        /// Each attempt has a higher ballot.
        BallotNotRaised,
        /// A client that must lower its ballot takes a fresh token.
        TokenKeptWhenLowered,
        /// Each attempt at a plain lock has a fresh token.
        PlainTokenKept,
        /// A ballot at or below the fence is stale.
        FenceNotChecked,
        /// A ballot above the ceiling is not granted.
        CeilingNotChecked,
        /// A ballot above the ceiling is never stored.
        StoredAboveCeiling,
        /// A restore above the ceiling is refused.
        RestoreAboveCeiling,
        /// The floor of a name is never below the clock less the window, record or not.
        RecordPinsFloor,
        /// A name without a record has a floor, too.
        NoGround,
        /// An own key is not granted again under a lower ballot.
        LowerBallotRegranted,
        /// An extend raises the ballot under which the holder sits.
        ExtendKeepsBallot,
        /// An exclusive grant needs a ballot above the readers' fence, too.
        WriterIgnoresReadFence,
        /// Readers need no order among themselves.
        ReadersInOrder,
        /// A shared grant leaves the write fence alone.
        ReaderRaisesWriteFence,
        /// A record outlives the key that it vouches for.
        KeyOutlivesRecord,
        /// A record is not forgotten before the ground has reached what it demands.
        RecordDroppedEarly,
        /// Retention and quarantine are at least twice the window and the largest step back.
        ThresholdOneLess,

        // Holding.

        /// An exclusive claim is closed to all while others share the name.
        WriterBesideReaders,
        /// A share ends with its lease.
        ReadersNeverExpire,
        /// The marker of a shared name without readers is another program's value.
        StrangeMarkerIsFree,
        /// Of several claims all are granted, or none.
        FirstClaimDecides,
        /// Neither an extend nor a second grant shortens a lease.
        LeaseShortened,
        /// Nor that of a share.
        ShareShortened,
        /// Extending a plain lock does not shorten it.
        PlainExtendShortens,
        /// An extend does not bring a key back that is gone.
        ExtendRecreates,
        /// A failed extend never releases.
        FailedExtendReleases,
        /// A downgraded hold claims a share from the first send on.
        DowngradedStaysExclusive,
        /// It stays exclusive while other guards of its owner count on that.
        DowngradedBesideOthers,
        /// A downgrade tells the readers who wait.
        DowngradeWakesNobody,
        /// Nodes that lost the key get it back after the round.
        NeverRestored,
        /// A restored key counts from the next round on.
        RestoredCountsAtOnce,
        /// Nothing is restored once the loss is proved.
        RestoredAfterLoss,
        /// Nothing is restored once the deadline has passed.
        RestoredAfterDeadline,
        /// A receipt restores nothing.
        ReceiptRestores,
        /// A restore does not bring back what was released.
        RestoreIgnoresClosed,
        /// A restore takes nothing from another holder.
        RestoreOverHolder,

        // Giving back.

        /// A lost attempt is undone.
        NoUndo,
        /// The undo goes to nodes that granted, counted or not.
        GrantedNotUndone,
        /// The undo goes to nodes that have not answered.
        SilentNotUndone,
        /// The undo of what somebody granted waits for nobody's answer.
        GrantedUndoneLate,
        /// What could not be taken back is tried again.
        WithdrawnOnce,
        /// What is released by dropping a guard is sent before the drop returns.
        DroppedWithoutFlush,
        /// Without a limit the wait covers a quarantine.
        QuarantineEndsWait,
        /// Once a majority has confirmed a release, a node that does not answer costs a moment only.
        CloseWaitsForAll,
        /// A final release goes to all nodes.
        FinalReleaseNotToAll,
        /// Whoever did not answer is told that the acquire's fate is unknown.
        FateCalledKnown,
        /// A restore does not make the fate of an acquire known, nor its own before it is answered.
        PutBackCalledKnown,
        /// Only the owner releases.
        ReleaseIgnoresOwner,
        /// Nor does anybody else release a plain lock.
        PlainReleaseIgnoresOwner,
        /// An undo does not release what was granted under a higher ballot.
        ReleaseIgnoresBallot,
        /// Against an acquire of unknown fate the fence is raised.
        NoRetirement,
        /// The same for a share.
        ReaderNotRetired,
        /// The fence is raised only if the acquire's fate is unknown.
        RetireAlways,
        /// A final release closes its ballot.
        FinalReleaseNotClosed,
        /// That of a reader does where a restore may be under way.
        ReaderNotClosed,
        /// An undo does not restart the time that those in line have to come.
        UndoSetsFreeSince,
        /// An undo does not wake its own sender.
        UndoWakesSender,
        /// `hold_at_least` keeps the name from others.
        KeepIgnored,
        /// Nodes are told to keep it until a majority has been, also after the lease has ended.
        KeptWhileLeased,
        /// A node that is told so after the lease has ended keeps it.
        KeptOnlyWhereHeld,
        /// A node that was told before does not keep it anew.
        KeptAfterClosed,
        /// A release after the deadline does not cut the lock delay.
        LateReleaseCutsDelay,
        /// The renewal is joined before the release.
        RenewalNotJoined,

        // Waiting.

        /// `try_lock` does not jump a line.
        TryLockJumpsQueue,
        /// Readers do not pass a writer who waits.
        ReadersPassWriters,
        /// A writer who waits for readers is not dead.
        WriterPassedByReaders,
        /// A dead head does not block a node for ever.
        DeadHeadBlocks,
        /// Each of those ahead has its own grace.
        GraceOnceForAll,
        /// One that waits for another held name is not passed.
        WaitingElsewhereIsDead,
        /// Those who were passed and did not come leave the line.
        PassedStay,
        /// Those who were passed and live stay.
        LivePassedAreDropped,
        /// A ticket is a lease.
        TicketsNeverExpire,
        /// A new ticket that looks old is refused.
        OldTicketAccepted,
        /// Who re-enters keeps its time at any age.
        OldTicketCannotReturn,
        /// A wake during an attempt counts after it.
        WakeDuringAttemptLost,
        /// Whoever no longer waits leaves no ticket behind.
        TicketLeftBehind,
        /// A grant takes the ticket out of the queue.
        HolderStaysInLine,
        /// An undo of a grant takes the place in line again.
        UndoLosesPlace,
        /// After the grant every node that may have the ticket is told to forget it,
        TicketOutlivesGrant,
        /// also one where a call that was under way enters it later.
        LateTicketKept,
        /// After wakes that brought nothing, the next wake waits a moment.
        FruitlessWakesAtOnce,
        /// Under a flood of other calls releases go first,
        ReleasesWaitTheirTurn,
        /// but never before a call of their own token.
        ReleaseOvertakesItsAcquire,
        /// Tasks of one client that wait for each other are not warned.
        ContentionWarned,
        /// An owner that would wait for itself is told so.
        OwnerWaitsForItself,
        /// After two rounds without a majority the place in line is given up.
        PlaceKeptInOutage,
        /// A ticket that was taken is shown as one that waits, however old.
        PatienceNotClaimed,
        /// A wake that is lost is made up for by a poll.
        WakeWithoutPoll,
        /// All leading readers are woken.
        OneReaderWoken,
        /// The runner-up is told to come after the grace.
        RunnerUpNotTold,
        /// Two clients who met do not meet again at once.
        DuelWithoutJitter,
        /// `wait` bounds the waiting.
        WaitUnbounded,
        /// Without a majority the waiting ends sooner.
        OutageUnbounded,

        // Restarts and clocks.

        /// A node that may have forgotten does not vote.
        NoQuarantine,
        /// Nor does its word count in an extension.
        QuarantinedExtendedCounted,
        /// The quarantine is longer by the drift and a second.
        QuarantineWithoutMargin,
        /// The quarantine lasts until a client that saw the restart agrees.
        OnlyNodeClockEndsQuarantine,
        /// The quarantine lasts until the node's own clock says so.
        OnlyOurClockEndsQuarantine,
        /// No TTL is longer than a restarted node's quarantine.
        LongTtlAccepted,
        /// A client notices that a node was born anew.
        RebirthUnnoticed,
        /// A jump of a node's clock is noticed.
        JumpUnnoticed,
        /// What the drift allows is no jump.
        SlowDriftIsAJump,
        /// A node whose clock jumped does not vote for a quarantine.
        JumpedNodeVotes,
        /// If a majority jumps alike, it was our own clock that stood still.
        StandstillUnnoticed,
        /// Then all locks are lost.
        HoldOutlivesStandstill,
        /// And no answer to a request from before counts.
        OutdatedAnswersCount,

        // Semaphores.

        /// A slot has a fence like any lock.
        SlotFenceNotChecked,
        /// And a ceiling.
        SlotCeilingNotChecked,
        /// An undo does not give back a slot of a later attempt.
        SlotReleaseIgnoresBallot,
        /// A slot that was named is not replaced by another.
        NamedSlotReplaced,
        /// Whoever has as many ahead as slots are free waits.
        SlotJumpsQueue,
        /// Whoever has a slot leaves the line.
        SlotHolderStaysInLine,
        /// A ticket that may just have been granted is not refreshed.
        SlotRefreshedOnGrant,
        /// An undo takes the place in line again.
        SlotUndoLosesPlace,
        /// A release tells whoever is served now.
        SlotReleaseWakesNobody,

        // Latches.

        /// All who have arrived are written to a majority before the latch is called open.
        OpenWithoutWriteBack,
        /// A majority speaks.
        LatchQuorumOneShort,
        /// A node that is younger than the latch does not count.
        YoungNodeCountsForLatch,
        /// Nor does it vouch that there is no latch.
        YoungNodeVouches,
        /// A node takes nobody to a latch that it does not know.
        LatchMadeUnasked,
        /// The earliest time at which a latch was made counts.
        LatchAgeNotKept,
        /// No latch is made in the future.
        LatchFromTheFuture,
        /// What comes after the timeout of a round does not count.
        LatchHearsLate,

        // Where the data is.

        /// A fence below the mark is refused.
        MarksNotCompared,
        /// A writer needs a fence that is not below the read mark.
        ReadMarkIgnored,
        /// A reader raises its mark.
        ReadMarkNotRaised,

        // Births.

        /// A server that was promoted within its run is born, although its run id is the same.
        BirthByRunIdAlone,
        /// A replicated server writes holders only under the replication id of its birth record.
        ReplicationIdNotCompared,
        /// A server that once had a replica is marked as replicated for good.
        ReplicatedMarkForgotten,

        // Joining.

        /// The values of a group are adopted only if they are safe.
        AdoptedUnchecked,
        /// One node does not decide what the values of the group are.
        TieDecided,
    }

    Nodes {
        /// A node that may evict locks does not vote.
        EvictingNodeVotes,
        /// Nodes in cluster mode do not vote.
        ClusterNodeVotes,
        /// `init` refuses one server under two names.
        OneServerTwice,
        /// The birth record of an earlier run says nothing about this one.
        EarlierRunCounts,
        /// Replicas do not vote.
        ReplicaVotes,
        /// Only `appendfsync always` is durable.
        EverySecondIsDurable,
        /// A master with replicas is not durable.
        DurableWithReplicas,
        /// Clients agree on the values of the group.
        GroupsNotCompared,
        /// A server that says it is a replica, or loads its data, is shaken hands with again.
        ReadOnlyIsNotNewborn,
        /// On a replicated server every script that writes a holder compares the replication id.
        ReplicatedNotCompared,
        /// So do those on any server that has not been looked at for a second.
        UnseenNotCompared,
        /// A server is looked at once a second while something is held or wanted there.
        NeverLookedAt,
        /// The clock of a file never goes back.
        ClockSetBackCounts,
        /// After a boot all holders of a file are dead.
        BootUnnoticed,
    }

    Scripts {
        /// Every script answers `newborn` if the birth record is another.
        LuaBornNotChecked,
        /// A ballot at or below the fence is stale.
        LuaFenceNotChecked,
        /// Also where most acquires end.
        LuaSwiftFenceNotChecked,
        /// And in bundles.
        LuaBundleFenceNotChecked,
        /// No fence counts below the clock less the window.
        LuaRecordPinsFloor,
        /// A ballot above the ceiling is not granted.
        LuaCeilingNotChecked,
        /// Also where most acquires end.
        LuaSwiftCeilingNotChecked,
        /// And in bundles.
        LuaBundleCeilingNotChecked,
        /// A ballot above the ceiling is never stored.
        LuaStoredAboveCeiling,
        /// An exclusive grant needs a ballot above the readers' fence, too.
        LuaWriterIgnoresReadFence,
        /// A shared grant leaves the write fence alone.
        LuaReaderRaisesWriteFence,
        /// The marker of a shared name without readers is another program's value.
        LuaStrangeMarkerIsFree,
        /// A key is granted again only to its own token.
        LuaAnyTokenHolds,
        /// An own key is not granted again under a lower ballot.
        LuaLowerBallotRegranted,
        /// Neither an extend nor a second grant shortens a lease.
        LuaLeaseShortened,
        /// Nor that of a share.
        LuaShareShortened,
        /// An extend does not bring a key back that is gone.
        LuaExtendRecreates,
        /// An extend raises the ballot under which the holder sits.
        LuaExtendKeepsBallot,
        /// Also in bundles.
        LuaBundleExtendKeepsBallot,
        /// A bundle extends only what its token holds.
        LuaBundleExtendIgnoresOwner,
        /// Only the owner releases.
        LuaReleaseIgnoresOwner,
        /// Also in bundles.
        LuaBundleReleaseIgnoresOwner,
        /// An undo does not release what was granted under a higher ballot.
        LuaReleaseIgnoresBallot,
        /// Also where most releases end.
        LuaSwiftReleaseIgnoresBallot,
        /// And in bundles.
        LuaBundleReleaseIgnoresBallot,
        /// Against an acquire of unknown fate the fence is raised.
        LuaNoRetirement,
        /// The fence is raised only if the acquire's fate is unknown.
        LuaRetireAlways,
        /// A final release closes its ballot.
        LuaFinalReleaseNotClosed,
        /// Also where most releases end.
        LuaSwiftReleaseNotClosed,
        /// And in bundles.
        LuaBundleReleaseNotClosed,
        /// That of a reader does where a restore may be under way.
        LuaReaderNotClosed,
        /// A node that is told to keep a name after the lease has ended does.
        LuaKeptOnlyWhereHeld,
        /// A node that was told before does not keep it anew.
        LuaKeptAfterClosed,
        /// An undo does not restart the time that those in line have to come.
        LuaUndoSetsFreeSince,
        /// An undo does not wake its own sender.
        LuaUndoWakesSender,
        /// A restore does not bring back what was released.
        LuaRestoreIgnoresClosed,
        /// `try_lock` does not jump a line.
        LuaTryLockJumpsQueue,
        /// Nor in bundles.
        LuaBundleJumpsQueue,
        /// Nor does a ticket where most acquires in line end.
        LuaSwiftJumpsQueue,
        /// There, too, a ticket that has run out does not count.
        LuaSwiftLapsedCounts,
        /// A holder whom the record does not know is not passed off as the one it does.
        LuaSwiftStrangerNamed,
        /// What is kept of a line outlives its tickets.
        LuaSwiftLineFades,
        /// Where most releases end, the ticket of who releases leaves the line.
        LuaSwiftTicketStays,
        /// A grant takes the ticket out of the queue,
        LuaHolderStaysInLine,
        /// also where most acquires in line end.
        LuaSwiftHolderStaysInLine,
        /// An undo of a grant takes the place in line again.
        LuaUndoLosesPlace,
        /// There, too, the runner-up is told.
        LuaSwiftRunnerUpNotTold,
        /// A dead head does not block a node for ever.
        LuaDeadHeadBlocks,
        /// A new ticket that looks old is refused.
        LuaOldTicketAccepted,
        /// Also where most acquires in line end.
        LuaSwiftOldTicketAccepted,
        /// Who re-enters keeps its time at any age.
        LuaOldTicketCannotReturn,
        /// A record outlives the key that it vouches for.
        LuaKeyOutlivesRecord,
        /// Also in bundles.
        LuaBundleKeyOutlivesRecord,
        /// A slot that was named is not replaced by another.
        LuaNamedSlotReplaced,
        /// Whoever has as many ahead as slots are free waits.
        LuaSlotJumpsQueue,
        /// A node takes nobody to a latch that it does not know.
        LuaLatchMadeUnasked,
        /// The earliest time at which a latch was made counts.
        LuaLatchAgeNotKept,
        /// A durable node skips the quarantine only if its record was written by a durable run,
        LuaDurableBefore,
        /// is durable now,
        LuaDurableNow,
        /// and was never promoted.
        LuaNeverPromoted,
        /// A record of another run is not taken for this run's.
        LuaRunNotCompared,
        /// A server that was promoted within its run is born, although its run id is the same.
        LuaBirthByRunIdAlone,
        /// Where nobody knows whether a server would remember its promotion, another id is a birth.
        LuaFormerIdForgotten,
        /// A server that once had a replica is marked as replicated for good,
        LuaReplicatedMarkForgotten,
        /// and is not durable any more.
        LuaReplicaKeepsDurable,
        /// Two births of one run are two incarnations.
        LuaBirthsAlike,
        /// A client without Sentinels never overwrites a record that has an epoch.
        LuaEpochOverwritten,
        /// A birth is written only on the server that the handshake looked at.
        LuaJoinsAnotherServer,
        /// A replicated server writes holders only under the replication id of its birth record.
        LuaReplicationIdNotCompared,
        /// Nobody else releases a plain lock.
        LuaPlainReleaseIgnoresOwner,
        /// Also in bundles.
        LuaPlainBundleIgnoresOwner,
        /// Extending a plain lock does not shorten it.
        LuaPlainExtendShortens,
        /// `init` searches all keys for locks before it says that there are none.
        LuaInitSearchCutShort,
    }

    Data {
        /// A fence below the mark of the data is refused.
        LuaMarksNotCompared,
        /// A writer needs a fence that is not below the read mark.
        LuaReadMarkIgnored,
        /// A reader raises its mark.
        LuaReadMarkNotRaised,
        /// A writer raises its mark.
        LuaWriteMarkNotRaised,
        /// Marks that went still refuse what they would have.
        LuaGoneMarksAdmit,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Also how whoever hunts them gets the list.
    #[test]
    #[expect(clippy::print_stdout, reason = "it is what is asked for")]
    fn mutants_are_listed_once() {
        let names: BTreeSet<&str> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), ALL.len());
        for one in ALL {
            println!("mutant\t{}\t{:?}\t{}", one.name, one.place, one.rule.trim());
        }
    }
}
