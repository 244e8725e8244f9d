//! Describes a file that is not a readable table, and suggests what to do about it.
//!
//! "Bad magic number" leaves people guessing. Most such files are well known: a Git LFS pointer, a web page that a server
//! sent instead of a download, a RocksDB table, a copy that was cut short. Every description says first what the file is,
//! then what to do about it.
//!
//! Pure functions over the first and the last [`PEEK_LEN`] bytes. They run on the way to an error and take a few hundred
//! microseconds at most. A guess that arithmetic or a checksum can check is checked; a file that fits nothing is called
//! unknown.

use crate::coding::{fixed32_at, get_varint32};
use crate::format::checksum::{crc32c, crc32c_of_prefixes, mask};
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer, MAGIC};

/// How much of the file's front and back is examined.
///
/// A data block usually takes 4 KiB, and up to 30 KiB in tables from the wild. A LevelDB log fills blocks of 32 KiB. C++
/// LevelDB once reserved 64 KiB at a time for a table that it was writing. Each of these fits.
pub(crate) const PEEK_LEN: usize = 64 * 1024;

/// The last eight bytes of a table.
const MAGIC_BYTES: [u8; 8] = MAGIC.to_le_bytes();

/// Describes a file without a LevelDB footer: it is too short for one, or its last eight bytes are not LevelDB's magic
/// number.
///
/// `head` and `tail` are the first and the last [`PEEK_LEN`] bytes of its `size`. They overlap if the file is small.
/// Returns what fits after "this is": a noun, a colon, and advice.
pub(crate) fn describe(head: &[u8], tail: &[u8], size: u64) -> String {
    // From certain to likely: magic numbers where a table has its own, arithmetic, checksums, and only then the first
    // bytes.
    blank(head, tail, size)
        .or_else(|| foreign_table(tail))
        .or_else(|| damaged_footer(tail, size))
        .or_else(|| table_with_more(tail, size))
        .or_else(|| nearly_foreign_table(tail))
        .or_else(|| badger_table(tail, size))
        .or_else(|| cut_short(head, tail))
        .or_else(|| log_or_manifest(head))
        .or_else(|| known_start(head))
        .or_else(|| stray_footer(tail))
        .or_else(|| text(head))
        .unwrap_or_else(|| unknown(tail, size))
}

/// Explains why a decodable `footer` does not lead to an index block: a handle points outside the
/// file, or the index's checksum is wrong.
///
/// A writer ends a table with metaindex, index and footer, or index, metaindex and footer, each right after the one before.
/// Handles that agree with each other but not with the place of the footer mean that the file lost or gained bytes, and how
/// many. `None` if the sizes fit: the damage is then in the index block itself.
///
/// `head` is the first [`PEEK_LEN`] bytes of the file. Returns a clause that fits after the report of the damage.
pub(crate) fn describe_misfit(head: &[u8], footer: &Footer, size: u64) -> Option<String> {
    const CRLF: &str = "every line feed in the file follows a carriage return: a conversion of line ends has ruined it; \
                        transfer it again in binary mode (in Git, mark such files `binary` in .gitattributes)";
    let footer_at = size.checked_sub(FOOTER_LEN as u64)?;
    let (metaindex, index) = (footer.metaindex, footer.index);
    let ends_before = |a: BlockHandle, b: BlockHandle| a.end().is_some_and(|end| end <= b.offset);
    let overlap = !ends_before(metaindex, index) && !ends_before(index, metaindex);
    if footer.blocks_end() == Some(footer_at) && !overlap {
        return None;
    }
    let Some(blocks_end) = end_of_blocks(footer) else {
        // A conversion may have damaged the handles, too.
        return Some(if converted_to_crlf(head) {
            CRLF.into()
        } else {
            "the footer's block handles fit neither each other nor the file: the footer is damaged; restore the file from \
             a copy"
                .into()
        });
    };
    let last = if index.offset < metaindex.offset {
        "metaindex"
    } else {
        "index"
    };
    let misfit = format!(
        "the footer is whole, but the {last} should end at {blocks_end} and the footer begins at {footer_at}"
    );
    if let missing @ 1.. = blocks_end.saturating_sub(footer_at) {
        let place = if begins_with_block(head) {
            " (not at the very front: the first block is whole)"
        } else {
            ""
        };
        let missing = count(missing, "is missing", "are missing");
        return Some(format!(
            "{misfit}: {missing} before the footer{place}; restore the file from a copy"
        ));
    }
    let extra = footer_at - blocks_end;
    let moved = usize::try_from(extra).ok().and_then(|at| head.get(at..));
    Some(if moved.is_some_and(begins_with_block) {
        let extra_bytes = count(extra, "stands", "stand");
        let table_at = extra.saturating_add(1);
        format!("{extra_bytes} in front of the table: remove them (`tail -c +{table_at} FILE`)")
    } else if converted_to_crlf(head) {
        CRLF.into()
    } else {
        let extra = count(extra, "is", "are");
        format!("{misfit}: {extra} too many before the footer; restore the file from a copy")
    })
}

/// "1 byte is", "2 bytes are".
fn count(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 byte {one}"),
        _ => format!("{n} bytes {many}"),
    }
}

/// Returns where the footer should start, if its handles are consistent: index and metaindex lie side by side.
fn end_of_blocks(footer: &Footer) -> Option<u64> {
    let Footer { metaindex, index } = footer;
    let agree = metaindex.end() == Some(index.offset) || index.end() == Some(metaindex.offset);
    footer.blocks_end().filter(|_| agree)
}

/// The same by the handles that `bytes` begins with. Random bytes almost never agree so.
fn end_of_blocks_at(bytes: &[u8]) -> Option<u64> {
    let (metaindex, len) = BlockHandle::decode(bytes)?;
    let (index, _) = BlockHandle::decode(bytes.get(len..)?)?;
    end_of_blocks(&Footer { metaindex, index })
}

/// Whether `bytes` begins with a whole block: payload, type, checksum.
///
/// Nothing says how long that block is, but its checksum fits at one length only. The CRC is carried along, so that all
/// lengths take one pass.
fn begins_with_block(bytes: &[u8]) -> bool {
    /// RocksDB numbers its codecs up to here. LevelDB and Mojang's fork use 0, 1, 2 and 4.
    const LAST_TYPE: u8 = 7;
    let crcs = crc32c_of_prefixes(bytes);
    let mut ends = bytes.iter().zip(crcs).take(PEEK_LEN).enumerate();
    ends.any(|(i, (byte, crc))| *byte <= LAST_TYPE && fixed32_at(bytes, i + 1) == Some(mask(crc)))
}

/// Nothing at all, or nothing but zeros.
fn blank(head: &[u8], tail: &[u8], size: u64) -> Option<String> {
    if size == 0 {
        return Some(
            "an empty file: its writer has not begun or was interrupted; restore it from a copy"
                .into(),
        );
    }
    let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    if head.is_empty() || !zeros(head) || !zeros(tail) {
        return None;
    }
    let seen = (head.len() as u64).saturating_add(tail.len() as u64);
    let what = if seen < size {
        "a file that begins and ends with zeros"
    } else {
        "a file that holds nothing but zeros"
    };
    Some(format!(
        "{what}: space was reserved and not written, or a crash lost what was written; restore it from a copy"
    ))
}

/// LevelDB's relatives, whose tables have a magic number of their own in the same place: the number, who writes it, what.
const FOREIGN: [(u64, &str, &str); 6] = [
    (
        0x88e2_41b7_85f4_cff7,
        "RocksDB or Pebble",
        "block-based table",
    ),
    (0x8242_2296_63bf_9564, "RocksDB", "plain table"),
    (0x4f34_18eb_7a8f_13b8, "RocksDB", "plain table"),
    (0x9267_89d0_c5f1_7873, "RocksDB", "cuckoo table"),
    // In UTF-8 two cockroaches, and a cockroach with a crab.
    (0xb3aa_9ff0_b3aa_9ff0, "Pebble", "table"),
    (0x80a6_9ff0_b3aa_9ff0, "Pebble", "blob file"),
];

/// A table of a relative of LevelDB, by its magic number.
pub(crate) fn foreign_table(tail: &[u8]) -> Option<String> {
    let (front, magic) = tail.split_last_chunk()?;
    let magic = u64::from_le_bytes(*magic);
    let (_, program, what) = FOREIGN.iter().find(|(number, ..)| *number == magic)?;
    let version = match front.last_chunk() {
        Some(version) if what.ends_with("table") => {
            format!(" (format version {})", u32::from_le_bytes(*version))
        }
        _ => String::new(),
    };
    Some(format!(
        "a {program} {what}{version}: open it with {program}"
    ))
}

/// The same with one byte of the magic number changed.
fn nearly_foreign_table(tail: &[u8]) -> Option<String> {
    let magic: &[u8; 8] = tail.last_chunk()?;
    let differing = |number: u64| {
        let bytes = number.to_le_bytes();
        bytes.iter().zip(magic).filter(|(a, b)| a != b).count()
    };
    let (number, program, what) = FOREIGN
        .iter()
        .find(|(number, ..)| differing(*number) == 1)?;
    let number = number.to_le_bytes();
    Some(format!(
        "a {program} {what} whose last 8 bytes are damaged ({magic:02x?} instead of {number:02x?}): restore it from a copy"
    ))
}

/// A table of Badger, which ends in an index, its length, its checksum, and the length of that, both big-endian.
fn badger_table(tail: &[u8], size: u64) -> Option<String> {
    let (rest, len) = tail.split_last_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (rest, checksum) = rest.split_at_checked(rest.len().checked_sub(len)?)?;
    let (rest, len) = rest.split_last_chunk()?;
    let len = u32::from_be_bytes(*len);
    let index_at = rest.len().checked_sub(usize::try_from(len).ok()?);
    let index = index_at.and_then(|at| rest.get(at..));
    // A protocol buffer. Field 1 names the algorithm, and is left out for CRC-32C; field 2 is the sum.
    let fits = match (checksum, index) {
        ([0x10, sum @ ..], Some(index)) => get_varint32(sum)?.0 == crc32c(index),
        // The index is longer than what is examined, or the sum is XXH64.
        ([0x10, ..], None) | ([8, 1, 0x10, ..], _) => checksum.len() < 14 && u64::from(len) < size,
        _ => false,
    };
    fits.then(|| "a Badger table: open it with Badger".into())
}

/// A LevelDB footer at the end that is not whole: cut off, or with another magic number.
fn damaged_footer(tail: &[u8], size: u64) -> Option<String> {
    if size < FOOTER_LEN as u64 && tail.ends_with(&MAGIC_BYTES) {
        return Some(format!(
            "the end of a LevelDB table: the file has only {size} bytes, and all that comes before is missing; restore \
             it from a copy"
        ));
    }
    // Whether this would be the end of a table if `missing` more bytes followed.
    let would_end = |missing: usize| {
        let visible = (FOOTER_LEN - missing).min(tail.len());
        let footer = tail
            .len()
            .checked_sub(visible)
            .and_then(|at| tail.get(at..));
        let footer_at = size.checked_sub((FOOTER_LEN - missing) as u64);
        footer_at.is_some() && footer.and_then(end_of_blocks_at) == footer_at
    };
    // The handles alone tell how long the file should be.
    if let Some(missing) = (1..FOOTER_LEN).find(|&missing| would_end(missing)) {
        return Some(format!(
            "a LevelDB table cut short: {} at its end; restore it from a copy",
            count(missing as u64, "is missing", "are missing")
        ));
    }
    let magic = tail.last_chunk()?;
    if u64::from_le_bytes(*magic) == MAGIC.swap_bytes() {
        return Some(
            "a LevelDB table whose magic number has its bytes in reverse order, so that no LevelDB reads it: write it \
             again with a tool that writes little-endian numbers"
                .into(),
        );
    }
    would_end(0).then(|| {
        format!(
            "a LevelDB table whose last 8 bytes are damaged ({magic:02x?} instead of {MAGIC_BYTES:02x?}), and perhaps \
             more of it; restore it from a copy"
        )
    })
}

/// Returns each consistent footer in `tail`, the last first: its end in `tail`, and where it should start in the file.
fn footers(tail: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let windows = tail.windows(MAGIC_BYTES.len()).enumerate().rev();
    windows.filter_map(|(at, window)| {
        if window != MAGIC_BYTES {
            return None;
        }
        let end = at + window.len();
        let start = end.checked_sub(FOOTER_LEN)?;
        Some((end, end_of_blocks_at(tail.get(start..)?)?))
    })
}

/// A table with something after its end.
fn table_with_more(tail: &[u8], size: u64) -> Option<String> {
    let tail_at = size.checked_sub(tail.len() as u64)?;
    let in_place = |&(end, footer_at): &(usize, u64)| {
        footer_at.checked_add(FOOTER_LEN as u64) == tail_at.checked_add(end as u64)
    };
    let (end, footer_at) = footers(tail).find(in_place)?;
    let more = tail.get(end..)?;
    let zeros = if more.iter().all(|&byte| byte == 0) {
        ", all zeros (space that was reserved and not given back)"
    } else {
        ""
    };
    let table_len = footer_at.saturating_add(FOOTER_LEN as u64);
    let more = count(more.len() as u64, "follows", "follow");
    Some(format!(
        "a LevelDB table with more after it: {more} its end{zeros}; cut the file to {table_len} bytes (`truncate -s \
         {table_len} FILE`)"
    ))
}

/// A table with something before it and after it, or that misses bytes as well.
fn stray_footer(tail: &[u8]) -> Option<String> {
    let (end, _) = footers(tail).next()?;
    let more = count((tail.len() - end) as u64, "follows", "follow");
    Some(format!(
        "a LevelDB table that was joined or copied wrongly: {more} a footer that does not fit its place; restore it \
         from a copy"
    ))
}

/// A table that begins well and does not end.
fn cut_short(head: &[u8], tail: &[u8]) -> Option<String> {
    if !begins_with_block(head) {
        return None;
    }
    let zeros = tail.iter().rev().take_while(|&&byte| byte == 0).count();
    let reserved = match zeros {
        // Fewer may well be the end of a block.
        0..32 => "",
        _ => " (it ends in zeros, as if space had been reserved for the rest)",
    };
    Some(format!(
        "a LevelDB table whose first block is whole and whose footer is missing: it was cut short or is still being \
         written{reserved}; wait for its writer, or restore it from a copy"
    ))
}

/// The other files in a LevelDB database that hold records: the log and the MANIFEST.
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
        None => "a LevelDB log, which holds a database's latest writes: have LevelDB open the database, which moves them \
                 into tables, or open the .ldb or .sst files beside it"
            .into(),
    })
}

/// The comparator that a MANIFEST's first record begins with: tag 1, then a string.
///
/// A log's first record begins with a sequence number, eight bytes of which the upper ones are zero and not printable.
fn comparator_of_manifest(record: &[u8]) -> Option<&str> {
    let rest = record.strip_prefix(&[1])?;
    let (len, len_len) = get_varint32(rest)?;
    let name = rest.get(len_len..)?.get(..usize::try_from(len).ok()?)?;
    let printable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    str::from_utf8(name).ok().filter(|_| printable)
}

/// Files known by their first bytes: the bytes, what the file is, and what to do about it.
#[rustfmt::skip]
const KNOWN: [(&[u8], &str, &str); 14] = [
    (b"\x1f\x8b\x08", "a file compressed with gzip", "decompress it (`gunzip < FILE`)"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with Zstandard", "decompress it (`unzstd < FILE`)"),
    (b"\xfd7zXZ\0", "a file compressed with xz", "decompress it (`unxz < FILE`)"),
    (b"BZh", "a file compressed with bzip2", "decompress it (`bunzip2 < FILE`)"),
    (b"\x04\x22\x4d\x18", "a file compressed with LZ4", "decompress it (`unlz4 < FILE`)"),
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer in place of the file", "run `git lfs pull`"),
    (b"/annex/objects/", "a git-annex pointer in place of the file", "run `git annex get`"),
    (b"PK\x03\x04", "a zip archive", "take the table out of it (`unzip`)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "take the table out of it (`7z x`)"),
    (b"SQLite format 3\0", "an SQLite database", "open it with SQLite"),
    (b"MANIFEST-", "LevelDB's CURRENT file, which names the MANIFEST", "open the .ldb or .sst files beside it"),
    (b"\x00\x05\x16\x07", "macOS metadata (AppleDouble)", "open the file of the same name without `._` in front"),
    // PowerShell redirects a program's output so.
    (b"\xff\xfe", UTF_16, "transfer it again as binary"),
    (b"\xfe\xff", UTF_16, "transfer it again as binary"),
];

const UTF_16: &str = "a file that was converted to UTF-16 text, which ruins a table";

fn known_start(head: &[u8]) -> Option<String> {
    if let Some((_, what, advice)) = KNOWN.iter().find(|(start, ..)| head.starts_with(start)) {
        return Some(format!("{what}: {advice}"));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("a tar archive: take the table out of it (`tar -x`)".into());
    }
    // A zlib header is a multiple of 31; 0x78 is deflate with the usual window.
    let zlib = matches!(head, [0x78, flags, ..] if (0x7800 + u16::from(*flags)) % 31 == 0);
    zlib.then(|| {
        "a file that begins with a zlib stream and does not end as a table: decompress it if it was compressed; restore \
         it from a copy if it is a Minecraft table that was cut short"
            .into()
    })
}

/// Text of any kind.
fn text(head: &[u8]) -> Option<String> {
    let text = match str::from_utf8(head) {
        Ok(text) => text,
        // The head may end within a character.
        Err(error) if error.error_len().is_none() => {
            str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        // Bytes that are not UTF-8 become U+FFFD if they are decoded as such and encoded again.
        return (text.matches('\u{fffd}').count() >= 8).then(|| {
            "binary data that was converted to UTF-8 text, which ruins it: transfer it again as binary".into()
        });
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    let begins = |prefix: &str| {
        let start = text.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let answer = "perhaps what a server sent in place of the table; download it again";
    let (what, advice) = if begins("<!doctype html") || begins("<html") {
        ("an HTML page", answer)
    } else if begins("<") {
        ("an XML document", answer)
    } else if begins("{") || begins("[") {
        ("JSON text", answer)
    } else {
        ("plain text", "it may say why the table is not there")
    };
    // The first words help to recognise the file, and often are the reason.
    let line = text.lines().next()?;
    let start: String = line.chars().take(60).collect();
    let more = if start.len() < text.len() { " .." } else { "" };
    Some(format!("{what}, which begins {start:?}{more}: {advice}"))
}

fn unknown(tail: &[u8], size: u64) -> String {
    let how = match tail.last_chunk::<8>() {
        Some(magic) if size >= FOOTER_LEN as u64 => {
            format!("its last 8 bytes are {magic:02x?} instead of {MAGIC_BYTES:02x?}")
        }
        _ => format!("it has only {size} bytes, and the footer alone takes 48"),
    };
    format!(
        "no LevelDB table, or not all of one: {how}; it may be something else, cut short, or still being written: check \
         where it comes from"
    )
}

/// Whether the bytes look like binary data whose line feeds were turned into CR LF. By chance, one line feed in 256
/// follows a carriage return.
fn converted_to_crlf(head: &[u8]) -> bool {
    let line_feeds = head.iter().filter(|&&byte| byte == b'\n').count();
    let pairs = head.windows(2).filter(|pair| pair == b"\r\n").count();
    line_feeds >= 3 && line_feeds == pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::put_varint;
    use proptest::prelude::*;

    /// A table by C++ LevelDB 1.23: apple -> 1, grape -> 22, uncompressed, no filter. One data block
    /// of 27 bytes at 0, metaindex at 32, index at 45, footer at 64.
    const TABLE: [u8; 112] = *b"\
        \x00\x05\x01apple1\x00\x05\x02grape22\0\0\0\0\x01\0\0\0\x00\x3a\x88\xbc\x7d\
        \0\0\0\0\x01\0\0\0\x00\xc0\xf2\xa1\xb0\
        \x00\x01\x02h\x00\x1b\0\0\0\0\x01\0\0\0\x00\x7e\x15\xd1\x5e\
        \x20\x08\x2d\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \x57\xfb\x80\x8b\x24\x75\x47\xdb";

    /// The same with the index before the metaindex, at 32 and at 51.
    fn index_first() -> [u8; 112] {
        let mut table = TABLE;
        table[32..51].copy_from_slice(&TABLE[45..64]);
        table[51..64].copy_from_slice(&TABLE[32..45]);
        table[64..68].copy_from_slice(&[51, 8, 32, 14]);
        table
    }

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
        let footer = &file[file.len().saturating_sub(FOOTER_LEN)..];
        match Footer::decode(footer) {
            Ok(footer) => describe_misfit(head, &footer, file.len() as u64)
                .unwrap_or_else(|| "the sizes fit".into()),
            Err(_) => describe(head, tail, file.len() as u64),
        }
    }

    /// Bytes that resemble nothing.
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
    fn the_sizes_of_a_sound_table_fit() {
        assert_says(&TABLE, &["the sizes fit"]);
        assert_says(&index_first(), &["the sizes fit"]);
        // As those of handles that overlap do not.
        let mut overlap = TABLE;
        overlap[64] = 33;
        assert_says(&overlap, &["footer is damaged"]);
    }

    #[test]
    fn empty_files_and_zeros() {
        assert_says(b"", &["empty", "restore"]);
        for len in [1, 48, 4096, 2 * PEEK_LEN] {
            assert_says(&vec![0; len], &["nothing but zeros", "restore"]);
        }
        assert_says(&vec![0; 3 * PEEK_LEN], &["begins and ends with zeros"]);
    }

    #[test]
    fn tables_of_other_stores_are_named() {
        for (end, name) in [
            (
                &b"\x05\0\0\0\xf7\xcf\xf4\x85\xb7\x41\xe2\x88"[..],
                "a RocksDB or Pebble block-based table (format version 5): open it with RocksDB or Pebble",
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
                "a Pebble table (format version 4): open it with Pebble",
            ),
            (
                b"\0\0\0\0\xf0\x9f\xaa\xb3\xf0\x9f\xa6\x80",
                "a Pebble blob file: open it with Pebble",
            ),
        ] {
            // Their blocks look like LevelDB's, so only the end tells.
            assert_says(&[&TABLE[..64], end].concat(), &[name]);
            assert_says(&end[4..], &[name.split(" (").next().unwrap()]);
        }
    }

    /// It was called a LevelDB table cut short.
    #[test]
    fn a_foreign_magic_number_with_one_byte_wrong_is_known() {
        for (end, name) in [
            (
                b"\x05\0\0\0\xf7\xcf\xf4\x85\xb6\x41\xe2\x88",
                "a RocksDB or Pebble block-based table whose last 8 bytes are damaged",
            ),
            (
                b"\x04\0\0\0\xf0\x9f\xaa\xb3\xf0\x9f\xaa\x33",
                "a Pebble table whose last 8 bytes are damaged",
            ),
        ] {
            assert_says(&[&TABLE[..64], &end[..]].concat(), &[name]);
        }
    }

    #[test]
    fn badgers_tables_are_known() {
        let table = |index: &[u8], checksum: &[u8]| {
            let lengths = [index.len(), checksum.len()].map(|len| (len as u32).to_be_bytes());
            [&noise(3000)[..], index, &lengths[0], checksum, &lengths[1]].concat()
        };
        let index = noise(500);
        let mut crc32c = vec![0x10];
        put_varint(&mut crc32c, u64::from(crc32c::crc32c(&index)));
        let mut xxhash = vec![8, 1, 0x10];
        put_varint(&mut xxhash, u64::MAX / 3);
        for checksum in [&crc32c, &xxhash] {
            assert_says(
                &table(&index, checksum),
                &["a Badger table: open it with Badger"],
            );
            assert_says(&table(&noise(70_000), checksum), &["a Badger table"]);
        }
        crc32c[1] ^= 1;
        assert!(!word(&table(&index, &crc32c)).contains("Badger"));
    }

    #[test]
    fn every_cut_is_a_table_cut_short() {
        for table in [TABLE, index_first()] {
            for len in 32..table.len() {
                assert_says(&table[..len], &["LevelDB table", "cut short", "restore"]);
            }
            // The handles end at 68; from there on the sum is exact.
            for len in 68..table.len() {
                let missing = match table.len() - len {
                    1 => "1 byte is missing".into(),
                    n => format!("{n} bytes are missing"),
                };
                assert_says(&table[..len], &[&missing]);
            }
        }
        for len in 2..32 {
            assert_says(&TABLE[..len], &["only", "cut short", "still being written"]);
        }
    }

    #[test]
    fn the_end_alone_is_not_enough() {
        for len in 8..48 {
            let end = &TABLE[TABLE.len() - len..];
            assert_says(end, &[&format!("only {len} bytes"), "missing", "restore"]);
        }
        assert_says(
            &TABLE[64..],
            &["should end at 64", "64 bytes are missing before the footer"],
        );
    }

    #[test]
    fn a_table_under_way_that_reserved_space_says_so() {
        let reserved = [&TABLE[..32], &[0; 5000]].concat();
        assert_says(&reserved, &["still being written", "reserved"]);
        let long = [noise(40_000), TABLE[..32].to_vec()].concat();
        assert_says(
            &long,
            &["no LevelDB table, or not all of one", "instead of"],
        );
    }

    #[test]
    fn bytes_after_the_end_are_counted() {
        let and = |more: &[u8]| [&TABLE, more].concat();
        assert_says(
            &and(b"\n"),
            &[
                "1 byte follows its end",
                "truncate -s 112",
                "a LevelDB table",
            ],
        );
        assert_says(
            &and(&[0; 1000]),
            &["1000 bytes follow", "all zeros", "truncate -s 112"],
        );
        assert_says(&and(&noise(60_000)), &["60000 bytes follow"]);
        // A magic number in what follows does not mislead, and its length can be anything.
        let twice = [&[7; 50][..], &TABLE[104..], b"x"].concat();
        assert_says(&and(&twice), &["59 bytes follow", "truncate -s 112"]);
        // With something in front as well, the handles do not fit their place.
        let joined = [&noise(9)[..], &TABLE, b"xyz"].concat();
        assert_says(&joined, &["3 bytes follow", "does not fit its place"]);
        // The number alone, as a program that reads tables holds it, is no table.
        let program = [&noise(500)[..], &TABLE[104..], &noise(500)].concat();
        assert_says(
            &program,
            &["no LevelDB table, or not all of one", "instead of"],
        );
    }

    #[test]
    fn bytes_in_front_are_counted() {
        let front = [&[b'x'; 20][..], &TABLE].concat();
        assert_says(
            &front,
            &["20 bytes stand in front of the table", "tail -c +21"],
        );
        let front = [&b"x"[..], &TABLE].concat();
        assert_says(&front, &["1 byte stands in front", "tail -c +2"]);
    }

    #[test]
    fn bytes_missing_or_added_inside_are_counted() {
        for (table, last) in [(TABLE, "the index"), (index_first(), "the metaindex")] {
            assert_says(&table[1..], &["1 byte is missing before the footer"]);
            let gap = [&table[..40], &table[50..]].concat();
            assert_says(
                &gap,
                &[
                    last,
                    "should end at 64",
                    "begins at 54",
                    "10 bytes are missing",
                    "first block is whole",
                ],
            );
            let more = [&table[..40], b"12345", &table[40..]].concat();
            assert_says(
                &more,
                &["5 bytes are too many before the footer", "restore"],
            );
        }
    }

    #[test]
    fn damaged_footers() {
        let mut swapped = TABLE;
        swapped[104..].reverse();
        assert_says(&swapped, &["reverse order", "write it again"]);
        let mut magic = TABLE;
        magic[107] ^= 0x40;
        assert_says(
            &magic,
            &["last 8 bytes are damaged", "[57, fb, 80, cb", "restore"],
        );
        let mut handles = TABLE;
        handles[64] ^= 0x40;
        assert_says(&handles, &["footer is damaged", "restore"]);
        // The largest handles there are.
        let mut huge = TABLE;
        for handle in huge[64..104].chunks_mut(10) {
            handle.copy_from_slice(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        }
        assert_says(&huge, &["footer is damaged"]);
    }

    #[test]
    fn line_ends_that_were_converted() {
        // A table whose value holds line feeds, and what git or FTP make of it.
        let content = [&TABLE[..9], b"a\nb\nc\n\x80\n", &TABLE[9..64]].concat();
        let mut footer = TABLE[64..].to_vec();
        footer[0] += 8;
        footer[2] += 8;
        let mut mangled = Vec::new();
        for &byte in &content {
            if byte == b'\n' {
                mangled.push(b'\r');
            }
            mangled.push(byte);
        }
        mangled.extend(&footer);
        assert_says(&mangled, &["line ends", "binary", ".gitattributes"]);
    }

    #[test]
    fn records_of_a_database_are_told_from_its_tables() {
        assert_says(LOG, &["LevelDB log", "open the database"]);
        let comparator = "MANIFEST (comparator \"leveldb.BytewiseComparator\")";
        assert_says(MANIFEST, &[comparator, ".ldb"]);
        // More of it changes nothing; a wrong checksum or a record cut short does.
        assert_says(&[LOG, &noise(100)].concat(), &["LevelDB log"]);
        assert!(!word(&LOG[..29]).contains("log"));
        let mut flipped = LOG.to_vec();
        flipped[20] ^= 1;
        assert!(!word(&flipped).contains("log"));
        assert_says(b"MANIFEST-000002\n", &["CURRENT", ".ldb"]);
    }

    #[test]
    fn files_known_by_their_first_bytes() {
        for (start, words) in [
            (&b"\x1f\x8b\x08\0\0\0\0\0\x02\x03"[..], "gzip: decompress"),
            (b"\x28\xb5\x2f\xfd\x24\x05", "Zstandard: decompress"),
            (b"\xfd\x37\x7a\x58\x5a\x00\x00", "xz: decompress"),
            (b"BZh91AY&SY", "bzip2: decompress"),
            (b"\x04\x22\x4d\x18\x64", "LZ4: decompress"),
            (b"PK\x03\x04\x14\0", "zip archive"),
            (b"7z\xbc\xaf\x27\x1c\0\x04", "7-Zip"),
            (
                b"SQLite format 3\0\x10\0",
                "SQLite database: open it with SQLite",
            ),
            (b"\x00\x05\x16\x07\0\x02\0\0Mac OS X", "AppleDouble"),
            (b"\xff\xfeW\0\xfb\0", "UTF-16"),
            (b"\x78\x9c\xed\x5d", "zlib"),
            (b"\x78\x01\xed\x5d", "zlib"),
            (
                b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2115233\n",
                "a Git LFS pointer in place of the file: run `git lfs pull`",
            ),
            (b"/annex/objects/SHA256E-s1--00.ldb\n", "git annex get"),
        ] {
            assert_says(start, &[words]);
            assert_says(&[start, &noise(5000)].concat(), &[words]);
        }
        let mut tar = b"000005.ldb".to_vec();
        tar.resize(257, 0);
        tar.extend(b"ustar  \0");
        // An archive says more than the table in it.
        tar.resize(512, 0);
        tar.extend(TABLE);
        tar.resize(10240, 0);
        assert_says(&tar, &["tar archive"]);
        assert!(!word(b"\x78\x9d rest").contains("zlib"));
    }

    #[test]
    fn text_is_quoted() {
        assert_says(
            b"404: Not Found",
            &["plain text, which begins \"404: Not Found\":"],
        );
        assert_says(
            b"<!DOCTYPE html>\n<html><title>Sign in</title></html>",
            &["an HTML page, which begins \"<!DOCTYPE html>\" .."],
        );
        assert_says(b"\xef\xbb\xbf\r\n<HTML>", &["HTML"]);
        assert_says(b"<?xml version='1.0'?><Error/>", &["XML", "server"]);
        assert_says(b"{\"message\": \"Bad credentials\"}", &["JSON", "Bad cred"]);
        assert_says(b"key,value\nzo\xc3\xab,1\n", &["plain text", "key,value"]);
        // More than is looked at, with a character across the edge.
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

    #[test]
    fn binary_data_converted_to_text() {
        let converted = String::from_utf8_lossy(&noise(3000)).into_owned();
        assert_says(converted.as_bytes(), &["UTF-8", "again as binary"]);
    }

    /// A table with a few edits: what real damage looks like, and more likely to get past the first
    /// checks than random bytes are.
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
        fn sizes_may_lie(file in edited(), size: u64, offsets: [u64; 4]) {
            prop_assert!(!describe(&file, &file, size).is_empty());
            prop_assert!(!describe(&[], &file, size).is_empty());
            prop_assert!(!describe(&file, &[], size).is_empty());
            let footer = Footer {
                metaindex: BlockHandle { offset: offsets[0], size: offsets[1] },
                index: BlockHandle { offset: offsets[2], size: offsets[3] },
            };
            describe_misfit(&file, &footer, size);
        }
    }
}
