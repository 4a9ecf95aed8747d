//! Notices a fork with one load: a page that the kernel empties in the child (madvise(2), MADV_WIPEONFORK).
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE_BYTES: usize = 4096;

/// Counts the processes of this line of forks; inherited, so that no two of them share a number.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

static PAGE: OnceLock<Option<Page>> = OnceLock::new();

/// One page that reads zero after a fork. Never unmapped.
struct Page(NonNull<AtomicU64>);

// SAFETY: the pointer names a page that is never unmapped, and it is only used as a shared atomic.
unsafe impl Send for Page {}
// SAFETY: as above; an atomic may be shared.
unsafe impl Sync for Page {}

impl Page {
    fn map() -> Option<Self> {
        // SAFETY: a new private mapping at an address the kernel chooses touches no memory of ours.
        let address = unsafe {
            mmap_anonymous(ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .ok()?;
        // SAFETY: the range is the mapping just made.
        unsafe { madvise(address, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
        NonNull::new(address.cast::<AtomicU64>()).map(Self)
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for ever, aligned, zeroed by the kernel, and only used as this atomic.
        unsafe { self.0.as_ref() }
    }
}

/// The process something was made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth(u64);

impl Birth {
    /// The process of the caller.
    pub(crate) fn here() -> std::io::Result<Self> {
        let page = PAGE.get_or_init(Page::map).as_ref().ok_or_else(|| {
            std::io::Error::other("the kernel gave no page that is emptied on fork (madvise MADV_WIPEONFORK)")
        })?;
        let fresh = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        match page.number().compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(Self(fresh)),
            Err(present) => Ok(Self(present)),
        }
    }

    /// True in a child that was forked since. One load, no system call.
    pub(crate) fn is_elsewhere(self) -> bool {
        PAGE.get().and_then(Option::as_ref).is_none_or(|page| page.number().load(Ordering::Relaxed) != self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_process_stays_the_same() {
        let first = Birth::here().expect("a page");
        let second = Birth::here().expect("a page");
        assert!(!first.is_elsewhere() && !second.is_elsewhere());
        assert_eq!(first.0, second.0);
    }
}
