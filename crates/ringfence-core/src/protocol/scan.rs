//! The search of one node for locks, within a small share of the server's time.
//!
//! A server does one thing at a time, so every portion delays its other clients. The search takes
//! portions that are short, and at most one per cent of the server's time in the long run. What five
//! seconds allow is granted in advance, so that a search among few keys needs no pause.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{List, Op, Portion, Request};
use crate::time::Timestamp;

use super::request::of_no_holder;

/// The search takes one part in so many of the server's time.
const SHARE: u32 = 100;
/// The server time that is granted in advance: the share of five seconds. Ten thousand locks without
/// other keys take less.
const CREDIT: Duration = Duration::from_millis(50);
/// Portions become smaller if one takes longer than this on the server.
const PORTION: Duration = Duration::from_micros(500);

/// The search of one node, over any number of passes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scan {
    /// What the search lists.
    breaks: bool,
    /// Where the next portion begins; `None` after the last portion of a pass.
    cursor: Option<Arc<str>>,
    /// How many pages the next portion has.
    pages: u32,
    /// The server time that was used and is not yet made up for by a pause.
    debt: Duration,
    /// When `debt` was computed.
    as_of: Timestamp,
}

impl Scan {
    /// A search at its beginning; of broken holds if `breaks`.
    pub fn new(breaks: bool, now: Timestamp) -> Self {
        Self {
            breaks,
            cursor: Some(Arc::from("")),
            pages: 1,
            debt: Duration::ZERO,
            as_of: now,
        }
    }

    /// Begins the next pass.
    pub fn restart(&mut self) {
        self.cursor = Some(Arc::from(""));
    }

    /// Whether the pass is over.
    pub fn is_complete(&self) -> bool {
        self.cursor.is_none()
    }

    /// Ends the pass: the node does not answer.
    pub fn give_up(&mut self) {
        self.cursor = None;
    }

    /// The request for the next portion; `None` if the pass is over.
    pub fn poll_request(&self) -> Option<Request> {
        let list = List {
            cursor: Arc::clone(self.cursor.as_ref()?),
            pages: self.pages,
            breaks: self.breaks,
        };
        Some(of_no_holder(Arc::from([]), Op::List(list)))
    }

    /// When the next portion may be requested; `None` if the pass is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.cursor.as_ref()?;
        let pause = self.debt.saturating_sub(CREDIT).saturating_mul(SHARE);
        Some(self.as_of + pause)
    }

    /// Handles the reply to a request that was sent at `sent`.
    pub fn handle_portion(&mut self, portion: &Portion, sent: Timestamp, now: Timestamp) {
        // A portion cannot have taken longer than its round trip, whatever the node says.
        let round_trip = now.since(sent);
        let took = portion.took_us.map_or(round_trip, Duration::from_micros);
        let took = took.min(round_trip);
        let made_up_for = now.since(self.as_of) / SHARE;
        self.debt = self.debt.saturating_sub(made_up_for).saturating_add(took);
        self.as_of = now;
        self.pages = match took {
            took if took > PORTION => (self.pages / 2).max(1),
            took if took < PORTION / 2 => (self.pages * 2).min(List::PAGES_MAX),
            _ => self.pages,
        };
        self.cursor.clone_from(&portion.next);
    }
}
