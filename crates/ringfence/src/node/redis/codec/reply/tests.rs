use proptest::prelude::*;

use super::*;
use crate::message::{Acquire, Claim, Mode, PlainAcquire, PlainExtend, Ticket};
use crate::name::Name;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

fn request(op: Op) -> Request {
    Request {
        claims: Arc::from([Claim {
            name: Name::new("", "n").unwrap(),
            mode: Mode::Exclusive,
        }]),
        token: Token::from_entropy([1; TOKEN_ENTROPY_BYTES]),
        op,
    }
}

fn acquire() -> Request {
    request(Op::Acquire(Acquire {
        ballot: Ballot::new(7),
        ttl_ms: 1000,
        label: Arc::from("me"),
        ticket: None,
        not_after_us: None,
    }))
}

fn word(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[test]
fn texts_of_a_server_are_bounded() {
    let held = |label: &str, id: &str| {
        let numbers = [Value::Int(9), Value::Int(7)];
        let words = [word("held"), Value::Int(0), word(label), word(id)];
        let rest = [Value::Int(5), Value::Int(0)];
        let reply = numbers.into_iter().chain(words).chain(rest).collect();
        read(&acquire(), Value::Array(reply))
    };
    let long = "ö".repeat(100_000);
    match held(&long, "abcdef0123") {
        Ok(ScriptReply::Answer(Answer::Held(holder), _)) => {
            let label = holder.label.unwrap();
            assert!(label.ends_with('…') && label.len() < 600, "{}", label.len());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(held("me", &long), Err(MalformedReply));
    let attend = request(Op::Attend(Attend {
        tickets: Arc::from([]),
        list: true,
        ttl_ms: 1,
    }));
    let listed = |party: &str| {
        let stamp = [Value::Int(9), Value::Int(7), word("arrivals")];
        let parties = [Value::Int(1), Value::Int(1), word(party)];
        read(
            &attend,
            Value::Array(stamp.into_iter().chain(parties).collect()),
        )
    };
    assert!(listed(&format!("named:{}", "p".repeat(256))).is_ok());
    assert_eq!(listed(&long), Err(MalformedReply));
}

#[test]
fn a_grant_carries_clock_and_floor() {
    let reply = Value::Array(vec![Value::Int(9), Value::Int(7), word("granted")]);
    let stamp = ReplyStamp {
        clock_us: 9,
        floor: Ballot::new(7),
    };
    assert_eq!(
        read(&acquire(), reply),
        Ok(ScriptReply::Answer(Answer::Granted, Some(stamp)))
    );
}

#[test]
fn an_answer_to_another_request_is_malformed() {
    for wrong in [
        "extended", "released", "gone", "views", "turns", "old", "what",
    ] {
        let reply = Value::Array(vec![Value::Int(9), Value::Int(7), word(wrong)]);
        assert_eq!(read(&acquire(), reply), Err(MalformedReply), "{wrong}");
    }
    assert_eq!(read(&acquire(), Value::Okay), Err(MalformedReply));
}

#[test]
fn an_answer_to_another_plain_request_is_malformed() {
    let answers = [
        (Op::PlainAcquire(PlainAcquire { ttl_ms: 1 }), Value::Okay),
        (Op::PlainExtend(PlainExtend { ttl_ms: 1 }), word("extended")),
        (Op::PlainRelease, word("released")),
    ];
    for (asked, (op, _)) in answers.iter().enumerate() {
        for (answered, (_, value)) in answers.iter().enumerate() {
            let reply = read(&request(op.clone()), value.clone());
            assert_eq!(reply.is_ok(), asked == answered, "{op:?}: {value:?}");
        }
    }
    assert!(
        read(
            &request(Op::PlainAcquire(PlainAcquire { ttl_ms: 1 })),
            word("gone")
        )
        .is_err()
    );
    assert!(read(&request(Op::PlainRelease), word("gone")).is_ok());
}

#[test]
fn a_holder_of_an_unknown_claim_is_malformed() {
    let reply = |claim| {
        let items = [Value::Int(claim), Value::Nil, Value::Nil, Value::Int(5)];
        let items = items.into_iter().chain([Value::Int(0)]);
        let head = [Value::Int(9), Value::Int(7), word("held")];
        Value::Array(head.into_iter().chain(items).collect())
    };
    assert!(read(&acquire(), reply(0)).is_ok());
    assert_eq!(read(&acquire(), reply(1)), Err(MalformedReply));
    assert_eq!(read(&acquire(), reply(-1)), Err(MalformedReply));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Int),
        Just(Value::Nil),
        Just(Value::Okay),
        prop_oneof![
            Just("held"),
            Just("views"),
            Just("turns"),
            Just("behind"),
            Just("arrivals"),
            Just("newborn"),
            Just("granted")
        ]
        .prop_map(word),
        any::<Vec<u8>>().prop_map(Value::BulkString),
    ];
    leaf.prop_recursive(2, 20, 8, |inner| {
        proptest::collection::vec(inner, 0..9).prop_map(Value::Array)
    })
}

proptest! {
    #[test]
    fn no_reply_causes_a_panic(value in any_value(), which in 0usize..5) {
        let ticket = Ticket {
            since_us: 1,
            id: Arc::from("c.1"),
            first: false,
            label: Arc::from("me"),
        };
        let request = match which {
            0 => acquire(),
            1 => request(Op::Inspect),
            2 => request(Op::Refresh(Refresh { tickets: Arc::from([ticket]) })),
            3 => request(Op::Attend(Attend { tickets: Arc::from([ticket]), list: true, ttl_ms: 1 })),
            _ => request(Op::PlainRelease),
        };
        let _ = read(&request, value);
    }
}
