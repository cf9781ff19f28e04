//! Injects the faults of a plan, and ends them.

use std::collections::BTreeMap;

use crate::history::What;
use crate::random::Random;
use crate::simulator::link::ServerMessage;
use crate::simulator::plan::FaultAction;

use super::{Happening, World, nanos};

impl World<'_> {
    pub(super) fn fault(&mut self, at: usize) {
        let what = self.plan.faults[at].what.clone();
        if let FaultAction::Kill { client } = what {
            // Its actions during a stall are done already, up to a later time: it is killed no
            // sooner.
            let ahead = self.clients[client].outbox.now();
            if ahead > self.now {
                return self.schedule(ahead, Happening::Fault(at));
            }
        }
        self.trace_line(|| format!("fault {at}: {what:?}"));
        let timing = match &what {
            FaultAction::PauseMachine { .. } | FaultAction::Strobe { .. } => true,
            FaultAction::Step { by_us, .. } => *by_us > 0,
            _ => false,
        };
        let client_only = matches!(what, FaultAction::Pause { .. } | FaultAction::Stall { .. });
        self.prompt &= client_only;
        self.note(What::Fault {
            what: format!("{what:?}"),
            timing,
        });
        match what {
            FaultAction::Partition { .. }
            | FaultAction::Slow { .. }
            | FaultAction::Lossy { .. }
            | FaultAction::Reset { .. } => self.network_fault(what),
            FaultAction::Hang { .. }
            | FaultAction::Crash { .. }
            | FaultAction::Flush { .. }
            | FaultAction::Step { .. }
            | FaultAction::Strobe { .. } => self.server_fault(&what),
            FaultAction::Pause { .. }
            | FaultAction::Stall { .. }
            | FaultAction::PauseMachine { .. }
            | FaultAction::Kill { .. } => self.client_fault(&what),
            FaultAction::Attach { .. }
            | FaultAction::Promote { .. }
            | FaultAction::Demote { .. }
            | FaultAction::FailBack { .. }
            | FaultAction::Repoint { .. } => self.role_fault(&what),
            FaultAction::FailOver { learn } => self.fail_over(&learn),
            FaultAction::DemoteFormer { lag } => self.demote_former(nanos(lag)),
            FaultAction::Lie { sentinel, lasts } => self.lie(sentinel, nanos(lasts)),
            FaultAction::ResetSentinel { sentinel, lasts } => {
                self.reset_sentinel(sentinel, nanos(lasts));
            }
        }
    }

    fn network_fault(&mut self, what: FaultAction) {
        match what {
            FaultAction::Partition {
                clients,
                nodes,
                ways,
                lasts,
            } => {
                let until = self.now + nanos(lasts);
                self.network.part(&clients, &nodes, ways, until);
            }
            FaultAction::Slow {
                client,
                node,
                by,
                lasts,
            } => {
                let until = self.now + nanos(lasts);
                self.network.slow(client, node, nanos(by), until);
            }
            FaultAction::Lossy { lost, twice, lasts } => {
                self.network.lossy(lost, twice, self.now + nanos(lasts));
            }
            FaultAction::Reset { client, node } => {
                let connection = self.clients[client].links[node].connection;
                let happening = Happening::Answered {
                    client,
                    node,
                    connection,
                    number: 0,
                    message: ServerMessage::Closed,
                };
                self.reach(client, happening);
            }
            _ => {}
        }
    }

    /// A fault of a node hits the server that its address leads to.
    fn server_fault(&mut self, what: &FaultAction) {
        match *what {
            FaultAction::Hang { node, lasts, clock } => {
                let server = self.addresses[node];
                if clock {
                    self.servers[server].server.dial.stop(self.now, true);
                }
                self.hang(server, nanos(lasts));
            }
            FaultAction::Crash { node, lasts } => self.crash(self.addresses[node], nanos(lasts)),
            FaultAction::Flush { node } => self.flush(self.addresses[node]),
            FaultAction::Step { node, by_us } => self.step_clock(node, by_us),
            FaultAction::Strobe { node, by_us, times } => {
                for time in 0..u64::from(times) {
                    let by_us = if time % 2 == 0 { by_us } else { -by_us };
                    let at = self.now + time * 7_000_000;
                    self.schedule(at, Happening::Strobe { node, by_us });
                }
            }
            _ => {}
        }
    }

    fn client_fault(&mut self, what: &FaultAction) {
        match *what {
            FaultAction::Pause {
                client,
                lasts,
                after_reply,
            } => match after_reply {
                true => self.clients[client].pause_at_reply = Some(nanos(lasts)),
                false => self.pause(client, nanos(lasts)),
            },
            FaultAction::Stall {
                client,
                sends,
                lasts,
            } => self.clients[client].outbox.stall_after(sends, nanos(lasts)),
            FaultAction::PauseMachine { host, lasts } => {
                for client in 0..self.clients.len() {
                    if self.plan.clients[client].host == host {
                        let now = self.now;
                        let outbox = &self.clients[client].outbox;
                        outbox.with_dial(|dial| dial.stop(now, true));
                        self.pause(client, nanos(lasts));
                    }
                }
            }
            FaultAction::Kill { client } => self.clients[client].kill(self.now, &self.witness),
            _ => {}
        }
    }

    fn role_fault(&mut self, what: &FaultAction) {
        match *what {
            FaultAction::Attach {
                node,
                lag,
                ahead_us,
            } => self.attach(node, nanos(lag), ahead_us),
            FaultAction::Promote { node, moved } => self.promote(node, moved),
            FaultAction::Demote { node, lag } => self.demote(node, nanos(lag)),
            FaultAction::FailBack { node, moved } => self.fail_back(node, moved),
            FaultAction::Repoint {
                node,
                to,
                lasts,
                connections_stay,
            } => self.repoint(node, to, nanos(lasts), connections_stay),
            _ => {}
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
            self.close_connection(client, node, connection);
        }
        self.hang(server, lasts);
    }

    fn flush(&mut self, server: usize) {
        // A replica accepts no writes.
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
        client
            .open_work
            .observe(&client.outbox, &self.witness, true);
        self.trace_line(|| format!("client {at} resumes"));
        for happening in std::mem::take(&mut self.clients[at].waiting) {
            self.reach(at, happening);
        }
        if self.clients[at].is_alive() && self.clients[at].paused_until.is_none() {
            self.run_client(at);
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
        self.trace_line(|| format!("s{server} resumes"));
        if restarted {
            self.attach_again(server);
        }
        // Each connection in order, but the connections in random order.
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

    /// From now on there are no faults. A paused client resumes at its own time, because its
    /// actions during a stall may be done already.
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
