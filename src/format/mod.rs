//! The file format, for programs that take a table apart: bytes in, bytes out. No I/O, no options, no cache.
//!
//! ```text
//! data block 0        sorted entries                                               block.rs
//! ...
//! data block n-1
//! index block         for each data block: a key at or after its last -> handle    block.rs
//! prefix filter       a filter of the keys' prefixes; optional                      prefix_block.rs
//! filter block        a filter for each 2 KiB of file, or one for the whole file   filter_block.rs
//! properties block    what the table says of itself; optional                      properties.rs
//! pieces block        how index and filters are divided; optional                  pieces.rs, pieces_filter.rs
//! metaindex block     names -> handles of filters, properties and pieces           block.rs
//! footer, 48 bytes    handles of metaindex and index, padding, magic number        footer.rs
//! ```
//!
//! `docs/format.md` specifies it to the byte.
//!
//! - Each block is stored in a *frame* (`frame.rs`): the payload, which is the block or its compressed form; a byte that
//!   names the codec (`codec.rs`); four bytes of checksum (`checksum.rs`).
//! - A *handle* is the offset and the size of a payload as stored. A frame is five bytes longer than its handle says.
//! - Data blocks, metaindex and index have the same layout (`block.rs`): entries of key and value, then *restarts*, the
//!   offsets of some entries. The filter block has its own.
//! - An *index key* lies at or after the last key of its data block, and before the first key of the next. LevelDB writes a
//!   short one: between `the quick brown fox` and `the who` it is `the r`. Past the last block it is a short successor of
//!   the last key: `u` for `the who`.
//! - All integers are little-endian, of fixed length or varints (`coding.rs`).
//!
//! So a reader begins with the footer, and reads index, metaindex and filter block. To look up a key, it searches the index
//! for the first key at or after it. Only the data block of that index key can hold the key.
//!
//! LevelDB puts the index last, and so does this crate in a table without properties. A reader must accept the parts in any order,
//! since handles say where they are. With the metaindex last, the end of the file, which a reader reads first, says where
//! everything is. Before it come `about.pieces`, and the end of the filter, which a lookup checks first. A lookup needs one piece
//! of the index, which comes before those.
//!
//! # A worked example
//!
//! The table that C++ LevelDB writes for the two entries `apple -> red` and `apricot -> orange`, without compression and
//! without a filter. (`docs/format.md` has the same table with properties, a filter and pieces.)
//!
//! ```text
//! offset  bytes                                           meaning
//!      0  00 05 03  61 70 70 6c 65  72 65 64              shares 0 bytes, 5 more of the key, 3 of the value: apple, red
//!     11  02 05 06  72 69 63 6f 74  6f 72 61 6e 67 65     shares "ap", 5 more, 6: ricot, orange
//!     25  00 00 00 00  01 00 00 00                        restarts: the one at 0, and their number, 1
//!     33  00  e0 7f d9 92                                 type 0 (not compressed), masked CRC-32C
//!     38  00 00 00 00  01 00 00 00  00  c0 f2 a1 b0       metaindex: no entry, a restart, their number; its trailer
//!     51  00 01 02  62  00 21                             index: key "b" (successor of apricot), handle offset 0, size 33
//!     57  00 00 00 00  01 00 00 00  00  cc 69 30 31       restarts of the index; its trailer
//!     70  26 08  33 0e                                    footer: metaindex at 38, 8 bytes; index at 51, 14 bytes
//!     74  00 (36 times)                                   padding to 40 bytes
//!    110  57 fb 80 8b 24 75 47 db                         magic number
//! ```
//!
//! This module's test compares the example with what the writer writes.

pub(crate) mod block;
pub(crate) mod block_check;
pub(crate) mod block_cursor;
pub(crate) mod block_search;
pub(crate) mod buffer;
pub(crate) mod checksum;
pub(crate) mod codec;
mod face;
pub(crate) mod filter_block;
pub(crate) mod footer;
pub(crate) mod frame;
pub(crate) mod internal_key;
#[doc(hidden)] // for `sister_crates`
pub mod page;
pub(crate) mod pieces;
pub(crate) mod pieces_filter;
mod pieces_input;
pub(crate) mod prefetch;
pub(crate) mod prefix_block;
pub(crate) mod properties;

use std::fmt;

pub use face::{Entries, Named};
pub use filter_block::FilterBlockReader as FilterBlock;
pub use footer::{BlockHandle, Footer};
pub use frame::{codec_name, open as open_frame, verify as verify_frame};
pub use pieces::Pieces;
pub use properties::{KeyKind, Properties};

use crate::error::{Corruption, Error, ErrorKind, Section};

/// A defect in some bytes. [`locate`](Defect::locate) adds their place in the file.
///
/// One word wide, since it is the error of the innermost loops.
#[derive(Debug)]
pub struct Defect(Box<(ErrorKind, String, String)>);

impl Defect {
    /// Damage: the bytes should be `expected`, and are `found`.
    #[cold]
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Defect {
        let damage = (ErrorKind::Corruption, expected.into(), found.into());
        Defect(Box::new(damage))
    }

    /// A feature that this build cannot read. `what` continues a sentence: "data block at offset 0 .."
    #[cold]
    pub(crate) fn unsupported(what: impl fmt::Display) -> Defect {
        let (kind, what) = (ErrorKind::Unsupported, format!(" {what}"));
        Defect(Box::new((kind, what, String::new())))
    }

    /// Whether it is of keys that [do not ascend](crate::comparator::Order::misordered).
    pub(crate) fn is_misordered(&self) -> bool {
        self.0.0 == ErrorKind::Comparator
    }

    /// The error of a table whose `section` at file offset `offset` has this defect; [`Error::corruption`] returns the place.
    #[cold]
    pub fn locate(self, section: Section, offset: u64) -> Error {
        let (kind, what, found) = *self.0;
        if kind == ErrorKind::Corruption {
            return Error::corrupt(Corruption::new(section, offset, what, found));
        }
        Error::new(kind, format!("{section} at offset {offset}{what}"))
    }
}

/// Turns a failed check into a defect: the bytes should be `expected`, and are `found`.
pub(crate) fn require(
    is_right: bool,
    expected: impl FnOnce() -> String,
    found: impl FnOnce() -> String,
) -> Result<(), Defect> {
    if is_right {
        Ok(())
    } else {
        Err(Defect::new(expected(), found()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Compression, OpenOptions, WriteOptions};

    /// C++ LevelDB 1.23 writes the bytes of the worked example above, and so does this crate.
    #[test]
    fn the_worked_example_is_what_the_writer_writes() {
        let this_file = include_str!("mod.rs");
        let example = this_file
            .split("```text")
            .nth(2)
            .and_then(|s| s.split("```").next())
            .unwrap();
        let mut expected: Vec<u8> = Vec::new();
        for line in example.lines().filter_map(|line| line.strip_prefix("//!")) {
            let Some((offset, rest)) = line.trim().split_once("  ") else {
                continue;
            };
            let Ok(offset) = offset.parse::<usize>() else {
                continue;
            };
            assert_eq!(offset, expected.len(), "{line}");
            // The bytes end at the explanation.
            let bytes = rest.split_whitespace().map_while(|word| match word.len() {
                2 => u8::from_str_radix(word, 16).ok(),
                _ => None,
            });
            expected.extend(bytes);
            if rest.contains("(36 times)") {
                expected.resize(expected.len() + 35, 0);
            }
        }
        let mut file = Vec::new();
        let options = WriteOptions::leveldb()
            .compression(Compression::None)
            .no_filter();
        let mut builder = options.build(&mut file);
        builder.add(b"apple", b"red").unwrap();
        builder.add(b"apricot", b"orange").unwrap();
        builder.finish().unwrap();
        assert_eq!(file, expected);
        let table = OpenOptions::new().open_source(file).unwrap();
        assert_eq!(table.get(b"apricot").unwrap().unwrap(), "orange");
    }
}
