//! What is done with the bytes that a fuzzer makes up. Every function panics when a promise is broken, and returns when
//! the bytes are only bad. The ordinary tests include these files and run them over the corpus.

pub mod frame;
pub mod pickle;
pub mod status;
