//! What a link does beside the calls: subscribes to wakes, checks whether the server has changed,
//! and notices that it does not answer.

use std::time::Duration;

use redis::Value;

use crate::node::{Trouble, TroubleKind};
use crate::time::Timestamp;

use super::Link;
use crate::node::redis::{
    handshake::image::Image,
    key::wake_channel,
    session::{InFlight, Session},
};

/// A server that does not answer for this long hangs, or the connection is half open.
const SILENCE: Duration = Duration::from_secs(1);

impl Link {
    /// Subscribes to the wakes of all new listeners. The server carries out later commands later,
    /// so no client enters a queue and misses its first wake.
    pub(super) fn subscribe(&self, in_flight: &mut InFlight, session: &mut Session) {
        let new = self.maker.listeners.clients_after(session.listening);
        if new.is_empty() || !session.connection.has_pushes() {
            return;
        }
        session.listening += new.len();
        let mut pipe = redis::pipe();
        for client in &new {
            pipe.cmd("SUBSCRIBE").arg(wake_channel(client));
        }
        in_flight.ask(pipe, false, &mut session.connection, self.clock().now());
    }

    /// Asks the server for its state.
    pub(super) fn look_now(
        &mut self,
        in_flight: &mut InFlight,
        session: &mut Session,
        now: Timestamp,
    ) {
        // After a flood of messages no listener was subscribed. The flood may be over.
        self.subscribe(in_flight, session);
        if let Ok(membership) = &session.membership
            && !membership.terms.unseen
        {
            let connection = &mut session.connection;
            let questions = membership.image.questions(connection.may_ask_config());
            in_flight.ask(questions, true, connection, now);
            self.watch.look(now);
        }
    }

    /// Whether the server has changed, by its answers to a check: then the handshake must be
    /// repeated.
    pub(super) fn has_changed(&mut self, answers: &[Value], session: &mut Session) -> bool {
        if Image::refuse_config(answers) {
            session.connection.refuse_config();
        }
        let membership = session.membership.as_ref().ok();
        match membership.and_then(|membership| membership.image.change(answers)) {
            None => self.watch.note_unchanged(),
            Some(change) => {
                let node = &self.maker.handshake.reporter.node;
                tracing::debug!(target: "ringfence", %node, "{change}; repeating the handshake");
                return true;
            }
        }
        false
    }

    /// The trouble, if the server has not answered for too long.
    pub(super) fn silence(&self, in_flight: &InFlight) -> Option<Trouble> {
        let since = in_flight.silent_since()?;
        (self.clock().now().since(since) >= SILENCE).then(|| {
            let what = format!("has not answered for {SILENCE:?}");
            self.maker
                .handshake
                .reporter
                .trouble(TroubleKind::Timeout, what)
        })
    }
}
