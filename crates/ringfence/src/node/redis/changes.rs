//! Watches which names any client writes on a server, so that a list shows new locks at once.
//!
//! The server reports every write of a key that begins as ours do (`CLIENT TRACKING`, broadcast).
//! Each report costs it a few microseconds. So it is asked only while someone listens, over a
//! connection that is used for nothing else, and the connection is closed if there is much to
//! report: then locks are found by searching the server.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, Value};
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::environment::own_task;
use crate::name::Name;
use crate::node::HearChange;

use super::RedisNode;
use super::access::rights;
use super::codec::{SIDE_KEYS, changed_name};
use super::sentinel::Sentinels;
use super::wire::Connection;
use super::wire::dial::Dial;
use super::wire::resp::Excess;
use super::wire::wake_listeners::Allowance;
use super::wire::wake_listeners::WakeListeners;

/// How long connecting may take, and how long an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the connection is checked, and whether someone still listens.
const CHECK: Duration = Duration::from_secs(2);
/// The pause after a connection that was lost, or could not be made.
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a server has denied our user the right, or has not answered the command.
const DENIED_PAUSE: Duration = Duration::from_secs(30);
/// The pause after a server has refused the command, which may be an entry in its ACL LOG.
const REFUSED_PAUSE: Duration = Duration::from_secs(600);

/// See the module.
pub(super) struct ChangeWatch {
    node: Arc<str>,
    dial: Arc<Dial>,
    sentinels: Option<Arc<Sentinels>>,
    clock: Clock,
    reports: Arc<Reports>,
    listeners: Arc<WakeListeners>,
}

/// Receives what the server reports. One for all connections: a server must not get a new allowance
/// by making us connect again.
struct Reports {
    allowance: Mutex<Allowance>,
    clock: Clock,
    to: Weak<dyn HearChange>,
}

impl ChangeWatch {
    /// Watches the server of `node` in the background, for as long as `to` exists.
    pub(super) fn start(node: &RedisNode, to: Weak<dyn HearChange>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let reports = Arc::new(Reports {
            allowance: Mutex::new(Allowance::of_changes()),
            clock: node.clock.clone(),
            to,
        });
        let receiving = Arc::clone(&reports);
        let receive = move |push: &PushInfo| receiving.receive(push);
        let watch = Self {
            node: Arc::clone(&node.name),
            dial: Arc::clone(&node.dial),
            sentinels: node.sentinels.clone(),
            clock: node.clock.clone(),
            reports,
            listeners: Arc::new(WakeListeners::receiving(node.clock.clone(), receive)),
        };
        runtime.spawn(own_task(watch.run()));
    }

    async fn run(self) {
        while self.is_heard() {
            let pause = self.watch().await;
            self.tell(false);
            self.rest(pause).await;
        }
    }

    /// Waits for `pause`, and for as long as the server has reported too much lately.
    async fn rest(&self, pause: Duration) {
        let until = self.clock.now() + pause;
        loop {
            let now = self.clock.now();
            let is_over = now >= until && !self.reports.allowance().is_blocked(now);
            if is_over || !self.is_heard() {
                return;
            }
            self.clock.sleep_until(now + LOST_PAUSE).await;
        }
    }

    /// Watches over one connection until it ends. Returns the pause before the next one.
    async fn watch(&self) -> Duration {
        let connected = self.in_time(self.connect()).await;
        let Some(mut connection) = connected.flatten() else {
            return LOST_PAUSE;
        };
        if !connection.has_pushes() {
            return REFUSED_PAUSE;
        }
        match self.ask(&mut connection, rights::tracking_question()).await {
            Some(answer) if rights::is_tracking_denied(&answer) => return self.denied(),
            Some(_) => {}
            None => return LOST_PAUSE,
        }
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON").arg("BCAST");
        tracking.arg("PREFIX").arg(SIDE_KEYS);
        match self.ask(&mut connection, tracking).await {
            Some(Value::Okay) => self.tell(true),
            Some(_) => return REFUSED_PAUSE,
            None => return DENIED_PAUSE,
        }
        while self.is_heard() && self.leads_to_the_master(&connection) {
            let check = self.clock.now() + CHECK;
            tokio::select! {
                // Without a question in flight, only the end of the connection is an answer.
                _ = connection.answers() => return LOST_PAUSE,
                () = self.clock.sleep_until(check) => {}
            }
            // A connection may be dead without having ended.
            let answer = self.ask(&mut connection, redis::cmd("TIME")).await;
            if answer.is_none() {
                break;
            }
        }
        LOST_PAUSE
    }

    async fn connect(&self) -> Option<Connection> {
        let master = match &self.sentinels {
            None => None,
            Some(sentinels) => Some(sentinels.confirm(self.clock.now()).await.ok()?.address),
        };
        let connected = self.dial.connect(master.as_ref(), &self.listeners).await;
        connected.ok()
    }

    /// The answer to `question`, if it arrives in time.
    async fn ask(&self, connection: &mut Connection, question: Cmd) -> Option<Value> {
        let mut pipe = redis::pipe();
        pipe.add_command(question);
        let answers = self.in_time(connection.ask(pipe)).await?.ok()?;
        answers.into_iter().next()
    }

    fn denied(&self) -> Duration {
        let node = &self.node;
        tracing::debug!(
            target: "ringfence",
            %node,
            "the server denies us `CLIENT TRACKING`; grant `+client|tracking` to see new locks at once"
        );
        DENIED_PAUSE
    }

    /// Whether the connection leads to the master that the link is connected to.
    fn leads_to_the_master(&self, connection: &Connection) -> bool {
        let Some(sentinels) = &self.sentinels else {
            return true;
        };
        match (sentinels.session_master(), &connection.master) {
            (Some(master), Some(own)) => master.is_same(own),
            _ => true,
        }
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(PATIENCE, step).await.ok()
    }

    fn is_heard(&self) -> bool {
        self.reports.to.strong_count() > 0
    }

    fn tell(&self, covered: bool) {
        if let Some(to) = self.reports.to.upgrade() {
            to.hear_coverage(covered);
        }
    }
}

impl Reports {
    /// # Errors
    /// If the server reports too much.
    fn receive(&self, push: &PushInfo) -> Result<(), Excess> {
        let now = self.clock.now();
        let keys = reported_keys(push).len();
        self.allowance().spend(keys.max(1), now)?;
        if let Some(to) = self.to.upgrade() {
            reported_names(push).for_each(|name| to.hear_change(name));
        }
        Ok(())
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names whose keys the server reports as changed.
pub(super) fn reported_names(push: &PushInfo) -> impl Iterator<Item = Name> {
    let keys = reported_keys(push).iter();
    keys.filter_map(text).filter_map(changed_name)
}

/// The keys that the server reports as changed. After a flush of all keys it names none.
fn reported_keys(push: &PushInfo) -> &[Value] {
    match push.data.as_slice() {
        [Value::Array(keys)] if push.kind == PushKind::Invalidate => keys,
        _ => &[],
    }
}

fn text(key: &Value) -> Option<&str> {
    match key {
        Value::BulkString(key) => std::str::from_utf8(key).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SteppedClock;

    #[derive(Default)]
    struct RecordedNames(Mutex<Vec<Name>>);

    impl HearChange for RecordedNames {
        fn hear_change(&self, key: Name) {
            self.0.lock().unwrap().push(key);
        }

        fn hear_coverage(&self, _covered: bool) {}
    }

    fn reports(to: &Arc<RecordedNames>, clock: &SteppedClock) -> Reports {
        let to: Weak<RecordedNames> = Arc::downgrade(to);
        Reports {
            allowance: Mutex::new(Allowance::of_changes()),
            clock: Clock::Stepped(clock.clone()),
            to,
        }
    }

    fn push(kind: PushKind, data: Vec<Value>) -> PushInfo {
        PushInfo { kind, data }
    }

    fn keys(keys: &[&[u8]]) -> Vec<Value> {
        let keys = keys.iter().map(|key| Value::BulkString(key.to_vec()));
        vec![Value::Array(keys.collect())]
    }

    #[test]
    fn names_are_told_of_and_anything_else_is_ignored() {
        let (to, clock) = (Arc::default(), SteppedClock::default());
        let reports = reports(&to, &clock);
        let record = b"ringfence:{a}:record:a".as_slice();
        for data in [
            vec![],
            vec![Value::Nil],
            vec![Value::Int(1), Value::Int(2)],
            vec![Value::Array(vec![Value::Nil, Value::Array(vec![])])],
            keys(&[
                b"",
                b"\xff",
                b"ringfence:{",
                b"ringfence:{}:record:",
                b"other",
            ]),
        ] {
            let invalidate = push(PushKind::Invalidate, data);
            reports.receive(&invalidate).unwrap();
        }
        reports
            .receive(&push(PushKind::Message, keys(&[record])))
            .unwrap();
        assert_eq!(*to.0.lock().unwrap(), []);
        reports
            .receive(&push(PushKind::Invalidate, keys(&[b"x", record])))
            .unwrap();
        assert_eq!(*to.0.lock().unwrap(), [Name::new("", "a").unwrap()]);
    }

    #[test]
    fn a_server_that_reports_too_much_is_left_alone_for_a_minute() {
        let clock = SteppedClock::starting_at(Duration::from_secs(1));
        let reports = reports(&Arc::default(), &clock);
        let many = keys(&[b"ringfence:{a}:record:a".as_slice(); 1_000]);
        let many = push(PushKind::Invalidate, many);
        let accepted = (0..100).take_while(|_| reports.receive(&many).is_ok());
        assert_eq!(accepted.count(), 4);
        assert!(reports.allowance().is_blocked(clock.now()));
        clock.step(Duration::from_secs(60));
        assert!(!reports.allowance().is_blocked(clock.now()));
    }
}
