//! How many series there are: as many as templates, not as many as locks.

use std::time::Duration;

use ringfence::{ConfigError, ConnectError, Locks};
use ringfence_testkit::wait_until_async;

use crate::metrics::exporter::Exporter;

/// Long enough for a busy machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of samples after locks with so many names, half of which fit a template.
async fn series_of(names: usize) -> usize {
    let exporter = Exporter::install();
    let locks = Locks::builder()
        .nodes("memory:")
        .metric_names(["orders:{}", "{}:cart"])
        .connect()
        .await
        .expect("a client");
    for name in 0..names / 2 {
        for name in [format!("orders:{name}"), format!("other:{name}")] {
            let guard = locks.mutex(name).lock().await.expect("it is free");
            guard.release().await.expect("one node");
        }
    }
    let page = exporter.scrape();
    let labels = [
        ("kind", "mutex"),
        ("outcome", "granted"),
        ("name", "orders:{}"),
    ];
    let granted = page.value("ringfence_acquire_duration_seconds_count", &labels);
    assert_eq!(granted, (names / 2) as f64);
    page.lines().count()
}

#[tokio::test]
async fn a_hundred_thousand_lock_names_make_no_more_series_than_ten() {
    let few = series_of(10).await;
    assert_eq!(series_of(100_000).await, few);
}

/// An alert on the first refusal needs the series that it starts from.
#[tokio::test]
async fn every_series_of_a_kind_is_there_before_its_first_outcome() {
    let other = Locks::connect("memory:first-outcome").await;
    let held = other.expect("a client").mutex("orders:1").lock().await;
    let exporter = Exporter::install();
    let builder = Locks::builder().nodes("memory:first-outcome");
    let builder = builder.metric_names(["orders:{}"]);
    let locks = builder.connect().await.expect("a client");
    let page = exporter.scrape();
    let kinds = page.samples("ringfence_held").count();
    assert_eq!(kinds, 2 * 7, "each kind, with and without a name");
    assert_eq!(page.samples("ringfence_waiting").count(), kinds);
    assert_eq!(page.samples("ringfence_leading").count(), 2);
    let acquires = "ringfence_acquire_duration_seconds_count";
    assert_eq!(page.samples(acquires).count(), 0, "no kind is used yet");
    let call = tokio::spawn(async move { locks.mutex("orders:1").lock().await });
    let waiting = [("kind", "mutex"), ("name", "orders:{}")];
    wait_until_async("the first call to wait", PATIENCE, async || {
        exporter.scrape().value("ringfence_waiting", &waiting) == 1.0
    })
    .await;
    let page = exporter.scrape();
    assert_eq!(page.samples(acquires).count(), 10, "each outcome");
    assert_eq!(page.sum(acquires), 0.0);
    let holds = page.find("ringfence_hold_duration_seconds_count", &waiting);
    assert_eq!(holds, Some(0.0));
    drop(held);
    drop(call.await.expect("no panic").expect("it is free"));
}

#[tokio::test]
async fn the_number_of_templates_is_bounded() {
    let connect = async |templates: usize| {
        let templates = (0..templates).map(|number| format!("{number}:{{}}"));
        let builder = Locks::builder().nodes("memory:").metric_names(templates);
        builder.connect().await
    };
    connect(64).await.expect("as many are allowed");
    let refused = connect(65).await.expect_err("too many");
    let ConnectError::Config(ConfigError::TooManyMetricNames { given, most }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((given, most), (65, 64));
}

#[tokio::test]
async fn a_template_has_no_prefix() {
    let exporter = Exporter::install();
    let builder = Locks::builder().nodes("memory:").prefix("shop:");
    let builder = builder.metric_names(["orders:{}"]);
    let locks = builder.connect().await.expect("a client");
    let permit = locks.semaphore("orders:7", 2).acquire().await;
    let labels = [("kind", "semaphore"), ("name", "orders:{}")];
    assert_eq!(exporter.scrape().value("ringfence_held", &labels), 1.0);
    drop(permit);
}
