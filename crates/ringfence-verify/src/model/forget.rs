//! Forgetting what cannot matter any more, so that states which differ by nothing else are one.
//! Without it the search would not end in an afternoon; each rule here says why nothing is lost by
//! it.

use ringfence_core::message::Ballot;
use ringfence_core::protocol::quorum;

use super::message::{MessageKind, Word};
use super::properties::Event;
use super::protocol::Protocol;
use super::scope::Variant;
use super::view::{Stage, View};
use super::world::{CLIENTS, Client, Mail, NODES, World};

impl Protocol {
    /// Forgets what cannot matter any more, so that states which differ by nothing else are one.
    pub(super) fn forget(&self, world: &mut World) {
        // What follows from the rules does not follow without them.
        if self.scope().variant == Variant::Sound {
            self.deliver_idle(world);
        }
        self.forget_clients(world);
        let stages = world.clients.map(|c| self.tables.view(c.machine).stage);
        let asks = |stage: &Stage| matches!(stage, Stage::Waiting | Stage::Trying);
        let renews = |stage: &Stage| matches!(stage, Stage::Holding | Stage::Released);
        let renews = self.scope().renewals > 0 && stages.iter().any(renews);
        if !renews && !stages.iter().any(asks) {
            return self.forget_all(world);
        }
        let (tables, clients) = (&self.tables, world.clients);
        let is_of_use = |mail: &Mail| {
            let view = tables.view(clients[usize::from(mail.client)].machine);
            match mail.is_reply {
                true => tables.is_awaited(&view, mail.message),
                // Where renewals are searched, it is about what follows a grant: an acquire that
                // has not arrived by then never does. Nor does what a client has sent that is as
                // good as dead: it would only keep the others from a grant or an extend.
                false => {
                    let is_late = mail.client == 0 && view.stage != Stage::Trying;
                    let is_acquire = tables.what(mail.message).kind == MessageKind::Acquire;
                    let is_left = view.stage == Stage::Left;
                    !(tables.setting.scope.renewals > 0 && (is_late && is_acquire || is_left))
                }
            }
        };
        world.mail.retain(is_of_use);
        if !stages.contains(&Stage::Waiting) {
            // Only a client that asks can still be granted a fence a second time.
            let views = world.clients.map(|c| self.tables.view(c.machine));
            let mut asked = views.iter().filter(|view| view.stage == Stage::Trying);
            let fences = world.fences;
            let of_use = fences.map(|fence| asked.clone().any(|view| view.ballot == fence));
            for (fence, of_use) in world.fences.iter_mut().zip(of_use) {
                if !of_use {
                    *fence = Ballot::default();
                }
            }
            world.fences.sort_unstable();
            debug_assert!(asked.next().is_some() || renews);
        }
    }

    /// No client can be granted anything any more, nor extend what it has.
    fn forget_all(&self, world: &mut World) {
        world.now = 0;
        for node in &mut world.nodes {
            node.entry = self.nothing;
            node.clock = None;
            node.born = None;
        }
        world.clients = [Client {
            machine: self.done,
            after: Ballot::default(),
        }; CLIENTS];
        world.mail.clear();
        world.fences = Default::default();
        world.crashes_left = 0;
        world.steps_left = 0;
    }

    fn forget_clients(&self, world: &mut World) {
        let (is_timed, renews) = (self.scope().span().is_some(), self.scope().renewals > 0);
        for at in 0..CLIENTS {
            let view = self.view(world, at);
            let machine = match view.stage {
                // Where time does not say how long, it is not asked who holds.
                Stage::Holding if !is_timed => self.left,
                // A late release is not searched; a late answer to a renewal is.
                Stage::Holding
                    if !(view.holds_at(world.now) || renews && self.is_extending(world, at)) =>
                {
                    self.left
                }
                Stage::Released if !self.is_extending(world, at) => self.done,
                Stage::Trying if self.is_hopeless(world, at, &view) => self.left,
                _ => continue,
            };
            world.clients[at].machine = machine;
        }
    }

    /// Whether a client that undoes nothing has too few answers to hope for. Every vote is taken
    /// for a good one.
    fn is_hopeless(&self, world: &World, client: usize, view: &View) -> bool {
        let is_coming = |node: usize| {
            let mut mail = world.mail.iter();
            mail.any(|mail| {
                (usize::from(mail.node), usize::from(mail.client)) == (node, client)
                    && self.tables.is_awaited(view, mail.message)
            })
        };
        let hoped = (0..NODES).filter(|node| view.voted[*node] || is_coming(*node));
        let counts_more = matches!(
            self.scope().variant,
            Variant::NoMajority | Variant::OldVotes
        );
        !counts_more && !self.undoes(view) && !view.is_won && hoped.count() < quorum(NODES)
    }

    /// Whether an extend or restore of `client`, or an answer to one, is under way.
    fn is_extending(&self, world: &World, client: usize) -> bool {
        let mut mail = world.mail.iter();
        mail.any(|mail| {
            let view = self.view(world, client);
            usize::from(mail.client) == client && self.tables.is_awaited(&view, mail.message)
        })
    }

    /// What does nothing, and can do nothing later, may as well arrive at once. Of a node whose
    /// clock runs by itself that is not so sure.
    fn deliver_idle(&self, world: &mut World) {
        for at in 0..NODES {
            if world.nodes[at].clock.is_some() {
                continue;
            }
            let mut n = 0;
            while let Some(mail) = world.mail.get(n).copied() {
                if usize::from(mail.node) == at && !mail.is_reply && self.is_idle(world, mail) {
                    world.take(mail);
                } else {
                    n += 1;
                }
            }
        }
    }

    fn is_idle(&self, world: &mut World, mail: Mail) -> bool {
        let at = usize::from(mail.node);
        let what = self.tables.what(mail.message);
        let entry = world.nodes[at].entry;
        match what.kind {
            // Fences do not fall, so it is refused for ever; and its client has no use for the
            // answer.
            MessageKind::Acquire => {
                let view = self.view(world, mail.client.into());
                if self.tables.is_awaited(&view, mail.message) && self.undoes(&view) {
                    return false;
                }
                let answered = self.ask(world, at, self.question(world, mail));
                let idle = answered.entry == entry && answered.word == Word::Stale;
                let record = &self.tables.kept(entry).record;
                let fence = record.as_ref().map(|record| record.fence);
                let is_late = !self.tables.is_awaited(&view, mail.message);
                let refused = idle && is_late && fence == Some(what.ballot);
                self.tables.note(Event::LateAcquireRefused, refused);
                idle
            }
            // It changes nothing, and nothing of its client is on its way that it could give back.
            MessageKind::Undo | MessageKind::Retire | MessageKind::Release => {
                let awaited = |other: &Mail| {
                    let kind = self.tables.what(other.message).kind;
                    (other.node, other.client) == (mail.node, mail.client)
                        && matches!(
                            kind,
                            MessageKind::Acquire | MessageKind::Extend | MessageKind::Restore
                        )
                };
                if world.mail.iter().any(awaited) {
                    return false;
                }
                let answered = self.ask(world, at, self.question(world, mail));
                let idle = answered.entry == entry;
                let refused = idle && answered.word == Word::Newer;
                self.tables.note(Event::LateUndoRefused, refused);
                idle
            }
            _ => false,
        }
    }
}
