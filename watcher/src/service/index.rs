//! Finds places by a client's number, at some seven bytes an entry.
//!
//! Open addressing over places alone: the numbers are where the places say, so they are not kept twice. Numbers are
//! hashed with a random seed, since a client chooses them.

/// No place.
const EMPTY: u32 = u32::MAX;
/// The least number of buckets that are not none.
const BUCKETS_LEAST: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Index {
    /// A power of two of them, or none; at most three quarters are taken.
    buckets: Vec<u32>,
    count: usize,
}

impl Index {
    pub(super) const fn new() -> Self {
        Self { buckets: Vec::new(), count: 0 }
    }

    /// The place of `number`, if it has one. `number_at` tells the number of a place.
    pub(super) fn find(
        &self,
        seed: &ahash::RandomState,
        number: u64,
        number_at: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        self.bucket_of(seed, number, number_at).map(|bucket| self.buckets[bucket])
    }

    /// Adds a number that is not there yet.
    pub(super) fn insert(
        &mut self,
        seed: &ahash::RandomState,
        number: u64,
        place: u32,
        number_at: impl Fn(u32) -> u64,
    ) {
        if (self.count + 1) * 4 > self.buckets.len() * 3 {
            self.resize(seed, (self.buckets.len() * 2).max(BUCKETS_LEAST), &number_at);
        }
        self.place(seed, number, place);
        self.count += 1;
    }

    /// Another place for a number that is there.
    pub(super) fn replace(
        &mut self,
        seed: &ahash::RandomState,
        number: u64,
        place: u32,
        number_at: impl Fn(u32) -> u64,
    ) {
        if let Some(bucket) = self.bucket_of(seed, number, number_at) {
            self.buckets[bucket] = place;
        }
    }

    /// Takes a number out, while its place still tells it.
    pub(super) fn remove(&mut self, seed: &ahash::RandomState, number: u64, number_at: impl Fn(u32) -> u64) {
        let Some(mut hole) = self.bucket_of(seed, number, &number_at) else { return };
        let mask = self.buckets.len() - 1;
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let place = self.buckets[bucket];
            if place == EMPTY {
                break;
            }
            // Moves back what could not be found any more behind a hole.
            let home = home_of(seed, number_at(place), mask);
            if (bucket.wrapping_sub(home) & mask) >= (bucket.wrapping_sub(hole) & mask) {
                self.buckets[hole] = place;
                hole = bucket;
            }
        }
        self.buckets[hole] = EMPTY;
        self.count -= 1;
        if self.count == 0 {
            self.buckets = Vec::new();
        } else if self.buckets.len() > BUCKETS_LEAST && self.count * 8 < self.buckets.len() {
            self.resize(seed, self.buckets.len() / 2, &number_at);
        }
    }

    fn bucket_of(
        &self,
        seed: &ahash::RandomState,
        number: u64,
        number_at: impl Fn(u32) -> u64,
    ) -> Option<usize> {
        let mask = self.buckets.len().checked_sub(1)?;
        let mut bucket = home_of(seed, number, mask);
        while self.buckets[bucket] != EMPTY {
            if number_at(self.buckets[bucket]) == number {
                return Some(bucket);
            }
            bucket = (bucket + 1) & mask;
        }
        None
    }

    fn place(&mut self, seed: &ahash::RandomState, number: u64, place: u32) {
        let mask = self.buckets.len() - 1;
        let mut bucket = home_of(seed, number, mask);
        while self.buckets[bucket] != EMPTY {
            bucket = (bucket + 1) & mask;
        }
        self.buckets[bucket] = place;
    }

    fn resize(&mut self, seed: &ahash::RandomState, buckets: usize, number_at: impl Fn(u32) -> u64) {
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY; buckets]);
        for place in old.into_iter().filter(|&place| place != EMPTY) {
            self.place(seed, number_at(place), place);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the mask is smaller than a usize; the low bits are as good"
)]
fn home_of(seed: &ahash::RandomState, number: u64, mask: usize) -> usize {
    seed.hash_one(number) as usize & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_map_finds() {
        let seed = ahash::RandomState::new();
        let (mut index, mut map) = (Index::default(), std::collections::HashMap::new());
        // The place of a number is the number itself, so that the oracle needs no table.
        let number_at = u64::from;
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (random >> 8) % 3_000;
            if map.remove(&place).is_some() {
                index.remove(&seed, place.into(), number_at);
            } else {
                map.insert(place, ());
                index.insert(&seed, place.into(), place, number_at);
            }
            let looked = (random >> 16) % 3_000;
            let expected = map.contains_key(&looked).then_some(looked);
            assert_eq!(index.find(&seed, looked.into(), number_at), expected);
            assert_eq!(index.count, map.len());
        }
    }

    #[test]
    fn an_empty_one_holds_no_memory() {
        let seed = ahash::RandomState::new();
        let mut index = Index::default();
        index.insert(&seed, 1, 1, u64::from);
        index.remove(&seed, 1, u64::from);
        assert_eq!(index.buckets.capacity(), 0);
    }
}
