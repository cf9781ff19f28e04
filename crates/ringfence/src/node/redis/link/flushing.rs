//! How a link serves a thread that may be the last to run: it writes all queued calls at once, and
//! keeps the socket for later releases if the tokio runtime ends.

use std::sync::PoisonError;

use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::{Link, SessionEnd};
use crate::node::redis::{
    command::Command,
    detached::DetachedConnection,
    queue::{Work, WorkQueue},
    session::{InFlight, Session},
    transport::connection_set::{Flush, rest_of_this_poll},
};

impl Link {
    /// Carries out `flush`. Returns how the session ends, if it must.
    pub(super) async fn write_now(
        &mut self,
        flush: Flush,
        in_flight: &mut InFlight,
        session: &mut Session,
        pending_end: &mut Option<SessionEnd>,
    ) -> Option<SessionEnd> {
        self.send_queued(flush, in_flight, session, pending_end);
        session.connection.write_now().await;
        self.flush.finish(flush);
        if let Some(until) = flush.leave {
            in_flight.abandon(&self.runtime_ended(), &mut self.watch);
            return Some(SessionEnd::RuntimeEnds(until));
        }
        if session.connection.is_wire() {
            // The flushing thread must not spend its time on reading replies.
            rest_of_this_poll().await;
        }
        None
    }

    /// Sends the queued calls, each by itself. A bundle may skip a call, which is then sent again
    /// after the reply; but the process may end before the reply is read.
    ///
    /// Beyond the limit of batches it sends only the calls of holders: there are no more of them
    /// than locks. Attempts and undos wait for the replies, as without a flush. Otherwise callers
    /// that give up would send more than the server can answer. If the tokio runtime ends, all
    /// calls are sent.
    fn send_queued(
        &mut self,
        flush: Flush,
        in_flight: &mut InFlight,
        session: &mut Session,
        pending_end: &mut Option<SessionEnd>,
    ) {
        let single = |calls: Vec<Call>| calls.into_iter().map(Command::Single).collect();
        while pending_end.is_none() {
            let next = match in_flight.has_room() {
                false if !session.connection.is_wire() => return,
                false if flush.leave.is_none() => WorkQueue::try_next_of_holder,
                _ => WorkQueue::try_next,
            };
            match next(&mut self.queue) {
                Some(Work::Call(call)) => {
                    *pending_end = self.send_all(call, next, in_flight, session, single);
                }
                Some(Work::Listen) => self.subscribe(in_flight, session),
                Some(Work::Control(control)) => *pending_end = Some(SessionEnd::Control(control)),
                None => return,
            }
        }
    }

    /// The tokio runtime ends: keeps the connection for later releases.
    pub(super) fn leave(mut self, session: Session, until: Timestamp) {
        let Ok(membership) = session.membership else {
            return;
        };
        let Some(mut remainder) = session.connection.detach() else {
            return;
        };
        remainder.read_missing(until);
        let failure = CallError::Unknown(self.runtime_ended());
        let mut slot = self.detached.lock().unwrap_or_else(PoisonError::into_inner);
        let mut detached = DetachedConnection::new(remainder, membership.terms);
        // Under the lock, so that a call that can no longer be queued is sent after the queued
        // ones.
        self.queue.close();
        let mut left = Vec::new();
        while let Some(work) = self.queue.try_next() {
            if let (Some(detached), Work::Call(call)) = (&mut detached, &work) {
                detached.send(&call.request);
            }
            left.push(work);
        }
        *slot = detached;
        drop(slot);
        // After unlocking: an answer may cause the next call.
        left.into_iter().for_each(|work| work.fail(failure.clone()));
    }

    fn runtime_ended(&self) -> Trouble {
        let what = "was sent the call, but its reply cannot be read: the tokio runtime has ended";
        let reporter = &self.maker.handshake.reporter;
        reporter.trouble(TroubleKind::Disconnected, what)
    }
}
