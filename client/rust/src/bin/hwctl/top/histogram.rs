//! Counts by size, in classes that double.

use handle_watcher_client::HISTOGRAM_CLASSES;

/// Class 0 counts zeroes, class `k` sizes from `2^(k-1)` to `2^k - 1`, the last one everything above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram([u64; HISTOGRAM_CLASSES]);

impl Histogram {
    /// One that somebody else has counted, class by class.
    pub(crate) fn from_fn(count: impl FnMut(usize) -> u64) -> Self {
        Self(std::array::from_fn(count))
    }

    /// Counts one size.
    pub(crate) fn record(&mut self, size: u64) {
        let class = usize::try_from(u64::BITS - size.leading_zeros()).unwrap_or(usize::MAX);
        self.0[class.min(HISTOGRAM_CLASSES - 1)] += 1;
    }

    /// What came since an earlier state; all of it if that was another life of the counter.
    pub(crate) fn since(&self, before: &Self) -> Self {
        if self.0.iter().zip(before.0).any(|(now, before)| *now < before) {
            return *self;
        }
        Self::from_fn(|class| self.0[class] - before.0[class])
    }

    /// The classes from the lowest to the highest that has a count, with their names. At most so many, the most telling
    /// ones where they are too many: those around the largest count.
    pub(crate) fn rows(&self, most: usize) -> Vec<(String, u64)> {
        let Some(first) = self.0.iter().position(|count| *count > 0) else { return Vec::new() };
        let last = self.0.iter().rposition(|count| *count > 0).unwrap_or(first);
        let peak = (first..=last).max_by_key(|class| self.0[*class]).unwrap_or(first);
        let first = first.max((peak + 1).saturating_sub(most));
        (first..=last).take(most).map(|class| (name(class), self.0[class])).collect()
    }
}

fn name(class: usize) -> String {
    match class {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        _ if class == HISTOGRAM_CLASSES - 1 => format!("{}+", 1_u64 << (class - 1)),
        _ => format!("{}-{}", 1_u64 << (class - 1), (1_u64 << class) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_their_classes_and_rows_have_their_names() {
        let mut histogram = Histogram::default();
        assert!(histogram.rows(8).is_empty());
        [1, 2, 3, 5, u64::MAX].into_iter().for_each(|size| histogram.record(size));
        let rows = histogram.rows(16);
        assert_eq!(rows[..3], [("1".into(), 1), ("2-3".into(), 2), ("4-7".into(), 1)]);
        assert_eq!(rows.last(), Some(&("16384+".into(), 1)));
        assert_eq!(histogram.rows(2), [("1".into(), 1), ("2-3".into(), 2)]);
        assert_eq!(histogram.rows(1), [("2-3".into(), 2)]);
        assert!(histogram.rows(0).is_empty());
    }

    #[test]
    fn what_came_since_is_the_difference_or_all_after_a_new_beginning() {
        let (mut before, mut now) = (Histogram::default(), Histogram::default());
        before.record(1);
        assert_eq!(now.since(&before), now, "a new beginning");
        [1, 1, 0].into_iter().for_each(|size| now.record(size));
        assert_eq!(now.since(&before).rows(2), [("0".into(), 1), ("1".into(), 1)]);
    }
}
