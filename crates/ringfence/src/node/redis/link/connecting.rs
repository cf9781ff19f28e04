//! Between two connections, and between two sessions on one: making them, and how long to rest before.

use std::time::Duration;

use crate::node::{CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::{End, Link};
use crate::node::redis::{queue::Control, session::Session, transport::connection::Connection};

/// How long calls wait for a connection that is being made.
const PATIENCE: Duration = Duration::from_millis(100);
/// A connection that held this long was a good one: the next is made without waiting.
const GOOD: Duration = Duration::from_secs(1);
/// The longest rest after a connection that had shaken hands: its server is there, and votes are
/// lost while we rest. Not none, or a server that hangs up on everybody would be stormed.
const REST_MAX: Duration = Duration::from_millis(50);

impl Link {
    /// Makes a session, on the connection that is `kept` or a new one. `None` if everybody left.
    pub(super) async fn establish(
        &mut self,
        kept: Option<Connection>,
        trouble: Option<&Trouble>,
    ) -> Option<Result<Session, CallError>> {
        let group = self.queue.group;
        let attempt = self.maker.session(kept, group);
        match trouble {
            Some(trouble) => {
                self.queue
                    .hold_during(attempt, Duration::ZERO, trouble)
                    .await
            }
            None => {
                let reporter = &self.maker.handshake.reporter;
                let slow = reporter.trouble(TroubleKind::Timeout, "is slow to connect");
                self.queue.hold_during(attempt, PATIENCE, &slow).await
            }
        }
    }

    /// Does what `control` wants, while calls wait. How the session ends, if it must.
    pub(super) async fn control(&mut self, session: &mut Session, control: Control) -> Option<End> {
        let reporter = &self.maker.handshake.reporter;
        let busy = reporter.trouble(TroubleKind::Timeout, "is slow to shake hands");
        let attempt = self.maker.control(session, &control);
        let held = self.queue.hold_during(attempt, PATIENCE, &busy).await;
        let Some(outcome) = held else {
            return Some(End::Closed);
        };
        if let (Ok(_), Control::Init(group, mode, _)) = (&outcome, &control)
            && mode.writes()
        {
            self.queue.group = Some(*group);
        }
        let lost = match &outcome {
            Err(CallError::NotSent(trouble) | CallError::Unknown(trouble)) => Some(trouble.clone()),
            Ok(_) | Err(CallError::Refused(_)) => None,
        };
        control.complete(outcome);
        lost.map(End::Lost)
    }

    /// How long to rest after `failure` ended a connection that was begun at `began`, or a session that
    /// was not even made.
    pub(super) fn rest(
        &mut self,
        began: Timestamp,
        was_made: bool,
        failure: &CallError,
    ) -> Duration {
        // A server that sends far too much must not do so again at once over the next connection.
        let excessive =
            failure.trouble().kind == TroubleKind::Garbage || self.maker.listeners.were_flooded();
        let good = was_made && !excessive;
        if good && self.clock().now().since(began) >= GOOD {
            self.backoff.reset();
        }
        let mut rest = self.backoff.next();
        if good {
            rest = rest.min(REST_MAX);
        }
        if excessive && rest.is_zero() {
            rest = self.backoff.next();
        }
        rest
    }
}
