//! Compares what a server answers and stores with the ledger.

use super::*;

/// `answer` without its leases, which are compared separately. A plain `Held` has no holder on
/// Redis.
pub(super) fn comparable(mut answer: Answer, plain: bool) -> Answer {
    match &mut answer {
        Answer::Permit(permit) => {
            let inside = comparable((*permit.answer).clone(), plain);
            *permit.answer = inside;
        }
        Answer::Held(holder) if plain => *holder = Default::default(),
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

pub(super) fn same_leases(
    found: &Answer,
    expected: &Answer,
    slack_ms: u64,
) -> Result<(), TestCaseError> {
    if let (Answer::Permit(found), Answer::Permit(expected)) = (found, expected) {
        return same_leases(&found.answer, &expected.answer, slack_ms);
    }
    let leases = |answer: &Answer| match answer {
        Answer::Held(holder) => vec![holder.for_ms],
        Answer::Views(views) => views
            .iter()
            .map(|view| view.holder.as_ref().and_then(|h| h.for_ms))
            .collect(),
        _ => vec![],
    };
    for (found, expected) in leases(found).into_iter().zip(leases(expected)) {
        if let (Some(found), Some(expected)) = (found, expected) {
            prop_assert!(
                found.abs_diff(expected) <= slack_ms,
                "{} for {}",
                found,
                expected
            );
        }
    }
    Ok(())
}

pub(super) fn same_entry(
    stored: &Entry,
    expected: &Entry,
    slack_ms: u64,
    looked_ms: u64,
) -> Result<(), TestCaseError> {
    let later = |stored: u64, expected: u64| {
        let ok = (expected..=expected + slack_ms).contains(&stored);
        prop_assert!(ok, "ends at {} instead of {}", stored, expected);
        Ok(())
    };
    let mut stored = stored.clone();
    // A short lease may have ended between the reply and this look.
    let key_until = expected.key.as_ref().and_then(|key| key.until_ms);
    if stored.key.is_none() && key_until.is_some_and(|until| until < looked_ms) {
        stored.key.clone_from(&expected.key);
        stored.readers.clone_from(&expected.readers);
    }
    // Readers without the marker do not count, and one whose lease has ended may still be stored.
    let tokens = expected.readers.iter().map(|reader| &reader.token);
    let tokens: BTreeSet<&String> = tokens.collect();
    stored
        .readers
        .retain(|reader| tokens.contains(&reader.token));
    for (reader, expected) in stored.readers.iter_mut().zip(&expected.readers) {
        prop_assert!(reader.until_ms.abs_diff(expected.until_ms) <= slack_ms);
        reader.until_ms = expected.until_ms;
    }
    let record_until = expected.record.as_ref().map(|record| record.until_ms);
    if stored.record.is_none() && record_until.is_some_and(|until| until < looked_ms) {
        stored.record.clone_from(&expected.record);
    }
    let latch_until = expected.latch.as_ref().map(|latch| latch.until_ms);
    if stored.latch.is_none() && latch_until.is_some_and(|until| until < looked_ms) {
        stored.latch.clone_from(&expected.latch);
    }
    if let (Some(latch), Some(expected)) = (&mut stored.latch, &expected.latch) {
        later(latch.until_ms, expected.until_ms)?;
        latch.until_ms = expected.until_ms;
    }
    if let (Some(key), Some(expected)) = (&mut stored.key, &expected.key)
        && let (Some(until), Some(expected)) = (&mut key.until_ms, expected.until_ms)
    {
        later(*until, expected)?;
        *until = expected;
    }
    if let (Some(record), Some(expected)) = (&mut stored.record, &expected.record) {
        later(record.until_ms, expected.until_ms)?;
        record.until_ms = expected.until_ms;
        if let (Some(seat), Some(expected)) = (&mut record.seat, &expected.seat) {
            prop_assert!(seat.until_ms.abs_diff(expected.until_ms) <= slack_ms);
            seat.until_ms = expected.until_ms;
        }
    }
    let breaks_until = expected
        .broken
        .as_ref()
        .map(|breaks| breaks.until_us / 1000);
    if stored.broken.is_none() && breaks_until.is_some_and(|until| until < looked_ms) {
        stored.broken.clone_from(&expected.broken);
    }
    if let (Some(breaks), Some(expected)) = (&mut stored.broken, &expected.broken) {
        // The server counts in milliseconds.
        later(breaks.until_us.div_ceil(1000), expected.until_us / 1000)?;
        breaks.until_us = expected.until_us;
    }
    prop_assert_eq!(&stored, expected);
    Ok(())
}
