//! Asks every Sentinel of a group: one task, with one connection per Sentinel.
//!
//! A Sentinel is asked when a confirmation is wanted, then again and again for a while, and at once
//! when a Sentinel tells of a new master.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::node::{Trouble, TroubleKind};
use crate::protocol::SentinelAnswer;
use crate::time::Timestamp;

use super::answer::{Said, questions};
use super::doubt::with_hint;
use super::{LIMIT, LastQuestion, Request, Sentinels};
use crate::node::redis::wire::Connection;
use crate::node::redis::wire::wake_listeners::WakeListeners;

/// The pause after a Sentinel that could not be asked.
const PAUSE: Duration = Duration::from_millis(50);
/// After this time a Sentinel that does not answer, or contradicts the majority, is reported.
const APART: Duration = Duration::from_secs(3);
/// Where Sentinels tell of a new master.
const SWITCH_MASTER: &str = "+switch-master";

/// Asks the Sentinels for as long as the node exists.
pub(crate) fn run(sentinels: &Arc<Sentinels>) -> impl Future<Output = ()> + Send + use<> {
    let requests = sentinels.request.subscribe();
    let clock = sentinels.clock.clone();
    let weak = Arc::downgrade(sentinels);
    let members = (0..sentinels.members.len()).map(|index| Asker {
        sentinels: Weak::clone(&weak),
        index,
        listeners: listeners(&weak, clock.clone()),
        clock: clock.clone(),
        requests: requests.clone(),
        connection: None,
        asked: None,
        rest_until: Timestamp::ZERO,
    });
    let members: Vec<_> = members.map(Asker::run).collect();
    async move {
        join_all(members).await;
    }
}

/// A listener for the news of a new master, which has all Sentinels asked at once.
fn listeners(sentinels: &Weak<Sentinels>, clock: Clock) -> Arc<WakeListeners> {
    let sentinels = Weak::clone(sentinels);
    let notice = move || {
        if let Some(sentinels) = sentinels.upgrade() {
            sentinels.want(Some(sentinels.clock.now()));
        }
    };
    Arc::new(WakeListeners::noticing(clock, SWITCH_MASTER, notice))
}

/// Asks one Sentinel.
struct Asker {
    sentinels: Weak<Sentinels>,
    index: usize,
    listeners: Arc<WakeListeners>,
    clock: Clock,
    requests: watch::Receiver<Request>,
    connection: Option<Connection>,
    /// When it was last asked.
    asked: Option<Timestamp>,
    /// The pause after a failure.
    rest_until: Timestamp,
}

impl Asker {
    async fn run(mut self) {
        while self.wait_for_a_question().await {
            let Some(sentinels) = self.sentinels.upgrade() else {
                return;
            };
            let began = self.clock.now();
            let outcome = tokio::time::timeout(LIMIT, self.ask(&sentinels)).await;
            let mut outcome = outcome.unwrap_or_else(|_| {
                let reporter = &sentinels.members[self.index].reporter;
                let what = format!("has not answered within {LIMIT:?}");
                Err(reporter.trouble(TroubleKind::Timeout, what))
            });
            outcome = outcome.map_err(with_hint);
            self.asked = Some(began);
            if outcome.is_err() {
                self.connection = None;
                self.rest_until = self.clock.now() + PAUSE;
            }
            sentinels.take(self.index, outcome, began);
        }
    }

    /// Waits until the Sentinel is to be asked. Returns false if the node was dropped. Reads the
    /// connection meanwhile, for the news of a new master.
    async fn wait_for_a_question(&mut self) -> bool {
        loop {
            let now = self.clock.now();
            let request = *self.requests.borrow_and_update();
            let Some(sentinels) = self.sentinels.upgrade() else {
                return false;
            };
            let due = self.due(request, sentinels.interval(), now);
            drop(sentinels);
            let due = due.map(|due| due.max(self.rest_until));
            if due.is_some_and(|due| due <= now) {
                return true;
            }
            let clock = self.clock.clone();
            tokio::select! {
                changed = self.requests.changed() => if changed.is_err() {
                    return false;
                },
                () = clock.sleep_until(due.unwrap_or(now)), if due.is_some() => {}
                () = listen(&mut self.connection), if self.connection.is_some() => {
                    self.connection = None;
                }
            }
        }
    }

    /// When the Sentinel is to be asked next.
    fn due(&self, request: Request, interval: Duration, now: Timestamp) -> Option<Timestamp> {
        if request.since > self.asked {
            return Some(now);
        }
        let next = self.asked.map_or(now, |asked| asked + interval);
        (request.wanted_until > Some(now)).then_some(next)
    }

    async fn ask(&mut self, sentinels: &Sentinels) -> Result<Answered, Trouble> {
        let member = &sentinels.members[self.index];
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connected = member.dial.connect(None, &self.listeners).await;
                let mut connection =
                    connected.map_err(|error| member.reporter.connection(&error))?;
                if connection.has_pushes() {
                    let mut pipe = redis::pipe();
                    pipe.cmd("SUBSCRIBE").arg(SWITCH_MASTER);
                    // A Sentinel that forbids it is asked by the clock.
                    connection.send(pipe);
                }
                connection
            }
        };
        let asked_at = self.clock.now();
        let answers = connection.ask(questions(&sentinels.name)).await;
        let answers = answers.map_err(|error| member.reporter.lost(&error))?;
        let said =
            Said::read(answers).map_err(|unusable| sentinels.unusable(self.index, &unusable))?;
        self.connection = Some(connection);
        let down_after = said.down_after;
        let answer = said.resolve(asked_at).await;
        Ok(Answered { answer, down_after })
    }
}

/// What a Sentinel answered.
struct Answered {
    answer: SentinelAnswer,
    /// After which silence it holds the master for dead.
    down_after: Option<Duration>,
}

/// Reads pushes until the connection ends.
async fn listen(connection: &mut Option<Connection>) {
    if let Some(connection) = connection {
        // Without a question in flight, only the end of the connection is an answer.
        let _ = connection.answers().await;
    }
}

impl Sentinels {
    /// How often the Sentinels are asked while that is wanted.
    fn interval(&self) -> Duration {
        self.state().stale_after / 3
    }

    /// Takes the outcome of questions to the Sentinel at `index` that began at `began`.
    fn take(&self, index: usize, outcome: Result<Answered, Trouble>, began: Timestamp) {
        let now = self.clock.now();
        let mut state = self.state();
        state.outcomes[index].asked_at = Some(began);
        match outcome {
            Ok(Answered { answer, down_after }) => {
                state.outcomes[index].trouble = None;
                state.outcomes[index].down_after = down_after;
                state.view.handle_answer(index, answer, now);
            }
            Err(trouble) => state.outcomes[index].trouble = Some(trouble),
        }
        drop(state);
        self.note_confirmation();
        self.report(index, now);
        self.news.send_modify(|count| *count += 1);
    }

    /// Warns of a Sentinel that has not agreed with the others for a while: it does not answer, it
    /// names another master, or it has forgotten the others. Nothing else happens.
    fn report(&self, index: usize, now: Timestamp) {
        let mut state = self.state();
        let apart = self.contradiction(&state, index, now);
        let outcome: &mut LastQuestion = &mut state.outcomes[index];
        let Some(apart) = apart else {
            (outcome.apart_since, outcome.warned) = (None, false);
            return;
        };
        let since = *outcome.apart_since.get_or_insert(now);
        if outcome.warned || now.since(since) < APART {
            return;
        }
        outcome.warned = true;
        drop(state);
        let service = &self.service;
        tracing::warn!(target: "ringfence", %service, "{apart}; a majority of the Sentinels still decides");
    }
}
