//! Breaking a lock: an operator ends the hold of another client.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Ballot, Break, Claim, Mode, Reply, View};
use crate::name::{Name, NameError};
use crate::node::CallError;
use crate::protocol::{BreakNext, Vote, inspect};
use crate::runtime::breaking::break_claims;
use crate::runtime::gather::all;

use super::Locks;
use super::error::ConfigError;
use super::inspection::LockState;
use super::votes::Votes;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long nodes remember a break unless the caller says otherwise.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest name of an operator and the longest reason, in bytes.
const BY_MAX_BYTES: usize = 128;
const REASON_MAX_BYTES: usize = 256;

/// A hold that is to be broken. [`Locks::break_lock`] makes it, [`run`](Self::run) does it.
///
/// The old holder is not stopped. It learns of the break at its next renewal, with the reason; until
/// then it may go on as if it held the lock, and so may a process that is paused, for as long as it
/// is paused. Only the resource can refuse it: raise its mark to [`Broken::fence`].
#[derive(Clone)]
#[must_use = "nothing is broken before `run` is called"]
pub struct BreakRequest {
    locks: Locks,
    name: Result<Name, NameError>,
    what: Break,
    /// Whether the caller said what it has seen.
    seen: bool,
    permits: Option<u32>,
}

/// A lock that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The fence of the name from now on. It is higher than that of the broken hold, and every
    /// later holder has a higher one.
    pub fence: u64,
    /// How many holders were removed.
    pub holders: u64,
}

/// Why a lock was not broken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BreakError {
    /// No node has a holder.
    Free {
        /// The lock.
        name: String,
    },
    /// Another client holds the lock than the one that was to be broken.
    Changed {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes accepted the break. Some nodes may have carried it out; to repeat
    /// it does no harm.
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The client was closed meanwhile.
    Closed {
        /// The lock.
        name: String,
    },
    /// The request is not valid. Nothing was sent.
    Invalid(ConfigError),
}

impl fmt::Display for BreakError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free { name } => write!(f, "`{name}` is free"),
            Self::Changed { name, votes } => {
                let text =
                    format!("`{name}` changed hands meanwhile, and the new holder was not broken");
                f.write_str(&votes.told(&text, &text))
            }
            Self::NoQuorum { name, votes } => f.write_str(&votes.told(
                format_args!("no majority of the nodes broke `{name}`"),
                format_args!("the node did not confirm the break of `{name}`"),
            )),
            Self::Closed { name } => {
                write!(f, "the client was closed before `{name}` was broken")
            }
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl Error for BreakError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(error) => error.source(),
            other => other.votes().and_then(Votes::as_source),
        }
    }
}

impl From<ConfigError> for BreakError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
}

impl BreakError {
    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Changed { votes, .. } | Self::NoQuorum { votes, .. } => Some(votes),
            Self::Free { .. } | Self::Closed { .. } | Self::Invalid(_) => None,
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoQuorum { .. } | Self::Changed { .. })
    }
}

impl Locks {
    /// Breaks the lock `name`: for a holder that is known to be dead, or one that `hold_at_least`
    /// keeps from others. All readers of a shared lock are broken, unless
    /// [`reader`](BreakRequest::reader) names one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let dead = locks.mutex("orders:42").lock().await?;
    /// let broken = locks.break_lock("orders:42").reason("host-7 burnt down").run().await?;
    /// assert!(broken.fence > dead.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub fn break_lock(&self, name: impl AsRef<str>) -> BreakRequest {
        let settings = &self.shared.settings;
        BreakRequest {
            name: Name::new(&settings.prefix, name.as_ref()),
            locks: self.clone(),
            what: Break {
                ballot: Ballot::default(),
                up_to: Ballot::default(),
                foreign: false,
                only: None,
                slot: None,
                by: Arc::clone(&settings.label),
                reason: Arc::from(""),
                keep_ms: millis(REMEMBERED),
            },
            seen: false,
            permits: None,
        }
    }
}

impl BreakRequest {
    /// The operator, for people. Default: the label of this client.
    pub fn by(mut self, operator: &str) -> Self {
        self.what.by = cut(operator, BY_MAX_BYTES);
        self
    }

    /// The reason, for people and for the old holder.
    pub fn reason(mut self, reason: &str) -> Self {
        self.what.reason = cut(reason, REASON_MAX_BYTES);
        self
    }

    /// Breaks only what is held with this fence or a lower one: the holder that the caller has
    /// seen. A later holder stays. Without it, the holder at the time of the call is broken.
    pub fn seen(mut self, fence: u64) -> Self {
        self.what.up_to = Ballot::new(fence);
        self.seen = true;
        self
    }

    /// Breaks only the reader with this id and fence, as an inspection shows them. The others keep
    /// the lock; but those with a lower fence are not restored on nodes that lose them.
    pub fn reader(mut self, id: &str, fence: u64) -> Self {
        self.what.only = Some(Arc::from(id));
        self.seen(fence)
    }

    /// Breaks a slot of the semaphore `name`, which has this many permits.
    pub fn slot(mut self, slot: u32, permits: u32) -> Self {
        self.what.slot = Some(slot);
        self.permits = Some(permits);
        self
    }

    /// How long the nodes remember the break. Default: 7 days.
    pub fn remembered(mut self, remembered: Duration) -> Self {
        self.what.keep_ms = millis(remembered).max(1);
        self
    }

    /// Breaks the lock on a majority of the nodes.
    ///
    /// # Errors
    /// If the lock is free, if it changed hands, or if no majority of the nodes accepts the break.
    pub async fn run(self) -> Result<Broken, BreakError> {
        self.locks.own(self.run_here()).await
    }

    async fn run_here(&self) -> Result<Broken, BreakError> {
        self.locks.check_runtime()?;
        let name = self.name.clone().map_err(ConfigError::from)?;
        let claims = self.claims(&name)?;
        let mut what = self.what.clone();
        if !self.seen {
            let claim = what.slot.map_or(0, |slot| slot as usize + 1);
            let holders = self.look(&name, &claims, claim).await?;
            let ballots = holders.iter().filter_map(|view| view.ballot);
            what.up_to = ballots.max().unwrap_or_default();
            what.foreign = holders.iter().any(|view| view.ballot.is_none());
        }
        let runtime = self.locks.runtime();
        let done = break_claims(runtime, &claims, &what, PATIENCE).await;
        let (next, votes) = done.ok_or_else(|| BreakError::Closed {
            name: name.to_string(),
        })?;
        let (name, votes) = (name.to_string(), self.votes(votes));
        match next {
            BreakNext::Broken { fence, holders } => Ok(Broken {
                fence: fence.get(),
                holders,
            }),
            BreakNext::Changed => Err(BreakError::Changed { name, votes }),
            BreakNext::NoQuorum | BreakNext::Again => Err(BreakError::NoQuorum { name, votes }),
        }
    }

    fn votes(&self, votes: Vec<Vote>) -> Votes {
        Votes::worded("broke it", &self.locks.shared.names, votes)
    }

    /// The claims: the name, or the semaphore's admission record and slots.
    fn claims(&self, name: &Name) -> Result<Arc<[Claim]>, BreakError> {
        let exclusive = |name: Name| Claim {
            name,
            mode: Mode::Exclusive,
        };
        let Some(permits) = self.permits else {
            return Ok(Arc::from([exclusive(name.clone())]));
        };
        let most = super::semaphore::PERMITS_MAX;
        let permits = permits.max(self.what.slot.unwrap_or(0).saturating_add(1));
        if permits > most {
            return Err(ConfigError::Permits { permits, most }.into());
        }
        let slots = (0..permits).map(|slot| name.slot(slot));
        let names = std::iter::once(name.admission()).chain(slots);
        Ok(names.map(exclusive).collect())
    }

    /// What the nodes say that have a holder of the claim at position `claim`, if there is one.
    async fn look(
        &self,
        name: &Name,
        claims: &Arc<[Claim]>,
        claim: usize,
    ) -> Result<Vec<View>, BreakError> {
        let sender = &self.locks.runtime().sender;
        let request = Arc::new(inspect(Arc::clone(claims)));
        let until = sender.clock.now() + PATIENCE;
        let answers = sender.ask_all(&request, until, all).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let votes: Vec<Vote> = answers.iter().map(said).collect();
        let views = answers.into_iter().flatten();
        let views = views.filter_map(|reply| match reply.answer {
            Answer::Views(views) => views.into_iter().nth(claim),
            _ => None,
        });
        let holders: Vec<View> = views.filter(|view| view.holder.is_some()).collect();
        let name = name.to_string();
        match LockState::of(0, failed, votes.len()) {
            _ if !holders.is_empty() => Ok(holders),
            LockState::Free => Err(BreakError::Free { name }),
            // A holder may be on the nodes that do not answer.
            LockState::Held | LockState::Unknown => Err(BreakError::NoQuorum {
                name,
                votes: Votes::worded("has no holder", &self.locks.shared.names, votes),
            }),
        }
    }
}

fn said(answer: &Result<Reply, CallError>) -> Vote {
    match answer {
        Ok(_) => Vote::Granted,
        Err(error) => Vote::Failed(error.clone()),
    }
}

impl fmt::Debug for BreakRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("", Name::as_str);
        f.debug_struct("BreakRequest")
            .field("name", &name)
            .field("by", &self.what.by)
            .field("reason", &self.what.reason)
            .finish_non_exhaustive()
    }
}

/// At most `max` bytes of `text`.
fn cut(text: &str, max: usize) -> Arc<str> {
    let fits = |end: &usize| *end <= max;
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    Arc::from(&text[..ends.take_while(fits).last().unwrap_or(0)])
}

fn millis(duration: Duration) -> u64 {
    // A year at most: servers refuse an expiry that overflows their clock.
    let most = Duration::from_secs(365 * 24 * 3600);
    u64::try_from(duration.min(most).as_millis()).unwrap_or(u64::MAX)
}
