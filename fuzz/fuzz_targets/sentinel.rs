//! The answers of a hostile Sentinel.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::sentinel(data));
