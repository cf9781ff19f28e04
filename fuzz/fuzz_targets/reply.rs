//! The replies of a hostile node.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::reply(data));
