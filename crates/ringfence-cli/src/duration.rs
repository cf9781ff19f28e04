//! Durations as people type and read them: `500ms`, `10s`, `1h30m`.

use std::time::Duration;

/// The units, longest first, for parsing and for formatting.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses a duration. A number without a unit is refused: a user who means seconds would get a lock
/// that lasts a thousandth of that if we assumed milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a number with a unit, such as 500ms, 10s, 5m, 1h or 1h30m";
    if text.is_empty() {
        return Err(EXPECTED.into());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "the unit is missing: write {text}s for seconds or {text}ms for milliseconds"
        ));
    }
    let mut total_ms = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, after) = split_when(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_when(after, |c| c.is_ascii_digit());
        let (_, unit_ms) = *UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(EXPECTED)?;
        let number: u64 = digits.parse().map_err(|_| EXPECTED)?;
        total_ms = number
            .checked_mul(unit_ms)
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or("that is too long")?;
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

/// Parses the value of `--wait`. As with `flock -w`, a number without a unit is in seconds.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse::<f64>() {
        Ok(secs) if is_number => {
            Duration::try_from_secs_f64(secs).map_err(|_| "that is too long".to_owned())
        }
        _ => parse(text),
    }
}

/// Formats a duration for people: `9.6 s`, `2 min 5 s`, `1 h 30 min`.
pub(crate) fn show(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    let secs = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 if ms % 1000 < 100 => format!("{secs} s"),
        1_000..60_000 => format!("{secs}.{} s", ms % 1000 / 100),
        60_000..3_600_000 => two(secs / 60, "min", secs % 60, "s"),
        3_600_000..86_400_000 => two(secs / 3600, "h", secs % 3600 / 60, "min"),
        _ => two(secs / 86_400, "d", secs % 86_400 / 3600, "h"),
    }
}

/// The same in whole seconds, rounded up: `in 0 s` would not help the reader.
pub(crate) fn show_ceil(duration: Duration) -> String {
    let secs = duration.as_millis().div_ceil(1000).max(1);
    show(Duration::from_secs(u64::try_from(secs).unwrap_or(u64::MAX)))
}

/// Formats a duration as an option takes it: `1h30m`. It has at most its two largest units.
pub(crate) fn typed(duration: Duration) -> String {
    let mut left_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let Some(largest) = UNITS.iter().position(|(_, unit_ms)| left_ms >= *unit_ms) else {
        return "0ms".into();
    };
    let mut text = String::new();
    for (unit, unit_ms) in UNITS.iter().skip(largest).take(2) {
        let number = left_ms / unit_ms;
        left_ms %= unit_ms;
        if number > 0 {
            text += &format!("{number}{unit}");
        }
    }
    text
}

fn split_when(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any input is parsed or refused, and a formatted duration can be parsed again.
        #[test]
        fn no_input_panics_and_what_is_typed_can_be_parsed(
            text in "([0-9]{0,21}(d|h|m|s|ms)?){0,3}|\\PC{0,12}"
        ) {
            if let Ok(duration) = parse(&text) {
                prop_assert!(parse(&typed(duration)).is_ok());
                show(duration);
            }
        }
    }

    #[test]
    fn numbers_with_units_are_parsed() {
        for (text, ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn an_error_for_a_missing_unit_names_a_unit() {
        assert!(parse("10").unwrap_err().contains("10s"));
        for bad in [
            "",
            "s",
            "10x",
            "1.5s",
            "-1s",
            "10s5",
            "10 s",
            "99999999999999999999s",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse("18446744073709551615d").unwrap_err().contains("long"));
    }

    #[test]
    fn a_wait_without_a_unit_is_in_seconds() {
        assert_eq!(parse_wait("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_wait("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_wait("0"), Ok(Duration::ZERO));
        assert_eq!(parse_wait("5m"), Ok(Duration::from_secs(300)));
        for bad in [
            "",
            ".",
            "1.2.3",
            "-1",
            "1e3",
            "inf",
            "NaN",
            "99999999999999999999999",
        ] {
            assert!(parse_wait(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn people_read_one_style() {
        for (ms, text) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (9_640, "9.6 s"),
            (29_000, "29 s"),
            (125_000, "2 min 5 s"),
            (5_400_000, "1 h 30 min"),
            (7_200_000, "2 h"),
            (270_000_000, "3 d 3 h"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
        assert_eq!(show_ceil(Duration::from_millis(28_100)), "29 s");
        assert_eq!(show_ceil(Duration::ZERO), "1 s");
    }

    #[test]
    fn a_typed_duration_has_at_most_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_500, "1s500ms"),
            (10_000, "10s"),
            (5_400_000, "1h30m"),
            (5_401_234, "1h30m"),
        ] {
            assert_eq!(typed(Duration::from_millis(ms)), text);
        }
    }
}
