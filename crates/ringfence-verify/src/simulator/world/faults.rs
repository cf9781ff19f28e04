//! What goes wrong in the world, and how it comes right again.

use std::collections::BTreeMap;

use crate::history::What;
use crate::random::Random;
use crate::simulator::link::Word;
use crate::simulator::plan::Trouble;

use super::{Happening, World, nanos};

impl World<'_> {
    pub(super) fn fault(&mut self, at: usize) {
        let what = self.plan.faults[at].what.clone();
        if let Trouble::Kill { client } = what {
            // What it did after it stood still is done already: it is killed no sooner.
            let ahead = self.clients[client].outbox.now();
            if ahead > self.now {
                return self.schedule(ahead, Happening::Fault(at));
            }
        }
        self.tell(|| format!("fault {at}: {what:?}"));
        let forward = |by_us: i64| by_us > 0;
        let timing = match &what {
            Trouble::PauseMachine { .. } | Trouble::Strobe { .. } => true,
            Trouble::Step { by_us, .. } => forward(*by_us),
            _ => false,
        };
        let client_only = matches!(what, Trouble::Pause { .. } | Trouble::Stall { .. });
        self.prompt &= client_only;
        let shown = format!("{what:?}");
        self.note(What::Fault {
            what: shown,
            timing,
        });
        match what {
            Trouble::Partition {
                clients,
                nodes,
                ways,
                lasts,
            } => {
                let until = self.now + nanos(lasts);
                self.network.part(&clients, &nodes, ways, until);
            }
            Trouble::Slow {
                client,
                node,
                by,
                lasts,
            } => {
                let until = self.now + nanos(lasts);
                self.network.slow(client, node, nanos(by), until);
            }
            Trouble::Lossy { lost, twice, lasts } => {
                self.network.lossy(lost, twice, self.now + nanos(lasts));
            }
            Trouble::Reset { client, node } => {
                let connection = self.clients[client].links[node].connection;
                let happening = Happening::Answered {
                    client,
                    node,
                    connection,
                    number: 0,
                    word: Word::HungUp,
                };
                self.reach(client, happening);
            }
            // What hits a node hits the server that its address leads to.
            Trouble::Hang { node, lasts, clock } => {
                let server = self.addresses[node];
                if clock {
                    self.servers[server].server.dial.stop(self.now, true);
                }
                self.hang(server, nanos(lasts));
            }
            Trouble::Crash { node, lasts } => self.crash(self.addresses[node], nanos(lasts)),
            Trouble::Flush { node } => self.flush(self.addresses[node]),
            Trouble::Step { node, by_us } => self.step_clock(node, by_us),
            Trouble::Strobe { node, by_us, times } => {
                for time in 0..u64::from(times) {
                    let by_us = if time % 2 == 0 { by_us } else { -by_us };
                    let at = self.now + time * 7_000_000;
                    self.schedule(at, Happening::Strobe { node, by_us });
                }
            }
            Trouble::Pause {
                client,
                lasts,
                heard,
            } => match heard {
                true => self.clients[client].pause_when_heard = Some(nanos(lasts)),
                false => self.pause(client, nanos(lasts)),
            },
            Trouble::Stall {
                client,
                sends,
                lasts,
            } => self.clients[client].outbox.stall_after(sends, nanos(lasts)),
            Trouble::PauseMachine { host, lasts } => {
                for client in 0..self.clients.len() {
                    if self.plan.clients[client].host == host {
                        let now = self.now;
                        let outbox = &self.clients[client].outbox;
                        outbox.with_dial(|dial| dial.stop(now, true));
                        self.pause(client, nanos(lasts));
                    }
                }
            }
            Trouble::Kill { client } => {
                self.clients[client].kill(self.now, &self.witness);
            }
            Trouble::Attach {
                node,
                lag,
                ahead_us,
            } => self.attach(node, nanos(lag), ahead_us),
            Trouble::Promote { node, moved } => self.promote(node, moved),
            Trouble::Demote { node, lag } => self.demote(node, nanos(lag)),
            Trouble::FailBack { node, moved } => self.fail_back(node, moved),
            Trouble::Repoint {
                node,
                to,
                lasts,
                connections_stay,
            } => self.repoint(node, to, nanos(lasts), connections_stay),
        }
    }

    pub(super) fn step_clock(&mut self, node: usize, by_us: i64) {
        let dial = &mut self.servers[node].server.dial;
        dial.step(self.now, by_us * 1_000);
    }

    fn hang(&mut self, server: usize, lasts: u64) {
        let until = self.now + lasts;
        let host = &mut self.servers[server];
        let until = host.hung_until.map_or(until, |other| other.max(until));
        host.hung_until = Some(until);
        self.schedule(until, Happening::Recovers { server });
    }

    fn crash(&mut self, server: usize, lasts: u64) {
        let host = &mut self.servers[server];
        host.server.catch_up(self.now);
        host.server.crash();
        host.backlog.clear();
        let connections = self.routes.iter().filter(|(_, to)| **to == server);
        let connections: Vec<_> = connections.map(|(&route, _)| route).collect();
        for route in connections {
            self.routes.remove(&route);
            let (client, node, connection) = route;
            self.answer(client, node, connection, 0, Word::HungUp);
        }
        self.hang(server, lasts);
    }

    fn flush(&mut self, server: usize) {
        // A replica takes no writes.
        if self.servers[server].server.follows().is_none() {
            self.servers[server].server.forget();
            self.replicate(server);
        }
    }

    pub(super) fn pause(&mut self, at: usize, lasts: u64) {
        let until = self.now + lasts;
        let client = &mut self.clients[at];
        let until = client.paused_until.map_or(until, |other| other.max(until));
        client.paused_until = Some(until);
        self.schedule(until, Happening::Resumes { client: at });
    }

    pub(super) fn resume(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.paused_until.is_none_or(|until| until > self.now) {
            return;
        }
        client.paused_until = None;
        client.outbox.with_dial(|dial| dial.stop(self.now, false));
        client.outbox.set_now(self.now);
        client.affairs.observe(&client.outbox, &self.witness, true);
        self.tell(|| format!("client {at} goes on"));
        for happening in std::mem::take(&mut self.clients[at].waiting) {
            self.reach(at, happening);
        }
        if self.clients[at].is_alive() && self.clients[at].paused_until.is_none() {
            self.let_run(at);
        }
    }

    pub(super) fn recover(&mut self, server: usize) {
        let host = &mut self.servers[server];
        if host.hung_until.is_none_or(|until| until > self.now) {
            return;
        }
        host.hung_until = None;
        let restarted = !host.server.up;
        host.server.up = true;
        host.server.dial.stop(self.now, false);
        let backlog = std::mem::take(&mut host.backlog);
        self.tell(|| format!("s{server} goes on"));
        if restarted {
            self.attach_again(server);
        }
        // Each connection in its order, but the connections in any.
        let mut by_connection: BTreeMap<u64, Vec<Happening>> = BTreeMap::new();
        let salt = self.random.next();
        for happening in backlog {
            if let Happening::Arrives {
                client, connection, ..
            } = happening
            {
                let key = Random::apart(salt, client as u64 * 1_000 + connection).next();
                by_connection.entry(key).or_default().push(happening);
            }
        }
        for happening in by_connection.into_values().flatten() {
            self.arrive(happening);
        }
    }

    /// From now on nothing is wrong. Who stands still goes on in its own time: what it did after it stood
    /// still may be done already.
    pub(super) fn heal(&mut self) {
        self.network.heal();
        for server in 0..self.servers.len() {
            if self.servers[server].hung_until.is_some() {
                self.servers[server].hung_until = Some(self.now);
                self.recover(server);
            }
        }
        self.settle_roles();
        self.note(What::Healed);
    }
}
