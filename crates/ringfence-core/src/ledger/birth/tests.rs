//! Tests of the rule about births.

use super::*;

fn stored() -> Incarnation<u8> {
    Incarnation {
        run_id: 1,
        replication_id: Some(10),
        database: 0,
        epoch: None,
        replicated: false,
        durable: false,
    }
}

fn now() -> Present<u8> {
    Present {
        unseen: false,
        run_id: 1,
        replication_id: Some(10),
        database: 0,
        former_id: false,
        former_id_lasts: true,
        has_replicas: false,
        durable: false,
        epoch: None,
        lossless: false,
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

/// `SWAPDB`: the record of another application's database has the same run id and replication id.
#[test]
fn the_record_of_another_database_is_a_birth() {
    let (stored, now) = durable();
    let swapped = Present { database: 3, ..now };
    let unseen = Present {
        unseen: true,
        ..swapped.clone()
    };
    let lossless = Present {
        lossless: true,
        ..swapped.clone()
    };
    let born = BirthVerdict::Birth(Incarnation {
        database: 3,
        ..stored.clone()
    });
    for now in [swapped, unseen, lossless] {
        assert_eq!(judge(Some(&stored), &now), born, "{now:?}");
    }
}

/// Without Sentinels it is not even looked at.
#[test]
fn the_record_of_another_database_with_an_epoch_needs_sentinels_too() {
    let mut stored = stored();
    (stored.database, stored.epoch) = (3, Some(7));
    let refused = BirthVerdict::NeedsSentinels;
    assert_eq!(judge(Some(&stored), &now()), refused);
}

#[test]
fn a_client_that_may_not_read_the_state_keeps_the_record_of_the_same_epoch() {
    let unseen = Present {
        unseen: true,
        replication_id: None,
        former_id: true,
        has_replicas: true,
        ..now()
    };
    let (durable, _) = durable();
    for stored in [stored(), durable] {
        assert_eq!(judge(Some(&stored), &unseen), BirthVerdict::Keep);
    }
    let promoted = Present {
        epoch: Some(8),
        ..unseen.clone()
    };
    let mut stored = stored();
    stored.epoch = Some(7);
    let verdict = judge(Some(&stored), &promoted);
    assert!(matches!(verdict, BirthVerdict::Birth(_)), "{verdict:?}");
    let BirthVerdict::Birth(record) = judge(None, &unseen) else {
        panic!("there was no record");
    };
    assert!(record.replicated && !record.durable);
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
fn a_former_id_that_may_be_forgotten_is_no_birth_under_the_same_epoch() {
    let stored = Incarnation {
        epoch: Some(3),
        ..stored()
    };
    let mut now = now();
    (now.epoch, now.replication_id, now.former_id_lasts) = (Some(3), Some(11), false);
    let verdict = judge(Some(&stored), &now);
    assert!(matches!(verdict, BirthVerdict::Update(_)), "{verdict:?}");
    now.former_id = true;
    let verdict = judge(Some(&stored), &now);
    assert!(matches!(verdict, BirthVerdict::Birth(_)), "{verdict:?}");
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
#[test]
fn a_promotion_that_loses_nothing_is_no_birth() {
    let mut now = now();
    now.lossless = true;
    let BirthVerdict::Update(first) = judge(Some(&stored()), &now) else {
        panic!("not recorded");
    };
    assert!(first.durable, "an acknowledged write is kept");
    assert_eq!(judge(Some(&first), &now), BirthVerdict::Keep);
    (now.run_id, now.replication_id) = (2, Some(20));
    (now.former_id, now.has_replicas) = (true, true);
    let BirthVerdict::Update(promoted) = judge(Some(&first), &now) else {
        panic!("a birth");
    };
    assert!(promoted.durable && promoted.replicated);
    assert_eq!((promoted.run_id, promoted.replication_id), (2, Some(20)));
    // A server without a record has lost everything, whatever the operator says.
    assert!(matches!(judge(None, &now), BirthVerdict::Birth(_)));
}
