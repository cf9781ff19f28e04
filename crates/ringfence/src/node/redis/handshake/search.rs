//! How far `init` has come with its search for locks. A server may have millions of keys of other
//! programs, and a script stops the whole server while it runs: so each call searches a few pages, and
//! the next one goes on from where it ended.

use std::time::Duration;

use redis::Pipeline;

use crate::node::InitMode;

use super::born::BORN_MAX_BYTES;
use crate::node::redis::reply::{Fields, Misshapen, NUMBER_MAX_BYTES};

/// How long one step may take: the server is there, but busy with others.
pub(crate) const SEARCH_STEP: Duration = Duration::from_secs(10);
/// How long the whole search may take.
pub(crate) const SEARCH_MAX: Duration = Duration::from_secs(60);
/// How many pages of 500 keys are searched at once: a few milliseconds.
const PAGES: u32 = 20;
/// The same where nobody waits for the end of it: whoever forces an `init` is told what one call found.
const PAGES_OF_FORCE: u32 = 200;
/// How many holders are named.
const HOLDERS_MAX: usize = 20;
/// How much of a name or a label is shown.
const SHOWN_MAX_BYTES: usize = 200;
/// The longest word of an answer.
const WORD_MAX_BYTES: usize = 20;

/// How far the search has come.
#[derive(Debug)]
pub(crate) struct Search {
    cursor: String,
    /// How many records were found; `+` behind the number if there may be more.
    pub(crate) count: String,
    /// How many holders were found.
    held: usize,
    /// The longest time that one of the records has left, in milliseconds.
    longest_ms: String,
    /// The birth record that stood there when the search began.
    born: String,
    /// Name and label of the first holders.
    pub(crate) holders: Vec<(String, String)>,
}

/// What `init.lua` says in the end.
pub(crate) struct InitAnswer {
    pub(crate) clock_us: u64,
    pub(crate) word: String,
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
    /// Adds what `init.lua` has to know of the search.
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

    /// Takes an answer of `init.lua`. `None` if the search goes on.
    pub(crate) fn hear(&mut self, mut fields: Fields) -> Result<Option<InitAnswer>, Misshapen> {
        let clock = fields.text(NUMBER_MAX_BYTES)?.ok_or(Misshapen)?;
        let clock_us = clock.parse().map_err(|_| Misshapen)?;
        let word = fields.text(WORD_MAX_BYTES)?.unwrap_or_default();
        let born = fields.text(BORN_MAX_BYTES)?;
        // Count and cursor are sent back, and the count is shown.
        let count = fields.text(NUMBER_MAX_BYTES)?.ok_or(Misshapen)?;
        let cursor = fields.text(NUMBER_MAX_BYTES)?.ok_or(Misshapen)?;
        let longest_ms = fields.text(NUMBER_MAX_BYTES)?.ok_or(Misshapen)?;
        let number = |text: &str| text.parse::<u64>().is_ok();
        if !number(count.trim_end_matches('+')) || !number(&cursor) {
            return Err(Misshapen);
        }
        longest_ms.parse::<i64>().map_err(|_| Misshapen)?;
        (self.count, self.longest_ms) = (count, longest_ms);
        let begins = self.cursor == "0";
        while fields.0.len() > 0 {
            let name = fields.cut_text(SHOWN_MAX_BYTES)?.ok_or(Misshapen)?;
            let label = fields.cut_text(SHOWN_MAX_BYTES)?.ok_or(Misshapen)?;
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

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn hear(search: &mut Search, texts: &[&str]) -> Result<Option<InitAnswer>, Misshapen> {
        let values = texts.iter().map(|text| match *text {
            "" => Value::Nil,
            text => Value::BulkString(text.as_bytes().to_vec()),
        });
        search.hear(Fields(values.collect::<Vec<_>>().into_iter()))
    }

    #[test]
    fn what_is_sent_back_and_shown_of_an_answer_has_a_length_and_a_shape() {
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
            assert!(hear(&mut search, &refused).is_err(), "{refused:.30?}");
        }
        let mut search = Search::default();
        let texts = ["9", "more", "", "1+", "17", "-1", &long, &long];
        assert!(hear(&mut search, &texts).is_ok_and(|answer| answer.is_none()));
        assert_eq!((&*search.count, &*search.cursor), ("1+", "17"));
        let [(name, label)] = &search.holders[..] else {
            panic!("{} holders", search.holders.len());
        };
        assert!(name.len() < 300 && label.len() < 300);
    }
}
