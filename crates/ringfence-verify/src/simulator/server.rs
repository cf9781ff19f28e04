//! A simulated lock server: the product's ledger over a map, on its own clock. It has a run id, a
//! replication id and a role, and its data may be a copy of another server's. The product's own
//! rule, [`birth::judge`], decides when it has a new birth.

mod remains;

use std::collections::{BTreeMap, VecDeque};

use ringfence_core::group::{Failover, Group};
use ringfence_core::ledger::{self, Entry, Moment, Rules, birth};
use ringfence_core::message::{Answer, Op, ReplyStamp, Request, Wake};
use ringfence_core::name::Name;

use super::dial::Dial;
use super::released::ReleasedBallots;

use remains::holders;

/// A lock server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) dial: Dial,
    pub(super) durable: bool,
    /// Whether its process runs.
    pub(super) up: bool,
    role: Role,
    data: Dataset,
    group: Group,
    run_id: u64,
    /// `master_replid`, and `master_replid2` unless that is zero.
    replication_id: u64,
    former_id: Option<u64>,
    /// It has a replication backlog, because it was a replica or had one: another replica does not
    /// change its replication id.
    backlog: bool,
    /// Its number among all servers, and how many ids it has drawn: all ids are different.
    number: u64,
    drawn: u64,
}

/// Everything that a server keeps, and a replica copies.
#[derive(Debug, Clone, Default)]
struct Dataset {
    entries: BTreeMap<Name, Entry>,
    born: Option<Born>,
    released: ReleasedBallots,
}

#[derive(Debug)]
enum Role {
    Master,
    Replica {
        of: usize,
        /// How long a write takes to arrive, in nanoseconds.
        lag: u64,
        /// The writes on their way, each with its time of arrival.
        coming: VecDeque<(u64, DataCopy)>,
    },
}

/// A master's data for its replica: first a snapshot, then the data after each write.
#[derive(Debug, Clone)]
pub(super) struct DataCopy {
    data: Dataset,
    replication_id: u64,
}

/// A birth record: which incarnation of a server has kept its locks without a gap, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Born {
    record: birth::Incarnation<u64>,
    /// When this incarnation began, on the server's clock: different for each incarnation.
    pub(super) since_us: u64,
    /// The birth from which the quarantine counts; zero for a server that was initialised.
    pub(super) at_us: u64,
}

impl Born {
    /// Whether the server was ever seen to have a replica.
    pub(super) fn is_replicated(&self) -> bool {
        self.record.replicated
    }

    /// Whether a failover may replace the server.
    pub(super) fn is_replaceable(&self) -> bool {
        self.record.replicated || self.record.epoch.is_some()
    }

    /// The epoch of the Sentinels in the record.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.record.epoch
    }

    /// Whether the identity of a server matches the record. If not, a new handshake is needed.
    pub(super) fn is_of(&self, server: Identity) -> bool {
        self.record.replication_id == Some(server.replication_id)
            && (self.record.replicated || !server.has_replicas)
    }
}

/// What a server reports of itself, beside its birth record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) run_id: u64,
    pub(super) replication_id: u64,
    pub(super) has_replicas: bool,
}

/// The result of a request.
pub(super) struct Executed {
    pub(super) answer: Answer,
    pub(super) stamp: ReplyStamp,
    pub(super) wakes: Vec<Wake>,
    /// The names and holders that the request removed. (Expired leases are not included.)
    pub(super) removed: Vec<(String, String)>,
    /// The names on which a released holder holds again.
    pub(super) returned: Vec<String>,
}

impl Server {
    /// The server of this `number`: an initialised master.
    pub(super) fn new(
        number: usize,
        dial: Dial,
        durable: bool,
        group: Group,
        epoch: Option<u64>,
    ) -> Self {
        let mut server = Self {
            dial,
            durable,
            up: true,
            role: Role::Master,
            data: Dataset::default(),
            group,
            run_id: 0,
            replication_id: 0,
            former_id: None,
            backlog: false,
            number: number as u64,
            drawn: 0,
        };
        server.start();
        server.data.born = Some(Born {
            record: birth::Incarnation {
                run_id: server.run_id,
                replication_id: Some(server.replication_id),
                database: 0,
                epoch,
                replicated: false,
                durable,
            },
            // As if they had been initialised one after the other.
            since_us: server.number + 1,
            at_us: 0,
        });
        server
    }

    pub(super) fn clock_us(&self, now: u64) -> u64 {
        self.dial.at(now) / 1_000
    }

    pub(super) fn born(&self) -> Option<&Born> {
        self.data.born.as_ref()
    }

    pub(super) fn identity(&self, has_replicas: bool) -> Identity {
        Identity {
            run_id: self.run_id,
            replication_id: self.replication_id,
            has_replicas,
        }
    }

    /// The server that it follows, if it is a replica.
    pub(super) fn follows(&self) -> Option<usize> {
        match &self.role {
            Role::Master => None,
            Role::Replica { of, .. } => Some(*of),
        }
    }

    /// The handshake, as `join.lua` does it. `None` on a replica, which accepts no writes, and if
    /// the server is no longer the one that the client saw. `replicas`: whether it has replicas now,
    /// and whether the client knows that it had any.
    pub(super) fn join(
        &mut self,
        now: u64,
        (has_replicas, replicas_seen): (bool, bool),
        epoch: Option<u64>,
        seen: Option<Identity>,
    ) -> Option<Born> {
        let is_seen = seen.is_none_or(|seen| {
            (seen.run_id, seen.replication_id) == (self.run_id, self.replication_id)
        });
        if self.follows().is_some() || !is_seen {
            return None;
        }
        let present = birth::Present {
            unseen: false,
            run_id: self.run_id,
            replication_id: Some(self.replication_id),
            database: 0,
            former_id: self.former_id.is_some(),
            // `repl-backlog-ttl` has its default: an hour is longer than any quarantine here.
            former_id_lasts: true,
            has_replicas,
            durable: self.durable && !replicas_seen,
            epoch,
            lossless: self.group.failover == Failover::Lossless,
        };
        let clock_us = self.clock_us(now);
        let stands = self.data.born.as_ref();
        let (since_us, at_us) = stands.map_or((0, 0), |born| (born.since_us, born.at_us));
        let born = match birth::judge(stands.map(|born| &born.record), &present) {
            birth::BirthVerdict::Keep => return self.data.born.clone(),
            birth::BirthVerdict::NeedsSentinels => return None,
            birth::BirthVerdict::Update(record) => Born {
                record,
                since_us,
                at_us,
            },
            birth::BirthVerdict::Birth(record) => Born {
                record,
                since_us: birth::since_us(clock_us, stands.map(|born| born.since_us)),
                at_us: clock_us,
            },
        };
        self.data.born = Some(born.clone());
        Some(born)
    }

    /// Loses all data, including the birth record.
    pub(super) fn forget(&mut self) {
        self.data = Dataset::default();
    }

    /// Ends; the next run begins as a master, because the role is not in its settings.
    pub(super) fn crash(&mut self) {
        self.up = false;
        self.role = Role::Master;
        self.start();
        if !self.durable {
            self.forget();
        }
    }

    fn start(&mut self) {
        self.run_id = self.draw();
        self.replication_id = self.draw();
        self.former_id = None;
        self.backlog = false;
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.number << 32 | self.drawn
    }

    /// A replica attaches to this server and gets its current data. The first replica changes the
    /// replication id, and the server remembers no former id.
    pub(super) fn attach(&mut self) -> DataCopy {
        if !self.backlog {
            self.replication_id = self.draw();
            self.former_id = None;
            self.backlog = true;
        }
        self.copy()
    }

    /// The data that its replica is to have.
    pub(super) fn copy(&self) -> DataCopy {
        DataCopy {
            data: self.data.clone(),
            replication_id: self.replication_id,
        }
    }

    /// Becomes a replica of the server `of`, whose data is `first` now. It keeps its own data until
    /// `first` arrives.
    pub(super) fn follow(&mut self, of: usize, lag: u64, first: DataCopy, now: u64) {
        let coming = VecDeque::from([(now + lag, first)]);
        self.role = Role::Replica { of, lag, coming };
    }

    /// Its master has written something.
    pub(super) fn receive(&mut self, copy: DataCopy, now: u64) {
        if let Role::Replica { lag, coming, .. } = &mut self.role {
            coming.push_back((now + *lag, copy));
        }
        self.catch_up(now);
    }

    /// Applies the writes of its master that have arrived.
    pub(super) fn catch_up(&mut self, now: u64) {
        let Role::Replica { coming, .. } = &mut self.role else {
            return;
        };
        let arrived = coming.iter().take_while(|(at, _)| *at <= now).count();
        if let Some((_, copy)) = coming.drain(..arrived).next_back() {
            self.data = copy.data;
            self.replication_id = copy.replication_id;
            self.former_id = None;
            self.backlog = true;
        }
    }

    /// A replica becomes a master without a restart. Writes that have not arrived are lost.
    pub(super) fn promote(&mut self, now: u64) {
        self.catch_up(now);
        self.role = Role::Master;
        self.former_id = Some(self.replication_id);
        self.replication_id = self.draw();
        self.backlog = true;
    }

    /// Executes `request`, if its sender knows the current incarnation.
    pub(super) fn execute(
        &mut self,
        request: &Request,
        known: &Born,
        unchecked: bool,
        now: u64,
    ) -> Option<Executed> {
        let born = self.data.born.as_ref()?;
        if born != known || !self.may_execute(&request.op, &born.record, unchecked) {
            return None;
        }
        let moment = Moment::of_clock(self.clock_us(now));
        let rules = Rules::of_incarnation(&self.group, born.at_us, born.is_replaceable());
        let names = || request.claims.iter().map(|claim| &claim.name);
        let entry = |name| self.data.entries.get(name).cloned().unwrap_or_default();
        let mut entries: Vec<Entry> = names().map(entry).collect();
        // The key of the admission record counts permits and has no holder.
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
        // In a quarantine a restore may replace a holder whose release was lost in the failover.
        let quarantined = moment.clock_us < rules.grants_from_us;
        let replaces = quarantined && matches!(request.op, Op::Restore(_));
        for ((name, entry), before) in names().zip(entries).zip(before) {
            let after = holders(&entry, moment);
            let gone = |holder: &String| !replaces && !after.contains(holder);
            for holder in before.into_iter().filter(gone) {
                removed.push((name.to_string(), holder));
            }
            if entry == Entry::default() {
                self.data.entries.remove(name);
            } else {
                self.data.entries.insert(name.clone(), entry);
            }
        }
        let ceiling_us = moment.clock_us + rules.window_us;
        let released = &mut self.data.released;
        let returned = released.note(request, &outcome.answer, &removed, ceiling_us);
        Some(Executed {
            returned,
            answer: outcome.answer,
            stamp: outcome.stamp,
            wakes: outcome.wakes,
            removed,
        })
    }

    /// Whether the server matches its birth record, as far as `op` depends on it. A replica writes
    /// nothing. A holder is written only under the replication id of the record: always on a server
    /// that is known to be replicated, otherwise if the client has not checked it recently.
    fn may_execute(&self, op: &Op, record: &birth::Incarnation<u64>, unchecked: bool) -> bool {
        let is_master = self.follows().is_none();
        if !is_master {
            return op.only_looks();
        }
        let id = Some(self.replication_id);
        !op.writes_holder()
            || record.stands_for(is_master, id.as_ref())
                && (!unchecked || record.replication_id == id)
    }
}
