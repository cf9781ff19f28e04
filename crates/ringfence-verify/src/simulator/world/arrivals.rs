//! What reaches a server or a resource, and what goes back.

use std::sync::Arc;

use ringfence::node::Tier;
use ringfence_core::message::{Acquire, Answer, Op, Request};
use ringfence_core::protocol::quorum;
use tokio::sync::oneshot;

use crate::history::What;
use crate::simulator::link::{Parcel, Word};
use crate::simulator::resource::Visit;
use crate::simulator::server::Born;

use super::{Happening, World};

impl World<'_> {
    /// A request reaches its server.
    pub(super) fn arrive(&mut self, happening: Happening) {
        let Happening::Arrives {
            client,
            node,
            connection,
            number,
            ref parcel,
            late,
        } = happening
        else {
            return;
        };
        let route = (client, node, connection);
        let known = self.routes.get(&route).copied();
        let server = known.unwrap_or(self.addresses[node]);
        let host = &mut self.servers[server];
        if !host.server.up {
            return self.answer(client, node, connection, number, Word::HungUp);
        }
        if host.hung_until.is_some() {
            host.backlog.push(happening);
            return;
        }
        // What its client has given up may still lie in a buffer somewhere, or be lost.
        if self.clients[client].links[node].connection != connection && !late {
            match self.random.between(0, 3) {
                0 => return,
                1 => {}
                _ => {
                    let at = self.now + self.random.between(0, 3_000_000_000);
                    let parcel = parcel.clone();
                    let again = Happening::Arrives {
                        client,
                        node,
                        connection,
                        number,
                        parcel,
                        late: true,
                    };
                    return self.schedule(at, again);
                }
            }
        }
        let word = match parcel {
            Parcel::Call { .. } if known.is_none() => Word::HungUp,
            Parcel::Call {
                request,
                known,
                unseen,
            } => {
                let request = Arc::clone(request);
                self.carry_out(client, server, &request, known, *unseen)
            }
            Parcel::Probe | Parcel::Join => {
                self.routes.insert(route, server);
                self.shake_hands(server, matches!(parcel, Parcel::Join))
            }
        };
        self.answer(client, node, connection, number, word);
    }

    /// What a server says of itself, after it was told to `join` if it was. A replica turns everybody
    /// away.
    fn shake_hands(&mut self, server: usize, join: bool) -> Word {
        let has_replicas = self.replica_of(server).is_some();
        let at = &mut self.servers[server].server;
        at.catch_up(self.now);
        let born = match join {
            true => at.join(self.now, has_replicas),
            false => at.born().cloned(),
        };
        if at.follows().is_some() || join && born.is_none() {
            return Word::HungUp;
        }
        let word = Word::Facts {
            born,
            clock_us: at.clock_us(self.now),
            identity: at.identity(has_replicas),
            tier: match at.durable {
                true => Tier::Durable,
                false => Tier::Quarantined,
            },
        };
        self.replicate(server);
        word
    }

    fn carry_out(
        &mut self,
        client: usize,
        server: usize,
        request: &Request,
        known: &Born,
        unseen: bool,
    ) -> Word {
        let node = self.node_of(server);
        let at = &mut self.servers[server].server;
        at.catch_up(self.now);
        let Some(carried) = at.carry_out(request, known, unseen, self.now) else {
            self.tell(|| format!("s{server} takes client {client} for one of another incarnation"));
            return Word::Newborn;
        };
        self.replicate(server);
        self.tell(|| {
            format!(
                "s{server} does {:?} for client {client}: {:?}",
                request.op, carried.answer
            )
        });
        for (name, holder) in carried.removed {
            let by = request.token.id().to_owned();
            self.note(What::Removed {
                node,
                name,
                holder,
                by,
            });
        }
        for name in carried.returned {
            let holder = request.token.id().to_owned();
            self.note(What::Returned { node, name, holder });
        }
        self.take_place(node, &request.op, &carried.answer);
        for wake in carried.wakes {
            let id = wake.ticket.rsplit_once('.').map(|(client, _)| client);
            let Some(&client) = id.and_then(|id| self.ears.get(id)) else {
                continue;
            };
            // Over each connection that it has to this server: an address may lead here by mistake.
            for node in 0..self.addresses.len() {
                let connection = self.clients[client].links[node].connection;
                if self.routes.get(&(client, node, connection)) == Some(&server) {
                    let word = Word::Wake(wake.clone());
                    self.answer(client, node, connection, 0, word);
                }
            }
        }
        let stamp = (!request.op.is_plain()).then_some(carried.stamp);
        Word::Answer(carried.answer, stamp)
    }

    /// Writes down when a call has its place in line, or a grant, on a majority of the nodes.
    fn take_place(&mut self, node: usize, op: &Op, answer: &Answer) {
        let Op::Acquire(Acquire {
            label,
            place,
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
        if place.is_some() && *answer != Answer::TicketOld {
            let nodes = self.queued.entry(op).or_default();
            if nodes.insert(node) && nodes.len() == quorum {
                self.note(What::Queued { op });
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        client: usize,
        node: usize,
        connection: u64,
        number: u64,
        word: Word,
    ) {
        if let Some(at) = self.network.back(client, node, connection, self.now) {
            let happening = Happening::Answered {
                client,
                node,
                connection,
                number,
                word,
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
        self.tell(|| format!("client {client} visits {resource} {visit:?}: {value:?}"));
        if let (Visit::Write { fence, saw, value }, Some(_)) = (visit, value) {
            self.note(What::Updated {
                resource: resource.to_owned(),
                // The fence tells whose it was.
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
