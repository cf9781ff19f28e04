//! A simulated lock server: the product's ledger over a map, on a clock of its own, with a birth.

use std::collections::BTreeMap;

use ringfence::group::Group;
use ringfence::ledger::{self, Entry, Moment, Rules, SHARED};
use ringfence::message::{Answer, Op, Request, Stamp, Wake};
use ringfence::name::Name;
use ringfence::token::public_half;

use super::dial::Dial;
use super::given_back::GivenBack;

/// A lock server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) dial: Dial,
    pub(super) durable: bool,
    /// Whether it runs at all.
    pub(super) up: bool,
    entries: BTreeMap<Name, Entry>,
    group: Group,
    born: Option<Born>,
    given_back: GivenBack,
    /// Counts what it forgot.
    incarnations: u64,
    /// Counts its runs.
    pub(super) runs: u64,
}

/// Since when a server has kept locks without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Born {
    pub(super) incarnation: u64,
    pub(super) at_us: u64,
}

/// What came of a request.
pub(super) struct Carried {
    pub(super) answer: Answer,
    pub(super) stamp: Stamp,
    pub(super) wakes: Vec<Wake>,
    /// Who was taken off which name, other than by time.
    pub(super) removed: Vec<(String, String)>,
    /// On which names it brought back what had been given back.
    pub(super) returned: Vec<String>,
}

impl Server {
    /// A server that was declared grown up.
    pub(super) fn new(dial: Dial, durable: bool, group: Group) -> Self {
        Self {
            dial,
            durable,
            up: true,
            entries: BTreeMap::new(),
            group,
            born: Some(Born {
                incarnation: 1,
                at_us: 0,
            }),
            given_back: GivenBack::default(),
            incarnations: 1,
            runs: 1,
        }
    }

    pub(super) fn clock_us(&self, now: u64) -> u64 {
        self.dial.at(now) / 1_000
    }

    pub(super) fn born(&self) -> Option<Born> {
        self.born
    }

    /// The handshake: a birth is written where there is none.
    pub(super) fn join(&mut self, now: u64) -> Born {
        let at_us = self.clock_us(now);
        if self.born.is_none() {
            self.incarnations += 1;
        }
        let incarnation = self.incarnations;
        *self.born.get_or_insert(Born { incarnation, at_us })
    }

    /// Loses all it has, its birth included.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
        self.given_back = GivenBack::default();
        self.born = None;
    }

    /// Carries out `request`, if it comes from somebody who knows the present incarnation.
    pub(super) fn carry_out(
        &mut self,
        request: &Request,
        incarnation: u64,
        now: u64,
    ) -> Option<Carried> {
        if self.born?.incarnation != incarnation {
            return None;
        }
        let moment = Moment::of_clock(self.clock_us(now));
        let rules = Rules::of_group(&self.group);
        let names = || request.claims.iter().map(|claim| &claim.name);
        let entry = |name| self.entries.get(name).cloned().unwrap_or_default();
        let mut entries: Vec<Entry> = names().map(entry).collect();
        // The gate's key counts permits: nobody holds it.
        let semaphore = matches!(
            request.op,
            Op::AcquireSlot { .. } | Op::ReleaseSlot { .. } | Op::RefreshSlots { .. }
        );
        let before: Vec<Vec<String>> = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| match semaphore && at == 0 {
                true => Vec::new(),
                false => holders(entry, moment),
            })
            .collect();
        let outcome = ledger::apply(&rules, moment, &mut entries, request);
        let mut removed = Vec::new();
        for ((name, entry), before) in names().zip(entries).zip(before) {
            let after = holders(&entry, moment);
            for holder in before.into_iter().filter(|holder| !after.contains(holder)) {
                removed.push((name.to_string(), holder));
            }
            if entry == Entry::default() {
                self.entries.remove(name);
            } else {
                self.entries.insert(name.clone(), entry);
            }
        }
        let ceiling_us = moment.clock_us + rules.window_us;
        let given_back = &mut self.given_back;
        let returned = given_back.note(request, &outcome.answer, &removed, ceiling_us);
        Some(Carried {
            returned,
            answer: outcome.answer,
            stamp: outcome.stamp,
            wakes: outcome.wakes,
            removed,
        })
    }

    /// What still stands at `now`, by name: holders and, if `places`, those who wait.
    pub(super) fn remains(&self, now: u64, places: bool) -> Vec<(String, String)> {
        let moment = Moment::of_clock(self.clock_us(now));
        let mut remains = Vec::new();
        for (name, entry) in &self.entries {
            if name.as_str().contains("gate:") {
                // Its key is the number of permits, which is kept for the next.
            } else {
                for holder in holders(entry, moment) {
                    remains.push((name.to_string(), format!("a lease of {holder}")));
                }
            }
            let stands = entry
                .line
                .tickets
                .iter()
                .filter(|t| t.until_ms >= moment.lease_ms);
            for ticket in stands.filter(|_| places) {
                remains.push((name.to_string(), format!("a place for {}", ticket.id)));
            }
        }
        remains
    }
}

/// Who holds the entry alone or shares it, by the public half of the token.
fn holders(entry: &Entry, now: Moment) -> Vec<String> {
    let public = |token: &str| public_half(token).unwrap_or(token).to_owned();
    let stands = |until_ms: Option<u64>| until_ms.is_none_or(|until| until >= now.lease_ms);
    match &entry.key {
        Some(key) if key.value == SHARED => {
            let readers = entry.readers.iter().filter(|r| stands(Some(r.until_ms)));
            readers.map(|reader| public(&reader.token)).collect()
        }
        Some(key) if stands(key.until_ms) => vec![public(&key.value)],
        _ => Vec::new(),
    }
}
