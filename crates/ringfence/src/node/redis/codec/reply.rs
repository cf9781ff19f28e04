//! Reads the replies of a server. A reply of the wrong shape is an error, since the server may be
//! broken or hostile.

use std::sync::Arc;

use redis::Value;

use crate::message::{
    Act, Answer, Arrivals, Attend, Ballot, BreakNote, Claim, Holder, List, Op, PARTIES_SHOWN,
    Permit, Portion, READERS_SHOWN, ReaderView, Refresh, RefreshSlots, ReplyStamp, Request,
    TICKETS_SHOWN, TicketView, Turn, View,
};
use crate::name::Name;

use crate::node::redis::wire::resp::memory;

/// The longest number that is sent as text.
pub(crate) const NUMBER_MAX_BYTES: usize = 20;
/// The longest label that is kept. Clients write at most 128 bytes, but other programs may write a
/// record.
const LABEL_MAX_BYTES: usize = 512;
/// The longest reason of a break that is kept. Clients write at most 256 bytes.
const REASON_MAX_BYTES: usize = 512;
/// The longest id of a holder: servers report at most 15 characters.
const HOLDER_ID_MAX_BYTES: usize = 64;
/// The longest party of a latch. It is written to other nodes, so it must not be shortened.
const PARTY_MAX_BYTES: usize = 512;

/// A reply of a shape that no script of ours returns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedReply;

/// The reply of a script or command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScriptReply {
    /// The ledger's answer; plain operations carry no stamp.
    Answer(Answer, Option<ReplyStamp>),
    /// The node has another birth record than the one that the client saw.
    Newborn,
}

/// Reads the reply to `request`.
pub(crate) fn read(request: &Request, value: Value) -> Result<ScriptReply, MalformedReply> {
    match request.op {
        Op::PlainAcquire { .. } | Op::PlainExtend { .. } | Op::PlainRelease => {
            read_plain(&request.op, &value).map(|answer| ScriptReply::Answer(answer, None))
        }
        _ => read_lock(request, value),
    }
}

/// A plain reply does not name the holder, so `Held` has the default one.
fn read_plain(op: &Op, value: &Value) -> Result<Answer, MalformedReply> {
    let answer = match value {
        Value::Okay => Answer::Granted,
        Value::Nil => Answer::Held(Holder::default()),
        Value::BulkString(word) => match word.as_slice() {
            b"extended" => Answer::Extended,
            b"released" => Answer::Released,
            b"gone" => Answer::Gone,
            b"held" => Answer::Held(Holder::default()),
            _ => return Err(MalformedReply),
        },
        _ => return Err(MalformedReply),
    };
    let fits = match answer {
        Answer::Granted => matches!(op, Op::PlainAcquire { .. }),
        Answer::Extended => matches!(op, Op::PlainExtend { .. }),
        Answer::Released => matches!(op, Op::PlainRelease),
        Answer::Gone => !matches!(op, Op::PlainAcquire { .. }),
        _ => true,
    };
    fits.then_some(answer).ok_or(MalformedReply)
}

fn read_lock(request: &Request, value: Value) -> Result<ScriptReply, MalformedReply> {
    let Value::Array(items) = value else {
        return Err(MalformedReply);
    };
    let mut fields = Fields(items.into_iter());
    if fields.are_newborn() {
        return Ok(ScriptReply::Newborn);
    }
    let clock_us = fields.number()?;
    let floor = fields.ballot()?;
    let mut word = fields.bytes()?.ok_or(MalformedReply)?;
    let mut permit = None;
    if word == b"permit" {
        permit = Some(fields.permit(request)?);
        word = fields.bytes()?.ok_or(MalformedReply)?;
    }
    let answer = fields.answer(&word, request)?;
    fields.end()?;
    let of_slot = matches!(request.op, Op::AcquireSlot { .. });
    // A request that arrived too late was not executed, so nothing is known of the slots.
    let shaped = of_slot == permit.is_some() || answer == Answer::Late;
    if !fits(&request.op, &answer) || !shaped {
        return Err(MalformedReply);
    }
    let answer = match permit {
        // A grant must name its slot.
        Some(permit) if permit.slot.is_none() && answer == Answer::Granted => {
            return Err(MalformedReply);
        }
        Some(permit) => Answer::Permit(Permit {
            answer: Box::new(answer),
            ..permit
        }),
        None => answer,
    };
    Ok(ScriptReply::Answer(
        answer,
        Some(ReplyStamp { clock_us, floor }),
    ))
}

/// Whether `op` can have `answer`: a mixed-up reply must not become a grant.
fn fits(op: &Op, answer: &Answer) -> bool {
    match answer {
        Answer::Granted | Answer::Behind { .. } | Answer::Quarantined { .. } | Answer::Late => {
            acquires(op)
        }
        Answer::Stale => acquires(op) || matches!(op, Op::Break(_)),
        Answer::TicketOld => acquires(op) && !op.facts().tickets.is_empty(),
        Answer::Ahead => {
            acquires(op) || matches!(op, Op::Restore { .. } | Op::Arrive { .. } | Op::Break(_))
        }
        Answer::Extended => matches!(op, Op::Extend { .. }),
        Answer::Downgraded => matches!(op, Op::Downgrade { .. }),
        Answer::Released | Answer::Newer => {
            matches!(op, Op::Release { .. } | Op::ReleaseSlot { .. })
        }
        Answer::Restored => matches!(op, Op::Restore { .. }),
        Answer::Removed { .. } => matches!(op, Op::Break(_)),
        Answer::Broken(_) => {
            matches!(
                op,
                Op::Extend { .. } | Op::Downgrade { .. } | Op::Restore { .. }
            )
        }
        Answer::Gone => {
            !acquires(op) && !looks(op) && !op.is_of_latch() && !matches!(op, Op::Break(_))
        }
        Answer::Held(_) => !looks(op) && !op.is_of_latch(),
        Answer::Arrivals(_) => op.is_of_latch(),
        Answer::Turns(_) => matches!(op, Op::Refresh { .. } | Op::RefreshSlots { .. }),
        Answer::Views(_) => matches!(op, Op::Inspect),
        Answer::Listed(_) => matches!(op, Op::List(_)),
        // A permit always contains another answer.
        Answer::Permit(_) => false,
    }
}

fn acquires(op: &Op) -> bool {
    let facts = op.facts();
    facts.act == Act::Take && !facts.plain
}

fn looks(op: &Op) -> bool {
    matches!(op.facts().act, Act::Wait | Act::Look)
}

/// About how much memory the longest reply of an honest server to `request` takes.
pub(crate) fn longest_reply(request: &Request) -> usize {
    match &request.op {
        // All parties of a latch: 1,024 of 256 bytes each.
        Op::Arrive { .. } | Op::Attend(Attend { list: true, .. }) => {
            memory(1_024 * (256 + 8), 1_024)
        }
        Op::Inspect => request.claims.iter().map(longest_view).sum(),
        // Two pages of the longest keys. Broken holds take less.
        Op::List(_) => memory(440 * 2_300, 440),
        // A number for each ticket.
        Op::Refresh(Refresh { tickets }) | Op::RefreshSlots(RefreshSlots { tickets }) => {
            memory(0, tickets.len() as u64 + 16)
        }
        _ => 2 << 10,
    }
}

/// About how much memory the longest view of one claim takes.
fn longest_view(claim: &Claim) -> usize {
    match claim.name.part_word() {
        // The holder, and a few numbers.
        Some("slot") => memory(512, 16),
        Some("latch") => memory(PARTIES_SHOWN * 264, PARTIES_SHOWN as u64 + 16),
        _ => memory(READERS_SHOWN * 160 + 1_024, 4 * READERS_SHOWN as u64 + 48),
    }
}

/// The values of a flat reply, one after the other.
pub(crate) struct Fields(pub(crate) std::vec::IntoIter<Value>);

impl Fields {
    pub(crate) fn next(&mut self) -> Result<Value, MalformedReply> {
        self.0.next().ok_or(MalformedReply)
    }

    /// Whether the reply says that the node has another birth record.
    pub(crate) fn are_newborn(&self) -> bool {
        matches!(self.0.as_slice(), [Value::BulkString(word)] if word == b"newborn")
    }

    /// A number that is not negative, or nil.
    pub(crate) fn maybe_number(&mut self) -> Result<Option<u64>, MalformedReply> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::Int(number) => u64::try_from(number).map(Some).map_err(|_| MalformedReply),
            _ => Err(MalformedReply),
        }
    }

    /// A number that is not negative, or `None` at the end of the reply.
    pub(crate) fn maybe_last_number(&mut self) -> Result<Option<u64>, MalformedReply> {
        match self.0.len() {
            0 => Ok(None),
            _ => self.number().map(Some),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, MalformedReply> {
        self.maybe_number()?.ok_or(MalformedReply)
    }

    fn ballot(&mut self) -> Result<Ballot, MalformedReply> {
        self.number().map(Ballot::new)
    }

    /// A string, or nil.
    pub(crate) fn bytes(&mut self) -> Result<Option<Vec<u8>>, MalformedReply> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(MalformedReply),
        }
    }

    /// Text of at most `max` bytes, or nil.
    pub(crate) fn text(&mut self, max: usize) -> Result<Option<String>, MalformedReply> {
        match self.bytes()? {
            Some(bytes) if bytes.len() > max => Err(MalformedReply),
            bytes => Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())),
        }
    }

    /// Text to be shown, or nil; shortened to `max` bytes. Labels may come from other programs and
    /// need not be UTF-8.
    pub(crate) fn cut_text(&mut self, max: usize) -> Result<Option<String>, MalformedReply> {
        let Some(bytes) = self.bytes()? else {
            return Ok(None);
        };
        let kept = &bytes[..bytes.len().min(max)];
        let mut text = String::from_utf8_lossy(kept).into_owned();
        if kept.len() < bytes.len() {
            text.push('…');
        }
        Ok(Some(text))
    }

    /// The answer that begins with `word`.
    fn answer(&mut self, word: &[u8], request: &Request) -> Result<Answer, MalformedReply> {
        Ok(match word {
            b"granted" => Answer::Granted,
            b"stale" => Answer::Stale,
            b"old" => Answer::TicketOld,
            b"behind" => Answer::Behind {
                ahead: self.number()?,
                for_ms: self.maybe_number()?,
            },
            b"ahead" => Answer::Ahead,
            b"quarantined" => Answer::Quarantined {
                left_ms: self.number()?,
            },
            b"late" => Answer::Late,
            b"extended" => Answer::Extended,
            b"downgraded" => Answer::Downgraded,
            b"gone" => Answer::Gone,
            b"released" => Answer::Released,
            b"newer" => Answer::Newer,
            b"restored" => Answer::Restored,
            b"broken" => Answer::Broken(Box::new(self.break_note()?)),
            b"removed" => Answer::Removed {
                holders: self.number()?,
            },
            b"held" => {
                let claim = self.number()?;
                let claim = usize::try_from(claim).map_err(|_| MalformedReply)?;
                if claim >= request.claims.len() {
                    return Err(MalformedReply);
                }
                let holder = self.holder(claim)?;
                Answer::Held(Holder {
                    ahead: self.number()?,
                    ..holder
                })
            }
            b"turns" => Answer::Turns(self.turns(&request.op)?),
            b"arrivals" => Answer::Arrivals(self.arrivals(&request.op)?),
            b"listed" => Answer::Listed(self.portion(&request.op)?),
            b"views" => {
                let views = (0..request.claims.len()).map(|claim| self.view(claim));
                Answer::Views(views.collect::<Result<_, _>>()?)
            }
            _ => return Err(MalformedReply),
        })
    }

    /// A hold that an operator broke.
    pub(crate) fn break_note(&mut self) -> Result<BreakNote, MalformedReply> {
        Ok(BreakNote {
            at_us: self.number()?,
            fence: self.ballot()?,
            ballot: self.ballot()?,
            id: self.text(HOLDER_ID_MAX_BYTES)?.unwrap_or_default(),
            by: self.cut_text(LABEL_MAX_BYTES)?.unwrap_or_default(),
            label: self.cut_text(LABEL_MAX_BYTES)?.unwrap_or_default(),
            reason: self.cut_text(REASON_MAX_BYTES)?.unwrap_or_default(),
        })
    }

    /// How many tickets are ahead of each ticket of the request.
    fn turns(&mut self, op: &Op) -> Result<Vec<Turn>, MalformedReply> {
        let (Op::Refresh(Refresh { tickets }) | Op::RefreshSlots(RefreshSlots { tickets })) = op
        else {
            return Err(MalformedReply);
        };
        let free = self.number()? == 1;
        let turns = tickets.iter().map(|_| {
            let ahead = self.number()?;
            Ok(Turn { ahead, free })
        });
        turns.collect()
    }

    fn holder(&mut self, claim: usize) -> Result<Holder, MalformedReply> {
        Ok(Holder {
            claim,
            label: self.cut_text(LABEL_MAX_BYTES)?,
            id: self.text(HOLDER_ID_MAX_BYTES)?,
            for_ms: self.maybe_number()?,
            ahead: 0,
        })
    }

    /// The part of a slot's reply before the answer. The first claim is the admission record, not a
    /// slot.
    fn permit(&mut self, request: &Request) -> Result<Permit, MalformedReply> {
        let slots = request.claims.len().saturating_sub(1);
        let number = |n: u64| u32::try_from(n).ok().filter(|n| (*n as usize) < slots);
        let slot = match self.maybe_number()? {
            Some(slot) => Some(number(slot).ok_or(MalformedReply)?),
            None => None,
        };
        let map = self.bytes()?.ok_or(MalformedReply)?;
        if map.len() != slots || map.iter().any(|one| !b"01".contains(one)) {
            return Err(MalformedReply);
        }
        let free = (0..).zip(&map).filter(|(_, one)| **one == b'1');
        Ok(Permit {
            answer: Box::new(Answer::Stale),
            slot,
            free: free.map(|(slot, _)| slot).collect(),
            ahead: self.number()?,
            most: self.number()?,
        })
    }

    /// The arrivals at a latch. The rest of the reply are the parties, if they were requested.
    fn arrivals(&mut self, op: &Op) -> Result<Arrivals, MalformedReply> {
        let since_us = self.maybe_number()?;
        let arrived = self.number()?;
        let mut parties = Vec::new();
        while !self.0.as_slice().is_empty() {
            let party = self.text(PARTY_MAX_BYTES)?.ok_or(MalformedReply)?;
            parties.push(Arc::from(party));
        }
        let listed = !matches!(op, Op::Attend(Attend { list: false, .. }));
        if parties.len() as u64 != if listed { arrived } else { 0 } {
            return Err(MalformedReply);
        }
        parties.sort_unstable();
        Ok(Arrivals {
            since_us,
            arrived,
            parties,
        })
    }

    /// What `inspect.lua` reports of a claim.
    fn view(&mut self, claim: usize) -> Result<View, MalformedReply> {
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

    /// What `list.lua` found: where the next portion begins, how long it took, then the keys or the broken holds.
    fn portion(&mut self, op: &Op) -> Result<Portion, MalformedReply> {
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

    pub(crate) fn end(&mut self) -> Result<(), MalformedReply> {
        match self.0.next() {
            None => Ok(()),
            Some(_) => Err(MalformedReply),
        }
    }
}

#[cfg(test)]
mod tests;
