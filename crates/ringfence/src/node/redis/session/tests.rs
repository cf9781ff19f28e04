use super::*;
use crate::group::Group;
use crate::ledger::Rules;
use crate::ledger::birth::Incarnation;

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
                    database: 0,
                    epoch: None,
                    replicated,
                    durable: false,
                },
                evicts: false,
            },
            alone: false,
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
