//! Arbitrary bytes for `frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handle_watcher_fuzz::frame::feed(bytes));
