//! Texts of a user: nodes, names, tokens and receipts.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| ringfence::fuzz::written(data));
