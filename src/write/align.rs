//! Where blocks end and begin in an aligned table: see [`WriteOptions::block_align`].

#[cfg(doc)]
use crate::WriteOptions;
use crate::format::frame::TRAILER_LEN;
use crate::format::page::{PAGE_LEN, pages_touched, to_boundary};

/// Ends blocks so that they fill pages, and places them so that they cross none.
///
/// While a block grows, nobody knows where it will begin: in the rest of the page that the block before left, or after
/// padding. It is ended by where it seems to begin, and [placed](Pages::padding) when its length is known. So a mistake of
/// the first step costs padding, and never a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    block_size: u64,
}

impl Pages {
    pub(super) fn new(block_size: usize) -> Pages {
        Pages {
            block_size: block_size as u64,
        }
    }

    /// Whether a block of `len` bytes must end before the entry with which it would have `longer`. It comes after `offset`.
    pub(super) fn end_before(self, offset: u64, len: usize, longer: usize) -> bool {
        framed(longer) > self.room(offset, framed(len))
    }

    /// Whether a block of `len` bytes ends here: if it is as large as it should be, and what it would leave of its last page
    /// is enough for another.
    pub(super) fn end_after(self, offset: u64, len: usize) -> bool {
        let left = self.room(offset, framed(len)).checked_sub(framed(len));
        len as u64 >= self.block_size && left.is_none_or(|left| left >= self.least())
    }

    /// The length up to which a block that has `len` bytes may grow, if it comes after `offset`.
    fn room(self, offset: u64, len: u64) -> u64 {
        let pages = self.block_size.div_ceil(PAGE_LEN).saturating_mul(PAGE_LEN);
        let begun = offset % PAGE_LEN;
        let is_worth_it = PAGE_LEN - begun >= self.least();
        if is_worth_it && len <= pages - begun {
            pages - begun
        } else {
            pages // after padding
        }
    }

    /// The least part of a page to begin a block in: a small block costs as much of the index as a large one.
    fn least(self) -> u64 {
        self.block_size.min(PAGE_LEN) / 2
    }

    /// Bytes of padding between `offset` and a block of `len` bytes, its trailer included.
    pub(super) fn padding(self, offset: u64, len: u64) -> u64 {
        if pages_touched(offset, len) > pages_touched(0, len) {
            to_boundary(offset)
        } else {
            0
        }
    }
}

/// The length of a block's frame.
fn framed(len: usize) -> u64 {
    len as u64 + TRAILER_LEN as u64
}

/// Keys of the block under way. The filter gets them when it is known where the block begins, since that decides which
/// filter they belong to.
#[derive(Debug, Default)]
pub(super) struct WaitingKeys {
    bytes: Vec<u8>,
    /// The length of each.
    lens: Vec<usize>,
}

impl WaitingKeys {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.lens.push(key.len());
    }

    /// Passes all keys to `take`, in order, and forgets them.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut rest = &self.bytes[..];
        for &len in &self.lens {
            let Some((key, after)) = rest.split_at_checked(len) else {
                debug_assert!(false, "the lengths are those of the keys");
                return;
            };
            take(key);
            rest = after;
        }
        self.bytes.clear();
        self.lens.clear();
    }
}
