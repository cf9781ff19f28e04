//! A latch: shut until so many parties have arrived, and open from then on.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Claim, Mode};
use crate::name::{Name, NameError};
use crate::protocol::{LatchFailureKind, LatchTerms};
use crate::runtime::closing::Refusal;
use crate::runtime::latch::{self, LatchRequest};

use super::Locks;
use super::error::ConfigError;
use super::lock::{TTL_MAX, whole_millis};
use super::votes::{Votes, not_fit, not_voting_on_latch};

/// How long a latch lives without being heard of, unless it says otherwise.
const TTL: Duration = Duration::from_secs(3600);
/// The shortest life of a latch: waiting clients refresh it about once a second.
const TTL_MIN: Duration = Duration::from_secs(3);
/// The longest name of a party, in bytes.
const PARTY_MAX_BYTES: usize = 256;

/// A latch, shut until so many parties have arrived. Made by [`Locks::latch`].
///
/// One value, with its clones, is one party: however often it [arrives](Self::arrive), it counts
/// once. Every call of [`Locks::latch`] makes another party, unless [`party`](Self::party) says
/// which.
///
/// Once one client has seen the latch open, it is open for every client, whatever minority of the
/// nodes fails afterwards. Nodes that may have forgotten arrivals do not count; see
/// [`ttl`](Self::ttl).
///
/// A latch opens once. For the next round take another name, with the round's number in it.
#[derive(Clone)]
#[must_use = "a latch does nothing until `arrive` or `opened` is awaited"]
pub struct Latch {
    locks: Locks,
    name: Result<Name, NameError>,
    count: u32,
    party: Result<Arc<str>, LatchError>,
    ttl: Duration,
    wait: Option<Duration>,
    no_quorum_after: Duration,
}

/// What a party found when it had arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Arrival {
    /// How many have arrived, this party included.
    pub arrived: u64,
    /// How many are still missing. None: the latch is open, for everyone.
    pub missing: u64,
}

impl Arrival {
    /// Whether the latch is open.
    pub fn is_open(&self) -> bool {
        self.missing == 0
    }
}

impl Latch {
    /// The most parties that a latch may wait for: a node returns all of them in one reply.
    pub const PARTIES_MAX: u32 = 1024;

    pub(super) fn new(locks: Locks, name: &str, count: u32) -> Self {
        let drawn = locks.shared.runtime.entropy.token();
        let drawn = drawn.map(|token| format!("drawn:{}", token.expose()));
        Self {
            name: Name::new(&locks.shared.settings.prefix, name),
            wait: locks.shared.settings.wait,
            no_quorum_after: locks.shared.settings.no_quorum_after,
            locks,
            count,
            party: drawn
                .map(Arc::from)
                .map_err(|error| LatchError::NoEntropy(error.to_string())),
            ttl: TTL,
        }
    }

    /// The name of the party that arrives: the same name is the same party, in every process and
    /// after every restart. Default: a name that no other value has.
    pub fn party(mut self, party: &str) -> Self {
        self.party = match party.len() {
            1..=PARTY_MAX_BYTES => Ok(format!("named:{party}").into()),
            bytes => Err(LatchError::Invalid(ConfigError::PartyName {
                bytes,
                most: PARTY_MAX_BYTES,
            })),
        };
        self
    }

    /// How long the nodes keep the latch after the last arrival, and longer while a client waits.
    /// Default: one hour. It must be the same for all clients of one latch.
    ///
    /// A node that restarted does not know, for this long and the quarantine, whether it forgot the
    /// latch. So the first arrival can make a latch only while a majority of the nodes has been
    /// running for longer. After a restart of a majority no latch can be made for its `ttl`
    /// ([`LatchError::Quarantined`]); a shorter `ttl` waits for less. One node, or nodes that sync
    /// every write, need no such time, and neither do new nodes that [`init`](crate::Builder::init)
    /// declared new before their first use.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`opened`](Self::opened) waits for other parties; `None` is without a limit.
    /// Default: the client's, which is without a limit. Zero only looks.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// How long to go on while no majority of the nodes answers. Default: the client's, which is
    /// 15 s, or the wait if that is shorter.
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.no_quorum_after = span;
        self
    }

    /// Arrives, without waiting for others. `Ok` once a majority of the nodes has taken note.
    ///
    /// Arriving again, after an error for instance, counts once. Dropping the future takes nothing
    /// back: the arrival may count.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// for shard in ["eu", "us"] {
    ///     let arrival = locks.latch("imported:42", 2).party(shard).arrive().await?;
    ///     println!("{} arrived, {} missing", arrival.arrived, arrival.missing);
    /// }
    /// locks.latch("imported:42", 2).opened().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn arrive(&self) -> Result<Arrival, LatchError> {
        self.locks.own(self.arrive_here()).await
    }

    async fn arrive_here(&self) -> Result<Arrival, LatchError> {
        let wanted = self.wanted(None)?;
        let party = self.party.clone()?;
        let arrived = latch::arrive(self.locks.runtime(), &wanted, &party).await;
        let arrived = arrived.map_err(|refusal| self.failed(refusal))?;
        let count = u64::from(self.count);
        if arrived > count {
            // Each judges by its own number: there is none that all would have to agree on.
            tracing::warn!(
                target: "ringfence",
                name = %self.shown(), count, arrived,
                "more have arrived at this latch than it waits for: do clients disagree on the number?"
            );
        }
        Ok(Arrival {
            arrived,
            missing: count.saturating_sub(arrived),
        })
    }

    /// Waits until the latch is open, without arriving. Cancel-safe.
    pub async fn opened(&self) -> Result<(), LatchError> {
        let waiting = async {
            let wanted = self.wanted(self.wait)?;
            let opened = latch::wait(self.locks.runtime(), &wanted).await;
            opened.map(|_| ()).map_err(|refusal| self.failed(refusal))
        };
        self.locks.own(waiting).await
    }

    fn wanted(&self, wait: Option<Duration>) -> Result<LatchRequest, ConfigError> {
        self.locks.check_runtime()?;
        let name = self.name.clone()?;
        if !(1..=Self::PARTIES_MAX).contains(&self.count) {
            return Err(ConfigError::Parties {
                count: self.count,
                most: Self::PARTIES_MAX,
            });
        }
        let ttl = whole_millis(self.ttl);
        if ttl < TTL_MIN {
            let least = TTL_MIN;
            return Err(ConfigError::TtlTooShort { ttl, least });
        }
        if ttl > TTL_MAX {
            let most = TTL_MAX;
            return Err(ConfigError::TtlTooLong { ttl, most });
        }
        let shared = &self.locks.shared;
        let settings = &shared.settings;
        Ok(LatchRequest {
            claims: Arc::from([Claim {
                name: name.latch(),
                mode: Mode::Exclusive,
            }]),
            terms: LatchTerms {
                nodes: shared.runtime.sender.nodes.len(),
                count: u64::from(self.count),
                ttl,
                call_timeout: settings.call_timeout(settings.ttl),
                wait,
                no_quorum_after: self.no_quorum_after,
            },
            label: Arc::clone(&settings.label),
        })
    }

    fn failed(&self, refusal: Refusal<LatchFailureKind>) -> LatchError {
        let names = &self.locks.shared.names;
        LatchError::new(self.shown(), u64::from(self.count), names, refusal)
    }

    /// The name, for people.
    fn shown(&self) -> String {
        self.name
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("", Name::as_str);
        f.debug_struct("Latch")
            .field("name", &name)
            .field("count", &self.count)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// Why a party did not arrive at a latch, or a latch was not seen open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LatchError {
    /// The wait is over, and too few have arrived.
    Shut {
        /// The latch.
        name: String,
        /// How many have arrived.
        arrived: u64,
        /// How many it waits for.
        count: u64,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes answers and remembers the latch from its beginning. A party may
    /// have arrived all the same: to repeat the call changes nothing then.
    NoQuorum {
        /// The latch.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// Of a majority nothing counts yet: its clocks jumped, or it is new or was restarted, and
    /// cannot tell whether it forgot the latch.
    Quarantined {
        /// The latch.
        name: String,
        /// When a majority may vote.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority of the nodes cannot vote until an operator changes their settings.
    Misconfigured {
        /// The latch.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The client was closed meanwhile.
    Closed {
        /// The latch.
        name: String,
    },
    /// The request is not valid. Nothing was sent.
    Invalid(ConfigError),
    /// The operating system gave no random bytes to tell this party from others.
    NoEntropy(String),
}

impl fmt::Display for LatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shut {
                name,
                arrived,
                count,
                ..
            } => write!(f, "`{name}` is shut: {arrived} of {count} have arrived"),
            Self::NoQuorum { name, votes } => f.write_str(&votes.told(
                format_args!("no majority of the nodes can tell who has arrived at `{name}`"),
                format_args!("the node cannot tell who has arrived at `{name}`"),
            )),
            Self::Quarantined { name, left, votes } => {
                write!(f, "`{name}`: {}", not_voting_on_latch(votes, *left))
            }
            Self::Misconfigured { votes, .. } => f.write_str(&not_fit(votes)),
            Self::Closed { name } => {
                write!(f, "the client was closed while it waited at `{name}`")
            }
            Self::Invalid(error) => error.fmt(f),
            Self::NoEntropy(error) => {
                write!(f, "no random bytes to tell this party from others: {error}")
            }
        }
    }
}

impl Error for LatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Shut { .. } => None,
            Self::Quarantined { votes, .. } => votes.as_source_of_quarantine(),
            Self::Invalid(error) => error.source(),
            other => other.votes().and_then(Votes::as_source),
        }
    }
}

impl From<ConfigError> for LatchError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
}

impl LatchError {
    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Misconfigured { .. } | Self::Invalid(_) | Self::Closed { .. }
        )
    }

    /// Every node's vote, where nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Shut { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::Quarantined { votes, .. }
            | Self::Misconfigured { votes, .. } => Some(votes),
            Self::Closed { .. } | Self::Invalid(_) | Self::NoEntropy(_) => None,
        }
    }

    pub(super) fn new(
        name: String,
        count: u64,
        names: &[String],
        refusal: Refusal<LatchFailureKind>,
    ) -> Self {
        let failure = match refusal {
            Refusal::Closed => return Self::Closed { name },
            Refusal::RuntimeGone => return Self::Invalid(ConfigError::RuntimeGone),
            Refusal::NoEntropy(error) => return Self::NoEntropy(error.to_string()),
            Refusal::Failed(failure) => failure,
        };
        let votes = Votes::worded("answers", names, failure.votes);
        match failure.kind {
            LatchFailureKind::Shut { arrived } => Self::Shut {
                name,
                arrived,
                count,
                votes,
            },
            LatchFailureKind::NoQuorum => Self::NoQuorum { name, votes },
            LatchFailureKind::Quarantined { left } => Self::Quarantined { name, left, votes },
            LatchFailureKind::Misconfigured => Self::Misconfigured { name, votes },
        }
    }
}
