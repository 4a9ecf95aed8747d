//! The scheduling policy of a thread. rustix does not offer this call.

#![allow(unsafe_code)]

/// Moves the calling thread to SCHED_BATCH, as our watcher thread moves itself, so that it does not preempt the writer
/// that woke it. A refusal changes nothing but the figure.
pub(crate) fn enter_batch() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is valid for a read of one `sched_param`; 0 names the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}
