//! The replies of a hostile node to a handshake.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::handshake(data));
