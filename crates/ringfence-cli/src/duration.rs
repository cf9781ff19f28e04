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

/// Formats a duration with at most its two largest units.
pub(crate) fn show(duration: Duration) -> String {
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
        fn no_input_panics_and_output_can_be_parsed(
            text in "([0-9]{0,21}(d|h|m|s|ms)?){0,3}|\\PC{0,12}"
        ) {
            if let Ok(duration) = parse(&text) {
                prop_assert!(parse(&show(duration)).is_ok());
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
    fn a_formatted_duration_has_at_most_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_500, "1s500ms"),
            (10_000, "10s"),
            (5_400_000, "1h30m"),
            (5_401_234, "1h30m"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }
}
