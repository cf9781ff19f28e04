//! How much of a TTL is valid.

use super::*;

#[test]
fn the_deadline_is_the_ttl_less_drift_after_t0() {
    assert_eq!(deadline(at(5), TTL, Drift::default()), at(5) + VALIDITY);
}

#[test]
fn the_fraction_is_between_zero_and_a_quarter() {
    for good in [0.0, -0.0, 0.01, 0.25] {
        assert!(Drift::new(good, Duration::ZERO).is_ok(), "{good}");
    }
    for bad in [-0.001, 0.250_001, 1.0, f64::NAN, f64::INFINITY] {
        assert!(Drift::new(bad, Duration::ZERO).is_err(), "{bad}");
    }
}

#[test]
fn one_per_cent_and_two_milliseconds_are_the_default() {
    assert_eq!(Drift::new(0.01, ms(2)), Ok(Drift::default()));
    assert_eq!(Drift::default().allowance(TTL), ms(102));
    assert_eq!(Drift::default().fraction_of(TTL), ms(100));
}

#[test]
fn a_drift_of_zero_subtracts_nothing() {
    let none = Drift::new(0.0, Duration::ZERO).unwrap();
    assert_eq!(none.allowance(Duration::MAX), Duration::ZERO);
    assert_eq!(deadline(at(0), TTL, none), at(0) + TTL);
}

#[test]
fn a_fraction_below_one_millionth_is_rounded_up() {
    let tiny = Drift::new(1e-9, Duration::ZERO).unwrap();
    assert_eq!(
        tiny.allowance(Duration::from_secs(1)),
        Duration::from_micros(1)
    );
}

#[test]
fn a_ttl_shorter_than_the_drift_is_over_at_t0() {
    let long = Drift::new(0.25, ms(50)).unwrap();
    for ttl in [Duration::ZERO, ms(1), ms(66)] {
        assert_eq!(deadline(at(7), ttl, long), at(7));
    }
    assert!(deadline(at(7), ms(67), long) > at(7));
}

#[test]
fn very_long_spans_saturate() {
    let long = Drift::new(0.25, Duration::MAX).unwrap();
    for span in [Duration::ZERO, TTL, Duration::MAX] {
        assert_eq!(long.allowance(span), Duration::MAX);
        assert_eq!(deadline(at(7), span, long), at(7));
    }
    let never = Timestamp::from_nanos(u64::MAX);
    assert_eq!(deadline(at(7), Duration::MAX, Drift::default()), never);
    assert_eq!(deadline(never, TTL, Drift::default()), never);
}
