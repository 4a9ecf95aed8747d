//! Arbitrary bytes for `pickle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handle_watcher_fuzz::pickle::feed(bytes));
