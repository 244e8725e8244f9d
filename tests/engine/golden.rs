//! Tables that C++ LevelDB wrote: read whole, looked up, and written again.
//!
//! `testdata/README.md` says what they are and how they were made. What is expected here comes from
//! LevelDB or from the naive code below, never from this crate: the order of keys, the versions
//! visible at a sequence number and the walk over a file's blocks are all written out once more, as
//! plainly as they can be.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use crate::common::{self, Entry, read_entries, testdata};
use bytes::Bytes;
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, DbTable, OpenOptions, Table,
    WriteOptions,
    db::{DbEntry, InternalKeyComparator, MAX_SEQUENCE, Version},
    filter::FilterPolicy,
};

// ---- The golden files -----------------------------------------------------------------------

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    Bloom,
    /// Both bear the name `leveldb.BuiltinBloomFilter`; nothing in the file tells them apart.
    OldSigned,
    OldUnsigned,
}

/// A line of the manifest: one table, the options it was written with, and what it holds.
struct Golden {
    file: String,
    entries: Vec<Entry>,
    from_database: bool,
    internal_keys: bool,
    reverse: bool,
    snappy: bool,
    block_size: usize,
    restart_interval: usize,
    filter: Filter,
    bits_per_key: u32,
    flush_every: usize,
}

fn tsv(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(testdata(name)).unwrap();
    let rows = text.lines().skip(1); // the heading
    rows.map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn golden_tables() -> Vec<Golden> {
    let rows = tsv("manifest.tsv").into_iter();
    rows.map(|row| {
        let [
            table,
            entries,
            origin,
            keys,
            comparator,
            compression,
            numbers @ ..,
        ] = row.as_slice()
        else {
            panic!("a short line: {row:?}");
        };
        let [
            block_size,
            restart_interval,
            filter,
            bits_per_key,
            flush_every,
        ] = numbers
        else {
            panic!("a line of the wrong length: {row:?}");
        };
        let is = |text: &str, yes: &str, no: &str| {
            assert!(
                text == yes || text == no,
                "{text:?} is neither {yes:?} nor {no:?}"
            );
            text == yes
        };
        Golden {
            file: table.clone(),
            entries: read_entries(entries),
            from_database: is(origin, "database", "builder"),
            internal_keys: is(keys, "internal", "user"),
            reverse: is(comparator, "reverse", "bytewise"),
            snappy: is(compression, "snappy", "none"),
            block_size: block_size.parse().unwrap(),
            restart_interval: restart_interval.parse().unwrap(),
            filter: match filter.as_str() {
                "none" => Filter::None,
                "bloom" => Filter::Bloom,
                "old-signed" => Filter::OldSigned,
                "old-unsigned" => Filter::OldUnsigned,
                other => panic!("unknown filter {other}"),
            },
            bits_per_key: bits_per_key.parse().unwrap(),
            flush_every: flush_every.parse().unwrap(),
        }
    })
    .collect()
}

impl Golden {
    fn bytes(&self) -> Vec<u8> {
        fs::read(testdata(&self.file)).unwrap()
    }

    /// The table's order, written a second time.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let user_order = |a: &[u8], b: &[u8]| if self.reverse { b.cmp(a) } else { a.cmp(b) };
        if self.internal_keys {
            let ((a, a_tag), (b, b_tag)) = (split_tag(a), split_tag(b));
            user_order(a, b).then(b_tag.cmp(&a_tag))
        } else {
            user_order(a, b)
        }
    }

    /// Where `key` is in the list, or else where it would be.
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|(stored, _)| self.compare(stored, key))
    }

    /// Each key, and keys close to it, most of which are not in the table.
    fn probes(&self) -> Vec<Vec<u8>> {
        // An internal key keeps its tag: it is the user key before it that is varied.
        let tag_len = if self.internal_keys { 8 } else { 0 };
        let mut probes = vec![
            vec![1; tag_len],
            [vec![0xff; 40], vec![1; tag_len]].concat(),
        ];
        for (key, _) in &self.entries {
            let (user_key, tag) = key.split_at(key.len() - tag_len);
            probes.push(key.clone());
            probes.push([user_key, b"\0", tag].concat());
            probes.push([user_key, b"x", tag].concat());
            if let Some((last, head)) = user_key.split_last() {
                probes.push([head, tag].concat());
                probes.push([head, &[last.wrapping_add(1)], tag].concat());
                probes.push([head, &[last.wrapping_sub(1)], tag].concat());
            }
        }
        probes
    }

    /// The table as stored keys, from a file and from memory: the two ways to a block share little.
    fn open(&self) -> [Table; 2] {
        let options = self.open_options();
        let file = options.clone().open(testdata(&self.file));
        let memory = options.open_source(Bytes::from(self.bytes()));
        [file, memory].map(|table| table.unwrap_or_else(|e| panic!("{}: {e}", self.file)))
    }

    fn open_options(&self) -> OpenOptions {
        match self.comparator() {
            Some(comparator) => OpenOptions::new().comparator(comparator),
            None => OpenOptions::new(),
        }
    }

    /// The order of the stored keys; `None` is the default, which the crate has quicker paths for.
    fn comparator(&self) -> Option<Arc<dyn Comparator>> {
        match (self.internal_keys, self.reverse) {
            (false, false) => None,
            (false, true) => Some(Arc::new(ReverseBytewiseComparator)),
            (true, false) => Some(Arc::new(InternalKeyComparator::new(BytewiseComparator))),
            (true, true) => Some(Arc::new(InternalKeyComparator::new(
                ReverseBytewiseComparator,
            ))),
        }
    }

    /// The options that LevelDB had, as this crate's, except comparator and filter.
    fn block_options(&self) -> WriteOptions {
        let compression = if self.snappy {
            Compression::Snappy
        } else {
            Compression::None
        };
        WriteOptions::leveldb()
            .block_size(self.block_size)
            .restart_interval(self.restart_interval)
            .compression(compression)
    }

    /// All of the options that LevelDB had, for keys as they are stored.
    fn write_options(&self) -> WriteOptions {
        let options = match self.comparator() {
            Some(comparator) => self.block_options().comparator(comparator),
            None => self.block_options(),
        };
        let bloom = BloomFilterPolicy::new(self.bits_per_key);
        match self.filter {
            Filter::Bloom => options.filter_policy(bloom),
            // New tables are not given filters of the older name.
            Filter::None | Filter::OldSigned | Filter::OldUnsigned => options.no_filter(),
        }
    }

    /// The same entries, written by this crate.
    fn rebuild(&self) -> Vec<u8> {
        let mut written = Vec::new();
        let mut builder = self.write_options().build(&mut written);
        for (i, (key, value)) in self.entries.iter().enumerate() {
            builder.add(key, value).unwrap();
            if self.flush_every != 0 && (i + 1).is_multiple_of(self.flush_every) {
                builder.flush().unwrap();
                builder.flush().unwrap(); // of nothing: as in the generator, it must leave no trace
            }
        }
        builder.finish().unwrap();
        written
    }
}

/// An internal key's user key and tag, which is `sequence << 8 | type`.
fn split_tag(internal_key: &[u8]) -> (&[u8], u64) {
    let (user_key, tag) = internal_key.split_last_chunk().expect("8 bytes of tag");
    (user_key, u64::from_le_bytes(*tag))
}

/// Descending bytes, as in the generator.
#[derive(Debug, Clone, Copy)]
struct ReverseBytewiseComparator;

impl Comparator for ReverseBytewiseComparator {
    fn name(&self) -> &str {
        "leveltable.ReverseBytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

// ---- An independent reader ------------------------------------------------------------------

/// A second look at a table file, which shares no code with the crate under test.
///
/// It takes a well-formed file and panics over any other.
mod plain {
    pub(crate) struct Block {
        /// Its index key, which is at or above its last key.
        pub(crate) separator: Vec<u8>,
        pub(crate) compressed: bool,
        pub(crate) stored_size: usize,
        /// Uncompressed.
        pub(crate) payload: Vec<u8>,
    }

    pub(crate) struct File {
        pub(crate) data: Vec<Block>,
        /// Names of the metaindex, without where they point.
        pub(crate) meta_names: Vec<Vec<u8>>,
    }

    pub(crate) fn parse(file: &[u8]) -> File {
        let (rest, magic) = file.split_last_chunk().unwrap();
        assert_eq!(u64::from_le_bytes(*magic), 0xdb47_7524_8b80_fb57);
        let mut footer = &rest[rest.len() - 40..];
        let metaindex = handle(&mut footer);
        let index = handle(&mut footer);
        let data = entries(&block(file, index).payload)
            .into_iter()
            .map(|(separator, value)| {
                let at = handle(&mut value.as_slice());
                Block {
                    separator,
                    ..block(file, at)
                }
            });
        let metaindex = entries(&block(file, metaindex).payload);
        File {
            data: data.collect(),
            meta_names: metaindex.into_iter().map(|(name, _)| name).collect(),
        }
    }

    fn varint(input: &mut &[u8]) -> usize {
        let mut n = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = input.split_first().unwrap();
            *input = rest;
            n |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        n
    }

    fn handle(input: &mut &[u8]) -> (usize, usize) {
        (varint(input), varint(input))
    }

    fn block(file: &[u8], (offset, size): (usize, usize)) -> Block {
        let (typed, crc) = file[offset..offset + size + 5].split_last_chunk().unwrap();
        let expected = crc32c::crc32c(typed)
            .rotate_right(15)
            .wrapping_add(0xa282_ead8);
        assert_eq!(
            u32::from_le_bytes(*crc),
            expected,
            "checksum of the block at {offset}"
        );
        let (&kind, stored) = typed.split_last().unwrap();
        let payload = match kind {
            0 => stored.to_vec(),
            1 => snap::raw::Decoder::new().decompress_vec(stored).unwrap(),
            other => panic!("block type {other}"),
        };
        Block {
            separator: Vec::new(),
            compressed: kind == 1,
            stored_size: size,
            payload,
        }
    }

    fn entries(payload: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (rest, restarts) = payload.split_last_chunk().unwrap();
        let mut input = &rest[..rest.len() - 4 * u32::from_le_bytes(*restarts) as usize];
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        while !input.is_empty() {
            let [shared, unshared, size] = [(); 3].map(|()| varint(&mut input));
            let previous = entries.last().map_or(&[][..], |(key, _)| key);
            let key = [&previous[..shared], &input[..unshared]].concat();
            let value = input[unshared..unshared + size].to_vec();
            input = &input[unshared + size..];
            entries.push((key, value));
        }
        entries
    }
}

// ---- Reading --------------------------------------------------------------------------------

#[test]
fn the_manifest_names_every_table_and_every_kind_of_them() {
    let tables = golden_tables();
    let named: BTreeSet<String> = tables.iter().map(|golden| golden.file.clone()).collect();
    let files = fs::read_dir(testdata("")).unwrap();
    let there = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(named, there.filter(|name| name.ends_with(".ldb")).collect());

    let count = |what: fn(&Golden) -> bool| tables.iter().filter(|golden| what(golden)).count();
    assert!(count(|g| g.entries.is_empty()) > 0);
    assert!(count(|g| g.from_database && !g.snappy && g.filter == Filter::Bloom) > 0);
    assert!(count(|g| g.reverse && g.internal_keys) > 0);
    assert!(count(|g| g.reverse && !g.internal_keys) > 0);
    assert!(count(|g| g.snappy && g.filter == Filter::Bloom) > 0);
    assert!(count(|g| g.flush_every != 0) > 0);
    assert!(count(|g| g.filter == Filter::OldSigned) > 0);
    assert!(count(|g| g.filter == Filter::OldUnsigned) > 0);

    // The two hashes of the older filter do part ways on these keys.
    let old = |kind| fs::read(testdata(&format!("random-b256-r16-old{kind}10.ldb"))).unwrap();
    assert_ne!(old("signed"), old("unsigned"));
}

#[test]
fn every_entry_is_read_in_both_directions() {
    let owned = |entry: leveltable::Result<(Bytes, Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    for golden in golden_tables() {
        for table in golden.open() {
            let forward: Vec<Entry> = table.iter().map(owned).collect();
            assert!(forward == golden.entries, "{}, forward", golden.file);
            let backward: Vec<Entry> = table.iter().rev().map(owned).collect();
            assert!(
                backward.iter().eq(golden.entries.iter().rev()),
                "{}, backward",
                golden.file
            );
        }
    }
}

#[test]
fn get_finds_every_key_and_nothing_beside_it() {
    for golden in golden_tables() {
        let probes = golden.probes();
        for table in golden.open() {
            for key in &probes {
                let expected = golden.find(key).ok().map(|at| &golden.entries[at].1[..]);
                let value = table.get(key).unwrap();
                assert_eq!(
                    value.as_deref(),
                    expected,
                    "{}: {}",
                    golden.file,
                    key.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn a_cursor_lands_on_the_first_key_at_or_above_and_walks_on_from_there() {
    for golden in golden_tables() {
        let at = |i: usize| {
            golden
                .entries
                .get(i)
                .map(|(k, v)| (k.as_slice(), v.as_slice()))
        };
        let probes = golden.probes();
        for table in golden.open() {
            let mut cursor = table.cursor();
            for key in &probes {
                let context = || format!("{}: {}", golden.file, key.escape_ascii());
                let landing = golden.find(key).unwrap_or_else(|at| at);

                let mut there = cursor.seek(key).unwrap();
                let seen = there.then(|| (cursor.key(), cursor.value()));
                assert_eq!(seen, at(landing), "seek, {}", context());
                if there {
                    there = cursor.next().unwrap();
                    let seen = there.then(|| (cursor.key(), cursor.value()));
                    assert_eq!(seen, at(landing + 1), "next, {}", context());
                }

                if cursor.seek(key).unwrap() {
                    let there = cursor.prev().unwrap();
                    let seen = there.then(|| (cursor.key(), cursor.value()));
                    assert_eq!(
                        seen,
                        landing.checked_sub(1).and_then(at),
                        "prev, {}",
                        context()
                    );
                }
            }
        }
    }
}

#[test]
fn filters_reject_absent_keys_and_no_present_one() {
    let mut kinds = BTreeSet::new();
    for golden in golden_tables() {
        // With few keys or few bits there is nothing to count.
        if golden.entries.len() < 100 || golden.bits_per_key < 5 {
            continue;
        }
        for table in golden.open() {
            let (present, absent): (Vec<_>, Vec<_>) = golden
                .probes()
                .into_iter()
                .partition(|key| golden.find(key).is_ok());
            for key in &present {
                assert!(
                    table.may_contain(key).unwrap(),
                    "{}: {}",
                    golden.file,
                    key.escape_ascii()
                );
            }
            // Far above what a filter in use lets pass, far below what passes without one.
            let passed = absent
                .iter()
                .filter(|key| table.may_contain(key).unwrap())
                .count();
            assert!(
                passed * 4 < absent.len(),
                "{}: {passed} of {}",
                golden.file,
                absent.len()
            );
        }
        kinds.insert(format!("{:?}", golden.filter));
    }
    let all_kinds = ["Bloom", "OldSigned", "OldUnsigned"].map(String::from);
    assert_eq!(kinds, BTreeSet::from(all_kinds));
}

#[test]
fn a_table_in_another_order_is_refused_where_its_index_shows_it() {
    for golden in golden_tables()
        .iter()
        .filter(|golden| golden.reverse && !golden.internal_keys)
    {
        assert!(
            plain::parse(&golden.bytes()).data.len() > 1,
            "{}: nothing to show",
            golden.file
        );
        let opened = Table::open(testdata(&golden.file));
        assert!(
            opened.is_err(),
            "{} was opened in ascending order",
            golden.file
        );
    }
}

// ---- Writing --------------------------------------------------------------------------------

#[test]
fn uncompressed_tables_are_rebuilt_byte_for_byte() {
    let mut rebuilt_tables = 0;
    for golden in golden_tables() {
        let new_filter = matches!(golden.filter, Filter::None | Filter::Bloom);
        if !golden.snappy && new_filter {
            let (rebuilt, original) = (golden.rebuild(), golden.bytes());
            let differ = rebuilt.iter().zip(&original).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{}: the first byte that differs", golden.file);
            assert_eq!(rebuilt.len(), original.len(), "{}: length", golden.file);
            rebuilt_tables += 1;
        }
    }
    assert!(rebuilt_tables > 40, "{rebuilt_tables}");
}

/// The bytes of a Snappy block depend on who compressed it, and with them every offset after it;
/// what was compressed does not. The same holds of the blocks before a filter of the older name.
#[test]
fn other_tables_are_rebuilt_block_for_block() {
    for golden in golden_tables() {
        let old_filter = matches!(golden.filter, Filter::OldSigned | Filter::OldUnsigned);
        if !golden.snappy && !old_filter {
            continue;
        }
        let rebuilt = plain::parse(&golden.rebuild());
        let original = plain::parse(&golden.bytes());
        assert_eq!(
            rebuilt.data.len(),
            original.data.len(),
            "{}: blocks",
            golden.file
        );
        for (i, (ours, theirs)) in rebuilt.data.iter().zip(&original.data).enumerate() {
            assert!(ours.payload == theirs.payload, "{}: block {i}", golden.file);
            assert_eq!(
                ours.separator, theirs.separator,
                "{}: index key {i}",
                golden.file
            );
            let worth_it = ours.stored_size < ours.payload.len() - ours.payload.len() / 8;
            assert!(
                !ours.compressed || worth_it,
                "{}: block {i} gained too little",
                golden.file
            );
        }
        if !old_filter {
            assert_eq!(
                rebuilt.meta_names, original.meta_names,
                "{}: metaindex",
                golden.file
            );
        }
    }
}

/// The test above would not notice a writer that compressed nothing.
#[test]
fn what_snappy_shrinks_is_stored_shrunk() {
    let tables = golden_tables();
    let words = tables
        .iter()
        .find(|golden| golden.file == "words-b4096-r16-bloom10-snappy.ldb");
    let rebuilt = plain::parse(&words.unwrap().rebuild());
    assert!(!rebuilt.data.is_empty());
    assert!(rebuilt.data.iter().all(|block| block.compressed));

    // Random bytes do not shrink, and are stored as they are.
    let random = tables
        .iter()
        .find(|golden| golden.file == "random-b4096-r16-bloom10-snappy.ldb");
    let rebuilt = plain::parse(&random.unwrap().rebuild());
    assert!(!rebuilt.data.is_empty());
    assert!(rebuilt.data.iter().all(|block| !block.compressed));
}

// ---- Tables of a database -------------------------------------------------------------------

/// The tables with internal keys, each with its entries taken apart.
fn database_tables() -> Vec<(Golden, Vec<DbEntry>)> {
    let tables = golden_tables()
        .into_iter()
        .filter(|golden| golden.internal_keys);
    tables
        .map(|golden| {
            let entries = golden.entries.iter().map(|(key, value)| {
                let (user_key, tag) = split_tag(key);
                let version = match tag & 0xff {
                    0 => Version::Deleted,
                    1 => Version::Value(Bytes::copy_from_slice(value)),
                    other => panic!("type {other}"),
                };
                DbEntry::new(Bytes::copy_from_slice(user_key), tag >> 8, version)
            });
            let entries = entries.collect();
            (golden, entries)
        })
        .collect()
}

fn open_database_table(golden: &Golden) -> DbTable {
    let options = OpenOptions::new();
    let options = if golden.reverse {
        options.comparator(ReverseBytewiseComparator) // of user keys
    } else {
        options
    };
    let table = options.open_db(testdata(&golden.file));
    table.unwrap_or_else(|e| panic!("{}: {e}", golden.file))
}

#[test]
fn database_tables_are_read_in_both_directions() {
    for (golden, entries) in database_tables() {
        let table = open_database_table(&golden);
        let forward: Vec<DbEntry> = table.iter().map(Result::unwrap).collect();
        assert!(forward == entries, "{}, forward", golden.file);
        let backward: Vec<DbEntry> = table.iter().rev().map(Result::unwrap).collect();
        assert!(
            backward.iter().eq(entries.iter().rev()),
            "{}, backward",
            golden.file
        );
    }
}

#[test]
fn every_sequence_number_sees_its_own_version() {
    for (golden, entries) in database_tables() {
        let table = open_database_table(&golden);
        let user_keys: BTreeSet<&Bytes> = entries.iter().map(|entry| &entry.user_key).collect();
        for user_key in user_keys {
            // Newest first, as in the table.
            let versions = entries.iter().filter(|entry| entry.user_key == user_key);
            let visible_at = |sequence| {
                let visible = versions.clone().find(|entry| entry.sequence <= sequence);
                visible.map(|entry| entry.version.clone())
            };
            let context = || format!("{}: {}", golden.file, user_key.escape_ascii());
            assert_eq!(
                table.get(user_key).unwrap(),
                visible_at(MAX_SEQUENCE),
                "{}",
                context()
            );
            for written in versions.clone().map(|entry| entry.sequence) {
                for sequence in [written.saturating_sub(1), written, written + 1] {
                    let sequence = sequence.min(MAX_SEQUENCE);
                    let version = table.at(sequence).get(user_key).unwrap();
                    assert_eq!(version, visible_at(sequence), "{} at {sequence}", context());
                }
            }

            let absent = [&user_key[..], b"\0"].concat();
            if !entries.iter().any(|entry| entry.user_key == absent) {
                assert_eq!(
                    table.get(&absent).unwrap(),
                    None,
                    "{}",
                    absent.escape_ascii()
                );
            }
        }
    }
}

/// Compares with LevelDB's own lookups, made while it held the snapshots, not with the list of entries.
#[test]
fn lookups_return_what_the_database_returned() {
    for (golden, _) in database_tables()
        .iter()
        .filter(|(golden, _)| golden.from_database)
    {
        let table = open_database_table(golden);
        let lookups = tsv(&golden.file.replace(".ldb", ".lookups.tsv"));
        assert!(!lookups.is_empty());
        for row in lookups {
            let [sequence, user_key, answer, value] = row.as_slice() else {
                panic!("a line of the wrong length: {row:?}");
            };
            let expected = (answer == "found").then(|| unhex(value));
            let version = table
                .at(sequence.parse().unwrap())
                .get(unhex(user_key))
                .unwrap();
            // A deletion is the same to a database's user.
            let seen = version.and_then(Version::into_value);
            assert_eq!(
                seen.as_deref(),
                expected.as_deref(),
                "{}: {row:?}",
                golden.file
            );
        }
    }
}

#[test]
fn database_tables_are_rebuilt_through_their_own_writer() {
    let mut rebuilt_tables = 0;
    for (golden, entries) in database_tables() {
        if golden.snappy || !matches!(golden.filter, Filter::None | Filter::Bloom) {
            continue;
        }
        // User keys are all that comparator and filter policy are concerned with here.
        let options = if golden.reverse {
            golden.block_options().comparator(ReverseBytewiseComparator)
        } else {
            golden.block_options()
        };
        let options = match golden.filter {
            Filter::None => options.no_filter(),
            _ => options.filter_policy(BloomFilterPolicy::new(golden.bits_per_key)),
        };
        let mut rebuilt = Vec::new();
        let mut builder = options.build_db(&mut rebuilt);
        for DbEntry {
            user_key,
            sequence,
            version,
            ..
        } in &entries
        {
            match version {
                Version::Value(value) => builder.put(user_key, *sequence, value).unwrap(),
                _ => builder.delete(user_key, *sequence).unwrap(),
            }
        }
        builder.finish().unwrap();
        assert!(rebuilt == golden.bytes(), "{}", golden.file);
        rebuilt_tables += 1;
    }
    assert!(rebuilt_tables > 5, "{rebuilt_tables}");
}

#[test]
fn a_database_table_opened_as_a_plain_one_is_refused_with_advice() {
    for (golden, _) in database_tables() {
        let Err(error) = Table::open(testdata(&golden.file)) else {
            panic!("{} was opened", golden.file);
        };
        // In another order than the default, that is what shows first.
        let advice = if golden.reverse {
            "comparator"
        } else {
            "DbTable"
        };
        assert!(
            error.to_string().contains(advice),
            "{}: {error}",
            golden.file
        );
    }
}

// ---- Filters by themselves ------------------------------------------------------------------

#[test]
fn bloom_filters_are_leveldbs_bit_for_bit() {
    let rows = tsv("bloom.tsv");
    assert!(rows.len() > 100);
    for row in rows {
        let [bits_per_key, count, keys, filter] = row.as_slice() else {
            panic!("a line of the wrong length: {row:?}");
        };
        // No key, and the empty key alone, look the same in hexadecimal.
        let keys: Vec<_> = keys
            .split(',')
            .map(unhex)
            .take(count.parse().unwrap())
            .collect();
        let policy = BloomFilterPolicy::new(bits_per_key.parse().unwrap());
        let mut made = b"what was there before".to_vec();
        let mut builder = policy.builder();
        keys.iter().for_each(|key| builder.add_key(key));
        builder.finish(&mut made);
        let made = made
            .strip_prefix(b"what was there before")
            .expect("only ever appends");
        assert_eq!(made, unhex(filter), "{row:?}");
        for key in &keys {
            assert!(policy.key_may_match(key, made), "{row:?}");
        }
    }
}

#[test]
fn bloom_verdicts_are_leveldbs_false_positives_and_odd_filters_included() {
    let rows = tsv("bloom_verdicts.tsv");
    assert!(rows.len() > 100);
    for verdict in ["yes", "no"] {
        assert!(rows.iter().filter(|row| row[2] == verdict).count() > 20);
    }
    // Bits per key are for making a filter; one that is there says itself how to be asked.
    let policy = BloomFilterPolicy::new(10);
    for row in rows {
        let [filter, key, verdict] = row.as_slice() else {
            panic!("a line of the wrong length: {row:?}");
        };
        assert_eq!(
            policy.key_may_match(&unhex(key), &unhex(filter)),
            verdict == "yes",
            "{row:?}"
        );
    }
}

// ---- This crate's own order of the parts ----------------------------------------------------

/// The table that this crate writes by default, byte for byte, as the documentation of the format says: here written out by hand
/// (the filter's bits by a Python program that follows LevelDB's definition).
#[test]
fn a_table_with_properties_is_written_as_documented() {
    let mut builder = WriteOptions::new()
        .compression(Compression::None)
        .filter_policy(BloomFilterPolicy::new(10))
        .whole_table_filter(false)
        .build(Vec::new());
    builder.add("apple", "red").unwrap();
    builder.add("apricot", "orange").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();

    let restart = [0, 0, 0, 0, 1, 0, 0, 0];
    // The data block of the worked example.
    let data = [b"\x00\x05\x03applered\x02\x05\x06ricotorange", &restart[..]].concat();
    // One filter for the first 2 KiB of the file: 64 bits, six probes. Where it begins, where that array begins, 11.
    let filter = unhex("40050000a002c00f06");
    let filter = [&filter[..], &[0, 0, 0, 0, 9, 0, 0, 0, 11]].concat();
    let properties: [(&str, &[u8]); 12] = [
        ("comparator", b"leveldb.BytewiseComparator"),
        ("creator", b"leveltable 0.1.0"),
        ("data.blocks", &[1]),
        ("data.bytes", &[38]),
        ("entries", &[2]),
        ("filter.bytes", &[18]),
        ("filter.policy", b"leveldb.BuiltinBloomFilter2"),
        ("key.bytes", &[12]),
        ("key.first", b"apple"),
        ("key.kind", b"plain"),
        ("key.last", b"apricot"),
        ("value.bytes", &[9]),
    ];
    let properties = properties.map(|(name, value)| (name.into(), value.to_vec()));
    // "b", the successor of "apricot": 33 bytes at 0.
    let index = [b"\x00\x01\x02b\x00\x21", &restart[..]].concat();

    // The index has one piece, all of its entries: six bytes, one entry, whose handle is 33 bytes at 0.
    let crc = crc32c::crc32c(b"\x00\x01\x02b\x00\x21").to_le_bytes();
    let top = (b"b".to_vec(), [&[6, 1, 0, 33], &crc[..]].concat());
    // Version 1, no filter, the index of 14 bytes at 38.
    let pieces = [vec![1, 0, 38, 14], common::block(&[top])].concat();

    let mut expected = Vec::new();
    assert_eq!(common::append(&mut expected, &data), 0..38);
    assert_eq!(expected[33..], unhex("00e07fd992"), "as in the example");
    let index = common::append(&mut expected, &index);
    assert_eq!(index, 38..57);
    assert_eq!(expected[index.end - 5..], unhex("00cc693031"), "as there");
    assert_eq!(common::append(&mut expected, &filter), 57..80);
    let properties = common::append(&mut expected, &common::block(&properties));
    assert_eq!(properties.start, 80);
    let pieces = common::append(&mut expected, &pieces);
    assert_eq!(pieces.start, properties.end);
    let metaindex = [
        b"\x00\x10\x03about.leveltable",
        &common::handle_of(&properties)[..],
        b"\x06\x06\x03pieces",
        &common::handle_of(&pieces)[..],
        b"\x00\x22\x02filter.leveldb.BuiltinBloomFilter2\x39\x12",
        &restart[..],
    ];
    let metaindex = common::append(&mut expected, &metaindex.concat());
    assert_eq!(metaindex.start, pieces.end);
    expected.extend(common::footer(&metaindex, &index));
    assert_eq!(file, expected);

    // Without properties, the order is LevelDB's.
    let mut builder = WriteOptions::new()
        .compression(Compression::None)
        .no_filter()
        .properties(false)
        .build(Vec::new());
    builder.add("apple", "red").unwrap();
    builder.add("apricot", "orange").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let mut expected = expected[..38].to_vec();
    assert_eq!(common::append(&mut expected, &common::block(&[])), 38..51);
    let index = [b"\x00\x01\x02b\x00\x21", &restart[..]].concat();
    assert_eq!(common::append(&mut expected, &index), 51..70);
    expected.extend(common::footer(&(38..51), &(51..70)));
    assert_eq!(file, expected);
}

/// All parts, in their order and without gaps. LevelDB's preset keeps LevelDB's order, whatever it is given.
#[test]
fn parts_come_in_the_order_of_the_documentation() {
    use common::Layout;
    use leveltable::filter::FixedPrefix;
    let entries: Vec<Entry> = (0..500u32)
        .map(|i| (format!("key{i:04}").into_bytes(), vec![b'v'; 50]))
        .collect();
    let both = |options: WriteOptions| options.prefix_filter(FixedPrefix::new(4));
    for (options, index_first) in [
        (both(WriteOptions::new()), true),
        (WriteOptions::new().no_filter(), true),
        (both(WriteOptions::leveldb().properties(true)), true),
        (both(WriteOptions::leveldb()), false),
        (both(WriteOptions::new().properties(false)), false),
    ] {
        let file = common::build(&options, &entries);
        let layout = Layout::of(&file);
        let mut end = layout.data.last().unwrap().end;
        let (metaindex, index) = (Some(layout.metaindex), Some(layout.index));
        assert_eq!(layout.properties.is_some(), index_first);
        assert_eq!(layout.pieces.is_some(), index_first);
        let (first, last) = if index_first {
            (index, None)
        } else {
            (None, index)
        };
        let filters = [layout.prefixes, layout.filter];
        let named = [layout.properties, layout.pieces, metaindex, last];
        for part in [first].into_iter().chain(filters).chain(named).flatten() {
            assert_eq!(part.start, end);
            end = part.end;
        }
        assert_eq!(layout.footer, end..file.len());
    }
}

/// The bytes of the worked example in `docs/format.md`, each line at its offset.
fn documented_table() -> Vec<u8> {
    let text = include_str!("../../docs/format.md");
    // Before the logs, which come last and have an example of their own.
    let tables = text.split("\n## Logs").next().unwrap();
    let example = tables.split("```text").last().unwrap();
    let mut bytes = Vec::new();
    for line in example.split("```").next().unwrap().lines().skip(1) {
        let (offset, rest) = line.trim().split_once("  ").unwrap();
        assert_eq!(offset.parse(), Ok(bytes.len()), "{line}");
        if let Some((_, times)) = rest.split_once("(") {
            let times: usize = times.split_once(" times)").unwrap().0.parse().unwrap();
            bytes.resize(bytes.len() + times, 0);
            continue;
        }
        // Four spaces or more before the explanation.
        let shown = rest.split("    ").next().unwrap();
        let mut quoted = false;
        for part in shown.split('"') {
            if quoted {
                bytes.extend(part.as_bytes());
            } else {
                bytes.extend(unhex(&part.replace(' ', "")));
            }
            quoted = !quoted;
        }
    }
    bytes
}

/// The worked example is the table that is written, and its pieces are described as specified: checked here with the ranges of the
/// text, and another crate's CRC.
#[test]
fn the_documented_table_is_the_one_that_is_written() {
    let documented = documented_table();
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(Vec::new());
    builder.add("apple", "red").unwrap();
    builder.add("apricot", "orange").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    assert_eq!(documented, file);
    let crc = |range: std::ops::Range<usize>| crc32c::crc32c(&file[range]).to_le_bytes();
    assert_eq!(file[436..440], crc(57..93), "words");
    assert_eq!(file[440..444], crc(93..94), "codes");
    assert_eq!(file[452..456], crc(38..44), "index");
    assert_eq!(file[417..436], file[94..113], "the end of the filter block");
    for part in [0..38, 38..57, 57..118, 118..409, 409..469, 469..546] {
        let mut sealed = file.clone();
        common::seal(&mut sealed, &part);
        assert_eq!(sealed, file, "{part:?}");
    }
}
