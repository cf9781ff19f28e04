//! Readers on the only node of a group with a failover behind it: in the quarantine after a birth it
//! grants nothing, and a restore replaces readers and writers with lower ballots.

use super::*;
use crate::bench::{steps_behind_a_failover, try_ask};
use ringfence_core::group::Failover;

const BORN_KEY: &str = "ringfence:born";
/// The field of the birth record that has the time from which the quarantine counts.
const BIRTH_FIELD: usize = 7;

impl Bench {
    fn of_one_endpoint(flavor: Flavor) -> Self {
        let group = Group {
            failover: Failover::Quarantine,
            ..Group::new(1)
        };
        let mut bench = Self::of_group(flavor, group);
        bench.birth(-5_000);
        bench
    }

    /// The server has a birth whose quarantine ends in `left_ms`. The node learns of it as it
    /// learns of any birth: its next call is refused, and it repeats the handshake.
    pub(super) fn birth(&mut self, left_ms: i64) {
        let text: String = self.connection.get(BORN_KEY).unwrap();
        let mut fields: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let ends_us = self.clock_us().saturating_add_signed(left_ms * 1000);
        let birth_us = ends_us - self.group.quarantine.as_micros() as u64;
        fields[BIRTH_FIELD] = birth_us.to_string();
        let _: () = self.connection.set(BORN_KEY, fields.join(" ")).unwrap();
        self.rules = Rules::of_incarnation(&self.group, birth_us, true);
        let until = self.clock_us() + 30_000_000;
        loop {
            match try_ask(&self.node, bench_request(NAMES[0], Op::Inspect)) {
                Ok(reply) => return assert_eq!(reply.standing.born_us, birth_us),
                Err(error) => assert!(self.clock_us() < until, "still no answer: {error}"),
            }
        }
    }

    /// Counts the restores that replaced a holder in a quarantine.
    pub(super) fn note_replaced(&mut self, request: &Request, before: &[Entry], answer: &Answer) {
        if !matches!(request.op, Op::Restore(_)) || *answer != Answer::Restored {
            return;
        }
        for (entry, claim) in before.iter().zip(&*request.claims) {
            let Some(key) = &entry.key else { continue };
            let held_as = match key.value == ledger::SHARED {
                true => Mode::Shared,
                false => Mode::Exclusive,
            };
            let conflicts = [held_as, claim.mode].contains(&Mode::Exclusive);
            if conflicts && key.value != request.token.expose() {
                *self.replaced.entry((held_as, claim.mode)).or_default() += 1;
            }
        }
    }
}

fn lua_agrees_with_the_ledger_behind_a_failover(flavor: Flavor) {
    let bench = Bench::of_one_endpoint(flavor);
    let bench = play(flavor, bench, &steps_behind_a_failover());
    for replaced in [
        (Mode::Shared, Mode::Exclusive),
        (Mode::Exclusive, Mode::Shared),
        (Mode::Exclusive, Mode::Exclusive),
    ] {
        let seen = bench.replaced.get(&replaced);
        assert!(seen.is_some(), "{replaced:?}: {:?}", bench.replaced);
    }
}

#[test]
fn redis_agrees_with_the_ledger_behind_a_failover() {
    lua_agrees_with_the_ledger_behind_a_failover(Flavor::Redis);
}

#[test]
fn valkey_agrees_with_the_ledger_behind_a_failover() {
    lua_agrees_with_the_ledger_behind_a_failover(Flavor::Valkey);
}
