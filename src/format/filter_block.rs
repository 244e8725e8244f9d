//! The filter block: its builder and its reader.
//!
//! ```text
//! filter 0 .. filter N-1   fixed32 offset of each   fixed32 offset of the offsets   1 byte: lg(base)
//! ```
//!
//! Filter `i` is for the data blocks whose *file offset* lies in `[i << lg, (i + 1) << lg)`.

use bytes::Bytes;

use super::Defect;
use super::touch::touch;
use crate::coding::{fixed32_at, fixed64_at, put_fixed32};
use crate::filter::{FilterBuilder, FilterPolicy};

/// What the metaindex's name of a filter block begins with; the policy's name follows.
pub(crate) const FILTER_PREFIX: &[u8] = b"filter.";

/// LevelDB's lg(base): a filter for every 2 KiB of file.
const LEVELDB_BASE_LG: u8 = 11;

/// Bytes behind the offsets: the offset of the offsets, and lg(base).
const TAIL_LEN: usize = 5;

/// Which data blocks share a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterSpan {
    /// Those that begin in the same 2 KiB of file, as in LevelDB.
    Window,
    /// All of them.
    Table,
}

/// Builds a filter block while the data blocks are written.
///
/// The calls must match `(start_block add_key*)* finish`: `start_block` when a data block begins, with
/// its offset in the file; `add_key` for each of its keys.
pub(crate) struct FilterBlockBuilder {
    policy: Box<dyn FilterBuilder>,
    span: FilterSpan,
    result: Vec<u8>,
    offsets: Vec<u64>,
    has_keys: bool,
    block_offset: u64,
    /// Offset of the last data block that has a key.
    last_block: u64,
}

impl FilterBlockBuilder {
    pub(crate) fn new(policy: Box<dyn FilterBuilder>, span: FilterSpan) -> FilterBlockBuilder {
        FilterBlockBuilder {
            policy,
            span,
            result: Vec::new(),
            offsets: Vec::new(),
            has_keys: false,
            block_offset: 0,
            last_block: 0,
        }
    }

    /// Announces the data block that begins at `offset`: windows that end before it get their filters.
    pub(crate) fn start_block(&mut self, offset: u64) {
        debug_assert!(
            offset >= self.block_offset,
            "blocks are announced in file order"
        );
        self.block_offset = offset;
        if self.span == FilterSpan::Window {
            while offset >> LEVELDB_BASE_LG > self.offsets.len() as u64 {
                self.end_filter();
            }
        }
    }

    /// Adds a key of the block under way.
    #[inline]
    pub(crate) fn add_key(&mut self, key: &[u8]) {
        self.policy.add_key(key);
        self.has_keys = true;
        self.last_block = self.block_offset;
    }

    /// One more filter, of the keys since the last: an empty one if there are none.
    fn end_filter(&mut self) {
        self.offsets.push(self.result.len() as u64);
        if self.has_keys {
            self.policy.finish(&mut self.result);
            self.has_keys = false;
        }
    }

    /// The filter block; `None` if its filters take more than the 4 GiB that offsets of 32 bits reach.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        if self.has_keys {
            self.end_filter();
        }
        let base_lg = match self.span {
            FilterSpan::Table if !self.offsets.is_empty() => covering_lg(self.last_block),
            _ => LEVELDB_BASE_LG,
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

/// The smallest lg(base) for which a block at `offset`, and so all before it, falls in filter 0.
fn covering_lg(offset: u64) -> u8 {
    (u64::BITS - offset.leading_zeros()) as u8
}

/// Reads a filter block.
#[derive(Debug)]
pub(crate) struct FilterBlockReader {
    contents: Bytes,
    /// Offset of the offsets, which is the length of all filters.
    filters_len: usize,
    filter_count: usize,
    base_lg: u8,
}

impl FilterBlockReader {
    pub(crate) fn new(contents: Bytes) -> Result<FilterBlockReader, Defect> {
        let len = contents.len();
        let tail = len.checked_sub(TAIL_LEN);
        let (Some(tail), Some(&base_lg)) = (tail, contents.last()) else {
            return Err(Defect::new("at least 5 bytes", format!("{len}")));
        };
        if u32::from(base_lg) >= u64::BITS {
            return Err(Defect::new("an lg(base) below 64", format!("{base_lg}")));
        }
        let filters_len = fixed32_at(&contents, tail).unwrap_or_default() as usize;
        if filters_len > tail {
            return Err(Defect::new(
                format!("the filter offsets within {tail} bytes"),
                format!("at {filters_len}"),
            ));
        }
        Ok(FilterBlockReader {
            filters_len,
            filter_count: (tail - filters_len) / 4,
            base_lg,
            contents,
        })
    }

    /// Whether one filter covers every block up to the one at `last_block`.
    pub(crate) fn covers_all(&self, last_block: u64) -> bool {
        self.filter_count == 1 && last_block >> self.base_lg == 0
    }

    /// Whether the data block at file offset `block_offset` has a filter, be it an empty one.
    pub(crate) fn has_filter(&self, block_offset: u64) -> bool {
        block_offset >> self.base_lg < self.filter_count as u64
    }

    /// Checks that the filters lie end to end before their offsets. Lookups get by without: a filter with
    /// senseless bounds lets every key pass here, but hides its keys from C++ LevelDB.
    pub(crate) fn check_offsets(&self) -> Result<(), Defect> {
        let behind = self.contents.len() - TAIL_LEN - self.filters_len;
        if !behind.is_multiple_of(4) {
            return Err(Defect::new(
                "filter offsets of 4 bytes each",
                format!("{behind} bytes of them"),
            ));
        }
        let mut before = 0;
        for i in 0..=self.filter_count {
            let offset = fixed32_at(&self.contents, self.filters_len + 4 * i).unwrap_or_default();
            if (i == 0 && offset != 0) || offset < before || offset as usize > self.filters_len {
                return Err(Defect::new(
                    format!(
                        "filter {i} of {} to begin at {before} or later within {} bytes, the first at 0",
                        self.filter_count, self.filters_len
                    ),
                    format!("at {offset}"),
                ));
            }
            before = offset;
        }
        Ok(())
    }

    /// Number of filters, empty ones included.
    pub(crate) fn filter_count(&self) -> usize {
        self.filter_count
    }

    /// Whether the data block at file offset `block_offset` may hold `key`.
    ///
    /// `true` where the block has no filter, or one whose bounds make no sense.
    #[inline]
    pub(crate) fn key_may_match(
        &self,
        policy: &dyn FilterPolicy,
        block_offset: u64,
        key: &[u8],
    ) -> bool {
        self.filter(block_offset)
            .is_none_or(|filter| policy.key_may_match(key, filter))
    }

    /// Touches where the offset of the filter of the data block at `block_offset` lies.
    #[inline]
    pub(crate) fn touch_bounds(&self, block_offset: u64) {
        let at = self.bounds_at(block_offset);
        touch(at.and_then(|at| self.contents.get(at)).into_iter());
    }

    /// Touches both ends of that filter: it seldom takes more than two lines.
    #[inline]
    pub(crate) fn touch_filter(&self, block_offset: u64) {
        let filter = self.filter(block_offset).unwrap_or_default();
        touch(filter.first().into_iter().chain(filter.last()));
    }

    /// Where the offset of the filter of the data block at `block_offset` lies.
    #[inline]
    fn bounds_at(&self, block_offset: u64) -> Option<usize> {
        let i = usize::try_from(block_offset >> self.base_lg).ok()?;
        (i < self.filter_count).then(|| self.filters_len + 4 * i)
    }

    #[inline]
    fn filter(&self, block_offset: u64) -> Option<&[u8]> {
        // The offset of the offsets stands where one more offset would: it ends the last filter.
        let bounds = fixed64_at(&self.contents, self.bounds_at(block_offset)?)?;
        let (start, end) = (bounds as u32 as usize, (bounds >> 32) as usize);
        let filters = self.contents.get(..self.filters_len)?;
        filters.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// A policy whose filters can be read: the keys, joined by `,` (and so with no false positive).
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

    fn build(span: FilterSpan, blocks: &[(u64, &[&str])]) -> Vec<u8> {
        let mut builder = FilterBlockBuilder::new(Readable.builder(), span);
        for (offset, keys) in blocks {
            builder.start_block(*offset);
            keys.iter().for_each(|key| builder.add_key(key.as_bytes()));
        }
        builder.finish().unwrap()
    }

    fn may_match(block: &FilterBlockReader, offset: u64, key: &str) -> bool {
        block.key_may_match(&Readable, offset, key.as_bytes())
    }

    #[test]
    fn an_empty_table_has_leveldbs_empty_filter_block() {
        for span in [FilterSpan::Window, FilterSpan::Table] {
            assert_eq!(build(span, &[(0, &[])]), [0, 0, 0, 0, 11]);
        }
    }

    /// Several blocks in one window, a window without a block, and the last pending at `finish`.
    #[test]
    fn windows_are_laid_out_as_by_leveldb() {
        let blocks: [(u64, &[&str]); 5] = [
            (0, &["foo"]),
            (2000, &["bar"]),
            (3100, &["box"]),
            (9000, &["box", "hello"]),
            (9500, &[]),
        ];
        let bytes = build(FilterSpan::Window, &blocks);
        let mut expected = b"foo,bar,box,box,hello,".to_vec();
        for offset in [0u32, 8, 12, 12, 12, 22, 11] {
            expected.extend(offset.to_le_bytes());
        }
        expected.truncate(expected.len() - 3);
        assert_eq!(bytes, expected);
        let block = FilterBlockReader::new(bytes.into()).unwrap();
        assert_eq!(block.filter_count(), 5);
        assert!(!block.covers_all(0));
        assert!(may_match(&block, 0, "foo") && may_match(&block, 2000, "bar"));
        assert!(!may_match(&block, 0, "box") && may_match(&block, 3100, "box"));
        assert!(!may_match(&block, 4100, "box"), "a window without keys");
        assert!(may_match(&block, 9000, "hello") && !may_match(&block, 9000, "foo"));
        assert!(may_match(&block, 1 << 20, "foo"), "no filter there");
    }

    #[test]
    fn one_filter_for_the_table_has_the_smallest_base_that_covers_it() {
        for (last, lg) in [
            (0, 0),
            (1, 1),
            (2047, 11),
            (2048, 12),
            (5000, 13),
            (1 << 40, 41),
        ] {
            let blocks: [(u64, &[&str]); 3] = [(0, &["a"]), (last, &["b"]), (last + 9, &[])];
            let bytes = build(FilterSpan::Table, &blocks);
            let expected = [b"a,b,", &[0; 4][..], &[4, 0, 0, 0, lg]].concat();
            assert_eq!(bytes, expected);
            let block = FilterBlockReader::new(bytes.into()).unwrap();
            assert!(block.covers_all(last) && !block.covers_all(1 << lg));
            assert!(may_match(&block, last, "a") && may_match(&block, 0, "b"));
            assert!(!may_match(&block, last, "c"));
        }
    }

    #[test]
    fn what_makes_no_sense_may_match_or_is_refused() {
        let read = |bytes: &[u8]| FilterBlockReader::new(Bytes::copy_from_slice(bytes));
        assert!(read(&[0, 0, 0, 11]).is_err());
        assert!(read(&[0, 0, 0, 0, 64]).is_err(), "a shift of 64");
        assert!(read(&[1, 0, 0, 0, 11]).is_err(), "offsets behind the end");
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 11]).is_err());
        // Start and end of filter 0: reversed; behind the filters; both there and equal (which C++
        // takes for an empty filter that hides every key of the window).
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
