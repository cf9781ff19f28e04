//! The settings of a client that say what can be observed of it.

use std::sync::Arc;

#[cfg(feature = "metrics")]
use crate::observation::names::{TEMPLATES_MAX, Templates};
use crate::observation::{Listener, Observed};

use super::builder::Builder;
use super::error::ConfigError;

impl Builder {
    /// Receives what happens to the locks of this client, on a thread of its own. Default: none. A
    /// listener that is slow or panics harms no lock: see [`Listener`].
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.observed.listener = Some(listener);
        self
    }

    /// Which locks have a `name` label in the metrics. Default: none.
    ///
    /// A template is a lock's name, without the [prefix](Self::prefix), in which `{}` stands for
    /// some text. A lock that fits `orders:{}` has the label `name="orders:{}"`: the template, not
    /// its own name. So there are at most as many values as templates, and at most 64 templates. A
    /// lock that fits several has the first; a lock over several names must fit with all of them.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metric_names<S: Into<String>>(mut self, templates: impl IntoIterator<Item = S>) -> Self {
        self.metric_names = templates.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the span `lock acquire` has the names of locks, which may be data of your users.
    /// Default no.
    #[must_use]
    pub fn trace_names(mut self, names: bool) -> Self {
        self.observed.trace_names = names;
        self
    }

    #[cfg(feature = "metrics")]
    pub(super) fn observed(&self) -> Result<Observed, ConfigError> {
        let names = self.metric_names.clone();
        let (given, most) = (names.len(), TEMPLATES_MAX);
        let templates = Templates::new(names);
        Ok(Observed {
            templates: templates.ok_or(ConfigError::TooManyMetricNames { given, most })?,
            ..self.observed.clone()
        })
    }

    #[cfg(not(feature = "metrics"))]
    pub(super) fn observed(&self) -> Result<Observed, ConfigError> {
        Ok(self.observed.clone())
    }
}
