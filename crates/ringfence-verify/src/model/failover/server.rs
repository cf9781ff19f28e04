//! What a server does: the product's own [`ledger::apply`](apply) decides about requests,
//! [`birth::judge`] about births, and [`Incarnation::stands_for`] which records count.

use ringfence_core::ledger::birth::{self, BirthVerdict, Incarnation};
use ringfence_core::ledger::{Entry, Moment, PlainKey, Record, Rules, Seat as LedgerSeat, apply};
use ringfence_core::message::{Answer, Ballot, Op, Request};

use super::scope::Weakness;
use super::setting::{Setting, ballot, end_of, left_until, now};
use super::world::{Born, Data, Seat, Server, Word};

/// Which server's run a birth record is about, as an id: one that no server has.
const NO_RUN: u8 = u8::MAX;

impl Setting {
    /// The handshake of a client that knows `epoch` with the server of this `number`: the birth
    /// record from then on.
    pub(super) fn join(
        &self,
        server: &Server,
        number: usize,
        has_replica: bool,
        epoch: u8,
    ) -> Option<Born> {
        let stored = server.data.born;
        let present = birth::Present {
            unseen: false,
            run_id: number as u8,
            replication_id: self.compared_id(server.replication_id),
            database: 0,
            former_id: server.former_id,
            former_id_lasts: true,
            has_replicas: has_replica,
            durable: false,
            epoch: Some(epoch.into()),
            lossless: false,
        };
        let record = stored.map(|born| self.record(born));
        let written = |record: Incarnation<u8>, age| Born {
            run: Some(record.run_id).filter(|run| *run != NO_RUN),
            replication_id: record.replication_id.unwrap_or_default(),
            epoch: record.epoch.unwrap_or_default() as u8,
            age,
        };
        let age = match self.is(Weakness::NoQuarantine) {
            true => self.scope.quarantine(),
            false => 0,
        };
        match birth::judge(record.as_ref(), &present) {
            BirthVerdict::Keep => stored,
            BirthVerdict::Update(record) => Some(written(record, stored?.age)),
            BirthVerdict::Birth(record) => Some(written(record, age)),
            BirthVerdict::NeedsSentinels => None,
        }
    }

    /// Whether a holder may be written to `server` under its birth record.
    pub(super) fn stands(&self, server: &Server) -> bool {
        let id = self.compared_id(server.replication_id);
        let stands = |born| self.record(born).stands_for(server.is_master, id.as_ref());
        server.is_master && server.data.born.is_some_and(stands)
    }

    fn record(&self, born: Born) -> Incarnation<u8> {
        Incarnation {
            run_id: born.run.unwrap_or(NO_RUN),
            replication_id: self.compared_id(born.replication_id),
            database: 0,
            epoch: Some(born.epoch.into()),
            replicated: true,
            durable: false,
        }
    }

    fn compared_id(&self, id: u8) -> Option<u8> {
        (!self.is(Weakness::NoReplicationId)).then_some(id)
    }

    /// A server with this `data` executes a request.
    pub(super) fn execute(&self, data: &mut Data, born: Born, mut request: Request) -> Word {
        if let Op::Acquire(acquire) = &mut request.op
            && (self.is(Weakness::LateAcquire) || self.is(Weakness::LateAcquireAndReply))
        {
            acquire.not_after_us = None;
        }
        let mut rules = Rules::of_incarnation(&self.group, self.born_us(born.age), true);
        if self.is(Weakness::GrantsInQuarantine) {
            rules.grants_from_us = 0;
        }
        let mut entry = self.entry(data.seat);
        let moment = Moment::of_clock(now().as_micros());
        let entries = std::slice::from_mut(&mut entry);
        let outcome = apply(&rules, moment, entries, &request);
        data.seat = self.seat(&entry);
        match outcome.answer {
            Answer::Granted => Word::Granted,
            Answer::Extended => Word::Extended,
            Answer::Restored => Word::Restored,
            Answer::Held(_) => Word::Held,
            Answer::Gone | Answer::Released => Word::Gone,
            Answer::Quarantined { .. } => Word::Quarantined,
            Answer::Late => Word::Late,
            Answer::Stale => Word::Stale,
            other => unreachable!("no such answer here: {other:?}"),
        }
    }

    /// The entry of the name with this holder.
    fn entry(&self, seat: Option<Seat>) -> Entry {
        let Some(seat) = seat else {
            return Entry::default();
        };
        let token = self.tokens[usize::from(seat.client)].expose().to_owned();
        let until_ms = end_of(seat.left).as_micros() / 1000;
        Entry {
            key: Some(PlainKey {
                value: token.clone(),
                until_ms: Some(until_ms),
            }),
            record: Some(Record {
                fence: ballot(seat.client.into()),
                read_fence: Ballot::default(),
                closed: Ballot::default(),
                seat: Some(LedgerSeat {
                    token,
                    ballot: ballot(seat.client.into()),
                    label: String::new(),
                    until_ms,
                }),
                stranger: false,
                free_since_ms: 0,
                until_ms: u64::MAX,
            }),
            ..Entry::default()
        }
    }

    /// The holder in `entry`.
    fn seat(&self, entry: &Entry) -> Option<Seat> {
        let key = entry.key.as_ref()?;
        let seat = entry.record.as_ref()?.seat.as_ref()?;
        let client = self.tokens.iter().position(|t| t.expose() == seat.token)?;
        let until = ringfence_core::time::Timestamp::from_nanos(key.until_ms? * 1_000_000);
        Some(Seat {
            client: client as u8,
            left: left_until(until),
        })
    }
}
