//! Every cell of: a lock that is free, held, or on a minority only; all nodes, a majority, exactly
//! half, a minority or none of them voting; the others down, hung, in quarantine or misconfigured.
//! In each, `status`, `ls`, `watch` and the dashboard claim nothing that the nodes have not said.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::admin::{ListError, LockState, NameInspection};
use ringfence::node::memory::MemoryNode;
use ringfence::node::{
    Answer, Call, CallError, Completion, Deliver, Facts, Group, Hear, InitMode, Node, Reply,
    Standing, Trouble, TroubleKind, View,
};
use ringfence::{Builder, Locks};
use ringfence_core::message::{Ballot, Holder, Op, Portion};
use ringfence_core::name::Name;
use serde_json::{Value, json};

use crate::command::ls::RoundList;
use crate::command::watch::{Changes, Look};
use crate::command::{json, status};
use crate::dashboard;
use crate::exit::Exit;

/// What `status NAME` shows.
struct ShownStatus {
    text: String,
    json: Value,
    /// The exit code without and with `--exit-code`.
    exits: [Exit; 2],
}

fn shown_status(seen: &NameInspection) -> ShownStatus {
    ShownStatus {
        text: status::name_text(seen),
        json: json::name(seen),
        exits: [false, true].map(|flag| status::exit_of(seen.state(), flag)),
    }
}

/// The first line of `watch NAME --json`.
fn shown_watch(seen: &NameInspection) -> Value {
    let changes = Changes::default().handle_look(Duration::ZERO, Look::of(seen));
    changes.first().expect("a line").json(Duration::ZERO)
}

/// What `ls` shows.
struct ShownList {
    text: String,
    json: Vec<Value>,
    exit: Exit,
}

async fn shown_list(locks: &Locks) -> Result<ShownList, ListError> {
    let (list, json) = RoundList::collect(locks).await?;
    Ok(ShownList {
        text: list.text(80),
        json,
        exit: list.exit(),
    })
}

/// Why a node does not vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    Down,
    Hung,
    Quarantined,
    Misconfigured,
}

impl Silence {
    const ALL: [Self; 4] = [
        Self::Down,
        Self::Hung,
        Self::Quarantined,
        Self::Misconfigured,
    ];

    /// What a caller gets instead of an answer.
    fn error(self) -> Option<CallError> {
        let trouble = |kind| Trouble::new(kind, "made up");
        match self {
            Self::Down => Some(CallError::NotSent(trouble(TroubleKind::Unreachable))),
            Self::Hung => Some(CallError::Unknown(trouble(TroubleKind::Timeout))),
            Self::Misconfigured => Some(CallError::Refused(trouble(TroubleKind::Evicts))),
            Self::Quarantined => None,
        }
    }
}

/// What a scripted node says.
#[derive(Debug, Clone, Copy, Default)]
struct Script {
    has_holder: bool,
    silence: Option<Silence>,
}

/// A node that says what its script says. Only handshakes are real.
#[derive(Debug, Clone)]
struct ScriptedNode {
    real: MemoryNode,
    script: Arc<Mutex<Script>>,
}

impl ScriptedNode {
    fn script(&self) -> Script {
        *self.script.lock().expect("no panic")
    }
}

/// Changes an answer on its way to the caller.
struct Rewriter<T> {
    done: Mutex<Option<Completion<T>>>,
    change: Box<dyn Fn(&mut T) + Send + Sync>,
}

impl<T: Send> Deliver<T> for Rewriter<T> {
    fn deliver(&self, _: u64, mut outcome: Result<T, CallError>) {
        if let Ok(answer) = &mut outcome {
            (self.change)(answer);
        }
        let done = self.done.lock().expect("no panic").take();
        done.expect("one answer").complete(outcome);
    }
}

fn rewritten<T: Send + 'static>(
    done: Completion<T>,
    change: impl Fn(&mut T) + Send + Sync + 'static,
) -> Completion<T> {
    let rewriter = Rewriter {
        done: Mutex::new(Some(done)),
        change: Box::new(change),
    };
    Completion::new(Arc::new(rewriter), 0)
}

impl Script {
    fn stand(self, standing: &mut Standing) {
        if self.silence == Some(Silence::Quarantined) {
            standing.born_us = standing.clock_us;
        }
    }

    fn answer(self, op: &Op, reply: &mut Reply) {
        self.stand(&mut reply.standing);
        let has = self.has_holder;
        match (op, &mut reply.answer) {
            (_, Answer::Views(views)) => {
                // The lock itself comes first.
                if let Some(first) = views.first_mut().filter(|_| has) {
                    *first = held();
                }
            }
            (_, Answer::Listed(portion)) => {
                let names = has.then(|| Name::new("", "x").expect("a name"));
                *portion = Portion {
                    names: names.into_iter().collect(),
                    took_us: Some(0),
                    ..Portion::default()
                };
            }
            _ => {}
        }
    }
}

fn held() -> View {
    View {
        holder: Some(Holder {
            id: Some("0123456789".into()),
            label: Some("vm:7899".into()),
            for_ms: Some(9_000),
            ..Holder::default()
        }),
        ballot: Some(Ballot::new(7)),
        ..View::default()
    }
}

impl Node for ScriptedNode {
    fn name(&self) -> &str {
        self.real.name()
    }

    fn send(&self, call: Call) {
        let script = self.script();
        if let Some(error) = script.silence.and_then(Silence::error) {
            return call.done.complete(Err(error));
        }
        let request = Arc::clone(&call.request);
        let is_slots = request
            .claims
            .first()
            .is_some_and(|claim| claim.name.slot_number().is_some());
        let script = Script {
            has_holder: script.has_holder && !is_slots,
            ..script
        };
        let done = rewritten(call.done, move |reply| script.answer(&request.op, reply));
        self.real.send(Call { done, ..call });
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.real.listen(client, to);
    }

    fn probe(&self, done: Completion<Facts>) {
        let script = self.script();
        if let Some(error) = script.silence.and_then(Silence::error) {
            return done.complete(Err(error));
        }
        let change = move |facts: &mut Facts| {
            if let Some(standing) = &mut facts.standing {
                script.stand(standing);
            }
        };
        self.real.probe(rewritten(done, change));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.real.join(group, done);
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.real.init(group, mode, done);
    }
}

/// One cell: what each node has, and which do not vote.
#[derive(Debug)]
struct Cell {
    scripts: Vec<Script>,
}

impl Cell {
    /// What is known, counted by hand: a node that does not vote may have the holder or not.
    fn expected(&self) -> LockState {
        let voting = self.scripts.iter().filter(|node| node.silence.is_none());
        let having = voting.clone().filter(|node| node.has_holder).count();
        let silent = self.scripts.len() - voting.count();
        let majority = self.scripts.len() / 2 + 1;
        match (having >= majority, having + silent >= majority) {
            (true, _) => LockState::Held,
            (false, false) => LockState::Free,
            (false, true) => LockState::Unknown,
        }
    }

    fn voting(&self) -> usize {
        let voting = self.scripts.iter().filter(|node| node.silence.is_none());
        voting.count()
    }

    fn has_quorum(&self) -> bool {
        self.voting() > self.scripts.len() / 2
    }

    /// How many nodes that answer have the holder.
    fn answering_with_holder(&self) -> usize {
        let answering = self
            .scripts
            .iter()
            .filter(|node| node.silence.is_none() || node.silence == Some(Silence::Quarantined));
        answering.filter(|node| node.has_holder).count()
    }

    async fn client(&self) -> Locks {
        let nodes = (0..self.scripts.len()).map(|number| ScriptedNode {
            real: MemoryNode::new(format!("n{number}")),
            script: Arc::default(),
        });
        let nodes: Vec<_> = nodes.collect();
        let builder = || nodes.iter().cloned().fold(Locks::builder(), Builder::node);
        builder().init().await.expect("a new cluster");
        let locks = builder().connect().await.expect("a client");
        for (node, script) in nodes.iter().zip(&self.scripts) {
            *node.script.lock().expect("no panic") = *script;
        }
        locks
    }

    async fn check(&self) {
        let locks = self.client().await;
        let expected = self.expected();
        let word = expected.to_string();
        let seen = locks.inspect_all("x").await.expect("an inspection");
        assert_eq!(seen.lock.state, expected, "{self:?}");

        let begin = match expected {
            LockState::Held => "held by vm:7899",
            LockState::Free => "free",
            LockState::Unknown => "unknown, no majority: ",
        };
        let status = shown_status(&seen);
        assert!(status.text.starts_with(begin), "{self:?}: {}", status.text);
        assert_eq!(status.json["state"], word, "{self:?}");
        let who = status.json["label"].as_str();
        assert_eq!(who.is_some(), expected == LockState::Held, "{self:?}");
        let (plain, exit_code) = match expected {
            LockState::Held => (0, 75),
            LockState::Free => (0, 0),
            LockState::Unknown => (69, 69),
        };
        assert_eq!(status.exits.map(Exit::code), [plain, exit_code], "{self:?}");

        let first = shown_watch(&seen);
        assert_eq!(first["change"], word, "{self:?}: {first}");

        self.check_list(&locks, expected).await;
        self.check_dashboard(&locks, expected).await;
    }

    async fn check_list(&self, locks: &Locks, expected: LockState) {
        let Ok(list) = shown_list(locks).await else {
            let answers = |node: &Script| node.silence.and_then(Silence::error).is_none();
            assert!(!self.scripts.iter().any(answers), "{self:?}");
            return;
        };
        let says_so = list.text.starts_with("no majority: ");
        assert_eq!(says_so, !self.has_quorum(), "{self:?}: {}", list.text);
        let is_listed = match expected {
            LockState::Held => true,
            LockState::Free => false,
            LockState::Unknown => self.answering_with_holder() > 0,
        };
        let is_known = self.has_quorum() && !(is_listed && expected == LockState::Unknown);
        let code = if is_known { 0 } else { 69 };
        assert_eq!(list.exit.code(), code, "{self:?}: {}", list.text);
        let row = list.text.lines().find(|line| line.starts_with("x "));
        assert_eq!(row.is_some(), is_listed, "{self:?}: {}", list.text);
        if let Some(row) = row {
            let kind = match expected {
                LockState::Held => "exclusive",
                _ => "unknown",
            };
            assert!(row.contains(kind), "{self:?}: {row}");
            assert_eq!(list.json[0]["state"], expected.to_string(), "{self:?}");
        }
        let nothing = list.text.contains("nothing is held");
        assert_eq!(
            nothing,
            !is_listed && self.has_quorum(),
            "{self:?}: {}",
            list.text
        );
        assert_eq!(
            list.json.last().expect("an end")["quorum"],
            self.has_quorum()
        );
    }

    async fn check_dashboard(&self, locks: &Locks, expected: LockState) {
        let page = dashboard::shown(locks).await;
        let marks = |row: &Value| -> Vec<String> {
            let marks = row["votes"].as_array().expect("marks").iter();
            marks
                .map(|mark| mark.as_str().expect("a word").to_owned())
                .collect()
        };
        let is_split = |row: &Value| row["split"] == true;
        let known = expected != LockState::Unknown;
        for row in &page.rows {
            assert_eq!(row["state"], expected.to_string(), "{self:?}: {row}");
            // Another holder's mark, and a disagreement, are claims about what is known.
            let has_other = marks(row).contains(&"other".to_owned());
            assert!(known || (!has_other && !is_split(row)), "{self:?}: {row}");
            assert_eq!(
                marks(row).contains(&"held".to_owned()),
                expected == LockState::Held
            );
        }
        let count = |what: bool| usize::from(what && !page.rows.is_empty());
        for (metric, value) in [
            ("holds", count(expected == LockState::Held)),
            ("unknown", count(!known)),
            (
                "split",
                page.rows.iter().filter(|row| is_split(row)).count(),
            ),
            ("quorum", usize::from(self.has_quorum())),
        ] {
            let line = format!("ringfence_cluster_{metric} {value}");
            let has = page.metrics.lines().any(|found| found == line);
            assert!(has, "{self:?}: {line}\n{}", page.metrics);
        }
        let headline = page.cluster["headline"].as_str().expect("text");
        let denies = headline.contains(" 0 locks held");
        assert!(!denies || self.has_quorum(), "{self:?}: {headline}");
        assert!(
            known || !headline.contains("disagree"),
            "{self:?}: {headline}"
        );
        assert_eq!(page.cluster["quorum"], json!(self.has_quorum()), "{self:?}");
    }
}

#[tokio::test]
async fn nothing_is_claimed_that_the_nodes_have_not_said() {
    let mut unknown = 0;
    // All nodes, a majority, exactly half, a minority, and none of them vote.
    for (nodes, voting) in [(5, 5), (5, 3), (4, 2), (5, 2), (5, 0)] {
        // Free, held, and held by a minority only: the first node, or two.
        for having in [0, nodes, 1, 2] {
            if having == 2 && nodes == 4 {
                continue;
            }
            for silence in Silence::ALL {
                // The nodes with the holder are among those that do not vote, or among the others.
                for silent_first in [true, false] {
                    let scripts = (0..nodes).map(|node| {
                        let is_silent = match silent_first {
                            true => node < nodes - voting,
                            false => node >= voting,
                        };
                        Script {
                            has_holder: node < having,
                            silence: is_silent.then_some(silence),
                        }
                    });
                    let cell = Cell {
                        scripts: scripts.collect(),
                    };
                    unknown += usize::from(cell.expected() == LockState::Unknown);
                    cell.check().await;
                }
            }
        }
    }
    assert!(unknown > 60, "{unknown}");
}
