//! What a hostile node says about itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::handshake(data));
