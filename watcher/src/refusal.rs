//! Why a watch was refused or is gone, in words that name the thing, the value and the remedy (contract C15).

use std::os::fd::RawFd;

use handle_watcher_wire::{Code, Status};
use rustix::io::Errno;

use crate::nodes::MOST_NODES;
use crate::rows::Reference;
use crate::sys::descriptor;

pub(crate) fn gone(reference: Reference) -> Status {
    Status::new(
        Code::NotFound,
        format!(
            "watch {}.{} is not a live watch of this client; it has ended, or the id is another client's; make a new watch, \
             and forget this id",
            reference.slot, reference.generation
        ),
    )
}

pub(crate) fn paused(reference: Reference) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "watch {}.{} is paused; resume it, or change its signals, first",
            reference.slot, reference.generation
        ),
    )
}

pub(crate) fn never_wished(reference: Reference) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "watch {}.{} was made without signals, so there is nothing to resume; give it some with change",
            reference.slot, reference.generation
        ),
    )
}

pub(crate) fn no_level() -> Status {
    Status::new(
        Code::FailedPrecondition,
        "a Level watch is told as long as its client comes back for more, and a port that is told by a call never comes \
         back; use Once or Edge",
    )
}

pub(crate) fn closed_behind(number: RawFd) -> Status {
    Status::new(
        Code::NotFound,
        format!(
            "descriptor {number} was closed while it was watched; the watch has ended. Call unwatch before closing"
        ),
    )
}

/// A number that has no node.
pub(crate) fn beyond_limit(number: RawFd, limit: usize) -> Status {
    if !descriptor::is_open(number) {
        return refusal(Errno::BADF, number);
    }
    Status::new(
        Code::ResourceExhausted,
        format!(
            "descriptor {number} is not below {limit}, the hard RLIMIT_NOFILE when the watcher was spawned (at most \
             {MOST_NODES}); raise the limit before spawning it"
        ),
    )
}

/// Why the kernel refused to watch a descriptor.
pub(crate) fn refusal(errno: Errno, number: RawFd) -> Status {
    match errno {
        Errno::BADF | Errno::NOENT => Status::new(
            Code::InvalidArgument,
            format!(
                "descriptor {number} is not open; watch it while it is, and unwatch it before closing it"
            ),
        ),
        Errno::PERM => Status::new(
            Code::FailedPrecondition,
            format!(
                "descriptor {number} is {}: it is always ready and cannot be waited on; read it directly, or watch \
                 its path for changes",
                descriptor::kind_in_words(number)
            ),
        ),
        Errno::NOSPC => Status::new(
            Code::ResourceExhausted,
            format!(
                "the kernel's limit of watched descriptors is reached at {number}; raise fs.epoll.max_user_watches"
            ),
        ),
        Errno::NOMEM => Status::new(
            Code::ResourceExhausted,
            format!("the kernel has no memory to watch descriptor {number}; watch fewer, or give it more"),
        ),
        Errno::LOOP | Errno::INVAL => Status::new(
            Code::InvalidArgument,
            format!(
                "descriptor {number} is a poll set that contains this watcher, or is nested too deep; untangle them"
            ),
        ),
        other => {
            Status::new(Code::Internal, format!("the kernel refused to watch descriptor {number}: {other}"))
        }
    }
}
