//! What is done with the bytes that a fuzzer makes up. Every function panics when a promise is broken, and returns when
//! the bytes are only bad. The ordinary tests include these files and run them over the corpus.

mod frame;
mod pickle;
mod raw_client;
mod session;
mod status;

/// A stream of frames of the protocol.
pub fn feed_frame(bytes: &[u8]) {
    frame::feed(bytes);
}

/// A pickle, and what is asked of it.
pub fn feed_pickle(bytes: &[u8]) {
    pickle::feed(bytes);
}

/// A whole session of a service, with its neighbour.
pub fn feed_session(bytes: &[u8]) {
    session::feed(bytes);
}

/// The two trailers of a status.
pub fn feed_status(bytes: &[u8]) {
    status::feed(bytes);
}
