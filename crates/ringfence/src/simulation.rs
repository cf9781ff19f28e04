//! Random bytes that are no secret: for a simulator, in which the same seed must give the same run.
//! Behind a feature of its own, so that no build which does not ask for it can be told to guess.

use std::cell::Cell;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on everything random that clients draw on this thread, tokens included, follows from
/// `seed`; with `None` it comes from the operating system again.
pub fn seed_this_thread(seed: Option<u64>) {
    STATE.set(seed);
}

/// Fills `bytes` if this thread was given a seed.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    let Some(mut state) = STATE.get() else {
        return false;
    };
    for chunk in bytes.chunks_mut(8) {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
    }
    STATE.set(Some(state));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy;

    #[test]
    fn a_seed_decides_the_tokens_of_its_thread_only() {
        let drawn = |seed| {
            seed_this_thread(seed);
            let tokens = [entropy::token().unwrap(), entropy::token().unwrap()];
            seed_this_thread(None);
            tokens
        };
        assert_eq!(drawn(Some(7)), drawn(Some(7)));
        assert_ne!(drawn(Some(7)), drawn(Some(8)));
        assert_ne!(drawn(None), drawn(None));
        seed_this_thread(Some(7));
        let elsewhere = std::thread::spawn(|| entropy::token().unwrap());
        assert_ne!(elsewhere.join().unwrap(), entropy::token().unwrap());
        seed_this_thread(None);
    }
}
