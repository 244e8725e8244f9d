//! The filter block: its builder and its reader.
//!
//! ```text
//! filter 0 .. filter N-1   fixed32 offset of each   fixed32 offset of the offsets   1 byte: lg(base)
//! ```
//!
//! Filter `i` covers the data blocks whose *file offset* lies in `[i << lg, (i + 1) << lg)`. LevelDB always writes an lg of
//! 11, a filter for each 2 KiB of file. With an lg so large that every block falls in filter 0, one filter covers the whole
//! table. A stock reader takes the lg from the file, and reads both.
//!
//! For example, with an lg of 11, data blocks at offsets 0, 1500 and 5000 get three filters: filter 0 for the first two
//! blocks, filter 1 (2048 to 4095) empty, filter 2 for the third.

use bytes::Bytes;

use super::prefetch::prefetch;
use super::{Defect, require};
use crate::coding::put_fixed32;
use crate::filter::{FilterBuilder, FilterPolicy, RibbonFilterPolicy};

/// Prefix of the metaindex key of a filter block. The policy's name follows.
pub(crate) const FILTER_PREFIX: &[u8] = b"filter.";

/// LevelDB's lg(base): a filter for every 2 KiB of file.
const LEVELDB_BASE_LG: u8 = 11;

/// Builds a filter block while the data blocks are written.
///
/// The calls must match `add_key* (start_block add_key*)* finish`: `add_key` for each key of the data block at offset 0, then
/// `start_block` with the file offset at which the next one begins, and so on, in the file's order.
pub struct FilterBlockBuilder {
    policy: Box<dyn FilterBuilder>,
    whole_table: bool,
    /// The filters finished so far.
    result: Vec<u8>,
    offsets: Vec<u64>,
    has_keys: bool,
}

impl FilterBlockBuilder {
    /// A builder of one filter for the whole table, or of one for each 2 KiB of file, as in LevelDB.
    pub fn new(policy: Box<dyn FilterBuilder>, whole_table: bool) -> FilterBlockBuilder {
        FilterBlockBuilder {
            policy,
            whole_table,
            result: Vec::new(),
            offsets: Vec::new(),
            has_keys: false,
        }
    }

    /// Starts the data block at file offset `offset`. Windows that end before it get their filters.
    pub fn start_block(&mut self, offset: u64) {
        if !self.whole_table {
            while offset >> LEVELDB_BASE_LG > self.offsets.len() as u64 {
                self.end_filter();
            }
        }
    }

    /// Adds a key of the current block.
    #[inline]
    pub fn add_key(&mut self, key: &[u8]) {
        self.policy.add_key(key);
        self.has_keys = true;
    }

    /// Appends the filter of the keys since the last one: an empty filter if there are none.
    fn end_filter(&mut self) {
        self.offsets.push(self.result.len() as u64);
        if self.has_keys {
            self.policy.finish(&mut self.result);
            self.has_keys = false;
        }
    }

    /// Returns the filter block of a table whose data blocks end at file offset `data_end`. `None` if the filters exceed the 4 GiB
    /// that 32-bit offsets reach.
    pub fn finish(mut self, data_end: u64) -> Option<Vec<u8>> {
        if self.has_keys {
            self.end_filter();
        }
        let base_lg = if self.whole_table && !self.offsets.is_empty() {
            // The smallest lg with which everything that begins at or before `data_end` falls in filter 0. At first, a
            // reader of `about.pieces` only knows where the blocks end.
            (u64::BITS - data_end.leading_zeros()) as u8
        } else {
            LEVELDB_BASE_LG
        };
        let filters_len = u32::try_from(self.result.len()).ok()?;
        for &offset in &self.offsets {
            put_fixed32(&mut self.result, u32::try_from(offset).ok()?);
        }
        put_fixed32(&mut self.result, filters_len);
        self.result.push(base_lg);
        Some(self.result)
    }
}

/// A filter block, as [`open_frame`](super::open_frame) returns it.
#[derive(Debug)]
pub struct FilterBlockReader {
    contents: Bytes,
    /// Total length of the filters, and so the offset of the offsets. At most the length of `contents` less 5.
    filters_len: usize,
    /// Number of filters, empty ones included.
    filter_count: usize,
    base_lg: u8,
}

impl FilterBlockReader {
    /// Finds the offsets. Everything else is checked where it is used.
    ///
    /// # Errors
    ///
    /// The end of the block does not say where the offsets are.
    pub fn new(contents: Bytes) -> Result<FilterBlockReader, Defect> {
        let decode = || {
            let (before, &[a, b, c, d, base_lg]) = contents.split_last_chunk()?;
            let filters_len = u32::from_le_bytes([a, b, c, d]) as usize;
            let offsets_len = before.len().checked_sub(filters_len)?;
            (u32::from(base_lg) < u64::BITS).then_some((filters_len, offsets_len / 4, base_lg))
        };
        let Some((filters_len, filter_count, base_lg)) = decode() else {
            let (_, end) = contents.split_at(contents.len().saturating_sub(5));
            let found = format!("{} bytes that end in {end:02x?}", contents.len());
            let expected = "the offset of offsets that the block has, and an lg(base) below 64";
            return Err(Defect::new(expected, found));
        };
        Ok(FilterBlockReader {
            contents,
            filters_len,
            filter_count,
            base_lg,
        })
    }

    /// Whether one filter covers every block up to the one at `last_block`.
    pub fn covers_all(&self, last_block: u64) -> bool {
        self.filter_count == 1 && last_block >> self.base_lg == 0
    }

    /// Whether the data block at file offset `block_offset` has a filter, empty ones included.
    pub fn has_filter(&self, block_offset: u64) -> bool {
        block_offset >> self.base_lg < self.filter_count as u64
    }

    /// Checks that the filters lie one after the other before their offsets. Lookups do not need this: in this crate, a
    /// filter with impossible bounds passes every key. In C++ LevelDB it hides its keys.
    ///
    /// # Errors
    ///
    /// The filters do not lie so.
    pub fn check_offsets(&self) -> Result<(), Defect> {
        let (_, offsets) = self.filters_and_offsets();
        let (offsets, odd) = offsets.as_chunks();
        // The last one is the offset of the offsets, where the filters end.
        let mut starts = offsets.iter().map(|start| u32::from_le_bytes(*start));
        let ascend = starts.clone().is_sorted() && starts.next() == Some(0);
        let (count, len) = (self.filter_count, self.filters_len);
        let expected =
            || format!("{count} filters to begin at 0 and one after the other in {len} bytes");
        require(ascend && odd.is_empty(), expected, || {
            "other offsets".into()
        })
    }

    /// Checks that this is a block of prefixes: it has one filter, or none if no key has a prefix.
    ///
    /// # Errors
    ///
    /// The block has more filters.
    pub fn check_prefixes(&self) -> Result<(), Defect> {
        self.check_offsets()?;
        let count = self.filter_count;
        let expected = || "one filter of prefixes, or none".into();
        require(count <= 1, expected, || format!("{count}"))
    }

    /// Whether a key of the table may have this prefix, according to a block of prefixes.
    pub fn prefix_may_match(&self, prefix: &[u8]) -> bool {
        self.filter_count > 0 && self.key_may_match(&RibbonFilterPolicy::DEFAULT, 0, prefix)
    }

    /// Whether the data block at file offset `block_offset` may hold `key`.
    ///
    /// Returns `true` for a block that has no filter, or a filter with impossible bounds.
    #[inline]
    pub fn key_may_match(&self, policy: &dyn FilterPolicy, block_offset: u64, key: &[u8]) -> bool {
        let filter = self.filter(block_offset);
        filter.is_none_or(|filter| policy.key_may_match(key, filter))
    }

    /// Prefetches the offsets of the filter of the data block at `block_offset`.
    #[inline]
    pub(crate) fn prefetch_bounds(&self, block_offset: u64) {
        let (_, offsets) = self.filters_and_offsets();
        let at = usize::try_from(block_offset >> self.base_lg).ok();
        let bounds = at.and_then(|i| offsets.get(i.checked_mul(4)?..));
        prefetch(bounds.and_then(<[u8]>::first).into_iter());
    }

    /// Prefetches the filter of the data block at `block_offset`, which in an ordinary block lies in two cache lines.
    #[inline]
    pub(crate) fn prefetch_filter(&self, block_offset: u64) {
        let filter = self.filter(block_offset).unwrap_or_default();
        prefetch(filter.first().into_iter().chain(filter.last()));
    }

    /// The filters; then their offsets, up to and including the offset of the offsets.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`new` checked both lengths")]
    fn filters_and_offsets(&self) -> (&[u8], &[u8]) {
        let before_lg = &self.contents[..self.contents.len() - 1];
        before_lg.split_at(self.filters_len)
    }

    /// The filter of the data block at `block_offset`. `None` if it has none, or one with impossible bounds.
    ///
    /// The offset of the offsets is where the offset of one more filter would be, and so ends the last filter.
    #[inline]
    fn filter(&self, block_offset: u64) -> Option<&[u8]> {
        let i = usize::try_from(block_offset >> self.base_lg).ok()?;
        let (filters, offsets) = self.filters_and_offsets();
        let (offsets, _) = offsets.as_chunks();
        let [start, end] = *offsets.get(i..)?.first_chunk()?;
        let [start, end] = [start, end].map(|offset| u32::from_le_bytes(offset) as usize);
        filters.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// A policy with readable filters: the keys, joined by `,` (and so without false positives).
    #[derive(Debug)]
    struct Readable;

    #[derive(Default)]
    struct Joined(Vec<u8>);

    impl FilterPolicy for Readable {
        fn name(&self) -> &str {
            "test.Readable"
        }

        fn builder(&self) -> Box<dyn FilterBuilder> {
            Box::new(Joined::default())
        }

        fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
            filter.split(|&b| b == b',').any(|k| k == key)
        }
    }

    impl FilterBuilder for Joined {
        fn add_key(&mut self, key: &[u8]) {
            self.0.extend_from_slice(key);
            self.0.push(b',');
        }

        fn finish(&mut self, dst: &mut Vec<u8>) {
            dst.append(&mut self.0);
        }
    }

    fn build(whole_table: bool, blocks: &[(u64, &[&str])]) -> Vec<u8> {
        let mut builder = FilterBlockBuilder::new(Readable.builder(), whole_table);
        for (offset, keys) in blocks {
            builder.start_block(*offset);
            keys.iter().for_each(|key| builder.add_key(key.as_bytes()));
        }
        builder
            .finish(blocks.last().map_or(0, |(offset, _)| *offset))
            .unwrap()
    }

    fn may_match(block: &FilterBlockReader, offset: u64, key: &str) -> bool {
        block.key_may_match(&Readable, offset, key.as_bytes())
    }

    #[test]
    fn an_empty_table_has_leveldbs_empty_filter_block() {
        for whole_table in [false, true] {
            assert_eq!(build(whole_table, &[(0, &[])]), [0, 0, 0, 0, 11]);
        }
    }

    /// Several blocks in one window, windows without a block, and keys still pending at `finish`.
    #[test]
    fn windows_are_laid_out_as_by_leveldb() {
        let blocks: [(u64, &[&str]); 5] = [
            (0, &["foo"]),
            (2000, &["bar"]),
            (3100, &["box"]),
            (9000, &["box", "hello"]),
            (9500, &[]),
        ];
        let bytes = build(false, &blocks);
        let mut expected = b"foo,bar,box,box,hello,".to_vec();
        for offset in [0u32, 8, 12, 12, 12, 22, 11] {
            expected.extend(offset.to_le_bytes());
        }
        expected.truncate(expected.len() - 3);
        assert_eq!(bytes, expected);
        let block = FilterBlockReader::new(bytes.into()).unwrap();
        assert_eq!(block.filter_count, 5);
        assert!(!block.covers_all(0));
        assert!(may_match(&block, 0, "foo") && may_match(&block, 2000, "bar"));
        assert!(!may_match(&block, 0, "box") && may_match(&block, 3100, "box"));
        assert!(!may_match(&block, 4100, "box"), "a window without keys");
        assert!(may_match(&block, 9000, "hello") && !may_match(&block, 9000, "foo"));
        assert!(may_match(&block, 1 << 20, "foo"), "no filter there");
        // Five windows of 2 KiB, two of them without keys.
        for offset in [0, 4100, 10 * 1024 - 1] {
            assert!(block.has_filter(offset), "{offset}");
        }
        for offset in [10 * 1024, 1 << 20, u64::MAX] {
            assert!(!block.has_filter(offset), "{offset}");
        }
    }

    #[test]
    fn one_filter_for_the_table_has_the_smallest_base_that_covers_its_data() {
        for (end, lg) in [
            (0, 0),
            (1, 1),
            (2047, 11),
            (2048, 12),
            (5000, 13),
            (1 << 40, 41),
        ] {
            let last = end - end / 9;
            let blocks: [(u64, &[&str]); 3] = [(0, &["a"]), (last, &["b"]), (end, &[])];
            let bytes = build(true, &blocks);
            let expected = [b"a,b,", &[0; 4][..], &[4, 0, 0, 0, lg]].concat();
            assert_eq!(bytes, expected);
            let block = FilterBlockReader::new(bytes.into()).unwrap();
            assert!(block.covers_all(end) && !block.covers_all(1 << lg));
            assert!(may_match(&block, last, "a") && may_match(&block, 0, "b"));
            assert!(!may_match(&block, last, "c"));
        }
    }

    #[test]
    fn impossible_bounds_may_match_or_are_refused() {
        let read = |bytes: &[u8]| FilterBlockReader::new(Bytes::copy_from_slice(bytes));
        assert!(read(&[0, 0, 0, 11]).is_err());
        assert!(read(&[0, 0, 0, 0, 64]).is_err(), "a shift of 64");
        assert!(read(&[1, 0, 0, 0, 11]).is_err(), "offsets past the end");
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 11]).is_err());
        // Start and end of filter 0: reversed; end past the filters; both past them and equal. C++ treats the last case
        // as an empty filter, which hides every key of the window.
        for (start, end) in [(2u32, 1u32), (0, 9), (9, 9)] {
            let mut bytes = b"a,".to_vec();
            [start, end, 2]
                .iter()
                .for_each(|o| bytes.extend(o.to_le_bytes()));
            bytes.push(11);
            let block = read(&bytes).unwrap();
            assert!(may_match(&block, 0, "x"), "{start}..{end}");
        }
    }
}
