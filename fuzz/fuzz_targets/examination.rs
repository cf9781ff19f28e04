//! The answers of a hostile node to an examination.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz::examination(data));
