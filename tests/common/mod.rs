//! Shared by several tests: reading `testdata/`, building tables, and finding and forging a table's parts without the crate's help.

// Each test binary compiles this module for itself and uses its own share of it.
#![allow(dead_code)]

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use leveltable::filter::{FilterBuilder, FilterPolicy};
use leveltable::{
    BytewiseComparator, Comparator, Compression, Error, ReadAt, RibbonFilterPolicy, Section, Table,
    WriteOptions,
};

pub(crate) mod prefixes;
pub(crate) mod properties;

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// The default filter, by a name that only the caller knows.
#[derive(Debug, Clone)]
pub(crate) struct Renamed;

impl FilterPolicy for Renamed {
    fn name(&self) -> &str {
        "test.Renamed"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        RibbonFilterPolicy::new(10).builder()
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        RibbonFilterPolicy::new(10).key_may_match(key, filter)
    }
}

/// A source of which one byte cannot be read.
pub(crate) struct Hole(pub(crate) Bytes, pub(crate) usize);

impl ReadAt for Hole {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = offset as usize;
        if (start..start + len).contains(&self.1) {
            return Err(io::Error::other("a bad sector"));
        }
        Ok(self.0.slice(start..start + len))
    }
}

/// Asserts that the error of a byte that cannot be read says in which section it is. Tables of all kinds say the same.
pub(crate) fn assert_names_section(error: &Error, section: Section) {
    let words = format!("in the {section}: a bad sector");
    assert!(error.to_string().ends_with(&words), "{section}: {error}");
}

/// A table with several pieces of index and filter, its keys, and offsets of bytes in all of its parts.
pub(crate) fn table_with_holes() -> (Bytes, Vec<Vec<u8>>, Vec<usize>) {
    let entries = (0..20_000).map(|i| (format!("{i:08}").into_bytes(), vec![b'v'; 100]));
    let entries: Vec<Entry> = entries.collect();
    let options = WriteOptions::new().compression(Compression::None);
    let file = build(&options.block_size(256), &entries);
    let all = 0..file.len();
    let holes = all.clone().step_by(file.len() / 8);
    let holes = holes.chain(all.skip(2_200_000).step_by(10_000)).collect();
    (
        file.into(),
        entries.into_iter().map(|(key, _)| key).collect(),
        holes,
    )
}

/// A file of `testdata/`.
pub(crate) fn testdata(name: &str) -> PathBuf {
    root().join("testdata").join(name)
}

/// The root of the repository, whichever of its packages this is compiled in.
pub(crate) fn root() -> &'static Path {
    let mut directories = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    directories
        .find(|directory| directory.join("testdata").is_dir())
        .expect("a directory with testdata")
}

/// The entries of a table there, as C++ LevelDB's generator wrote them beside it: each string after its length in
/// four little-endian bytes.
pub(crate) fn read_entries(name: &str) -> Vec<Entry> {
    let bytes = fs::read(testdata(name)).unwrap();
    let mut rest = bytes.as_slice();
    let mut sized = || {
        let (size, after) = rest.split_first_chunk()?;
        let (string, after) = after.split_at(u32::from_le_bytes(*size) as usize);
        rest = after;
        Some(string.to_vec())
    };
    let mut entries = Vec::new();
    while let Some(key) = sized() {
        entries.push((key, sized().expect("a key without a value")));
    }
    entries
}

/// The table of `entries`, which are in order, in memory.
pub(crate) fn build(options: &WriteOptions, entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.build(&mut file);
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.finish().unwrap();
    file
}

/// Asserts that `table` holds `entries` and nothing else: both walks, and a lookup of each key.
pub(crate) fn assert_holds(table: &Table, entries: &[Entry]) {
    let owned = |entry: leveltable::Result<(bytes::Bytes, bytes::Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    assert!(table.iter().map(owned).eq(entries.iter().cloned()));
    let backward = table.iter().rev().map(owned);
    assert!(backward.eq(entries.iter().rev().cloned()));
    for (key, value) in entries {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Where the parts of a table lie in its file, each with its trailer.
///
/// Decoded from the specification, with none of the crate's code, and with none of its care: for sound
/// files only.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) data: Vec<Range<usize>>,
    pub(crate) filter: Option<Range<usize>>,
    pub(crate) prefixes: Option<Range<usize>>,
    pub(crate) properties: Option<Range<usize>>,
    pub(crate) pieces: Option<Range<usize>>,
    pub(crate) metaindex: Range<usize>,
    pub(crate) index: Range<usize>,
    pub(crate) footer: Range<usize>,
}

impl Layout {
    pub(crate) fn of(file: &[u8]) -> Layout {
        let footer = file.len() - 48..file.len();
        let mut handles = &file[footer.clone()];
        let metaindex = take_handle(&mut handles);
        let index = take_handle(&mut handles);
        let named = entries(&payload(file, &metaindex));
        let find = |prefix: &str| {
            let mut named = named.iter();
            let found = named.find(|(name, _)| name.starts_with(prefix.as_bytes()));
            found.map(|(_, value)| take_handle(&mut &value[..]))
        };
        let names = [
            "filter.",
            "about.prefixes.",
            "about.leveltable",
            "about.pieces",
        ];
        let [filter, prefixes, properties, pieces] = names.map(find);
        let data = entries(&payload(file, &index))
            .into_iter()
            .map(|(_, value)| take_handle(&mut &value[..]));
        Layout {
            data: data.collect(),
            filter,
            prefixes,
            properties,
            pieces,
            metaindex,
            index,
            footer,
        }
    }

    /// The last key of each data block, in order.
    pub(crate) fn last_keys(&self, file: &[u8]) -> Vec<Vec<u8>> {
        let last = |block: &Range<usize>| Some(entries(&payload(file, block)).pop()?.0);
        self.data.iter().filter_map(last).collect()
    }

    /// The section that the byte at `offset` belongs to, and where its block begins.
    pub(crate) fn section_at(&self, offset: usize) -> (Section, usize) {
        let data = self.data.iter().map(|range| (Section::Data, range));
        let filter = self.filter.iter().chain(&self.prefixes);
        let filter = filter.map(|range| (Section::Filter, range));
        let properties = self.properties.iter();
        let properties = properties.map(|range| (Section::Properties, range));
        let rest = [
            (Section::Metaindex, &self.metaindex),
            (Section::Index, &self.index),
            (Section::Footer, &self.footer),
        ];
        let pieces = self.pieces.iter().map(|range| (Section::Pieces, range));
        let named = filter.chain(properties).chain(pieces);
        let mut sections = data.chain(named).chain(rest);
        let (section, range) = sections
            .find(|(_, range)| range.contains(&offset))
            .expect("a table has no gaps");
        (section, range.start)
    }
}

/// Decodes the entries of a block's payload, in the plainest way.
pub(crate) fn entries(block: &[u8]) -> Vec<Entry> {
    let (rest, count) = block.split_last_chunk().unwrap();
    let mut rest = &rest[..rest.len() - 4 * u32::from_le_bytes(*count) as usize];
    let mut entries = Vec::new();
    let mut key = Vec::new();
    while !rest.is_empty() {
        let [shared, unshared, value_len] = [(); 3].map(|()| take_varint(&mut rest));
        key.truncate(shared);
        key.extend_from_slice(&rest[..unshared]);
        entries.push((key.clone(), rest[unshared..unshared + value_len].to_vec()));
        rest = &rest[unshared + value_len..];
    }
    entries
}

/// The block in the frame at `range` of `file`.
pub(crate) fn payload(file: &[u8], range: &Range<usize>) -> Vec<u8> {
    let (stored, trailer) = file[range.clone()].split_at(range.len() - 5);
    match trailer[0] {
        0 => stored.to_vec(),
        1 => snap::raw::Decoder::new().decompress_vec(stored).unwrap(),
        codec => panic!("codec {codec}"),
    }
}

/// Takes a block handle off the front of `src`; returns the range of the frame.
fn take_handle(src: &mut &[u8]) -> Range<usize> {
    let (offset, size) = (take_varint(src), take_varint(src));
    offset..offset + size + 5
}

/// Takes a varint off the front of `src`.
pub(crate) fn take_varint(src: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = src.split_first().unwrap();
        *src = rest;
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// `n` as a varint.
pub(crate) fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// The handle of the frame at `range`, encoded.
pub(crate) fn handle_of(range: &Range<usize>) -> Vec<u8> {
    [varint(range.start as u64), varint(range.len() as u64 - 5)].concat()
}

/// A block in which each key is stored whole.
pub(crate) fn block(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut restarts = Vec::new();
    for (key, value) in entries {
        restarts.push(bytes.len() as u32);
        bytes.extend(
            [
                vec![0],
                varint(key.len() as u64),
                varint(value.len() as u64),
            ]
            .concat(),
        );
        bytes.extend(key);
        bytes.extend(value);
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    let count = restarts.len() as u32;
    restarts.push(count);
    bytes.extend(restarts.iter().flat_map(|n| n.to_le_bytes()));
    bytes
}

/// Gives the frame at `range` its right checksum.
pub(crate) fn seal(file: &mut [u8], range: &Range<usize>) {
    let (covered, crc) = file[range.clone()].split_at_mut(range.len() - 4);
    let masked = crc32c::crc32c(covered)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8);
    crc.copy_from_slice(&masked.to_le_bytes());
}

/// Appends a block to `file`, stored raw. Returns where its frame is.
pub(crate) fn append(file: &mut Vec<u8>, block: &[u8]) -> Range<usize> {
    let range = file.len()..file.len() + block.len() + 5;
    file.extend(block);
    file.resize(range.end, 0);
    seal(file, &range);
    range
}

/// Appends metaindex, index and footer to a file that holds the rest of a table.
pub(crate) fn append_end(mut file: Vec<u8>, metaindex: &[Entry], index: &[u8]) -> Vec<u8> {
    let metaindex = append(&mut file, &block(metaindex));
    let index = append(&mut file, index);
    file.extend(footer(&metaindex, &index));
    file
}

/// The footer that leads to the frames at `metaindex` and `index`.
pub(crate) fn footer(metaindex: &Range<usize>, index: &Range<usize>) -> Vec<u8> {
    let mut footer = [handle_of(metaindex), handle_of(index)].concat();
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    footer
}

/// `file`, and the same table with the index last, as LevelDB has it, and without `about.pieces`, if `file` has it otherwise.
pub(crate) fn in_both_orders(file: &[u8]) -> Vec<Vec<u8>> {
    let layout = Layout::of(file);
    let mut orders = vec![file.to_vec()];
    if layout.index.start < layout.metaindex.start {
        let data_end = layout.data.last().map_or(0, |last| last.end);
        let mut reordered = file[..data_end].to_vec();
        let mut append = |part: &Range<usize>| {
            let start = reordered.len();
            reordered.extend(&file[part.clone()]);
            start..reordered.len()
        };
        let named = entries(&payload(file, &layout.metaindex)).into_iter();
        let mut named: Vec<_> = named
            .filter(|(name, _)| name != b"about.pieces")
            .map(|(name, handle)| (name, take_handle(&mut &handle[..])))
            .collect();
        named.sort_by_key(|(_, part)| part.start);
        let mut named: Vec<Entry> = named
            .into_iter()
            .map(|(name, part)| (name, handle_of(&append(&part))))
            .collect();
        named.sort();
        let index = append(&layout.index);
        let index = reordered.split_off(index.start);
        let at = reordered.len();
        let metaindex = self::append(&mut reordered, &block(&named));
        assert_eq!(metaindex.start, at);
        reordered.extend(&index);
        let index = metaindex.end..reordered.len();
        reordered.extend(footer(&metaindex, &index));
        orders.push(reordered);
    }
    orders
}

/// An order that is not the bytewise one: descending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

/// The bytewise order of keys of eight bytes. Asking about any other key is a mistake.
#[derive(Debug)]
pub(crate) struct EightBytes;

impl Comparator for EightBytes {
    fn name(&self) -> &str {
        "test.EightBytes"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        assert_eq!((a.len(), b.len()), (8, 8), "not a key of this order");
        a.cmp(b)
    }
}

/// The bytewise order, by way of the trait: counts its comparisons, and the bytes that it is given.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) comparisons: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Comparator for Counting {
    fn name(&self) -> &str {
        BytewiseComparator.name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        self.comparisons.fetch_add(1, Relaxed);
        self.bytes.fetch_add((a.len() + b.len()) as u64, Relaxed);
        a.cmp(b)
    }
}

/// Pseudo-random numbers from a seed (SplitMix64), where a property test would be too slow.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Counts the reads of a source, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct CountingReadAt<R> {
    inner: R,
    reads: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
}

impl<R: ReadAt> CountingReadAt<R> {
    /// Wraps `inner`, counting from zero.
    pub(crate) fn new(inner: R) -> CountingReadAt<R> {
        CountingReadAt {
            inner,
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// Number of reads so far, failed ones included: calls of `read_at`, and parts that `read_many_at` was asked for.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Number of calls of `read_many_at` so far.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Number of bytes asked for so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl<R: ReadAt> ReadAt for CountingReadAt<R> {
    fn size(&self) -> std::io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len as u64, Relaxed);
        self.inner.read_at(offset, len)
    }

    fn read_many_at(
        &self,
        parts: &[(u64, usize)],
        each: &mut dyn FnMut(usize, std::io::Result<Bytes>),
    ) {
        let bytes = parts.iter().map(|&(_, len)| len as u64).sum();
        self.batches.fetch_add(1, Relaxed);
        self.reads.fetch_add(parts.len() as u64, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.inner.read_many_at(parts, each);
    }
}
