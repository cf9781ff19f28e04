//! What a search has to know of a client, to see what can happen to it next.

use ringfence_core::message::Ballot;
use ringfence_core::protocol::{AttemptVerdict, ClockReading, Hold, RoundMachine, Vote};
use ringfence_core::time::Timestamp;

use super::client::{Client, Phase};
use super::scope::Ticks;
use super::setting::{at, tick_of};
use super::world::NODES;

/// What a search has to know of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) stage: Stage,
    /// From when on it may begin an attempt.
    pub(super) begins_at: Option<Ticks>,
    /// From when on a timer may fire.
    pub(super) due_at: Option<Ticks>,
    /// Its attempt was won, and its task has not read that.
    pub(super) is_won: bool,
    /// At which ticks it holds, by its own [`check`](ringfence_core::protocol::Hold::check): a bit
    /// for each.
    holds: u64,
    /// The number of its present attempt.
    pub(super) attempt: u8,
    /// Whether it may try again after this attempt.
    pub(super) tries_again: bool,
    /// What it proposed.
    pub(super) ballot: Ballot,
    /// Which nodes have voted on its attempt, one way or the other.
    pub(super) voted: [bool; NODES],
    /// How many more times it may renew.
    pub(super) renewals_left: u8,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Trying,
    Holding,
    Released,
    Done,
    Left,
}

impl View {
    pub(super) fn of(client: &Client) -> Self {
        let tick = |time: Option<Timestamp>| time.map(tick_of);
        let mut view = Self {
            stage: Stage::Done,
            begins_at: None,
            due_at: None,
            is_won: false,
            holds: 0,
            attempt: client.attempt(),
            tries_again: client.attempts_left > 0,
            ballot: Ballot::default(),
            voted: [false; NODES],
            renewals_left: client.renewals_left,
        };
        match &client.phase {
            Phase::Idle => {
                view.stage = Stage::Waiting;
                view.begins_at = Some(0);
            }
            Phase::Pausing { at, wake_at, .. } => {
                view.stage = Stage::Waiting;
                view.begins_at = Some(tick_of(*at.min(wake_at)));
            }
            Phase::Trying(_, attempt) => {
                view.stage = Stage::Trying;
                view.due_at = tick(attempt.poll_timeout());
                view.is_won = matches!(attempt.verdict(), Some(AttemptVerdict::Won { .. }));
                view.ballot = attempt.ballot();
                for (voted, vote) in view.voted.iter_mut().zip(attempt.votes()) {
                    *voted = *vote != Vote::Pending;
                }
            }
            Phase::Holding { hold, id, .. } => {
                view.stage = Stage::Holding;
                view.due_at = tick(hold.poll_timeout());
                view.ballot = id.ballot;
                view.holds = ticks_held(hold);
            }
            Phase::Released(hold, id) => {
                view.stage = Stage::Released;
                view.ballot = id.ballot;
                view.holds = ticks_held(hold);
            }
            Phase::Done => {}
            Phase::Left => view.stage = Stage::Left,
        }
        view
    }

    /// Whether it holds at `now`, by its own word.
    pub(super) fn holds_at(&self, now: Ticks) -> bool {
        self.holds & (1 << now) != 0
    }
}

/// At which ticks `hold` is held, if nothing happens to it.
fn ticks_held(hold: &Hold) -> u64 {
    let held = (0..64).filter(|now| {
        let clock = ClockReading {
            now: at(*now),
            froze: None,
        };
        hold.clone().check(clock).is_ok()
    });
    held.fold(0, |bits, now| bits | 1 << now)
}
