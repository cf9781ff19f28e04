//! What a link does for a thread that may be the last to run: it writes at once all that is queued, and
//! leaves the connection behind if the runtime ends.

use std::sync::PoisonError;

use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::{End, Link};
use crate::node::redis::{
    command::Command,
    last_words::LastWords,
    queue::Work,
    session::{InFlight, Session},
    transport::connection_set::{Flush, rest_of_this_poll},
};

impl Link {
    /// Carries out `flush`. How the session ends, if it must.
    pub(super) async fn write_now(
        &mut self,
        flush: Flush,
        in_flight: &mut InFlight,
        session: &mut Session,
        pending_end: &mut Option<End>,
    ) -> Option<End> {
        self.send_queued(in_flight, session, pending_end);
        session.connection.write_now().await;
        self.flush.finish(flush);
        if let Some(until) = flush.leave {
            in_flight.abandon(&self.runtime_ended(), &mut self.watch);
            return Some(End::RuntimeEnds(until));
        }
        if session.connection.is_wire() {
            // The thread that flushes has other things to do than to read replies.
            rest_of_this_poll().await;
        }
        None
    }

    /// Sends everything that is queued, each call by itself: a bundle may leave a call undone, to be
    /// sent again after its reply, and perhaps nobody will be there to read the reply.
    fn send_queued(
        &mut self,
        in_flight: &mut InFlight,
        session: &mut Session,
        pending_end: &mut Option<End>,
    ) {
        let alone = |calls: Vec<Call>| calls.into_iter().map(Command::Alone).collect();
        while pending_end.is_none() && (in_flight.has_room() || session.connection.is_wire()) {
            match self.queue.try_next() {
                Some(Work::Call(call)) => {
                    *pending_end = self.send_all(call, in_flight, session, alone);
                }
                Some(Work::Listen) => self.subscribe(in_flight, session),
                Some(Work::Control(control)) => *pending_end = Some(End::Control(control)),
                None => return,
            }
        }
    }

    /// The runtime ends: leaves the connection to releases that come later.
    pub(super) fn leave(mut self, session: Session, until: Timestamp) {
        let Ok(membership) = session.membership else {
            return;
        };
        let Some(mut remainder) = session.connection.detach() else {
            return;
        };
        remainder.read_missing(until);
        let failure = CallError::Unknown(self.runtime_ended());
        let mut place = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut words = LastWords::new(remainder, membership.terms);
        // Under the lock: what can no longer be queued is said right behind what still was.
        self.queue.close();
        let mut left = Vec::new();
        while let Some(work) = self.queue.try_next() {
            if let (Some(words), Work::Call(call)) = (&mut words, &work) {
                words.say(&call.request);
            }
            left.push(work);
        }
        *place = words;
        drop(place);
        // After the lock: an answer may lead to the next call.
        left.into_iter().for_each(|work| work.fail(failure.clone()));
    }

    fn runtime_ended(&self) -> Trouble {
        let what = "was asked, but its reply cannot be read: the tokio runtime has ended";
        let reporter = &self.maker.handshake.reporter;
        reporter.trouble(TroubleKind::Disconnected, what)
    }
}
