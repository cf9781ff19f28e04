//! How a link makes connections and sessions, and how long it backs off in between.

use std::time::Duration;

use crate::node::{CallError, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::{Link, SessionEnd};
use crate::node::redis::{queue::Control, session::Session, transport::connection::Connection};

/// How long calls wait for a connection that is being made.
const PATIENCE: Duration = Duration::from_millis(100);
/// After a connection that lasted this long, the next one is made without a backoff.
const GOOD: Duration = Duration::from_secs(1);
/// The longest backoff after a connection that had done its handshake: the server is reachable, and
/// its vote is lost during the backoff. Not zero, or a server that closes every connection would be
/// flooded with new ones.
const REST_MAX: Duration = Duration::from_millis(50);

impl Link {
    /// Makes a session on the `kept` connection, or on a new one. `None` if the node was dropped.
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

    /// Carries out `control` while calls wait. Returns how the session ends, if it must.
    pub(super) async fn control(
        &mut self,
        session: &mut Session,
        control: Control,
    ) -> Option<SessionEnd> {
        let reporter = &self.maker.handshake.reporter;
        let busy = reporter.trouble(TroubleKind::Timeout, "is slow to answer the handshake");
        let attempt = self.maker.control(session, &control);
        let held = self.queue.hold_during(attempt, PATIENCE, &busy).await;
        let Some(outcome) = held else {
            return Some(SessionEnd::Closed);
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
        lost.map(SessionEnd::Lost)
    }

    /// How long to back off after `failure` ended a connection that began at `began`. `was_made`:
    /// the connection had become a session.
    pub(super) fn rest(
        &mut self,
        began: Timestamp,
        was_made: bool,
        failure: &CallError,
    ) -> Duration {
        // A server that sent far too much must not do so again at once over the next connection.
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
