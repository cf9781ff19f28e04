//! What users get wrong: the error says what to change.

use ringfence::ConnectError;
use ringfence_testkit::{Flavor, SentinelGroup};

use crate::sentinel::stage::*;

async fn refusal(url: &str) -> String {
    match builder(url).connect().await.unwrap_err() {
        ConnectError::Misconfigured { votes } => said(&votes),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn each_mistake_with_sentinels_is_named() {
    let builder = SentinelGroup::builder(Flavor::Redis).replicas(0);
    let group = builder.sentinel_password("watch").start();
    let right = group.url();
    let sentinel = group.sentinels()[0].port();
    let data = group.master().port();

    let other_service = right.replace("/orders", "/payments");
    let error = refusal(&other_service).await;
    assert!(error.contains("knows no service `payments`"), "{error}");

    let other_password = right.replace("sentinel_password=watch", "sentinel_password=hunter2");
    let error = refusal(&other_password).await;
    assert!(error.contains("sentinel_password"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = refusal(&right.replace("?sentinel_password=watch", "")).await;
    assert!(error.contains("sentinel_password"), "{error}");

    let error = refusal(&format!("redis+sentinel://127.0.0.1:{data}/orders")).await;
    assert!(
        error.contains("is a server with data, not a Sentinel"),
        "{error}"
    );
    let error = refusal(&format!("redis://:watch@127.0.0.1:{sentinel}")).await;
    assert!(error.contains("redis+sentinel://"), "{error}");

    let short = format!("redis+sentinel://127.0.0.1:{sentinel}/orders?sentinel_password=watch");
    let error = refusal(&short).await;
    assert!(
        error.contains("the URL names 1, name at least 2"),
        "{error}"
    );
}
