//! Records what the library logs through `tracing`, so that a test can read it.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber that hears nothing. While there is only one in the process, `tracing` asks the thread
/// that logs an event for the first time whether anybody wants that event, and remembers a no for all
/// threads.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));

/// Everything that was logged on this thread since [`Log::listen`].
#[derive(Clone, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    events: Arc<Mutex<Vec<LoggedEvent>>>,
    spans: Arc<Mutex<Vec<LoggedSpan>>>,
    entered: Arc<Mutex<Vec<u64>>>,
}

/// One span.
#[derive(Clone, Debug)]
pub(crate) struct LoggedSpan {
    pub(crate) name: &'static str,
    /// The number of the span in which it began.
    pub(crate) parent: Option<usize>,
    /// All fields, also those that were recorded later.
    pub(crate) fields: String,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct LoggedEvent {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) line: String,
}

impl Log {
    /// The events, in order.
    pub(crate) fn events(&self) -> Vec<LoggedEvent> {
        self.events.lock().unwrap().clone()
    }

    /// The spans of the library, in the order in which they began.
    pub(crate) fn spans(&self) -> Vec<LoggedSpan> {
        self.spans.lock().unwrap().clone()
    }

    /// Listens on this thread until the guard is dropped.
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    /// All events and spans, one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(_, line)| line.clone()).collect()
    }

    /// The warnings.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.told(Level::WARN)
    }

    /// What a program logs that shows `most` and what is more severe.
    pub(crate) fn told(&self, most: Level) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let told = lines.iter().filter(|(level, _)| *level <= most);
        told.map(|(_, line)| line.clone()).collect()
    }

    fn write(&self, level: Level, fields: impl FnOnce(&mut Line)) {
        let mut line = Line::default();
        fields(&mut line);
        self.lines.lock().unwrap().push((level, line.0));
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes everything");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // Spans are kept as lines of the lowest level: their fields must not contain secrets
        // either.
        self.write(Level::TRACE, |line| span.record(line));
        let mut fields = Line::default();
        span.record(&mut fields);
        let entered = self.entered.lock().unwrap().last().copied();
        let mut spans = self.spans.lock().unwrap();
        spans.push(LoggedSpan {
            name: span.metadata().name(),
            parent: entered.map(|id| id as usize - 1),
            fields: fields.0,
        });
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.write(Level::TRACE, |line| values.record(line));
        let mut fields = Line::default();
        values.record(&mut fields);
        self.spans.lock().unwrap()[id.into_u64() as usize - 1].fields += &fields.0;
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.events.lock().unwrap().push(LoggedEvent {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            line: line.0,
        });
        self.write(*event.metadata().level(), |line| event.record(line));
    }

    fn enter(&self, id: &Id) {
        self.entered.lock().unwrap().push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().unwrap().pop();
    }
}
