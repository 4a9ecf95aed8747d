//! How a writer's buffer grows. All sizes are bytes of payload, without the header.
//!
//! The steps are those of the format's first implementation, so that frames of one size cost the same memory on both
//! sides. They double, and stay one unit below a multiple of the page once they are larger than one, so that a buffer
//! with its header and the allocator's own words still fits whole pages.

use super::frame::aligned;

/// What a writer starts with, and what every capacity is a multiple of.
pub(super) const UNIT_BYTES: usize = 64;

/// The page that larger capacities stay one unit below.
const PAGE_BYTES: usize = 4096;

/// The capacity after a write that needs this many bytes in all and does not find them.
pub(super) fn grown(capacity: usize, needed: usize) -> usize {
    let doubled = capacity.saturating_mul(2);
    let stepped = if doubled > PAGE_BYTES {
        rounded_up(doubled, PAGE_BYTES).saturating_sub(UNIT_BYTES)
    } else {
        doubled
    };
    rounded_up(stepped.max(needed), UNIT_BYTES)
}

/// The capacity that room for this many more bytes asks for. None when it is there already.
pub(super) fn reserved(capacity: usize, used: usize, additional: usize) -> Option<usize> {
    let needed = used.saturating_add(aligned(additional));
    (needed > capacity).then(|| rounded_up(capacity.saturating_mul(2).saturating_add(needed), UNIT_BYTES))
}

/// The next multiple. The largest number where there is none; the writer's limit cuts that off.
fn rounded_up(bytes: usize, unit: usize) -> usize {
    bytes.checked_next_multiple_of(unit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_double_and_stay_one_unit_below_the_page() {
        let mut capacity = UNIT_BYTES;
        let mut seen = vec![capacity];
        while capacity < 131_008 {
            capacity = grown(capacity, capacity + 4);
            seen.push(capacity);
        }
        assert_eq!(seen, [64, 128, 256, 512, 1024, 2048, 4096, 8128, 16320, 32704, 65472, 131_008]);
    }

    #[test]
    fn a_write_that_needs_more_than_double_gets_what_it_needs() {
        assert_eq!(grown(64, 200), 256);
        assert_eq!(grown(64, 1000), 1024);
        assert_eq!(grown(64, 248_836), 248_896);
    }

    #[test]
    fn a_reservation_is_twice_the_capacity_and_what_is_needed() {
        assert_eq!(reserved(64, 0, 64), None);
        assert_eq!(reserved(64, 0, 62), None, "what is padded to 64 fits");
        assert_eq!(reserved(64, 4, 61), Some(256), "128 and 68, in units of 64");
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        assert_eq!(grown(usize::MAX, usize::MAX), usize::MAX);
        assert_eq!(grown(64, usize::MAX), usize::MAX);
        assert_eq!(reserved(usize::MAX / 2, usize::MAX / 2, usize::MAX), Some(usize::MAX));
    }
}
