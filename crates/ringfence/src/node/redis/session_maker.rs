//! Makes sessions with one server: connects, logs in and does the handshake, and repeats the
//! handshake for control requests. Every step has a time limit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::group::Group;
use crate::node::{CallError, Facts, InitMode, Tier, TroubleKind};
use crate::protocol::MasterAddress;

use super::handshake::Handshake;
use super::handshake::search::{SEARCH_MAX, SEARCH_STEP};
use super::queue::Control;
use super::session::Session;
use super::transport::connection::Connection;
use super::transport::dial::Dial;
use super::transport::wake_listeners::WakeListeners;

/// How long connecting and logging in may take, and how long the handshake after it.
const STEP: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct SessionMaker {
    pub(super) dial: Arc<Dial>,
    pub(super) handshake: Handshake,
    pub(super) listeners: Arc<WakeListeners>,
    /// What a crash of the server may cost, as the last handshake found it.
    pub(super) tier: Arc<Mutex<Option<Tier>>>,
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
