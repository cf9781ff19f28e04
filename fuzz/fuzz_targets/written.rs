//! What a user writes: nodes, names, tokens, receipts.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| ringfence::fuzz::written(data));
