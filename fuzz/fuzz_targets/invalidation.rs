//! The reports of a hostile node of changed keys.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::invalidation(data));
