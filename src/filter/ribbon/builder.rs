//! Builds a ribbon filter: sorts the keys of each layer, brings their equations into echelon form, and solves them.

use std::num::NonZero;

use xxhash_rust::xxh3::xxh3_64;

use super::{MAX_COLUMNS, MIN_COLUMNS, SLOTS, TRAILER, Target, equation, rehash, start, starts};
use crate::filter::FilterBuilder;

/// Layers after which a writer gives up. A layer leaves a tenth of its keys, and one of a single segment,
/// which keeps all or nothing, leaves them with a probability of 1/4 at most. So this many are out of reach
/// (10⁻¹⁵), unless keys are made to collide.
const MAX_LAYERS: usize = 32;

/// Bytes of a filter block beside its filter, if it holds one only: offset, end, and base.
pub(super) const BLOCK_OVERHEAD: usize = 9;

/// Gathers hashes; all the work is in `finish`.
pub(super) struct RibbonBuilder {
    target: Target,
    hashes: Hashes,
    /// The hash added last. Equal keys come one after the other.
    previous: Option<u64>,
    /// [`MAX_LAYERS`], or less to test what happens when they do not suffice.
    max_layers: usize,
}

impl RibbonBuilder {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            hashes: Hashes::default(),
            previous: None,
            max_layers: MAX_LAYERS,
        }
    }
}

impl FilterBuilder for RibbonBuilder {
    fn add_key(&mut self, key: &[u8]) {
        let hash = xxh3_64(key);
        if self.previous.replace(hash) != Some(hash) {
            self.hashes.push(hash);
        }
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        self.previous = None;
        let mut hashes = std::mem::take(&mut self.hashes);
        let keys = hashes.len();
        if keys == 0 {
            return;
        }
        let mut system = System::default();
        while hashes.len() > 0 && system.ends.len() < self.max_layers {
            hashes = system.add_layer(hashes);
        }
        let columns = match hashes.len() {
            0 => system.columns(self.target, keys),
            _ => None,
        };
        match columns {
            Some((columns, narrow)) => system.write(columns, narrow, dst),
            // Of no use, and no harm.
            None => dst.extend_from_slice(&[0; TRAILER]),
        }
    }
}

/// A growing list in pages, so that it never takes twice its size to grow, and can be given back
/// piece by piece.
#[derive(Default)]
struct Hashes {
    /// All but the last are full.
    pages: Vec<Vec<u64>>,
}

impl Hashes {
    /// 32 KiB.
    const PAGE: usize = 4096;

    #[inline]
    fn push(&mut self, hash: u64) {
        match self.pages.last_mut() {
            Some(page) if page.len() < Self::PAGE => page.push(hash),
            // The first page grows as a vector does: a builder of small filters stays small.
            last => {
                let mut page = Vec::with_capacity(if last.is_some() { Self::PAGE } else { 0 });
                page.push(hash);
                self.pages.push(page);
            }
        }
    }

    fn len(&self) -> usize {
        self.pages
            .last()
            .map_or(0, |last| (self.pages.len() - 1) * Self::PAGE + last.len())
    }
}

/// The equations of all layers, in echelon form.
#[derive(Default)]
struct System {
    /// For each slot the equation that determines it from those after it, as coefficients and fingerprint. The
    /// lowest coefficient, which is set, is that of the slot itself. Zeros where the slot is free.
    rows: Vec<(u32, u32)>,
    /// One a segment.
    codes: Vec<u8>,
    /// For each layer, the number of segments up to its end.
    ends: Vec<usize>,
}

impl System {
    /// Makes one more layer of these keys; returns those that it bumps, hashed anew.
    ///
    /// Keys are needed segment by segment, and in a segment by what a code can bump, by quarters (8 starts).
    /// Two passes sort them so: the first into parts that fit the cache, the second each part into quarters.
    #[expect(
        clippy::indexing_slicing,
        reason = "places counted here; nothing comes from a file"
    )]
    fn add_layer(&mut self, hashes: Hashes) -> Hashes {
        /// Segments in a part, which has some 2240 keys.
        const PART: usize = 64;
        const QUARTERS: usize = 4 * PART;

        let keys = hashes.len();
        let segments = segments_for(keys);
        let starts = starts(segments);
        let quarter = |hash| start(hash, starts) as usize / (SLOTS / 4);

        let mut bounds = vec![0; segments.div_ceil(PART)];
        for &hash in hashes.pages.iter().flatten() {
            bounds[quarter(hash) / QUARTERS] += 1;
        }
        counts_to_places(&mut bounds);
        let mut by_part = vec![0; keys];
        for page in hashes.pages {
            for hash in page {
                put(hash, &mut bounds[quarter(hash) / QUARTERS], &mut by_part);
            }
        }

        self.rows.reserve_exact(keys + keys / 64);
        let mut frame = Frame::default();
        let mut bumped = Hashes::default();
        let mut sorted = Vec::new();
        let mut part_begin = 0;
        for (part, &part_end) in bounds.iter().enumerate() {
            let keys = &by_part[part_begin..part_end];
            part_begin = part_end;
            let mut ends = [0; QUARTERS];
            for &hash in keys {
                ends[quarter(hash) % QUARTERS] += 1;
            }
            counts_to_places(&mut ends);
            sorted.resize(keys.len(), 0);
            for &hash in keys {
                put(hash, &mut ends[quarter(hash) % QUARTERS], &mut sorted);
            }

            let mut begin = 0;
            for &[first, second, _, end] in ends.as_chunks().0.iter().take(segments - part * PART) {
                // Those at the left come last and are bumped first: that is where the equations of the segment
                // before have taken slots.
                let steps = [(3, second..end), (2, first..second), (1, begin..first)];
                let failed = steps
                    .into_iter()
                    .find(|(_, step)| !frame.insert(&sorted[step.clone()], starts));
                let (code, bump_end) = failed.map_or((0, begin), |(code, step)| (code, step.end));
                for &hash in &sorted[begin..bump_end] {
                    bumped.push(rehash(hash));
                }
                self.codes.push(code);
                frame.advance(&mut self.rows);
                begin = end;
            }
        }
        self.ends.push(self.codes.len());
        bumped
    }

    /// How many columns the segments get, and how many of the segments get one less than the others:
    /// `(columns, narrow)` of the encoding. `None` if they cannot have as many as they must.
    fn columns(&self, target: Target, keys: usize) -> Option<(usize, usize)> {
        let segments = self.codes.len();
        let (columns, narrow) = match target {
            Target::BitsPerKey(bits) => {
                let budget = (keys as f64 * bits / 8.0) as usize;
                let fixed =
                    BLOCK_OVERHEAD + segments.div_ceil(4) + 4 * (self.ends.len() - 1) + TRAILER;
                let words = budget.saturating_sub(fixed) / 4;
                let least = bits as usize - 1;
                if segments <= 16 && words < least * segments {
                    (least, segments)
                } else {
                    (words / segments, segments - words % segments)
                }
            }
            Target::Rate(rate) => {
                // An absent key passes with 2⁻ᶜ in a narrow segment and half of that in another, so with
                // (1 + share of narrow segments) / 2ᶜ⁺¹. No logarithm: it is not the same on all platforms.
                let mut columns = 0;
                let mut rest = rate;
                while rest <= 0.5 {
                    rest *= 2.0;
                    columns += 1;
                }
                (columns, ((2.0 * rest - 1.0) * segments as f64) as usize)
            }
        };
        match columns {
            ..MIN_COLUMNS => None,
            MAX_COLUMNS.. => Some((MAX_COLUMNS, segments)),
            _ => Some((columns, narrow.min(segments))),
        }
    }

    /// Appends the filter.
    fn write(&self, columns: usize, narrow: usize, dst: &mut Vec<u8>) {
        // Solved in lanes, one a column; 16 are what up to 15 bits a key need.
        if columns < 16 {
            self.solve::<16>(columns, narrow, dst);
        } else {
            self.solve::<MAX_COLUMNS>(columns, narrow, dst);
        }
        dst.extend(
            self.codes
                .chunks(4)
                .map(|four| four.iter().rev().fold(0, |byte, code| byte << 2 | code)),
        );
        // No more segments than 32 bits can count: a filter block ends at 4 GiB.
        for &end in self.ends.iter().rev() {
            dst.extend_from_slice(&(end as u32).to_le_bytes());
        }
        dst.extend_from_slice(&(narrow as u32).to_le_bytes());
        dst.extend_from_slice(&[columns as u8, self.ends.len() as u8]);
    }

    /// Appends the words. From the last slot to the first, each equation determines one slot from
    /// those after it.
    fn solve<const LANES: usize>(&self, columns: usize, narrow: usize, dst: &mut Vec<u8>) {
        let first_word = |segment: usize| segment * columns + segment.saturating_sub(narrow);
        let begin = dst.len();
        dst.resize(begin + 4 * first_word(self.codes.len()), 0);

        // For each column the bits of the next 32 slots: after a segment's first slot, its words.
        let mut window = [0u32; LANES];
        for (segment, rows) in self.rows.as_chunks::<SLOTS>().0.iter().enumerate().rev() {
            for &(coefficients, fingerprint) in rows.iter().rev() {
                for (column, bits) in window.iter_mut().enumerate() {
                    let later = *bits << 1;
                    let own = u32::from(fingerprint & (1 << column) != 0);
                    *bits = later | ((parity(later & coefficients) ^ own) & 1);
                }
            }
            let words = dst.iter_mut().skip(begin + 4 * first_word(segment));
            let width = columns + usize::from(segment >= narrow);
            for (to, from) in words.zip(
                window
                    .iter()
                    .take(width)
                    .flat_map(|bits| bits.to_le_bytes()),
            ) {
                *to = from;
            }
        }
    }
}

/// How many segments a layer gets for so many keys.
///
/// 35 keys for 32 slots: nearly every slot is taken, and 9 % of the keys are bumped. A small layer had
/// better keep all its keys, since one more layer is at least one more segment.
fn segments_for(keys: usize) -> usize {
    if keys < 256 {
        (17 * keys).div_ceil(16 * SLOTS)
    } else {
        keys / 35
    }
}

/// From the number of items of each kind to the place of the first of each, in order.
fn counts_to_places(counts: &mut [usize]) {
    let mut sum = 0;
    for place in counts {
        sum += std::mem::replace(place, sum);
    }
}

/// Puts an item where its kind's next one goes. After all, the place is the end of the kind.
#[inline]
#[expect(
    clippy::indexing_slicing,
    reason = "places were counted from the same items"
)]
fn put(hash: u64, place: &mut usize, sorted: &mut [u64]) {
    sorted[*place] = hash;
    *place += 1;
}

/// The lowest bit is the parity of `x`; the others are left over.
#[inline]
fn parity(mut x: u32) -> u32 {
    x ^= x >> 16;
    x ^= x >> 8;
    x ^= x >> 4;
    x ^= x >> 2;
    x ^ (x >> 1)
}

/// The equations under elimination: those of a segment's 32 slots and of the 32 after it, which is as
/// far as a key that starts in the segment reaches.
struct Frame {
    /// By their lowest set bit, which is the place in the array: bit 0 is the segment's first slot.
    coefficients: [u64; 2 * SLOTS],
    fingerprints: [u32; 2 * SLOTS],
    /// Places that have an equation; the others hold leftovers.
    taken: u64,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            coefficients: [0; 2 * SLOTS],
            fingerprints: [0; 2 * SLOTS],
            taken: 0,
        }
    }
}

/// An equation on its way to its place.
struct Pending {
    coefficients: u64,
    fingerprint: u32,
}

impl Frame {
    /// Inserts the equations of these keys, which start in the segment: all of them, or none and `false`.
    fn insert(&mut self, hashes: &[u64], starts: u64) -> bool {
        let before = self.taken;
        let mut equations = hashes.iter().map(|&hash| {
            let (coefficients, fingerprint) = equation(hash);
            let offset = start(hash, starts) % SLOTS as u64;
            Pending {
                coefficients: u64::from(coefficients) << offset,
                fingerprint,
            }
        });
        let inserted = self.insert_all(&mut equations).is_some();
        if !inserted {
            self.taken = before;
        }
        inserted
    }

    /// Inserts equations until there are no more (`Some`), or one contradicts those before it (`None`).
    ///
    /// Two are on their way at a time. The steps of one wait for each other, and two such chains side by
    /// side take hardly longer than one.
    #[inline]
    fn insert_all(&mut self, equations: &mut impl Iterator<Item = Pending>) -> Option<()> {
        let Some(mut a) = equations.next() else {
            return Some(());
        };
        if let Some(mut b) = equations.next() {
            loop {
                if !self.step(&mut a, equations)? {
                    a = b;
                    break;
                }
                if !self.step(&mut b, equations)? {
                    break;
                }
            }
        }
        while self.step(&mut a, equations)? {}
        Some(())
    }

    /// Takes an equation one step on its way, and replaces it by the next one if that was the last
    /// step: `Some(false)` if there is none, `None` if the equation contradicts those that are in place.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a number of zeros below 64")]
    fn step(
        &mut self,
        equation: &mut Pending,
        equations: &mut impl Iterator<Item = Pending>,
    ) -> Option<bool> {
        if let Some(bits) = NonZero::new(equation.coefficients) {
            let slot = bits.trailing_zeros() as usize % 64;
            if self.taken & (1 << slot) != 0 {
                equation.coefficients ^= self.coefficients[slot];
                equation.fingerprint ^= self.fingerprints[slot];
                return Some(true);
            }
            self.taken |= 1 << slot;
            self.coefficients[slot] = equation.coefficients;
            self.fingerprints[slot] = equation.fingerprint;
        } else if equation.fingerprint != 0 {
            return None;
        }
        Some(equations.next().map(|next| *equation = next).is_some())
    }

    /// Appends the rows of the segment, which are final, and goes on to the next one.
    #[expect(
        clippy::indexing_slicing,
        reason = "both halves of arrays of fixed size"
    )]
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
    use super::super::{Ribbon, RibbonFilterPolicy};
    use super::*;
    use crate::filter::{FilterPolicy, create_filter};

    fn numbers(count: u32) -> impl Iterator<Item = [u8; 4]> {
        (0..count).map(u32::to_be_bytes)
    }

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
                ..RibbonBuilder::new(policy.target)
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
        // All start at the same place of the first layer, which can keep none of them.
        let policy = RibbonFilterPolicy::new(10);
        let mut builder = RibbonBuilder::new(policy.target);
        (0..1_000).for_each(|hash| builder.hashes.push(hash << 20));
        let mut filter = Vec::new();
        builder.finish(&mut filter);
        let ribbon = Ribbon::parse(&filter).unwrap();
        assert!((0..1_000).all(|hash| ribbon.may_match(hash << 20) == Some(true)));
        assert_eq!(ribbon.columns, 5, "not 9: half of the slots are empty");
    }
}
