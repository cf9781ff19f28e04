//! Compares what a server answers and stores with the ledger.

use super::*;

pub(super) fn same(
    stored: Entry,
    expected: &Entry,
    request: &Request,
    now: Moment,
    slack_ms: u64,
) -> Result<(), TestCaseError> {
    let mut stored = stored;
    // Readers without the marker do not count.
    let shared = |entry: &Entry| {
        entry
            .key
            .as_ref()
            .is_some_and(|k| k.value == ledger::SHARED)
    };
    let live = expected.readers.iter().map(|reader| &reader.token);
    let live: Vec<String> = live.cloned().collect();
    stored.readers.retain(|reader| live.contains(&reader.token));
    if stored.key.is_none() {
        // A short lease may have ended before this look.
        stored.key.clone_from(&expected.key);
        if shared(expected) {
            stored.readers.clone_from(&expected.readers);
        }
    }
    let late = |stored: &mut u64, expected: u64| {
        let ok = (expected..=expected + slack_ms).contains(stored);
        replace_if(ok, stored, expected, request)
    };
    if let (Some(key), Some(expected)) = (&mut stored.key, &expected.key)
        && let (Some(until), Some(expected)) = (&mut key.until_ms, expected.until_ms)
    {
        late(until, expected)?;
    }
    // An expiry derived from a key's remaining time may be a little early, since it was read later.
    let near = |stored: &mut u64, expected: u64| {
        let ok = stored.abs_diff(expected) <= slack_ms;
        replace_if(ok, stored, expected, request)
    };
    for (reader, expected) in stored.readers.iter_mut().zip(&expected.readers) {
        near(&mut reader.until_ms, expected.until_ms)?;
    }
    if let (Some(record), Some(expected)) = (&mut stored.record, &expected.record) {
        late(&mut record.until_ms, expected.until_ms)?;
        if let (Some(seat), Some(expected)) = (&mut record.seat, &expected.seat) {
            near(&mut seat.until_ms, expected.until_ms)?;
        }
    }
    if let (Some(breaks), Some(expected)) = (&mut stored.broken, &expected.broken) {
        let mut until_ms = breaks.until_us.div_ceil(1000);
        late(&mut until_ms, expected.until_us / 1000)?;
        breaks.until_us = expected.until_us;
    }
    // An expired ticket may still be stored.
    stored
        .queue
        .entries
        .retain(|ticket| ticket.until_ms >= now.lease_ms);
    prop_assert_eq!(&stored, expected, "{:?}", request);
    Ok(())
}

/// Replaces the end of a lease by the expected one if it is near enough.
fn replace_if(
    near_enough: bool,
    stored: &mut u64,
    expected: u64,
    request: &Request,
) -> Result<(), TestCaseError> {
    prop_assert!(
        near_enough,
        "ends at {} instead of {}: {:?}",
        stored,
        expected,
        request
    );
    *stored = expected;
    Ok(())
}

/// `answer` without leases, which a server measures a little later.
pub(super) fn without_leases(mut answer: Answer) -> Answer {
    match &mut answer {
        Answer::Held(holder) => holder.for_ms = holder.for_ms.map(|_| 0),
        Answer::Views(views) => {
            for holder in views.iter_mut().filter_map(|view| view.holder.as_mut()) {
                holder.for_ms = holder.for_ms.map(|_| 0);
            }
            for view in views {
                view.readers.iter_mut().for_each(|reader| reader.for_ms = 0);
                // They are sorted by the ends of their leases, which may differ a little.
                view.readers.sort_by(|a, b| a.id.cmp(&b.id));
            }
        }
        _ => {}
    }
    answer
}
