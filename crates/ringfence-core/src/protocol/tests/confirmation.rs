//! Which master a majority of the Sentinels confirms: one test for each condition, and all
//! combinations of answers of three Sentinels against the rule written a second time.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeSet;

use super::*;

const QUARANTINE: Duration = Duration::from_secs(35);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn address(host: &str, port: u16, ips: &[u8]) -> MasterAddress {
    let ips = ips
        .iter()
        .map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, *last)));
    MasterAddress {
        host: host.into(),
        port,
        ips: ips.collect(),
    }
}

/// The Sentinel `id` of three names the master `host` under `epoch`.
fn answer(id: &str, host: &str, epoch: u64, asked_ms: u64) -> SentinelAnswer {
    SentinelAnswer {
        id: id.into(),
        master: address(host, 6379, &[]),
        epoch_before: epoch,
        epoch_after: epoch,
        others: 2,
        asked_at: at(asked_ms),
    }
}

fn view(answers: impl IntoIterator<Item = SentinelAnswer>) -> SentinelGroupView {
    let mut view = SentinelGroupView::new(3, QUARANTINE);
    for (index, answer) in answers.into_iter().enumerate() {
        let now = answer.asked_at;
        view.handle_answer(index, answer, now);
    }
    view
}

fn confirmed(view: &SentinelGroupView, now_ms: u64) -> Option<(String, u64, u64)> {
    let found = view.confirmed(at(now_ms))?;
    let asked_ms = found.asked_at.as_micros() / 1000;
    Some((found.address.to_string(), found.epoch, asked_ms))
}

fn master_a(epoch: u64, asked_ms: u64) -> Option<(String, u64, u64)> {
    Some(("a:6379".to_owned(), epoch, asked_ms))
}

#[test]
fn a_majority_of_all_sentinels_confirms_and_one_does_not() {
    assert_eq!(confirmed(&view([answer("x", "a", 7, 10)]), 10), None);
    let two = view([answer("x", "a", 7, 10), answer("y", "a", 7, 20)]);
    assert_eq!(confirmed(&two, 20), master_a(7, 10));
}

/// The third Sentinel was asked last: with the second it is a majority that was asked later.
#[test]
fn the_confirmation_is_as_old_as_the_oldest_question_that_it_needs() {
    let answers = [(10, "x"), (20, "y"), (30, "z")].map(|(ms, id)| answer(id, "a", 7, ms));
    assert_eq!(confirmed(&view(answers), 30), master_a(7, 20));
}

#[test]
fn one_address_under_two_epochs_is_not_confirmed() {
    let view = view([answer("x", "a", 7, 10), answer("y", "a", 8, 10)]);
    assert_eq!(confirmed(&view, 10), None);
    assert_eq!(
        view.doubt(at(0), at(10)),
        Unconfirmed::Disagree { total: 3 }
    );
}

#[test]
fn two_addresses_under_one_epoch_are_not_confirmed() {
    let view = view([answer("x", "a", 7, 10), answer("y", "b", 7, 10)]);
    assert_eq!(confirmed(&view, 10), None);
}

/// During a failover a Sentinel shows the old address with the new epoch for seconds.
#[test]
fn an_answer_whose_epochs_differ_does_not_count() {
    let changing = |epoch_before, epoch_after| SentinelAnswer {
        epoch_before,
        epoch_after,
        ..answer("y", "a", 0, 10)
    };
    for changing in [changing(7, 8), changing(6, 7)] {
        let view = view([answer("x", "a", 7, 10), changing.clone()]);
        assert_eq!(confirmed(&view, 10), None, "{changing:?}");
    }
}

#[test]
fn one_sentinel_under_two_addresses_of_the_list_counts_once() {
    let twice = view([answer("x", "a", 7, 10), answer("x", "a", 7, 20)]);
    assert_eq!(confirmed(&twice, 20), None);
    let late = view([
        answer("x", "a", 7, 20),
        answer("x", "b", 7, 10),
        answer("y", "a", 7, 20),
    ]);
    assert_eq!(
        confirmed(&late, 20),
        master_a(7, 20),
        "its latest answer counts"
    );
}

#[test]
fn a_later_answer_replaces_an_earlier_one_and_not_the_reverse() {
    let mut view = view([answer("x", "a", 7, 10), answer("y", "a", 7, 10)]);
    view.handle_answer(1, answer("y", "b", 8, 30), at(31));
    assert_eq!(confirmed(&view, 31), None);
    view.handle_answer(1, answer("y", "a", 7, 20), at(32));
    assert_eq!(
        confirmed(&view, 32),
        None,
        "a late answer to an older question"
    );
    view.handle_answer(1, answer("y", "a", 7, 40), at(41));
    assert_eq!(confirmed(&view, 41), master_a(7, 10));
}

/// After `SENTINEL RESET` a Sentinel says that there are no others.
#[test]
fn a_sentinel_after_a_reset_is_no_majority_of_one() {
    let alone = |listed| {
        let mut view = SentinelGroupView::new(listed, QUARANTINE);
        let after_reset = SentinelAnswer {
            others: 0,
            ..answer("x", "a", 7, 10)
        };
        view.handle_answer(0, after_reset, at(10));
        view
    };
    assert_eq!(confirmed(&alone(3), 10), None, "the list has three");
    let mut told = alone(1);
    assert_eq!(confirmed(&told, 10), master_a(7, 10), "a group of one");
    told.note_recorded(3);
    assert_eq!(confirmed(&told, 10), None, "the birth record has three");
    assert_eq!(
        told.doubt(at(0), at(10)),
        Unconfirmed::ListTooShort {
            listed: 1,
            total: 3
        }
    );
}

#[test]
fn a_number_of_sentinels_that_was_heard_counts_for_a_quarantine() {
    let mut view = SentinelGroupView::new(1, QUARANTINE);
    view.handle_answer(0, answer("x", "a", 7, 0), at(0));
    let after_reset = |asked_ms| SentinelAnswer {
        others: 0,
        ..answer("x", "a", 7, asked_ms)
    };
    for ms in [1_000, 20_000, 35_000] {
        view.handle_answer(0, after_reset(ms), at(ms));
        assert_eq!(
            (view.total(at(ms)), confirmed(&view, ms)),
            (3, None),
            "{ms}"
        );
    }
    assert_eq!(confirmed(&view, 35_001), master_a(7, 35_000));
    view.handle_answer(0, after_reset(35_002), at(35_002));
    assert_eq!(view.total(at(35_002)), 1);
}

#[test]
fn the_largest_number_that_a_sentinel_gave_within_a_quarantine_counts_for_it() {
    let mut view = SentinelGroupView::new(1, QUARANTINE);
    for (ms, others) in [(0, 4), (1_000, 2), (2_000, 6), (3_000, 2)] {
        view.handle_answer(0, reporting("x", others, ms), at(ms));
    }
    assert_eq!(view.total(at(3_000)), 7);
    assert_eq!(view.total(at(37_000)), 7);
    assert_eq!(view.total(at(37_001)), 3);
}

/// The Sentinel `id` knows that many others.
fn reporting(id: &str, others: u32, asked_ms: u64) -> SentinelAnswer {
    SentinelAnswer {
        others,
        ..answer(id, "a", 7, asked_ms)
    }
}

#[test]
fn a_number_of_sentinels_counts_if_a_majority_of_the_list_reports_it_or_more() {
    let total = |others: [u32; 3]| {
        let ids = ["x", "y", "z"].into_iter();
        let answers = ids
            .zip(others)
            .map(|(id, others)| reporting(id, others, 10));
        let view = view(answers);
        let found = view.confirmed(at(10));
        assert_eq!(
            found.as_ref().map_or(0, |found| found.sentinels),
            view.total(at(10))
        );
        found.map(|found| (found.sentinels, found.reported))
    };
    for lie in [3, 4, 4_000_000_000] {
        for others in [[lie, 2, 2], [2, lie, 2], [2, 2, lie]] {
            assert_eq!(total(others), Some((3, 3)), "{others:?}");
        }
    }
    assert_eq!(total([0, 2, 2]), Some((3, 3)), "one after a reset");
    assert_eq!(total([4, 4, 2]), Some((5, 5)));
    // Each says what the next one exceeds.
    assert_eq!(total([2, 3, 4]), Some((4, 4)));
}

/// Another client would believe what this one writes, so a list with a wrong entry must harm only
/// the client that has it.
#[test]
fn the_number_for_the_birth_record_is_what_a_majority_reports() {
    let mut view = SentinelGroupView::new(4, QUARANTINE);
    for (index, id) in ["x", "y", "z"].into_iter().enumerate() {
        view.handle_answer(index, reporting(id, 2, 10), at(10));
    }
    view.note_recorded(4);
    let found = view.confirmed(at(10)).unwrap();
    assert_eq!((found.sentinels, found.reported), (4, 3));
}

/// It can report a number in the name of another one, but not a larger one than a majority does.
#[test]
fn a_sentinel_with_the_id_of_another_one_does_not_raise_the_number() {
    for others in [0, 9] {
        let answers = [
            reporting("x", 2, 10),
            reporting("y", 2, 10),
            reporting("y", others, 20),
        ];
        assert_eq!(view(answers).total(at(20)), 3, "{others}");
    }
}

#[test]
fn names_and_ips_are_one_address_if_they_have_a_common_ip_and_port() {
    let by_name = address("redis-1", 6379, &[1, 2]);
    assert!(by_name.is_same(&address("10.0.0.2", 6379, &[2])));
    assert!(by_name.is_same(&address("REDIS-1", 6379, &[])));
    assert!(!by_name.is_same(&address("redis-1", 6380, &[1, 2])));
    assert!(!by_name.is_same(&address("10.0.0.3", 6379, &[3])));
    let mut view = view([answer("x", "a", 7, 10), answer("y", "b", 7, 10)]);
    assert_eq!(confirmed(&view, 10), None);
    for (index, host) in ["a", "b"].into_iter().enumerate() {
        let mut answer = answer(host, host, 7, 20);
        answer.master.ips = [IpAddr::from([10, 0, 0, 9])].into();
        view.handle_answer(index, answer, at(20));
    }
    let by_ip = Some(("10.0.0.9:6379".to_owned(), 7, 20));
    assert_eq!(confirmed(&view, 20), by_ip, "no name has a majority");
}

/// The Sentinel `id` names `host`, which resolves to these IPs.
fn resolved(id: &str, host: &str, ips: &[u8], asked_ms: u64) -> SentinelAnswer {
    SentinelAnswer {
        master: address(host, 6379, ips),
        ..answer(id, host, 7, asked_ms)
    }
}

/// The confirmed host and the last bytes of its IPs, and when it was asked for.
fn dialled(answers: [SentinelAnswer; 3]) -> Option<(String, Vec<u8>, u64)> {
    let found = view(answers).confirmed(at(30))?;
    let last = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => unreachable!(),
    };
    let ips = found.address.ips.iter().map(last).collect();
    let asked_ms = found.asked_at.as_micros() / 1000;
    Some((found.address.host.to_string(), ips, asked_ms))
}

/// One of three names a host that has the master's IP and one of an attacker.
#[test]
fn no_host_and_no_ip_of_a_single_sentinel_is_dialled() {
    let good = |id, ms| resolved(id, "10.0.0.1", &[1], ms);
    for ips in [[1, 66], [66, 1]] {
        for (at_ms, confirmed_ms) in [(5, 10), (10, 10), (15, 15)] {
            let hostile = resolved("x", "evil", &ips, at_ms);
            let found = dialled([hostile, good("y", 10), good("z", 20)]);
            let expected = ("10.0.0.1".to_owned(), vec![1], confirmed_ms);
            assert_eq!(found, Some(expected), "{ips:?} {at_ms}");
        }
    }
    // Without the second of the others there is no name of a majority, so the certificate must be
    // one for the IP.
    let silent = answer("z", "other", 8, 10);
    let found = dialled([resolved("x", "evil", &[66, 1], 10), good("y", 10), silent]);
    assert_eq!(found, Some(("10.0.0.1".to_owned(), vec![1], 10)));
}

/// The certificate of a server has its name rather than its IP.
#[test]
fn the_certificate_is_checked_against_a_name_that_a_majority_gave() {
    let by_name = |id, ms| resolved(id, "redis-1", &[1, 2], ms);
    let all = dialled(["x", "y", "z"].map(|id| by_name(id, 10)));
    assert_eq!(all, Some(("redis-1".to_owned(), vec![1, 2], 10)));
    let by_ip = resolved("z", "10.0.0.1", &[1], 30);
    let mixed = dialled([by_name("x", 10), by_name("y", 20), by_ip.clone()]);
    assert_eq!(
        mixed,
        Some(("redis-1".to_owned(), vec![1], 20)),
        "the other IP was given at 10"
    );
    let upper = resolved("y", "Redis-1", &[1, 2], 20);
    let mixed = dialled([by_name("x", 20), upper, by_ip]);
    assert_eq!(mixed, Some(("redis-1".to_owned(), vec![1, 2], 20)));
}

/// The client resolves a name for every Sentinel that gives it, and that may fail for one of them.
#[test]
fn a_name_that_was_resolved_once_is_resolved_for_all_who_gave_it() {
    let names = |ips: [&[u8]; 2]| {
        let [one, other] = ips;
        let third = answer("z", "other", 8, 10);
        dialled([
            resolved("x", "a", one, 10),
            resolved("y", "a", other, 10),
            third,
        ])
    };
    assert_eq!(names([&[1], &[]]), Some(("a".to_owned(), vec![1], 10)));
    assert_eq!(names([&[], &[1]]), Some(("a".to_owned(), vec![1], 10)));
    assert_eq!(names([&[], &[]]), Some(("a".to_owned(), vec![], 10)));
}

/// A Sentinel that gives the id of another one neither gets a second vote nor takes that one's.
#[test]
fn a_sentinel_with_the_id_of_another_one_does_not_silence_it() {
    for (ms, index) in [(5, 0), (15, 0), (5, 2), (15, 2)] {
        let mut view = SentinelGroupView::new(3, QUARANTINE);
        let hostile = answer("y", "evil", 7, ms);
        let others = (0..3).filter(|i| *i != index);
        for (i, id) in others.zip(["x", "y"]) {
            view.handle_answer(i, answer(id, "a", 7, 10), at(20));
        }
        view.handle_answer(index, hostile, at(20));
        assert_eq!(confirmed(&view, 20), master_a(7, 10), "{ms} {index}");
    }
}

#[test]
fn the_doubt_names_what_is_missing() {
    let none = SentinelGroupView::new(3, QUARANTINE);
    let too_few = |answered| Unconfirmed::TooFewAnswer { answered, total: 3 };
    assert_eq!(none.doubt(at(0), at(0)), too_few(0));
    let view = view([answer("x", "a", 7, 10), answer("y", "a", 7, 20)]);
    assert_eq!(
        view.doubt(at(20), at(30)),
        too_few(1),
        "the other answer is too old"
    );
    let mut short = SentinelGroupView::new(1, QUARANTINE);
    short.handle_answer(0, answer("x", "a", 7, 10), at(10));
    let doubt = Unconfirmed::ListTooShort {
        listed: 1,
        total: 3,
    };
    assert_eq!(short.doubt(at(0), at(10)), doubt);
}

/// One Sentinel's possible state: silent, or its id, address, epochs, others and time.
type Voice = Option<(&'static str, &'static str, [u64; 2], u32, u64)>;

/// The possible states of an entry of the list whose Sentinel is one of `ids`.
fn voices(ids: &[&'static str]) -> Vec<Voice> {
    let mut voices: Vec<Voice> = vec![None];
    for id in ids {
        for host in ["a", "b"] {
            for epochs in [[1, 1], [2, 2], [1, 2]] {
                for (others, ms) in [(0, 5), (2, 5), (2, 9)] {
                    voices.push(Some((id, host, epochs, others, ms)));
                }
            }
        }
    }
    voices
}

/// The rule, written a second time: for every address and epoch, the ids with a word for it.
fn rule(answers: &[Voice], recorded: u32) -> Option<(String, u64, u64)> {
    let ids: BTreeSet<&str> = answers.iter().flatten().map(|voice| voice.0).collect();
    let silent = answers.iter().filter(|voice| voice.is_none()).count();
    let listed = (ids.len() + silent) as u32;
    let of_id = |id: &&str| {
        let of_id = answers.iter().flatten().filter(|voice| voice.0 == *id);
        of_id.map(|voice| voice.3 + 1).max()
    };
    let is_heard = |k: &u32| {
        let reporting = ids.iter().filter(|id| of_id(id) >= Some(*k)).count();
        reporting as u32 * 2 > listed
    };
    let heard = (1..9).filter(is_heard).max();
    let total = heard.unwrap_or(0).max(recorded).max(listed);
    let mut found = Vec::new();
    for (host, epoch) in [("a", 1), ("a", 2), ("b", 1), ("b", 2)] {
        let words = |id: &str| {
            let of_id = answers.iter().flatten().filter(|voice| voice.0 == id);
            let such = of_id.filter(|voice| voice.1 == host && voice.2 == [epoch; 2]);
            such.map(|voice| voice.4).max()
        };
        let mut asked: Vec<u64> = ids.iter().filter_map(|id| words(id)).collect();
        asked.sort_unstable();
        asked.reverse();
        if asked.len() as u32 * 2 > total {
            found.push((asked[total as usize / 2], epoch, format!("{host}:6379")));
        }
    }
    let (asked, epoch, address) = found.into_iter().max()?;
    Some((address, epoch, asked))
}

#[test]
fn every_combination_of_answers_follows_the_rule() {
    let mut confirmations = 0_u32;
    for one in voices(&["x"]) {
        for other in voices(&["x", "y"]) {
            for third in voices(&["x", "z"]) {
                let answers = [one, other, third];
                let mut view = SentinelGroupView::new(3, QUARANTINE);
                for (index, voice) in answers.iter().enumerate() {
                    if let Some((id, host, [epoch_before, epoch_after], others, ms)) = *voice {
                        let answer = SentinelAnswer {
                            epoch_before,
                            epoch_after,
                            others,
                            ..answer(id, host, 0, ms)
                        };
                        view.handle_answer(index, answer, at(9));
                    }
                }
                for recorded in [0, 5] {
                    view.note_recorded(recorded);
                    let found = confirmed(&view, 9);
                    // Two entries of one id and one time: which of them counts is not decided by
                    // the rule.
                    let tied = answers.iter().flatten().enumerate().any(|(i, voice)| {
                        let mut later = answers.iter().flatten().skip(i + 1);
                        later.any(|other| other.0 == voice.0 && other.4 == voice.4)
                    });
                    if !tied {
                        assert_eq!(found, rule(&answers, recorded), "{answers:?} {recorded}");
                    }
                    confirmations += u32::from(found.is_some());
                }
            }
        }
    }
    assert!(confirmations > 1_000, "{confirmations}");
}
