//! The block handle and the 48-byte footer.

use std::ops::Range;

use super::Defect;
use super::frame::TRAILER_LEN;
use crate::coding::{MAX_VARINT64_LEN, get_varint64, put_fixed64, put_varint};
use crate::error::Section;

/// Where a block's payload lies in the file. The size excludes the trailer.
///
/// ```
/// use leveltable::Section;
/// use leveltable::format::{BlockHandle, Footer};
///
/// let index = BlockHandle { offset: 51, size: 14 };
/// assert_eq!(BlockHandle::decode(&index.encode()), Some((index, 2)));
/// assert_eq!(index.frame(), Some(51..70)); // 14 bytes and a trailer of 5
/// assert_eq!(index.check(Section::Index, 70).unwrap(), 51..70);
/// assert!(index.check(Section::Index, 69).is_err()); // the footer begins before its end
///
/// let footer = Footer { metaindex: BlockHandle { offset: 38, size: 8 }, index };
/// assert_eq!(Footer::decode(&footer.encode()).unwrap(), footer);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the payload as it is stored.
    pub size: u64,
}

impl BlockHandle {
    /// Maximum length of an encoded handle, in bytes.
    pub(crate) const MAX_LEN: usize = 2 * MAX_VARINT64_LEN;

    /// The handle as it is stored: two varints.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BlockHandle::MAX_LEN);
        put_varint(&mut bytes, self.offset);
        put_varint(&mut bytes, self.size);
        bytes
    }

    /// The handle at the front of `src`, and how many bytes it takes.
    #[inline(always)] // an index has thousands
    pub fn decode(src: &[u8]) -> Option<(BlockHandle, usize)> {
        let (offset, a) = get_varint64(src)?;
        let (size, b) = get_varint64(src.get(a..)?)?;
        Some((BlockHandle { offset, size }, a + b))
    }

    /// The defect of `value`, which does not begin with the `expected` handle.
    #[cold]
    pub(crate) fn missing(expected: String, value: &[u8]) -> Defect {
        let value = value.get(..BlockHandle::MAX_LEN).unwrap_or(value);
        Defect::new(expected, format!("{value:02x?}"))
    }

    /// Where the block's frame lies in the file: payload and trailer. `None` if its end overflows.
    pub fn frame(&self) -> Option<Range<u64>> {
        Some(self.offset..self.end()?)
    }

    /// Like [`frame`](BlockHandle::frame), for a handle that has been checked.
    pub(crate) fn frame_in_file(&self) -> Range<u64> {
        // Cannot overflow: it ends before the footer.
        self.offset..self.offset + self.size + TRAILER_LEN as u64
    }

    /// Where the block's frame lies in a file whose footer is at offset `footer`; `None` unless that is before it, and the block is
    /// smaller than 4 GiB.
    pub(crate) fn frame_before(&self, footer: u64) -> Option<Range<u64>> {
        u32::try_from(self.size).ok()?;
        self.frame().filter(|frame| frame.end <= footer)
    }

    /// Checks that the handle, of a block of `section`, leads to a frame of less than 4 GiB that ends before the footer, which is
    /// at offset `footer`. Returns where the frame lies.
    ///
    /// # Errors
    ///
    /// The handle leads elsewhere.
    pub fn check(&self, section: Section, footer: u64) -> Result<Range<u64>, Defect> {
        self.frame_before(footer).ok_or_else(|| {
            let BlockHandle { offset, size } = self;
            let expected = format!(
                "a handle to the {section}, of less than 4 GiB and at or before the footer at {footer}"
            );
            let found = format!("one to {size} bytes and a trailer at {offset}");
            Defect::new(expected, found)
        })
    }

    /// Offset of the first byte after the block's frame, which includes the trailer. `None` if it overflows.
    #[inline]
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset
            .checked_add(self.size)?
            .checked_add(TRAILER_LEN as u64)
    }
}

/// The footer: where the metaindex and the index are; see [`BlockHandle`] and [`Entries`](super::Entries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The handle of the metaindex.
    pub metaindex: BlockHandle,
    /// The handle of the index.
    pub index: BlockHandle,
}

impl Footer {
    /// Length of a footer in bytes.
    pub const LEN: usize = 2 * BlockHandle::MAX_LEN + 8;
    /// The last eight bytes of every table, little-endian.
    pub const MAGIC: u64 = 0xdb47_7524_8b80_fb57;

    /// An upper limit for the end of the data blocks: the offset of the metaindex or the index, whichever comes first.
    pub(crate) fn data_end(&self) -> u64 {
        self.metaindex.offset.min(self.index.offset)
    }

    /// Length of the file that ends with this footer: nothing lies between it and the later one of the two blocks.
    pub(crate) fn file_len(&self) -> Option<u64> {
        let end = self.index.end()?.max(self.metaindex.end()?);
        end.checked_add(Footer::LEN as u64)
    }

    /// The footer as it is stored, with zeros for padding; see [`BlockHandle`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.metaindex.encode(), self.index.encode()].concat();
        bytes.resize(2 * BlockHandle::MAX_LEN, 0);
        put_fixed64(&mut bytes, Footer::MAGIC);
        bytes
    }

    /// Decodes the 48 bytes `src`; see [`Entries`](super::Entries). The padding may hold anything, as in LevelDB.
    ///
    /// # Errors
    ///
    /// The magic number at the end is missing, or a handle is malformed.
    pub fn decode(src: &[u8]) -> Result<Footer, Defect> {
        let handles = src.strip_suffix(&Footer::MAGIC.to_le_bytes());
        let Some(handles) = handles.filter(|_| src.len() == Footer::LEN) else {
            let expected = format!("{} bytes that end in the magic number", Footer::LEN);
            let found = format!("{} bytes that do not", src.len());
            return Err(Defect::new(expected, found));
        };
        let decode = || {
            let (metaindex, len) = BlockHandle::decode(handles)?;
            let (index, _) = BlockHandle::decode(handles.get(len..)?)?;
            Some(Footer { metaindex, index })
        };
        let expected = "the handles of metaindex and index";
        decode().ok_or_else(|| Defect::new(expected, format!("{handles:02x?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The handles in the worked example of `format/mod.rs`: metaindex at 38, index at 51.
    const EXAMPLE: [u8; 4] = [0x26, 0x08, 0x33, 0x0e];

    fn example() -> Vec<u8> {
        let mut bytes = EXAMPLE.to_vec();
        bytes.resize(40, 0);
        bytes.extend([0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb]);
        bytes
    }

    #[test]
    fn encodes_and_decodes_the_example() {
        let footer = Footer::decode(&example()).unwrap();
        assert_eq!(
            footer.metaindex,
            BlockHandle {
                offset: 38,
                size: 8
            }
        );
        assert_eq!(
            footer.index,
            BlockHandle {
                offset: 51,
                size: 14
            }
        );
        assert_eq!(footer.encode(), example());
    }

    #[test]
    fn the_largest_handles_fit() {
        let most = BlockHandle {
            offset: u64::MAX,
            size: u64::MAX,
        };
        let footer = Footer {
            metaindex: most,
            index: most,
        };
        let bytes = footer.encode();
        assert_eq!(bytes.len(), Footer::LEN);
        assert_eq!(Footer::decode(&bytes).unwrap(), footer);
        assert_eq!(most.end(), None, "their end overflows, and must not wrap");
    }

    #[test]
    fn padding_may_hold_anything_and_nothing_else_may() {
        let mut bytes = example();
        bytes[4..40].fill(0xee);
        assert!(Footer::decode(&bytes).is_ok());
        for at in 40..48 {
            let mut bytes = example();
            bytes[at] ^= 1;
            assert!(Footer::decode(&bytes).is_err());
        }
        assert!(Footer::decode(&example()[1..]).is_err());
        let mut endless = example();
        endless[..40].fill(0x80);
        assert!(Footer::decode(&endless).is_err());
        // Handles that extend into the magic number.
        let mut long = example();
        long[..40].fill(0xff);
        for end in [9, 19, 29] {
            long[end] = 1;
        }
        assert!(Footer::decode(&long).is_err());
    }
}
