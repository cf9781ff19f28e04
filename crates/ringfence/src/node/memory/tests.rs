//! The faults of the in-memory node. The contract suite tests a node without faults.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, SteppedClock};
use crate::message::{
    Acquire, Answer, Ballot, Claim, Mode, Op, PlainAcquire, Refresh, Release, ReleaseKind, Reply,
    Request, Ticket, Wake,
};
use crate::node::{CallError, Deliver, Trouble, TroubleKind};
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

const START_US: u64 = 1_000_000_000_000;

struct Inbox<T>(Sender<(u64, Result<T, CallError>)>);

impl<T: Send> Deliver<T> for Inbox<T> {
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>) {
        // A test that has dropped its receiver does not need the answer.
        let _ = self.0.send((tag, outcome));
    }
}

struct Bench {
    node: MemoryNode,
    time: SteppedClock,
    replies: Receiver<(u64, Result<Reply, CallError>)>,
    to: Arc<Inbox<Reply>>,
}

impl Bench {
    fn new() -> Self {
        let time = SteppedClock::starting_at(Duration::from_secs(100));
        let clock = NodeClock::following(Clock::Stepped(time.clone()), START_US);
        let node = MemoryNode::with_clock("m", clock);
        let (to, replies) = channel();
        let bench = Self {
            node,
            time,
            replies,
            to: Arc::new(Inbox(to)),
        };
        facts(|done| bench.node.join(Group::new(3), done)).unwrap();
        bench
    }

    fn acquire(&self, tag: u64, client: u8) {
        self.acquire_name(tag, client, name(), 10_000);
    }

    fn acquire_name(&self, tag: u64, client: u8, name: Name, ttl_ms: u64) {
        let request = Request {
            claims: Arc::from([Claim {
                name,
                mode: Mode::Exclusive,
            }]),
            token: Token::from_entropy([client; TOKEN_ENTROPY_BYTES]),
            op: Op::Acquire(Acquire {
                ballot: Ballot::new(self.node.clock().now_us() + tag),
                ttl_ms,
                label: Arc::from("job"),
                ticket: None,
                not_after_us: None,
            }),
        };
        self.send(tag, request, self.time.now() + Duration::from_secs(1));
    }

    /// Sends `op` on the name `x`.
    fn ask(&self, tag: u64, client: u8, op: Op) {
        let request = Request {
            claims: Arc::from([Claim {
                name: name(),
                mode: Mode::Exclusive,
            }]),
            token: Token::from_entropy([client; TOKEN_ENTROPY_BYTES]),
            op,
        };
        self.send(tag, request, self.time.now() + Duration::from_secs(1));
    }

    fn send(&self, tag: u64, request: Request, expires: Timestamp) {
        self.node.send(Call {
            request: Arc::new(request),
            expires,
            done: Completion::new(self.to.clone(), tag),
        });
    }

    fn answers(&self) -> Vec<(u64, Result<Answer, CallError>)> {
        let replies = self.replies.try_iter();
        let answers = replies.map(|(tag, outcome)| (tag, outcome.map(|reply| reply.answer)));
        answers.collect()
    }
}

fn name() -> Name {
    Name::new("", "x").unwrap()
}

fn facts(ask: impl FnOnce(Completion<Facts>)) -> Result<Facts, CallError> {
    let (to, facts) = channel();
    ask(Completion::new(Arc::new(Inbox(to)), 0));
    facts.try_recv().expect("answered inline").1
}

#[test]
fn a_failing_node_does_nothing_and_reports_the_error() {
    let bench = Bench::new();
    let down = CallError::NotSent(Trouble::new(TroubleKind::Unreachable, "down"));
    bench.node.fail_with(Some(down.clone()));
    bench.acquire(1, 1);
    assert_eq!(bench.answers(), [(1, Err(down.clone()))]);
    assert_eq!(facts(|done| bench.node.probe(done)), Err(down));
    assert_eq!(bench.node.entries(), []);
    bench.node.fail_with(None);
    bench.acquire(2, 1);
    assert_eq!(bench.answers(), [(2, Ok(Answer::Granted))]);
}

#[test]
fn a_hung_node_carries_out_late_and_in_order() {
    let bench = Bench::new();
    bench.node.hang(true);
    bench.acquire(1, 1);
    bench.acquire(2, 2);
    bench.time.step(Duration::from_secs(2));
    assert_eq!(bench.answers(), []);
    assert_eq!(bench.node.entries(), []);
    bench.node.hang(false);
    let answers = bench.answers();
    assert_eq!(answers[0], (1, Ok(Answer::Granted)));
    assert!(
        matches!(answers[1], (2, Ok(Answer::Held(_)))),
        "{answers:?}"
    );
}

#[test]
fn held_replies_are_delivered_late_though_the_work_is_done() {
    let bench = Bench::new();
    bench.node.hold_replies(true);
    bench.acquire(1, 1);
    assert_eq!(bench.answers(), []);
    assert!(bench.node.entry(&name()).key.is_some());
    bench.node.hold_replies(false);
    assert_eq!(bench.answers(), [(1, Ok(Answer::Granted))]);
}

#[test]
fn an_operation_whose_reply_is_lost_is_carried_out() {
    let bench = Bench::new();
    bench.node.log_operations(true);
    bench.node.lose_replies(true);
    bench.acquire(1, 1);
    assert!(matches!(
        bench.answers()[..],
        [(1, Err(CallError::Unknown(_)))]
    ));
    assert!(bench.node.entry(&name()).key.is_some());
    let operations = bench.node.take_operations();
    assert_eq!(operations.len(), 1);
    assert_eq!(operations[0].answer, Answer::Granted);
}

struct WakeInbox(Sender<Wake>);

impl Hear for WakeInbox {
    fn hear(&self, wake: Wake) {
        let _ = self.0.send(wake);
    }
}

#[test]
fn lost_wakes_are_not_delivered() {
    let bench = Bench::new();
    let (to, wakes) = channel();
    bench.node.listen("b", Arc::new(WakeInbox(to)));
    let tickets = Arc::from([Ticket {
        since_us: START_US,
        id: Arc::from("b.1"),
        first: true,
        label: "waiter".into(),
    }]);
    bench.ask(0, 2, Op::Refresh(Refresh { tickets }));
    for (lose, delivered) in [(true, 0), (false, 1)] {
        bench.node.lose_wakes(lose);
        // A plain lock is the only one that the queue does not stop.
        bench.ask(1, 1, Op::PlainAcquire(PlainAcquire { ttl_ms: 1_000 }));
        let release = Op::Release(Release {
            ballot: Ballot::new(START_US),
            kind: ReleaseKind::Final,
            fate_unknown: false,
            ticket: None,
            stays: false,
            keep_ms: None,
            delay_ms: 0,
        });
        bench.ask(2, 1, release);
        assert!(bench.answers().contains(&(2, Ok(Answer::Released))));
        assert_eq!(wakes.try_iter().count(), delivered);
    }
}

#[test]
fn a_node_that_forgot_is_a_new_incarnation_with_a_birth_now() {
    let bench = Bench::new();
    bench.acquire(1, 1);
    let before = facts(|done| bench.node.probe(done)).unwrap();
    bench.time.step(Duration::from_secs(7));
    bench.node.forget();
    let after = facts(|done| bench.node.probe(done)).unwrap();
    assert_eq!(bench.node.entries(), []);
    assert_ne!(before.run_id, after.run_id);
    let (before, after) = (before.standing.unwrap(), after.standing.unwrap());
    assert_ne!(before.incarnation, after.incarnation);
    assert_eq!(after.born_us, before.born_us + 7_000_000);
}

#[test]
fn a_call_that_expired_before_it_was_sent_is_not_carried_out() {
    let bench = Bench::new();
    let expires = bench.time.now();
    bench.time.step(Duration::from_millis(1));
    let request = Request {
        claims: Arc::from([]),
        token: Token::from_entropy([1; TOKEN_ENTROPY_BYTES]),
        op: Op::Inspect,
    };
    bench.send(1, request, expires);
    assert!(matches!(
        bench.answers()[..],
        [(1, Err(CallError::NotSent(_)))]
    ));
}

#[test]
fn init_refuses_nodes_that_are_not_new() {
    let bench = Bench::new();
    let group = Group::new(3);
    let init = |mode| facts(|done| bench.node.init(group, mode, done));
    assert_eq!(init(InitMode::Write).unwrap().standing.unwrap().born_us, 0);
    assert!(
        matches!(init(InitMode::Check), Err(CallError::Refused(_))),
        "it votes now"
    );
    assert!(init(InitMode::Force).is_ok());
}

#[test]
fn a_group_with_other_values_is_refused_and_both_are_named() {
    let bench = Bench::new();
    let error = facts(|done| bench.node.join(Group::new(5), done)).unwrap_err();
    assert_eq!(error.trouble().kind, TroubleKind::Group);
    let text = error.to_string();
    assert!(
        text.contains("3 nodes") && text.contains("5 nodes"),
        "{text}"
    );
}

#[test]
fn all_clients_of_a_process_share_the_node_of_a_label() {
    let (a, b) = (MemoryNode::shared("t"), MemoryNode::shared("t"));
    facts(|done| a.join(Group::new(1), done)).unwrap();
    assert!(facts(|done| b.probe(done)).unwrap().standing.is_some());
    let other = facts(|done| MemoryNode::shared("u").probe(done)).unwrap();
    assert!(other.standing.is_none());
}

#[test]
fn the_map_does_not_grow_with_lapsed_names() {
    let bench = Bench::new();
    for i in 0..10_000 {
        bench.time.step(Duration::from_millis(200));
        bench.acquire_name(0, 1, Name::new("", &format!("n{i}")).unwrap(), 1);
    }
    assert!(bench.node.entries().len() < 1_500);
}
