//! The progress of `init`'s search for locks. A server may have millions of keys of other programs,
//! and a script stops the whole server while it runs. So each call searches a few pages, and the
//! next call continues there.

use std::time::Duration;

use redis::Pipeline;

use crate::node::InitMode;

use super::born::BORN_MAX_BYTES;
use crate::node::redis::reply::{Fields, MalformedReply, NUMBER_MAX_BYTES};

/// How long one step may take on a busy server.
pub(crate) const SEARCH_STEP: Duration = Duration::from_secs(10);
/// How long the whole search may take.
pub(crate) const SEARCH_MAX: Duration = Duration::from_secs(60);
/// How many pages of 500 keys one call searches: a few milliseconds.
const PAGES: u32 = 20;
/// The same for a forced `init`, which reports what one call found and does not continue.
const PAGES_OF_FORCE: u32 = 200;
/// How many holders are named.
const HOLDERS_MAX: usize = 20;
/// How much of a name or a label is shown.
const SHOWN_MAX_BYTES: usize = 200;
/// The longest outcome in an answer.
const OUTCOME_MAX_BYTES: usize = 20;

/// The progress of the search.
#[derive(Debug)]
pub(crate) struct Search {
    cursor: String,
    /// How many records were found; `+` behind the number if there may be more.
    pub(crate) count: String,
    /// How many holders were found.
    held: usize,
    /// The longest remaining time of a record, in milliseconds.
    longest_ms: String,
    /// The birth record at the beginning of the search.
    born: String,
    /// Name and label of the first holders.
    pub(crate) holders: Vec<(String, String)>,
}

/// The final answer of `init.lua`.
pub(crate) struct InitAnswer {
    pub(crate) clock_us: u64,
    pub(crate) outcome: String,
    pub(crate) born: Option<String>,
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
    /// Adds the state of the search to the arguments of `init.lua`.
    pub(crate) fn write(&self, cmd: &mut Pipeline, mode: InitMode) {
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

    /// Reads an answer of `init.lua`. `None` if the search continues.
    pub(crate) fn read_page(
        &mut self,
        mut fields: Fields,
    ) -> Result<Option<InitAnswer>, MalformedReply> {
        let clock = fields.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
        let clock_us = clock.parse().map_err(|_| MalformedReply)?;
        let outcome = fields.text(OUTCOME_MAX_BYTES)?.unwrap_or_default();
        let born = fields.text(BORN_MAX_BYTES)?;
        // Count and cursor are sent back to the server, and the count is shown.
        let count = fields.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
        let cursor = fields.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
        let longest_ms = fields.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
        let number = |text: &str| text.parse::<u64>().is_ok();
        if !number(count.trim_end_matches('+')) || !number(&cursor) {
            return Err(MalformedReply);
        }
        longest_ms.parse::<i64>().map_err(|_| MalformedReply)?;
        (self.count, self.longest_ms) = (count, longest_ms);
        let begins = self.cursor == "0";
        while fields.0.len() > 0 {
            let name = fields.cut_text(SHOWN_MAX_BYTES)?.ok_or(MalformedReply)?;
            let label = fields.cut_text(SHOWN_MAX_BYTES)?.ok_or(MalformedReply)?;
            self.held += 1;
            // A server that rehashes may return a key twice.
            let known = self.holders.iter().any(|(other, _)| *other == name);
            if self.holders.len() < HOLDERS_MAX && !known {
                self.holders.push((name, label));
            }
        }
        match outcome.as_str() {
            "more" => {
                self.cursor = cursor;
                if begins {
                    self.born = born.unwrap_or_default();
                }
                Ok(None)
            }
            // A client has joined meanwhile, and may have taken a lock in the part already
            // searched.
            "again" => {
                *self = Self::default();
                Ok(None)
            }
            _ => Ok(Some(InitAnswer {
                clock_us,
                outcome,
                born,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn read_page(
        search: &mut Search,
        texts: &[&str],
    ) -> Result<Option<InitAnswer>, MalformedReply> {
        let values = texts.iter().map(|text| match *text {
            "" => Value::Nil,
            text => Value::BulkString(text.as_bytes().to_vec()),
        });
        search.read_page(Fields(values.collect::<Vec<_>>().into_iter()))
    }

    #[test]
    fn the_parts_of_an_answer_are_bounded_and_checked() {
        let long = "7".repeat(100_000);
        let born = "b".repeat(BORN_MAX_BYTES + 1);
        for refused in [
            [&*long, "more", "", "1", "17", "-1"],
            ["9", &long, "", "1", "17", "-1"],
            ["9", "more", &born, "1", "17", "-1"],
            ["9", "more", "", &long, "17", "-1"],
            ["9", "more", "", "\u{1b}[2J", "17", "-1"],
            ["9", "more", "", "1", &long, "-1"],
            ["9", "more", "", "1", "x", "-1"],
            ["9", "more", "", "1", "17", "x"],
        ] {
            let mut search = Search::default();
            assert!(read_page(&mut search, &refused).is_err(), "{refused:.30?}");
        }
        let mut search = Search::default();
        let texts = ["9", "more", "", "1+", "17", "-1", &long, &long];
        assert!(read_page(&mut search, &texts).is_ok_and(|answer| answer.is_none()));
        assert_eq!((&*search.count, &*search.cursor), ("1+", "17"));
        let [(name, label)] = &search.holders[..] else {
            panic!("{} holders", search.holders.len());
        };
        assert!(name.len() < 300 && label.len() < 300);
    }
}
