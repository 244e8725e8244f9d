//! Looks keys up in a ribbon filter, of which only parts may be in memory.

use std::ops::Range;

use super::equation::{MAX_COLUMNS, SLOTS, TRAILER, equation, rehash, start, starts};
use crate::coding::fixed32_at;

/// Number of slots at the front of a segment whose keys are bumped: 0, 8, 16 or 32 for the low two bits of `code`. A shift,
/// because a branch would be unpredictable.
#[inline]
fn bumped_slots(code: u8) -> u64 {
    u64::from(0x2010_0800_u32 >> (8 * (code & 3)) & 0xff)
}

/// A filter without its words and codes: the numbers that say where they lie. Nothing in it is trusted, and `None` always means
/// a filter that contradicts itself.
#[derive(Debug)]
pub(crate) struct Layout {
    /// End of the first layer.
    end: u32,
    narrow: u64,
    pub(super) columns: u64,
    /// Number of layers, at least one.
    layers: usize,
    /// Length of the words, at the front of the filter.
    pub(crate) words_len: usize,
    /// Length of the codes, which follow them.
    pub(crate) codes_len: usize,
}

/// Where a key is in a layer: the segment in which its equation starts, counted through all layers, and the slot in the
/// segment.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    hash: u64,
    layer: usize,
    segment: u64,
    offset: u64,
}

impl Probe {
    /// Offset, within the codes, of the byte with the segment's code.
    #[inline]
    pub(crate) fn code_at(&self) -> usize {
        usize::try_from(self.segment / 4).unwrap_or(usize::MAX)
    }

    /// Whether the key must look in the next layer, given the byte at [`code_at`](Probe::code_at).
    #[inline]
    pub(crate) fn is_bumped(&self, codes: u8) -> bool {
        self.offset < bumped_slots(codes >> (self.segment % 4 * 2))
    }
}

impl Layout {
    /// The layout of a filter of `len` bytes that ends with `tail`, which may be all of it.
    #[inline]
    pub(crate) fn parse(tail: &[u8], len: usize) -> Option<Layout> {
        let (_, &[e0, e1, e2, e3, n0, n1, n2, n3, columns, layers]) =
            tail.split_last_chunk::<TRAILER>()?;
        let end = u32::from_le_bytes([e0, e1, e2, e3]);
        let narrow = u64::from(u32::from_le_bytes([n0, n1, n2, n3]));
        let (columns, layers) = (u64::from(columns), usize::from(layers));
        let segments = u64::from(end_of(tail, layers.checked_sub(1)?)?);
        let wide = segments.checked_sub(narrow)?;
        if columns + u64::from(wide > 0) > MAX_COLUMNS as u64 {
            return None;
        }
        let words_len = usize::try_from(4 * (segments * columns + wide)).ok()?;
        let codes_len = usize::try_from(segments.div_ceil(4)).ok()?;
        let layout = Layout {
            end,
            narrow,
            columns,
            layers,
            words_len,
            codes_len,
        };
        let before_codes = len.checked_sub(layout.tail_len())?.checked_sub(codes_len)?;
        (before_codes == words_len).then_some(layout)
    }

    /// Number of bytes at the end of the filter that are neither words nor codes.
    pub(crate) fn tail_len(&self) -> usize {
        4 * (self.layers - 1) + TRAILER
    }

    /// Where layer 0 has the key with this hash.
    #[inline]
    pub(crate) fn first(&self, hash: u64) -> Option<Probe> {
        probe(hash, 0, 0..self.end)
    }

    /// Where the next layer has it, given the end of the filter, at least [`tail_len`](Self::tail_len) bytes.
    #[inline]
    pub(crate) fn next(&self, before: &Probe, tail: &[u8]) -> Option<Probe> {
        let layer = before.layer + 1;
        if layer >= self.layers {
            return None;
        }
        let segments = end_of(tail, before.layer)?..end_of(tail, layer)?;
        probe(rehash(before.hash), layer, segments)
    }

    /// Number of columns in the segment.
    #[inline]
    fn width(&self, probe: &Probe) -> usize {
        (self.columns + u64::from(probe.segment >= self.narrow)) as usize
    }

    /// Where the words of the equation lie: those of its segment and those of the next one, if there is one. At most eight bytes for
    /// each of 32 columns.
    #[inline]
    pub(crate) fn words_at(&self, probe: &Probe) -> Range<usize> {
        let Probe { segment, .. } = *probe;
        let start = 4 * (segment * self.columns + segment.saturating_sub(self.narrow));
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let end = start.saturating_add(8 * self.width(probe));
        start..end.min(self.words_len)
    }

    /// Whether the equation holds in every column, given the `words` at [`words_at`](Self::words_at).
    #[inline]
    pub(crate) fn holds(&self, probe: Probe, words: &[u8]) -> Option<bool> {
        let (len, offset) = (4 * self.width(&probe), probe.offset);
        let (here, next) = words.split_at_checked(len)?;
        // An equation that starts at a segment's first slot needs no next segment. There is none after the last segment.
        let next = if offset > 0 { next.get(..len)? } else { here };

        let (coefficients, fingerprint) = equation(probe.hash);
        let coefficients = u64::from(coefficients) << offset;
        // Two copies side by side, since two columns are read at once.
        let low = (coefficients & 0xffff_ffff) * 0x1_0000_0001;
        let high = (coefficients >> 32) * 0x1_0000_0001;

        // Four columns at a time. The first four already reject 15 of 16 absent keys. The last four may overlap the ones
        // before.
        let last = len.checked_sub(16)?;
        let mut at = 0;
        loop {
            let (a01, a23) = word_pairs(here, at)?;
            let (b01, b23) = word_pairs(next, at)?;
            let sums = parities((a01 & low) ^ (b01 & high), (a23 & low) ^ (b23 & high));
            if sums != spread(fingerprint >> (at / 4)) {
                return Some(false);
            }
            if at == last {
                return Some(true);
            }
            at = last.min(at + 16);
        }
    }
}

/// The end of a layer, given the end of the filter.
#[inline]
fn end_of(tail: &[u8], layer: usize) -> Option<u32> {
    fixed32_at(tail, tail.len().checked_sub(TRAILER + 4 * layer)?)
}

/// Where the layer that consists of these segments has the key with this hash.
#[inline]
fn probe(hash: u64, layer: usize, segments: Range<u32>) -> Option<Probe> {
    let size = segments.end.checked_sub(segments.start);
    let start = start(hash, starts(size.filter(|&size| size > 0)? as usize));
    Some(Probe {
        hash,
        layer,
        segment: u64::from(segments.start) + start / SLOTS as u64,
        offset: start % SLOTS as u64,
    })
}

/// Whether the key with this hash may match, given the whole filter.
#[inline]
pub(super) fn may_match(filter: &[u8], hash: u64) -> Option<bool> {
    let layout = Layout::parse(filter, filter.len())?;
    let (words, codes) = filter.split_at_checked(layout.words_len)?;
    let mut probe = layout.first(hash)?;
    loop {
        let code = *codes.get(..layout.codes_len)?.get(probe.code_at())?;
        if !probe.is_bumped(code) {
            return layout.holds(probe, words.get(layout.words_at(&probe))?);
        }
        probe = layout.next(&probe, filter)?;
    }
}

/// The words of four columns: the first two in one number, the last two in another.
#[inline]
fn word_pairs(words: &[u8], at: usize) -> Option<(u64, u64)> {
    let four = u128::from_le_bytes(*words.get(at..)?.first_chunk()?);
    Some((four as u64, (four >> 64) as u64))
}

/// The parities of four words, given as the pairs of [`word_pairs`]. They are at bits 0, 32, 16 and 48, and the other bits
/// are zero.
///
/// Each step folds words to half their width. The first step also joins the two pairs. (An instruction that counts bits is
/// not available on every processor.)
#[inline]
fn parities(first: u64, second: u64) -> u64 {
    let first = (first ^ (first >> 16)) & 0x0000_ffff_0000_ffff;
    let second = (second ^ (second << 16)) & 0xffff_0000_ffff_0000;
    let mut x = first | second;
    x ^= x >> 8;
    x ^= x >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    x & 0x0001_0001_0001_0001
}

/// Moves the low four bits to the positions at which [`parities`] returns them. The factor makes copies that are shifted by
/// 0, 31, 14 and 45 bits and do not overlap.
#[inline]
fn spread(fingerprint: u32) -> u64 {
    (u64::from(fingerprint & 15) * 0x0000_2000_8000_4001) & 0x0001_0001_0001_0001
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::super::RibbonFilterPolicy;
    use super::super::tests::{Random, filter_of, numbers};
    use crate::filter::FilterPolicy;

    /// A second reader, written from the description of the encoding alone, and as plainly as possible.
    struct Model {
        columns: usize,
        narrow: usize,
        ends: Vec<usize>,
        codes: Vec<u8>,
        /// All bits of all slots.
        slots: Vec<Vec<bool>>,
    }

    impl Model {
        fn read(filter: &[u8]) -> Model {
            let u32_at = |at: usize| u32::from_le_bytes(filter[at..at + 4].try_into().unwrap());
            let layers = usize::from(filter[filter.len() - 1]);
            let columns = usize::from(filter[filter.len() - 2]);
            let narrow = u32_at(filter.len() - 6) as usize;
            let ends: Vec<usize> = (0..layers)
                .map(|layer| u32_at(filter.len() - 10 - 4 * layer) as usize)
                .collect();
            let segments = ends[layers - 1];

            let mut slots = Vec::new();
            let mut word = 0;
            for segment in 0..segments {
                let width = if segment < narrow {
                    columns
                } else {
                    columns + 1
                };
                for slot in 0..32 {
                    let bit = |column| u32_at(4 * (word + column)) >> slot & 1 == 1;
                    slots.push((0..width).map(bit).collect());
                }
                word += width;
            }
            let codes = (0..segments).map(|g| filter[4 * word + g / 4] >> (g % 4 * 2) & 3);
            let codes: Vec<u8> = codes.collect();
            assert_eq!(
                4 * word + segments.div_ceil(4) + 4 * layers + 6,
                filter.len()
            );
            Model {
                columns,
                narrow,
                ends,
                codes,
                slots,
            }
        }

        /// The slots that a key's equation sums up, the number of columns, and the fingerprint.
        fn equation(&self, key: &[u8]) -> Option<(Vec<usize>, usize, u64)> {
            let mut h = u128::from(xxh3_64(key));
            let mut begin = 0;
            for &end in &self.ends {
                let places = 32 * (end - begin) as u128 - 31;
                let start = 32 * begin + ((h * places) >> 64) as usize;
                let bumped = [0, 8, 16, 32][usize::from(self.codes[start / 32])];
                if start % 32 >= bumped {
                    let r = (h * 0x9e37_79b9_7f4a_7c15) % (1 << 64);
                    let coefficients = (r >> 32) | 1;
                    let sum = (0..32).filter(|i| coefficients >> i & 1 == 1);
                    let width = self.columns + usize::from(start / 32 >= self.narrow);
                    return Some((
                        sum.map(|i| start + i).collect(),
                        width,
                        r as u64 & 0xffff_ffff,
                    ));
                }
                h = (h ^ (h >> 32)) * 0x243f_6a88_85a3_08d3 % (1 << 64);
                begin = end;
            }
            None
        }

        fn may_match(&self, key: &[u8]) -> bool {
            self.equation(key).is_none_or(|(sum, width, fingerprint)| {
                (0..width).all(|column| {
                    let bit = sum
                        .iter()
                        .fold(false, |bit, &slot| bit ^ self.slots[slot][column]);
                    bit == (fingerprint >> column & 1 == 1)
                })
            })
        }

        /// Solves the keys' equations by Gaussian elimination of the whole matrix. Free slots become 0.
        fn solve(&self, keys: impl Iterator<Item = [u8; 4]>) -> Vec<u64> {
            let mut pivots: Vec<Option<(Vec<u64>, u64)>> = vec![None; self.slots.len()];
            for key in keys {
                let (sum, _, mut right) = self
                    .equation(&key)
                    .expect("no key falls out of the last layer");
                let mut left = vec![0u64; self.slots.len().div_ceil(64)];
                sum.iter()
                    .for_each(|slot| left[slot / 64] |= 1 << (slot % 64));
                for slot in 0..self.slots.len() {
                    if left[slot / 64] >> (slot % 64) & 1 == 0 {
                        continue;
                    }
                    let Some((pivot, value)) = &pivots[slot] else {
                        pivots[slot] = Some((left.clone(), right));
                        right = 0;
                        break;
                    };
                    left.iter_mut().zip(pivot).for_each(|(a, b)| *a ^= b);
                    right ^= value;
                }
                assert_eq!(right, 0, "a contradiction");
            }
            let mut solution = vec![0; self.slots.len()];
            for slot in (0..solution.len()).rev() {
                if let Some((left, right)) = &pivots[slot] {
                    let later =
                        (slot + 1..solution.len()).filter(|s| left[s / 64] >> (s % 64) & 1 == 1);
                    solution[slot] = later.fold(*right, |sum, s| sum ^ solution[s]);
                }
            }
            solution
        }
    }

    #[test]
    fn a_model_made_from_the_documentation_agrees() {
        let mut max_layers = 0;
        for (bits, keys) in [
            (10.0, 1),
            (10.0, 2),
            (10.0, 30),
            (7.3, 100),
            (12.9, 400),
            (33.0, 300),
            (10.0, 1_500),
        ] {
            let filter = filter_of(RibbonFilterPolicy::new(bits), numbers(keys));
            let model = Model::read(&filter);
            max_layers = model.ends.len().max(max_layers);
            let solution = model.solve(numbers(keys));
            for (slot, bits) in model.slots.iter().enumerate() {
                for (column, &bit) in bits.iter().enumerate() {
                    assert_eq!(
                        bit,
                        solution[slot] >> column & 1 == 1,
                        "{keys} keys, slot {slot}"
                    );
                }
            }
            let policy = RibbonFilterPolicy::new(bits);
            for (i, key) in numbers(20_000).enumerate() {
                let matches = policy.key_may_match(&key, &filter);
                assert_eq!(matches, model.may_match(&key), "{keys} keys");
                assert!(matches || i >= keys as usize);
            }
        }
        assert!(max_layers >= 2, "no key was bumped");
    }

    #[test]
    fn damaged_and_hostile_filters_do_no_harm() {
        let policy = RibbonFilterPolicy::new(10);
        let filter = filter_of(policy, numbers(600));
        let probe = |filter: &[u8]| {
            numbers(40)
                .filter(|key| policy.key_may_match(key, filter))
                .count()
        };
        for cut in 1..filter.len() {
            assert_eq!(
                probe(&filter[cut..]),
                40,
                "a part is missing, so everything may match"
            );
            probe(&filter[..cut]);
        }
        let mut random = Random(2);
        for _ in 0..20_000 {
            let mut damaged = filter.clone();
            // Mostly in the trailer, which holds the numbers.
            let from = if random.next().is_multiple_of(4) {
                0
            } else {
                damaged.len() - 14
            };
            for _ in 0..=random.next() % 3 {
                let at = from + random.next() as usize % (damaged.len() - from);
                damaged[at] =
                    [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.next() as usize % 6];
            }
            probe(&damaged);
        }
        for len in 1..200 {
            for fill in [0, 1, 4, 0x7f, 0x80, 0xff] {
                probe(&vec![fill; len]);
            }
            let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            probe(&noise);
        }
    }

    #[test]
    fn numbers_that_do_not_fit_each_other_match_everything() {
        // (ends, narrow, columns, layers) over words and codes for two segments of four columns.
        let matches = |ends: &[u32], narrow: u32, columns: u8, layers: u8, body: usize| {
            // Words of ones and zero codes: a valid filter with these parts matches few keys.
            let mut filter = vec![0xff; body];
            filter.push(0);
            ends.iter()
                .rev()
                .for_each(|end| filter.extend(end.to_le_bytes()));
            filter.extend(narrow.to_le_bytes());
            filter.extend([columns, layers]);
            numbers(100)
                .filter(|key| RibbonFilterPolicy::new(10).key_may_match(key, &filter))
                .count()
        };
        assert!(matches(&[2], 2, 4, 1, 32) < 50, "a valid filter");
        assert!(
            matches(&[1, 2], 2, 4, 2, 32) < 50,
            "a valid filter that bumps no key"
        );
        for (why, count) in [
            ("no layer", matches(&[2], 2, 4, 0, 32)),
            ("more layers than bytes", matches(&[2], 2, 4, 255, 32)),
            ("a first layer of nothing", matches(&[0, 2], 2, 4, 2, 32)),
            (
                "more narrow segments than segments",
                matches(&[2], 3, 4, 1, 32),
            ),
            ("too few columns", matches(&[2], 2, 3, 1, 24)),
            ("too many columns", matches(&[2], 2, 33, 1, 264)),
            ("too many in wide segments", matches(&[2], 1, 32, 1, 260)),
            ("too many words", matches(&[2], 2, 4, 1, 36)),
            ("too few words", matches(&[2], 2, 4, 1, 28)),
            (
                "segments beyond the bytes",
                matches(&[u32::MAX], u32::MAX, 255, 1, 32),
            ),
            (
                "a layer beyond the segments",
                matches(&[u32::MAX, 2], 2, 4, 2, 32),
            ),
        ] {
            assert!(count >= 99, "{why}: {count}");
        }
    }
}
