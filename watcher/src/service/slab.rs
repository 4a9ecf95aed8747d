//! Places that are taken and given back, each known by its index.

/// No index.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A growing row of places. The one that was freed last is taken first; an empty one holds no memory.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Place<T>>,
    free: u32,
    count: usize,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    /// The next free one.
    Free(u32),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: NOWHERE, count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The index that the next [`insert`](Self::insert) will take.
    pub(super) fn next_index(&self) -> u32 {
        // Limits keep the number of places far below what an index can name.
        if self.free == NOWHERE { u32::try_from(self.places.len()).unwrap_or(NOWHERE) } else { self.free }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let index = self.next_index();
        self.count += 1;
        match self.places.get_mut(index as usize) {
            Some(place) => {
                if let Place::Free(next) = *place {
                    self.free = next;
                }
                *place = Place::Taken(value);
            }
            None => self.places.push(Place::Taken(value)),
        }
        index
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        match self.places.get(index as usize)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.places.get_mut(index as usize)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let place = self.places.get_mut(index as usize)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let Place::Taken(value) = std::mem::replace(place, Place::Free(self.free)) else { return None };
        self.free = index;
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
        }
        Some(value)
    }

    /// What is there, each with its index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| match place {
            Place::Taken(value) => Some((index, value)),
            Place::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_again_and_given_back() {
        let mut slab = Slab::default();
        let (one, two) = (slab.insert('1'), slab.insert('2'));
        assert_eq!(slab.remove(one), Some('1'));
        assert_eq!(slab.remove(one), None);
        assert_eq!(slab.next_index(), one);
        assert_eq!(slab.insert('3'), one);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(one, &'3'), (two, &'2')]);
        assert_eq!(slab.get_mut(two), Some(&mut '2'));
        slab.remove(one);
        slab.remove(two);
        assert_eq!((slab.len(), slab.get(one), slab.places.capacity()), (0, None, 0));
    }
}
