//! Findings about a service behind Sentinels.

use ringfence::admin::{ReplicaExamination, SentinelWord, ServiceExamination};

use super::*;

fn word() -> SentinelWord {
    SentinelWord {
        master: "10.0.0.1:6379".to_owned(),
        epoch: 4,
        others: 2,
        down_after: Some(Duration::from_secs(5)),
    }
}

fn service() -> ServiceExamination {
    let replica = |number| ReplicaExamination {
        address: format!("10.0.0.{number}:6379"),
        lag: Some(Duration::from_secs(1)),
        clock: Some(Ok(ClockSample {
            ahead_us: 0,
            round_trip: Duration::from_micros(200),
        })),
    };
    ServiceExamination {
        master: "10.0.0.1:6379".to_owned(),
        epoch: 4,
        total: 3,
        sentinels: (1..=3)
            .map(|number| (format!("s{number}:26379"), Ok(word())))
            .collect(),
        replicas: vec![replica(2), replica(3)],
        least_replicas: Some(0),
    }
}

fn diagnosis(change: impl FnOnce(&mut ServiceExamination)) -> Diagnosis {
    let (mut node, mut server) = healthy(1, 1);
    let mut service = service();
    change(&mut service);
    server.service = Some(service);
    node.found = Ok(Found::Server(Box::new(server)));
    Diagnosis::of(&[node], None)
}

#[track_caller]
fn warns(check: &str, words: &[&str], change: impl FnOnce(&mut ServiceExamination)) {
    let finding = only(&diagnosis(change), check);
    assert_eq!(finding.verdict, FindingVerdict::Warning, "{finding:?}");
    for word in words {
        assert!(finding.says.contains(word), "no `{word}` in {finding:?}");
    }
}

#[test]
fn a_healthy_service_says_which_ttl_outlives_a_failover() {
    let diagnosis = diagnosis(|_| {});
    let of = |check: &str| {
        let found = diagnosis
            .findings
            .iter()
            .find(|finding| finding.check == check)
            .unwrap();
        assert_eq!(found.verdict, FindingVerdict::Ok, "{found:?}");
        found.says.clone()
    };
    assert!(of("sentinels").contains("2 of 3 Sentinels"));
    // One and a half times 5 s + 3 s + 5 s + 1 s: the group of this test has the X of a plain URL.
    assert!(of("failover").contains("21 s"), "{}", of("failover"));
    assert!(of("replicas").contains("min-replicas-to-write is 0"));
    of("replica-clocks");
}

#[test]
fn sentinels_that_are_gone_disagree_or_forgot_are_named() {
    warns("sentinels", &["s2:26379 is gone"], |service| {
        let gone = trouble(TroubleKind::Unreachable, "s2:26379 is gone");
        service.sentinels[1].1 = Err(gone);
    });
    warns(
        "sentinels",
        &["s1:26379 names 10.0.0.9:6379 under epoch 4"],
        |service| {
            service.sentinels[0].1.as_mut().unwrap().master = "10.0.0.9:6379".to_owned();
        },
    );
    warns(
        "sentinels",
        &["s1:26379 names 10.0.0.1:6379 under epoch 3"],
        |service| {
            service.sentinels[0].1.as_mut().unwrap().epoch = 3;
        },
    );
    warns("sentinels", &["s3:26379 knows 1 of them"], |service| {
        service.sentinels[2].1.as_mut().unwrap().others = 0;
    });
}

#[test]
fn a_list_that_is_shorter_than_the_group_is_a_warning() {
    warns("sentinels", &["the URL names 2 Sentinels"], |service| {
        service.sentinels.pop();
    });
}

#[test]
fn a_down_after_that_no_ttl_outlives_is_a_warning() {
    warns("failover", &["30 s", "no TTL is long enough"], |service| {
        let word = service.sentinels[0].1.as_mut().unwrap();
        word.down_after = Some(Duration::from_secs(30));
    });
}

#[test]
fn replicas_that_are_missing_or_late_are_a_warning() {
    warns("replicas", &["no replica"], |service| {
        service.replicas.clear()
    });
    warns("replicas", &["10.0.0.3:6379 lags behind"], |service| {
        service.replicas[1].lag = Some(Duration::from_secs(9));
    });
}

#[test]
fn a_replica_whose_clock_is_far_behind_is_a_warning() {
    warns("replica-clocks", &["10.0.0.2:6379"], |service| {
        let clock = service.replicas[0].clock.as_mut().unwrap();
        clock.as_mut().unwrap().ahead_us = -60_000_000;
    });
    warns("replica-clocks", &["cannot be read"], |service| {
        service.replicas[0].clock = Some(Err(trouble(TroubleKind::Denied, "no")));
    });
}

#[test]
fn clocks_of_replicas_that_nobody_asked_for_are_a_note() {
    let diagnosis = diagnosis(|service| service.replicas[0].clock = None);
    let finding = only(&diagnosis, "replica-clocks");
    assert_eq!(finding.verdict, FindingVerdict::Note, "{finding:?}");
    assert!(finding.says.contains("was not compared"), "{finding:?}");
}
