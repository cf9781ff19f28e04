//! Many holders at once, each of them late compared with others, and no lock between them: the
//! updates that the resource admits must still add up.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::resource::Refused;

use crate::resource::stores::{Addresses, Store, Stores};

const HOLDERS: usize = 4;
const ROUNDS: usize = 40;

/// The counters that all holders of one store share.
#[derive(Default)]
struct Tally {
    fences: AtomicU64,
    written: AtomicI64,
    refused: AtomicI64,
}

#[test]
fn concurrent_holders_in_any_order_lose_no_update() {
    let stores = Stores::start();
    let addresses = stores.addresses();
    let kinds = addresses.open("counter").len();
    let tallies: Vec<Tally> = (0..kinds).map(|_| Tally::default()).collect();
    thread::scope(|scope| {
        for _ in 0..HOLDERS {
            scope.spawn(|| hold_repeatedly(&addresses, &tallies));
        }
    });
    for ((name, mut store), tally) in addresses.open("counter").into_iter().zip(&tallies) {
        let written = tally.written.load(Ordering::SeqCst);
        let refused = tally.refused.load(Ordering::SeqCst);
        assert_eq!(store.read(u64::from(u32::MAX)), Ok(100 + written), "{name}");
        // Otherwise no holder was ever late.
        assert!(written > 0 && refused > 0, "{name}: {written} {refused}");
    }
}

fn hold_repeatedly(addresses: &Addresses, tallies: &[Tally]) {
    let mut opened = addresses.open("counter");
    for _ in 0..ROUNDS {
        for ((_, store), tally) in opened.iter_mut().zip(tallies) {
            let fence = tally.fences.fetch_add(1, Ordering::SeqCst);
            let count = match add_one(&mut **store, fence) {
                Ok(()) => &tally.written,
                Err(_) => &tally.refused,
            };
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn add_one(store: &mut dyn Store, fence: u64) -> Result<(), Refused> {
    let number = store.read(fence)?;
    // A lock may be lost here. The pauses differ, so that the holders overtake each other.
    thread::sleep(Duration::from_millis(fence % 3));
    store.write(fence, number + 1)
}
