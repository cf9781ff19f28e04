use super::*;
use crate::group::Group;
use crate::ledger::Rules;
use crate::ledger::birth::Incarnation;
use crate::message::Refresh;

#[test]
fn the_replication_id_is_compared_on_replicated_and_on_unchecked_servers() {
    for (id, replicated, unseen, compared) in [
        (Some("e1"), false, false, false),
        (Some("e1"), true, false, true),
        (Some("e1"), false, true, true),
        (None, true, true, false),
    ] {
        let mut membership = Membership {
            terms: ScriptTerms::new("born", Rules::of_group(&Group::new(3))),
            image: Image {
                server: Incarnation {
                    run_id: "ab".to_owned(),
                    replication_id: id.map(str::to_owned),
                    epoch: None,
                    replicated,
                    durable: false,
                },
                evicts: false,
            },
            seen_at: Timestamp::ZERO,
            standing: Standing::default(),
            read_at: Timestamp::ZERO,
        };
        membership.compare(unseen, Timestamp::ZERO);
        assert_eq!(
            membership.terms.compare, compared,
            "{id:?} {replicated} {unseen}"
        );
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

fn request(op: Op) -> Request {
    Request {
        claims: [].into(),
        token: crate::token::Token::from_entropy([0; crate::token::TOKEN_ENTROPY_BYTES]),
        op,
    }
}

#[test]
fn a_server_is_checked_once_a_second_while_a_lock_is_held() {
    let mut watch = ServerWatch::new();
    watch.begin(at(10));
    watch.note(
        &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
        at(10),
    );
    assert!(!watch.is_due(at(20)), "nothing is held yet");
    watch.note_answer(&Answer::Granted);
    assert!(!watch.is_due(at(10)) && watch.is_due(at(11)));
    watch.look(at(11));
    assert!(!watch.is_due(at(13)), "one at a time");
    assert!(watch.is_unseen(at(11)), "it has not been answered");
    watch.note_unchanged();
    assert!(!watch.is_unseen(at(11)) && watch.is_unseen(at(12)));
    assert!(watch.is_due(at(12)));
    watch.note_answer(&Answer::Released);
    assert!(!watch.is_due(at(12)), "nothing is held any more");
}

#[test]
fn a_server_is_not_checked_for_a_lease_that_has_ended() {
    let mut watch = ServerWatch::new();
    watch.note(
        &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 30_000 })),
        at(10),
    );
    watch.note_unknown();
    assert!(watch.is_due(at(39)) && !watch.is_due(at(40)));
    watch.note(
        &request(Op::Refresh(Refresh { tickets: [].into() })),
        at(50),
    );
    assert!(watch.is_due(at(51)) && !watch.is_due(at(52)));
}
