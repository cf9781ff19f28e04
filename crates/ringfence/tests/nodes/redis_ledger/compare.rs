//! Compares one operation on the server with the same operation in the ledger.

use super::bench::ends;
use super::*;

impl Bench {
    /// Executes one operation on the server and in the ledger, and compares.
    pub(super) fn compare(&mut self, ask: &Ask) -> Result<(), TestCaseError> {
        let names = ask.names();
        let mut entries = self.settled(&names);
        let request = self.request(ask);
        self.compare_request(&request, &mut entries)?;
        match ask.what {
            What::Inspect => self.compare_lists(),
            _ => Ok(()),
        }
    }

    /// Compares what the server lists of all names with what the ledger lists.
    fn compare_lists(&mut self) -> Result<(), TestCaseError> {
        for breaks in [false, true] {
            let mut entries = self.settled(&NAMES);
            let before_us = self.clock_us();
            let expiries: Vec<u64> = ends(&entries).collect();
            let list = List {
                cursor: "".into(),
                pages: List::PAGES_MAX,
                breaks,
            };
            let op = Op::List(list);
            let reply = self.ask(&request(&[], 0, op.clone()));
            if self.expired_meanwhile(&expiries, before_us) {
                return Ok(());
            }
            let now = Moment::of_clock(before_us);
            let expected = request(&NAMES, 0, op);
            let outcome = ledger::apply(&self.rules, now, &mut entries, &expected);
            let (Answer::Listed(found), Answer::Listed(expected)) = (reply.answer, outcome.answer)
            else {
                panic!("a list is answered with a portion");
            };
            prop_assert_eq!(found.next, None);
            let names = |names: Vec<Name>| names.into_iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(names(found.names), names(expected.names));
            let notes = |mut notes: Vec<(Name, BreakNote)>| {
                notes.sort_by(|(a, _), (b, _)| a.cmp(b));
                notes
            };
            prop_assert_eq!(notes(found.breaks), notes(expected.breaks));
        }
        Ok(())
    }

    /// The request of `ask`, with a ballot that fits the present record.
    pub(super) fn request(&mut self, ask: &Ask) -> Request {
        let (names, ttl_ms, latest) = (ask.names(), ask.ttl_ms, ask.latest);
        let ballot = self.ballot(ask.ballot, &names);
        let label: Arc<str> = format!("label of {}: with colons:\n{ttl_ms}", ask.holder).into();
        let op = match &ask.what {
            What::Acquire(shown) => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: shown.map(|shown| self.ticket(shown)),
                not_after_us: latest.map(|by| self.clock_us().saturating_add_signed(by)),
            }),
            What::Extend => Op::Extend(Extend {
                ballot,
                ttl_ms,
                delay_ms: ask.delay_ms,
            }),
            What::Release {
                kind,
                fate_unknown,
                ticket,
                stays,
                keep_ms,
            } => Op::Release(Release {
                ballot,
                kind: *kind,
                fate_unknown: *fate_unknown,
                ticket: ticket.map(|shown| self.ticket(shown)),
                stays: *stays,
                keep_ms: *keep_ms,
                delay_ms: ask.delay_ms,
            }),
            What::Refresh(shown) => Op::Refresh(Refresh {
                tickets: shown.iter().map(|shown| self.ticket(*shown)).collect(),
            }),
            What::Restore => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
            What::Break(by, foreign, only, keep_ms) => {
                let stored = self.stored(names[0]);
                let seat = stored.record.and_then(|record| record.seat);
                let seated = seat.map_or(0, |seat| seat.ballot.get());
                Op::Break(Break {
                    ballot,
                    up_to: Ballot::new(seated.saturating_add_signed(*by)),
                    foreign: *foreign,
                    only: only.map(|who| token(who).id().into()),
                    slot: None,
                    by: "an\toperator".into(),
                    reason: format!("for {keep_ms} ms:\n\"\u{fc}\"").into(),
                    keep_ms: *keep_ms,
                })
            }
            What::Inspect => Op::Inspect,
            What::PlainAcquire => Op::PlainAcquire(PlainAcquire { ttl_ms }),
            What::PlainExtend => Op::PlainExtend(PlainExtend { ttl_ms }),
            What::PlainRelease => Op::PlainRelease,
        };
        request(&names, ask.holder, op)
    }

    /// Executes `request` on the server, and in the ledger on `entries`, which are settled.
    pub(crate) fn compare_request(
        &mut self,
        request: &Request,
        entries: &mut [Entry],
    ) -> Result<(), TestCaseError> {
        let plain = request.op.is_plain();
        let (counted, looked) = self.looks_at_queues();
        let before_us = self.clock_us();
        let expiries: Vec<u64> = ends(entries)
            .chain(begun_delays(entries, request))
            .collect();
        let reply = self.ask(request);
        if self.expired_meanwhile(&expiries, before_us) {
            return Ok(());
        }
        // Plain replies carry no clock. The exact time does not matter beyond the margin.
        let clock_us = reply.stamp.map_or(before_us, |stamp| stamp.clock_us);
        // A busy machine may stop the server in the middle of a script, for no longer than the
        // call. A wall clock may also step back.
        let slack_ms = LATE_MS + self.clock_us().saturating_sub(before_us) / 1000;
        let looks = self.looks_at_queues();
        let acquires_or_releases = matches!(request.op, Op::Acquire { .. } | Op::Release { .. });
        // The fast path counts expired tickets; the full path reads which they are.
        let exclusive = request
            .claims
            .iter()
            .all(|claim| claim.mode == Mode::Exclusive);
        let fast = acquires_or_releases && exclusive && looks.0 > counted && looks.1 == looked;
        let waited = waiting(entries);
        let replaced = holders_in_the_way(entries, request);
        let now = Moment::of_clock(clock_us);
        let outcome = ledger::apply(&self.rules, now, entries, request);
        self.count_operation(request, &outcome, (waited, waiting(entries)), fast);
        let (answer, stamp) = (outcome.answer, outcome.stamp);
        if answer == Answer::Restored {
            for what in replaced {
                *self.tally.entry(what).or_default() += 1;
            }
        }
        prop_assert_eq!(
            self.published_wakes(),
            messages_of(&outcome.wakes),
            "{:?}",
            request
        );
        prop_assert_eq!(reply.stamp.is_none(), plain);
        if !plain {
            prop_assert_eq!(reply.stamp, Some(stamp), "{:?}", request);
            prop_assert_eq!(reply.standing.clock_us, clock_us);
        }
        prop_assert_eq!(
            comparable(reply.answer.clone(), plain),
            comparable(answer.clone(), plain),
            "{:?}",
            request
        );
        same_leases(&reply.answer, &answer, slack_ms)?;
        for (claim, expected) in request.claims.iter().zip(entries.iter()) {
            let mut stored = self.stored(claim.name.as_str());
            // An expired ticket may remain until the next operation looks at the queue.
            let tickets = &mut stored.queue.entries;
            tickets.retain(|ticket| ticket.until_ms >= now.lease_ms);
            let looked_ms = self.clock_us() / 1000;
            same_entry(&stored, expected, slack_ms, looked_ms)?;
        }
        Ok(())
    }

    /// Whether one of `expiries` has passed since `before_us`, because a busy machine needed long
    /// for one operation. Then it is unknown whether the operation came before or after, and
    /// nothing is compared.
    pub(super) fn expired_meanwhile(&mut self, expiries: &[u64], before_us: u64) -> bool {
        let meanwhile = before_us / 1000 - 1..=self.clock_us() / 1000 + 1;
        let expired = expiries.iter().any(|end| meanwhile.contains(end));
        if expired {
            self.published_wakes();
        }
        expired
    }

    fn ballot(&mut self, pick: Pick, names: &[&str]) -> Ballot {
        let clock = self.clock_us();
        let (base, by) = match pick {
            Pick::Clock(by) => (clock, by),
            Pick::ClockFloor(by) => (clock - self.rules.window_us, by),
            Pick::Ceiling(by) => (clock + self.rules.window_us, by),
            Pick::Floor(by) => {
                let record = self.stored(names[0]).record;
                (record.map_or(clock, |record| record.fence.get()), by)
            }
            Pick::Seat(name, by) => {
                let record = self.stored(NAMES[name]).record;
                let seat = record.and_then(|record| record.seat);
                (seat.map_or(clock, |seat| seat.ballot.get()), by)
            }
        };
        Ballot::new(base.saturating_add_signed(by))
    }
}

/// When only the lock delay of a receipt is left of the lease of a key, in ms.
fn begun_delays(entries: &[Entry], request: &Request) -> impl Iterator<Item = u64> {
    let delay_ms = match &request.op {
        Op::Extend(op) => op.delay_ms,
        Op::Release(release) | Op::ReleaseSlot(ReleaseSlot { release, .. }) => release.delay_ms,
        _ => 0,
    };
    let keys = entries.iter().filter_map(|entry| entry.key.as_ref());
    let ends = keys.filter_map(|key| key.until_ms);
    ends.filter(move |_| delay_ms > 0)
        .map(move |end| end.saturating_sub(delay_ms))
}

/// Who has the claims of `request` and conflicts with it: a restore can replace them in a quarantine.
fn holders_in_the_way(entries: &[Entry], request: &Request) -> Vec<&'static str> {
    let both = entries.iter().zip(&*request.claims);
    let conflicts = both.filter_map(|(entry, claim)| {
        let key = entry.key.as_ref()?;
        match (key.value == ledger::SHARED, claim.mode) {
            _ if key.value == request.token.expose() => None,
            (true, Mode::Shared) => None,
            (true, Mode::Exclusive) => Some("a writer in the place of readers"),
            (false, Mode::Shared) => Some("a reader in the place of a writer"),
            (false, Mode::Exclusive) => Some("a holder replaced"),
        }
    });
    conflicts.collect()
}

/// The number of tickets of `entries`.
fn waiting(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.queue.entries.len()).sum()
}

/// The messages that a server publishes for `wakes`, sorted.
pub(super) fn messages_of(wakes: &[ringfence_core::message::Wake]) -> Vec<(String, String)> {
    let wakes = wakes.iter().map(|wake| {
        let (client, _) = wake.ticket.rsplit_once('.').unwrap();
        (format!("ringfence:wake:{client}"), wake.to_string())
    });
    let wakes: BTreeSet<(String, String)> = wakes.collect();
    wakes.into_iter().collect()
}
