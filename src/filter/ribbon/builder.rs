//! Builds a ribbon filter: sorts the hashes of each layer, brings their equations into echelon form, and solves them.

use std::num::NonZero;

use xxhash_rust::xxh3::xxh3_64;

use super::{MAX_COLUMNS, MIN_COLUMNS, SLOTS, TRAILER, equation, rehash, start, starts};
use crate::filter::FilterBuilder;

/// Layers after which the writer gives up. A layer bumps a tenth of its keys. A layer of one segment keeps all or none, and
/// none with a probability of at most 1/4. So this many layers are needed with a probability of 10⁻¹⁵, unless keys were
/// chosen to collide.
const MAX_LAYERS: usize = 32;

/// Bytes that a filter block adds to a single filter: its offset, its end, and the base.
pub(super) const BLOCK_OVERHEAD: usize = 9;

/// Collects hashes. All the work is in `finish`.
pub(super) struct RibbonBuilder {
    bits_per_key: f64,
    hashes: Vec<u64>,
    /// [`MAX_LAYERS`]; fewer in tests of what happens if they do not suffice.
    max_layers: usize,
}

impl RibbonBuilder {
    pub(super) fn new(bits_per_key: f64) -> Self {
        Self {
            bits_per_key,
            hashes: Vec::new(),
            max_layers: MAX_LAYERS,
        }
    }
}

impl FilterBuilder for RibbonBuilder {
    fn add_key(&mut self, key: &[u8]) {
        let hash = xxh3_64(key);
        // Equal keys follow one another.
        if self.hashes.last() != Some(&hash) {
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
        while !hashes.is_empty() && system.ends.len() < self.max_layers {
            hashes = system.add_layer(hashes);
        }
        let is_complete = hashes.is_empty();
        let columns = is_complete.then(|| system.columns(self.bits_per_key, keys));
        match columns.flatten() {
            Some((columns, narrow)) => system.write(columns, narrow, dst),
            // The filter that every key matches.
            None => dst.extend_from_slice(&[0; TRAILER]),
        }
    }
}

/// The equations of all layers, in echelon form.
#[derive(Default)]
struct System {
    /// For each slot, the equation that determines it from the slots after it: coefficients and fingerprint. The lowest
    /// coefficient, which is 1, is the slot's own. All zeros if the slot is free.
    rows: Vec<(u32, u32)>,
    /// One for each segment.
    codes: Vec<u8>,
    /// For each layer, the number of segments up to its end.
    ends: Vec<usize>,
}

impl System {
    /// Makes one more layer of these keys. Returns the keys that it bumps, with their hashes for the next layer.
    ///
    /// Keys are needed segment by segment, and within a segment by quarters (8 starts), since codes bump whole quarters.
    #[expect(clippy::indexing_slicing, reason = "places are counted here")]
    fn add_layer(&mut self, hashes: Vec<u64>) -> Vec<u64> {
        let keys = hashes.len();
        let segments = segments_for(keys);
        let starts = starts(segments);
        let quarter = |hash| start(hash, starts) as usize / (SLOTS / 4);

        // Where the keys of each quarter begin among all, and, when all are put, where they end.
        let mut places = vec![0; 4 * segments];
        for &hash in &hashes {
            places[quarter(hash)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        let mut sorted = vec![0; keys];
        for hash in hashes {
            let place = &mut places[quarter(hash)];
            sorted[*place] = hash;
            *place += 1;
        }

        self.rows.reserve_exact(keys + keys / 64);
        let (mut frame, mut bumped, mut begin) = (Frame::EMPTY, Vec::new(), 0);
        for &[first, second, _, end] in places.as_chunks().0 {
            // Keys at the front are inserted last and bumped first: there the equations of the segment before have taken
            // slots.
            let steps = [(3, second..end), (2, first..second), (1, begin..first)];
            let failed = steps
                .into_iter()
                .find(|(_, step)| !frame.insert(&sorted[step.clone()], starts));
            let (code, bump_end) = match failed {
                Some((code, step)) => (code, step.end),
                None => (0, begin), // every key is in
            };
            bumped.extend(sorted[begin..bump_end].iter().copied().map(rehash));
            self.codes.push(code);
            frame.advance(&mut self.rows);
            begin = end;
        }
        self.ends.push(self.codes.len());
        bumped
    }

    /// The number of columns of the narrow segments, and the number of narrow segments: `columns` and `narrow` of the
    /// encoding. `None` if there is no room for the fewest columns.
    fn columns(&self, bits: f64, keys: usize) -> Option<(usize, usize)> {
        let segments = self.codes.len();
        let budget = (keys as f64 * bits / 8.0) as usize;
        let fixed = BLOCK_OVERHEAD + segments.div_ceil(4) + 4 * (self.ends.len() - 1) + TRAILER;
        let words = budget.saturating_sub(fixed) / 4;
        let least = bits as usize - 1;
        let (columns, narrow) = if segments <= 16 && words < least * segments {
            (least, segments)
        } else {
            (words / segments, segments - words % segments)
        };
        match columns {
            ..MIN_COLUMNS => None,
            MAX_COLUMNS.. => Some((MAX_COLUMNS, segments)),
            _ => Some((columns, narrow.min(segments))),
        }
    }

    /// Appends the filter.
    fn write(&self, columns: usize, narrow: usize, dst: &mut Vec<u8>) {
        // Solved in lanes, one for each column. Up to 15 bits per key need at most 16.
        if columns < 16 {
            self.solve::<16>(columns, narrow, dst);
        } else {
            self.solve::<MAX_COLUMNS>(columns, narrow, dst);
        }
        let packed = |four: &[u8]| four.iter().rev().fold(0, |byte, code| byte << 2 | code);
        dst.extend(self.codes.chunks(4).map(packed));
        // 32 bits can count the segments: a filter block is shorter than 4 GiB.
        for &end in self.ends.iter().rev() {
            dst.extend_from_slice(&(end as u32).to_le_bytes());
        }
        dst.extend_from_slice(&(narrow as u32).to_le_bytes());
        dst.extend_from_slice(&[columns as u8, self.ends.len() as u8]);
    }

    /// Appends the words. From the last slot to the first, each equation determines its slot from the slots after it.
    fn solve<const LANES: usize>(&self, columns: usize, narrow: usize, dst: &mut Vec<u8>) {
        let first_word = |segment: usize| segment * columns + segment.saturating_sub(narrow);
        let begin = dst.len();
        dst.resize(begin + 4 * first_word(self.codes.len()), 0);

        // For each column, the bits of the 32 slots solved last. After the first slot of a segment these are its words.
        let mut window = [0u32; LANES];
        for (segment, rows) in self.rows.as_chunks::<SLOTS>().0.iter().enumerate().rev() {
            for &(coefficients, fingerprint) in rows.iter().rev() {
                for (column, bits) in window.iter_mut().enumerate() {
                    let later = *bits << 1;
                    let own = u32::from(fingerprint & (1 << column) != 0);
                    *bits = later | ((parity(later & coefficients) ^ own) & 1);
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

/// The lowest bit is the parity of `x`. The other bits mean nothing.
#[inline]
fn parity(mut x: u32) -> u32 {
    x ^= x >> 16;
    x ^= x >> 8;
    x ^= x >> 4;
    x ^= x >> 2;
    x ^ (x >> 1)
}

/// The equations of a segment during elimination: those of its 32 slots and of the 32 after it, since keys that start in the
/// segment reach that far.
struct Frame {
    /// Each at the place of its lowest set bit. Bit 0 is the segment's first slot.
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
    #[expect(clippy::indexing_slicing, reason = "a slot below 64, taken modulo 64")]
    fn insert(&mut self, hashes: &[u64], starts: u64) -> bool {
        let before = self.taken;
        for &hash in hashes {
            let (coefficients, mut fingerprint) = equation(hash);
            let offset = start(hash, starts) % SLOTS as u64;
            let mut left = u64::from(coefficients) << offset;
            while let Some(bits) = NonZero::new(left) {
                let slot = bits.trailing_zeros() as usize % 64;
                if self.taken & (1 << slot) == 0 {
                    self.taken |= 1 << slot;
                    (self.coefficients[slot], self.fingerprints[slot]) = (left, fingerprint);
                    fingerprint = 0;
                    break;
                }
                left ^= self.coefficients[slot];
                fingerprint ^= self.fingerprints[slot];
            }
            if fingerprint != 0 {
                self.taken = before;
                return false;
            }
        }
        true
    }

    /// Appends the rows of the segment, which are final, and moves on to the next segment.
    #[expect(clippy::indexing_slicing, reason = "two halves of an array")]
    fn advance(&mut self, rows: &mut Vec<(u32, u32)>) {
        rows.extend((0..SLOTS).map(|slot| {
            if self.taken & (1 << slot) == 0 {
                return (0, 0);
            }
            (
                (self.coefficients[slot] >> slot) as u32,
                self.fingerprints[slot],
            )
        }));
        for slot in 0..SLOTS {
            self.coefficients[slot] = self.coefficients[slot + SLOTS] >> SLOTS;
            self.fingerprints[slot] = self.fingerprints[slot + SLOTS];
        }
        self.taken >>= SLOTS;
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
