//! Makes sessions with one server: connects, logs in and does the handshake, and repeats the
//! handshake for control requests. Every step has a time limit. Says how long to rest between two
//! attempts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::group::Group;
use crate::node::{CallError, Facts, InitMode, Tier, TroubleKind};
use crate::protocol::MasterAddress;
use crate::time::Timestamp;

use super::handshake::Handshake;
use super::handshake::init::{SEARCH_MAX, SEARCH_STEP};
use super::node::Control;
use super::session::Session;
use super::wire::Connection;
use super::wire::dial::Dial;
use super::wire::wake_listeners::WakeListeners;

/// How long connecting and logging in may take, and how long the handshake after it.
const STEP: Duration = Duration::from_secs(1);
/// After a connection that lasted this long, the next one is made without a backoff.
const GOOD: Duration = Duration::from_secs(1);
/// The longest backoff after a connection that had done its handshake: the server is reachable, and
/// its vote is lost during the backoff. Not zero, or a server that closes every connection would be
/// flooded with new ones.
const REST_MAX: Duration = Duration::from_millis(50);
/// The first wait, once an attempt has failed.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
/// The longest wait.
const BACKOFF_LONGEST: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct SessionMaker {
    pub(super) dial: Arc<Dial>,
    pub(super) handshake: Handshake,
    pub(super) listeners: Arc<WakeListeners>,
    /// What a crash of the server may cost, as the last handshake found it.
    pub(super) tier: Arc<Mutex<Option<Tier>>>,
    pub(super) backoff: Backoff,
}

impl SessionMaker {
    /// A connection after its handshake, joined to `group` if that is known.
    pub(super) async fn session(
        &self,
        kept: Option<Connection>,
        group: Option<Group>,
    ) -> Result<Session, CallError> {
        let reporter = &self.handshake.reporter;
        let master = match &self.handshake.sentinels {
            Some(sentinels) => Some(sentinels.confirm(self.handshake.clock.now()).await?.address),
            None => None,
        };
        let kept = kept.filter(|connection| leads_to(connection, master.as_ref()));
        let connecting = self.dial.connect(master.as_ref(), &self.listeners);
        let mut connection = match kept {
            Some(connection) => connection,
            None => match tokio::time::timeout(STEP, connecting).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => {
                    let trouble = reporter.connection(&error);
                    return Err(match trouble.kind {
                        TroubleKind::Unreachable | TroubleKind::NoSuchHost | TroubleKind::Tls => {
                            CallError::NotSent(trouble)
                        }
                        _ => CallError::Refused(trouble),
                    });
                }
                Err(_) => return Err(CallError::NotSent(reporter.no_login(STEP))),
            },
        };
        let handshake = async {
            let seen = match self.handshake.probe(&mut connection).await {
                Ok(seen) => seen,
                // Keep the connection, so that `init --force` can overwrite the birth record.
                Err(CallError::Refused(trouble))
                    if trouble.kind == TroubleKind::Version && group.is_none() =>
                {
                    return Ok(Err(trouble));
                }
                Err(error) => return Err(error),
            };
            let Some(group) = group else {
                let what = "was reached, but not sent the call: its group is unknown until a \
                            majority answers";
                return Ok(Err(reporter.trouble(TroubleKind::Other, what)));
            };
            match self.handshake.join(&mut connection, seen, &group).await {
                Ok((membership, facts)) => {
                    self.found(&facts);
                    Ok(membership)
                }
                // Keep the connection, so that a probe can read the group and the client can join
                // it.
                Err(CallError::Refused(trouble)) if trouble.kind == TroubleKind::Group => {
                    Ok(Err(trouble))
                }
                Err(error) => Err(error),
            }
        };
        let membership = self.within(STEP, handshake).await?;
        Ok(Session {
            connection,
            membership,
            listening: 0,
        })
    }

    /// Carries out `control` over a session that has no call in flight.
    pub(super) async fn control(
        &self,
        session: &mut Session,
        control: &Control,
    ) -> Result<Facts, CallError> {
        let Session {
            connection,
            membership,
            ..
        } = session;
        // The search of an `init` takes many steps, each with a limit of its own.
        let limit = match control {
            Control::Init(..) => STEP + SEARCH_MAX + SEARCH_STEP,
            Control::Probe(_) | Control::Join(..) => STEP,
        };
        self.within(limit, async {
            let (joined, facts) = match control {
                Control::Probe(_) => return Ok(self.handshake.probe(connection).await?.1),
                Control::Join(group, _) => {
                    let seen = self.handshake.probe(connection).await?;
                    let joined = self.handshake.join(connection, seen, group).await;
                    // Later calls are for this group, not for one that was joined before.
                    joined.inspect_err(|error| *membership = Err(error.trouble().clone()))?
                }
                Control::Init(group, mode, _) => {
                    let server = match mode {
                        // `--force` overwrites any birth record.
                        InitMode::Force => {
                            self.within(STEP, self.handshake.look(connection)).await?
                        }
                        _ => self.within(STEP, self.handshake.probe(connection)).await?.0,
                    };
                    let init = self.handshake.init(connection, &server, group, *mode);
                    match init.await? {
                        (Some(joined), facts) => (Ok(joined), facts),
                        (None, facts) => return Ok(facts),
                    }
                }
            };
            *membership = joined;
            self.found(&facts);
            Ok(facts)
        })
        .await
    }

    /// How long to rest after `failure` ended a connection that began at `began`. `was_made`: the
    /// connection had become a session.
    pub(super) fn rest(
        &mut self,
        began: Timestamp,
        was_made: bool,
        failure: &CallError,
    ) -> Duration {
        // A server that sent far too much must not do so again at once over the next connection.
        let excessive =
            failure.trouble().kind == TroubleKind::Garbage || self.listeners.were_flooded();
        let good = was_made && !excessive;
        if good && self.handshake.clock.now().since(began) >= GOOD {
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

    fn found(&self, facts: &Facts) {
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.tier);
    }

    async fn within<T>(
        &self,
        limit: Duration,
        step: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(limit, step).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let what = format!("accepts connections, but did not answer within {limit:?}");
                let trouble = self.handshake.reporter.trouble(TroubleKind::Timeout, what);
                Err(CallError::Unknown(trouble))
            }
        }
    }
}

/// Whether `connection` leads to the master that the Sentinels name, if they name one.
fn leads_to(connection: &Connection, master: Option<&MasterAddress>) -> bool {
    match (&connection.master, master) {
        (Some(own), Some(master)) => own.is_same(master),
        (None, None) => true,
        _ => false,
    }
}

/// Waits that double, with jitter, so that the clients of a fleet do not reconnect at the same
/// time.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Jitter from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            state: seed | 1,
        }
    }

    /// Resets the backoff after a connection that lasted: the next wait is zero.
    fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait before the next attempt: zero after the first failure, then between half of and all
    /// of a span that doubles.
    fn next(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let at_once = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        if at_once {
            return Duration::ZERO;
        }
        let span = BACKOFF_LONGEST.min(BACKOFF_FIRST * 2u32.pow(doublings));
        // xorshift64: the jitter needs no good randomness.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        span / 2 + (span / 2).mul_f64((self.state >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_begin_again() {
        let mut backoff = Backoff::new(7);
        assert_eq!(backoff.next(), Duration::ZERO);
        for span_ms in [20, 40, 80, 160, 320, 640, 1000, 1000, 1000] {
            let wait = backoff.next().as_millis();
            assert!(
                (span_ms / 2..=span_ms).contains(&wait),
                "{wait} of {span_ms}"
            );
        }
        for _ in 0..100 {
            assert!(backoff.next() <= BACKOFF_LONGEST);
        }
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
    }
}
