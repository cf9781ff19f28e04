//! Draws what the clients of a plan do.

use std::time::Duration;

use crate::random::Random;
use crate::simulator::plan::{End, Step, Want};

/// The steps of all clients.
pub(super) fn steps(random: &mut Random, clients: usize, ttl_ms: u64) -> Vec<Step> {
    let theme = random.between(0, 99);
    let mut steps = Vec::new();
    for client in 0..clients {
        for task in 0..random.between(1, 2) as usize {
            for _ in 0..random.between(1, 4) {
                let op = steps.len() as u64 + 1;
                let want = want(random, theme, client);
                steps.push(step(random, op, client, task, want, ttl_ms));
            }
        }
    }
    steps
}

fn want(random: &mut Random, theme: u64, client: usize) -> Want {
    let name = |random: &mut Random| random.pick(&["a", "a", "a", "b"]).to_owned();
    let kind = match theme {
        0..30 => 0,
        30..42 => random.pick(&[1, 1, 2, 3]),
        42..52 => random.pick(&[0, 4, 4]),
        52..67 => 5,
        67..75 => random.pick(&[6, 6, 8]),
        75..79 => 7,
        79..88 => random.pick(&[9, 9, 9, 10, 10, 0]),
        _ => random.pick(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 10]),
    };
    // All clients use the same numbers; but of some semaphores every other client knows more
    // permits, as during a rolling deploy.
    let (permits, parties) = (theme as u32 % 3 + 1, theme as u32 % 3 + 2);
    let permits = match theme {
        60..67 => permits + client as u32 % 2 * 2,
        _ => permits,
    };
    match kind {
        0 => Want::Mutex(name(random)),
        1 => Want::Read(name(random)),
        2 => Want::Write(name(random)),
        3 => Want::Downgrade(name(random)),
        4 => {
            let sets: [&[&str]; 4] = [&["a", "b"], &["b", "c"], &["c", "a"], &["b", "a", "c"]];
            let names = random.pick(&sets);
            Want::Multi(names.iter().map(|name| (*name).to_owned()).collect())
        }
        5 => Want::Permit("s".to_owned(), permits),
        6 => Want::Lead(name(random)),
        // A name of its own, because it raises no fence.
        7 => Want::Plain("p".to_owned()),
        8 => Want::Observe(name(random)),
        9 => {
            // Some parties arrive twice, and there may be one party too many.
            let party = random.between(0, u64::from(parties));
            Want::Arrive("l".to_owned(), parties, format!("party{party}"))
        }
        _ => Want::Await("l".to_owned(), parties),
    }
}

fn step(random: &mut Random, op: u64, client: usize, task: usize, want: Want, ttl_ms: u64) -> Step {
    let ttl_us = ttl_ms * 1_000;
    let ttl = match random.chance(20) {
        true => Duration::from_millis(2 * ttl_ms),
        false => Duration::from_millis(ttl_ms),
    };
    let updates = random.pick(&[0, 1, 1, 2, 5]);
    let lock = matches!(want, Want::Mutex(_) | Want::Multi(_));
    let owned = lock && random.chance(20);
    // Holds of an owner have the settings of the first, so it would be unclear what is kept after
    // which.
    let delays = (lock && !owned || matches!(want, Want::Lead(_))) && random.chance(20);
    let keeps = lock && !owned && random.chance(15);
    let leaves = lock && delays && !keeps && op.is_multiple_of(2);
    let mut up_to = |most_us: u64, wanted: bool| match wanted {
        true => Duration::from_micros(random.between(1_000, most_us)),
        false => Duration::ZERO,
    };
    let lock_delay = up_to(2 * ttl_us, delays);
    let at_least = up_to(3 * ttl_us, keeps);
    Step {
        op,
        client,
        task,
        after: Duration::from_micros(random.between(0, ttl_us)),
        want,
        ttl,
        wait: match random.between(0, 9) {
            0 => Some(Duration::ZERO),
            1..4 => Some(Duration::from_micros(random.between(1_000, 8 * ttl_us))),
            _ => None,
        },
        renew: random.chance(60),
        hold: match random.chance(50) {
            true => Duration::from_micros(random.between(0, ttl_us / 2)),
            false => Duration::from_micros(random.between(0, 3 * ttl_us)),
        },
        // Two tasks of one owner share the fence, which therefore decides nothing between them.
        updates: if owned { 0 } else { updates },
        ignores_loss: random.chance(25),
        cancel: random
            .chance(15)
            .then(|| Duration::from_micros(random.between(0, 2 * ttl_us))),
        // Sometimes by less than the remaining time: that must not shorten the lease.
        extend: random
            .chance(20)
            .then(|| Duration::from_millis(random.between(50, 2 * ttl_ms))),
        owned,
        lock_delay,
        at_least,
        end: match random.chance(70) {
            true if leaves => End::Leave,
            true => End::Release,
            false => End::Drop,
        },
    }
}
