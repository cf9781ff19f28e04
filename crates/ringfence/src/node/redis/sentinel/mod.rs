//! The Sentinels of one group: which server they confirm as the master, asked in the background.
//!
//! All Sentinels of the user's list are asked at once, each over a connection of its own that also
//! tells of `+switch-master`. [`SentinelGroupView`] decides what a majority confirms. Votes count
//! only under a fresh confirmation ([`crate::protocol::Cluster`]); the link asks for one before it
//! sends a call, and moves to another server when the majority names one.

pub(super) mod answer;
mod asking;
mod doubt;

pub(crate) use self::asking::run;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::group::Group;
use crate::node::{CallError, Confirmation, SentinelWord, Trouble, TroubleKind};
use crate::protocol::{ConfirmedMaster, MasterAddress, SentinelGroupView};
use crate::time::Timestamp;
use crate::url::{Address, SentinelLogin, Service};

use super::report::Reporter;
use super::wire::dial::Dial;
use super::wire::tls::TlsError;

/// How long one Sentinel may take to answer, with the connection and the login.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// How long the Sentinels are asked again and again after a call, or after the news of a failover.
const WANTED: Duration = Duration::from_secs(3);

/// See the module. The link, the handshake and the asking task share it.
pub(crate) struct Sentinels {
    /// The name of the service, safe to print.
    service: Arc<str>,
    /// The name of the service, as the Sentinels know it.
    name: String,
    members: Arc<[Member]>,
    clock: Clock,
    state: Mutex<State>,
    request: watch::Sender<Request>,
    /// Counts answers and failures.
    news: watch::Sender<u64>,
    /// The last confirmation of the link's session. Read for every reply.
    confirmation: Mutex<Option<Confirmation>>,
}

/// One Sentinel of the list.
struct Member {
    dial: Dial,
    reporter: Reporter,
}

struct State {
    view: SentinelGroupView,
    /// The last outcome of each Sentinel.
    outcomes: Vec<LastQuestion>,
    /// The master that the link is connected to, after its handshake.
    session: Option<(MasterAddress, Option<u64>)>,
    /// How old the confirmation of a vote may be.
    stale_after: Duration,
}

#[derive(Default, Clone)]
struct LastQuestion {
    /// When the last question was sent that was answered or failed.
    asked_at: Option<Timestamp>,
    /// Why it failed, if it did.
    trouble: Option<Trouble>,
    /// After which silence it holds the master for dead.
    down_after: Option<Duration>,
    /// Since when the Sentinel has not agreed with the majority.
    apart_since: Option<Timestamp>,
    warned: bool,
}

/// What the asking task is to do.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// Every Sentinel is to be asked at this time or later.
    since: Option<Timestamp>,
    /// Until when the Sentinels are asked again and again.
    wanted_until: Option<Timestamp>,
}

/// What the Sentinels say about the session of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionStanding {
    /// The majority confirmed its master and epoch lately.
    Fresh,
    /// Nothing is known that is fresh enough.
    Stale,
    /// The majority confirms another epoch for the same address.
    OtherEpoch(ConfirmedMaster),
    /// The majority confirms another address.
    OtherMaster(ConfirmedMaster),
}

impl Sentinels {
    /// The Sentinels of `service`.
    ///
    /// # Errors
    /// If the TLS files cannot be used.
    pub(super) fn of(
        service: &Service,
        login: &SentinelLogin,
        clock: Clock,
    ) -> Result<Self, TlsError> {
        let member = |(host, port): &(String, u16)| {
            let name = Address::Tcp(host.clone(), *port).to_string();
            let (user, password) = (login.user.as_deref(), login.password.as_deref());
            Ok(Member {
                dial: Dial::sentinel(host, *port, login)?,
                reporter: Reporter::new(&name, user, password),
            })
        };
        let members = service.sentinels.iter().map(member);
        let members = members.collect::<Result<_, TlsError>>()?;
        let shown = service.service.escape_debug().to_string();
        Ok(Self::with(
            shown.into(),
            service.service.clone(),
            members,
            clock,
        ))
    }

    /// The same Sentinels, asked over other connections. Knows nothing yet.
    pub(super) fn again(&self) -> Self {
        let members = Arc::clone(&self.members);
        let (service, name) = (Arc::clone(&self.service), self.name.clone());
        Self::with(service, name, members, self.clock.clone())
    }

    fn with(service: Arc<str>, name: String, members: Arc<[Member]>, clock: Clock) -> Self {
        Self {
            service,
            name,
            clock,
            state: Mutex::new(State {
                view: SentinelGroupView::new(members.len(), Group::DEFAULT_QUARANTINE),
                outcomes: vec![LastQuestion::default(); members.len()],
                session: None,
                stale_after: Group::STALE_MASTER_SENTINEL,
            }),
            members,
            request: watch::Sender::default(),
            news: watch::Sender::default(),
            confirmation: Mutex::default(),
        }
    }

    /// Adopts the values of the group.
    pub(super) fn adopt(&self, group: &Group) {
        let mut state = self.state();
        state.view.remember_for(group.quarantine);
        state.stale_after = group.stale_master;
    }

    /// Notes how many Sentinels the birth record of the master names.
    pub(super) fn note_recorded(&self, sentinels: u32) {
        self.state().view.note_recorded(sentinels);
    }

    /// A majority's word on the master, asked at `since` or later.
    ///
    /// # Errors
    /// If no majority agrees in time. The error says why.
    pub(super) async fn confirm(&self, since: Timestamp) -> Result<ConfirmedMaster, CallError> {
        let mut news = self.news.subscribe();
        let until = self.clock.now() + LIMIT;
        self.want(Some(since));
        loop {
            news.borrow_and_update();
            let now = self.clock.now();
            {
                let state = self.state();
                let confirmed = state.view.confirmed(now);
                if let Some(confirmed) = confirmed.filter(|found| found.asked_at >= since) {
                    return Ok(confirmed);
                }
                let asked = |outcome: &LastQuestion| outcome.asked_at >= Some(since);
                if now >= until || state.outcomes.iter().all(asked) {
                    return Err(self.doubt(&state, since, now));
                }
            }
            tokio::select! {
                _ = news.changed() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    /// Waits until every Sentinel was asked at `since` or later, but not for long.
    pub(super) async fn all_asked(&self, since: Timestamp) {
        let mut news = self.news.subscribe();
        let until = self.clock.now() + LIMIT;
        loop {
            news.borrow_and_update();
            let asked = |outcome: &LastQuestion| outcome.asked_at >= Some(since);
            if self.clock.now() >= until || self.state().outcomes.iter().all(asked) {
                return;
            }
            tokio::select! {
                _ = news.changed() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    /// The link has a session with this master, whose birth record has this epoch; or it has none.
    pub(super) fn set_session(&self, session: Option<(MasterAddress, Option<u64>)>) {
        self.state().session = session;
        *self.last_confirmation() = None;
        self.note_confirmation();
    }

    /// The master that the link is connected to.
    pub(super) fn session_master(&self) -> Option<MasterAddress> {
        self.state()
            .session
            .as_ref()
            .map(|(master, _)| master.clone())
    }

    /// The last confirmation of the link's session.
    pub(super) fn confirmation(&self) -> Option<Confirmation> {
        *self.last_confirmation()
    }

    /// What the Sentinels say about the link's session.
    pub(super) fn standing(&self, now: Timestamp) -> SessionStanding {
        let state = self.state();
        let Some((confirmed, (address, epoch))) =
            state.view.confirmed(now).zip(state.session.as_ref())
        else {
            return SessionStanding::Stale;
        };
        if !confirmed.address.is_same(address) {
            SessionStanding::OtherMaster(confirmed)
        } else if Some(confirmed.epoch) != *epoch {
            SessionStanding::OtherEpoch(confirmed)
        } else if confirmed.asked_at + state.stale_after * 3 / 4 >= now {
            SessionStanding::Fresh
        } else {
            SessionStanding::Stale
        }
    }

    /// Why the Sentinels confirm nothing, by the answers of the last moments.
    pub(super) fn trouble(&self, now: Timestamp) -> Trouble {
        let state = self.state();
        let since = now - state.stale_after;
        self.doubt(&state, since, now).trouble().clone()
    }

    /// A call needs a confirmation: has the Sentinels asked for a while, and at `since` or later if
    /// that is given.
    pub(super) fn want(&self, since: Option<Timestamp>) {
        let until = self.clock.now() + WANTED;
        // Most calls change nothing, and wake no task.
        self.request.send_if_modified(|request| {
            let known = request.wanted_until;
            let extends = known.is_none_or(|known| until >= known + WANTED / 6);
            let asks = since > request.since;
            if extends {
                request.wanted_until = Some(until);
            }
            if asks {
                request.since = since;
            }
            extends || asks
        });
    }

    /// The master that the Sentinels confirmed last.
    pub(super) fn confirmed_address(&self) -> Option<MasterAddress> {
        let state = self.state();
        let confirmed = state.view.confirmed(self.clock.now());
        confirmed.map(|confirmed| confirmed.address)
    }

    /// Sleeps on the client's clock.
    pub(super) async fn sleep_until(&self, until: Timestamp) {
        self.clock.sleep_until(until).await;
    }

    /// Receives a value whenever a Sentinel has answered or failed.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Remembers the present confirmation, if it is about the link's session.
    fn note_confirmation(&self) {
        let state = self.state();
        let confirmed = state.view.confirmed(self.clock.now());
        let Some((confirmed, (address, epoch))) = confirmed.zip(state.session.as_ref()) else {
            return;
        };
        if confirmed.address.is_same(address) && Some(confirmed.epoch) == *epoch {
            *self.last_confirmation() = Some(Confirmation {
                epoch: confirmed.epoch,
                asked_at: confirmed.asked_at,
            });
        }
    }

    fn last_confirmation(&self) -> MutexGuard<'_, Option<Confirmation>> {
        let last = self.confirmation.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    /// What each Sentinel says, for the doctor.
    pub(super) fn words(&self) -> Vec<(String, Result<SentinelWord, Trouble>)> {
        let state = self.state();
        let word = |(index, outcome): (usize, &LastQuestion)| {
            let name = self.members[index].reporter.node.to_string();
            let answer = state.view.last_answer(index);
            let word = match (&outcome.trouble, answer) {
                (None, Some(answer)) => Ok(SentinelWord {
                    master: answer.master.to_string(),
                    epoch: answer.epoch_after,
                    others: answer.others,
                    down_after: outcome.down_after,
                }),
                (Some(trouble), _) => Err(trouble.clone()),
                (None, None) => {
                    let reporter = &self.members[index].reporter;
                    Err(reporter.trouble(TroubleKind::Timeout, "has not answered"))
                }
            };
            (name, word)
        };
        state.outcomes.iter().enumerate().map(word).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
