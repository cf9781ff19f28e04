//! Reads what `inspect.lua` reports of a claim.

use std::sync::Arc;

use crate::message::{
    Arrivals, Ballot, Claim, PARTIES_SHOWN, READERS_SHOWN, ReaderView, TICKETS_SHOWN, TicketView,
    View,
};
use crate::node::redis::transport::connection::memory;

use super::{Fields, HOLDER_ID_MAX_BYTES, LABEL_MAX_BYTES, MalformedReply, PARTY_MAX_BYTES};

/// About how much memory the longest view of one claim takes.
pub(super) fn longest(claim: &Claim) -> usize {
    match claim.name.part_word() {
        // The holder, and a few numbers.
        Some("slot") => memory(512, 16),
        Some("latch") => memory(PARTIES_SHOWN * 264, PARTIES_SHOWN as u64 + 16),
        _ => memory(READERS_SHOWN * 160 + 1_024, 4 * READERS_SHOWN as u64 + 48),
    }
}

impl Fields {
    pub(super) fn view(&mut self, claim: usize) -> Result<View, MalformedReply> {
        let held = self.number()? == 1;
        let holder = self.holder(claim)?;
        Ok(View {
            holder: held.then_some(holder),
            ballot: self.maybe_number()?.map(Ballot::new),
            floor: self.ballot()?,
            waiting: self.number()?,
            shared_by: self.number()?,
            readers: self.list(READERS_SHOWN, Self::reader)?,
            tickets: self.list(TICKETS_SHOWN, Self::ticket)?,
            permits: self.maybe_number()?,
            arrivals: self.viewed_arrivals()?,
        })
    }

    /// A number, and so many items, at most `max`.
    fn list<T>(
        &mut self,
        max: usize,
        item: impl Fn(&mut Self) -> Result<T, MalformedReply>,
    ) -> Result<Vec<T>, MalformedReply> {
        let count = self.number()?;
        if count > max as u64 {
            return Err(MalformedReply);
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn reader(&mut self) -> Result<ReaderView, MalformedReply> {
        Ok(ReaderView {
            id: self.text(HOLDER_ID_MAX_BYTES)?.ok_or(MalformedReply)?,
            label: self.cut_text(LABEL_MAX_BYTES)?.ok_or(MalformedReply)?,
            for_ms: self.number()?,
            ballot: self.ballot()?,
        })
    }

    fn ticket(&mut self) -> Result<TicketView, MalformedReply> {
        Ok(TicketView {
            since_us: self.number()?,
            id: self.cut_text(LABEL_MAX_BYTES)?.ok_or(MalformedReply)?,
            label: self.cut_text(LABEL_MAX_BYTES)?.ok_or(MalformedReply)?,
            shared: self.number()? == 1,
        })
    }

    /// The arrivals in a view; `None` if there is no latch.
    fn viewed_arrivals(&mut self) -> Result<Option<Arrivals>, MalformedReply> {
        let since_us = self.maybe_number()?;
        let arrived = self.number()?;
        let party = |fields: &mut Self| fields.text(PARTY_MAX_BYTES)?.ok_or(MalformedReply);
        let mut parties = self.list(PARTIES_SHOWN, |fields| party(fields).map(Arc::from))?;
        parties.sort_unstable();
        Ok(since_us.map(|_| Arrivals {
            since_us,
            arrived,
            parties,
        }))
    }
}
