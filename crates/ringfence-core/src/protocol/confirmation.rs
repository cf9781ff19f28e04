//! Which master a majority of the Sentinels of a group confirms, from what each of them answers.
//!
//! An old master that is cut off together with its clients and one Sentinel goes on serving. So one
//! Sentinel's word is not enough, and neither is the word of a majority that was given long ago. A
//! master is confirmed if a majority of **all** Sentinels of the group names its address under one
//! configuration epoch. [`super::Cluster`] decides how old the questions may be. What exactly is the
//! address that a majority gave is decided in `address`.
//!
//! Each Sentinel is asked for the epoch, the address and the epoch again, in one pipeline. While a
//! failover runs, a Sentinel shows the old address with the new epoch; an answer whose epochs
//! differ does not count.
//!
//! Pure: the caller asks the Sentinels, and passes answers and times.

mod address;

pub use address::MasterAddress;
use address::{Word, agreed};

use std::sync::Arc;
use std::time::Duration;

use crate::time::Timestamp;

use super::quorum;

/// What the Sentinels in the user's list last answered, and how many there are in all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SentinelGroupView {
    /// The Sentinels of the user's list.
    listed: Vec<Listed>,
    /// The number of Sentinels in the birth record.
    recorded: u32,
    /// How long a reported number counts.
    remember_for: Duration,
}

/// One entry of the user's list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Listed {
    last: Option<SentinelAnswer>,
    /// Numbers of Sentinels that it reported lately: an older entry has a larger number.
    reported: Vec<(Timestamp, u32)>,
}

/// What one Sentinel answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SentinelAnswer {
    /// Its id (`SENTINEL MYID`). Two entries of the list may be one Sentinel.
    pub id: Arc<str>,
    /// The master's address (`SENTINEL GET-MASTER-ADDR-BY-NAME`).
    pub master: MasterAddress,
    /// The configuration epoch that it reported before the address.
    pub epoch_before: u64,
    /// The configuration epoch that it reported after the address.
    pub epoch_after: u64,
    /// How many other Sentinels it knows (`num-other-sentinels`).
    pub others: u32,
    /// When the questions were sent.
    pub asked_at: Timestamp,
}

/// A master that a majority of all Sentinels confirms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConfirmedMaster {
    /// Its address: IPs that a majority gave, and a name for its certificate that a majority gave.
    pub address: MasterAddress,
    /// The configuration epoch.
    pub epoch: u64,
    /// When the oldest of the questions was sent whose answers make the majority.
    pub asked_at: Timestamp,
    /// How many Sentinels the group has.
    pub sentinels: u32,
    /// How many of them a majority of the user's list reports: the number for the birth record.
    /// Other clients believe that number, so nobody else's word is written there.
    pub reported: u32,
}

/// Why no master is confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unconfirmed {
    /// The user's list has too few Sentinels of the group.
    ListTooShort {
        /// How many Sentinels the list has.
        listed: u32,
        /// How many Sentinels the group has.
        total: u32,
    },
    /// Too few Sentinels answer.
    TooFewAnswer {
        /// How many answered.
        answered: u32,
        /// How many Sentinels the group has.
        total: u32,
    },
    /// Enough Sentinels answer, but no majority of them names one address under one epoch: a
    /// failover is in progress, or a part of them is cut off.
    Disagree {
        /// How many Sentinels the group has.
        total: u32,
    },
}

impl SentinelGroupView {
    /// The view before any answer. `listed`: how many Sentinels the user's list has.
    /// `remember_for`: the quarantine of the group.
    pub fn new(listed: usize, remember_for: Duration) -> Self {
        Self {
            listed: vec![Listed::default(); listed],
            recorded: 0,
            remember_for,
        }
    }

    /// Adopts the quarantine of the group.
    pub fn remember_for(&mut self, quarantine: Duration) {
        self.remember_for = quarantine;
    }

    /// Notes the number of Sentinels in the master's birth record.
    pub fn note_recorded(&mut self, sentinels: u32) {
        self.recorded = sentinels;
    }

    /// Takes the answer of the Sentinel at `index` of the list. An answer to an older question than
    /// the last one is ignored.
    pub fn handle_answer(&mut self, index: usize, answer: SentinelAnswer, now: Timestamp) {
        let Some(listed) = self.listed.get_mut(index) else {
            return;
        };
        if listed
            .last
            .as_ref()
            .is_some_and(|last| last.asked_at > answer.asked_at)
        {
            return;
        }
        let total = answer.others.saturating_add(1);
        let remember_for = self.remember_for;
        let counts = |at: Timestamp| now.since(at) <= remember_for;
        listed
            .reported
            .retain(|(at, larger)| *larger > total && counts(*at));
        listed.reported.push((now, total));
        listed.last = Some(answer);
    }

    /// How many Sentinels the group has: the largest number that is known.
    pub fn total(&self, now: Timestamp) -> u32 {
        self.reported(now)
            .max(self.recorded)
            .max(self.in_list())
            .max(1)
    }

    /// The largest number of Sentinels that a majority of the user's Sentinels has lately reported,
    /// this number or more. After `SENTINEL RESET` a Sentinel says that there are no others, and one
    /// that lies says any number: so the word of one is not enough.
    fn reported(&self, now: Timestamp) -> u32 {
        let lately = |(at, _): &&(Timestamp, u32)| now.since(*at) <= self.remember_for;
        let most_of = |id: &str| {
            let is_it = |listed: &&Listed| listed.last.as_ref().is_some_and(|last| &*last.id == id);
            let entries = self.listed.iter().filter(is_it);
            let reported = entries.flat_map(|listed| &listed.reported);
            let numbers = reported.filter(lately).map(|(_, number)| *number);
            numbers.max().unwrap_or(0)
        };
        let mut numbers: Vec<u32> = self.voices().map(|answer| most_of(&answer.id)).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let majority = quorum(self.in_list() as usize);
        numbers.get(majority - 1).copied().unwrap_or(0)
    }

    /// How many Sentinels the user's list has. Entries that have not answered yet count as
    /// different Sentinels.
    fn in_list(&self) -> u32 {
        let unknown = self
            .listed
            .iter()
            .filter(|listed| listed.last.is_none())
            .count();
        small(self.voices().count() + unknown)
    }

    /// The last answer of each entry of the list. Several may be of one Sentinel.
    fn answers(&self) -> impl Iterator<Item = &SentinelAnswer> {
        self.listed.iter().filter_map(|listed| listed.last.as_ref())
    }

    /// The last answer of each Sentinel. If two entries of the list are one Sentinel, the answer to
    /// the later question counts.
    fn voices(&self) -> impl Iterator<Item = &SentinelAnswer> {
        self.answers().enumerate().filter_map(|(i, answer)| {
            let mut others = self.answers().enumerate();
            let is_later = |(j, other): (usize, &SentinelAnswer)| {
                other.id == answer.id && (other.asked_at, j) > (answer.asked_at, i)
            };
            (!others.any(is_later)).then_some(answer)
        })
    }

    /// The master that a majority confirms, by the latest questions if there are several.
    pub fn confirmed(&self, now: Timestamp) -> Option<ConfirmedMaster> {
        let (sentinels, reported) = (self.total(now), self.reported(now));
        let majority = quorum(sentinels as usize);
        let steady = || self.answers().filter(|answer| answer.is_steady());
        let under = |epoch: u64| {
            let words = steady().filter(|answer| answer.epoch_before == epoch);
            let words: Vec<Word<'_>> = words.map(SentinelAnswer::word).collect();
            let (address, asked_at) = agreed(&words, majority)?;
            Some(ConfirmedMaster {
                address,
                epoch,
                asked_at,
                sentinels,
                reported,
            })
        };
        let mut epochs: Vec<u64> = steady().map(|answer| answer.epoch_before).collect();
        epochs.sort_unstable();
        epochs.dedup();
        let confirmed = epochs.into_iter().filter_map(under);
        confirmed.max_by_key(|found| (found.asked_at, found.epoch))
    }

    /// Why no master is confirmed by answers to questions that were sent at `since` or later.
    pub fn doubt(&self, since: Timestamp, now: Timestamp) -> Unconfirmed {
        let total = self.total(now);
        let (listed, majority) = (self.in_list(), small(quorum(total as usize)));
        let answered = small(
            self.voices()
                .filter(|answer| answer.asked_at >= since)
                .count(),
        );
        match () {
            () if listed < majority => Unconfirmed::ListTooShort { listed, total },
            () if answered < majority => Unconfirmed::TooFewAnswer { answered, total },
            () => Unconfirmed::Disagree { total },
        }
    }

    /// The last answer of the Sentinel at `index` of the list.
    pub fn last_answer(&self, index: usize) -> Option<&SentinelAnswer> {
        self.listed.get(index)?.last.as_ref()
    }
}

impl SentinelAnswer {
    /// Whether the epoch stayed the same while the address was read.
    pub fn is_steady(&self) -> bool {
        self.epoch_before == self.epoch_after
    }

    fn word(&self) -> Word<'_> {
        Word {
            elector: &self.id,
            address: &self.master,
            asked_at: self.asked_at,
        }
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
