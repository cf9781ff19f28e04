//! Who listens for wakes at one node, and which message is one. What is said on a channel may come
//! from anybody: whatever does not look like a wake of ours is nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};

use crate::message::Wake;
use crate::node::Hear;

use super::key::WAKE_CHANNEL;

/// The longest time after which anybody is told to come.
const AFTER_MAX_MS: u64 = 3_600_000;

/// See the module.
#[derive(Default)]
pub(super) struct Ears(Mutex<Vec<(String, Arc<dyn Hear>)>>);

impl Ears {
    /// From now on `to` hears the wakes of `client`.
    pub(super) fn add(&self, client: &str, to: Arc<dyn Hear>) {
        self.list().push((client.to_owned(), to));
    }

    /// The clients that were added after the first `known`.
    pub(super) fn clients_after(&self, known: usize) -> Vec<String> {
        let list = self.list();
        let new = list.get(known..).unwrap_or_default();
        new.iter().map(|(client, _)| client.clone()).collect()
    }

    /// Passes on what the server pushed, if it is a wake.
    pub(super) fn hear(&self, push: &PushInfo) {
        let Some((client, wake)) = wake(push) else {
            return;
        };
        let listening: Vec<Arc<dyn Hear>> = self
            .list()
            .iter()
            .filter(|(name, _)| *name == client)
            .map(|(_, to)| Arc::clone(to))
            .collect();
        // Outside the lock: whoever hears may want to listen for more.
        for to in listening {
            to.hear(wake.clone());
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(String, Arc<dyn Hear>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `ringfence:wake:CLIENT` and, as its message, `AFTER_MS CLIENT.NUMBER`, with ` SLOT` behind
/// it if a slot of a semaphore was freed.
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
    use super::*;

    #[derive(Default)]
    struct Diary(Mutex<Vec<Wake>>);

    impl Hear for Diary {
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
    fn a_wake_reaches_whoever_listens_for_its_client() {
        let (diary, other) = (Arc::<Diary>::default(), Arc::<Diary>::default());
        let ears = Ears::default();
        ears.add("a.b", diary.clone());
        ears.add("c", other.clone());
        ears.hear(&push("ringfence:wake:a.b", b"1500 a.b.7"));
        ears.hear(&push("ringfence:wake:a.b", b"0 a.b.8 2"));
        let wake = |number, after_ms, slot| Wake {
            ticket: format!("a.b.{number}"),
            after_ms,
            slot,
        };
        let heard = [wake(7, 1500, None), wake(8, 0, Some(2))];
        assert_eq!(*diary.0.lock().unwrap(), heard);
        assert!(other.0.lock().unwrap().is_empty());
        assert_eq!(ears.clients_after(1), ["c"]);
        assert!(ears.clients_after(3).is_empty());
    }

    #[test]
    fn what_is_no_wake_is_nothing() {
        let (ears, diary) = (Ears::default(), Arc::<Diary>::default());
        ears.add("c", diary.clone());
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
            ears.hear(&push("ringfence:wake:c", message));
        }
        ears.hear(&push("ringfence:wake:", b"0 c.1"));
        ears.hear(&push("elsewhere", b"0 c.1"));
        let mut sideways = push("ringfence:wake:c", b"0 c.1");
        sideways.kind = PushKind::PMessage;
        ears.hear(&sideways);
        sideways.kind = PushKind::Message;
        sideways.data.push(Value::Nil);
        ears.hear(&sideways);
        assert!(diary.0.lock().unwrap().is_empty());
    }
}
