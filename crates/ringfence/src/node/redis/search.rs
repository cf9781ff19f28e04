//! How far `init` has come with its search for locks. A server may have millions of keys of other
//! programs, and a script stops the whole server while it runs: so each call searches a few pages, and
//! the next one goes on from where it ended.

use std::time::Duration;

use redis::Pipeline;

use crate::node::InitMode;

use super::reply::{Fields, Misshapen};

/// How long one step may take: the server is there, but busy with others.
pub(super) const SEARCH_STEP: Duration = Duration::from_secs(10);
/// How long the whole search may take.
pub(super) const SEARCH_MAX: Duration = Duration::from_secs(60);
/// How many pages of 500 keys are searched at once: a few milliseconds.
const PAGES: u32 = 20;
/// The same where nobody waits for the end of it: whoever forces an `init` is told what one call found.
const PAGES_OF_FORCE: u32 = 200;
/// How many holders are named.
const HOLDERS_MAX: usize = 20;

/// How far the search has come.
#[derive(Debug)]
pub(super) struct Search {
    cursor: String,
    /// How many records were found; `+` behind the number if there may be more.
    pub(super) count: String,
    /// How many holders were found.
    held: usize,
    /// The longest time that one of the records has left, in milliseconds.
    longest_ms: String,
    /// The birth record that stood there when the search began.
    born: String,
    /// Name and label of the first holders.
    pub(super) holders: Vec<(String, String)>,
}

/// What `init.lua` says in the end.
pub(super) struct InitAnswer {
    pub(super) clock_us: u64,
    pub(super) word: String,
    pub(super) born: Option<String>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            cursor: "0".to_owned(),
            count: "0".to_owned(),
            held: 0,
            longest_ms: "-1".to_owned(),
            born: String::new(),
            holders: Vec::new(),
        }
    }
}

impl Search {
    /// Adds what `init.lua` has to know of the search.
    pub(super) fn write(&self, cmd: &mut Pipeline, mode: InitMode) {
        cmd.arg(&self.cursor)
            .arg(self.count.trim_end_matches('+'))
            .arg(self.held)
            .arg(&self.longest_ms)
            .arg(&self.born)
            .arg(match mode {
                InitMode::Force => PAGES_OF_FORCE,
                _ => PAGES,
            });
    }

    /// Takes an answer of `init.lua`. `None` if the search goes on.
    pub(super) fn hear(&mut self, mut fields: Fields) -> Result<Option<InitAnswer>, Misshapen> {
        let clock = fields.text()?.ok_or(Misshapen)?;
        let clock_us = clock.parse().map_err(|_| Misshapen)?;
        let word = fields.text()?.unwrap_or_default();
        let born = fields.text()?;
        self.count = fields.text()?.unwrap_or_default();
        let cursor = fields.text()?.ok_or(Misshapen)?;
        let begins = self.cursor == "0";
        self.longest_ms = fields.text()?.ok_or(Misshapen)?;
        while fields.0.len() > 0 {
            let name = fields.text()?.ok_or(Misshapen)?;
            let label = fields.text()?.ok_or(Misshapen)?;
            self.held += 1;
            // A server that moves its keys about may show one twice.
            let known = self.holders.iter().any(|(other, _)| *other == name);
            if self.holders.len() < HOLDERS_MAX && !known {
                self.holders.push((name, label));
            }
        }
        match word.as_str() {
            "more" => {
                self.cursor = cursor;
                if begins {
                    self.born = born.unwrap_or_default();
                }
                Ok(None)
            }
            // A client has joined meanwhile, and may have taken a lock where the search has been.
            "again" => {
                *self = Self::default();
                Ok(None)
            }
            _ => Ok(Some(InitAnswer {
                clock_us,
                word,
                born,
            })),
        }
    }
}
