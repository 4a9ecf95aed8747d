//! C3, C4, C5, C6, C7, C8, C9, C10, C11, C14, C16: bugs that peers had, each as a test named by where it was reported.
//!
//! A name such as `a4_dart_sdk_63656_…` is the group and number of the collection we work from, the owner and name of
//! the project and the number of the issue. The line above each test gives the source as owner/repository#number and
//! says what is right, in our words. A file says at its top which reports of its group cannot happen in process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

#[path = "../util/mod.rs"]
mod util;

mod support;
mod sys;

mod a_lost_wakeups;
mod b_busy_spin;
mod c_number_reuse;
mod d_close_races;
mod e_odd_files;
mod f_duplicates;
mod g_registered_twice;
mod h_fork;
mod i_signals_and_children;
mod j_fairness;
mod k_timers;
mod l_wakes;
mod m_slow_clients;
mod n_callbacks;
mod n_shutdown;
mod o_limits;
mod p_descriptors;
