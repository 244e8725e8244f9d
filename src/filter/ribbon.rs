//! This crate's own filter: a bumped ribbon over XXH3, 1 % above the least space that a filter can take.
//!
//! # What it is
//!
//! A Bloom filter spends 44 % more bits than the rate of its errors demands. A ribbon filter stores
//! the solution of a system of linear equations over single bits instead: it has one *slot* of `c`
//! bits for (nearly) every key, and each key asks that the exclusive or of certain slots, picked by
//! its hash among 32 neighbours, be equal to `c` other bits of its hash, its *fingerprint*. A key of
//! the set passes, since the system was solved for it; any other key passes with probability 2⁻ᶜ.
//!
//! Equations whose slots lie within a narrow band are quick to solve, but a band of 32 slots that
//! is filled to the last slot has contradictions. So a few keys (8 %) are *bumped*: two bits for every
//! 32 slots say which keys must look in the next *layer* instead, a small ribbon of its own, which
//! bumps some to the next. In the end all but 0.2 % of the slots carry a key.
//!
//! Ribbon filters are due to Dillinger and Walzer ("Ribbon filter: practically smaller than Bloom and
//! Xor", 2021), bumping to Dillinger, Hübschle-Schneider, Sanders and Walzer ("Fast succinct retrieval
//! and approximate membership using ribbon", SEA 2022). `docs/filters.md` has the measurements by which
//! the parameters here were chosen.
//!
//! # Encoding of `leveltable.Ribbon1`
//!
//! All integers are little-endian, all arithmetic is modulo 2⁶⁴ unless said otherwise.
//!
//! ```text
//! filter  = word*  code*  end(last layer) .. end(layer 1)  end(layer 0)  narrow  columns  layers
//!           u32    u8     u32                              u32           u32     u8       u8
//! ```
//!
//! The slots, 32 to a *segment*, are numbered through all layers: layer `i` has the segments from
//! `end(i - 1)` (0 for the first) up to `end(i)`, at least one, and `end(last)` is the number `S` of all
//! segments.
//!
//! - **Words.** A segment has one word for every column: the first `narrow` segments have `columns`
//!   (`c` for short) of them, the others `c + 1`. Segments stand one after the other, in each the columns
//!   in order, so segment `g` begins at word `g c + max(g - narrow, 0)` and there are `S c + S - narrow`
//!   words. Bit `b` of the word of column `j` is bit `j` of slot `b` of the segment. `c` is at least 4, no
//!   segment has more than 32 columns, and `narrow <= S`.
//! - **Codes.** Two bits a segment, four segments a byte, the first in the low bits; `ceil(S / 4)` bytes,
//!   of which unused bits are zero. Codes 0, 1, 2, 3 mean that keys are bumped which start in the first
//!   0, 8, 16, 32 slots of the segment.
//!
//! A key is looked up so, beginning with `h` = XXH3-64 of the key (seed 0) and layer 0:
//!
//! 1. A layer of `m` segments has `s = 32 m - 31` places to start at. The key starts at slot
//!    `h s / 2⁶⁴`, rounded down, of the layer; the product has 128 bits.
//! 2. If the code of the segment that the start is in bumps it: `h = (h ^ (h >> 32)) * 0x243f6a8885a308d3`
//!    and the next layer. If there is none, the key may match.
//! 3. Otherwise let `r = h * 0x9e3779b97f4a7c15`. The *coefficients* are the upper 32 bits of `r`, the
//!    lowest of them set to 1; the *fingerprint* is the lower 32 bits of `r`.
//! 4. The key may match if, for each column `j` of that segment, the exclusive or of bit `j` of the slots
//!    `start + i`, over all `i` for which bit `i` of the coefficients is set, is bit `j` of the
//!    fingerprint. These slots lie in the segment and the next one (which has as many columns, or one more).
//!
//! Two more forms: no bytes at all are the filter of no keys, and nothing matches; where `layers` is 0,
//! or where the numbers do not fit each other or the filter's length, everything may match. A writer to
//! whom the improbable happens, that 32 layers do not suffice, writes ten zero bytes.
//!
//! A writer may choose layers, codes, widths and values of undetermined slots as it likes. What this one
//! does is in the private items below, the same on every platform.
//!
//! For example, the keys `apple`, `grape` and `lemon` at a rate of 1/16 give this filter of one segment:
//!
//! ```text
//! GOLDEN
//! ```

use std::num::NonZero;

use xxhash_rust::xxh3::xxh3_64;

use super::{FilterBuilder, FilterPolicy};

/// Slots in a segment, and bits in an equation's coefficients.
const SLOTS: usize = 32;

/// Bytes of the part of a filter that is always there, at its end: end of layer 0, narrow, columns, layers.
const TRAILER: usize = 10;

/// Fewest columns: a probe reads four at a time.
const MIN_COLUMNS: usize = 4;

/// Most columns: as many bits as a fingerprint has.
const MAX_COLUMNS: usize = 32;

/// Layers after which a writer gives up. A layer leaves a tenth of its keys, and a last small one can
/// fail with a probability of at most 1/3, so that this is far out of reach (10⁻¹⁵) unless keys are
/// made to collide.
const MAX_LAYERS: usize = 32;

/// Bytes of a filter block beside its filter, if it holds one only: offset, end, and base.
const BLOCK_OVERHEAD: usize = 9;

/// This crate's own filter policy: a bumped ribbon filter, `leveltable.Ribbon1`.
///
/// At 10 bits a key, everything in the filter block counted, 0.106 % of the absent keys pass (0.098 %
/// is the least that any filter could reach, a Bloom filter with a good hash lets 0.82 % pass), whatever
/// the keys look like. Neither present nor absent keys are ever hashed twice, and a probe touches three
/// or four cache lines in one place.
///
/// It pays where one filter covers many keys, best the whole table: a filter takes at least 27
/// bytes (51 at 10 bits a key), and costs its nominal bits a key from some 500 keys on.
///
/// Building keeps 8 bytes a key until [`finish`](FilterBuilder::finish), and 18 while that runs, which is
/// some 50 ns a key. It is linear in the number of keys, however many they are.
///
/// ```
/// use leveltable::{FilterPolicy, RibbonFilterPolicy, create_filter};
///
/// let policy = RibbonFilterPolicy::new(10);
/// let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
/// let mut filter = Vec::new();
/// create_filter(&policy, &keys, &mut filter);
///
/// assert!(filter.len() * 8 <= 10 * keys.len());
/// assert!(keys.iter().all(|key| policy.key_may_match(key, &filter)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RibbonFilterPolicy {
    target: Target,
}

/// What decides on the number of columns.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// The whole filter block costs at most so many bits a key.
    BitsPerKey(f64),
    /// Of the absent keys at most this part passes.
    Rate(f64),
}

impl RibbonFilterPolicy {
    /// A policy whose filters cost at most `bits_per_key` bits a key, from some 500 keys on.
    ///
    /// That is the whole truth: all that the filter stores, and the 9 bytes that a filter block adds to
    /// its one filter. The bits need not be a whole number. An absent key passes with a probability of
    /// about 2 to the power of `-0.99 bits_per_key`. Less than 5 is taken for 5, more than 33 for 33.
    ///
    /// A smaller filter may cost more, by 60 bytes at most (at 10 bits a key): it comes in steps of 32 slots, and
    /// would otherwise have to let more absent keys pass.
    pub fn new(bits_per_key: impl Into<f64>) -> Self {
        // `max` and `min` rather than `clamp`: of NaN they make a number.
        let bits = bits_per_key.into().max(5.0).min(33.0);
        Self {
            target: Target::BitsPerKey(bits),
        }
    }

    /// A policy whose filters let an absent key pass with a probability of at most `rate`.
    ///
    /// `0.001` stands for one absent key in a thousand, and costs `1.01 log2(1 / rate)` bits a key in filters
    /// of 10 000 keys or more. A rate above 1/16 is taken for 1/16, one below 2⁻³² for 2⁻³².
    pub fn with_false_positive_rate(rate: f64) -> Self {
        let rate = rate
            .max(0.5f64.powi(MAX_COLUMNS as i32))
            .min(0.5f64.powi(MIN_COLUMNS as i32));
        Self {
            target: Target::Rate(rate),
        }
    }
}

impl FilterPolicy for RibbonFilterPolicy {
    fn name(&self) -> &str {
        "leveltable.Ribbon1"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(RibbonBuilder::new(self.target))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        if filter.is_empty() {
            return false;
        }
        Ribbon::parse(filter)
            .and_then(|ribbon| ribbon.may_match(xxh3_64(key)))
            .unwrap_or(true)
    }
}

// What reader and writer agree on: from a hash to a place and an equation.

/// Number of places in a layer of `segments` where a key can start and have 32 slots before it.
#[inline]
fn starts(segments: usize) -> u64 {
    (segments as u64 * SLOTS as u64).saturating_sub(SLOTS as u64 - 1)
}

/// Where in a layer with so many `starts` the key of this hash starts. Grows with the hash, so that
/// the order of the hashes is that of the starts.
#[inline]
fn start(hash: u64, starts: u64) -> u64 {
    ((u128::from(hash) * u128::from(starts)) >> 64) as u64
}

/// Coefficients and fingerprint of the key of this hash. The factor is 2⁶⁴ over the golden ratio.
#[inline]
fn equation(hash: u64) -> (u32, u32) {
    let row = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((row >> 32) as u32 | 1, row as u32)
}

/// The hash of a bumped key in the next layer. The factor is the fraction of pi. Both steps can be
/// inverted, so that different hashes stay different.
#[inline]
fn rehash(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(0x243f_6a88_85a3_08d3)
}

/// The slots at the front of a segment where a start means that the key was bumped.
#[inline]
fn bumped_slots(code: u8) -> u64 {
    match code & 3 {
        0 => 0,
        1 => 8,
        2 => 16,
        _ => SLOTS as u64,
    }
}

/// A filter's bytes, taken apart. Nothing in it is trusted: each access is checked, and `None` stands
/// for a filter that contradicts itself.
struct Ribbon<'a> {
    words: &'a [u8],
    codes: &'a [u8],
    /// Ends of the layers from the last to the second, four bytes each.
    ends: &'a [[u8; 4]],
    /// End of the first layer.
    end: u32,
    narrow: u64,
    columns: u64,
}

impl<'a> Ribbon<'a> {
    #[inline]
    fn parse(filter: &'a [u8]) -> Option<Self> {
        let (rest, &[e0, e1, e2, e3, n0, n1, n2, n3, columns, layers]) =
            filter.split_last_chunk::<TRAILER>()?;
        let end = u32::from_le_bytes([e0, e1, e2, e3]);
        let narrow = u64::from(u32::from_le_bytes([n0, n1, n2, n3]));
        let columns = u64::from(columns);

        let ends_len = 4 * usize::from(layers.checked_sub(1)?);
        let (rest, ends) = rest.split_at_checked(rest.len().checked_sub(ends_len)?)?;
        let (ends, _) = ends.as_chunks::<4>();
        let segments = u64::from(ends.first().map_or(end, |&last| u32::from_le_bytes(last)));

        // At most 2³² segments of 256 words: no overflow.
        let words_len = 4 * (segments * columns + segments.checked_sub(narrow)?);
        let (words, codes) = rest.split_at_checked(usize::try_from(words_len).ok()?)?;
        (codes.len() as u64 == segments.div_ceil(4)).then_some(Self {
            words,
            codes,
            ends,
            end,
            narrow,
            columns,
        })
    }

    #[inline]
    fn may_match(&self, mut hash: u64) -> Option<bool> {
        let mut layer = 0..self.end;
        let mut ends = self.ends.iter().rev();
        loop {
            let size = layer
                .end
                .checked_sub(layer.start)
                .filter(|&size| size > 0)?;
            let start = start(hash, starts(size as usize));
            let segment = u64::from(layer.start) + start / SLOTS as u64;
            let offset = start % SLOTS as u64;
            let code = self.codes.get((segment / 4) as usize)? >> (segment % 4 * 2);
            if offset >= bumped_slots(code) {
                return self.holds(hash, segment, offset);
            }
            layer = layer.end..u32::from_le_bytes(*ends.next()?);
            hash = rehash(hash);
        }
    }

    /// Whether the equation of `hash`, which starts at `offset` in `segment`, is true in each column.
    #[inline]
    fn holds(&self, hash: u64, segment: u64, offset: u64) -> Option<bool> {
        let width = self.columns + u64::from(segment >= self.narrow);
        let at = 4 * (segment * self.columns + segment.saturating_sub(self.narrow));
        let (here, next) = self
            .words
            .get(usize::try_from(at).ok()?..)?
            .split_at_checked(4 * width as usize)?;
        // What starts at the front of a segment needs no other, and the last segment has no other.
        let next = if offset == 0 { here } else { next };

        let (coefficients, fingerprint) = equation(hash);
        let coefficients = u64::from(coefficients) << offset;
        // Twice side by side, since a pair of columns is read at once.
        let low = (coefficients & 0xffff_ffff) * 0x1_0000_0001;
        let high = (coefficients >> 32) * 0x1_0000_0001;

        // Four columns at a time: 15 in 16 absent keys are seen after the first four. The last four may
        // overlap those before.
        let last = here.len().checked_sub(16)?;
        let mut at = 0;
        loop {
            let (a01, a23) = two_words(here, at)?;
            let (b01, b23) = two_words(next, at)?;
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

/// Four columns' words: the first and second in one number, the third and fourth in the other.
#[inline]
fn two_words(words: &[u8], at: usize) -> Option<(u64, u64)> {
    let four = u128::from_le_bytes(*words.get(at..)?.first_chunk()?);
    Some((four as u64, (four >> 64) as u64))
}

/// The parities of four words, which come in pairs as [`two_words`] gives them: at bits 0, 32, 16 and
/// 48, the others being zero. Each step folds words to half their width; the first also puts the two
/// pairs together. (Processors can count bits, but a portable program may not ask them to.)
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

/// The low four bits at the places where [`parities`] has those of the columns: the factor makes copies
/// that are shifted by 0, 31, 14 and 45, so that they do not touch.
#[inline]
fn spread(fingerprint: u32) -> u64 {
    (u64::from(fingerprint & 15) * 0x0000_2000_8000_4001) & 0x0001_0001_0001_0001
}

/// Gathers hashes; all the work is in `finish`.
struct RibbonBuilder {
    target: Target,
    hashes: Hashes,
    /// The hash added last. Equal keys come one after the other.
    previous: Option<u64>,
    /// [`MAX_LAYERS`], or less to test what happens when they do not suffice.
    max_layers: usize,
}

impl RibbonBuilder {
    fn new(target: Target) -> Self {
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
        let columns = system
            .columns(self.target, keys)
            .filter(|_| hashes.len() == 0);
        match columns {
            Some((columns, narrow)) => system.write(columns, narrow, dst),
            // Does nothing, but does no harm.
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

/// The equations of all layers in echelon form, one a slot: coefficients of the slot (lowest bit,
/// which is set) and of the 31 after it, and the fingerprint. Zero where no equation determines a slot.
#[derive(Default)]
struct System {
    rows: Vec<(u32, u32)>,
    /// One a segment.
    codes: Vec<u8>,
    /// For each layer, the segments of all layers up to and with it.
    ends: Vec<usize>,
}

impl System {
    /// Makes one more layer of these keys; returns those that it bumps, hashed anew.
    ///
    /// Keys are needed by segments, and within a segment by what the codes can bump: by eighths (the
    /// eight starts that make a quarter of a segment are called so for short). Two passes put them into that order,
    /// the first into parts that fit the cache, the second each part into its quarters.
    #[expect(
        clippy::indexing_slicing,
        reason = "places counted here; nothing comes from a file"
    )]
    fn add_layer(&mut self, hashes: Hashes) -> Hashes {
        /// Segments in a part: 2,240 keys or so.
        const PART: usize = 64;
        /// Quarters in a part.
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
                // From right to left: what overflows from the segment before needs room at the left.
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
                // An absent key passes with 2⁻ᶜ in a narrow segment and half of that in others: with
                // (1 + share of narrow segments) / 2ᶜ⁺¹.
                let columns = (-rate.log2()).floor() as usize;
                let share = rate * 2f64.powi(columns as i32 + 1) - 1.0;
                (columns, (share * segments as f64) as usize)
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
/// 35 keys for 32 slots, so that nearly every slot is taken and 8 % of the keys are bumped. A small
/// layer had rather keep all its keys, since another layer would come to a whole segment.
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
