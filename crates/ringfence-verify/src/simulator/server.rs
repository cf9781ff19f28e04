//! A simulated lock server: the product's ledger over a map, on a clock of its own. It has a run id, a
//! replication id and a role, and its data may be a copy of another server's. When it counts as born
//! anew is decided by the product's own rule, [`birth::judge`].

use std::collections::{BTreeMap, VecDeque};

use ringfence_core::group::Group;
use ringfence_core::ledger::{self, Entry, Moment, Rules, SHARED, birth};
use ringfence_core::message::{Answer, Op, Request, Stamp, Wake};
use ringfence_core::name::Name;
use ringfence_core::token::public_half;

use super::dial::Dial;
use super::given_back::GivenBack;

/// A lock server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) dial: Dial,
    pub(super) durable: bool,
    /// Whether it runs at all.
    pub(super) up: bool,
    role: Role,
    data: Dataset,
    group: Group,
    run_id: u64,
    /// `master_replid`, and `master_replid2` unless that is zero.
    replication_id: u64,
    former_id: Option<u64>,
    /// It has a replication backlog, since it was a replica or had one: another replica does not
    /// change its replication id.
    backlog: bool,
    /// Its number among all servers, and how many ids it has drawn: no two ids are the same.
    number: u64,
    drawn: u64,
}

/// All that a server keeps, and a replica copies.
#[derive(Debug, Clone, Default)]
struct Dataset {
    entries: BTreeMap<Name, Entry>,
    born: Option<Born>,
    given_back: GivenBack,
}

#[derive(Debug)]
enum Role {
    Master,
    Replica {
        of: usize,
        /// How long a write takes to get here, in nanoseconds.
        lag: u64,
        /// What is on its way, each with the time at which it arrives.
        coming: VecDeque<(u64, Copy)>,
    },
}

/// A master's data as a replica gets it: a snapshot at first, then what each write made of it.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    data: Dataset,
    replication_id: u64,
}

/// A birth record: which incarnation of a server has kept locks without a gap, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Born {
    record: birth::Record<u64>,
    /// When this incarnation began, on the server's clock: two of them never have the same.
    pub(super) since_us: u64,
    /// The birth that the quarantine counts from; zero for a server that was declared grown up.
    pub(super) at_us: u64,
}

impl Born {
    /// Whether a server that says this of itself is as the record has it: if not, hands must be shaken
    /// again.
    pub(super) fn is_of(&self, server: Identity) -> bool {
        self.record.replication_id == Some(server.replication_id)
            && (self.record.replicated || !server.has_replicas)
    }
}

/// What a server says of itself, beside its birth record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) run_id: u64,
    pub(super) replication_id: u64,
    pub(super) has_replicas: bool,
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
    /// The server of this `number`: a master that was declared grown up.
    pub(super) fn new(number: usize, dial: Dial, durable: bool, group: Group) -> Self {
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
            record: birth::Record {
                run_id: server.run_id,
                replication_id: Some(server.replication_id),
                epoch: None,
                replicated: false,
                durable,
            },
            // As if they had been declared so one after the other.
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

    /// Whose replica it is, if it is one.
    pub(super) fn follows(&self) -> Option<usize> {
        match &self.role {
            Role::Master => None,
            Role::Replica { of, .. } => Some(*of),
        }
    }

    /// The handshake, as `join.lua` does it. `None` on a replica, which takes no writes.
    pub(super) fn join(&mut self, now: u64, has_replicas: bool) -> Option<Born> {
        if self.follows().is_some() {
            return None;
        }
        let present = birth::Present {
            run_id: self.run_id,
            replication_id: Some(self.replication_id),
            former_id: self.former_id.is_some(),
            // Nobody configured `repl-backlog-ttl`: an hour is longer than any quarantine here.
            former_id_lasts: true,
            has_replicas,
            durable: self.durable,
            epoch: None,
        };
        let clock_us = self.clock_us(now);
        let stands = self.data.born.as_ref();
        let (since_us, at_us) = stands.map_or((0, 0), |born| (born.since_us, born.at_us));
        let born = match birth::judge(stands.map(|born| &born.record), &present) {
            birth::Verdict::Keep => return self.data.born.clone(),
            birth::Verdict::NeedsSentinels => return None,
            birth::Verdict::Update(record) => Born {
                record,
                since_us,
                at_us,
            },
            birth::Verdict::Birth(record) => Born {
                record,
                since_us: birth::since_us(clock_us, stands.map(|born| born.since_us)),
                at_us: clock_us,
            },
        };
        self.data.born = Some(born.clone());
        Some(born)
    }

    /// Loses all it has, its birth included.
    pub(super) fn forget(&mut self) {
        self.data = Dataset::default();
    }

    /// Ends, and will begin another run: as a master, since nobody wrote its role into its settings.
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

    /// A replica attaches to this server and gets what it has now. The first one changes the
    /// replication id, and the server remembers no former one.
    pub(super) fn attach(&mut self) -> Copy {
        if !self.backlog {
            self.replication_id = self.draw();
            self.former_id = None;
            self.backlog = true;
        }
        self.copy()
    }

    /// What its replica is to have.
    pub(super) fn copy(&self) -> Copy {
        Copy {
            data: self.data.clone(),
            replication_id: self.replication_id,
        }
    }

    /// Becomes a replica of the server `of`, which has `first` now. Until that has arrived it keeps
    /// what it has.
    pub(super) fn follow(&mut self, of: usize, lag: u64, first: Copy, now: u64) {
        let coming = VecDeque::from([(now + lag, first)]);
        self.role = Role::Replica { of, lag, coming };
    }

    /// Its master has written something.
    pub(super) fn receive(&mut self, copy: Copy, now: u64) {
        if let Role::Replica { lag, coming, .. } = &mut self.role {
            coming.push_back((now + *lag, copy));
        }
        self.catch_up(now);
    }

    /// Takes what has arrived of its master's writes.
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

    /// A replica becomes a master, within its run. What has not arrived yet is lost.
    pub(super) fn promote(&mut self, now: u64) {
        self.catch_up(now);
        self.role = Role::Master;
        self.former_id = Some(self.replication_id);
        self.replication_id = self.draw();
        self.backlog = true;
    }

    /// Carries out `request`, if it comes from somebody who knows the present incarnation.
    pub(super) fn carry_out(
        &mut self,
        request: &Request,
        known: &Born,
        unseen: bool,
        now: u64,
    ) -> Option<Carried> {
        let born = self.data.born.as_ref()?;
        if born != known || !self.may_carry_out(&request.op, &born.record, unseen) {
            return None;
        }
        let moment = Moment::of_clock(self.clock_us(now));
        let rules = Rules::of_group(&self.group);
        let names = || request.claims.iter().map(|claim| &claim.name);
        let entry = |name| self.data.entries.get(name).cloned().unwrap_or_default();
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
                self.data.entries.remove(name);
            } else {
                self.data.entries.insert(name.clone(), entry);
            }
        }
        let ceiling_us = moment.clock_us + rules.window_us;
        let given_back = &mut self.data.given_back;
        let returned = given_back.note(request, &outcome.answer, &removed, ceiling_us);
        Some(Carried {
            returned,
            answer: outcome.answer,
            stamp: outcome.stamp,
            wakes: outcome.wakes,
            removed,
        })
    }

    /// Whether it is what its birth record says, as far as `op` depends on it. A replica writes nothing.
    /// What somebody counts on is written only under the replication id of the record: always on a server
    /// that is known to be replicated, and else if the client has not looked at it lately.
    fn may_carry_out(&self, op: &Op, record: &birth::Record<u64>, unseen: bool) -> bool {
        let is_master = self.follows().is_none();
        if !is_master {
            return *op == Op::Inspect;
        }
        let id = Some(self.replication_id);
        !op.writes_holder()
            || record.stands_for(is_master, id.as_ref()) && (!unseen || record.replication_id == id)
    }

    /// What still stands at `now`, by name: holders and, if `places`, those who wait.
    pub(super) fn remains(&mut self, now: u64, places: bool) -> Vec<(String, String)> {
        self.catch_up(now);
        let moment = Moment::of_clock(self.clock_us(now));
        let mut remains = Vec::new();
        for (name, entry) in &self.data.entries {
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
