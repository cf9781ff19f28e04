//! How many series there are: as many as templates, not as many as locks.

use ringfence::{ConfigError, ConnectError, Locks};

use crate::exporter::Exporter;

/// The number of samples after locks with so many names.
async fn series_of(names: usize) -> usize {
    let exporter = Exporter::install();
    let locks = Locks::builder()
        .nodes("memory:")
        .metric_names(["orders:{}", "{}:cart"])
        .connect()
        .await
        .expect("a client");
    for name in 0..names {
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
    assert_eq!(granted, names as f64);
    page.lines().count()
}

#[tokio::test]
async fn a_hundred_thousand_lock_names_make_no_more_series_than_ten() {
    let few = series_of(10).await;
    assert_eq!(series_of(50_000).await, few, "two names in each round");
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
