//! What a node does in the model: the product's own ledger, on an [`Entry`] from which is left out
//! what can make no difference.

use ringfence_core::ledger::{Entry, Moment, Rules, apply};
use ringfence_core::message::{
    Acquire, Answer, Ballot, Holder, Op, Release, Reply, Request, Restore,
};

use super::message::{Content, Message, Word};
use super::scope::{Clocks, Ticks, Variant};
use super::setting::{Setting, TICK, at, clock_us, just_below, standing};
use super::tables::Known;
use super::world::CLIENTS;

/// What a node is asked, and all that its answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    /// What it keeps.
    pub(super) entry: u32,
    /// Its time; `None` if that stands still.
    pub(super) clock: Option<Ticks>,
    pub(super) born: Option<Ticks>,
    pub(super) question: Question,
}

/// A question to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// A client's request.
    Mail {
        client: u8,
        message: u32,
        /// The client may try again: then it needs to know the node's time and the floor.
        tries_again: bool,
    },
    /// What is left, now that time has passed?
    Settle,
    /// What is left, now that the holder's lease is over?
    Lapse,
}

/// What a node answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// What it keeps from then on.
    pub(super) entry: u32,
    pub(super) word: Word,
    /// The reply.
    pub(super) message: u32,
}

/// Records last for so long where time does not end them.
const FOREVER_MS: u64 = 1_000_000_000;

impl Asked {
    pub(super) fn carry_out(&self, setting: &Setting, known: &mut Known) -> Answered {
        let mut entry = Entry::clone(known.entries.get(self.entry));
        let now = self.moment(&entry);
        let (client, message, tries_again) = match self.question {
            Question::Mail {
                client,
                message,
                tries_again,
            } => (client, message, tries_again),
            Question::Settle | Question::Lapse => {
                entry.expire(now);
                self.leave_out(setting, &mut entry);
                let (entry, _) = known.entries.put(entry);
                return Answered {
                    entry,
                    word: Word::Other,
                    message: 0,
                };
            }
        };
        let message = Message::clone(known.messages.get(message));
        let Content::Request(request) = message.content else {
            unreachable!("a node gets no reply");
        };
        let request = Request {
            token: setting.token_of(client.into(), &request.token),
            ..request
        };
        let reply = self.reply(setting, &mut entry, now, request, tries_again);
        let word = Word::of(&reply);
        self.leave_out(setting, &mut entry);
        let reply = Message {
            content: Content::Reply(reply),
            // Only a reply with a stamp says something about clocks.
            sent: match (tries_again, setting.scope.slow_replies) {
                (true, true) => message.sent,
                // Of what arrives at once, the way there may as well have taken no time.
                (true, false) => at(self.clock.unwrap_or_default()),
                (false, _) => at(0),
            },
            ..message
        };
        Answered {
            entry: known.entries.put(entry).0,
            word,
            message: known.messages.put(reply).0,
        }
    }

    fn reply(
        &self,
        setting: &Setting,
        entry: &mut Entry,
        now: Moment,
        mut request: Request,
        tries_again: bool,
    ) -> Reply {
        let mut rules = self.rules(setting);
        setting.spoil(&mut request, entry);
        let pinned = setting.is(Variant::PinnedFloor) && entry.record.is_some();
        let ballot = match &request.op {
            Op::Acquire(Acquire { ballot, .. })
            | Op::Release(Release { ballot, .. })
            | Op::Restore(Restore { ballot, .. }) => *ballot,
            _ => Ballot::default(),
        };
        let answer = if pinned && ballot.get() > now.clock_us + rules.window_us {
            // The ceiling stays where it is.
            Answer::Ahead
        } else {
            if pinned {
                // The ground is out of reach, and asks nothing of a ballot: the record alone does.
                rules.window_us = now.clock_us;
            }
            let entries = std::slice::from_mut(entry);
            let outcome = apply(&rules, now, entries, &request);
            // A reply without its stamp says nothing about clocks, and nothing about what to
            // propose next.
            let stamp = Some(outcome.stamp).filter(|_| tries_again);
            let answer = match outcome.answer {
                // Who holds and for how long is for people, and for callers that wait in line.
                Answer::Held(_) => Answer::Held(Holder::default()),
                answer => answer,
            };
            return Reply {
                stamp,
                standing: standing(self.born, self.clock.unwrap_or_default()),
                answer,
            };
        };
        Reply {
            stamp: None,
            standing: standing(self.born, self.clock.unwrap_or_default()),
            answer,
        }
    }

    fn rules(&self, setting: &Setting) -> Rules {
        let (window_us, retention_ms) = match (setting.scope.clocks, self.clock) {
            (Clocks::Together(span), _) => (micros(span.window), FOREVER_MS),
            (Clocks::Apart(time), Some(_)) => {
                let retention = just_below(time.retention).as_millis() as u64;
                (micros(time.window), retention)
            }
            // Every ballot is near enough.
            (Clocks::Apart(_), None) => (clock_us(0), FOREVER_MS),
        };
        Rules {
            window_us,
            retention_ms,
            grace_ms: 0,
            grants_from_us: 0,
        }
    }

    fn moment(&self, entry: &Entry) -> Moment {
        let moment = Moment::of_clock(clock_us(self.clock.unwrap_or_default()));
        let ends = entry.key.as_ref().and_then(|key| key.until_ms);
        match (self.question, ends) {
            (Question::Lapse, Some(until)) => Moment {
                lease_ms: until + 1,
                ..moment
            },
            _ => moment,
        }
    }

    /// Leaves out what can make no difference, so that entries which differ by nothing else are
    /// one.
    fn leave_out(&self, setting: &Setting, entry: &mut Entry) {
        let key = entry.key.as_ref().map(|key| key.value.clone());
        let Some(record) = &mut entry.record else {
            return;
        };
        // No client waits, so it does not matter since when the name is free.
        record.free_since_ms = 0;
        record
            .seat
            .take_if(|seat| Some(&seat.token) != key.as_ref());
        if setting.scope.renewals == 0 {
            // Only a restore asks what was closed.
            record.closed = Ballot::default();
        }
        if setting.scope.node_time().is_none() || self.clock.is_none() {
            record.until_ms = FOREVER_MS;
        }
    }
}

impl Setting {
    /// Changes `request` as a variant that is wrong would.
    fn spoil(&self, request: &mut Request, entry: &Entry) {
        let seat = entry
            .record
            .as_ref()
            .and_then(|record| record.seat.as_ref());
        let seat = seat.filter(|seat| seat.token == request.token.expose());
        match (&mut request.op, seat) {
            (Op::Release(release), Some(seat)) if self.is(Variant::CarelessRelease) => {
                release.ballot = release.ballot.max(seat.ballot);
            }
            (Op::Acquire(acquire), _) if self.is(Variant::ShortLease) => {
                acquire.ttl_ms = acquire.ttl_ms.saturating_sub(TICK.as_millis() as u64);
            }
            _ => {}
        }
    }

    /// The same entry after the clients have changed places.
    pub(super) fn renamed(&self, entry: &Entry, order: &[u8; CLIENTS]) -> Entry {
        let mut entry = entry.clone();
        let rename = |value: &mut String| {
            if let Some((client, n)) = self.owner(value) {
                let client = usize::from(order[client]);
                self.tokens[client][n].expose().clone_into(value);
            }
        };
        if let Some(key) = &mut entry.key {
            rename(&mut key.value);
        }
        if let Some(seat) = entry
            .record
            .as_mut()
            .and_then(|record| record.seat.as_mut())
        {
            rename(&mut seat.token);
        }
        entry
    }

    /// The client whose token `value` is, and which of its tokens.
    fn owner(&self, value: &str) -> Option<(usize, usize)> {
        let tokens = self.tokens.iter().enumerate();
        let mut tokens = tokens.flat_map(|(client, own)| {
            let own = own.iter().enumerate();
            own.map(move |(n, token)| ((client, n), token))
        });
        let found = tokens.find(|(_, token)| token.expose() == value);
        found.map(|(owner, _)| owner)
    }

    /// Who holds, and under which ballot.
    pub(super) fn holder(&self, entry: &Entry) -> Option<(usize, Ballot)> {
        let (client, _) = self.owner(&entry.key.as_ref()?.value)?;
        let seat = entry.record.as_ref()?.seat.as_ref()?;
        Some((client, seat.ballot))
    }
}

fn micros(ticks: Ticks) -> u64 {
    TICK.as_micros() as u64 * u64::from(ticks)
}
