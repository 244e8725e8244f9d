//! Describes a file that is not a table, and says what to do about it.
//!
//! "Bad magic number" leaves people guessing. Most such files are well known: a Git LFS pointer, a web page that a server sent
//! instead of a download, a RocksDB table, a copy that was cut short.

use crate::coding::{fixed32_at, get_varint32};
use crate::format::checksum::{crc32c, mask};
use crate::format::footer::Footer;
use crate::format::frame::TRAILER_LEN;
use crate::format::verify_frame;

/// Number of bytes at the front of a file that are examined: a block of a LevelDB log.
pub const PEEK_LEN: usize = 32 * 1024;

/// Describes a file without a LevelDB footer: it is too short for one, or does not end with LevelDB's magic number.
///
/// `head` and `tail` are the first and the last [`PEEK_LEN`] bytes of its `size`. They overlap if the file is small.
/// Returns what fits after "this is": a noun, a colon, and advice.
pub fn describe(head: &[u8], tail: &[u8], size: u64) -> String {
    if size == 0 {
        return "an empty file: its writer has not begun or was interrupted; restore it from a copy".into();
    }
    if head.iter().chain(tail).all(|&byte| byte == 0) {
        return "a file that begins and ends with zeros: space was reserved and not written, or a crash lost what was \
                written; restore it from a copy"
            .into();
    }
    // Checks the end first: the first bytes of a table, which may be a key, can resemble anything.
    foreign_table(tail)
        .or_else(|| log_or_manifest(head))
        .or_else(|| compressed(head))
        .or_else(|| text(head))
        .or_else(|| describe_copy(tail, size))
        .unwrap_or_else(|| unknown(head, tail, size))
}

/// LevelDB's relatives, whose tables have their own magic number in the same place: the number, who writes it, what.
#[rustfmt::skip]
const FOREIGN: [(u64, &str, &str); 6] = [
    (0x88e2_41b7_85f4_cff7, "RocksDB or Pebble", "block-based table"),
    (0x8242_2296_63bf_9564, "RocksDB", "plain table"),
    (0x4f34_18eb_7a8f_13b8, "RocksDB", "plain table"),
    (0x9267_89d0_c5f1_7873, "RocksDB", "cuckoo table"),
    // In UTF-8, these bytes are two cockroaches, and a cockroach and a crab.
    (0xb3aa_9ff0_b3aa_9ff0, "Pebble", "table"),
    (0x80a6_9ff0_b3aa_9ff0, "Pebble", "blob file"),
];

/// Describes a table of a relative of LevelDB, by its magic number.
pub fn foreign_table(tail: &[u8]) -> Option<String> {
    let magic = u64::from_le_bytes(*tail.last_chunk()?);
    let (_, program, what) = FOREIGN.iter().find(|(number, ..)| *number == magic)?;
    Some(format!("a {program} {what}: open it with {program}"))
}

/// Describes the other files in a LevelDB database that hold records: the log and the MANIFEST.
fn log_or_manifest(head: &[u8]) -> Option<String> {
    // masked CRC of kind and payload, length of the payload, kind, payload
    let crc = fixed32_at(head, 0)?;
    let (length, rest) = head.get(4..)?.split_first_chunk()?;
    let record = rest.get(..=usize::from(u16::from_le_bytes(*length)))?;
    let (kind, payload) = record.split_first()?;
    if !(1..=4).contains(kind) || crc != mask(crc32c(record)) {
        return None;
    }
    Some(match comparator_of_manifest(payload) {
        Some(comparator) => format!(
            "a LevelDB MANIFEST (comparator {comparator:?}), which lists a database's tables: open the .ldb or .sst \
             files beside it"
        ),
        None => "a LevelDB log, which holds a database's latest writes: the .ldb or .sst files beside it hold what was \
                 written before"
            .into(),
    })
}

/// Returns the comparator that a MANIFEST's first record begins with: tag 1, then a string.
///
/// A log's first record begins with a sequence number, eight bytes of which the upper ones are zero and not printable.
fn comparator_of_manifest(record: &[u8]) -> Option<&str> {
    let rest = record.strip_prefix(&[1])?;
    let (len, len_len) = get_varint32(rest)?;
    let name = rest.get(len_len..)?.get(..usize::try_from(len).ok()?)?;
    let printable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    str::from_utf8(name).ok().filter(|_| printable)
}

/// Compressed files, by their first bytes.
const COMPRESSED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"PK\x03\x04", "zip"),
];

fn compressed(head: &[u8]) -> Option<String> {
    let is_start = |(start, _): &&(&[u8], &str)| head.starts_with(start);
    let (_, name) = COMPRESSED.iter().find(is_start)?;
    let what = format!("a file compressed with {name}: decompress it, then open the result");
    Some(what)
}

/// Describes text by its first words, which often give the reason.
fn text(head: &[u8]) -> Option<String> {
    let text = head.utf8_chunks().next()?.valid();
    // The head may end within a character.
    let is_text = text.len() + 3 >= head.len();
    if !is_text || text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with("version https://git-lfs.github.com/spec/") {
        return Some("a Git LFS pointer in place of the file: run `git lfs pull`".into());
    }
    if text.starts_with("MANIFEST-") {
        let what = "CURRENT of a LevelDB database, which names its MANIFEST: open the .ldb or .sst files beside it";
        return Some(what.into());
    }
    let download = "perhaps what a server sent in place of the table; download it again";
    let (what, advice) = match text.chars().next()? {
        '<' => ("an HTML page or XML document", download),
        '{' | '[' => ("JSON text", download),
        _ => ("plain text", "it may say why the table is not there"),
    };
    let start: String = text.lines().next()?.chars().take(60).collect();
    let more = if start.len() < text.len() { " .." } else { "" };
    Some(format!("{what}, which begins {start:?}{more}: {advice}"))
}

/// Describes a table whose length differs from what its footer says, the last footer in `tail`.
pub(crate) fn describe_copy(tail: &[u8], size: u64) -> Option<String> {
    let magic = Footer::MAGIC.to_le_bytes();
    let end = tail.windows(8).rposition(|bytes| bytes == magic)? + 8;
    let (table, after) = (tail.get(..end)?, (tail.len() - end) as u64);
    let footer = Footer::decode(table.last_chunk::<{ Footer::LEN }>()?).ok()?;
    let len = footer.file_len()?;
    let is_other_end = |pair: &[u8]| pair.ends_with(b"\n") && pair != b"\r\n";
    let how = match size.checked_sub(len) {
        Some(0) => return None,
        Some(more) if more == after => "the rest was appended; copy the table alone to a new file",
        _ if after > 0 => return None,
        None => "bytes are missing; copy it again",
        Some(_) if tail.contains(&b'\n') && !tail.windows(2).any(is_other_end) => {
            "line ends were changed, as in text mode; copy it again in binary mode"
        }
        Some(_) => "bytes were inserted; copy it again",
    };
    Some(format!(
        "a LevelDB table that should have {len} bytes, according to its footer, in a file of {size}: {how}"
    ))
}

fn unknown(head: &[u8], tail: &[u8], size: u64) -> String {
    let how = match tail.last_chunk::<8>() {
        Some(magic) if size >= Footer::LEN as u64 => {
            let expected = Footer::MAGIC.to_le_bytes();
            format!("its last 8 bytes are {magic:02x?} instead of {expected:02x?}")
        }
        _ => format!("it has only {size} bytes, and the footer alone takes 48"),
    };
    if begins_with_block(head) {
        return format!(
            "the beginning of a LevelDB table: {how}; it was cut short, is still being written, or is damaged at its end: copy it \
             again, or rescue what is left with `salvage`"
        );
    }
    format!(
        "no LevelDB table, or not all of one: {how}; it may be something else, cut short, or still being written: check \
         where it comes from"
    )
}

fn begins_with_block(head: &[u8]) -> bool {
    // Checks the codec byte first, since checksums take longer.
    let may_end = |len: &usize| head.get(*len) <= Some(&4);
    let frame = |len: usize| head.get(..len + TRAILER_LEN);
    let mut frames = (1..head.len()).filter(may_end).filter_map(frame);
    frames.any(|frame| verify_frame(frame).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table by C++ LevelDB 1.23: apple -> 1, grape -> 22, uncompressed, no filter. One data block
    /// of 27 bytes at 0, metaindex at 32, index at 45, footer at 64.
    const TABLE: [u8; 112] = *b"\
        \x00\x05\x01apple1\x00\x05\x02grape22\0\0\0\0\x01\0\0\0\x00\x3a\x88\xbc\x7d\
        \0\0\0\0\x01\0\0\0\x00\xc0\xf2\xa1\xb0\
        \x00\x01\x02h\x00\x1b\0\0\0\0\x01\0\0\0\x00\x7e\x15\xd1\x5e\
        \x20\x08\x2d\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \x57\xfb\x80\x8b\x24\x75\x47\xdb";

    /// The log of a database by C++ LevelDB 1.23 after one `Put("key", "value")`.
    const LOG: &[u8] = b"\xa8\xef\xd2\xd4\x17\x00\x01\
        \x01\0\0\0\0\0\0\0\x01\0\0\0\x01\x03key\x05value";

    /// The MANIFEST of a new database by C++ LevelDB 1.23.
    const MANIFEST: &[u8] = b"\x56\xf9\xb8\xf8\x1c\x00\x01\
        \x01\x1aleveldb.BytewiseComparator\
        \xa4\x9c\x8b\xbe\x08\x00\x01\x02\x03\x09\x00\x03\x04\x04\x00";

    /// Returns the message for a file that is not a table.
    fn word(file: &[u8]) -> String {
        let head = &file[..file.len().min(PEEK_LEN)];
        let tail = &file[file.len().saturating_sub(PEEK_LEN)..];
        describe(head, tail, file.len() as u64)
    }

    /// Bytes that do not resemble anything.
    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    #[track_caller]
    fn assert_says(file: &[u8], words: &[&str]) {
        let said = word(file);
        for word in words {
            assert!(said.contains(word), "{word:?} not in: {said}");
        }
    }

    #[test]
    fn empty_files_and_zeros() {
        assert_says(b"", &["empty", "restore"]);
        for len in [1, 48, 4096, 2 * PEEK_LEN] {
            assert_says(&vec![0; len], &["begins and ends with zeros", "restore"]);
        }
    }

    #[test]
    fn tables_of_other_stores_are_named() {
        for (end, name) in [
            (
                &b"\x05\0\0\0\xf7\xcf\xf4\x85\xb7\x41\xe2\x88"[..],
                "a RocksDB or Pebble block-based table: open it with RocksDB or Pebble",
            ),
            (
                b"\x01\0\0\0\x64\x95\xbf\x63\x96\x22\x42\x82",
                "RocksDB plain table",
            ),
            (
                b"\0\0\0\0\xb8\x13\x8f\x7a\xeb\x18\x34\x4f",
                "RocksDB plain table",
            ),
            (
                b"\x01\0\0\0\x73\x78\xf1\xc5\xd0\x89\x67\x92",
                "RocksDB cuckoo table",
            ),
            (
                b"\x04\0\0\0\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3",
                "a Pebble table: open it with Pebble",
            ),
            (
                b"\0\0\0\0\xf0\x9f\xaa\xb3\xf0\x9f\xa6\x80",
                "a Pebble blob file: open it with Pebble",
            ),
        ] {
            // The blocks look like LevelDB's, so only the end differs.
            assert_says(&[&TABLE[..64], end].concat(), &[name]);
            assert_says(&end[4..], &[name]);
        }
    }

    #[test]
    fn records_of_a_database_are_told_from_its_tables() {
        assert_says(LOG, &["LevelDB log", ".ldb"]);
        let comparator = "MANIFEST (comparator \"leveldb.BytewiseComparator\")";
        assert_says(MANIFEST, &[comparator, ".ldb"]);
        // Bytes after the record change nothing; a wrong checksum or a record cut short does.
        assert_says(&[LOG, &noise(100)].concat(), &["LevelDB log"]);
        assert!(!word(&LOG[..29]).contains("log"));
        let mut flipped = LOG.to_vec();
        flipped[20] ^= 1;
        assert!(!word(&flipped).contains("log"));
    }

    #[test]
    fn compressed_files_and_pointers_to_them() {
        for (start, words) in [
            (&b"\x1f\x8b\x08\0\0\0\0\0\x02\x03"[..], "gzip: decompress"),
            (b"\x28\xb5\x2f\xfd\x24\x05", "Zstandard: decompress"),
            (b"\xfd\x37\x7a\x58\x5a\x00\x00", "xz: decompress"),
            (b"BZh91AY&SY", "bzip2: decompress"),
            (b"\x04\x22\x4d\x18\x64", "LZ4: decompress"),
            (b"PK\x03\x04\x14\0", "zip: decompress"),
        ] {
            assert_says(start, &[words]);
            assert_says(&[start, &noise(5000)].concat(), &[words]);
        }
        assert_says(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2115233\n",
            &["a Git LFS pointer in place of the file: run `git lfs pull`"],
        );
    }

    /// The rest of a table is not examined.
    #[test]
    fn tables_cut_short_are_not_all_of_a_table() {
        for len in 2..TABLE.len() {
            let what = if len < 32 {
                "not all of one"
            } else {
                "the beginning of a LevelDB table"
            };
            assert_says(&TABLE[..len], &[what, "cut short", "still being written"]);
        }
    }

    #[test]
    fn what_was_appended_to_a_table_is_counted() {
        for (extra, size) in [(1, 113), (5000, 5112)] {
            let longer = [&TABLE[..], &noise(extra)].concat();
            let what = format!(
                "a LevelDB table that should have 112 bytes, according to its footer, in a file of {size}: the rest was appended"
            );
            assert_says(&longer, &[&what]);
        }
        // A footer whose handles do not match its place is not the end of a copied table.
        let moved = [b"x", &TABLE[..], b"\n"].concat();
        assert!(!word(&moved).contains("appended"));
    }

    #[test]
    fn text_is_quoted() {
        assert_says(
            b"404: Not Found",
            &["plain text, which begins \"404: Not Found\":"],
        );
        assert_says(
            b"<!DOCTYPE html>\n<html><title>Sign in</title></html>",
            &["an HTML page or XML document, which begins \"<!DOCTYPE html>\" .."],
        );
        assert_says(b"\xef\xbb\xbf\r\n<HTML>", &["HTML"]);
        assert_says(b"<?xml version='1.0'?><Error/>", &["XML", "server"]);
        assert_says(b"{\"message\": \"Bad credentials\"}", &["JSON", "Bad cred"]);
        assert_says(b"key,value\nzo\xc3\xab,1\n", &["plain text", "key,value"]);
        // Longer than what is examined, with a character across the edge.
        let long = format!("{}{}", "x".repeat(PEEK_LEN - 1), "\u{eb}".repeat(PEEK_LEN));
        assert_says(long.as_bytes(), &["plain text"]);
        // Quoted with escapes: a file must not write to a terminal.
        assert!(!word("a\u{202e}\u{9b}2J".as_bytes()).contains('\u{9b}'));
        assert_says(
            &[&b"abc\xff"[..], &noise(100)].concat(),
            &["no LevelDB table, or not all of one"],
        );
        assert_says(b"  \n", &["only 3 bytes"]);
    }

    /// A table with a few edits: it resembles real damage, and is more likely than random bytes to pass the first
    /// checks.
    fn edited() -> impl Strategy<Value = Vec<u8>> {
        let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..3);
        prop::collection::vec(edit, 0..6).prop_map(|edits| {
            let mut file = TABLE.to_vec();
            for (at, byte, what) in edits {
                let at = at.index(file.len().max(1));
                match what {
                    0 if at < file.len() => file[at] = byte,
                    1 => file.insert(at, byte),
                    _ => file.truncate(at.max(file.len().saturating_sub(usize::from(byte)))),
                }
            }
            file
        })
    }

    proptest! {
        #[test]
        fn nothing_panics(file in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(!word(&file).is_empty());
        }

        #[test]
        fn nothing_panics_on_damaged_tables(file in edited()) {
            prop_assert!(!word(&file).is_empty());
        }

        /// A source that lies about its size gets an answer as well.
        #[test]
        fn sizes_may_lie(file in edited(), size: u64) {
            prop_assert!(!describe(&file, &file, size).is_empty());
            prop_assert!(!describe(&[], &file, size).is_empty());
            prop_assert!(!describe(&file, &[], size).is_empty());
        }
    }
}
