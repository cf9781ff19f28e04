//! What arrives at servers and resources, and what they reply.

use std::sync::Arc;

use ringfence::node::Tier;
use ringfence_core::message::{Acquire, Answer, Op, Request};
use ringfence_core::protocol::quorum;
use tokio::sync::oneshot;

use crate::history::What;
use crate::simulator::link::{ClientMessage, ServerFacts, ServerMessage};
use crate::simulator::network::Line;
use crate::simulator::resource::Visit;
use crate::simulator::server::Born;

use super::{Happening, World};

impl World<'_> {
    /// A request arrives at its server.
    pub(super) fn arrive(&mut self, happening: Happening) {
        let Happening::Arrives {
            client,
            node,
            connection,
            line,
            number,
            ref message,
            late,
        } = happening
        else {
            return;
        };
        let route = (client, node, connection);
        let known = self.routes.get(&route).copied();
        let server = known.or(message.named()).unwrap_or(self.addresses[node]);
        let host = &mut self.servers[server];
        if !host.server.up {
            let closed = ServerMessage::Closed;
            return self.answer(client, node, (connection, line), number, closed);
        }
        if host.hung_until.is_some() {
            host.backlog.push(happening);
            return;
        }
        // A request of a closed connection may still be in a buffer, or be lost.
        if self.clients[client].links[node].connection != connection && !late {
            match self.random.between(0, 3) {
                0 => return,
                1 => {}
                _ => {
                    let at = self.now + self.random.between(0, 3_000_000_000);
                    let again = Happening::Arrives {
                        client,
                        node,
                        connection,
                        line,
                        number,
                        message: message.clone(),
                        late: true,
                    };
                    return self.schedule(at, again);
                }
            }
        }
        let message = match message {
            ClientMessage::Call { .. } if known.is_none() => ServerMessage::Closed,
            ClientMessage::Call {
                request,
                known,
                unchecked,
            } => {
                let request = Arc::clone(request);
                self.execute(client, server, &request, known, *unchecked)
            }
            ClientMessage::Probe { .. } | ClientMessage::Join { .. } => {
                self.routes.insert(route, server);
                self.handshake(server, message)
            }
        };
        self.answer(client, node, (connection, line), number, message);
    }

    /// The reply to a handshake, after a `join` if it is one. A replica refuses all clients.
    fn handshake(&mut self, server: usize, message: &ClientMessage) -> ServerMessage {
        let has_replicas = self.replica_of(server).is_some();
        let at = &mut self.servers[server].server;
        at.catch_up(self.now);
        let (joins, born) = match *message {
            ClientMessage::Join {
                epoch,
                seen,
                replicas_seen,
                ..
            } => {
                let replicas = (has_replicas, replicas_seen);
                (true, at.join(self.now, replicas, epoch, seen))
            }
            _ => (false, at.born().cloned()),
        };
        if at.follows().is_some() || joins && born.is_none() {
            return ServerMessage::Closed;
        }
        let message = ServerMessage::Facts(ServerFacts {
            born,
            clock_us: at.clock_us(self.now),
            identity: at.identity(has_replicas),
            tier: match at.durable {
                true => Tier::Durable,
                false => Tier::Quarantined,
            },
        });
        self.replicate(server);
        message
    }

    fn execute(
        &mut self,
        client: usize,
        server: usize,
        request: &Request,
        known: &Born,
        unchecked: bool,
    ) -> ServerMessage {
        let node = self.node_of(server);
        let at = &mut self.servers[server].server;
        at.catch_up(self.now);
        let Some(executed) = at.execute(request, known, unchecked, self.now) else {
            self.trace_line(|| format!("s{server} refuses client {client}: another incarnation"));
            return ServerMessage::Newborn;
        };
        self.replicate(server);
        self.trace_line(|| {
            format!(
                "s{server} does {:?} for client {client}: {:?}",
                request.op, executed.answer
            )
        });
        for (name, holder) in executed.removed {
            let by = request.token.id().to_owned();
            self.note(What::Removed {
                node,
                name,
                holder,
                by,
            });
        }
        for name in executed.returned {
            let holder = request.token.id().to_owned();
            self.note(What::Returned { node, name, holder });
        }
        self.note_majorities(node, &request.op, &executed.answer);
        for wake in executed.wakes {
            let id = wake.ticket.rsplit_once('.').map(|(client, _)| client);
            let Some(&client) = id.and_then(|id| self.listeners.get(id)) else {
                continue;
            };
            // On each of its connections to this server, because an address may lead here by
            // mistake.
            for node in 0..self.addresses.len() {
                let connection = self.clients[client].links[node].connection;
                if self.routes.get(&(client, node, connection)) == Some(&server) {
                    let message = ServerMessage::Wake(wake.clone());
                    self.answer(client, node, (connection, Line::First), 0, message);
                }
            }
        }
        let stamp = (!request.op.is_plain()).then_some(executed.stamp);
        ServerMessage::Answer(executed.answer, stamp)
    }

    /// Records when a majority of the nodes has a call's ticket or has granted the call.
    fn note_majorities(&mut self, node: usize, op: &Op, answer: &Answer) {
        let Op::Acquire(Acquire {
            label,
            ticket,
            ballot,
            ..
        }) = op
        else {
            return;
        };
        let number = label.strip_prefix("op").and_then(|op| op.parse().ok());
        let Some(op) = number else { return };
        let quorum = quorum(self.addresses.len());
        if *answer == Answer::Granted {
            let ballot = ballot.get();
            let nodes = self.seated.entry((op, ballot)).or_default();
            if nodes.insert(node) && nodes.len() == quorum {
                self.note(What::Seated { op, ballot });
            }
        }
        if ticket.is_some() && *answer != Answer::TicketOld {
            let nodes = self.queued.entry(op).or_default();
            if nodes.insert(node) && nodes.len() == quorum {
                self.note(What::Queued { op });
            }
        }
    }

    /// The path of the network from the server of a connection. With Sentinels each server has its
    /// own.
    fn path_from(&self, client: usize, node: usize, connection: u64) -> usize {
        let server = self.routes.get(&(client, node, connection));
        match self.sentinels.is_some() {
            true => server.copied().unwrap_or(self.addresses[node]),
            false => node,
        }
    }

    /// The client learns that its connection has ended.
    pub(super) fn close_connection(&mut self, client: usize, node: usize, connection: u64) {
        let closed = ServerMessage::Closed;
        self.answer(client, node, (connection, Line::First), 0, closed);
    }

    fn answer(
        &mut self,
        client: usize,
        node: usize,
        (connection, line): (u64, Line),
        number: u64,
        message: ServerMessage,
    ) {
        let path = self.path_from(client, node, connection);
        let connected = (connection, line);
        if let Some(at) = self.network.back(client, path, connected, self.now) {
            let happening = Happening::Answered {
                client,
                node,
                connection,
                number,
                message,
            };
            self.schedule(at, happening);
        }
    }

    pub(super) fn visit(
        &mut self,
        client: usize,
        resource: &str,
        visit: &Visit,
        answer: oneshot::Sender<Option<u64>>,
    ) {
        let value = self.resources.visit(resource, visit);
        self.trace_line(|| format!("client {client} visits {resource} {visit:?}: {value:?}"));
        if let (Visit::Write { fence, saw, value }, Some(_)) = (visit, value) {
            self.note(What::Updated {
                resource: resource.to_owned(),
                // The fence identifies the call.
                op: *fence,
                fence: *fence,
                saw: *saw,
                wrote: *value,
            });
        }
        let at = self.now + self.network.resource_delay();
        let happening = Happening::Visited {
            client,
            value,
            answer,
        };
        self.schedule(at, happening);
    }
}
