//! An append-only array that never moves: its address space is reserved at once, its pages appear as it grows.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Values that stay where they were put until the region is dropped. They are not dropped one by one: `T` must not
/// need it, which `new` checks at compile time.
#[derive(Debug)]
pub(crate) struct Region<T> {
    base: NonNull<T>,
    capacity: usize,
    length: AtomicUsize,
    grow: Mutex<()>,
}

// SAFETY: the region owns its memory; sending it is sending the values.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: threads only get shared references to published values; growth is serialised by the lock.
unsafe impl<T: Send + Sync> Sync for Region<T> {}

impl<T> Region<T> {
    /// Reserves address space for `capacity` values.
    ///
    /// # Errors
    /// `NOMEM` where the kernel has no such range left, or the size overflows.
    pub(crate) fn reserve(capacity: usize) -> Result<Self, Errno> {
        const { assert!(!std::mem::needs_drop::<T>(), "values of a region are never dropped") };
        let bytes = Self::bytes(capacity).ok_or(Errno::NOMEM)?;
        // SAFETY: a new private mapping at an address the kernel chooses touches no memory of ours.
        let address = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(address.cast::<T>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, capacity, length: AtomicUsize::new(0), grow: Mutex::new(()) })
    }

    /// How many values there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// True once every value was pushed.
    pub(crate) fn is_full(&self) -> bool {
        self.length.load(Ordering::Relaxed) == self.capacity
    }

    /// Appends what `make` builds of the new index; gives the index, or nothing when the region is full.
    pub(crate) fn push(&self, make: impl FnOnce(usize) -> T) -> Option<usize> {
        let _growing = self.grow.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.length.load(Ordering::Relaxed);
        if index == self.capacity {
            return None;
        }
        let value = make(index);
        // SAFETY: `index` is below the capacity, so the place lies in the mapping.
        let place = unsafe { self.base.add(index) };
        // SAFETY: the lock makes us the only writer, and no reader looks at an index it has not seen published.
        unsafe { place.write(value) };
        self.length.store(index + 1, Ordering::Release);
        Some(index)
    }

    /// The value at `index`, if it was ever pushed.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.length.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `index` is below the length, so the place lies in the mapping.
        let place = unsafe { self.base.add(index) };
        // SAFETY: it was written before the length was published, and it is never moved or written again.
        Some(unsafe { place.as_ref() })
    }

    fn bytes(capacity: usize) -> Option<usize> {
        capacity.max(1).checked_mul(size_of::<T>())
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        if let Some(bytes) = Self::bytes(self.capacity) {
            // SAFETY: the range is the mapping made by `reserve`, and no reference outlives the region. An error
            // would leave the range mapped, which harms nobody.
            let _: Result<(), Errno> = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_address_while_the_region_grows() {
        let region = Region::reserve(100_000).expect("address space");
        assert_eq!(region.push(|index| index * 3), Some(0));
        let first = ptr::from_ref(region.get(0).expect("pushed"));
        for index in 1..100_000 {
            assert_eq!(region.push(|index| index * 3), Some(index));
        }
        assert_eq!(region.push(|index| index), None, "full is an answer, not a crash");
        assert_eq!(first, ptr::from_ref(region.get(0).expect("pushed")));
        assert_eq!(region.get(99_999), Some(&299_997));
        assert_eq!(region.get(100_000), None);
    }

    #[test]
    fn an_absurd_size_is_refused() {
        assert!(Region::<u64>::reserve(usize::MAX).is_err());
    }
}
