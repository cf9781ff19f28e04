//! Counts what has occurred in the histories, so that a test that covers nothing is noticed.

use super::*;

impl Bench {
    /// Counts the outcome of an operation. `waited` is the number of tickets before and after it.
    pub(super) fn count_operation(
        &mut self,
        request: &Request,
        outcome: &ledger::Outcome,
        waited: (usize, usize),
        fast: bool,
    ) {
        let (before, after) = waited;
        let answer = &outcome.answer;
        // A grant removes its own ticket.
        let shown = matches!(
            &request.op,
            Op::Acquire(Acquire {
                ticket: Some(_),
                ..
            })
        );
        let own = usize::from(shown && *answer == Answer::Granted) * request.claims.len();
        self.count(answer, after + own < before, &outcome.wakes);
        let undone = matches!(&request.op, Op::Release(Release { stays: true, .. }));
        if undone && *answer == Answer::Released && after > before {
            *self.tally.entry("back in the queue").or_default() += 1;
        }
        if fast {
            self.count_fast(answer, &outcome.wakes);
        }
    }

    fn count(
        &mut self,
        answer: &Answer,
        fewer_wait: bool,
        wakes: &[ringfence_core::message::Wake],
    ) {
        let answer = match answer {
            Answer::Permit(permit) => &*permit.answer,
            answer => answer,
        };
        let what = match answer {
            Answer::Granted if fewer_wait => "granted past others",
            Answer::Granted => "granted",
            Answer::Held(holder) if holder.ahead > 1 => "held behind others",
            Answer::Behind { for_ms: None, .. } => "behind for as long as they wait",
            Answer::Behind { .. } => "behind for a while",
            Answer::TicketOld => "ticket too old",
            Answer::Arrivals(arrivals) if arrivals.parties.len() > 1 => "several arrived",
            Answer::Arrivals(arrivals) if arrivals.since_us.is_none() => "no latch",
            Answer::Removed { holders: 1.. } => "broke a hold",
            Answer::Broken(_) => "told of a break",
            Answer::Quarantined { .. } => "quarantined",
            Answer::Late => "late",
            Answer::Restored => "restored",
            Answer::Ahead => "ahead",
            Answer::Turns(turns) if turns.iter().any(|turn| turn.ahead > 1 && turn.free) => "turns",
            _ => "other",
        };
        *self.tally.entry(what).or_default() += 1;
        if wakes.len() > 1 {
            *self.tally.entry("woke two").or_default() += 1;
        }
        if wakes.iter().any(|wake| wake.slot.is_some()) {
            *self.tally.entry("woke for a slot").or_default() += 1;
        }
    }

    /// Counts the outcome of an operation that took the fast path through the queue.
    fn count_fast(&mut self, answer: &Answer, wakes: &[ringfence_core::message::Wake]) {
        let what = match answer {
            Answer::Granted => "fast path: granted",
            Answer::Held(_) => "fast path: held",
            Answer::Released if wakes.is_empty() => "fast path: released to no waiter",
            Answer::Released if wakes.len() == 1 => "fast path: released to one",
            Answer::Released => "fast path: released to two",
            // A release of a receipt that came too late is refused before the queue is read.
            _ => return,
        };
        *self.tally.entry(what).or_default() += 1;
    }

    /// How often scripts have counted the expired tickets of a queue, and how often they have read
    /// them.
    pub(super) fn looks_at_queues(&mut self) -> (u64, u64) {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection)
            .unwrap();
        let calls = |command: &str| {
            let calls = info.split_once(&format!("cmdstat_{command}:calls="));
            let calls = calls.and_then(|(_, rest)| rest.split_once(','));
            calls.map_or(0, |(calls, _)| calls.parse().unwrap())
        };
        (calls("zcount"), calls("zrangebyscore"))
    }
}
