//! The clients in the world: delivers what arrives for them, lets them run, and sends their
//! messages.

use crate::simulator::link::{ClientMessage, Out};
use crate::simulator::network::Line;
use crate::simulator::port::Ask;

use super::{Happening, World};

impl World<'_> {
    /// Delivers something to a client.
    pub(super) fn reach(&mut self, at: usize, happening: Happening) {
        let client = &mut self.clients[at];
        if !client.is_alive() {
            return;
        }
        if client.paused_until.is_some() {
            client.waiting.push(happening);
            return;
        }
        client.outbox.set_now(self.now);
        let shows = client.shows();
        match happening {
            Happening::Answered {
                node,
                connection,
                number,
                message,
                ..
            } => {
                self.trace_line(|| {
                    let from = format!("n{node} {connection}.{number}");
                    format!("client {at} receives from {from} {message:?}")
                });
                self.clients[at].links[node].handle_message(connection, number, message, shows);
                if let Some(lasts) = self.clients[at].pause_at_reply.take() {
                    self.pause(at, lasts);
                    return;
                }
            }
            Happening::Says { index, answer, .. } => {
                client.links[0].handle_sentinel(index, answer, shows);
            }
            Happening::Rings { node, alarm, .. } => client.links[node].ring(alarm, shows),
            Happening::Visited { value, answer, .. } => {
                // The caller may no longer wait for it.
                let _ = answer.send(value);
            }
            Happening::Due { tick, .. } if tick != client.tick => return,
            _ => {}
        }
        self.run_client(at);
    }

    /// Lets a client do everything that it can do now, and sends its messages.
    pub(super) fn run_client(&mut self, at: usize) {
        loop {
            let client = &self.clients[at];
            client.settle();
            let asks = client.outbox.take_asks();
            let visits = client.outbox.take_visits();
            let idle = asks.is_empty() && visits.is_empty();
            for (node, stalled, ask) in asks {
                let client = &mut self.clients[at];
                if let Ask::Listen(id, _) = &ask {
                    self.listeners.insert(id.clone(), at);
                }
                let shows = client.shows();
                client.links[node].ask(ask, shows);
                self.send_from(at, node, stalled);
            }
            for (stalled, resource, visit, answer) in visits {
                let after = stalled + self.network.resource_delay();
                let client = at;
                let happening = Happening::Visits {
                    client,
                    resource,
                    visit,
                    answer,
                };
                self.schedule(self.now + after, happening);
            }
            for node in 0..self.addresses.len() {
                self.send_from(at, node, 0);
            }
            if idle {
                break;
            }
        }
        let client = &mut self.clients[at];
        client
            .open_work
            .observe(&client.outbox, &self.witness, false);
        if !client.is_alive() {
            return;
        }
        let stalled = client.outbox.stalled();
        if stalled > 0 {
            self.trace_line(|| format!("client {at} stalled for {stalled} ns while it sent"));
            self.pause(at, stalled);
            return;
        }
        if let Some(due) = client.due() {
            client.tick += 1;
            let tick = client.tick;
            self.schedule(due, Happening::Due { client: at, tick });
        }
    }

    /// Does what a link wants, at `stalled` after now.
    fn send_from(&mut self, client: usize, node: usize, stalled: u64) {
        let out = std::mem::take(&mut self.clients[client].links[node].out);
        let link = &self.clients[client].links[node];
        let (connection, path) = (link.connection, link.target.unwrap_or(node));
        let now = self.now + stalled;
        for out in out {
            match out {
                Out::Alarm { after, alarm } => {
                    let happening = Happening::Rings {
                        client,
                        node,
                        alarm,
                    };
                    self.schedule(now + after, happening);
                }
                Out::Question {
                    index,
                    sentinel,
                    asked_at,
                } => self.send_question(client, (index, sentinel), asked_at, now),
                Out::Send { number, message } => {
                    self.trace_line(|| {
                        format!(
                            "client {client} to n{node} {connection}.{number} {}",
                            shown(&message)
                        )
                    });
                    let line = match message.is_renewal() {
                        true => self.network.line_of_renewal(client, path),
                        false => Line::First,
                    };
                    let connected = (connection, line);
                    for at in self.network.there(client, path, connected, now) {
                        let happening = Happening::Arrives {
                            client,
                            node,
                            connection,
                            line,
                            number,
                            message: message.clone(),
                            late: false,
                        };
                        self.schedule(at, happening);
                    }
                }
            }
        }
    }
}

fn shown(message: &ClientMessage) -> String {
    match message {
        ClientMessage::Call { request, .. } => format!("{:?} {:?}", request.token, request.op),
        ClientMessage::Probe { .. } | ClientMessage::Join { .. } => format!("{message:?}"),
    }
}
