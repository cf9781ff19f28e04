//! What the numbers in a state stand for, and what comes of one when something happens to it. The
//! product's machines and its ledger are asked once; the answer is looked up from then on.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ringfence_core::ledger::Entry;
use ringfence_core::message::Ballot;

use super::client::{Client, Effects, Input};
use super::ledger::{Answered, Asked};
use super::message::{Message, Tag, What};
use super::properties::Event;
use super::scope::{Scope, Ticks, Variant};
use super::setting::Setting;
use super::table::Table;
use super::view::{Stage, View};
use super::world::{CLIENTS, ORDERS};

/// See the module.
pub(super) struct Tables {
    pub(super) setting: Setting,
    known: RwLock<Known>,
    /// What has happened anywhere in the search: a bit for each [`Event`].
    seen: AtomicU32,
}

#[derive(Default)]
pub(super) struct Known {
    clients: Table<Client>,
    views: Vec<View>,
    /// One way in which each client came to be, unless it was there from the beginning.
    origins: Vec<Option<(u32, Cause, Ticks)>>,
    mirrored: HashMap<(u32, usize), u32>,
    steps: HashMap<(u32, Cause, Ticks), Arc<Made>>,
    pub(super) messages: Table<Message>,
    pub(super) entries: Table<Entry>,
    answers: HashMap<Asked, Answered>,
    renamed: HashMap<(u32, [u8; CLIENTS]), u32>,
}

/// What happens to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Begin { ballot: Option<Ticks> },
    Hear { node: u8, message: u32 },
    Conclude,
    TimeOut,
    Release,
}

/// What comes of it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) client: u32,
    pub(super) sends: Vec<(usize, u32)>,
    pub(super) granted: Option<Ballot>,
    pub(super) extended: bool,
    pub(super) discounted: bool,
}

impl Tables {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            setting: Setting::new(scope),
            known: RwLock::default(),
            seen: AtomicU32::new(0),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// `event` has happened, if `is_so`. That is not part of a state: each would be searched once
    /// for every way to it.
    pub(super) fn note(&self, event: Event, is_so: bool) {
        self.seen
            .fetch_or(u32::from(is_so) << event as u32, Ordering::Relaxed);
    }

    /// Whether `event` has happened anywhere in the search.
    pub(super) fn has_seen(&self, event: Event) -> bool {
        self.seen.load(Ordering::Relaxed) & (1 << event as u32) != 0
    }

    /// The number of `client`, which was there from the beginning.
    pub(super) fn begin(&self, client: Client) -> u32 {
        self.write(|known| known.put_client(client, None))
    }

    /// What comes of `cause` for `client` at `now`.
    pub(super) fn step(&self, client: u32, cause: Cause, now: Ticks) -> Arc<Made> {
        let key = (client, cause, now);
        if let Some(made) = self.read(|known| known.steps.get(&key).cloned()) {
            return made;
        }
        self.write(|known| known.step(&self.setting, key))
    }

    pub(super) fn view(&self, client: u32) -> View {
        self.read(|known| known.views[client as usize])
    }

    /// The same client with the nodes in the order number `n`: what it would be if all that
    /// happened to it had come from the nodes in that order.
    pub(super) fn mirrored(&self, client: u32, n: usize) -> u32 {
        if n == 0 {
            return client;
        }
        if let Some(known) = self.read(|known| known.mirrored.get(&(client, n)).copied()) {
            return known;
        }
        let origin = self.read(|known| known.origins[client as usize]);
        let mirrored = match origin {
            None => client,
            Some((from, cause, now)) => {
                let from = self.mirrored(from, n);
                self.step(from, cause.mirrored(n), now).client
            }
        };
        self.write(|known| known.mirrored.insert((client, n), mirrored));
        mirrored
    }

    /// What a node answers, and what it keeps from then on.
    pub(super) fn ask(&self, asked: Asked) -> Answered {
        if let Some(answered) = self.read(|known| known.answers.get(&asked).copied()) {
            return answered;
        }
        self.write(|known| {
            let answered = asked.carry_out(&self.setting, known);
            known.answers.insert(asked, answered);
            answered
        })
    }

    /// The number of `entry`.
    pub(super) fn entry(&self, entry: Entry) -> u32 {
        self.write(|known| known.entries.put(entry).0)
    }

    /// What a node keeps.
    pub(super) fn kept(&self, entry: u32) -> Arc<Entry> {
        self.read(|known| Arc::clone(known.entries.get(entry)))
    }

    /// The same entry after the clients have changed places.
    pub(super) fn renamed(&self, entry: u32, order: &[u8; CLIENTS]) -> u32 {
        let key = (entry, *order);
        if let Some(known) = self.read(|known| known.renamed.get(&key).copied()) {
            return known;
        }
        let renamed = self.setting.renamed(&self.kept(entry), order);
        self.write(|known| {
            let (renamed, _) = known.entries.put(renamed);
            known.renamed.insert(key, renamed);
            renamed
        })
    }

    /// What a message is.
    pub(super) fn what(&self, message: u32) -> What {
        self.read(|known| What::of(known.messages.get(message)))
    }

    /// Whether `view` is one of a client that reads a reply with this content.
    pub(super) fn is_awaited(&self, view: &View, message: u32) -> bool {
        let tag = self.read(|known| known.messages.get(message).tag);
        let old = self.setting.is(Variant::OldVotes);
        match (view.stage, tag) {
            (Stage::Trying, Tag::Acquire(attempt)) => attempt == view.attempt || old,
            // Nothing that comes is any use to a client that does not release.
            (Stage::Holding, Tag::Acquire(attempt)) => attempt == view.attempt,
            (Stage::Holding, Tag::Extend(_) | Tag::Restore) => true,
            (Stage::Released, Tag::Extend(_)) => true,
            (Stage::Waiting, Tag::Acquire(_)) => old,
            _ => false,
        }
    }
}

impl Known {
    fn put_client(&mut self, client: Client, origin: Option<(u32, Cause, Ticks)>) -> u32 {
        let view = View::of(&client);
        let (number, is_new) = self.clients.put(client);
        if is_new {
            self.views.push(view);
            self.origins.push(origin);
        }
        number
    }

    fn step(&mut self, setting: &Setting, key: (u32, Cause, Ticks)) -> Arc<Made> {
        let (client, cause, now) = key;
        let before = Client::clone(self.clients.get(client));
        let message = match cause {
            Cause::Hear { message, .. } => Some(Arc::clone(self.messages.get(message))),
            _ => None,
        };
        let input = match (cause, &message) {
            (Cause::Begin { ballot }, _) => Input::Begin { ballot },
            (Cause::Hear { node, .. }, Some(message)) => Input::Hear {
                node: node.into(),
                message,
            },
            (Cause::Conclude, _) => Input::Conclude,
            (Cause::Release, _) => Input::Release,
            (Cause::TimeOut | Cause::Hear { .. }, _) => Input::TimeOut,
        };
        let (after, effects) = before.step(setting, input, now);
        let made = Arc::new(self.made(after, effects, key));
        self.steps.insert(key, Arc::clone(&made));
        made
    }

    fn made(&mut self, client: Client, effects: Effects, key: (u32, Cause, Ticks)) -> Made {
        let sends = effects.sends.into_iter();
        let sends = sends.map(|(node, message)| (node, self.messages.put(message).0));
        let sends = sends.collect();
        Made {
            client: self.put_client(client, Some(key)),
            sends,
            granted: effects.granted,
            extended: effects.extended,
            discounted: effects.discounted,
        }
    }
}

impl Cause {
    fn mirrored(self, n: usize) -> Self {
        match self {
            Self::Hear { node, message } => Self::Hear {
                node: ORDERS[n][usize::from(node)],
                message,
            },
            other => other,
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({})", self.setting.scope.name)
    }
}
