//! `-v`: the library's `tracing` events on stderr, as text or as JSON.

use std::io::{self, IsTerminal};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::Global;
use crate::report::{wants_colour, write_json_line};

/// Shows the events of the library if `-v` was given.
pub(crate) fn show(global: &Global) {
    // Not `EnvFilter`: it would add an engine for regular expressions to the program.
    let wanted = match global.verbose {
        0 => return,
        1 => Targets::new().with_target("ringfence", LevelFilter::DEBUG),
        _ => Targets::new().with_default(LevelFilter::TRACE),
    };
    if global.json {
        let events = JsonEvents.with_filter(wanted);
        tracing_subscriber::registry().with(events).init();
        return;
    }
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(io::stderr().is_terminal() && wants_colour())
        .with_writer(io::stderr)
        .with_filter(wanted);
    tracing_subscriber::registry().with(lines).init();
}

/// Writes each event as one line of JSON: `{"log": {"level": …, "message": …, …}}`.
struct JsonEvents;

impl<S: Subscriber> Layer<S> for JsonEvents {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        fields.set("level", metadata.level().as_str());
        fields.set("target", metadata.target());
        write_json_line(&serde_json::json!({ "log": fields.0 }));
    }
}

/// The fields of an event.
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set(field.name(), format!("{value:?}"));
    }
}
