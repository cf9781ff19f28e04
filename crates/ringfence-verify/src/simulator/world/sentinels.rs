//! The Sentinels of a group with one endpoint: which server each of them names, and since when.
//!
//! A failover needs a majority of them, but only one of them knows of it at once. Each of the
//! others learns of it in its own time, and may miss one failover before it learns of the next. No
//! Sentinel goes back to an older epoch, except one that lies: it names the first master for ever.

use ringfence_core::protocol::SentinelAnswer;
use ringfence_core::time::Timestamp;

use crate::random::Random;
use crate::simulator::link::address_of;
use crate::simulator::network::Line;
use crate::simulator::plan::Plan;

use super::{Happening, World, nanos};

/// How long a Sentinel may show two epochs in one answer, after it has learned of a failover.
const UNSTEADY: u64 = 20_000_000;

/// What a Sentinel names: a server, and the epoch of the configuration.
type Named = (usize, u64);

/// All Sentinels of the group.
pub(super) struct Sentinels {
    all: Vec<Sentinel>,
    random: Random,
    /// The latest configuration.
    latest: Named,
}

/// One Sentinel.
struct Sentinel {
    names: Named,
    /// What it named before, and until when it was so.
    before: Named,
    changed_at: u64,
    lies_until: u64,
    /// After `SENTINEL RESET` it knows no others until this time.
    alone_until: u64,
}

impl Sentinels {
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let count = plan.sentinels.as_ref()?.count;
        let sentinel = || Sentinel {
            names: (0, 1),
            before: (0, 1),
            changed_at: 0,
            lies_until: 0,
            alone_until: 0,
        };
        Some(Self {
            all: std::iter::repeat_with(sentinel).take(count).collect(),
            random: Random::apart(plan.seed, 0x7365_6e74),
            latest: (0, 1),
        })
    }

    /// The server that was promoted last.
    pub(super) fn master(&self) -> usize {
        self.latest.0
    }

    fn learn(&mut self, sentinel: usize, named: Named, now: u64) {
        let one = &mut self.all[sentinel];
        if named.1 > one.names.1 {
            (one.before, one.names, one.changed_at) = (one.names, named, now);
        }
    }

    fn answer(&mut self, sentinel: usize, asked_at: Timestamp, now: u64) -> SentinelAnswer {
        let others = self.all.len() as u32 - 1;
        let one = &self.all[sentinel];
        let (mut before, mut after) = (one.names, one.names);
        let mut named = one.names;
        if now < one.lies_until {
            (before, named, after) = ((0, 1), (0, 1), (0, 1));
        } else if now < one.changed_at + UNSTEADY && self.random.chance(50) {
            before = one.before;
            named = self.random.pick(&[one.before, one.names]);
            after = one.names;
        }
        SentinelAnswer {
            id: format!("sentinel{sentinel}").into(),
            master: address_of(named.0),
            epoch_before: before.1,
            epoch_after: after.1,
            others: if now < one.alone_until { 0 } else { others },
            asked_at,
        }
    }
}

impl World<'_> {
    /// The path of the network to a Sentinel: behind those to the servers.
    fn path_to_sentinel(&self, sentinel: usize) -> usize {
        self.servers.len() + sentinel
    }

    /// A client asks a Sentinel.
    pub(super) fn send_question(
        &mut self,
        client: usize,
        (index, sentinel): (usize, usize),
        asked_at: Timestamp,
        now: u64,
    ) {
        let path = self.path_to_sentinel(sentinel);
        for at in self.network.there(client, path, (0, Line::First), now) {
            let happening = Happening::Asks {
                client,
                index,
                sentinel,
                asked_at,
            };
            self.schedule(at, happening);
        }
    }

    /// A question arrives at a Sentinel.
    pub(super) fn answer_question(
        &mut self,
        client: usize,
        (index, sentinel): (usize, usize),
        asked_at: Timestamp,
    ) {
        let now = self.now;
        let Some(sentinels) = &mut self.sentinels else {
            return;
        };
        let answer = sentinels.answer(sentinel, asked_at, now);
        self.trace_line(|| format!("sentinel {sentinel} tells client {client} {answer:?}"));
        let path = self.path_to_sentinel(sentinel);
        if let Some(at) = self.network.back(client, path, (0, Line::First), now) {
            let happening = Happening::Says {
                client,
                index,
                answer,
            };
            self.schedule(at, happening);
        }
    }

    /// The Sentinels promote the other server of the group. Each learns of it after its time in
    /// `learn`. A server that is still a master is promoted without a change of its own.
    pub(super) fn fail_over(&mut self, learn: &[std::time::Duration]) {
        let now = self.now;
        let Some(sentinels) = &mut self.sentinels else {
            return;
        };
        let (from, epoch) = sentinels.latest;
        let to = 1 - from;
        let server = &mut self.servers[to].server;
        if !server.up || server.born().is_none() && server.follows().is_none() {
            return self.trace_line(|| format!("s{to} cannot be promoted"));
        }
        match server.follows().is_some() {
            true => server.promote(now),
            false => self.changes.promoted_masters += 1,
        }
        sentinels.latest = (to, epoch + 1);
        self.addresses[0] = to;
        self.changes.promoted += 1;
        self.trace_line(|| format!("the Sentinels promote s{to} under epoch {}", epoch + 1));
        for (sentinel, after) in learn.iter().enumerate() {
            let happening = Happening::Learns {
                sentinel,
                named: (to, epoch + 1),
            };
            self.schedule(now + nanos(*after), happening);
        }
    }

    pub(super) fn learn(&mut self, sentinel: usize, named: Named) {
        let now = self.now;
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.learn(sentinel, named, now);
            self.trace_line(|| format!("sentinel {sentinel} learns of {named:?}"));
        }
    }

    /// The server that was not promoted last follows the other one.
    pub(super) fn demote_former(&mut self, lag: u64) {
        let Some(sentinels) = &self.sentinels else {
            return;
        };
        let (master, former) = (sentinels.master(), 1 - sentinels.master());
        let both = self.servers[former].server.up && self.servers[master].server.up;
        if both && self.is_master(former) && self.is_master(master) {
            self.follow(former, master, lag);
            self.changes.demoted += 1;
        }
    }

    pub(super) fn lie(&mut self, sentinel: usize, lasts: u64) {
        let until = self.now + lasts;
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.all[sentinel].lies_until = until;
        }
    }

    pub(super) fn reset_sentinel(&mut self, sentinel: usize, lasts: u64) {
        let until = self.now + lasts;
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.all[sentinel].alone_until = until;
        }
    }

    /// After the last fault all Sentinels name the server that was promoted last.
    pub(super) fn settle_sentinels(&mut self) {
        let now = self.now;
        let Some(sentinels) = &mut self.sentinels else {
            return;
        };
        let latest = sentinels.latest;
        for one in &mut sentinels.all {
            (one.names, one.before, one.changed_at) = (latest, latest, 0);
            (one.lies_until, one.alone_until) = (now, now);
        }
        if !self.is_master(latest.0) {
            self.servers[latest.0].server.promote(now);
        }
        self.demote_former(0);
    }
}
