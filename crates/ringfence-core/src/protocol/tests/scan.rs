//! The search of one node: its cursor, the size of its portions, and its share of the server's time.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{List, Op, Portion};
use crate::protocol::Scan;
use crate::time::Timestamp;

const MS: Duration = Duration::from_millis(1);

fn portion(next: Option<&str>, took_us: u64) -> Portion {
    Portion {
        next: next.map(Arc::from),
        took_us: Some(took_us),
        ..Portion::default()
    }
}

fn requested(scan: &Scan) -> List {
    match scan.poll_request().expect("the round is not over").op {
        Op::List(list) => list,
        op => panic!("{op:?}"),
    }
}

#[test]
fn each_portion_begins_where_the_last_one_ended() {
    let now = Timestamp::ZERO;
    let mut scan = Scan::new(false, now);
    assert_eq!(&*requested(&scan).cursor, "");
    scan.handle_portion(&portion(Some("17"), 10), now, now + MS);
    assert_eq!(&*requested(&scan).cursor, "17");
    assert!(!scan.is_complete());
    scan.handle_portion(&portion(None, 10), now, now + MS);
    assert!(scan.is_complete());
    assert_eq!((scan.poll_request(), scan.poll_timeout()), (None, None));
    scan.restart();
    assert_eq!(&*requested(&scan).cursor, "");
    scan.give_up();
    assert!(scan.is_complete());
}

/// Ten thousand portions of half a millisecond each: five seconds of the server.
#[test]
fn it_takes_one_per_cent_of_the_server_s_time() {
    let mut now = Timestamp::ZERO;
    let mut scan = Scan::new(false, now);
    for _ in 0..10_000 {
        now = now.max(scan.poll_timeout().expect("the round is not over"));
        let sent = now;
        now = now + MS;
        scan.handle_portion(&portion(Some("1"), 500), sent, now);
    }
    // What 50 ms of the server allow is granted in advance.
    let least = Duration::from_millis(100 * (5_000 - 50) - 200);
    let took = now.since(Timestamp::ZERO);
    assert!(took >= least, "{took:?}");
    assert!(took <= least + Duration::from_secs(2), "{took:?}");
}

#[test]
fn among_few_keys_it_does_not_pause() {
    let now = Timestamp::ZERO;
    let mut scan = Scan::new(false, now);
    for _ in 0..100 {
        scan.handle_portion(&portion(Some("1"), 500), now, now + MS);
    }
    assert_eq!(scan.poll_timeout(), Some(now + MS));
    scan.handle_portion(&portion(Some("1"), 500), now, now + MS);
    assert_eq!(scan.poll_timeout(), Some(now + MS + 50 * MS));
}

#[test]
fn portions_grow_while_they_are_short_and_shrink_when_they_are_long() {
    let now = Timestamp::ZERO;
    let mut scan = Scan::new(true, now);
    assert_eq!((requested(&scan).pages, requested(&scan).breaks), (1, true));
    for pages in [2, 4, 8, 16, 16] {
        scan.handle_portion(&portion(Some("1"), 100), now, now + MS);
        assert_eq!(requested(&scan).pages, pages);
    }
    for pages in [8, 4, 2, 1, 1] {
        scan.handle_portion(&portion(Some("1"), 900), now, now + MS);
        assert_eq!(requested(&scan).pages, pages);
    }
    scan.handle_portion(&portion(Some("1"), 400), now, now + MS);
    assert_eq!(requested(&scan).pages, 1);
}

#[test]
fn what_a_server_cannot_measure_took_as_long_as_its_round_trip() {
    let now = Timestamp::ZERO;
    let mut scan = Scan::new(false, now);
    let unmeasured = Portion {
        took_us: None,
        ..portion(Some("1"), 0)
    };
    scan.handle_portion(&unmeasured, now, now + 51 * MS);
    assert_eq!(scan.poll_timeout(), Some(now + 151 * MS));
}

/// A hostile node may say that a portion took a year.
#[test]
fn a_portion_took_no_longer_than_its_round_trip() {
    let now = Timestamp::ZERO;
    let mut scan = Scan::new(false, now);
    scan.handle_portion(&portion(Some("1"), u64::MAX), now, now + 51 * MS);
    assert_eq!(scan.poll_timeout(), Some(now + 151 * MS));
}
