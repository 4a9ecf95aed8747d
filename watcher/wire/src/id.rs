//! Ids: a slot and a generation, so that an id that has ended never names its slot's next owner.

/// The caller's number, returned untouched in every event of its watch or timer.
pub type Token = u64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The id that no watch, timer or handle ever has.
            pub const INVALID: Self = Self(0);

            /// Makes an id of a slot number and that slot's generation.
            pub const fn new(slot: u32, generation: u32) -> Self {
                Self((generation as u64) << 32 | slot as u64)
            }

            /// Makes an id of the number that [`raw`](Self::raw) gave. Any number is safe to pass: one that names
            /// nothing alive is answered with `NOT_FOUND`.
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// The id as one number, for callers that store or send it.
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// The slot number. Zero names no slot.
            #[expect(clippy::cast_possible_truncation, reason = "the low half is the slot")]
            pub const fn slot(self) -> u32 {
                self.0 as u32
            }

            /// The generation of the slot at the time the id was given out.
            pub const fn generation(self) -> u32 {
                (self.0 >> 32) as u32
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}({}.{})", stringify!($name), self.slot(), self.generation())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}.{}", self.slot(), self.generation())
            }
        }
    };
}

id! {
    /// Names one watch of one client, from `watch` until its end.
    WatchId
}
id! {
    /// Names one timer of one client, from `set_timer` until it fired for the last time or was cancelled.
    TimerId
}
id! {
    /// Names one descriptor given to us, from `adopt` until `close`.
    HandleId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_slot_and_generation_apart() {
        let id = WatchId::new(7, u32::MAX);
        assert_eq!((id.slot(), id.generation()), (7, u32::MAX));
        assert_eq!(WatchId::from_raw(id.raw()), id);
        assert_eq!(format!("{id:?}"), format!("WatchId(7.{})", u32::MAX));
        assert_ne!(TimerId::new(1, 0), TimerId::INVALID);
    }
}
