//! What a client of a run of failovers asks for: many short holds, and many that are long enough to
//! meet a failover. The TTL of a long hold is within the bound that carries holders through.

use std::time::Duration;

use crate::random::Random;

use super::super::call::{Call, CallKind, HoldEnd, LEAD, POOL};
use super::super::client::Workload;

/// The TTL of the long holds: at most the quarantine less X and the drift.
pub(super) const LONG_TTL: Duration = Duration::from_secs(11);

/// Enough names that a long hold does not stop all other clients.
pub(super) const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// How the clients of this run behave.
pub(in super::super) const WORKLOAD: Workload = Workload {
    tasks: 1,
    draw,
    // A quarantine is long, and every refused call is two events of the history.
    refused_ms: (150, 700),
    latch_ttl: Duration::from_secs(8),
};

/// The resources that the locks protect.
pub(super) fn resources() -> Vec<String> {
    let slots = (0..super::super::call::PERMITS).map(|slot| format!("{POOL}-{slot}"));
    let names = NAMES.iter().chain([&LEAD]);
    names.map(|&name| name.to_owned()).chain(slots).collect()
}

fn draw(random: &mut Random) -> Call {
    use CallKind::{Arrive, Await, Lead, Multi, Mutex, Owned, Permit, Read, Write};
    let ms = |ms: u64| Duration::from_millis(ms);
    let ignores_loss = random.chance(5);
    let kind = match ignores_loss {
        true => Mutex,
        false => random.pick(&[
            Mutex, Mutex, Mutex, Mutex, Owned, Owned, Multi, Multi, Read, Read, Read, Write, Write,
            Permit, Permit, Lead, Arrive, Await,
        ]),
    };
    let long = !ignores_loss && random.chance(55);
    let first = random.between(0, NAMES.len() as u64 - 1) as usize;
    let ttl = match (long, ignores_loss) {
        (true, _) => LONG_TTL,
        (false, true) => ms(random.between(300, 900)),
        (false, false) => ms(random.between(500, 3_000)),
    };
    Call {
        kind,
        names: match kind {
            Multi => vec![NAMES[first], NAMES[(first + 1) % NAMES.len()]],
            Lead => vec![LEAD],
            Permit => vec![POOL],
            _ => vec![NAMES[first]],
        },
        ttl,
        wait: random.chance(70).then(|| ms(random.between(200, 3_000))),
        renew: kind == Lead || long || (!ignores_loss && random.chance(60)),
        dropped_after: random.chance(5).then(|| ms(random.between(1, 300))),
        span: match (long, ignores_loss) {
            (true, _) => ms(random.between(4_000, 25_000)),
            (false, true) => ttl + ms(random.between(50, 600)),
            (false, false) => ms(random.between(2, 300)),
        },
        ignores_loss,
        end: random.pick(&[
            HoldEnd::Release,
            HoldEnd::Release,
            HoldEnd::Release,
            HoldEnd::Drop,
            HoldEnd::Downgrade,
            HoldEnd::Extend,
        ]),
    }
}
