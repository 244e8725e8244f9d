//! Pages of a file, and the padding that keeps data blocks from crossing them.
//!
//! A disk and the page cache read a file in pages of 4 KiB. In an *aligned* table no data block touches more pages than its
//! length needs. Where a block would, the writer puts zeros before it, up to the next page:
//!
//! ```text
//! 0                     4096                                   8192
//! | block 0 | block 1 |0| block 2, of more than a page     | 3 |0| block 4
//! ```
//!
//! No reader notices: it follows the handles in the index.

/// Size of a page: of the disk's sectors and of the page cache on nearly all machines.
pub(crate) const PAGE_LEN: u64 = 4096;

/// Bytes from `offset` to the next page boundary; 0 on a boundary.
pub fn to_boundary(offset: u64) -> u64 {
    offset.wrapping_neg() % PAGE_LEN
}

/// Number of pages that `len` bytes at `offset` touch.
pub(crate) fn pages_touched(offset: u64, len: u64) -> u64 {
    (offset % PAGE_LEN).saturating_add(len).div_ceil(PAGE_LEN)
}

/// Bytes of padding at `offset`, where a block ends and the next one takes `next_len` bytes, trailer included.
pub fn padding(offset: u64, next_len: u64) -> u64 {
    if pages_touched(offset, next_len) > pages_touched(0, next_len) {
        to_boundary(offset)
    } else {
        0
    }
}

/// Whether `bytes` at `offset` may be padding: zeros up to the next page. A lost block may also be zeros: they are no
/// loss only if the next block needs [`padding`].
pub fn is_padding(offset: u64, bytes: &[u8]) -> bool {
    bytes.len() as u64 == to_boundary(offset) && bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_their_boundaries() {
        for (offset, len, pages, rest) in [
            (0, 0, 0, 0),
            (0, 1, 1, 0),
            (0, 4096, 1, 0),
            (0, 4097, 2, 0),
            (1, 4095, 1, 4095),
            (1, 4096, 2, 4095),
            (4095, 1, 1, 1),
            (4095, 2, 2, 1),
            (8192, 8193, 3, 0),
            (u64::MAX, 1, 1, 1),
        ] {
            assert_eq!(pages_touched(offset, len), pages, "{offset} {len}");
            assert_eq!(to_boundary(offset), rest, "{offset}");
        }
    }

    #[test]
    fn padding_saves_the_next_block_a_page() {
        for (offset, next_len, expected) in [
            (0, 4096, 0),
            (4096, 1, 0),
            (3000, 1096, 0),
            (3000, 1097, 1096),
            (3000, 4096, 1096),
            (3000, 4097, 0),
            (3000, 5192, 0),
            (3000, 5193, 1096),
        ] {
            assert_eq!(padding(offset, next_len), expected, "{offset} {next_len}");
        }
    }

    #[test]
    fn padding_is_all_zeros_up_to_the_next_page() {
        assert!(is_padding(4000, &[0; 96]));
        assert!(!is_padding(4000, &[0; 95]));
        assert!(!is_padding(4000, &[0; 97]));
        assert!(!is_padding(4096, &[0; 4096]), "a lost page");
        let mut bytes = [0; 96];
        bytes[95] = 1;
        assert!(!is_padding(4000, &bytes));
    }
}
