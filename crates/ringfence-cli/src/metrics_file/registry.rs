//! The metrics that the library registers, and their page in Prometheus' text format.
//!
//! A few hundred samples of one process: an exporter of its own would bring twenty crates.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// The upper ends of the buckets, in seconds, as `docs/observability.md` recommends them.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0,
];

/// See the module.
pub(super) struct Registry {
    /// The label that every sample has.
    name: String,
    metrics: Mutex<BTreeMap<String, Metric>>,
}

#[derive(Default)]
struct Metric {
    help: String,
    /// By their labels, as text.
    samples: BTreeMap<String, Sample>,
}

enum Sample {
    Counter(Arc<AtomicU64>),
    /// The bits of a float.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

#[derive(Default)]
struct Buckets {
    counts: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    /// The bits of a float.
    sum: AtomicU64,
}

impl Registry {
    /// Every sample has the label `name`.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            metrics: Mutex::default(),
        }
    }

    /// All samples.
    pub(super) fn page(&self) -> String {
        let mut page = String::new();
        for (name, metric) in &*self.metrics() {
            let Some(kind) = metric.samples.values().next().map(Sample::kind) else {
                continue;
            };
            // A string takes everything.
            let _ = writeln!(page, "# HELP {name} {}", metric.help);
            let _ = writeln!(page, "# TYPE {name} {kind}");
            for (labels, sample) in &metric.samples {
                sample.write(&mut page, name, labels);
            }
        }
        page
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        let mut metrics = self.metrics();
        let metric = metrics.entry(name.as_str().to_owned()).or_default();
        metric.help = escape(help).replace("\\\"", "\"");
    }

    /// The handle of `key`, made by `make` if it is new.
    fn register<T>(
        &self,
        key: &Key,
        known: impl Fn(&Sample) -> Option<T>,
        make: impl FnOnce() -> Sample,
    ) -> Option<T> {
        let mut labels = format!("name=\"{}\"", escape(&self.name));
        for label in key.labels() {
            let _ = write!(labels, ",{}=\"{}\"", label.key(), escape(label.value()));
        }
        let mut metrics = self.metrics();
        let metric = metrics.entry(key.name().to_owned()).or_default();
        known(metric.samples.entry(labels).or_insert_with(make))
    }

    fn metrics(&self) -> MutexGuard<'_, BTreeMap<String, Metric>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Registry {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let known = |sample: &Sample| match sample {
            Sample::Counter(value) => Some(Counter::from_arc(Arc::clone(value))),
            _ => None,
        };
        let made = self.register(key, known, || Sample::Counter(Arc::default()));
        made.unwrap_or_else(Counter::noop)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let known = |sample: &Sample| match sample {
            Sample::Gauge(value) => Some(Gauge::from_arc(Arc::clone(value))),
            _ => None,
        };
        let made = self.register(key, known, || Sample::Gauge(Arc::default()));
        made.unwrap_or_else(Gauge::noop)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let known = |sample: &Sample| match sample {
            Sample::Histogram(buckets) => Some(Histogram::from_arc(Arc::clone(buckets))),
            _ => None,
        };
        let made = self.register(key, known, || Sample::Histogram(Arc::default()));
        made.unwrap_or_else(Histogram::noop)
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        if let Some(bucket) = BUCKETS.iter().position(|end| value <= *end) {
            self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        }
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sample {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    fn write(&self, page: &mut String, name: &str, labels: &str) {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let float = |value: &AtomicU64| f64::from_bits(get(value));
        let _ = match self {
            Self::Counter(value) => writeln!(page, "{name}{{{labels}}} {}", get(value)),
            Self::Gauge(value) => writeln!(page, "{name}{{{labels}}} {}", float(value)),
            Self::Histogram(buckets) => {
                let count = get(&buckets.count);
                let mut below = 0;
                for (end, in_bucket) in BUCKETS.iter().zip(&buckets.counts) {
                    // Another thread may count between two readings: a bucket is never above the
                    // count.
                    below = (below + get(in_bucket)).min(count);
                    let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{end}\"}} {below}");
                }
                let _ = writeln!(page, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
                let sum = float(&buckets.sum);
                let _ = writeln!(page, "{name}_sum{{{labels}}} {sum}");
                writeln!(page, "{name}_count{{{labels}}} {count}")
            }
        };
    }
}

/// As the text format wants it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram, with_local_recorder};

    use super::*;

    #[test]
    fn the_page_has_every_sample_in_the_text_format() {
        let registry = Registry::new("say \"hi\"\n\\");
        with_local_recorder(&registry, || {
            metrics::describe_counter!("calls_total", "Calls");
            counter!("calls_total", "node" => "a").increment(3);
            counter!("calls_total", "node" => "a").increment(1);
            gauge!("held").set(2.5);
            histogram!("wait_seconds").record(0.002);
            histogram!("wait_seconds").record(300.0);
        });
        let page = registry.page();
        let name = r#"name="say \"hi\"\n\\""#;
        for line in [
            "# HELP calls_total Calls".to_owned(),
            "# TYPE calls_total counter".to_owned(),
            format!("calls_total{{{name},node=\"a\"}} 4"),
            format!("held{{{name}}} 2.5"),
            format!("wait_seconds_bucket{{{name},le=\"0.001\"}} 0"),
            format!("wait_seconds_bucket{{{name},le=\"0.0025\"}} 1"),
            format!("wait_seconds_bucket{{{name},le=\"120\"}} 1"),
            format!("wait_seconds_bucket{{{name},le=\"+Inf\"}} 2"),
            format!("wait_seconds_sum{{{name}}} 300.002"),
            format!("wait_seconds_count{{{name}}} 2"),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
