//! When what a server says and keeps is what the ledger does.

use super::*;

/// `answer` without its leases, which are compared apart. A plain `Held` names nobody on Redis.
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
        }
        _ => {}
    }
    answer
}

pub(super) fn same_leases(
    said: &Answer,
    expected: &Answer,
    slack_ms: u64,
) -> Result<(), TestCaseError> {
    if let (Answer::Permit(said), Answer::Permit(expected)) = (said, expected) {
        return same_leases(&said.answer, &expected.answer, slack_ms);
    }
    let leases = |answer: &Answer| match answer {
        Answer::Held(holder) => vec![holder.for_ms],
        Answer::Views(views) => views
            .iter()
            .map(|view| view.holder.as_ref().and_then(|h| h.for_ms))
            .collect(),
        _ => vec![],
    };
    for (said, expected) in leases(said).into_iter().zip(leases(expected)) {
        if let (Some(said), Some(expected)) = (said, expected) {
            prop_assert!(
                said.abs_diff(expected) <= slack_ms,
                "{} for {}",
                said,
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
    // What is short may have run out between the reply and our look at it.
    let key_until = expected.key.as_ref().and_then(|key| key.until_ms);
    if stored.key.is_none() && key_until.is_some_and(|until| until < looked_ms) {
        stored.key.clone_from(&expected.key);
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
    prop_assert_eq!(&stored, expected);
    Ok(())
}
