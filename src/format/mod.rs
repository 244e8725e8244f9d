//! The file format, and nothing else: bytes in, bytes out. No I/O, no options, no cache.
//!
//! ```text
//! data block 0        sorted entries                                        block.rs in frame.rs
//! ...
//! data block n-1
//! filter block        a filter for each 2 KiB of file, or one for all       filter_block.rs in frame.rs
//! properties block    what the table says of itself, if it does             properties.rs in frame.rs
//! metaindex block     names -> handles of the filter and properties blocks  block.rs in frame.rs
//! index block         a key >= each data block's last -> its handle         block.rs in frame.rs
//! footer, 48 bytes    handles of metaindex and index, padding, magic        footer.rs
//! ```
//!
//! Every block is stored in a frame: the payload, perhaps compressed; a byte that names the codec;
//! four bytes of checksum. A *handle* is the offset and size of a payload as stored, so a frame is
//! five bytes longer than its handle says. All integers are little-endian, fixed or varint.
//!
//! # A worked example
//!
//! The table that C++ LevelDB writes for the two entries `apple -> red`, `apricot -> orange`,
//! without compression and filter:
//!
//! ```text
//! offset  bytes                                           meaning
//!      0  00 05 03  61 70 70 6c 65  72 65 64              share 0, 5 more key bytes, 3 value bytes: apple, red
//!     11  02 05 06  72 69 63 6f 74  6f 72 61 6e 67 65     share "ap", 5 more, 6: ricot, orange
//!     25  00 00 00 00  01 00 00 00                        restarts: one, at 0 (a key stored whole); their number
//!     33  00  e0 7f d9 92                                 type 0 (stored raw), masked CRC-32C
//!     38  00 00 00 00  01 00 00 00  00  c0 f2 a1 b0       metaindex: no entry; its trailer
//!     51  00 01 02  62  00 21                             index: key "b" (successor of apricot), handle offset 0, size 33
//!     57  00 00 00 00  01 00 00 00  00  cc 69 30 31       restarts of the index; its trailer
//!     70  26 08  33 0e                                    footer: metaindex at 38, 8 bytes; index at 51, 14 bytes
//!     74  00 (36 times)                                   padding to 40 bytes
//!    110  57 fb 80 8b 24 75 47 db                         magic
//! ```
//!
//! The test of this module checks the example against the writer.

pub(crate) mod block;
pub(crate) mod block_check;
pub(crate) mod block_cursor;
pub(crate) mod block_search;
pub(crate) mod buffer;
pub(crate) mod codec;
pub(crate) mod filter_block;
pub(crate) mod footer;
pub(crate) mod frame;
pub(crate) mod properties;
pub(crate) mod touch;

use crate::error::{Corruption, Error, ErrorKind, Section};

/// What is wrong with some bytes, before it is known where in which file they stand.
///
/// One word wide: it is the error of the innermost loops.
#[derive(Debug)]
pub(crate) struct Defect(Box<DefectRepr>);

#[derive(Debug)]
enum DefectRepr {
    Damaged { expected: String, found: String },
    Unsupported { what: String },
    Misordered { what: String },
}

impl Defect {
    #[cold]
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Defect {
        Defect(Box::new(DefectRepr::Damaged {
            expected: expected.into(),
            found: found.into(),
        }))
    }

    #[cold]
    pub(crate) fn unsupported(what: impl Into<String>) -> Defect {
        Defect(Box::new(DefectRepr::Unsupported { what: what.into() }))
    }

    /// Keys that are not in the order that the reader has: damage, or another order.
    #[cold]
    pub(crate) fn misordered(what: impl Into<String>) -> Defect {
        Defect(Box::new(DefectRepr::Misordered { what: what.into() }))
    }

    /// What of the format this build cannot read, if that is what it is.
    pub(crate) fn into_unsupported(self) -> Result<String, Defect> {
        match *self.0 {
            DefectRepr::Unsupported { what } => Ok(what),
            damaged => Err(Defect(Box::new(damaged))),
        }
    }

    /// The error of a table whose `section` at file offset `offset` has this defect.
    #[cold]
    pub(crate) fn locate(self, section: Section, offset: u64) -> Error {
        match *self.0 {
            DefectRepr::Damaged { expected, found } => Error::corrupt(Corruption {
                section,
                offset,
                expected,
                found,
            }),
            DefectRepr::Unsupported { what } => Error::new(
                ErrorKind::Unsupported,
                format!("{section} at offset {offset} {what}"),
            ),
            DefectRepr::Misordered { what } => Error::new(
                ErrorKind::Comparator,
                format!("{section} at offset {offset}: {what}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Compression, OpenOptions, WriteOptions};

    /// The bytes of the worked example above are those of C++ LevelDB 1.23, and ours.
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
            // The bytes end where the words begin.
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
