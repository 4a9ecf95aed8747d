//! Arbitrary bytes for `frame`: run by `make fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handle_watcher_fuzz::feed_frame(bytes));
