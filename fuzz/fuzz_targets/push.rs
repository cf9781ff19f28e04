//! What a hostile node pushes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::push(data));
