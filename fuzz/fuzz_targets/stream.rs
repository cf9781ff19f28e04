//! What a hostile node says, one reply after the other.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::stream(data));
