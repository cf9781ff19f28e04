//! What a server holds: the holders of a name, and what remains at the end of a run.

use ringfence_core::ledger::{Entry, Moment, SHARED};
use ringfence_core::token::public_half;

use super::Server;

impl Server {
    /// What remains at `now`, by name: holders and, with `tickets`, waiters.
    pub(in crate::simulator) fn remains(
        &mut self,
        now: u64,
        tickets: bool,
    ) -> Vec<(String, String)> {
        self.catch_up(now);
        let moment = Moment::of_clock(self.clock_us(now));
        let mut remains = Vec::new();
        for (name, entry) in &self.data.entries {
            if name.as_str().contains("}:admission:") {
                // Its key is the number of permits, which remains.
            } else {
                for holder in holders(entry, moment) {
                    remains.push((name.to_string(), format!("a lease of {holder}")));
                }
            }
            let stands = entry
                .queue
                .entries
                .iter()
                .filter(|t| t.until_ms >= moment.lease_ms);
            for ticket in stands.filter(|_| tickets) {
                remains.push((name.to_string(), format!("a ticket of {}", ticket.id)));
            }
        }
        remains
    }
}

/// The holders of an entry, exclusive or shared, by the public half of the token.
pub(super) fn holders(entry: &Entry, now: Moment) -> Vec<String> {
    let public = |token: &str| public_half(token).unwrap_or(token).to_owned();
    let stands = |until_ms: Option<u64>| until_ms.is_none_or(|until| until >= now.lease_ms);
    match &entry.key {
        Some(key) if key.value == SHARED => {
            let readers = entry.readers.iter().filter(|r| stands(Some(r.until_ms)));
            readers.map(|reader| public(&reader.token)).collect()
        }
        Some(key) if stands(key.until_ms) => vec![public(&key.value)],
        _ => Vec::new(),
    }
}
