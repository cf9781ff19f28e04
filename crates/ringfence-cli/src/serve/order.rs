//! What a client orders: the JSON body of a request, checked, as a request to the library.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use ringfence::{AcquireError, Locks};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::problem::Problem;
use crate::args::{KindArgs, LockArgs};
use crate::command::take::{TakeRequest, Taken};
use crate::config::Config;
use crate::duration;

/// The longest body: a hundred of the longest names.
const BODY_MAX_BYTES: usize = 128 * 1024;
/// How long a client may take to send it.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// The most names that are taken together.
const NAMES_MAX: usize = 64;

/// Reads the body of a request.
pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    let body = tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY_MAX_BYTES)).await;
    let body = match body {
        Err(_) => return Err(Problem::timeout("the body was sent too slowly")),
        Ok(Err(_)) => {
            let why = format!("the body is longer than {BODY_MAX_BYTES} bytes, or broken off");
            return Err(Problem::too_large(why));
        }
        Ok(Ok(body)) => body,
    };
    serde_json::from_slice(&body).map_err(|error| Problem::usage(format!("the body: {error}")))
}

/// The body of `POST /v1/hold` and `POST /v1/acquire`. The words are those of the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockOrder {
    name: Option<String>,
    /// Several names, taken together.
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    kind: OrderedKind,
    permits: Option<u32>,
    #[serde(default, deserialize_with = "span")]
    ttl: Option<Duration>,
    #[serde(default, deserialize_with = "wait")]
    wait: Option<Duration>,
    attempts: Option<u32>,
    #[serde(default, deserialize_with = "span")]
    no_quorum_after: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    lock_delay: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    hold_at_least: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    max_hold: Option<Duration>,
    label: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderedKind {
    #[default]
    Mutex,
    Read,
    Write,
    Semaphore,
}

/// An order that was checked.
#[derive(Debug)]
pub(super) struct CheckedOrder {
    names: Vec<String>,
    terms: LockArgs,
    kind: KindArgs,
    lock_delay: Duration,
    max_hold: Option<Duration>,
    label: String,
}

impl LockOrder {
    /// Checks what does not need the nodes. `config` fills what the client left out, `label` says
    /// who it is.
    pub(super) fn check(self, config: &Config, label: &str) -> Result<CheckedOrder, Problem> {
        let names = match (self.name, self.names) {
            (Some(name), names) if names.is_empty() => vec![name],
            (None, names) if !names.is_empty() => names,
            _ => return Err(Problem::usage("give \"name\" or \"names\"")),
        };
        if names.len() > NAMES_MAX {
            let why = format!("at most {NAMES_MAX} names can be taken together");
            return Err(Problem::usage(why));
        }
        for name in &names {
            crate::args::name(name).map_err(|error| Problem::usage(error.to_string()))?;
        }
        let is_semaphore = self.kind == OrderedKind::Semaphore;
        let why = if is_semaphore != self.permits.is_some() {
            "\"permits\" belongs to the kind \"semaphore\", which needs it"
        } else if names.len() > 1 && self.kind != OrderedKind::Mutex {
            "several names can be taken only as a mutex"
        } else if (is_semaphore || self.kind == OrderedKind::Read) && self.hold_at_least.is_some() {
            "\"hold_at_least\" is possible only for an exclusive lock"
        } else if self.kind == OrderedKind::Read && self.lock_delay.is_some() {
            "\"lock_delay\" is not possible for a share"
        } else {
            ""
        };
        if !why.is_empty() {
            return Err(Problem::usage(why));
        }
        let mut terms = LockArgs {
            ttl: self.ttl,
            wait: self.wait,
            no_wait: self.wait.is_some_and(|wait| wait.is_zero()),
            attempts: self.attempts.filter(|attempts| *attempts > 0),
            no_quorum_after: self.no_quorum_after,
        };
        config.fill_terms(&names[0], &mut terms);
        Ok(CheckedOrder {
            kind: KindArgs {
                permits: self.permits,
                hold_at_least: self.hold_at_least,
                shared: self.kind == OrderedKind::Read,
            },
            names,
            terms,
            lock_delay: self.lock_delay.unwrap_or_default(),
            max_hold: self.max_hold,
            label: match self.label {
                Some(given) => format!("{given} ({label})"),
                None => label.to_owned(),
            },
        })
    }
}

impl CheckedOrder {
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn ttl(&self) -> Duration {
        self.terms.ttl()
    }

    /// The number of permits, if it is a semaphore.
    pub(super) fn permits(&self) -> Option<u32> {
        self.kind.permits
    }

    /// Nobody may hold it for longer than `limit`.
    pub(super) fn limited_to(mut self, limit: Option<Duration>) -> Self {
        self.max_hold = match (self.max_hold, limit) {
            (Some(wanted), Some(limit)) => Some(wanted.min(limit)),
            (wanted, limit) => wanted.or(limit),
        };
        self
    }

    /// Takes the lock, or waits for it as the client wants.
    pub(super) async fn take(&self, locks: &Locks, renew: bool) -> Result<Taken, AcquireError> {
        let request = TakeRequest {
            names: &self.names,
            terms: &self.terms,
            kind: &self.kind,
            lock_delay: self.lock_delay,
            max_hold: self.max_hold.filter(|_| renew),
            label: Some(&self.label),
            renew,
        };
        request.take(locks).await
    }
}

/// The body of `POST /v1/extend` and `POST /v1/release`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptOrder {
    pub(super) name: String,
    pub(super) token: String,
    #[serde(default, deserialize_with = "span")]
    pub(super) ttl: Option<Duration>,
}

/// A duration as options take it.
fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let span = text.map(|text| duration::parse(&text)).transpose();
    span.map_err(serde::de::Error::custom)
}

/// The wait as `--wait` takes it; a number is in seconds.
fn wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Text(String),
        Seconds(serde_json::Number),
    }
    let text = Option::<Given>::deserialize(from)?.map(|given| match given {
        Given::Text(text) => text,
        Given::Seconds(number) => number.to_string(),
    });
    let wait = text.map(|text| duration::parse_wait(&text)).transpose();
    wait.map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(body: &str) -> Result<CheckedOrder, String> {
        let order: LockOrder = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let order = order.check(&Config::default(), "host:1 uid 7");
        order.map_err(|problem| problem.to_string())
    }

    #[test]
    fn durations_are_written_as_on_the_command_line() {
        let order = checked(r#"{"name": "a", "ttl": "500ms", "wait": 1.5}"#).unwrap();
        assert_eq!(order.ttl(), Duration::from_millis(500));
        assert_eq!(order.terms.wait, Some(Duration::from_millis(1500)));
        assert!(!order.terms.no_wait);
        let order = checked(r#"{"name": "a", "wait": "0s"}"#).unwrap();
        assert!(order.terms.no_wait);
        let refused = checked(r#"{"name": "a", "ttl": "10"}"#).unwrap_err();
        assert!(refused.contains("the unit is missing"), "{refused}");
    }

    #[test]
    fn a_mistake_is_refused_before_anything_is_sent() {
        for (body, why) in [
            ("{}", "\"name\""),
            (r#"{"name": "a", "names": ["b"]}"#, "\"name\" or \"names\""),
            (r#"{"name": ""}"#, "empty"),
            (r#"{"name": "ringfence:x"}"#, "ringfence:"),
            (r#"{"name": "a", "tll": "1s"}"#, "unknown field"),
            (r#"{"name": "a", "kind": "latch"}"#, "unknown variant"),
            (r#"{"name": "a", "permits": 3}"#, "semaphore"),
            (r#"{"name": "a", "kind": "semaphore"}"#, "permits"),
            (r#"{"names": ["a", "b"], "kind": "read"}"#, "several names"),
            (
                r#"{"name": "a", "kind": "read", "hold_at_least": "1s"}"#,
                "exclusive",
            ),
            (
                r#"{"name": "a", "kind": "read", "lock_delay": "1s"}"#,
                "share",
            ),
        ] {
            let refused = checked(body).unwrap_err();
            assert!(refused.contains(why), "{body}: {refused}");
        }
    }

    #[test]
    fn the_label_says_which_process_of_which_user_holds_the_lock() {
        let label = |body| checked(body).unwrap().label;
        assert_eq!(label(r#"{"name": "a"}"#), "host:1 uid 7");
        assert_eq!(
            label(r#"{"name": "a", "label": "web"}"#),
            "web (host:1 uid 7)"
        );
    }

    #[test]
    fn the_limit_of_the_service_is_the_longest_hold() {
        let limit = Some(Duration::from_secs(60));
        let order = |body| checked(body).unwrap().limited_to(limit).max_hold;
        assert_eq!(order(r#"{"name": "a"}"#), limit);
        assert_eq!(order(r#"{"name": "a", "max_hold": "1h"}"#), limit);
        let shorter = Some(Duration::from_secs(5));
        assert_eq!(order(r#"{"name": "a", "max_hold": "5s"}"#), shorter);
    }
}
