//! Which server is a master, which server follows which, and which server a node's address leads
//! to.
//!
//! Each node has its own server and may have a standby, which follows it. A role change that does
//! not fit the current roles does nothing, so a schedule stays valid when parts of it are left out.

use std::fmt;

use crate::simulator::plan::Moved;

use super::{Happening, World, nanos};

/// How often roles and addresses changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Replicas that were attached.
    pub attached: u64,
    /// Standbys that were promoted.
    pub promoted: u64,
    /// Of these, servers that were still masters.
    pub promoted_masters: u64,
    /// Masters that were made replicas.
    pub demoted: u64,
    /// Former masters that were promoted again.
    pub failed_back: u64,
    /// Addresses that led to another node's server for a while.
    pub repointed: u64,
}

impl Changes {
    pub(in crate::simulator) fn add(&mut self, other: &Self) {
        self.attached += other.attached;
        self.promoted += other.promoted;
        self.promoted_masters += other.promoted_masters;
        self.demoted += other.demoted;
        self.failed_back += other.failed_back;
        self.repointed += other.repointed;
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} replicas attached, {} promoted, {} masters demoted, {} promoted again, \
             {} addresses re-pointed",
            self.attached, self.promoted, self.demoted, self.failed_back, self.repointed
        )
    }
}

impl World<'_> {
    /// The node to which this server or standby belongs.
    pub(super) fn node_of(&self, server: usize) -> usize {
        server % self.addresses.len()
    }

    fn standby_of(&self, node: usize) -> usize {
        self.addresses.len() + node
    }

    pub(super) fn is_master(&self, server: usize) -> bool {
        self.servers[server].server.follows().is_none()
    }

    /// The replica that follows `server`, if one does.
    pub(super) fn replica_of(&self, server: usize) -> Option<usize> {
        let follows = |at: &usize| {
            let other = &self.servers[*at].server;
            other.up && other.follows() == Some(server)
        };
        // A node's two servers follow only each other.
        let node = self.node_of(server);
        [node, self.standby_of(node)].into_iter().find(follows)
    }

    /// Sends what `server` has just written to its replica.
    pub(super) fn replicate(&mut self, server: usize) {
        if let Some(replica) = self.replica_of(server) {
            let copy = self.servers[server].server.copy();
            self.servers[replica].server.receive(copy, self.now);
        }
    }

    /// Makes `replica` follow `master`.
    pub(super) fn follow(&mut self, replica: usize, master: usize, lag: u64) {
        let first = self.servers[master].server.attach();
        let replica = &mut self.servers[replica].server;
        replica.follow(master, lag, first, self.now);
    }

    pub(super) fn attach(&mut self, node: usize, lag: u64, ahead_us: i64) {
        let standby = self.standby_of(node);
        let own = &self.servers[node].server;
        if !own.up || !self.is_master(node) || self.servers[standby].server.up {
            return self.trace_line(|| format!("n{node} has a standby already, or is down"));
        }
        let mut dial = own.dial;
        dial.step(self.now, ahead_us * 1_000);
        let server = &mut self.servers[standby].server;
        server.dial = dial;
        server.up = true;
        self.follow(standby, node, lag);
        self.changes.attached += 1;
    }

    /// The replica of a restarted server finds it again and copies everything.
    pub(super) fn attach_again(&mut self, server: usize) {
        if let Some(replica) = self.replica_of(server) {
            self.follow(replica, server, 0);
        }
    }

    pub(super) fn promote(&mut self, node: usize, moved: Option<Moved>) {
        let standby = self.standby_of(node);
        let server = &mut self.servers[standby].server;
        if !server.up || server.follows().is_none() {
            return self.trace_line(|| format!("n{node} has no standby that follows it"));
        }
        server.promote(self.now);
        self.changes.promoted += 1;
        if let Some(moved) = moved {
            self.move_address(node, standby, moved);
        }
    }

    pub(super) fn demote(&mut self, node: usize, lag: u64) {
        let standby = self.standby_of(node);
        let both = self.servers[node].server.up && self.servers[standby].server.up;
        if !both || !self.is_master(node) || !self.is_master(standby) {
            return self.trace_line(|| format!("n{node} does not have two masters"));
        }
        // After a failback the address leads to the node's own server, and the standby was promoted
        // first.
        match self.failed_back.contains(&node) {
            true => self.follow(standby, node, lag),
            false => self.follow(node, standby, lag),
        }
        self.changes.demoted += 1;
    }

    pub(super) fn fail_back(&mut self, node: usize, moved: Moved) {
        if self.is_master(node) {
            return self.trace_line(|| format!("n{node} was not demoted"));
        }
        self.servers[node].server.promote(self.now);
        self.failed_back.insert(node);
        self.changes.failed_back += 1;
        if self.addresses[node] != node {
            self.move_address(node, node, moved);
        }
    }

    fn move_address(&mut self, node: usize, to: usize, moved: Moved) {
        self.addresses[node] = to;
        self.trace_line(|| format!("the address of n{node} leads to s{to}"));
        // Not a separate fault: if it were left out, the former master would serve for longer than
        // the quarantine allows.
        let at = self.now + nanos(moved.connections_last);
        self.schedule(at, Happening::CloseMisrouted { node });
    }

    pub(super) fn repoint(&mut self, node: usize, to: usize, lasts: u64, connections_stay: bool) {
        if self.addresses[node] != node {
            return self.trace_line(|| format!("the address of n{node} already leads elsewhere"));
        }
        self.addresses[node] = to;
        self.trace_line(|| format!("the address of n{node} leads to s{to}"));
        if !connections_stay {
            self.announce_misrouted(node);
        }
        self.changes.repointed += 1;
        let back = Happening::PointsBack {
            node,
            connections_stay,
        };
        self.schedule(self.now + lasts, back);
    }

    pub(super) fn point_back(&mut self, node: usize, connections_stay: bool) {
        self.addresses[node] = node;
        self.trace_line(|| format!("the address of n{node} leads to s{node} again"));
        if !connections_stay {
            self.announce_misrouted(node);
        }
    }

    /// Ends the connections of `node` that do not lead where its address leads: their servers
    /// accept nothing more from them.
    pub(super) fn end_misrouted(&mut self, node: usize) {
        self.announce_misrouted(node);
        let address = self.addresses[node];
        self.routes
            .retain(|(_, of, _), server| *of != node || *server == address);
    }

    /// Tells clients that these connections have ended. A client that does not receive this
    /// continues, and messages on their way may still be executed.
    fn announce_misrouted(&mut self, node: usize) {
        let address = self.addresses[node];
        for client in 0..self.clients.len() {
            let connection = self.clients[client].links[node].connection;
            let leads_to = self.routes.get(&(client, node, connection));
            if leads_to.is_some_and(|server| *server != address) {
                self.close_connection(client, node, connection);
            }
        }
    }

    /// After the last fault every address leads to a master, and every connection where its address
    /// leads.
    pub(super) fn settle_roles(&mut self) {
        if self.sentinels.is_some() {
            return self.settle_sentinels();
        }
        for node in 0..self.addresses.len() {
            let standby = self.standby_of(node);
            match self.addresses[node] {
                at if at == standby
                    && self.is_master(node)
                    && !self.failed_back.contains(&node) =>
                {
                    self.demote(node, 0);
                }
                at if at != standby => self.addresses[node] = node,
                _ => {}
            }
            let at = self.addresses[node];
            if !self.is_master(at) {
                self.servers[at].server.promote(self.now);
            }
            self.end_misrouted(node);
        }
    }
}
