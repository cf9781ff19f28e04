//! The settings of a client after they were checked, once and before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use crate::group::{Failover, Group};
use crate::name::{NAME_MAX_BYTES, Name};
use crate::protocol::{Drift, ExplicitValues};
use crate::url::{NodeUrl, parse_nodes};

use super::builder::Builder;
use super::error::ConfigError;
use super::lock::{NO_QUORUM_AFTER, TTL_MAX};

/// Labels are for people.
const LABEL_MAX_BYTES: usize = 128;

/// Settings after they were checked.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) ttl: Duration,
    pub(super) wait: Option<Duration>,
    pub(super) no_quorum_after: Duration,
    pub(super) renew: bool,
    /// `None`: the default; `Some(None)`: no bound.
    pub(super) max_hold: Option<Option<Duration>>,
    pub(super) node_timeout: Option<Duration>,
    pub(super) drift: Drift,
    pub(super) prefix: String,
    pub(super) label: Arc<str>,
    pub(super) wishes: ExplicitValues,
    /// Whether the client writes nothing to servers.
    pub(super) never_joins: bool,
}

impl Builder {
    pub(super) fn settings(&self) -> Result<Settings, ConfigError> {
        let drift = match self.drift {
            Some((fraction, fixed)) => {
                Drift::new(fraction, fixed).map_err(|_| ConfigError::Drift { fraction })?
            }
            None => Drift::default(),
        };
        let label = match &self.label {
            Some(label) => checked_label(label)?,
            None => default_label(),
        };
        if self.prefix.len() >= NAME_MAX_BYTES {
            let bytes = self.prefix.len();
            return Err(ConfigError::PrefixTooLong { bytes });
        }
        if !self.prefix.is_empty() {
            Name::new(&self.prefix, "x")?;
        }
        let wishes = ExplicitValues {
            window: self.window,
            quarantine: self.quarantine,
            failover: self.explicit_failover()?,
            stale_master: self.stale_master,
            reply_within: self.reply_within,
            sentinels: self.has_sentinels(),
        };
        check_group(&wishes.of_new_group(1))?;
        if self.node_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(ConfigError::NodeTimeoutZero);
        }
        if self.max_hold.flatten().is_some_and(|span| span.is_zero()) {
            return Err(ConfigError::MaxHoldZero);
        }
        let settings = Settings {
            ttl: self.ttl.unwrap_or(Duration::from_secs(10)),
            wait: self.wait,
            no_quorum_after: self.no_quorum_after.unwrap_or(NO_QUORUM_AFTER),
            renew: !self.renew_off,
            max_hold: self.max_hold,
            node_timeout: self.node_timeout,
            drift,
            prefix: self.prefix.clone(),
            label,
            wishes,
            never_joins: self.never_joins,
        };
        settings.check_ttl(settings.ttl, TTL_MAX)?;
        Ok(settings)
    }

    fn has_sentinels(&self) -> bool {
        let urls = self.urls.as_deref().map(parse_nodes);
        let urls = urls.and_then(Result::ok).unwrap_or_default();
        let mut urls = urls.iter();
        urls.any(|url| matches!(url, NodeUrl::Redis(url) if url.sentinel.is_some()))
            || self.given.iter().any(|node| node.needs_confirmation())
    }

    /// The failover level that the URL of the only node sets, or the builder.
    fn explicit_failover(&self) -> Result<Option<Failover>, ConfigError> {
        let urls = self.urls.as_deref().map(parse_nodes).transpose()?;
        let urls = urls.unwrap_or_default();
        let several = urls.len() + self.given.len() > 1;
        let named = urls.iter().filter_map(|url| match url {
            NodeUrl::Redis(url) => url.failover,
            _ => None,
        });
        // Several nodes have the quarantine anyway, and `quarantine=on` says no more than that.
        let mut named = named.filter(|level| !(several && *level == Failover::Quarantine));
        let level = named.next().or(self.failover);
        match level {
            Some(level) if several && level != Failover::Auto => {
                Err(ConfigError::FailoverOfSeveral { level })
            }
            level => Ok(level),
        }
    }
}

pub(super) fn checked_label(label: &str) -> Result<Arc<str>, ConfigError> {
    if label.len() > LABEL_MAX_BYTES {
        return Err(ConfigError::LabelTooLong {
            bytes: label.len(),
            most: LABEL_MAX_BYTES,
        });
    }
    Ok(label.into())
}

/// `host:pid`.
fn default_label() -> Arc<str> {
    let host: String = host_name().chars().take(100).collect();
    format!("{host}:{}", std::process::id()).into()
}

#[cfg(unix)]
fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// Says which of the group's values is not allowed.
fn check_group(group: &Group) -> Result<(), ConfigError> {
    let (window, quarantine, least) = (group.window, group.quarantine, group.least_quarantine());
    if window > Group::WINDOW_MAX || window < Group::WINDOW_MIN {
        return Err(ConfigError::Window { window });
    }
    if quarantine < least {
        return Err(ConfigError::QuarantineTooShort {
            quarantine,
            least,
            window,
        });
    }
    if quarantine > Group::QUARANTINE_MAX {
        return Err(ConfigError::QuarantineTooLong { quarantine });
    }
    let (stale_master, reply_within) = (group.stale_master, group.reply_within);
    group.check().map_err(|_| ConfigError::FailoverTimes {
        stale_master,
        reply_within,
        quarantine,
    })
}
