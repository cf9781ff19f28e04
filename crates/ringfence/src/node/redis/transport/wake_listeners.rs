//! The listeners for wakes of one node, and the format of a wake. Any client may publish on a
//! channel, so messages of any other format are ignored. Other pushes go to one receiver, on
//! connections that are made for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};

use crate::clock::Clock;
use crate::message::Wake;
use crate::node::Hear;

use super::allowance::Allowance;
use super::limits::Excess;
use crate::node::redis::key::WAKE_CHANNEL;

/// The longest delay of a wake.
const AFTER_MAX_MS: u64 = 3_600_000;

/// What else is done with a push.
type Notice = Box<dyn Fn(&PushInfo) -> Result<(), Excess> + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct WakeListeners {
    list: Mutex<Vec<(String, Arc<dyn Hear>)>>,
    allowance: Mutex<Allowance>,
    clock: Clock,
    notice: Option<Notice>,
}

impl WakeListeners {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// Calls `notice` at every message on `channel`.
    pub(crate) fn noticing(
        clock: Clock,
        channel: &'static str,
        notice: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self::receiving(clock, move |push| {
            if is_message_on(push, channel) {
                notice();
            }
            Ok(())
        })
    }

    /// Calls `notice` with every push. An error of it ends the connection.
    pub(crate) fn receiving(
        clock: Clock,
        notice: impl Fn(&PushInfo) -> Result<(), Excess> + Send + Sync + 'static,
    ) -> Self {
        Self {
            clock,
            notice: Some(Box::new(notice)),
            ..Self::default()
        }
    }

    /// From now on `to` receives the wakes of `client`.
    pub(crate) fn add(&self, client: &str, to: Arc<dyn Hear>) {
        self.list().push((client.to_owned(), to));
    }

    /// The clients that were added after the first `known`. None for a while after a flood.
    pub(crate) fn clients_after(&self, known: usize) -> Vec<String> {
        let list = self.list();
        let new = list.get(known..).unwrap_or_default();
        if new.is_empty() || self.were_flooded() {
            return Vec::new();
        }
        new.iter().map(|(client, _)| client.clone()).collect()
    }

    /// Whether the server pushed too much lately.
    pub(crate) fn were_flooded(&self) -> bool {
        let now = self.clock.now();
        self.allowance().is_blocked(now)
    }

    /// Delivers a push of `bytes`, if it is a wake. `calls` were sent to the server since its last
    /// push.
    ///
    /// # Errors
    /// If the server pushes too much.
    pub(crate) fn receive(&self, push: &PushInfo, bytes: usize, calls: u32) -> Result<(), Excess> {
        let now = self.clock.now();
        self.allowance().charge(bytes, calls, now)?;
        if let Some(notice) = &self.notice {
            notice(push)?;
        }
        let Some((client, wake)) = wake(push) else {
            return Ok(());
        };
        let listening: Vec<Arc<dyn Hear>> = self
            .list()
            .iter()
            .filter(|(name, _)| *name == client)
            .map(|(_, to)| Arc::clone(to))
            .collect();
        // After unlocking: a listener may add another listener.
        for to in listening {
            to.hear(wake.clone());
        }
        Ok(())
    }

    fn list(&self) -> MutexGuard<'_, Vec<(String, Arc<dyn Hear>)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_message_on(push: &PushInfo, channel: &str) -> bool {
    let found = push.data.first();
    let same = matches!(found, Some(Value::BulkString(found)) if found == channel.as_bytes());
    push.kind == PushKind::Message && same
}

/// Reads the channel `ringfence:wake:CLIENT` and the message `AFTER_MS CLIENT.NUMBER`, followed by
/// ` SLOT` if a slot of a semaphore was freed.
fn wake(push: &PushInfo) -> Option<(&str, Wake)> {
    if push.kind != PushKind::Message {
        return None;
    }
    let [Value::BulkString(channel), Value::BulkString(message)] = push.data.as_slice() else {
        return None;
    };
    let client = std::str::from_utf8(channel).ok()?;
    let client = client.strip_prefix(WAKE_CHANNEL)?;
    let wake = Wake::read(std::str::from_utf8(message).ok()?)?;
    let number = wake.ticket.strip_prefix(client)?.strip_prefix('.')?;
    number.parse::<u64>().ok()?;
    Some((client, wake)).filter(|(_, wake)| wake.after_ms <= AFTER_MAX_MS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SteppedClock;

    #[derive(Default)]
    struct RecordedWakes(Mutex<Vec<Wake>>);

    impl Hear for RecordedWakes {
        fn hear(&self, wake: Wake) {
            self.0.lock().unwrap().push(wake);
        }
    }

    fn push(channel: &str, message: &[u8]) -> PushInfo {
        PushInfo {
            kind: PushKind::Message,
            data: vec![
                Value::BulkString(channel.as_bytes().to_vec()),
                Value::BulkString(message.to_vec()),
            ],
        }
    }

    #[test]
    fn a_wake_reaches_the_listeners_of_its_client() {
        let (recorded, other) = (
            Arc::<RecordedWakes>::default(),
            Arc::<RecordedWakes>::default(),
        );
        let listeners = WakeListeners::default();
        listeners.add("a.b", recorded.clone());
        listeners.add("c", other.clone());
        listeners
            .receive(&push("ringfence:wake:a.b", b"1500 a.b.7"), 0, 0)
            .unwrap();
        listeners
            .receive(&push("ringfence:wake:a.b", b"0 a.b.8 2"), 0, 0)
            .unwrap();
        let wake = |number, after_ms, slot| Wake {
            ticket: format!("a.b.{number}"),
            after_ms,
            slot,
        };
        let expected = [wake(7, 1500, None), wake(8, 0, Some(2))];
        assert_eq!(*recorded.0.lock().unwrap(), expected);
        assert!(other.0.lock().unwrap().is_empty());
        assert_eq!(listeners.clients_after(1), ["c"]);
        assert!(listeners.clients_after(3).is_empty());
    }

    #[test]
    fn what_is_no_wake_is_nothing() {
        let (listeners, recorded) = (WakeListeners::default(), Arc::<RecordedWakes>::default());
        listeners.add("c", recorded.clone());
        for message in [
            &b""[..],
            b"0",
            b"0 ",
            b"0 c",
            b"0 c.",
            b"0 c.x",
            b"0 c.-1",
            b"0 d.1",
            b"-1 c.1",
            b"3600001 c.1",
            b"99999999999999999999999 c.1",
            b"0 c.1 ",
            b"0  c.1",
            b"0 c.99999999999999999999999",
            b"0 c.\xff",
            b"0 c.1 x",
            b"0 c.1 -1",
            b"0 c.1  1",
            b"0 c.1 1 ",
            b"0 c.1 1 1",
            b"0 c.1 4294967296",
        ] {
            listeners
                .receive(&push("ringfence:wake:c", message), 0, 0)
                .unwrap();
        }
        listeners
            .receive(&push("ringfence:wake:", b"0 c.1"), 0, 0)
            .unwrap();
        listeners
            .receive(&push("elsewhere", b"0 c.1"), 0, 0)
            .unwrap();
        let mut sideways = push("ringfence:wake:c", b"0 c.1");
        sideways.kind = PushKind::PMessage;
        listeners.receive(&sideways, 0, 0).unwrap();
        sideways.kind = PushKind::Message;
        sideways.data.push(Value::Nil);
        listeners.receive(&sideways, 0, 0).unwrap();
        assert!(recorded.0.lock().unwrap().is_empty());
    }

    #[test]
    fn after_a_flood_no_client_is_subscribed_for_a_while() {
        let clock = SteppedClock::starting_at(Duration::from_secs(1));
        let listeners = WakeListeners::new(Clock::Stepped(clock.clone()));
        listeners.add("c", Arc::<RecordedWakes>::default());
        let noise = push("elsewhere", b"");
        let floods = (0..1_000_000).any(|_| listeners.receive(&noise, 0, 0) == Err(Excess::Pushes));
        assert!(floods && listeners.were_flooded());
        assert!(listeners.clients_after(0).is_empty());
        clock.step(Duration::from_secs(60));
        assert!(!listeners.were_flooded());
        assert_eq!(listeners.clients_after(0), ["c"]);
    }
}
