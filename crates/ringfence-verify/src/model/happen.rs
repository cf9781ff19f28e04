//! What comes of a step: machines and ledgers are asked, and what they send is put on its way.

use std::sync::Arc;

use super::ledger::{Answered, Asked, Question};
use super::message::{MessageKind, What, Word};
use super::properties::Event;
use super::protocol::Protocol;
use super::tables::{Cause, Made};
use super::view::Stage;
use super::world::{Mail, Node, World};

impl Protocol {
    /// Something happens to a client.
    pub(super) fn cause(&self, world: &mut World, client: usize, cause: Cause) {
        self.step(world, client, cause);
    }

    fn step(&self, world: &mut World, client: usize, cause: Cause) -> Arc<Made> {
        let machine = world.clients[client].machine;
        let before = self.tables.view(machine);
        let undoes = self.undoes(&before);
        let made = self.tables.step(machine, cause, world.now);
        let was_lost = before.stage == Stage::Holding && !before.holds_at(world.now);
        world.revived |= was_lost && self.tables.view(made.client).holds_at(world.now);
        world.clients[client].machine = made.client;
        for (node, message) in &made.sends {
            let kind = self.tables.what(*message).kind;
            if matches!(kind, MessageKind::Undo | MessageKind::Retire) && !undoes {
                world.clients[client].machine = self.left;
                continue;
            }
            world.post(Mail {
                node: *node as u8,
                client: client as u8,
                is_reply: false,
                message: *message,
            });
        }
        if let Some(fence) = made.granted {
            world.duplicate |= world.fences.contains(&fence);
            world.disorder |= fence <= world.clients[client].after;
            world.put_fence(fence);
            let after = std::mem::take(&mut world.clients[client].after);
            self.tables.note(Event::Granted, true);
            self.tables.note(Event::GrantedInTurn, after.get() > 0);
        }
        self.tables.note(Event::Discounted, made.discounted);
        let crashed = world.nodes.iter().any(|node| node.born.is_some());
        self.tables
            .note(Event::ExtendedAfterCrash, made.extended && crashed);
        made
    }

    /// A client hears a reply.
    pub(super) fn hear(&self, world: &mut World, mail: Mail, word: Word) {
        let (client, node) = (
            usize::from(mail.client),
            world.nodes[usize::from(mail.node)],
        );
        let cause = Cause::Hear {
            node: mail.node,
            message: mail.message,
        };
        let made = self.step(world, client, cause);
        let counted = word == Word::Granted && !made.discounted;
        let won = self.view(world, client).is_won;
        let is_born = node.born.is_some();
        self.tables.note(Event::GrownUp, is_born && counted && won);
        if won && self.scope().span().is_none() {
            // Where no time passes it does not matter when its task reads that.
            self.cause(world, client, Cause::Conclude);
        }
    }

    /// A node carries a request out.
    pub(super) fn carry_out(&self, world: &mut World, mail: Mail, what: What, mute: bool) {
        let (at, client) = (usize::from(mail.node), usize::from(mail.client));
        let view = self.view(world, client);
        let answered = self.ask(world, at, self.question(world, mail));
        let node = &mut world.nodes[at];
        let note = |event, is_so| self.tables.note(event, is_so);
        let is_awaited = self.tables.is_awaited(&view, mail.message);
        match (what.kind, answered.word) {
            (MessageKind::Acquire, Word::Stale) if !is_awaited => {
                let record = &self.tables.kept(node.entry).record;
                let fence = record.as_ref().map(|record| record.fence);
                note(Event::LateAcquireRefused, fence == Some(what.ballot));
            }
            (MessageKind::Undo | MessageKind::Retire, Word::Newer) => {
                note(Event::LateUndoRefused, true)
            }
            (MessageKind::Restore, Word::Restored) => {
                note(Event::RestoredAfterCrash, node.born.is_some());
            }
            (MessageKind::Restore, Word::Gone) => {
                note(Event::LateRestoreRefused, view.stage != Stage::Holding);
            }
            _ => {}
        }
        node.entry = answered.entry;
        let is_of_use = match view.stage {
            // A client that undoes nothing need not know who refused it.
            Stage::Trying => self.undoes(&view) || answered.word == Word::Granted,
            // What each node has matters to a hold that is renewed.
            _ => what.kind != MessageKind::Acquire || client == 0 && self.scope().renewals > 0,
        };
        if mute || !is_awaited || !is_of_use {
            return;
        }
        let reply = Mail {
            is_reply: true,
            message: answered.message,
            ..mail
        };
        match self.scope().slow_replies {
            true => world.post(reply),
            false => self.hear(world, reply, answered.word),
        }
    }

    pub(super) fn question(&self, world: &World, mail: Mail) -> Question {
        let view = self.view(world, mail.client.into());
        Question::Mail {
            client: mail.client,
            message: mail.message,
            tries_again: view.tries_again && self.scope().span().is_some(),
        }
    }

    pub(super) fn ask(&self, world: &World, at: usize, question: Question) -> Answered {
        let node = &world.nodes[at];
        self.tables.ask(Asked {
            entry: node.entry,
            clock: self.clock(world, node),
            born: node.born,
            question,
        })
    }

    /// A lease ends at any moment, where time does not say when.
    pub(super) fn lapse(&self, world: &mut World, at: usize) {
        world.nodes[at].entry = self.ask(world, at, Question::Lapse).entry;
    }

    pub(super) fn crash(&self, world: &mut World, at: usize) {
        world.crashes_left -= 1;
        let born = self.clock(world, &world.nodes[at]);
        world.nodes[at] = Node {
            entry: self.nothing,
            born,
            ..world.nodes[at]
        };
    }

    /// A tick passes for all.
    pub(super) fn tick(&self, world: &mut World) {
        let held = world.clients.map(|c| self.tables.view(c.machine));
        let held = held.map(|view| view.holds_at(world.now));
        world.now += 1;
        for at in 0..world.nodes.len() {
            world.nodes[at].entry = self.ask(world, at, Question::Settle).entry;
        }
        for (client, held) in world.clients.iter().zip(held) {
            let holds = self.tables.view(client.machine).holds_at(world.now);
            self.tables.note(Event::Lapsed, held && !holds);
        }
    }

    /// Time passes on a node that has a time of its own, or its clock is set back.
    pub(super) fn turn(&self, world: &mut World, at: usize, by: i8) {
        let node = &mut world.nodes[at];
        node.clock = node.clock.map(|clock| clock.saturating_add_signed(by));
        world.nodes[at].entry = self.ask(world, at, Question::Settle).entry;
    }

    /// Looks for what must not be.
    pub(super) fn judge(&self, world: &mut World) {
        if self.scope().span().is_none() {
            return;
        }
        let views = world.clients.map(|c| self.tables.view(c.machine));
        let holders = views.iter().filter(|view| view.holds_at(world.now));
        world.doubled |= holders.count() > 1;
        for (at, node) in world.nodes.iter().enumerate() {
            // A node that forgot an undo may grant what was undone; it has no vote.
            let entry = self.tables.kept(node.entry);
            let Some((client, ballot)) = self.tables.setting.holder(&entry) else {
                continue;
            };
            let is_of_use = match views[client].stage {
                Stage::Trying | Stage::Holding => views[client].ballot == ballot,
                Stage::Left => true,
                Stage::Waiting | Stage::Released | Stage::Done => false,
            };
            let to_it = |mail: &&Mail| {
                usize::from(mail.node) == at && usize::from(mail.client) == client && !mail.is_reply
            };
            let mut mail = world.mail.iter().filter(to_it);
            let is_undone = mail.any(|mail| {
                let what = self.tables.what(mail.message);
                let gives_back = matches!(
                    what.kind,
                    MessageKind::Undo | MessageKind::Retire | MessageKind::Release
                );
                gives_back && what.ballot >= ballot
            });
            world.left_behind |= !is_of_use && !is_undone && node.born.is_none();
        }
    }
}
