//! Which thread carries out a call: the caller's own, or the node's if the call may have to wait.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use ringfence::node::{Call, Completion, Deliver};
use ringfence_core::message::{Arrive, List, Reply};

use super::*;

/// Notes the thread on which the answer arrives.
struct Answers(Mutex<Sender<Answered>>);

type Answered = (Option<String>, Result<Reply, CallError>);

impl Deliver<Reply> for Answers {
    fn deliver(&self, _tag: u64, outcome: Result<Reply, CallError>) {
        let thread = thread::current().name().map(str::to_owned);
        let to = self.0.lock().unwrap();
        to.send((thread, outcome)).expect("the test waits");
    }
}

/// A machine, a node on it, and the name of the test's thread.
struct Scene {
    machine: Machine,
    node: SqliteNode,
}

impl Scene {
    /// The node has joined its group, and has promised ballots.
    fn new() -> Self {
        let machine = Machine::new();
        let node = machine.open(machine.clock());
        take(&node, "first", ALICE);
        Self { machine, node }
    }

    fn send(&self, name: &str, client: u8, op: Op) -> Receiver<Answered> {
        let (to, answers) = channel();
        self.node.send(Call {
            request: Arc::new(request(&[name], client, op)),
            expires: NEVER,
            done: Completion::new(Arc::new(Answers(Mutex::new(to))), 0),
        });
        answers
    }

    /// Asserts that the call is answered inside `send`.
    fn is_answered_at_once(&self, op: Op) -> Answer {
        let (thread, outcome) = self.send("x", ALICE, op).try_recv().expect("answered");
        assert_eq!(thread.as_deref(), thread::current().name());
        outcome.unwrap().answer
    }

    /// Asserts that the node's thread answers the call.
    fn is_handed_over(&self, op: Op) {
        let answered = self.send("x", ALICE, op).recv_timeout(PATIENCE);
        assert_eq!(answered.unwrap().0.as_deref(), Some("ringfence-sqlite"));
    }

    /// Locks the file, as another process does.
    fn lock_file(&self) -> Connection {
        let blocker = Connection::open(self.machine.file()).unwrap();
        blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
        blocker
    }
}

#[test]
fn the_usual_calls_are_answered_on_the_thread_of_their_caller() {
    let scene = Scene::new();
    let ballot = next_ballot(&scene.node, "x");
    let acquired = scene.is_answered_at_once(acquire(ballot, TTL_MS));
    assert_eq!(acquired, Answer::Granted);
    let extended = scene.is_answered_at_once(extend(ballot, TTL_MS));
    assert_eq!(extended, Answer::Extended);
    let released = scene.is_answered_at_once(release(ballot));
    assert_eq!(released, Answer::Released);
}

#[test]
fn a_call_that_needs_a_sync_is_handed_over() {
    let scene = Scene::new();
    let arrive = Op::Arrive(Arrive {
        parties: [Arc::from("a")].into(),
        since_us: Some(1),
        count: 2,
        ttl_ms: TTL_MS,
    });
    scene.is_handed_over(arrive);
    // Above the promise: it is raised, and synced.
    scene.machine.time.step(Duration::from_secs(60));
    let now = Ballot::new(WALL_US + 60_000_000);
    scene.is_handed_over(acquire(now, TTL_MS));
    // The next one needs no sync.
    assert_eq!(
        scene.is_answered_at_once(extend(now, TTL_MS)),
        Answer::Extended
    );
}

#[test]
fn nothing_is_committed_on_the_callers_thread_while_another_process_syncs() {
    let scene = Scene::new();
    let ballot = take(&scene.node, "x", ALICE);
    let file = Connection::open(scene.machine.file()).unwrap();
    // The log may be about to begin anew, which SQLite syncs.
    let begin = "UPDATE node SET syncs_begun = syncs_begun + 1";
    file.execute(begin, []).unwrap();
    scene.is_handed_over(extend(ballot, TTL_MS));
    file.execute("UPDATE node SET syncs_done = syncs_begun", [])
        .unwrap();
    let extended = scene.is_answered_at_once(extend(ballot, TTL_MS));
    assert_eq!(extended, Answer::Extended);
}

#[test]
fn a_call_that_reads_many_rows_is_handed_over() {
    let scene = Scene::new();
    scene.is_handed_over(Op::List(List {
        cursor: Arc::from(""),
        pages: 1,
        breaks: false,
    }));
    let tickets: Vec<_> = (0..100)
        .map(|i| ticket(WALL_US, &format!("client.{i}")))
        .collect();
    let tickets: Vec<_> = tickets.iter().collect();
    scene.is_handed_over(refresh(&tickets));
    // The wait queue is long.
    scene.is_handed_over(Op::Inspect);
}

#[test]
fn a_call_is_handed_over_while_another_process_has_locked_the_file_and_the_order_is_kept() {
    let scene = Scene::new();
    let ballot = next_ballot(&scene.node, "x");
    let blocker = scene.lock_file();
    let acquired = scene.send("x", ALICE, acquire(ballot, TTL_MS));
    let released = scene.send("x", ALICE, release(ballot));
    let again = scene.send("x", BOB, acquire(plus(ballot, 1), TTL_MS));
    assert_eq!(acquired.try_recv().unwrap_err(), TryRecvError::Empty);
    blocker.execute_batch("COMMIT").unwrap();
    for (answers, expected) in [
        (acquired, Answer::Granted),
        (released, Answer::Released),
        (again, Answer::Granted),
    ] {
        let (thread, outcome) = answers.recv_timeout(PATIENCE).unwrap();
        assert_eq!(thread.as_deref(), Some("ringfence-sqlite"));
        assert_eq!(outcome.unwrap().answer, expected);
    }
}

#[test]
fn calls_of_many_threads_are_all_answered_once() {
    const THREADS: u8 = 8;
    let scene = Scene::new();
    let ballot = next_ballot(&scene.node, "x");
    thread::scope(|scope| {
        for client in 0..THREADS {
            let node = &scene.node;
            scope.spawn(move || {
                let name = format!("of {client}");
                for round in 0..200 {
                    let ballot = plus(ballot, round);
                    let acquired = ask(node, &name, client, acquire(ballot, TTL_MS));
                    assert_eq!(acquired, Answer::Granted);
                    let released = ask(node, &name, client, release(ballot));
                    assert_eq!(released, Answer::Released);
                }
            });
        }
    });
    // And the node is idle again: a thread finds no call that it would have to wait for.
    let mut waits = 0;
    while scene.send("x", ALICE, Op::Inspect).try_recv().is_err() {
        waits += 1;
        assert!(waits < 10, "every call is handed over");
    }
}
