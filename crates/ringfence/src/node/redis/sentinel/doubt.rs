//! What is said when Sentinels confirm nothing, or when one of them disagrees.

use std::cmp::Ordering;

use crate::node::{CallError, Trouble, TroubleKind};
use crate::protocol::{Unconfirmed, quorum};
use crate::time::Timestamp;

use super::answer::Unusable;
use super::{Sentinels, State};

impl Sentinels {
    /// Why no master is confirmed by answers to questions that were sent at `since` or later.
    pub(super) fn doubt(&self, state: &State, since: Timestamp, now: Timestamp) -> CallError {
        let service = &self.service;
        let troubles = || {
            state
                .outcomes
                .iter()
                .filter_map(|outcome| outcome.trouble.as_ref())
        };
        let wrong = || troubles().filter(|trouble| trouble.is_misconfiguration());
        let majority = |total: u32| quorum(total as usize);
        let total = state.view.total(now) as usize;
        // Waiting does not help if a majority can never answer.
        if total.saturating_sub(wrong().count()) < quorum(total)
            && let Some(trouble) = wrong().next()
        {
            return CallError::Refused(trouble.clone());
        }
        let (kind, what) = match state.view.doubt(since, now) {
            Unconfirmed::ListTooShort { listed, total } => (
                TroubleKind::Sentinel,
                format!(
                    "the service `{service}` has {total} Sentinels, and a majority must confirm the \
                     master: the URL names {listed}, name at least {}, better all of them",
                    majority(total)
                ),
            ),
            Unconfirmed::TooFewAnswer { answered, total } => {
                let mut what = format!(
                    "{answered} of the {total} Sentinels of `{service}` answered, and {} must \
                     confirm the master",
                    majority(total)
                );
                for trouble in troubles() {
                    what += &format!("; {trouble}");
                }
                (TroubleKind::Unconfirmed, what)
            }
            Unconfirmed::Disagree { .. } => (
                TroubleKind::Unconfirmed,
                format!(
                    "the Sentinels of `{service}` do not agree on the master; a failover is in \
                     progress, or a part of them is cut off"
                ),
            ),
        };
        let trouble = Trouble::new(kind, what);
        match kind {
            TroubleKind::Sentinel => CallError::Refused(trouble),
            _ => CallError::NotSent(trouble),
        }
    }

    /// Trouble with the answers of the Sentinel at `index`.
    pub(super) fn unusable(&self, index: usize, unusable: &Unusable) -> Trouble {
        let reporter = &self.members[index].reporter;
        let service = &self.service;
        match unusable {
            Unusable::NoSuchService => reporter.trouble(
                TroubleKind::Sentinel,
                format!(
                    "knows no service `{service}`; the name is behind the Sentinels in the URL: \
                     redis+sentinel://HOST/SERVICE (`SENTINEL MASTERS` lists the names)"
                ),
            ),
            Unusable::Error(error) if is_unknown_command(error.details().unwrap_or_default()) => {
                reporter.trouble(
                    TroubleKind::Sentinel,
                    "is a server with data, not a Sentinel; name the Sentinels (usually at port \
                     26379), or use redis:// for this server",
                )
            }
            Unusable::Error(error) => reporter.server_error(error),
            Unusable::Malformed => reporter.garbage(),
        }
    }

    /// How the Sentinel at `index` contradicts the majority, if it does.
    pub(super) fn contradiction(
        &self,
        state: &State,
        index: usize,
        now: Timestamp,
    ) -> Option<String> {
        let confirmed = state.view.confirmed(now)?;
        let name = &self.members[index].reporter.node;
        if let Some(trouble) = &state.outcomes[index].trouble {
            return Some(format!("a Sentinel cannot be asked: {trouble}"));
        }
        let last = state.view.last_answer(index)?;
        if !last.master.is_same(&confirmed.address) || last.epoch_after != confirmed.epoch {
            return Some(format!(
                "the Sentinel {name} names {} under epoch {}, but the majority names {} under epoch \
                 {}",
                last.master, last.epoch_after, confirmed.address, confirmed.epoch
            ));
        }
        let (known, total) = (last.others.saturating_add(1), confirmed.sentinels);
        match known.cmp(&total) {
            Ordering::Less => Some(format!(
                "the Sentinel {name} knows {known} of {total} Sentinels"
            )),
            Ordering::Equal => None,
            Ordering::Greater => Some(format!(
                "the Sentinel {name} says that there are {known} Sentinels, but the majority knows \
                 {total}"
            )),
        }
    }
}

/// `trouble`, with the name of the parameter that is to be changed if a Sentinel refuses the login.
pub(super) fn with_hint(trouble: Trouble) -> Trouble {
    match trouble.kind {
        TroubleKind::Denied => {
            let hint = "the Sentinels' own login is ?sentinel_user=…&sentinel_password=…";
            Trouble::new(trouble.kind, format!("{trouble}; {hint}"))
        }
        _ => trouble,
    }
}

fn is_unknown_command(details: &str) -> bool {
    details.to_ascii_lowercase().contains("unknown command")
}
