//! The listeners for wakes of one node, and the format of a wake. Any client may publish on a
//! channel, so messages of any other format are ignored. Other pushes go to one receiver, on
//! connections that are made for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use crate::clock::Clock;
use crate::message::Wake;
use crate::node::Hear;
use crate::time::Timestamp;

use super::resp::Excess;

/// The beginning of the name of every channel for wakes.
pub(crate) const WAKE_CHANNEL: &str = "ringfence:wake:";

/// The interval of pushes that no call pays for: 4,096 in a second.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 4_096);
/// How many such pushes may arrive at once: more than a process has waiters, and about as many as a
/// server can publish in a second.
const BURST: u32 = 65_536;
/// How many pushes a call pays for. A release of ours may wake two of our waiters, and so may the
/// release of another client that let our acquire in.
const PER_CALL: u32 = 4;
/// A longer push counts as several: a wake takes about 100 bytes.
const BYTES: usize = 256;
/// The interval of reported changes (see `changes.rs`): 400 in a second cost a server less than half
/// a per cent of its time.
const CHANGE_INTERVAL: Duration = Duration::from_micros(2_500);
/// How many changes may be reported at once.
const CHANGE_BURST: u32 = 4_000;
/// For how long we do not subscribe after a flood. Waiters retry by themselves about once a second.
const UNSUBSCRIBED: Duration = Duration::from_secs(60);
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

/// The channel on which `client` receives wakes.
pub(crate) fn wake_channel(client: &str) -> String {
    format!("{WAKE_CHANNEL}{client}")
}

/// How many messages a server may push. Pushes arrive without a request, so a hostile server, or
/// another client that publishes on our channel, could keep a client busy with them.
///
/// An honest server pushes wakes, and each wake has a cause and an effect. The cause is a release,
/// which wakes one waiter or two (and all readers at the front of the queue). The effect is that
/// the woken waiter calls the same server. So most wakes of a busy client are paid for by its own
/// calls. The rest is a burst: another process ends and frees thousands of names at once, for each
/// of which a caller of this client waits.
///
/// The changes that a server reports for a list have an allowance of their own, which protects the
/// server: each costs it a few microseconds.
///
/// One for each node, not for each connection: a server must not get a new
/// allowance by making us connect again.
#[derive(Debug)]
pub(crate) struct Allowance {
    interval: Duration,
    burst: u32,
    /// The time up to which the allowance is used, at one push per `interval`; in the future after a
    /// burst.
    used_until: Timestamp,
    blocked_until: Timestamp,
}

/// For wakes.
impl Default for Allowance {
    fn default() -> Self {
        Self::new(INTERVAL, BURST)
    }
}

impl Allowance {
    fn new(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            burst,
            used_until: Timestamp::ZERO,
            blocked_until: Timestamp::ZERO,
        }
    }

    /// For the changes that a server reports.
    pub(crate) fn of_changes() -> Self {
        Self::new(CHANGE_INTERVAL, CHANGE_BURST)
    }

    /// Counts a push of `bytes`, with `calls` sent since the push before.
    ///
    /// # Errors
    /// If the allowance is exceeded.
    pub(crate) fn charge(
        &mut self,
        bytes: usize,
        calls: u32,
        now: Timestamp,
    ) -> Result<(), Excess> {
        let paid = self.interval * calls.saturating_mul(PER_CALL);
        self.used_until = (self.used_until - paid).max(now);
        self.spend(bytes / BYTES + 1, now)
    }

    /// Counts as many pushes.
    ///
    /// # Errors
    /// If the allowance is exceeded.
    pub(crate) fn spend(&mut self, count: usize, now: Timestamp) -> Result<(), Excess> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let burst = now + self.interval * self.burst;
        self.used_until = self.used_until.max(now) + self.interval * count;
        if self.used_until <= burst {
            return Ok(());
        }
        // Do not carry the excess over: the connection is dropped for it.
        self.used_until = burst;
        self.blocked_until = now + UNSUBSCRIBED;
        Err(Excess::Pushes)
    }

    /// Whether there was a flood lately: then we do not subscribe.
    pub(crate) fn is_blocked(&self, now: Timestamp) -> bool {
        now < self.blocked_until
    }
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

    /// The size of a wake on the wire.
    const WAKE_BYTES: usize = 100;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// How many wakes are allowed at once.
    fn burst(allowance: &mut Allowance, now: Timestamp) -> u32 {
        let pushes = 0..10 * BURST;
        let allowed = pushes.take_while(|_| allowance.charge(WAKE_BYTES, 0, now).is_ok());
        allowed.count() as u32
    }

    #[test]
    fn a_burst_of_wakes_is_allowed_and_more_than_that_is_a_flood() {
        let mut allowance = Allowance::default();
        assert_eq!(burst(&mut allowance, at(1_000)), BURST);
        assert_eq!(burst(&mut allowance, at(1_000)), 0);
        // A quarter of a second later, the pushes of a quarter of a second are allowed again.
        assert_eq!(burst(&mut allowance, at(1_250)), 1_024);
        assert_eq!(burst(&mut allowance, at(60_000)), BURST);
    }

    #[test]
    fn ten_thousand_pushes_a_second_are_a_flood_within_twenty_seconds() {
        let mut allowance = Allowance::default();
        let flood = (0..1_000_000).find(|n| {
            let now = at(1_000) + Duration::from_micros(100 * n);
            allowance.charge(WAKE_BYTES, 0, now).is_err()
        });
        let seconds = flood.unwrap() / 10_000;
        assert!((5..20).contains(&seconds), "{seconds}");
    }

    /// The busiest client: 50,000 times a second it is woken twice and calls twice, for twenty
    /// seconds.
    #[test]
    fn wakes_that_are_followed_by_calls_are_never_a_flood() {
        let mut allowance = Allowance::default();
        for n in 0..50_000 * 20 {
            let now = at(1_000) + Duration::from_micros(20 * n);
            allowance.charge(WAKE_BYTES, 1, now).unwrap();
            allowance.charge(WAKE_BYTES, 1, now).unwrap();
        }
    }

    #[test]
    fn calls_of_long_ago_pay_for_nothing() {
        let mut allowance = Allowance::default();
        allowance.charge(WAKE_BYTES, u32::MAX, at(1_000)).unwrap();
        assert_eq!(burst(&mut allowance, at(1_000)), BURST - 1);
    }

    #[test]
    fn a_long_push_counts_as_many() {
        let mut allowance = Allowance::default();
        let megabytes = (0..100).take_while(|_| allowance.charge(1 << 20, 0, at(1_000)).is_ok());
        assert_eq!(megabytes.count(), 15);
        assert!(allowance.charge(usize::MAX, 0, at(90_000)).is_err());
    }

    #[test]
    fn the_renewals_of_a_thousand_locks_are_reported_and_those_of_ten_thousand_are_not() {
        for (locks, floods) in [(1_000, false), (10_000, true)] {
            let mut allowance = Allowance::of_changes();
            // Each lock every 3.3 seconds, for a minute.
            let changes = (0..locks * 18).map(|n| at(1_000 + n * 3_300 / locks));
            let mut spent = changes.map(|now| allowance.spend(1, now));
            assert_eq!(spent.any(|spent| spent.is_err()), floods, "{locks}");
        }
    }

    #[test]
    fn after_a_flood_we_are_deaf_for_a_minute() {
        let mut allowance = Allowance::default();
        assert!(!allowance.is_blocked(at(1_000)));
        burst(&mut allowance, at(1_000));
        assert!(allowance.is_blocked(at(1_000)) && allowance.is_blocked(at(60_999)));
        assert!(!allowance.is_blocked(at(61_000)));
    }
}
