//! All our unsafe code, one kernel facility a file. Each file gives safe functions to the rest of the house and
//! promises: no descriptor without close-on-exec, no retry hidden from the caller unless said, `Errno` for errors.

pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod passing;
pub(crate) mod region;
pub(crate) mod stream;
pub(crate) mod thread;
