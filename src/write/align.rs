//! Where blocks begin and end in an aligned table: see [`WriteOptions::block_align`](crate::WriteOptions::block_align).

use crate::format::frame::TRAILER_LEN;
use crate::format::page::{PAGE_LEN, padding};

/// Ends blocks so that they fill pages, and places them so that they touch no more pages than necessary.
///
/// While a block grows, two things are unknown: where it will begin (in the rest of the page that the previous block left,
/// or after padding), and its compressed size. Both are guessed to decide where the block ends, and known when it is
/// [placed](Pages::place): a wrong guess costs padding, never a page.
#[derive(Debug)]
pub(super) struct Pages {
    /// Minimum length of an uncompressed block.
    block_size: u64,
    /// Stored bytes per [`ONE`] uncompressed ones, an estimate that blocks rarely exceed: that of the last block, or the highest of
    /// earlier blocks, which decays. `None` before the first block.
    ratio: Option<u64>,
}

/// The ratio of uncompressed blocks.
const ONE: u64 = 1 << 16;

impl Pages {
    pub(super) fn new(block_size: usize) -> Pages {
        Pages {
            block_size: block_size as u64,
            ratio: None,
        }
    }

    /// Whether a block of `len` bytes must end before the entry that would make it `longer` bytes long. The block comes
    /// after `offset`.
    pub(super) fn end_before(&self, offset: u64, len: usize, longer: usize) -> bool {
        let [len, longer] = [len, longer].map(|len| self.expect(framed(len)));
        longer > self.room(offset, len)
    }

    /// Whether a block of `len` bytes ends here: if it is large enough, and the rest of its last page is enough for
    /// another.
    pub(super) fn end_after(&self, offset: u64, len: usize) -> bool {
        let expected = self.expect(framed(len));
        let left = self.room(offset, expected).checked_sub(expected);
        len as u64 >= self.block_size && left.is_none_or(|left| left >= self.least())
    }

    /// The stored length up to which a block of `len` bytes may grow, if it comes after `offset`.
    fn room(&self, offset: u64, len: u64) -> u64 {
        let pages = self.expect(self.block_size).div_ceil(PAGE_LEN);
        let whole = pages.saturating_mul(PAGE_LEN);
        let begun = offset % PAGE_LEN;
        let in_rest = whole - begun;
        if PAGE_LEN - begun >= self.least() && len <= in_rest {
            in_rest
        } else {
            whole // after padding
        }
    }

    /// The minimum part of a page to begin a block in: a small block takes as much of the index as a large one.
    fn least(&self) -> u64 {
        self.expect(self.block_size).min(PAGE_LEN) / 2
    }

    /// The stored length that `len` bytes will rarely exceed.
    fn expect(&self, len: u64) -> u64 {
        let ratio = self.ratio.unwrap_or(ONE);
        len.saturating_mul(ratio).div_ceil(ONE).max(1)
    }

    /// Returns the padding between `offset` and a block of `len` bytes whose frame takes `stored`.
    pub(super) fn place(&mut self, offset: u64, len: usize, stored: usize) -> u64 {
        let stored = stored as u64;
        let ratio = stored.saturating_mul(ONE) / framed(len);
        let before = self.ratio.unwrap_or(ratio);
        self.ratio = Some(ratio.max((7 * before + ratio) / 8));
        padding(offset, stored)
    }
}

/// The length of an uncompressed frame.
fn framed(len: usize) -> u64 {
    len as u64 + TRAILER_LEN as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out entries of these lengths: the offset and the length of each block, and the number of its entries. Lengths
    /// are those in a block, and there are no restarts.
    fn lay_out(block_size: usize, entries: &[usize]) -> Vec<(u64, usize, usize)> {
        let mut pages = Pages::new(block_size);
        let mut blocks = Vec::new();
        let (mut offset, mut len, mut count) = (0, 0, 0);
        let mut flush = |pages: &mut Pages, offset: &mut u64, len: &mut usize, count: &mut _| {
            let at = *offset + pages.place(*offset, *len, *len + TRAILER_LEN);
            blocks.push((at, *len + TRAILER_LEN, *count));
            (*offset, *len, *count) = (at + framed(*len), 0, 0);
        };
        for entry in entries {
            if len > 0 && pages.end_before(offset, len, len + entry) {
                flush(&mut pages, &mut offset, &mut len, &mut count);
            }
            len += entry;
            count += 1;
            if pages.end_after(offset, len) {
                flush(&mut pages, &mut offset, &mut len, &mut count);
            }
        }
        if len > 0 {
            flush(&mut pages, &mut offset, &mut len, &mut count);
        }
        blocks
    }

    fn entries(len: usize, count: usize) -> Vec<usize> {
        vec![len; count]
    }

    #[test]
    fn a_block_of_a_page_ends_before_the_entry_that_crosses() {
        let blocks = lay_out(4096, &entries(100, 90));
        assert_eq!(blocks, [(0, 4005, 40), (4096, 4005, 40), (8192, 1005, 10)]);
        // Exactly one page.
        let blocks = lay_out(4096, &[2000, 2091, 50]);
        assert_eq!(blocks, [(0, 4096, 2), (4096, 55, 1)]);
        let blocks = lay_out(4096, &[2000, 2092, 50]);
        assert_eq!(blocks, [(0, 2005, 1), (4096, 2147, 2)]);
    }

    #[test]
    fn small_blocks_share_a_page() {
        let blocks = lay_out(1000, &entries(100, 50));
        assert_eq!(
            blocks,
            [
                (0, 1005, 10),
                (1005, 1005, 10),
                (2010, 1005, 10),
                (3015, 1005, 10),
                (4096, 1005, 10),
            ]
        );
        // A small rest of a page does not become a block.
        let blocks = lay_out(1800, &entries(100, 50));
        assert_eq!(blocks, [(0, 1805, 18), (1805, 2205, 22), (4096, 1005, 10)]);
        let blocks = lay_out(3000, &entries(100, 50));
        assert_eq!(blocks, [(0, 4005, 40), (4096, 1005, 10)]);
        // One entry per block.
        let blocks = lay_out(1, &entries(2000, 3));
        assert_eq!(blocks, [(0, 2005, 1), (2005, 2005, 1), (4096, 2005, 1)]);
    }

    #[test]
    fn large_blocks_fill_their_pages() {
        let blocks = lay_out(16 << 10, &entries(100, 200));
        assert_eq!(blocks, [(0, 16_305, 163), (16_384, 3705, 37)]);
        // Other blocks continue in the page that the previous one began.
        let blocks = lay_out(5000, &entries(100, 180));
        assert_eq!(
            blocks,
            [
                (0, 5005, 50),
                (5005, 5005, 50),
                (10_010, 6305, 63),
                (16_384, 1705, 17),
            ]
        );
    }

    #[test]
    fn an_entry_larger_than_a_page_takes_no_page_more_than_it_must() {
        // The second fits into the pages that the first begins; the third does not.
        let blocks = lay_out(4096, &[5000, 5000, 8000, 10]);
        assert_eq!(
            blocks,
            [
                (0, 5005, 1),
                (5005, 5005, 1),
                (12_288, 8005, 1),
                (20_293, 15, 1)
            ]
        );
        let blocks = lay_out(4096, &[7000, 2000, 10]);
        assert_eq!(blocks, [(0, 7005, 1), (8192, 2015, 2)]);
    }

    #[test]
    fn blocks_end_by_the_length_that_they_are_expected_to_have() {
        let mut pages = Pages::new(4096);
        assert!(pages.end_before(0, 4000, 4100));
        // They shrink to half their size: two fill a page.
        for _ in 0..50 {
            pages.place(0, 3995, 2000);
        }
        assert!(!pages.end_before(0, 4000, 4100));
        assert!(!pages.end_after(0, 4000));
        assert!(!pages.end_after(0, 4095));
        assert!(pages.end_after(0, 4096));
        assert!(!pages.end_after(2050, 4000));
        assert!(pages.end_before(2050, 4000, 4100));
        // Some do not shrink: room is left for that.
        for i in 0..50 {
            pages.place(0, 3995, 2000 + 100 * (i % 2));
        }
        assert!(pages.end_before(2050, 3800, 3900));
    }

    #[test]
    fn the_largest_and_the_smallest_sizes_are_allowed() {
        let mut pages = Pages::new(usize::MAX);
        // With its trailer, less than the maximum on 32-bit machines as well.
        let largest = u32::MAX as usize - 5;
        assert!(!pages.end_before(4095, 1 << 31, largest));
        assert!(!pages.end_after(1, largest));
        let mut one = Pages::new(1);
        for pages in [&mut pages, &mut one] {
            pages.place(0, u32::MAX as usize, 9);
            assert!(!pages.end_before(4095, 4, 8));
        }
        assert!(one.end_after(0, 4));
    }
}
