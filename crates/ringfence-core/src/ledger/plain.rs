//! Plain Redlock, as other libraries do it: only the key, without ballots and record.

use crate::message::{Answer, Request};

use super::extend::not_held;
use super::{Entry, Moment, PlainKey};

pub(super) fn acquire(
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    ttl_ms: u64,
) -> Answer {
    // `SET NX`: a key with our own token counts as held, too. Every plain attempt has a fresh
    // token.
    for (claim, entry) in entries.iter().enumerate() {
        if let Some(holder) = entry.holder(claim, now) {
            return Answer::Held(holder);
        }
    }
    for entry in entries {
        entry.key = Some(PlainKey {
            value: request.token.expose().to_owned(),
            until_ms: Some(now.lease_ms.saturating_add(ttl_ms)),
        });
    }
    Answer::Granted
}

pub(super) fn extend(now: Moment, entries: &mut [Entry], request: &Request, ttl_ms: u64) -> Answer {
    let (claims, token) = (&request.claims[..], request.token.expose());
    if let Some(refusal) = not_held(now, entries, claims, token) {
        return refusal;
    }
    let asked = now.lease_ms.saturating_add(ttl_ms);
    for key in entries.iter_mut().filter_map(|entry| entry.key.as_mut()) {
        key.until_ms = key.until_ms.map(|until| until.max(asked));
    }
    Answer::Extended
}

pub(super) fn release(now: Moment, entries: &mut [Entry], request: &Request) -> Answer {
    let (claims, token) = (&request.claims[..], request.token.expose());
    if let Some(refusal) = not_held(now, entries, claims, token) {
        return refusal;
    }
    for entry in entries {
        entry.key = None;
    }
    Answer::Released
}
