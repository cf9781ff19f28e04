//! An exporter of this test alone, which serves its page over HTTP, and the page, sample by sample.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::metrics::http::{self, PageServer};

/// The buckets that `docs/observability.md` recommends.
pub(crate) const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0,
];

/// An exporter for the clients that are connected on this thread from now on.
///
/// Each test has its own: the global one of `metrics` would mix the tests of a process.
pub(crate) struct Exporter {
    server: PageServer,
    _local: metrics::LocalRecorderGuard<'static>,
}

impl Exporter {
    pub(crate) fn install() -> Self {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS);
        let recorder = builder.expect("there are buckets").build_recorder();
        let handle = recorder.handle();
        // Lives as long as the process, which is as long as any handle.
        let recorder = Box::leak(Box::new(recorder));
        Self {
            server: PageServer::start(move || handle.render()),
            _local: metrics::set_default_local_recorder(recorder),
        }
    }

    /// Where it serves `/metrics`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn scrape(&self) -> Page {
        Page(http::get(self.address(), "/metrics"))
    }
}

/// What the exporter shows.
#[derive(Debug)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    /// The value of the only sample `name` that has all these `labels`.
    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels)
            .unwrap_or_else(|| panic!("no {name} {labels:?} in\n{}", self.0))
    }

    #[track_caller]
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |line: &&str| {
            let mut labels = labels.iter();
            labels.all(|(key, value)| {
                [
                    format!("{{{key}=\"{value}\""),
                    format!(",{key}=\"{value}\""),
                ]
                .iter()
                .any(|label| line.contains(label))
            })
        };
        let mut found = self.samples(name).filter(has);
        let sample = found.next()?;
        assert_eq!(found.next(), None, "several {name} {labels:?}");
        Some(read(sample))
    }

    /// The sum of all samples `name`.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.samples(name).map(read).sum()
    }

    pub(crate) fn samples(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_of = move |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        self.lines().filter(is_of)
    }

    /// Every sample.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.0.lines();
        lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// The values of all series, by name and sorted labels.
    pub(crate) fn series(&self) -> BTreeMap<String, f64> {
        let series = self.lines().map(|sample| {
            let (series, _) = sample.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').expect("a brace");
            let mut labels: Vec<_> = labels.split(',').collect();
            labels.sort_unstable();
            (format!("{name}{{{}}}", labels.join(",")), read(sample))
        });
        series.collect()
    }

    /// The names of all metrics, without the suffixes of a histogram.
    pub(crate) fn names(&self) -> Vec<&str> {
        let types = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        types.filter_map(|line| line.split(' ').next()).collect()
    }
}

fn read(sample: &str) -> f64 {
    let (_, value) = sample.rsplit_once(' ').expect("a sample has a value");
    value.parse().expect("a number")
}
