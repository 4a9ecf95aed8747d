//! Arbitrary bytes for `status`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handle_watcher_fuzz::status::feed(bytes));
