//! The model: which steps there are in a state.

use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Model, Property};

use super::properties::{Event, properties};
use super::scope::FailoverScope;
use super::sentinels::Confirmations;
use super::setting::Setting;
use super::step::FailoverStep;
use super::world::{
    Born, CLIENTS, CallKind, Client, Data, HOLDER, Phase, SERVERS, Seat, Sentinels, Server, World,
};

/// The model.
#[derive(Debug)]
pub(super) struct FailoverModel {
    pub(super) setting: Setting,
    pub(super) confirmations: Confirmations,
    seen: AtomicU32,
}

impl FailoverModel {
    pub(super) fn new(scope: FailoverScope) -> Self {
        Self {
            setting: Setting::new(scope),
            confirmations: Confirmations::new(scope),
            seen: AtomicU32::new(0),
        }
    }

    /// Remembers that `event` has happened, if it is so.
    pub(super) fn note(&self, event: Event, is_so: bool) {
        if is_so {
            self.seen.fetch_or(1 << event as u32, Ordering::Relaxed);
        }
    }

    pub(super) fn has_seen(&self, event: Event) -> bool {
        self.seen.load(Ordering::Relaxed) & 1 << event as u32 != 0
    }
}

impl Model for FailoverModel {
    type State = World;
    type Action = FailoverStep;

    fn init_states(&self) -> Vec<World> {
        let scope = self.setting.scope;
        let server = |is_master, seat| Server {
            is_master,
            replication_id: 0,
            former_id: false,
            data: Data {
                // It was initialised, so it has no quarantine.
                born: Some(Born {
                    run: Some(0),
                    replication_id: 0,
                    epoch: 0,
                    age: scope.quarantine(),
                }),
                seat,
            },
        };
        let seat = Seat {
            client: HOLDER as u8,
            left: scope.ttl(),
        };
        let client = |phase| Client {
            epoch: 0,
            joined: true,
            phase,
        };
        vec![World {
            // The lock was granted just now: the replica does not have it yet.
            servers: [server(true, Some(seat)), server(false, None)],
            sentinels: Sentinels::new(),
            clients: [
                client(Phase::Holding {
                    left: scope.ttl(),
                    call: None,
                }),
                client(Phase::Idle),
            ],
            epoch: 0,
            restarts_left: scope.restarts,
            robbed: false,
            revived: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<FailoverStep>) {
        let over = world.clients.iter().all(|c| c.phase == Phase::Done);
        if over || world.is_broken() {
            return;
        }
        for client in 0..CLIENTS {
            self.actions_of(world, client, steps);
        }
        self.actions_of_sentinels(world, steps);
        self.actions_of_servers(world, steps);
        steps.push(FailoverStep::Tick);
    }

    fn next_state(&self, last: &World, step: FailoverStep) -> Option<World> {
        let mut world = *last;
        match step {
            FailoverStep::Tick => self.tick(&mut world),
            FailoverStep::Promote { from } => self.promote(&mut world, from),
            FailoverStep::Learn { from, to } => world.sentinels.learn(from, to),
            FailoverStep::Demote { server } => world.servers[server].is_master = false,
            FailoverStep::Replicate { server } => self.replicate(&mut world, server),
            FailoverStep::Restart { server, keeps } => self.restart(&mut world, server, keeps),
            FailoverStep::Join { client, epoch } => self.join(&mut world, client, epoch),
            FailoverStep::Acquire { client } => self.send(&mut world, client, CallKind::Acquire),
            FailoverStep::Extend { client } => self.send(&mut world, client, CallKind::Extend),
            FailoverStep::Release { client } => self.release(&mut world, client),
            FailoverStep::Execute { client, mute } => self.execute(&mut world, client, mute),
            FailoverStep::Read { client } => self.read(&mut world, client),
            FailoverStep::Lose { client } => world.clients[client].set_call(None),
        }
        self.forget(&mut world);
        Some(world).filter(|world| world != last)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties(self.setting.scope)
    }
}

impl FailoverModel {
    fn actions_of(&self, world: &World, client: usize, steps: &mut Vec<FailoverStep>) {
        let state = &world.clients[client];
        match state.call() {
            Some(call) if call.reply.is_some() => {
                steps.push(FailoverStep::Read { client });
                steps.push(FailoverStep::Lose { client });
            }
            Some(call) => {
                steps.push(FailoverStep::Execute {
                    client,
                    mute: false,
                });
                // The reply to an acquire is lost later, and no client needs the reply to a
                // restore.
                if call.kind == CallKind::Extend {
                    steps.push(FailoverStep::Execute { client, mute: true });
                }
            }
            None => self.begins_of(world, client, steps),
        }
    }

    fn begins_of(&self, world: &World, client: usize, steps: &mut Vec<FailoverStep>) {
        let state = &world.clients[client];
        match state.phase {
            Phase::Done => return,
            Phase::Idle if state.joined && self.is_fresh(world, client) => {
                steps.push(FailoverStep::Acquire { client });
            }
            Phase::Holding { left, .. } => {
                // In the tick of the last extend another one would change nothing.
                if state.joined && left < self.setting.scope.ttl() {
                    steps.push(FailoverStep::Extend { client });
                }
                if client == HOLDER {
                    steps.push(FailoverStep::Release { client });
                }
            }
            _ => {}
        }
        // Sentinels do not go back, and a client keeps the later answer of each: so it never joins
        // under an earlier epoch again.
        let known = usize::from(state.epoch);
        for epoch in known..=usize::from(world.epoch) {
            let is_new = epoch > known || !state.joined;
            let named = is_new && self.confirmed(world, epoch) == Some(0);
            if named && world.servers[World::master_of(epoch as u8)].is_master {
                steps.push(FailoverStep::Join { client, epoch });
            }
        }
    }

    /// Whether the Sentinels confirmed lately what a client joined. If not, its link holds an acquire
    /// back.
    fn is_fresh(&self, world: &World, client: usize) -> bool {
        let scope = self.setting.scope;
        let asked = self.confirmed_for(world, client);
        scope.sends_unconfirmed || asked.is_some_and(|age| age <= scope.stale_master())
    }

    fn actions_of_sentinels(&self, world: &World, steps: &mut Vec<FailoverStep>) {
        let latest = usize::from(world.epoch);
        for from in 0..=latest {
            if world.sentinels.at[from] == 0 {
                continue;
            }
            if world.epoch < self.setting.scope.promotions {
                steps.push(FailoverStep::Promote { from });
            }
            steps.extend((from + 1..=latest).map(|to| FailoverStep::Learn { from, to }));
        }
    }

    fn actions_of_servers(&self, world: &World, steps: &mut Vec<FailoverStep>) {
        let master = world.master();
        let former = 1 - master;
        let [is_master, was_master] = [master, former].map(|at| world.servers[at].is_master);
        if is_master && was_master {
            steps.push(FailoverStep::Demote { server: former });
        }
        for server in 0..SERVERS {
            if !world.servers[server].is_master && world.servers[1 - server].is_master {
                steps.push(FailoverStep::Replicate { server });
            }
            if world.restarts_left > 0 && world.servers[server].is_master {
                let kept = [true, false];
                steps.extend(kept.map(|keeps| FailoverStep::Restart { server, keeps }));
            }
        }
    }
}
