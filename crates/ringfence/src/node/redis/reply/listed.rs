//! Reads what `list.lua` found.

use std::sync::Arc;

use crate::message::{List, Op, Portion};
use crate::name::Name;
use crate::node::redis::transport::connection::memory;

use super::{Fields, MalformedReply, NUMBER_MAX_BYTES};

/// About how much memory the longest portion takes: two pages of the longest keys. Broken holds
/// take less.
pub(super) fn longest() -> usize {
    memory(440 * 2_300, 440)
}

impl Fields {
    /// Where the next portion begins, how long it took, then the keys or the broken holds.
    pub(super) fn portion(&mut self, op: &Op) -> Result<Portion, MalformedReply> {
        let Op::List(List { breaks, .. }) = op else {
            return Err(MalformedReply);
        };
        let cursor = self.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
        // It is sent back to the server.
        cursor.parse::<u64>().map_err(|_| MalformedReply)?;
        let mut portion = Portion {
            next: Some(Arc::from(cursor)).filter(|cursor| &**cursor != "0"),
            took_us: self.maybe_number()?,
            ..Portion::default()
        };
        while self.0.len() > 0 {
            let key = self.bytes()?.ok_or(MalformedReply)?;
            // A key that no client of ours writes is another program's.
            let name = std::str::from_utf8(&key).ok().and_then(Name::of_key);
            if *breaks {
                let note = self.break_note()?;
                portion.breaks.extend(name.map(|name| (name, note)));
            } else {
                portion.names.extend(name);
            }
        }
        Ok(portion)
    }
}
