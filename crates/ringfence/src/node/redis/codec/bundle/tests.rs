//! Which calls share a bundle, how a bundle is written, and how its reply is read.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::group::Group;
use crate::ledger::Rules;
use crate::message::{Acquire, Claim, Extend, PlainAcquire, PlainExtend, Release, Reply, Ticket};
use crate::name::Name;
use crate::node::redis::scripts::BORN_KEY;
use crate::node::redis::wire::resp::Packer;
use crate::node::{CallError, Completion, Deliver};
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

struct DiscardReply;

impl Deliver<Reply> for DiscardReply {
    fn deliver(&self, _tag: u64, _outcome: Result<Reply, CallError>) {}
}

fn request(names: &[&str], op: Op) -> Request {
    let claims = names.iter().map(|name| Claim {
        name: Name::new("", name).unwrap(),
        mode: Mode::Exclusive,
    });
    Request {
        claims: claims.collect(),
        token: Token::from_entropy([1; TOKEN_ENTROPY_BYTES]),
        op,
    }
}

fn call(request: Request) -> Call {
    Call {
        request: Arc::new(request),
        expires: Timestamp::from_nanos(u64::MAX),
        done: Completion::new(Arc::new(DiscardReply), 0),
    }
}

fn acquire(ttl_ms: u64, ticket: Option<Ticket>) -> Op {
    Op::Acquire(Acquire {
        ballot: Ballot::new(7),
        ttl_ms,
        label: Arc::from("me"),
        ticket,
        not_after_us: None,
    })
}

fn release(kind: ReleaseKind, keep_ms: Option<u64>) -> Op {
    Op::Release(Release {
        ballot: Ballot::new(7),
        kind,
        fate_unknown: false,
        ticket: None,
        stays: false,
        keep_ms,
        delay_ms: 0,
    })
}

fn extend() -> Op {
    Op::Extend(Extend {
        ballot: Ballot::new(7),
        ttl_ms: 9,
        delay_ms: 0,
    })
}

/// The commands for these calls, as the names in each command.
fn packed(calls: &[(&str, Op)]) -> Vec<String> {
    let calls = calls
        .iter()
        .map(|(name, op)| call(request(&[name], op.clone())));
    let names = |calls: Vec<Call>| -> Vec<String> {
        let names = calls.iter().map(|call| only_name(&call.request).to_owned());
        names.collect()
    };
    let commands = pack(calls.collect()).into_iter();
    let commands = commands.map(|command| names(command.into_calls()).concat());
    commands.collect()
}

#[test]
fn the_usual_calls_on_different_names_are_packed_together() {
    let (take, give) = (acquire(9, None), release(ReleaseKind::Final, None));
    let calls = [
        ("a", take.clone()),
        ("b", give.clone()),
        ("c", Op::Inspect),
        ("d", Op::PlainRelease),
        ("e", take),
        ("f", Op::PlainAcquire(PlainAcquire { ttl_ms: 9 })),
        ("g", Op::PlainRelease),
        ("h", give),
        ("i", extend()),
        ("j", extend()),
    ];
    assert_eq!(packed(&calls), ["abeh", "c", "dg", "f", "ij"]);
}

#[test]
fn a_call_never_overtakes_another_on_its_name() {
    let take = || acquire(9, None);
    let calls = [
        ("a", take()),
        ("b", take()),
        ("c", Op::Inspect),
        ("c", take()),
        ("a", take()),
        ("d", take()),
    ];
    assert_eq!(packed(&calls), ["abd", "c", "ca"]);
    // Names that are released and locked again need two bundles.
    let again = ["a", "b", "c"].map(|name| {
        let give = release(ReleaseKind::Final, None);
        [(name, give), (name, take())]
    });
    assert_eq!(packed(again.as_flattened()), ["abc", "abc"]);
    let several = call(request(&["x", "y"], take()));
    let [one, two, three] = ["w", "y", "z"].map(|name| call(request(&[name], take())));
    let commands = pack(vec![one, several, two, three]);
    let sizes: Vec<usize> = commands.into_iter().map(|p| p.into_calls().len()).collect();
    assert_eq!(sizes, [2, 1, 1]);
}

#[test]
fn an_unusual_call_is_sent_by_itself() {
    let ticket = Ticket {
        since_us: 1,
        id: Arc::from("c.1"),
        first: false,
        label: "waiter".into(),
    };
    for op in [
        acquire(9, Some(ticket.clone())),
        release(ReleaseKind::Undo, None),
        release(ReleaseKind::Final, Some(5)),
        Op::Release(Release {
            ballot: Ballot::new(7),
            kind: ReleaseKind::Final,
            fate_unknown: false,
            ticket: Some(ticket),
            stays: false,
            keep_ms: None,
            delay_ms: 0,
        }),
        Op::PlainExtend(PlainExtend { ttl_ms: 9 }),
    ] {
        assert_eq!(kind(&request(&["a"], op.clone())), None, "{op:?}");
    }
    assert_eq!(kind(&request(&["a", "b"], acquire(9, None))), None);
    for op in [acquire(9, None), extend()] {
        let mut shared = request(&["a"], op);
        shared.claims = shared.claims.iter().map(Claim::shared).collect();
        assert_eq!(kind(&shared), None);
    }
}

#[test]
fn equal_terms_are_sent_once() {
    let terms = ScriptTerms::new("born", Rules::of_group(&Group::new(3)));
    let calls = [("a", 5), ("b", 6), ("c", 5)]
        .map(|(name, ttl_ms)| call(request(&[name], acquire(ttl_ms, None))));
    let last = call(request(&["d"], release(ReleaseKind::Final, None)));
    let calls: Vec<Call> = calls.into_iter().chain([last]).collect();
    let mut sent = Vec::new();
    let mut packer = Packer::new(&mut sent);
    write(
        BatchKind::Fast,
        &calls,
        &terms,
        ScriptForm::Hash,
        &mut packer,
    );
    drop(packer);
    let sent = String::from_utf8(sent).unwrap();
    let words: Vec<&str> = sent.split("\r\n").skip(2).step_by(2).collect();
    assert_eq!(words[2], "13");
    assert_eq!(words[3..7], ["a", "b", "c", "d"]);
    assert_eq!(
        words[7..9],
        ["ringfence:{a}:record:a", "ringfence:{b}:record:b"]
    );
    assert_eq!(words[15..17], [BORN_KEY, "born"]);
    assert_eq!(words[19], "1210");
    assert_eq!(words[24..], ["7", "7", "7", "7", "5", "me", "6", "me"]);
}

fn fast() -> [Request; 2] {
    let give = release(ReleaseKind::Final, None);
    [acquire(9, None), give].map(|op| request(&["a"], op))
}

fn read_reply(kind: BatchKind, items: Vec<Value>) -> Result<BundleReply, MalformedReply> {
    let rules = Rules::of_group(&Group::new(3));
    read(kind, fast().iter(), Value::Array(items), &rules)
}

#[test]
fn a_bundle_answers_with_one_clock_and_the_calls_that_it_skipped() {
    let clock_us = 90_000_000;
    let clock = Value::Int(clock_us as i64);
    let ground = Moment::of_clock(clock_us).ground(&Rules::of_group(&Group::new(3)));
    let stamp = |floor| Some(ReplyStamp { clock_us, floor });
    // The ballot of the calls is below what the clock allows.
    let granted = Some((Answer::Granted, stamp(ground)));
    let released = Some((Answer::Released, stamp(ground)));
    for (skipped, answers) in [
        (vec![], vec![granted.clone(), released.clone()]),
        (vec![1], vec![None, released]),
        (vec![2], vec![granted, None]),
        (vec![1, 2], vec![None, None]),
    ] {
        let skipped = skipped.into_iter().map(Value::Int);
        let items = [clock.clone()].into_iter().chain(skipped).collect();
        let expected = Ok(BundleReply::Answers(answers));
        assert_eq!(read_reply(BatchKind::Fast, items), expected);
    }
    let early = vec![Value::Int(9)];
    let floors = [Answer::Granted, Answer::Released].map(|answer| {
        let floor = Ballot::new(7);
        Some((answer, Some(ReplyStamp { clock_us: 9, floor })))
    });
    assert_eq!(
        read_reply(BatchKind::Fast, early),
        Ok(BundleReply::Answers(floors.into())),
        "the ballot of the calls"
    );
    let newborn = vec![Value::BulkString(b"newborn".to_vec())];
    assert_eq!(
        read_reply(BatchKind::Fast, newborn.clone()),
        Ok(BundleReply::Newborn)
    );
    assert_eq!(
        read_reply(BatchKind::PlainRelease, newborn),
        Err(MalformedReply)
    );
}

#[test]
fn a_reply_with_too_few_too_many_or_other_parts_is_malformed() {
    let (one, nine) = (Value::Int(1), Value::Int(9));
    for (kind, items) in [
        (BatchKind::Fast, vec![]),
        (BatchKind::Fast, vec![nine.clone(), nine.clone()]),
        (
            BatchKind::Fast,
            vec![nine.clone(), one.clone(), one.clone()],
        ),
        (
            BatchKind::Fast,
            vec![nine.clone(), Value::Int(2), one.clone()],
        ),
        (BatchKind::Fast, vec![nine.clone(), Value::Int(0)]),
        (BatchKind::Fast, vec![nine.clone(), Value::Int(-1)]),
        (BatchKind::Fast, vec![nine.clone(), Value::Nil]),
        (BatchKind::Fast, vec![Value::Nil]),
        (BatchKind::Extend, vec![nine.clone()]),
        (BatchKind::Extend, vec![nine.clone(); 4]),
        (
            BatchKind::Extend,
            vec![nine.clone(), Value::Int(-1), one.clone()],
        ),
        (BatchKind::PlainRelease, vec![one.clone()]),
        (BatchKind::PlainRelease, vec![one.clone(); 3]),
        (BatchKind::PlainRelease, vec![one.clone(), nine]),
        (BatchKind::PlainRelease, vec![one, Value::Okay]),
    ] {
        assert_eq!(
            read_reply(kind, items.clone()),
            Err(MalformedReply),
            "{items:?}"
        );
    }
    let rules = Rules::of_group(&Group::new(3));
    assert_eq!(
        read(BatchKind::Fast, fast().iter(), Value::Okay, &rules),
        Err(MalformedReply)
    );
}

proptest! {
    #[test]
    fn calls_on_one_name_keep_their_order(names in proptest::collection::vec(0..6usize, 0..40)) {
        let sent: Vec<(usize, usize)> = names.into_iter().enumerate().collect();
        let calls = sent.iter().map(|(number, name)| {
            let op = match number % 3 {
                0 => Op::PlainRelease,
                1 => acquire(*number as u64, None),
                _ => Op::Inspect,
            };
            let mut call = call(request(&[["a", "b", "c", "d", "e", "f"][*name]], op));
            call.expires = Timestamp::from_nanos(*number as u64);
            call
        });
        let commands = pack(calls.collect());
        let order: Vec<usize> = commands
            .into_iter()
            .flat_map(Command::into_calls)
            .map(|call| call.expires.as_nanos() as usize)
            .collect();
        prop_assert_eq!(order.len(), sent.len());
        for name in 0..6 {
            let of_name = |number: &&usize| sent[**number].1 == name;
            let order: Vec<&usize> = order.iter().filter(of_name).collect();
            prop_assert!(order.is_sorted(), "{:?}", order);
        }
    }
}
