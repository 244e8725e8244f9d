//! Builds a ribbon filter: sorts the hashes of each layer, brings their equations into echelon form, and solves them.

use std::num::NonZero;

use xxhash_rust::xxh3::xxh3_64;

use super::equation::{MAX_COLUMNS, MIN_COLUMNS, SLOTS, TRAILER, equation, rehash, start, starts};
use crate::filter::FilterBuilder;

/// Number of layers after which the writer gives up. A layer bumps a tenth of its keys. A layer of one segment keeps all or
/// none, and keeps none with a probability of at most 1/4. So this many layers are needed with a probability of 10⁻¹⁵,
/// unless keys were chosen to collide.
const MAX_LAYERS: usize = 32;

/// Bytes that a filter block adds to a single filter: its offset, its end, and the base.
pub(super) const BLOCK_OVERHEAD: usize = 9;

/// Collects hashes. All the work is in `finish`.
pub(super) struct RibbonBuilder {
    bits_per_key: f64,
    hashes: Pages<u64>,
    /// [`MAX_LAYERS`]; fewer in tests of what happens when they do not suffice.
    max_layers: usize,
}

impl RibbonBuilder {
    pub(super) fn new(bits_per_key: f64) -> Self {
        Self {
            bits_per_key,
            hashes: Pages::default(),
            max_layers: MAX_LAYERS,
        }
    }
}

impl FilterBuilder for RibbonBuilder {
    fn add_key(&mut self, key: &[u8]) {
        let hash = xxh3_64(key);
        // Equal keys are adjacent.
        if self.hashes.open.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        let mut hashes = std::mem::take(&mut self.hashes);
        let keys = hashes.len();
        if keys == 0 {
            return;
        }
        let mut system = System::default();
        while hashes.len() > 0 && system.ends.len() < self.max_layers {
            hashes = system.add_layer(hashes);
        }
        if hashes.len() == 0 {
            system.write(self.bits_per_key, keys, dst);
        } else {
            dst.extend_from_slice(&[0; TRAILER]); // the filter that every key matches
        }
    }
}

/// A list in pages of 16 KiB: it grows without copying, and each page is freed once it has been read. So the memory of inserted
/// hashes is reused for rows.
#[derive(Default)]
struct Pages<T> {
    full: Vec<Vec<T>>,
    /// The last page. The first one grows from nothing, so that a small filter takes little memory.
    open: Vec<T>,
}

impl<T> Pages<T> {
    const LEN: usize = (16 << 10) / size_of::<T>();

    #[inline]
    fn push(&mut self, item: T) {
        if self.open.len() == Self::LEN {
            let page = std::mem::replace(&mut self.open, Vec::with_capacity(Self::LEN));
            self.full.push(page);
        }
        self.open.push(item);
    }

    fn len(&self) -> usize {
        self.full.len() * Self::LEN + self.open.len()
    }

    /// Frees each page after its last item.
    fn into_items(self) -> impl DoubleEndedIterator<Item = T> {
        self.full.into_iter().chain([self.open]).flatten()
    }
}

/// For each slot of a segment, the equation that determines it from the slots after it: coefficients and fingerprint. The lowest
/// coefficient, which is 1, is the slot's own. All zeros if the slot is free.
type Rows = [(u32, u32); SLOTS];

/// The equations of all layers, in echelon form.
#[derive(Default)]
struct System {
    rows: Pages<Rows>,
    /// One code for each segment.
    codes: Vec<u8>,
    /// For each layer, the number of segments up to its end.
    ends: Vec<usize>,
}

impl System {
    /// Makes one more layer for these keys. Returns the keys that it bumps, with their hashes for the next layer.
    ///
    /// Keys are needed segment by segment, and within a segment by quarters (8 starts), since codes bump whole quarters. They are
    /// sorted in two passes: into at most 256 parts, and then each part, which up to ten million keys fits the processor's cache.
    #[expect(clippy::indexing_slicing, reason = "places are counted here")]
    fn add_layer(&mut self, hashes: Pages<u64>) -> Pages<u64> {
        let segments = segments_for(hashes.len());
        let starts = starts(segments);
        let quarter = |hash| start(hash, starts) as usize / (SLOTS / 4);

        let quarters = 4 * segments;
        let part_len = quarters.div_ceil(256).next_power_of_two().max(4096);
        let mut parts = Vec::new();
        parts.resize_with(quarters.div_ceil(part_len), Pages::default);
        hashes
            .into_items()
            .for_each(|hash| parts[quarter(hash) >> part_len.trailing_zeros()].push(hash));

        let (mut frame, mut bumped, mut sorted) = (Frame::EMPTY, Pages::default(), Vec::new());
        for (part, first) in parts.into_iter().zip((0..).step_by(part_len)) {
            let mut ends = vec![0; part_len.min(quarters - first)];
            sort(part, |hash| quarter(hash) - first, &mut ends, &mut sorted);
            let mut begin = 0;
            for &[first, second, _, end] in ends.as_chunks().0 {
                // Keys at the front are inserted last and bumped first, since equations of the segment before have
                // taken slots there.
                let steps = [(3, second..end), (2, first..second), (1, begin..first)];
                let failed = steps
                    .into_iter()
                    .find(|(_, step)| !frame.insert(&sorted[step.clone()], starts));
                let (code, bump_end) = match failed {
                    Some((code, step)) => (code, step.end),
                    None => (0, begin), // all keys fit
                };
                for &hash in &sorted[begin..bump_end] {
                    bumped.push(rehash(hash));
                }
                self.codes.push(code);
                self.rows.push(frame.advance());
                begin = end;
            }
        }
        self.ends.push(self.codes.len());
        bumped
    }

    /// The number of columns of the narrow segments, and the number of narrow segments: `columns` and `narrow` of the
    /// encoding. A few segments get enough columns for their rate, even if there is no room for them.
    fn columns(&self, bits: f64, keys: usize) -> (usize, usize) {
        let segments = self.codes.len();
        let budget = (keys as f64 * bits / 8.0) as usize;
        let fixed = BLOCK_OVERHEAD + segments.div_ceil(4) + 4 * (self.ends.len() - 1) + TRAILER;
        let least = if segments <= 16 {
            bits as usize - 1
        } else {
            MIN_COLUMNS
        };
        let words = budget.saturating_sub(fixed) / 4;
        let words = words.clamp(least * segments, MAX_COLUMNS * segments);
        (words / segments, segments - words % segments)
    }

    /// Appends the filter of this many keys.
    fn write(self, bits_per_key: f64, keys: usize, dst: &mut Vec<u8>) {
        let (columns, narrow) = self.columns(bits_per_key, keys);
        // Solved in lanes, one per column. Up to 15 bits per key need at most 16.
        let solve = if columns < 16 {
            solve::<16>
        } else {
            solve::<MAX_COLUMNS>
        };
        solve(self.rows, columns, narrow, dst);
        let packed = |four: &[u8]| four.iter().rev().fold(0, |byte, code| byte << 2 | code);
        dst.extend(self.codes.chunks(4).map(packed));
        // 32 bits suffice to count segments: a filter block is shorter than 4 GiB.
        for &end in self.ends.iter().rev() {
            dst.extend_from_slice(&(end as u32).to_le_bytes());
        }
        dst.extend_from_slice(&(narrow as u32).to_le_bytes());
        dst.extend_from_slice(&[columns as u8, self.ends.len() as u8]);
    }
}

/// Sorts the hashes by quarter. `ends` has a zero for each quarter, which is replaced by the end of its hashes.
#[expect(clippy::indexing_slicing, reason = "places are counted here")]
fn sort(
    hashes: Pages<u64>,
    quarter: impl Fn(u64) -> usize,
    ends: &mut [usize],
    sorted: &mut Vec<u64>,
) {
    for &hash in hashes.full.iter().chain([&hashes.open]).flatten() {
        ends[quarter(hash)] += 1;
    }
    let mut begin = 0;
    for count in &mut *ends {
        begin += std::mem::replace(count, begin);
    }
    sorted.resize(begin, 0);
    hashes.into_items().for_each(|hash| {
        let place = &mut ends[quarter(hash)];
        sorted[*place] = hash;
        *place += 1;
    });
}

/// Appends the words. From the last slot to the first, each equation determines its slot from the slots after it.
///
/// These are added four at a time: for each four slots of the segment and the next one, `sums` has the sum of every
/// subset.
#[expect(clippy::indexing_slicing, reason = "16 times 4 are two segments")]
fn solve<const LANES: usize>(rows: Pages<Rows>, columns: usize, narrow: usize, dst: &mut Vec<u8>) {
    let first_word = |segment: usize| segment * columns + segment.saturating_sub(narrow);
    let (begin, mut segment) = (dst.len(), rows.len());
    dst.resize(begin + 4 * first_word(segment), 0);

    let mut sums = [[0u32; 16]; 2 * SLOTS / 4];
    // For each column, the bits of the 32 slots solved last. After the first slot of a segment these are its words.
    let mut window = [0u32; LANES];
    for rows in rows.into_items().rev() {
        segment -= 1;
        sums.copy_within(..SLOTS / 4, SLOTS / 4);
        for (i, &(coefficients, fingerprint)) in rows.iter().enumerate().rev() {
            let (four, bit) = (i / 4, i % 4);
            let later = u64::from(coefficients & !1) << bit;
            let slot = (0..9).fold(fingerprint, |sum, j| {
                sum ^ sums[four + j][(later >> (4 * j)) as usize % 16]
            });
            for subset in (0..16).step_by(2 << bit) {
                sums[four][subset | 1 << bit] = sums[four][subset] ^ slot;
            }
            for (column, bits) in window.iter_mut().enumerate() {
                *bits = *bits << 1 | u32::from(slot & (1 << column) != 0);
            }
        }
        let width = columns + usize::from(segment >= narrow);
        let words = window
            .iter()
            .take(width)
            .flat_map(|bits| bits.to_le_bytes());
        let place = dst.iter_mut().skip(begin + 4 * first_word(segment));
        place.zip(words).for_each(|(to, from)| *to = from);
    }
}

/// Number of segments of a layer for `keys` keys.
///
/// With 35 keys for 32 slots nearly every slot is taken, and 9 % of the keys are bumped. A small layer gets enough slots to
/// keep all its keys, since one more layer costs at least one more segment.
fn segments_for(keys: usize) -> usize {
    if keys < 256 {
        (17 * keys).div_ceil(16 * SLOTS)
    } else {
        keys / 35
    }
}

/// The equations of a segment during elimination: those of its 32 slots and of the 32 after it, since keys that start in the
/// segment reach that far.
struct Frame {
    /// Each at the index of its lowest set bit. Bit 0 is the segment's first slot.
    coefficients: [u64; 2 * SLOTS],
    fingerprints: [u32; 2 * SLOTS],
    /// A bit for each place that has an equation. Other places hold old values.
    taken: u64,
}

impl Frame {
    const EMPTY: Frame = Frame {
        coefficients: [0; 2 * SLOTS],
        fingerprints: [0; 2 * SLOTS],
        taken: 0,
    };

    /// Inserts the equations of these keys, which start in the segment. If one contradicts the others, inserts none and returns
    /// `false`.
    ///
    /// Two are in progress at a time. Each step of an equation depends on the step before, so two at once take hardly
    /// longer than one.
    fn insert(&mut self, hashes: &[u64], starts: u64) -> bool {
        let before = self.taken;
        let (mut a, mut b) = ((0, 0), (0, 0)); // coefficients and fingerprint
        for &hash in hashes {
            while self.step(&mut a) {
                if !self.step(&mut b) {
                    std::mem::swap(&mut a, &mut b);
                    break;
                }
            }
            if a.1 != 0 {
                break;
            }
            let (coefficients, fingerprint) = equation(hash);
            let offset = start(hash, starts) % SLOTS as u64;
            a = (u64::from(coefficients) << offset, fingerprint);
        }
        while self.step(&mut a) {}
        while self.step(&mut b) {}
        if a.1 | b.1 != 0 {
            self.taken = before;
        }
        a.1 | b.1 == 0
    }

    /// Eliminates the lowest slot of an equation if that is taken, and otherwise puts the equation there. Returns whether it is still in
    /// progress; if not, it has no slots, and a fingerprint only if it contradicts the others.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a slot below 64, taken modulo 64")]
    fn step(&mut self, equation: &mut (u64, u32)) -> bool {
        let Some(bits) = NonZero::new(equation.0) else {
            return false;
        };
        let slot = bits.trailing_zeros() as usize % 64;
        if self.taken & (1 << slot) != 0 {
            equation.0 ^= self.coefficients[slot];
            equation.1 ^= self.fingerprints[slot];
            return true;
        }
        self.taken |= 1 << slot;
        (self.coefficients[slot], self.fingerprints[slot]) = *equation;
        *equation = (0, 0);
        false
    }

    /// Returns the rows of the segment, which are final, and moves on to the next segment.
    #[expect(clippy::indexing_slicing, reason = "two halves of an array")]
    fn advance(&mut self) -> Rows {
        let rows = std::array::from_fn(|slot| {
            if self.taken & (1 << slot) == 0 {
                return (0, 0);
            }
            (
                (self.coefficients[slot] >> slot) as u32,
                self.fingerprints[slot],
            )
        });
        for slot in 0..SLOTS {
            self.coefficients[slot] = self.coefficients[slot + SLOTS] >> SLOTS;
            self.fingerprints[slot] = self.fingerprints[slot + SLOTS];
        }
        self.taken >>= SLOTS;
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::RibbonFilterPolicy;
    use super::super::reader::{Layout, may_match};
    use super::super::tests::numbers;
    use super::*;
    use crate::filter::{FilterPolicy, create_filter};

    #[test]
    fn too_few_layers_make_a_filter_that_everything_matches() {
        let policy = RibbonFilterPolicy::new(10);
        let mut filter = Vec::new();
        create_filter(&policy, numbers(5_000), &mut filter);
        let needed = usize::from(filter[filter.len() - 1]);
        assert!(needed > 1, "{needed} layers");
        for max_layers in 0..=needed {
            let mut builder = RibbonBuilder {
                max_layers,
                ..RibbonBuilder::new(policy.bits_per_key)
            };
            numbers(5_000).for_each(|key| builder.add_key(&key));
            let mut filter = Vec::new();
            builder.finish(&mut filter);
            assert_eq!(filter == [0; TRAILER], max_layers < needed);
            assert!(numbers(5_000).all(|key| policy.key_may_match(&key, &filter)));
            assert_eq!(
                policy.key_may_match(b"absent", &filter),
                max_layers < needed
            );
        }
    }

    #[test]
    fn colliding_keys_cost_a_layer_and_no_more() {
        // All have the same start in the first layer, which can keep none of them.
        let policy = RibbonFilterPolicy::new(10);
        let mut builder = RibbonBuilder::new(policy.bits_per_key);
        (0..1_000).for_each(|hash| builder.hashes.push(hash << 20));
        let mut filter = Vec::new();
        builder.finish(&mut filter);
        let layout = Layout::parse(&filter, filter.len()).unwrap();
        assert!((0..1_000).all(|hash| may_match(&filter, hash << 20) == Some(true)));
        assert_eq!(layout.columns, 5, "not 9: half of the slots are empty");
    }
}
