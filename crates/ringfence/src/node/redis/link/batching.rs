//! Which calls a link sends together, and when: all that wait. To the only node of a group at most
//! half of those that are under way: with one batch of all callers the server would have nothing to
//! do while they run, and they would have nothing to do while the server works. Several servers do
//! not need this: they do not all wait at the same time, and larger batches cost less.

use std::time::Duration;

use tokio::time::Interval;

use crate::node::{Call, CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::{Link, SessionEnd};
use crate::node::redis::{
    bundle::BUNDLE_MAX,
    command::{Command, ScriptForm},
    queue::{BATCH_MAX, Work, WorkQueue},
    reply::longest_reply,
    session::{InFlight, Session},
    transport::limits::BATCH_MAX_MEMORY,
};

/// How often the link yields to other tasks before it sends a batch, if there are several callers:
/// once is not enough for callers on another thread.
const GATHER_YIELDS: usize = 6;
/// How long the link yields at most.
const GATHER_MAX: Duration = Duration::from_micros(200);

impl Link {
    /// Whether work may be sent now.
    pub(super) fn may_send(&self, in_flight: &InFlight) -> bool {
        in_flight.has_room() && !self.confirming.is_waiting()
    }

    /// Lets the callers of the batch that the only node has just answered run, and sends what they
    /// ask next. Two batches may be answered at once; the server works on this one while the answers
    /// to the other are handled. Returns how the session ends, if it must.
    pub(super) async fn refill(
        &mut self,
        in_flight: &mut InFlight,
        session: &mut Session,
        look: &mut Interval,
    ) -> Option<SessionEnd> {
        if in_flight.last_batch_calls <= 1 || !session.is_alone() || !self.may_send(in_flight) {
            return None;
        }
        tokio::task::yield_now().await;
        let work = self.queue.try_next()?;
        self.take(Some(work), in_flight, session, look).await
    }

    /// Yields for a moment, so that other callers can add their calls. Callers that were answered
    /// by one batch call again as soon as they run, and one batch costs less than many.
    pub(super) async fn gather(&self, in_flight: &InFlight) {
        if in_flight.last_batch_calls <= 1 {
            return;
        }
        let end = self.clock().now() + GATHER_MAX;
        for _ in 0..GATHER_YIELDS {
            if self.flush.is_asked() {
                return;
            }
            tokio::task::yield_now().await;
            if self.clock().now() >= end {
                return;
            }
        }
    }

    /// Sends `first` and the calls that `next` takes from the queue as one batch, grouped into
    /// commands by `pack`. Returns how the session ends, if it must.
    pub(super) fn send_all(
        &mut self,
        first: Call,
        next: impl Fn(&mut WorkQueue) -> Option<Work>,
        in_flight: &mut InFlight,
        session: &mut Session,
        pack: impl FnOnce(Vec<Call>) -> Vec<Command>,
    ) -> Option<SessionEnd> {
        let now = self.clock().now();
        let (mut batch, mut replies) = (Vec::new(), 0);
        let limit = match session.is_alone() {
            true => half_batch(in_flight.calls() + 1 + self.queue.len()),
            false => BATCH_MAX,
        };
        let mut end = None;
        let mut taken = Some(first);
        while let Some(call) = taken.take() {
            match self.unfit(&call, session, now) {
                _ if !call.done.is_wanted() => call.done.withdraw(),
                Some(trouble) => {
                    // Our user may have got the right meanwhile, or another client may have
                    // written the birth record.
                    if trouble.kind == TroubleKind::Denied && session.connection.may_only_look() {
                        end = Some(SessionEnd::Newborn);
                    }
                    call.done.complete(Err(CallError::NotSent(trouble)));
                }
                None => {
                    self.watch.note(&call.request, now);
                    replies += longest_reply(&call.request);
                    batch.push(call);
                }
            }
            // The connection is dropped if the replies to a batch take more memory than this.
            if batch.len() < limit && replies < BATCH_MAX_MEMORY / 2 {
                match next(&mut self.queue) {
                    Some(Work::Call(call)) => taken = Some(call),
                    Some(other) => self.queue.put_back(other),
                    None => {}
                }
            }
        }
        if let Ok(membership) = &mut session.membership {
            membership.compare(self.watch.is_unseen(now), now);
            // A single call needs no bundle.
            let commands = match batch.len() {
                0 | 1 => batch.into_iter().map(Command::Single).collect(),
                _ => pack(batch),
            };
            in_flight.send(
                commands,
                &mut session.connection,
                membership,
                ScriptForm::Hash,
                now,
            );
        }
        end
    }

    /// Why `call` must not be sent, if so.
    fn unfit(&self, call: &Call, session: &Session, now: Timestamp) -> Option<Trouble> {
        let reporter = &self.maker.handshake.reporter;
        let trouble = |kind, what: &str| Some(reporter.trouble(kind, what));
        if call.expires <= now {
            trouble(
                TroubleKind::Timeout,
                "was not sent the call: it had waited too long",
            )
        } else if session.connection.may_only_look() && !call.request.op.only_looks() {
            Some(reporter.may_only_look(&call.request))
        } else if let Err(trouble) = &session.membership {
            Some(trouble.clone())
        } else if let Some(trouble) = self.confirming.refusal(&call.request.op) {
            Some(trouble.clone())
        } else if call.request.claims.len() != 1 && call.request.op.is_plain() {
            trouble(
                TroubleKind::Other,
                "was not sent the call: a plain lock has exactly one name",
            )
        } else {
            None
        }
    }
}

/// The most calls of the next batch to the only node, if `calls` are in flight or wait. One bundle
/// is not divided: a script with fewer calls costs more for each.
fn half_batch(calls: usize) -> usize {
    calls.div_ceil(2).clamp(BUNDLE_MAX, BATCH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_most_half_of_the_calls_but_a_whole_bundle() {
        assert_eq!(
            [1, 32, 64, 65, 200, 10_000].map(half_batch),
            [32, 32, 32, 33, 100, 256]
        );
    }
}
