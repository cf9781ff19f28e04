//! `ringfence init`: the operator declares that a node is new. The node is searched for locks
//! first.

use std::time::Duration;

use redis::{Pipeline, Value};

use crate::group::Group;
use crate::node::redis::codec::reply::{Fields, MalformedReply, NUMBER_MAX_BYTES};
use crate::node::redis::scripts::{BORN_KEY, SCRIPTS};
use crate::node::redis::session::Membership;
use crate::node::redis::wire::Connection;
use crate::node::{CallError, Facts, InitMode, TroubleKind};
use crate::time::Timestamp;

use super::Handshake;
use super::born::{BORN_MAX_BYTES, BirthRecord, group_fields};
use super::server::Server;

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

/// When a question was sent and when its answer arrived.
type Times = (Timestamp, Timestamp);

impl Handshake {
    /// Lets the node vote at once, unless it holds locks or votes already; or checks whether it
    /// could.
    pub(crate) async fn init(
        &self,
        connection: &mut Connection,
        server: &Server,
        group: &Group,
        mode: InitMode,
    ) -> Result<(Option<Membership>, Facts), CallError> {
        let mut search = Search::default();
        let (answer, times) = self
            .search(&mut search, connection, server, group, mode)
            .await?;
        let InitAnswer {
            clock_us,
            outcome,
            born,
        } = answer;
        if outcome == "changed" {
            return Err(self.changed());
        }
        let born = born.as_deref().map(|text| self.read_born(text));
        let born = born.transpose()?;
        let found = format!("{} lock records{}", search.count, held_now(&search.holders));
        match (outcome.as_str(), born) {
            ("done", Some(born)) => {
                if search.count != "0" {
                    let node = &self.reporter.node;
                    tracing::warn!(
                        target: "ringfence", %node,
                        "declared new although it has {found}; two clients may then hold the same \
                         lock"
                    );
                }
                let (membership, facts) = self.member(server, born, clock_us, times);
                Ok((Some(membership), facts))
            }
            ("free", born) => Ok((None, self.facts(server, born.as_ref(), clock_us, times))),
            (outcome, born) => Err(self.not_new(outcome, born.as_ref(), group, &found)),
        }
    }

    /// Searches the node, page by page, until the script has decided.
    async fn search(
        &self,
        search: &mut Search,
        connection: &mut Connection,
        server: &Server,
        group: &Group,
        mode: InitMode,
    ) -> Result<(InitAnswer, Times), CallError> {
        let begun = self.clock.now();
        loop {
            let mut pipe = redis::pipe();
            pipe.cmd("EVAL")
                .arg(&SCRIPTS.init.text)
                .arg(1)
                .arg(BORN_KEY);
            pipe.arg(&server.run_id)
                .arg(server.replication_id.as_deref().unwrap_or("-"))
                .arg(u8::from(server.durable))
                .arg(word_of(mode))
                .arg(server.epoch_text())
                .arg(server.sentinels)
                .arg(server.database)
                .arg(&group_fields(group))
                .arg(&group_fields(&Group::new(group.nodes)));
            search.write(&mut pipe, mode);
            let sent = self.clock.now();
            let answers = tokio::time::timeout(SEARCH_STEP, connection.ask(pipe)).await;
            let answers = answers.map_err(|_| self.hangs())?;
            let answers = answers.map_err(|e| self.unknown(&e))?;
            let received = self.clock.now();
            let fields = match answers.into_iter().next().unwrap_or(Value::Nil) {
                Value::ServerError(error) => {
                    return Err(CallError::Refused(self.reporter.init_error(&error)));
                }
                answer => self.fields(answer)?,
            };
            match self.shaped(search.read_page(fields))? {
                Some(answer) => return Ok((answer, (sent, received))),
                None if begun + SEARCH_MAX <= received => return Err(self.unsearched()),
                None => {}
            }
        }
    }

    /// Why the node is not declared new, by the script's `outcome`.
    fn not_new(
        &self,
        outcome: &str,
        born: Option<&BirthRecord>,
        group: &Group,
        found: &str,
    ) -> CallError {
        let doubled = "if it is declared new by force, two clients may then hold the same lock";
        let what = match (outcome, born) {
            ("votes", Some(_)) => format!("votes already and has {found}; {doubled}"),
            ("holders", _) => {
                format!("has {found}; stop all clients and try again when their locks have ended")
            }
            ("recent", Some(born)) => format!(
                "was in use less than {:?} ago; stop all clients and wait for that long",
                born.group.quarantine
            ),
            ("group", Some(born)) => {
                let born = &born.group;
                let what = format!("belongs to a group of {born}, not {group}");
                return self.refused(TroubleKind::Group, what);
            }
            ("records", _) => format!("is not new, it has {found}; {doubled}"),
            _ => return CallError::Refused(self.reporter.garbage()),
        };
        self.refused(TroubleKind::Other, what)
    }

    /// An unfinished search does not prove that the node has no locks.
    fn unsearched(&self) -> CallError {
        self.refused(
            TroubleKind::Other,
            format!(
                "has too many keys to be searched for locks within {SEARCH_MAX:?}; give locks a \
                 server or a database of their own"
            ),
        )
    }

    fn hangs(&self) -> CallError {
        let what = format!("has not answered a step of `init` within {SEARCH_STEP:?}");
        CallError::Unknown(self.reporter.trouble(TroubleKind::Timeout, what))
    }
}

/// The script's name for `mode`.
fn word_of(mode: InitMode) -> &'static str {
    match mode {
        InitMode::Check => "check",
        InitMode::Write => "write",
        InitMode::Force => "force",
        InitMode::CheckRegroup => "check regroup",
        InitMode::Regroup => "regroup",
    }
}

/// A description of the holders that were found.
fn held_now(holders: &[(String, String)]) -> String {
    let shown = holders.iter().map(|(name, label)| {
        let (name, label) = (name.escape_debug(), label.escape_debug());
        format!("`{name}` by {label}")
    });
    match shown.collect::<Vec<_>>().as_slice() {
        [] => ", none of them held now".to_owned(),
        held => format!(", held now: {}", held.join(", ")),
    }
}

/// The progress of the search for locks. A server may have millions of keys of other programs, and a
/// script stops the whole server while it runs. So each call searches a few pages, and the next call
/// continues there.
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
