//! What comes of a step.

use super::model::FailoverModel;
use super::properties::Event;
use super::scope::{Ticks, Weakness};
use super::world::{Born, Call, CallKind, NEWCOMER, Phase, Said, Server, Word, World};

impl FailoverModel {
    pub(super) fn tick(&self, world: &mut World) {
        let (scope, latest) = (self.setting.scope, self.setting.scope.latest());
        world.sentinels.tick();
        for server in &mut world.servers {
            if let Some(born) = &mut server.data.born {
                born.age = (born.age + 1).min(scope.quarantine());
            }
            if let Some(seat) = &mut server.data.seat {
                seat.left -= 1;
            }
            server.data.seat.take_if(|seat| seat.left == 0);
        }
        for client in &mut world.clients {
            if let Phase::Holding { left, call } = client.phase {
                let left = left.saturating_sub(1);
                client.phase = Phase::Holding { left, call };
            }
            let older = client.call().map(|call| Call {
                age: call.age + 1,
                ..call
            });
            client.set_call(older.filter(|call| call.age <= latest));
        }
    }

    pub(super) fn promote(&self, world: &mut World, from: usize) {
        world.epoch += 1;
        world.sentinels.learn(from, world.epoch.into());
        let to = world.master();
        let server = &mut world.servers[to];
        // A server that is still a master is promoted without a change of its own.
        if !server.is_master {
            server.is_master = true;
            server.former_id = true;
            server.replication_id = World::FRESH_ID;
        }
    }

    pub(super) fn replicate(&self, world: &mut World, at: usize) {
        let master = world.servers[1 - at];
        let replica = &mut world.servers[at];
        let reborn = replica.data.born != master.data.born;
        replica.data = master.data;
        replica.replication_id = master.replication_id;
        replica.former_id = false;
        if reborn {
            world.end_sessions(at);
        }
    }

    pub(super) fn restart(&self, world: &mut World, at: usize, keeps: bool) {
        world.restarts_left -= 1;
        let server = &mut world.servers[at];
        server.replication_id = World::FRESH_ID;
        server.former_id = false;
        if !keeps {
            server.data.born = None;
            server.data.seat = None;
        }
        for server in &mut world.servers {
            if let Some(born) = &mut server.data.born {
                born.run.take_if(|run| usize::from(*run) == at);
            }
        }
        world.end_sessions(at);
    }

    pub(super) fn join(&self, world: &mut World, client: usize, epoch: usize) {
        let at = World::master_of(epoch as u8);
        let server = &world.servers[at];
        let has_replica = !world.servers[1 - at].is_master;
        let known = self.known_epoch(epoch);
        let joined = self.setting.join(server, at, has_replica, known);
        let Some(born) = joined.filter(|_| server.is_master) else {
            return;
        };
        if server.data.born != Some(born) {
            let same_ids = |known: Born| (known.run, known.replication_id);
            let by_epoch = server.data.born.map(same_ids) == Some(same_ids(born));
            self.note(Event::BornByEpoch, by_epoch);
            world.servers[at].data.born = Some(born);
            world.end_sessions(at);
        }
        let client = &mut world.clients[client];
        client.epoch = epoch as u8;
        client.joined = true;
    }

    /// Which epoch a client passes to a server.
    pub(super) fn known_epoch(&self, epoch: usize) -> u8 {
        match self.setting.is(Weakness::NoEpoch) {
            true => 0,
            false => epoch as u8,
        }
    }

    /// A client sends a request to the server that it joined.
    pub(super) fn send(&self, world: &mut World, client: usize, kind: CallKind) {
        let client = &mut world.clients[client];
        let call = Call {
            kind,
            age: 0,
            reply: None,
        };
        match kind {
            CallKind::Acquire => client.phase = Phase::Trying(call),
            CallKind::Extend | CallKind::Restore if client.joined => client.set_call(Some(call)),
            CallKind::Extend | CallKind::Restore => {}
        }
    }

    pub(super) fn release(&self, world: &mut World, client: usize) {
        let state = &mut world.clients[client];
        state.phase = Phase::Done;
        let server = &mut world.servers[state.server()];
        let reached = state.joined && server.is_master;
        if let Some(born) = server.data.born.filter(|_| reached) {
            let request = self.setting.release(client);
            self.setting.execute(&mut server.data, born, request);
        }
    }

    pub(super) fn execute(&self, world: &mut World, client: usize, mute: bool) {
        let Some(call) = world.clients[client].call() else {
            return;
        };
        world.clients[client].set_call(None);
        let at = world.clients[client].server();
        let stands = self.setting.stands(&world.servers[at]);
        let Some(born) = world.servers[at].data.born.filter(|_| stands) else {
            // The client is told to shake hands again.
            world.clients[client].joined = false;
            return;
        };
        let request = self.setting.request(client, &call);
        let data = &mut world.servers[at].data;
        let before = data.seat;
        let word = self.setting.execute(data, born, request);
        let said = Said {
            word,
            born_age: born.age,
        };
        self.note(Event::AcquireTooLate, word == Word::Late);
        self.note(Event::NewcomerWaits, word == Word::Quarantined);
        match call.kind {
            CallKind::Acquire if word == Word::Granted && !mute => {
                let reply = Some(said);
                world.clients[client].phase = Phase::Trying(Call { reply, ..call });
            }
            CallKind::Acquire => {}
            CallKind::Extend if mute => {}
            CallKind::Extend => self.read_extend(world, client, call.age, said),
            CallKind::Restore => {
                let replaced = before.is_some_and(|seat| usize::from(seat.client) != client);
                let restored = word == Word::Restored;
                self.note(Event::OutdatedReplaced, restored && replaced);
                let quarantined = born.age < self.setting.scope.quarantine();
                let latest = self.known_epoch(world.epoch.into());
                let is_latest = at == world.master() && born.epoch == latest;
                let holds = world.clients[client].holds();
                world.robbed |= holds && is_latest && quarantined && !restored;
            }
        }
    }

    /// The newcomer reads the reply to its acquire.
    pub(super) fn read(&self, world: &mut World, client: usize) {
        let Some(call) = world.clients[client].call() else {
            return;
        };
        let Some(said) = call.reply else {
            return;
        };
        let confirmed = self.confirmed_for(world, client);
        let epoch = world.clients[client].epoch;
        let granted = self.setting.granted(call.age, said, confirmed);
        self.note(Event::GrantIgnored, granted.is_none());
        self.note(Event::GrantedByPromoted, granted.is_some() && epoch > 0);
        world.clients[client].phase = match granted {
            Some(left) => Phase::Holding { left, call: None },
            None => Phase::Idle,
        };
    }

    fn read_extend(&self, world: &mut World, client: usize, age: Ticks, said: Said) {
        let left = match world.clients[client].phase {
            Phase::Holding { left, .. } => left,
            _ => 0,
        };
        let confirmed = self.confirmed_for(world, client);
        let extended = self.setting.extended(left, age, said, confirmed);
        let scope = self.setting.scope;
        let quarantined = said.born_age < scope.quarantine();
        world.revived |= left == 0 && extended.left > 0;
        // A holder that is confirmed and has X + D left is carried through. Its server has its lock
        // or may have lost it: so no answer proves a loss.
        let is_confirmed = confirmed.is_some_and(|asked| asked <= scope.stale_master() + age);
        let in_time = left > scope.stale_master() + scope.reply_within;
        let is_counted = extended.counts || said.word != Word::Extended;
        world.robbed |= quarantined && is_confirmed && in_time && !is_counted;
        world.robbed |= extended.is_lost && left > 0;
        let carried = quarantined && extended.counts && extended.left > left;
        self.note(Event::Carried, carried && client != NEWCOMER);
        self.note(Event::NewHolderCarried, carried && client == NEWCOMER);
        let phase = &mut world.clients[client].phase;
        *phase = match extended.left {
            0 => Phase::Done,
            _ if extended.is_lost => Phase::Done,
            left => Phase::Holding { left, call: None },
        };
        if extended.restores {
            self.send(world, client, CallKind::Restore);
        }
    }

    /// How long ago the Sentinels were asked that confirm what a client joined.
    pub(super) fn confirmed_for(&self, world: &World, client: usize) -> Option<Ticks> {
        let epoch = usize::from(world.clients[client].epoch);
        let is_same =
            |other: &usize| World::master_of(*other as u8) == World::master_of(epoch as u8);
        match self.setting.scope.weakness {
            Some(Weakness::OldWord) => Some(0),
            Some(Weakness::NoEpoch) => {
                let same = (0..=usize::from(world.epoch)).filter(is_same);
                same.filter_map(|epoch| self.confirmed(world, epoch)).min()
            }
            _ => self.confirmed(world, epoch),
        }
    }

    /// How long ago the Sentinels were asked that confirm the master of `epoch`.
    pub(super) fn confirmed(&self, world: &World, epoch: usize) -> Option<Ticks> {
        let sentinels = &world.sentinels;
        if self.setting.is(Weakness::EpochsOfSentinelsDiffer) && sentinels.at[epoch] > 0 {
            let same = (0..=usize::from(world.epoch))
                .filter(|other| World::master_of(*other as u8) == World::master_of(epoch as u8));
            let naming: u8 = same.map(|epoch| sentinels.at[epoch]).sum();
            return (naming >= 2).then_some(0);
        }
        self.confirmations.of(sentinels.ages(epoch))
    }

    /// Forgets what cannot matter, so that states which differ by nothing else are one.
    pub(super) fn forget(&self, world: &mut World) {
        let alive = world.clients.iter().filter(|c| c.phase != Phase::Done);
        let oldest = alive.map(|client| usize::from(client.epoch)).min();
        let oldest = oldest.filter(|_| !self.setting.is(Weakness::NoEpoch));
        let oldest = oldest.filter(|_| !self.setting.is(Weakness::EpochsOfSentinelsDiffer));
        world
            .sentinels
            .forget(self.setting.scope, oldest.unwrap_or_default());
        self.forget_former_master(world);
        for client in &mut world.clients {
            if client.phase == Phase::Done {
                client.joined = false;
                client.epoch = 0;
            }
        }
        world.renumber();
    }

    /// After the last promotion, when no client has to do with the former master, it may as well be
    /// a replica that has copied all: nothing of it comes back.
    fn forget_former_master(&self, world: &mut World) {
        let is_last = world.epoch == self.setting.scope.promotions;
        let master = world.servers[world.master()];
        let mut alive = world.clients.iter().filter(|c| c.phase != Phase::Done);
        let moved = alive.all(|client| client.epoch == world.epoch);
        if is_last && master.is_master && moved && world.restarts_left == 0 {
            world.servers[1 - world.master()] = Server {
                is_master: false,
                former_id: false,
                ..master
            };
        }
    }
}
