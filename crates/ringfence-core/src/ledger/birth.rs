//! The rule of the handshake that decides when a server is born again, as a pure function.
//!
//! A server stores a birth record (`ringfence:born` on Redis). The record identifies one
//! incarnation of the server: run id, replication id and, in a group with Sentinels, the
//! configuration epoch. A handshake compares the record with the current state of the server:
//!
//! | the handshake finds | the handshake does |
//! |---|---|
//! | no record | birth |
//! | the record has an epoch, the client knows none | refuses, writes nothing |
//! | another run id | birth, unless the server was and is durable, and was never promoted |
//! | another epoch | birth |
//! | another replication id, and the server remembers a former one | birth: it was promoted |
//! | another replication id, no former one, and it would still be remembered | records the new id |
//! | another replication id, no former one, and it may be forgotten | birth |
//! | a replica for the first time | marks the record as replicated, permanently |
//! | none of these | keeps the record |
//!
//! The run id alone is not enough. A master that is demoted and promoted again within a TTL has the
//! same run id and the same birth record, but it has lost the locks that it granted before: the
//! resync deleted them. A demotion or promotion always changes the replication id, and the server
//! remembers the former one (`master_replid2`) until it frees its replication backlog
//! (`repl-backlog-ttl`). The first replica also changes the replication id, but leaves no former
//! one; nothing is lost then.
//!
//! Between two handshakes a replicated server compares the replication id whenever it writes a
//! holder ([`Incarnation::stands_for`]). Clients check other servers once a second.

/// The contents of a birth record. On a real server `Id` is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation<Id> {
    /// The run id of the server.
    pub run_id: Id,
    /// The server's replication id; `None` if the server does not report it.
    pub replication_id: Option<Id>,
    /// The configuration epoch that a majority of Sentinels confirmed; `None` without Sentinels.
    pub epoch: Option<u64>,
    /// Whether a replica was ever seen. It never becomes false again.
    pub replicated: bool,
    /// Whether the server has written everything to disk before each reply, ever since its birth.
    pub durable: bool,
}

/// The state of a server at the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present<Id> {
    /// The run id of the server.
    pub run_id: Id,
    /// Its replication id (`master_replid`); `None` if it does not report it.
    pub replication_id: Option<Id>,
    /// Whether it remembers a former replication id (`master_replid2` is not zero).
    pub former_id: bool,
    /// Whether the server would still remember a former replication id after a whole quarantine:
    /// `repl-backlog-ttl` is known, and it is zero (for ever) or at least the quarantine.
    pub former_id_lasts: bool,
    /// Whether it has replicas now.
    pub has_replicas: bool,
    /// Whether every write is on disk before the reply.
    pub durable: bool,
    /// The configuration epoch that the client confirmed; `None` without Sentinels.
    pub epoch: Option<u64>,
}

/// What the handshake does with the birth record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BirthVerdict<Id> {
    /// Keeps the record.
    Keep,
    /// Writes this record and keeps the birth time: the server has lost nothing.
    Update(Incarnation<Id>),
    /// Writes this record with a new birth time: the server may have lost locks.
    Birth(Incarnation<Id>),
    /// Writes nothing and refuses the server: only clients with Sentinels may use it.
    NeedsSentinels,
}

/// Decides what a handshake does with the stored record, if there is one, on a server in the state
/// `now`.
pub fn judge<Id: Clone + PartialEq>(
    stored: Option<&Incarnation<Id>>,
    now: &Present<Id>,
) -> BirthVerdict<Id> {
    let Some(stored) = stored else {
        return BirthVerdict::Birth(now.record(false));
    };
    if stored.epoch.is_some() && now.epoch.is_none() {
        return BirthVerdict::NeedsSentinels;
    }
    if stored.run_id != now.run_id {
        let new = now.record(stored.replicated);
        // `record` never marks a server as durable that was promoted or has replicas.
        let stayed_durable = stored.durable && new.durable;
        return match stayed_durable && stored.epoch == now.epoch {
            true => BirthVerdict::Update(new),
            false => BirthVerdict::Birth(new),
        };
    }
    // If the server no longer reports its id, the ids cannot be compared.
    let id_changed = now.replication_id.is_some() && stored.replication_id != now.replication_id;
    // A changed id means that there was a replica, even if it is gone now.
    let new = now.record(stored.replicated || id_changed);
    let promoted = id_changed && (now.former_id || !now.former_id_lasts);
    if stored.epoch != now.epoch || promoted {
        return BirthVerdict::Birth(new);
    }
    let updated = Incarnation {
        replication_id: new.replication_id.or(stored.replication_id.clone()),
        // Within one run only a birth makes a server durable: earlier writes may not be on disk.
        durable: stored.durable && new.durable,
        ..new
    };
    match updated == *stored {
        true => BirthVerdict::Keep,
        false => BirthVerdict::Update(updated),
    }
}

/// The birth time of an incarnation that begins at `clock_us`, after one that began at `former_us`.
/// Two births never have the same time, even if the server's clock was set back.
pub fn since_us(clock_us: u64, former_us: Option<u64>) -> u64 {
    former_us.map_or(clock_us, |former| clock_us.max(former.saturating_add(1)))
}

impl<Id: Clone + PartialEq> Incarnation<Id> {
    /// Whether a replicated server may write holders under this record: it is still a master and
    /// has the replication id of the record. If not, the client must repeat the handshake.
    pub fn stands_for(&self, is_master: bool, replication_id: Option<&Id>) -> bool {
        let compared = self.replicated && self.replication_id.is_some();
        !compared || is_master && self.replication_id.as_ref() == replication_id
    }
}

impl<Id: Clone> Present<Id> {
    /// The record for this state. `replicated`: an earlier record was marked as replicated.
    fn record(&self, replicated: bool) -> Incarnation<Id> {
        let replicated = replicated || self.has_replicas || self.former_id;
        Incarnation {
            run_id: self.run_id.clone(),
            replication_id: self.replication_id.clone(),
            epoch: self.epoch,
            replicated,
            // A replica that is started as a master has this record, but it may lack the last
            // locks.
            durable: self.durable && !replicated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Incarnation<u8> {
        Incarnation {
            run_id: 1,
            replication_id: Some(10),
            epoch: None,
            replicated: false,
            durable: false,
        }
    }

    fn now() -> Present<u8> {
        Present {
            run_id: 1,
            replication_id: Some(10),
            former_id: false,
            former_id_lasts: true,
            has_replicas: false,
            durable: false,
            epoch: None,
        }
    }

    fn durable() -> (Incarnation<u8>, Present<u8>) {
        let (mut stored, mut now) = (stored(), now());
        (stored.durable, now.durable) = (true, true);
        (stored, now)
    }

    #[test]
    fn a_server_without_a_record_is_born() {
        assert_eq!(judge(None, &now()), BirthVerdict::Birth(stored()));
        let (durable, now) = durable();
        assert_eq!(judge(None, &now), BirthVerdict::Birth(durable));
    }

    #[test]
    fn a_server_that_did_not_change_keeps_its_record() {
        assert_eq!(judge(Some(&stored()), &now()), BirthVerdict::Keep);
        let (stored, now) = durable();
        assert_eq!(judge(Some(&stored), &now), BirthVerdict::Keep);
    }

    #[test]
    fn another_run_is_a_birth() {
        let mut now = now();
        (now.run_id, now.replication_id) = (2, Some(20));
        let BirthVerdict::Birth(born) = judge(Some(&stored()), &now) else {
            panic!("no birth");
        };
        assert_eq!((born.run_id, born.replication_id), (2, Some(20)));
        assert!(!born.replicated);
    }

    #[test]
    fn another_run_of_a_durable_server_is_no_birth() {
        let (stored, mut now) = durable();
        (now.run_id, now.replication_id) = (2, Some(20));
        let updated = Incarnation {
            run_id: 2,
            replication_id: Some(20),
            ..stored.clone()
        };
        assert_eq!(judge(Some(&stored), &now), BirthVerdict::Update(updated));
        let not_any_more = Present {
            durable: false,
            ..now.clone()
        };
        let promoted = Present {
            former_id: true,
            ..now.clone()
        };
        let followed = Present {
            has_replicas: true,
            ..now.clone()
        };
        for now in [&not_any_more, &promoted, &followed] {
            let verdict = judge(Some(&stored), now);
            assert!(
                matches!(verdict, BirthVerdict::Birth(_)),
                "{now:?}: {verdict:?}"
            );
        }
        let never = Incarnation {
            durable: false,
            ..stored
        };
        assert!(matches!(judge(Some(&never), &now), BirthVerdict::Birth(_)));
    }

    /// A master that was demoted and promoted again within one run may have lost its locks.
    #[test]
    fn a_server_that_was_promoted_within_its_run_is_born() {
        let mut now = now();
        (now.replication_id, now.former_id) = (Some(11), true);
        let born = Incarnation {
            replication_id: Some(11),
            replicated: true,
            ..stored()
        };
        assert_eq!(judge(Some(&stored()), &now), BirthVerdict::Birth(born));
    }

    #[test]
    fn the_first_replica_costs_no_birth() {
        let mut now = now();
        (now.replication_id, now.has_replicas) = (Some(11), true);
        let updated = Incarnation {
            replication_id: Some(11),
            replicated: true,
            ..stored()
        };
        assert_eq!(judge(Some(&stored()), &now), BirthVerdict::Update(updated));
        // The replica may have been there between two handshakes.
        now.has_replicas = false;
        let verdict = judge(Some(&stored()), &now);
        assert!(matches!(verdict, BirthVerdict::Update(record) if record.replicated));
    }

    #[test]
    fn a_former_id_that_may_be_forgotten_is_a_birth() {
        let mut now = now();
        (now.replication_id, now.former_id_lasts) = (Some(11), false);
        assert!(matches!(
            judge(Some(&stored()), &now),
            BirthVerdict::Birth(_)
        ));
        // With an unchanged id nothing has happened.
        now.replication_id = Some(10);
        assert_eq!(judge(Some(&stored()), &now), BirthVerdict::Keep);
    }

    #[test]
    fn a_replica_removes_the_durable_mark_permanently() {
        let (stored, mut now) = durable();
        now.has_replicas = true;
        let BirthVerdict::Update(followed) = judge(Some(&stored), &now) else {
            panic!("not marked");
        };
        assert!(followed.replicated && !followed.durable);
        now.has_replicas = false;
        assert_eq!(judge(Some(&followed), &now), BirthVerdict::Keep);
        // The mark also survives the next restart of the server.
        now.run_id = 2;
        let verdict = judge(Some(&followed), &now);
        assert!(
            matches!(&verdict, BirthVerdict::Birth(born) if born.replicated && !born.durable),
            "{verdict:?}"
        );
    }

    #[test]
    fn durability_that_was_switched_off_does_not_return_within_a_run() {
        let (stored, mut now) = durable();
        now.durable = false;
        let BirthVerdict::Update(less) = judge(Some(&stored), &now) else {
            panic!("not updated");
        };
        assert!(!less.durable);
        now.durable = true;
        assert_eq!(judge(Some(&less), &now), BirthVerdict::Keep);
    }

    #[test]
    fn a_server_that_stops_reporting_its_id_keeps_its_record() {
        let mut now = now();
        now.replication_id = None;
        assert_eq!(judge(Some(&stored()), &now), BirthVerdict::Keep);
    }

    #[test]
    fn a_client_without_sentinels_does_not_change_a_record_with_an_epoch() {
        let with_epoch = Incarnation {
            epoch: Some(3),
            ..stored()
        };
        let mut now = now();
        assert_eq!(judge(Some(&with_epoch), &now), BirthVerdict::NeedsSentinels);
        now.run_id = 2;
        assert_eq!(judge(Some(&with_epoch), &now), BirthVerdict::NeedsSentinels);
    }

    #[test]
    fn another_epoch_is_a_birth() {
        let mut now = now();
        now.epoch = Some(4);
        for epoch in [None, Some(3), Some(5)] {
            let record = Incarnation { epoch, ..stored() };
            let verdict = judge(Some(&record), &now);
            assert!(
                matches!(&verdict, BirthVerdict::Birth(born) if born.epoch == Some(4)),
                "{epoch:?}: {verdict:?}"
            );
        }
    }

    #[test]
    fn a_replicated_server_writes_holders_only_as_the_same_master() {
        let mut record = stored();
        assert!(record.stands_for(false, None), "not known to be replicated");
        record.replicated = true;
        assert!(record.stands_for(true, Some(&10)));
        for (is_master, id) in [(false, Some(&10)), (true, Some(&11)), (true, None)] {
            assert!(!record.stands_for(is_master, id), "{is_master} {id:?}");
        }
    }

    #[test]
    fn two_births_are_two_incarnations() {
        assert_eq!(since_us(5, None), 5);
        assert_eq!(since_us(5, Some(4)), 5);
        assert_eq!(since_us(5, Some(5)), 6);
        assert_eq!(since_us(5, Some(900)), 901);
    }
}
