//! The store of the in-memory node: its entries, and its answers without faults.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::Group;
use crate::ledger::{self, Entry, Moment, Rules};
use crate::message::{Op, Reply, Request, Standing, Wake};
use crate::name::Name;
use crate::node::embedded::{Store, list_portion, not_joined, not_new};
use crate::node::{CallError, Facts, InitMode, NodeClock, Tier};

/// With fewer names than this, lapsed entries are not swept.
const SWEEP_FROM: usize = 1024;

pub(super) struct MemoryStore {
    clock: NodeClock,
    entries: HashMap<Name, Entry>,
    sweep_at: usize,
    wakes: Vec<Wake>,
    born: Option<Born>,
    serial: u64,
    incarnation: u64,
    /// The number of `run_id()`.
    server: u64,
}

struct Born {
    at_us: u64,
    group: Group,
}

impl MemoryStore {
    pub(super) fn new(clock: NodeClock) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let mut store = Self {
            clock,
            entries: HashMap::new(),
            sweep_at: SWEEP_FROM,
            wakes: Vec::new(),
            born: None,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            incarnation: 1,
            server: 0,
        };
        store.server = Standing::server_of(&store.run_id());
        store
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn entries(&self) -> Vec<(Name, Entry)> {
        let mut entries: Vec<_> = self.entries.clone().into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries
    }

    pub(super) fn entry(&self, name: &Name) -> Entry {
        self.entries.get(name).cloned().unwrap_or_default()
    }

    /// The wakes since the last call of this function.
    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        mem::take(&mut self.wakes)
    }

    /// A restart without its data. Clients that had joined do the handshake again at once.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn forget(&mut self) {
        self.entries.clear();
        self.incarnation += 1;
        self.server = Standing::server_of(&self.run_id());
        if let Some(born) = &mut self.born {
            born.at_us = self.clock.now_us();
        }
    }

    fn standing(&self, clock_us: u64) -> Option<Standing> {
        self.born.as_ref().map(|born| Standing {
            incarnation: self.incarnation,
            born_us: born.at_us,
            clock_us,
            server: self.server,
            replicated: false,
            epoch: None,
        })
    }

    fn run_id(&self) -> String {
        let (process, serial) = (std::process::id(), self.serial);
        format!("memory-{process}-{serial}-{}", self.incarnation)
    }

    fn facts(&self) -> Facts {
        let clock_us = self.clock.now_us();
        let now = self.clock.now();
        Facts {
            standing: self.standing(clock_us),
            clock_us,
            sent: now,
            received: now,
            group: self.born.as_ref().map(|born| born.group),
            run_id: self.run_id(),
            version: concat!("memory ", env!("CARGO_PKG_VERSION")).to_owned(),
            tier: self.tier(),
        }
    }

    /// What a restart costs. A single node in memory has no quarantine.
    pub(super) fn tier(&self) -> Tier {
        let alone = self.born.as_ref().is_some_and(|born| born.group.nodes == 1);
        match alone {
            true => Tier::BestEffort,
            false => Tier::Quarantined,
        }
    }

    /// Removes lapsed entries each time the map has doubled: amortised constant work per call.
    fn sweep(&mut self, rules: &Rules, now: Moment) {
        if self.entries.len() < self.sweep_at {
            return;
        }
        self.entries.retain(|_, entry| !entry.is_lapsed(rules, now));
        self.sweep_at = SWEEP_FROM.max(self.entries.len() * 2);
    }
}

impl MemoryStore {
    /// The first `most` names behind `cursor`.
    fn names_behind(&self, cursor: &str, most: u32) -> Vec<String> {
        let names = self.entries.keys().map(Name::as_str);
        let mut names: Vec<&str> = names.filter(|name| *name > cursor).collect();
        names.sort_unstable();
        let first = names.into_iter().take(most as usize);
        first.map(str::to_owned).collect()
    }

    fn apply(&mut self, request: &Request) -> Result<Reply, CallError> {
        let now = Moment::of_clock(self.clock.now_us());
        let standing = self.standing(now.clock_us).ok_or_else(not_joined)?;
        let group = self.born.as_ref().map(|born| born.group);
        let rules = Rules::of_group(&group.ok_or_else(not_joined)?);
        let names = || request.claims.iter().map(|claim| &claim.name);
        let mut entries: Vec<Entry> = names().map(|name| self.entry(name)).collect();
        let outcome = ledger::apply(&rules, now, &mut entries, request);
        for (name, entry) in names().zip(entries) {
            if entry == Entry::default() {
                self.entries.remove(name);
            } else {
                self.entries.insert(name.clone(), entry);
            }
        }
        self.sweep(&rules, now);
        self.wakes.extend(outcome.wakes);
        Ok(Reply {
            stamp: (!request.op.is_plain()).then_some(outcome.stamp),
            standing,
            answer: outcome.answer,
        })
    }
}

impl Store for MemoryStore {
    fn carry_out(&mut self, request: &Request) -> Result<Reply, CallError> {
        match &request.op {
            Op::List(list) => list_portion(
                self,
                request,
                list,
                |store, cursor, most| Ok(store.names_behind(cursor, most)),
                Self::apply,
            ),
            _ => self.apply(request),
        }
    }

    fn probe(&mut self) -> Result<Facts, CallError> {
        Ok(self.facts())
    }

    fn join(&mut self, group: Group) -> Result<Facts, CallError> {
        match &self.born {
            Some(born) if born.group != group => {
                return Err(CallError::other_group(&born.group, &group));
            }
            Some(_) => {}
            None => {
                let at_us = self.clock.now_us();
                self.born = Some(Born { at_us, group });
            }
        }
        Ok(self.facts())
    }

    fn init(&mut self, group: Group, mode: InitMode) -> Result<Facts, CallError> {
        let now_us = self.clock.now_us();
        let held = |entry: &Entry| {
            let until_ms = entry.key.as_ref().map(|key| key.until_ms);
            until_ms.is_some_and(|until| until.is_none_or(|until| until > now_us / 1000))
        };
        if mode.regroups() && self.entries.values().any(held) {
            return Err(not_new("it holds locks"));
        }
        let force = mode == InitMode::Force || mode.regroups();
        if !force && !self.entries.is_empty() {
            return Err(not_new("it holds locks or remembers some"));
        }
        if !force && self.born.as_ref().is_some_and(|born| born.votes(now_us)) {
            return Err(not_new("it votes already"));
        }
        if mode.writes() {
            self.born = Some(Born { at_us: 0, group });
        }
        Ok(self.facts())
    }
}

impl Born {
    fn votes(&self, now_us: u64) -> bool {
        let quarantine_us = u64::try_from(self.group.quarantine.as_micros()).unwrap_or(u64::MAX);
        self.group.nodes == 1 || now_us.saturating_sub(self.at_us) > quarantine_us
    }
}
