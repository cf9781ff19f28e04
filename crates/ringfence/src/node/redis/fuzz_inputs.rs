//! Entry points for fuzzers (`fuzz/`) and for a test with random input: one function for each kind
//! of input from outside. No function may panic, and each checks what it accepts.

use std::sync::{Arc, Mutex, PoisonError};

use redis::{PushInfo, Value};

use crate::group::Group;
use crate::ledger::Rules;
use crate::message::{
    Acquire, Answer, Arrive, Attend, Ballot, Break, Claim, Downgrade, Extend, Kind, List, Mode, Op,
    PlainAcquire, PlainExtend, Refresh, RefreshSlots, Release, ReleaseKind, Request, Restore,
    Slots, Ticket, Wake,
};
use crate::name::Name;
use crate::node::Hear;
use crate::receipt::Receipt;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};
use crate::url::parse_nodes;

use super::access::rights;
use super::changes::reported_names;
use super::codec::bundle::{self, BatchKind, BundleReply};
use super::codec::reply::{self, ScriptReply};
use super::examine::service::replicas;
use super::handshake::born::BirthRecord;
use super::handshake::server::{Server, UrlOptions};
use super::report::Reporter;
use super::sentinel::answer::Said;
use super::wire::resp::{self, Framer};
use super::wire::wake_listeners::WAKE_CHANNEL;
use super::wire::wake_listeners::WakeListeners;

/// The bytes of a reply to each operation. Only an acquire may be read as a grant.
pub fn reply(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else {
        return;
    };
    for op in operations() {
        let acquires = matches!(
            op,
            Op::Acquire { .. } | Op::AcquireSlot { .. } | Op::PlainAcquire { .. }
        );
        let request = request(op);
        if let Ok(ScriptReply::Answer(answer, _)) = reply::read(&request, value.clone()) {
            let granted = match &answer {
                Answer::Granted => true,
                Answer::Permit(permit) => *permit.answer == Answer::Granted,
                _ => false,
            };
            assert!(acquires || !granted);
        }
    }
    bundle(&value);
}

/// The same as a reply to a bundle. Only an acquire may be read as a grant, and each call has at
/// most one answer.
fn bundle(value: &Value) {
    let requests: Vec<Request> = operations().into_iter().map(request).collect();
    let rules = Rules::of_group(&Group::new(1));
    for kind in [BatchKind::Fast, BatchKind::Extend, BatchKind::PlainRelease] {
        let of_kind = requests.iter().filter(|request| match kind {
            BatchKind::Fast => matches!(request.op, Op::Acquire { .. } | Op::Release { .. }),
            BatchKind::Extend => matches!(request.op, Op::Extend { .. }),
            BatchKind::PlainRelease => request.op == Op::PlainRelease,
        });
        let of_kind: Vec<&Request> = of_kind.collect();
        let reply = bundle::read(kind, of_kind.iter().copied(), value.clone(), &rules);
        if let Ok(BundleReply::Answers(answers)) = reply {
            assert_eq!(answers.len(), of_kind.len());
            for (request, answer) in of_kind.iter().zip(answers) {
                let granted = answer.is_some_and(|(answer, _)| answer == Answer::Granted);
                assert!(!granted || matches!(request.op, Op::Acquire { .. }));
            }
        }
    }
}

/// The bytes of a stream of replies. Each reply that is found reads as the parser of the crate
/// `redis` reads it alone, and none is found that the parser would consider incomplete.
pub fn stream(bytes: &[u8]) {
    let (mut framer, mut rest) = (Framer::default(), bytes);
    while let Ok(Some(length)) = framer.find(rest) {
        let (reply, behind) = rest.split_at(length);
        match (resp::read_value(reply), redis::parse_redis_value(reply)) {
            (Ok(ours), Ok(theirs)) => assert!(same(&ours, &theirs), "{ours:?} {theirs:?}"),
            (ours, theirs) => assert_eq!(ours.is_err(), theirs.is_err()),
        }
        rest = behind;
    }
}

/// Equality in which NaN is equal to itself.
fn same(a: &Value, b: &Value) -> bool {
    a == b || format!("{a:?}") == format!("{b:?}")
}

/// The answers to several questions: an array, or one part of raw text for each question, since
/// `INFO` answers with text.
fn answers_in(bytes: &[u8]) -> Vec<Value> {
    match redis::parse_redis_value(bytes) {
        Ok(Value::Array(answers)) => answers,
        _ => bytes
            .split(|byte| *byte == 0)
            .map(|part| Value::BulkString(part.to_vec()))
            .collect(),
    }
}

/// The bytes of the answers to a handshake.
pub fn handshake(bytes: &[u8]) {
    let answers = answers_in(bytes);
    let reporter = Reporter::new("h:6379", None, Some("secret"));
    for strict in [true, false] {
        let options = UrlOptions {
            no_quarantine: !strict,
            eviction_allowed: !strict,
            said_durable: !strict,
            sentinels: false,
            never_joins: false,
            database: 0,
        };
        if let Ok(server) = Server::read(answers.clone(), &reporter, options) {
            assert!(!server.run_id.is_empty());
        }
    }
    if let Some(Ok(born)) = std::str::from_utf8(bytes).ok().map(BirthRecord::parse) {
        assert_eq!(born.text.as_bytes(), bytes);
    }
}

/// The bytes of the answers of a Sentinel. Only a host and a port that can be dialled are accepted.
pub fn sentinel(bytes: &[u8]) {
    let mut answers = answers_in(bytes);
    if answers.len() == 6 {
        // Raw text: the host and the port are one answer, and what follows is the rest.
        let rest = answers.split_off(4);
        let address = answers.drain(2..).collect();
        answers.push(Value::Array(address));
        answers.extend(rest.into_iter().take(1));
    }
    for answer in &mut answers {
        // Names and values in turn.
        if let Value::BulkString(text) = answer
            && text.contains(&b'\n')
        {
            let parts = text.split(|byte| *byte == b'\n');
            let parts = parts.map(|part| Value::BulkString(part.to_vec()));
            *answer = Value::Array(parts.collect());
        }
    }
    if let Ok(said) = Said::read(answers) {
        let plain = |c: char| !c.is_control() && !c.is_whitespace() && c != '/' && c != '@';
        assert!(said.host.chars().all(plain) && (1..256).contains(&said.host.len()));
        assert_ne!(said.port, 0);
    }
}

/// The bytes of the answers to an examination: `INFO`, settings, rights, replicas.
pub fn examination(bytes: &[u8]) {
    let answers = answers_in(bytes);
    let reporter = Reporter::new("h:6379", Some("user"), Some("secret"));
    for answer in &answers {
        assert!(replicas(Some(answer)).len() <= 16);
        for name in [None, Some("orders:1")] {
            if let Some(found) = rights::read(answer, name) {
                let lacking = found.rights.lacking.iter();
                assert!(lacking.clone().all(|right| !right.rule.contains('\n')));
            }
        }
    }
    if let Ok(server) = Server::look(answers, &reporter) {
        let shown = format!("{:?}", server.role);
        assert!(!shown.contains("secret") || bytes.windows(6).any(|part| part == b"secret"));
    }
}

/// The bytes of a report of changed keys. Only names that a client can give are told of.
pub fn invalidation(bytes: &[u8]) {
    let push = match redis::parse_redis_value(bytes) {
        Ok(Value::Push { kind, data }) => PushInfo { kind, data },
        _ => {
            let keys = bytes.split(|byte| *byte == 0);
            let keys = keys.map(|key| Value::BulkString(key.to_vec()));
            PushInfo {
                kind: redis::PushKind::Invalidate,
                data: vec![Value::Array(keys.collect())],
            }
        }
    };
    for name in reported_names(&push) {
        assert_eq!(Name::of_key(name.as_str()).as_ref(), Some(&name));
    }
}

/// The bytes of a push. Only a wake for a listener is delivered.
pub fn push(bytes: &[u8]) {
    #[derive(Default)]
    struct RecordedWakes(Mutex<Vec<Wake>>);
    impl Hear for RecordedWakes {
        fn hear(&self, wake: Wake) {
            let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.push(wake);
        }
    }
    let (listeners, recorded) = (WakeListeners::default(), Arc::<RecordedWakes>::default());
    listeners.add("c", recorded.clone());
    let push = match redis::parse_redis_value(bytes) {
        Ok(Value::Push { kind, data }) => PushInfo { kind, data },
        _ => PushInfo {
            kind: redis::PushKind::Message,
            data: vec![
                Value::BulkString(format!("{WAKE_CHANNEL}c").into_bytes()),
                Value::BulkString(bytes.to_vec()),
            ],
        },
    };
    let _ = listeners.receive(&push, bytes.len(), 0);
    let recorded = recorded.0.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(recorded.iter().all(|wake| wake.ticket.starts_with("c.")));
}

/// Text of a user or an environment variable: nodes, a name, a token, a receipt.
pub fn written(text: &str) {
    if let Ok(nodes) = parse_nodes(text) {
        assert!(!nodes.is_empty());
    }
    if let Ok(name) = Name::new("", text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(token) = Token::parse(text) {
        assert_eq!(token.expose(), text);
        assert!(!format!("{token:?}{token}").contains(text));
    }
    if let Ok(receipt) = Receipt::parse(text) {
        let again = Receipt::parse(&receipt.expose());
        assert_eq!(again.map(|again| again.fence()), Ok(receipt.fence()));
    }
}

fn request(op: Op) -> Request {
    let claim = |name: &str| Claim {
        name: Name::new("", name).expect("a good name"),
        mode: Mode::Exclusive,
    };
    Request {
        claims: Arc::from([claim("a"), claim("b")]),
        token: Token::from_entropy([1; TOKEN_ENTROPY_BYTES]),
        op,
    }
}

fn a_break(ballot: Ballot) -> Op {
    Op::Break(Break {
        ballot,
        up_to: ballot,
        foreign: true,
        only: Some(Arc::from("0123456789")),
        slot: Some(0),
        by: Arc::from("ops"),
        reason: Arc::from("dead"),
        keep_ms: 1_000,
    })
}

/// Every operation, with all its optional parts.
fn operations() -> Vec<Op> {
    let (ballot, ttl_ms, label) = (Ballot::new(7), 1_000, Arc::<str>::from("me"));
    let ticket = a_ticket();
    let tickets: Arc<[Ticket]> = Arc::from([ticket.clone(), ticket.clone()]);
    let acquire = Acquire {
        ballot,
        ttl_ms,
        label: label.clone(),
        ticket: Some(ticket.clone()),
        not_after_us: None,
    };
    let release = |kind, stays| Release {
        ballot,
        kind,
        fate_unknown: true,
        ticket: Some(ticket.clone()),
        stays,
        keep_ms: None,
        delay_ms: 0,
    };
    vec![
        Op::Acquire(acquire.clone()),
        Kind::Slot.acquire(None, acquire),
        Op::Extend(Extend {
            ballot,
            ttl_ms,
            delay_ms: 0,
        }),
        Op::Downgrade(Downgrade { ballot, ttl_ms }),
        Op::Release(release(ReleaseKind::Final, false)),
        Kind::Slot.release(Slots::All, release(ReleaseKind::Undo, true)),
        Op::Restore(Restore {
            ballot,
            ttl_ms,
            label,
        }),
        Op::Refresh(Refresh {
            tickets: tickets.clone(),
        }),
        Op::RefreshSlots(RefreshSlots {
            tickets: tickets.clone(),
        }),
        Op::Arrive(Arrive {
            parties: Arc::from([Arc::from("p")]),
            since_us: Some(1),
            count: 2,
            ttl_ms,
        }),
        Op::Attend(Attend {
            tickets,
            list: true,
            ttl_ms,
        }),
        a_break(ballot),
        Op::Inspect,
        list(false),
        list(true),
        Op::PlainAcquire(PlainAcquire { ttl_ms }),
        Op::PlainExtend(PlainExtend { ttl_ms }),
        Op::PlainRelease,
    ]
}

fn a_ticket() -> Ticket {
    Ticket {
        since_us: 1,
        id: Arc::from("c.1"),
        first: true,
        label: "waiter".into(),
    }
}

fn list(breaks: bool) -> Op {
    Op::List(List {
        cursor: Arc::from("17"),
        pages: 1,
        breaks,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that are likely to be parsed: pieces of RESP, words of our replies, and random bytes.
    fn resp() -> impl Strategy<Value = Vec<u8>> {
        let line = |kind: &'static str| any::<i64>().prop_map(move |n| format!("{kind}{n}\r\n"));
        let word = prop_oneof![
            Just("granted"),
            Just("held"),
            Just("permit"),
            Just("views"),
            Just("turns"),
            Just("behind"),
            Just("newborn"),
            Just("ringfence:wake:c"),
            Just("0 c.1"),
            Just("11"),
        ];
        let bulk = word.prop_map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let leaf = prop_oneof![
            bulk,
            line(":"),
            line("$"),
            Just("_\r\n".to_owned()),
            Just("$-1\r\n".to_owned()),
            Just("+OK\r\n".to_owned()),
            Just("-ERR x\r\n".to_owned()),
            (0u64..9).prop_map(|n| format!(":{n}\r\n")),
        ];
        let items = proptest::collection::vec(leaf, 0..10);
        let whole = (
            prop_oneof![Just('*'), Just('>'), Just('%'), Just('~')],
            items,
        )
            .prop_map(|(kind, items)| {
                format!("{kind}{}\r\n{}", items.len(), items.concat()).into_bytes()
            });
        prop_oneof![whole, any::<Vec<u8>>()]
    }

    proptest! {
        #[test]
        fn no_reply_causes_a_panic(bytes in resp()) {
            reply(&bytes);
            stream(&bytes);
            handshake(&bytes);
            push(&bytes);
            sentinel(&bytes);
            examination(&bytes);
            invalidation(&bytes);
        }

        #[test]
        fn no_answer_of_a_sentinel_causes_a_panic(
            id in "[0-9a-f]{0,40}",
            master in "((config-epoch|num-other-sentinels|down-after-milliseconds|ip)\n\\d{0,21}\n){0,4}",
            host in "[a-z0-9.:%_-]{0,9}|\\PC{0,9}",
            port in "\\d{0,6}|\\PC{0,3}",
        ) {
            sentinel([&*id, &master, &host, &port, &master, ""].join("\0").as_bytes());
        }

        #[test]
        fn no_examination_causes_a_panic(
            text in "(slave\\d|ip=|port=|lag=|role:master|run_id:|min_slaves_good_slaves:|[,:\r\n\0]|\\PC){0,60}",
        ) {
            examination(text.as_bytes());
        }

        #[test]
        fn no_report_of_changes_causes_a_panic(
            keys in "(ringfence:\\{|\\}:|record:|queue:|slot:|latch:|[a-z{}:\0]|\\PC){0,60}",
        ) {
            invalidation(keys.as_bytes());
        }

        #[test]
        fn no_handshake_causes_a_panic(
            text in "(run_id|loading|1|[0-9a-f]{1,9}|[:\r\n\0 ]|\\PC){0,60}",
        ) {
            handshake(text.as_bytes());
        }

        #[test]
        fn no_text_of_a_user_causes_a_panic(
            text in "(redis|rediss|sqlite|memory|unix|valkey)?[:/@?&=%,.a-z0-9\\[\\]{}]{0,40}|\\PC{0,40}",
        ) {
            written(&text);
        }
    }

    #[test]
    fn what_a_reply_claims_to_hold_is_not_made_room_for() {
        // Half a gigabyte, and two thousand million parts: incomplete, and no memory is allocated.
        for head in [
            "$536870912\r\nx",
            "*2000000000\r\n:1\r\n",
            "%2000000000\r\n:1\r\n",
        ] {
            reply(head.as_bytes());
            stream(head.as_bytes());
        }
        reply("*1\r\n".repeat(100_000).as_bytes());
        stream("*1\r\n".repeat(100_000).as_bytes());
    }
}
