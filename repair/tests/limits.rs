//! Memory is bounded by the size of the file, whatever the file claims.
//!
//! # The bounds, and where they come from
//!
//! Let `s` be the size of the file. First, for the codecs of the default build.
//!
//! A **block** decompresses to `64/3 s` at most, since no Snappy element makes more than 64 bytes from its three,
//! and a claim of more is refused before anything is allocated. With its frame beside it that is
//! `22.4 s`: the cost of a lookup, below [`LOOKUP`]. The first one in a block checks the order of its keys, and puts together a key
//! that shares bytes with the key before: `64/3 s` at most, in a vector that doubles beside its old memory, so that a file
//! of such keys ([`SHARED_KEY`]) may take [`SPLICED`] more.
//!
//! **Opening** decompresses the index. One that shares prefixes is stored again with its keys whole, which is
//! refused beyond `32 s`; while a vector grows to that, its old and its new memory exist side by side, three times as
//! much. With the block it is made from that is `22.4 s + 96 s`: below [`OPENING`]. Handles must lie in the file's
//! order without overlap, in 5 bytes of file each at least, and 23 bytes are kept of each: below `5 s`. What
//! stays, these, the index and a filter (`22.4 s`), is below [`OPEN`].
//!
//! **Walking backward** logs how to step back for each entry since the last restart: 20 bytes for an entry
//! that takes 3 in the block, where all keys are empty. `64/3 s` of such entries make `142 s`, in a
//! vector that doubles: 284 beside 142 of its old memory. With the block: [`WALKING`].
//!
//! **Verifying** reads by handles no more than twice the file in all. What it holds of that at once, index, filters and
//! a data block, is `2 * 21.4 s` at most; a key may be as large as its block, and there are four
//! of it, one of them in a vector that doubles: `6 * 21.4 s`. With 24 bytes for each block of 5 bytes or more:
//! below [`VERIFYING`]. A second vector may double if a key shares a long one ([`SHARED_KEY`], 191 `s`); index and filters are
//! small then.
//!
//! **Salvaging** holds the same, a second data block to look ahead, and tables for a
//! search in windows of 4 MiB, which do not depend on the file: below [`SALVAGING`] and [`WINDOWS`]. The new
//! table is the builder's business. (It keeps a key of each new block, and keys unfold there that shared
//! prefixes: of [`SHARED_KEY`] a block of both keys, twice [`SPLICED`] more.)
//!
//! # With the features `zlib` and `zstd`
//!
//! Let `d` be the most that a block decompresses to. Deflate, with or without zlib around it, makes 258 bytes from two
//! bits at best: `d = 1032 s`. It does not say how much, so memory grows by doubling: `3 d` while it does.
//! Zstandard repeats 128 KiB by four bytes, so that blocks of a few megabytes are honest in whatever size: up to
//! 16 MiB are allowed, and beyond that as much as for deflate: `d = 1032 s + 16 MiB`.
//!
//! Above, `d` is `64/3 s` with the same factors: a lookup takes `3 d` and the frame; opening an index of `d`, its entries
//! at 24 bytes for 7 of it, and `96 s`; walking backward 20 `d` and the block; verifying the six blocks at
//! once (index, metaindex, data, a filter for each of three policies), of which one grows, and six keys. The index of a
//! salvaged table may hold keys of `64 s + 1 MiB`. See [`Bounds`].
//!
//! # Time
//!
//! Keys that share long prefixes may be the square of their block: a block whose keys take more than 64 MiB and 256 times the
//! block together does not open.
//!
//! The tests measure each with a counting allocator on files made to be as bad as can be, and do all of it once more
//! (without the bombs of features' codecs) in a child process whose address space is limited.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use common::{Counting, handle_of, varint};
use leveltable::{OpenOptions, Source, Table, WriteOptions};
use leveltable_repair::{SalvageOptions, VerifyOptions, blocks, salvage, verify};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The bounds of the default build, in multiples of the file's size.
const OPENING: usize = 128;
const OPEN: usize = 64;
const LOOKUP: usize = 32;
const SPLICED: usize = 64;
const WALKING: usize = 512;
const VERIFYING: usize = 192;
const SALVAGING: usize = 256;

/// The file whose second key is as long as its block, and stored as a byte after all of the first.
const SHARED_KEY: &str = "a long key that is shared";

/// Of a feature's codec: what a block may decompress to in any case, and in multiples of its payload.
const ZSTD_FREE: usize = 16 << 20;
const DEFLATE: usize = 1032;

/// The bounds for one file, in bytes.
struct Bounds {
    opening: usize,
    open: usize,
    lookup: usize,
    walking: usize,
    verifying: usize,
    /// Beside [`windows`].
    salvaging: usize,
}

impl Bounds {
    /// For the file called `name`, of `size` bytes, whose blocks are of type `codec`.
    fn of(codec: Codec, name: &str, size: usize) -> Bounds {
        let spliced = if name == SHARED_KEY { SPLICED } else { 0 };
        let d = match codec {
            Codec::Default => {
                return Bounds {
                    opening: OPENING * size + CONSTANT,
                    open: OPEN * size + CONSTANT,
                    lookup: (LOOKUP + spliced) * size + CONSTANT,
                    walking: WALKING * size + CONSTANT,
                    verifying: VERIFYING * size + CONSTANT,
                    salvaging: (SALVAGING + 2 * spliced) * size + CONSTANT,
                };
            }
            Codec::Deflate | Codec::Zlib => DEFLATE * size,
            Codec::Zstd => DEFLATE * size + ZSTD_FREE,
        };
        Bounds {
            opening: 5 * d + 100 * size + CONSTANT,
            open: 2 * d + 40 * size + CONSTANT,
            lookup: 4 * d + CONSTANT,
            walking: 24 * d + CONSTANT,
            verifying: 14 * d + CONSTANT,
            salvaging: 14 * d + 2 * (64 * size + (1 << 20)) + CONSTANT,
        }
    }
}

/// The codec of a file's blocks: none or Snappy, or a feature's.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(not(all(feature = "zlib", feature = "zstd")), allow(dead_code))]
enum Codec {
    Default,
    Zlib,
    Deflate,
    Zstd,
}

impl Codec {
    /// The type byte of its frames.
    fn type_byte(self) -> u8 {
        match self {
            Codec::Default => SNAPPY,
            Codec::Zlib | Codec::Zstd => 2,
            Codec::Deflate => 4,
        }
    }

    /// `block` as dense as it gets.
    #[cfg_attr(not(any(feature = "zlib", feature = "zstd")), allow(unused_variables))]
    fn compress(self, block: &[u8]) -> Vec<u8> {
        match self {
            #[cfg(feature = "zlib")]
            Codec::Zlib => {
                let level = flate2::Compression::best();
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(block).unwrap();
                encoder.finish().unwrap()
            }
            #[cfg(feature = "zlib")]
            Codec::Deflate => {
                let level = flate2::Compression::best();
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(block).unwrap();
                encoder.finish().unwrap()
            }
            #[cfg(feature = "zstd")]
            Codec::Zstd => zstd::bulk::compress(block, 1).unwrap(),
            _ => unreachable!("{self:?} is not in this build"),
        }
    }
}

/// Memory that does not depend on the file.
const CONSTANT: usize = 1 << 20;
const WINDOWS: usize = 128 << 20;
/// The largest window of a file that salvage searches at once.
const LARGEST_WINDOW: usize = 4 << 20;

/// Memory for the search of a file of `size` bytes: proportional to its window.
fn windows(size: usize) -> usize {
    WINDOWS / LARGEST_WINDOW * size.min(LARGEST_WINDOW)
}

// ---- Files made to be bad -------------------------------------------------------------------

fn handle(offset: u64, size: u64) -> Vec<u8> {
    [varint(offset), varint(size)].concat()
}

const RAW: u8 = 0;
const SNAPPY: u8 = 1;

/// A table put together from parts, each with the right checksum.
#[derive(Default)]
struct Forge(Vec<u8>);

impl Forge {
    fn frame(&mut self, payload: &[u8], codec: u8) -> Range<usize> {
        let start = self.0.len();
        self.0.extend(payload);
        self.0.push(codec);
        let crc = crc32c(&self.0[start..])
            .rotate_right(15)
            .wrapping_add(0xa282_ead8);
        self.0.extend(crc.to_le_bytes());
        start..self.0.len()
    }

    fn finish(mut self, metaindex: &[u8], index: &[u8]) -> Vec<u8> {
        let mut footer = [metaindex, index].concat();
        footer.resize(40, 0);
        footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
        self.0.extend(footer);
        self.0
    }
}

/// The checksum, bit by bit: nothing here relies on the crate under test, nor on the one that it uses.
fn crc32c(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|i| {
            (0..8).fold(i, |crc, _| {
                (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
            })
        })
        .collect();
    !bytes.iter().fold(!0, |crc, &byte| {
        (crc >> 8) ^ table[(crc as u8 ^ byte) as usize]
    })
}

/// Snappy data of `head`, `len` times the byte `fill`, and `tail`: 64 bytes from 3, as dense as it gets.
fn dense_snappy(head: &[u8], fill: u8, len: usize, tail: &[u8]) -> Vec<u8> {
    let literal = |bytes: &[u8]| {
        let len = bytes.len() as u16 - 1;
        [&[61 << 2], &len.to_le_bytes()[..], bytes].concat()
    };
    let mut data = varint((head.len() + len + tail.len()) as u64);
    data.extend(literal(&[head, &[fill]].concat()));
    let mut left = len - 1;
    while left > 0 {
        let copied = left.min(64);
        data.extend([(copied as u8 - 1) << 2 | 2, 1, 0]);
        left -= copied;
    }
    if !tail.is_empty() {
        data.extend(literal(tail));
    }
    data
}

fn entry(shared: u64, unshared: &[u8], value: &[u8]) -> Vec<u8> {
    let lengths = [
        varint(shared),
        varint(unshared.len() as u64),
        varint(value.len() as u64),
    ];
    [&lengths.concat(), unshared, value].concat()
}

fn restarts(restarts: &[u32], count: u32) -> Vec<u8> {
    let numbers = restarts.iter().chain([&count]);
    numbers.flat_map(|n| n.to_le_bytes()).collect()
}

/// A block with one restart.
fn block(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), restarts(&[0], 1)].concat()
}

/// A table around one data block.
fn around(payload: &[u8], codec: u8) -> Vec<u8> {
    let mut forge = Forge::default();
    let data = forge.frame(payload, codec);
    let metaindex = forge.frame(&block(&[]), RAW);
    let index = forge.frame(&block(&[entry(0, &[0xff; 20], &handle_of(&data))]), RAW);
    forge.finish(&handle_of(&metaindex), &handle_of(&index))
}

/// A table whose index is `payload`, after `data` bytes that its handles may claim.
fn indexed_by(data: usize, payload: &[u8], codec: u8) -> Vec<u8> {
    let mut forge = Forge(vec![0; data]);
    let metaindex = forge.frame(&block(&[]), RAW);
    let index = forge.frame(payload, codec);
    forge.finish(&handle_of(&metaindex), &handle_of(&index))
}

fn hostile_files(kib: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    // What `kib` KiB of Snappy data make, in whole entries of three bytes.
    let most = kib * 1024 / 9 * 64 * 3;
    let honest = |n: usize| {
        let mut file = Vec::new();
        let mut builder = WriteOptions::leveldb().build(&mut file);
        for i in 0..n {
            builder.add(format!("{i:08}").as_bytes(), b"value").unwrap();
        }
        builder.finish().unwrap();
        file
    };
    files.push(("an honest table", honest(kib * 60)));

    // Lengths that are claimed and not there.
    for claim in [u32::MAX as u64, 1 << 30] {
        let bomb = [varint(claim), vec![0, 0]].concat();
        files.push(("a data block that claims gigabytes", around(&bomb, SNAPPY)));
        files.push((
            "an index that claims gigabytes",
            indexed_by(100, &bomb, SNAPPY),
        ));
        let entries = [
            entry(0, b"key", &[]),
            [vec![0], varint(claim), vec![1, 2]].concat(),
        ];
        files.push(("a key that claims gigabytes", around(&block(&entries), RAW)));
        files.push((
            "an index key that claims gigabytes",
            indexed_by(9, &block(&entries), RAW),
        ));
        let entries = [
            entry(0, b"key", &[]),
            [varint(claim), vec![1, 0, 7]].concat(),
        ];
        files.push((
            "a shared prefix of gigabytes",
            around(&block(&entries), RAW),
        ));
        files.push((
            "an index prefix of gigabytes",
            indexed_by(9, &block(&entries), RAW),
        ));
    }
    for count in [u32::MAX, u32::MAX / 4, 1 << 28] {
        let lies = [entry(0, b"key", &[]), restarts(&[0], count)].concat();
        files.push(("restarts by the billion", around(&lies, RAW)));
        files.push(("index restarts by the billion", indexed_by(100, &lies, RAW)));
    }

    // As dense as Snappy gets.
    let end = restarts(&[0], 1);
    let empty_entries = dense_snappy(&[], 0, most, &end);
    files.push(("millions of empty entries", around(&empty_entries, SNAPPY)));
    let zeros = dense_snappy(&[], 0, most, &[]);
    files.push(("a block of nothing but zeros", around(&zeros, SNAPPY)));
    let head = [vec![0, 1], varint(most as u64), b"k".to_vec()].concat();
    let long_value = dense_snappy(&head, b'v', most, &end);
    files.push(("a long value", around(&long_value, SNAPPY)));
    let head = [vec![0], varint(most as u64), vec![0]].concat();
    let long_key = dense_snappy(&head, b'k', most, &end);
    files.push(("a long key", around(&long_key, SNAPPY)));
    let tail = [entry(most as u64, b"k", b""), end.clone()].concat();
    let shared_key = dense_snappy(&head, b'k', most, &tail);
    files.push((SHARED_KEY, around(&shared_key, SNAPPY)));
    let head = [vec![0], varint(most as u64), vec![2]].concat();
    let tail = [handle(0, 0), end.clone()].concat();
    let long_key = dense_snappy(&head, b'k', most, &tail);
    files.push((
        "an index of one long key",
        indexed_by(100, &long_key, SNAPPY),
    ));
    files.push((
        "an index of empty entries",
        indexed_by(100, &empty_entries, SNAPPY),
    ));

    // Index keys that unfold: each shares a long prefix with the one before and adds to the file's bytes only
    // a few of its own. In one, the last goes beyond the bound; in the other, all stay within.
    for (name, prefix, count) in [
        (
            "index keys that unfold to the square",
            300 * kib,
            500 * kib as u64 / 12,
        ),
        (
            "index keys that unfold as far as they may",
            480,
            45 * kib as u64,
        ),
    ] {
        let mut entries = vec![entry(0, &vec![b'k'; prefix], &handle(0, 0))];
        for i in 1..count {
            let (shared, own) = (prefix as u64, (i as u32).to_be_bytes());
            entries.push(entry(shared, &own, &handle(5 * i, 0)));
        }
        files.push((name, indexed_by(5 * count as usize, &block(&entries), RAW)));
    }

    // As many data blocks as fit, all of them empty.
    let count = 100 * kib as u64;
    let mut index = Vec::new();
    let mut starts = Vec::new();
    for i in 0..count {
        starts.push(index.len() as u32);
        index.extend(entry(0, &(i as u32).to_be_bytes(), &handle(5 * i, 0)));
    }
    index.extend(restarts(&starts, starts.len() as u32));
    files.push((
        "as many blocks as fit",
        indexed_by(5 * count as usize, &index, RAW),
    ));

    // Handles that overlap, point outside, and at each other.
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[entry(0, &vec![b'k'; kib * 700], b"")]), RAW);
    let entries: Vec<_> = (0..kib as u32 * 10)
        .map(|i| entry(0, &i.to_be_bytes(), &handle_of(&data)))
        .collect();
    let metaindex = forge.frame(&block(&[]), RAW);
    let index = forge.frame(&block(&entries), RAW);
    files.push((
        "ten thousand handles of one block",
        forge.finish(&handle_of(&metaindex), &handle_of(&index)),
    ));
    let huge = handle(u64::MAX - 3, u64::MAX);
    files.push(("handles outside of the file", {
        let mut forge = Forge::default();
        let index = forge.frame(&block(&[entry(0, b"k", &huge)]), RAW);
        forge.finish(&huge, &handle_of(&index))
    }));
    files.push((
        "a footer of impossible handles",
        Forge(vec![0; 1000]).finish(&huge, &huge),
    ));
    files.push(("metaindex and index are one", {
        let mut forge = Forge::default();
        let both = forge.frame(&empty_entries, SNAPPY);
        forge.finish(&handle_of(&both), &handle_of(&both))
    }));

    // A filter as dense as Snappy gets, under many names.
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[entry(0, b"k", b"v")]), RAW);
    let tail = [vec![0; 4], (most as u32).to_le_bytes().to_vec(), vec![63]].concat();
    let filter = forge.frame(&dense_snappy(&[], 0xff, most, &tail), SNAPPY);
    let mut names = vec![
        "filter.leveldb.BuiltinBloomFilter",
        "filter.leveldb.BuiltinBloomFilter2",
    ];
    let more: Vec<String> = (0..100).map(|i| format!("filter.x{i:03}")).collect();
    names.extend(more.iter().map(|name| &name[..]));
    let names: Vec<_> = names
        .iter()
        .map(|name| entry(0, name.as_bytes(), &handle_of(&filter)))
        .collect();
    let metaindex = forge.frame(&block(&names), RAW);
    let index = forge.frame(&block(&[entry(0, b"l", &handle_of(&data))]), RAW);
    files.push((
        "a filter of many names",
        forge.finish(&handle_of(&metaindex), &handle_of(&index)),
    ));

    // Names that are the square of the metaindex.
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[entry(0, b"k", b"v")]), RAW);
    let long = [b"filter.", &vec![b'n'; kib * 512][..]].concat();
    let mut names = vec![entry(0, &long, &handle_of(&data))];
    let more = (0..kib as u32 * 40).map(|i| i.to_be_bytes());
    names.extend(more.map(|end| entry(long.len() as u64, &end, &handle_of(&data))));
    let metaindex = forge.frame(&block(&names), RAW);
    let index = forge.frame(&block(&[entry(0, b"l", &handle_of(&data))]), RAW);
    files.push((
        "filters whose names are the square of their block",
        forge.finish(&handle_of(&metaindex), &handle_of(&index)),
    ));

    // A large block that salvage may find time and again: frames within frames.
    let mut nested = Forge::default();
    for _ in 0..200 {
        let inner = std::mem::take(&mut nested.0);
        nested.frame(&block(&[entry(0, b"k", &inner)]), RAW);
    }
    nested.0.resize(kib * 1024, 0);
    files.push(("frames within frames", nested.0));
    files.push(("zeros", vec![0; kib * 1024]));
    files
}

/// The codecs of this build that need a feature; none in a build without features.
fn codecs() -> Vec<Codec> {
    vec![
        #[cfg(feature = "zlib")]
        Codec::Zlib,
        #[cfg(feature = "zlib")]
        Codec::Deflate,
        #[cfg(feature = "zstd")]
        Codec::Zstd,
    ]
}

/// Files whose blocks make `most` bytes of a thousandth of it, or less.
fn bombs(codec: Codec) -> Vec<(&'static str, Vec<u8>)> {
    // All that Zstandard has for free: so a few hundred bytes make it. What deflate makes goes by the payload.
    let most = match codec {
        Codec::Zstd if !cfg!(debug_assertions) => ZSTD_FREE,
        _ => 2 << 20,
    };
    let byte = codec.type_byte();
    let dense = |head: &[u8], fill: u8, tail: &[u8]| {
        let filling = vec![fill; most - head.len() - tail.len()];
        codec.compress(&[head, &filling, tail].concat())
    };
    let end = restarts(&[0], 1);
    let key_of = |len: usize, value: &[u8]| {
        let lengths = [vec![0], varint(len as u64), varint(value.len() as u64)].concat();
        dense(&lengths, b'k', &[value, &end].concat())
    };
    let key_len = most - 40;
    // What the lengths say and what fills the block must agree, to the byte.
    let exact = |value: &[u8]| {
        let lengths = |len: usize| {
            let lengths = [vec![0], varint(len as u64), varint(value.len() as u64)].concat();
            lengths.len() + len + value.len() + end.len()
        };
        (key_len..most).find(|&len| lengths(len) == most).unwrap()
    };
    let mut files = Vec::new();

    // Whole entries of three bytes.
    let zeros = vec![0; (most - end.len()) / 3 * 3];
    let empty_entries = codec.compress(&[zeros, end.clone()].concat());
    files.push(("millions of empty entries", around(&empty_entries, byte)));
    files.push((
        "an index of empty entries",
        indexed_by(100, &empty_entries, byte),
    ));
    files.push((
        "a block of nothing but zeros",
        around(&dense(&[], 0, &[]), byte),
    ));
    files.push(("a long key", around(&key_of(exact(b""), b""), byte)));
    let value = handle(0, 0);
    files.push((
        "an index of one long key",
        indexed_by(100, &key_of(exact(&value), &value), byte),
    ));

    // A payload that is cut: all of it was decompressed when that shows.
    let cut = &empty_entries[..empty_entries.len() - 3];
    files.push(("a payload that ends early", around(cut, byte)));

    // A filter, under the names of all policies and time and again under one.
    let filter_len = most as u32 - 9;
    let tail = [vec![0; 4], filter_len.to_le_bytes().to_vec(), vec![63]].concat();
    let filter = dense(&[], 0xff, &tail);
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[entry(0, b"k", b"v")]), RAW);
    let mut names = Vec::new();
    let policies = ["BuiltinBloomFilter", "BuiltinBloomFilter2"];
    for policy in policies.iter().chain(&["BuiltinBloomFilter2"; 60]) {
        let filter = forge.frame(&filter, byte);
        let name = format!("filter.leveldb.{policy}");
        names.push(entry(0, name.as_bytes(), &handle_of(&filter)));
    }
    let metaindex = forge.frame(&block(&names), RAW);
    let index = forge.frame(&block(&[entry(0, b"l", &handle_of(&data))]), RAW);
    files.push((
        "filters under one name",
        forge.finish(&handle_of(&metaindex), &handle_of(&index)),
    ));

    // Blocks of one key each, and of an index each, with and without an index that leads to them.
    for (name, value) in [
        ("blocks of one long key", Vec::new()),
        ("blocks that could be an index", handle(0, 0)),
    ] {
        let len = exact(&value);
        for with_index in [true, false] {
            let mut forge = Forge::default();
            let mut entries = Vec::new();
            for i in 0..20u8 {
                let lengths = [vec![0], varint(len as u64), varint(value.len() as u64)].concat();
                let head = [lengths, vec![b'a' + i % 26, b'a' + i / 26]].concat();
                let payload = dense(&head, b'k', &[&value[..], &end].concat());
                let frame = forge.frame(&payload, byte);
                entries.push(entry(0, &[i], &handle_of(&frame)));
            }
            if with_index {
                let metaindex = forge.frame(&block(&[]), RAW);
                let index = forge.frame(&block(&entries), RAW);
                files.push((
                    name,
                    forge.finish(&handle_of(&metaindex), &handle_of(&index)),
                ));
            } else {
                files.push((name, forge.0));
            }
        }
    }

    // Lengths that are claimed and not there, of Zstandard: 4 GiB - 1, and 2^40.
    if codec == Codec::Zstd {
        for claim in [
            &[0xa0, 0xff, 0xff, 0xff, 0xff][..],
            &[0xe0, 0, 0, 0, 0, 0, 1, 0, 0],
        ] {
            let bomb = [&[0x28, 0xb5, 0x2f, 0xfd], claim, &[1, 0, 0]].concat();
            files.push(("a data block that claims gigabytes", around(&bomb, byte)));
            files.push((
                "an index that claims gigabytes",
                indexed_by(100, &bomb, byte),
            ));
        }
    }
    files
}

// ---- Measuring ------------------------------------------------------------------------------

/// One at a time: the allocator counts for the whole process.
static MEASURING: Mutex<()> = Mutex::new(());

/// The most memory that `run` has in use beyond what there was before, and what stays with its result.
fn measure<R>(run: impl FnOnce() -> R) -> (usize, usize, R) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let result = run();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    let kept = MEMORY.current_usage().saturating_sub(before);
    (peak, kept, result)
}

/// Returns the multiple of the file's size where more than a constant was used.
#[track_caller]
fn assert_within(used: usize, bound: usize, file: &[u8], what: &str) -> usize {
    let times = used / file.len().max(1);
    assert!(
        used <= bound,
        "{what} took {used} bytes, {times} times the file's {}; the bound is {bound}",
        file.len()
    );
    if used > CONSTANT { times } else { 0 }
}

fn options() -> OpenOptions {
    OpenOptions::new().no_cache()
}

#[test]
fn memory_is_bounded_by_the_size_of_the_file() {
    let _alone = MEASURING.lock().unwrap();
    println!("{FIGURES}");
    // More than what counts as small, and more again where optimisation makes that bearable.
    let larger = if cfg!(debug_assertions) { 70 } else { 300 };
    for kib in [20, larger] {
        for (name, file) in hostile_files(kib) {
            assert_bounded(Codec::Default, name, &file, !may_be_refused(name));
        }
    }
}

/// Tables of this crate and of LevelDB, small and large, read from files and from memory: when they were opened, when all of their
/// index and filters was read, and when threads used them.
#[test]
fn weight_is_what_the_allocator_says() {
    const TABLES: usize = 8;
    let _alone = MEASURING.lock().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let prefixes = WriteOptions::new().prefix_filter(leveltable::filter::FixedPrefix::new(4));
    let kinds = [
        ("ours", WriteOptions::new()),
        ("of small blocks", WriteOptions::new().block_size(512)),
        ("with prefixes", prefixes),
        ("without filter", WriteOptions::new().no_filter()),
        ("LevelDB's", WriteOptions::leveldb()),
    ];
    let mut worst = 0f64;
    for (name, write) in kinds {
        for entries in [1, 1_000, 20_000, 60_000] {
            let path = dir.path().join("table");
            let mut builder = write.create(&path).unwrap();
            for i in 0..entries {
                builder.add(format!("{i:016}"), [i as u8; 100]).unwrap();
            }
            builder.finish().unwrap();
            for loads in [false, true] {
                let open = || match loads {
                    true => options().open_source(Source::load(&path).unwrap()),
                    false => options().open(&path),
                };
                let file = if loads {
                    std::fs::read(&path).unwrap().len()
                } else {
                    0
                };
                lookup(&open().unwrap());
                let opened = || (0..TABLES).map(|_| open().unwrap()).collect::<Vec<_>>();
                let (_, kept, tables) = measure(opened);
                let weigh = || tables.iter().map(Table::weight).sum::<usize>();
                let off = |kept: usize, when: &str| {
                    let kept = kept - size_of_val(&tables[..]) - TABLES * file;
                    let off = weigh() as f64 / kept as f64 - 1.0;
                    println!(
                        "{name}, {entries} entries, loaded {loads}, {when}: {} bytes, {:+.1} %",
                        kept / TABLES,
                        100.0 * off
                    );
                    off.abs()
                };
                worst = worst.max(off(kept, "opened"));
                let (_, used, ()) = measure(|| {
                    for table in &tables {
                        for i in (0..entries).step_by(50) {
                            table.get(format!("{i:016}")).unwrap().unwrap();
                            table.prefix(format!("{i:016}")).next().unwrap().unwrap();
                        }
                    }
                });
                worst = worst.max(off(kept + used, "used"));
            }
        }
    }
    assert!(worst <= 0.03, "off by {:.1} %", 100.0 * worst);
}

/// The same with blocks of the codecs that need a feature: run with `--all-features`.
#[cfg(any(feature = "zlib", feature = "zstd"))]
#[test]
fn memory_is_bounded_with_every_codec() {
    let _alone = MEASURING.lock().unwrap();
    println!("{FIGURES}");
    for codec in codecs() {
        for (name, file) in bombs(codec) {
            println!("{codec:?}");
            // Some have no footer, for salvage to find their blocks.
            let is_table = file.ends_with(&0xdb47_7524_8b80_fb57u64.to_le_bytes());
            let must_open = is_table && !may_be_refused(name);
            assert_bounded(codec, name, &file, must_open);
        }
    }
}

/// Whether the file called `name` may be refused when it is opened. Of the others lookups and walks are measured, which
/// shows nothing if they do not open.
fn may_be_refused(name: &str) -> bool {
    let refused = [
        "an index that claims gigabytes",
        "an index key that claims gigabytes",
        "an index prefix of gigabytes",
        "index restarts by the billion",
        "an index of empty entries",
        "index keys that unfold to the square",
        "ten thousand handles of one block",
        "handles outside of the file",
        "a footer of impossible handles",
        "metaindex and index are one",
        "frames within frames",
        "zeros",
    ];
    refused.contains(&name)
}

fn misordered(table: &leveltable::Result<Table>) -> bool {
    let error = table.as_ref().err();
    error.is_some_and(|error| error.kind() == leveltable::ErrorKind::Comparator)
}

const FIGURES: &str = "multiples of the file's size: opening, open, lookup, forward and backward, these again without a check, verify";

fn assert_bounded(codec: Codec, name: &str, file: &[u8], must_open: bool) {
    let bounds = Bounds::of(codec, name, file.len());
    let source: bytes::Bytes = file.to_vec().into();
    let within = |used, bound, what: &str| {
        assert_within(used, bound, file, &format!("{codec:?}: {what} {name}"))
    };
    let mut figures = Vec::new();
    // Order is checked by lookups and walks, or, in a small file or if that is asked for, by opening.
    let is_small = file.len() <= 64 << 10;
    let checked = (!is_small).then(|| options().check_order(true));
    // A check refuses what cannot be read, too.
    let checked = checked.map(|options| (options, false));
    for (options, must_open) in [(options(), must_open)].into_iter().chain(checked) {
        let (peak, kept, table) = measure(|| options.open_source(source.clone()));
        figures.push(within(peak, bounds.opening, "opening"));
        figures.push(within(kept, bounds.open, "having open"));
        assert!(
            !must_open || table.is_ok() || misordered(&table),
            "{name} shows nothing if it does not open: {table:?}"
        );
        // Keys that do not ascend are refused. They can be walked.
        let table = table.or_else(|_| options.stored_order().open_source(source.clone()));
        let Ok(table) = table else {
            continue;
        };
        for (what, bound, read) in [
            ("a lookup in", bounds.lookup, lookup as fn(&Table)),
            ("walking forward", bounds.walking, walk_forward),
            ("walking backward", bounds.walking, walk_backward),
        ] {
            let (peak, _, ()) = measure(|| read(&table));
            figures.push(within(peak, bound, what));
        }
    }
    let (peak, _, verified) = measure(|| verify(source.clone(), VerifyOptions::new()));
    assert!(verified.is_ok(), "{name}: {verified:?}");
    figures.push(within(peak, bounds.verifying, "verifying"));
    println!("{figures:?} {name}, {} bytes", file.len());
}

#[test]
fn salvage_is_bounded_too() {
    let _alone = MEASURING.lock().unwrap();
    let mut files = hostile_files(if cfg!(debug_assertions) { 30 } else { 100 });
    // Any byte of it could be the codec of a frame.
    let mut state = 1u32;
    let mut codec = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1 << (state >> 30 & 1)
    };
    // More than the largest window; twice as much where optimisation makes that bearable.
    let several_windows = match cfg!(debug_assertions) {
        true => LARGEST_WINDOW + LARGEST_WINDOW / 8,
        false => LARGEST_WINDOW * 9 / 4,
    };
    let all_codecs: Vec<u8> = (0..several_windows).map(|_| codec()).collect();
    files.push(("long keys that share all but a number", long_shared_keys()));
    files.push(("codecs and nothing else", all_codecs));
    let mut files: Vec<_> = files
        .into_iter()
        .map(|(name, file)| (Codec::Default, name, file))
        .collect();
    for codec in codecs() {
        let bombs = bombs(codec).into_iter();
        files.extend(bombs.map(|(name, file)| (codec, name, file)));
    }
    for (codec, name, file) in files {
        let (peak, _, found) = measure(|| salvage_all(file.clone()));
        let blocks = match name {
            // No block is in it, so that only the search takes memory, beside the file.
            "codecs and nothing else" => 2 * file.len(),
            _ => Bounds::of(codec, name, file.len()).salvaging,
        };
        let what = format!("{codec:?}: salvaging {name}");
        let times = assert_within(peak, windows(file.len()) + blocks, &file, &what);
        println!("{} MiB, {times} {what}, {} bytes", peak >> 20, file.len());
        if name == "codecs and nothing else" {
            assert_eq!(found, 0);
            continue; // the search would be the same: no option of a table matters that gets no entry
        }
        // By default the new table has more blocks than the old one, and an index of keys that are stored whole.
        let start = std::time::Instant::now();
        let (peak, _, ()) = measure(|| salvage_by_default(file.clone()));
        let what = format!("{what} with default options");
        assert_within(peak, windows(file.len()) + blocks, &file, &what);
        println!("{} MiB, {:?} {what}", peak >> 20, start.elapsed());
    }
}

/// Stored whole, as the entries of a copy's small blocks are, they took 5.8 GB and 14 to 22 s.
fn long_shared_keys() -> Vec<u8> {
    let count = if cfg!(debug_assertions) {
        6_000
    } else {
        60_000
    };
    let long = vec![b'k'; count as usize];
    let others = (1..count).flat_map(|i: u32| entry(long.len() as u64, &i.to_be_bytes(), b""));
    let block = [entry(0, &long, b""), others.collect(), restarts(&[0], 1)].concat();
    around(&block, RAW)
}

/// Keys that share all of a long one: unfolded one by one they are the square of the block, which took
/// minutes for a file of 200 KB. Of such a block no key is compared; of one that stays within the bound, each key
/// a few times.
#[test]
fn work_is_bounded_too() {
    let _alone = MEASURING.lock().unwrap();
    let block_of = |long: &[u8], others: Vec<u8>| {
        let raw = [entry(0, long, b""), others, restarts(&[0], 1)].concat();
        let snappy = snap::raw::Encoder::new().compress_vec(&raw).unwrap();
        [around(&raw, RAW), around(&snappy, SNAPPY)].map(|file| (raw.len() as u64, file))
    };
    let long = vec![b'k'; 200 << 10];
    let repeated = entry(long.len() as u64, b"", b"");
    let beyond = block_of(&long, repeated.repeat(200 << 10));
    // 2000 bytes of keys for the eight of an entry: 250 for each byte, of which 256 are allowed.
    let long = vec![b'k'; 2000];
    let count = if cfg!(debug_assertions) {
        5_000
    } else {
        20_000
    };
    let others = (1..count).flat_map(|i: u32| entry(long.len() as u64, &i.to_be_bytes(), b""));
    let within = block_of(&long, others.collect());
    for (block_len, file, entries) in beyond
        .map(|(len, file)| (len, file, 0))
        .into_iter()
        .chain(within.map(|(len, file)| (len, file, u64::from(count))))
    {
        let counting = Arc::new(Counting::default());
        let open = options().comparator(counting.clone());
        let is_within = entries > 0;
        let assert_little = |what: &str| {
            let compared = counting.bytes.swap(0, Relaxed);
            println!("{what}: {compared} bytes compared of {block_len}");
            // Two keys a comparison, and three comparisons of each.
            let most = if is_within { 6 * 256 * block_len } else { 0 };
            assert!(compared <= most, "{what}: {compared} bytes compared");
            compared
        };
        let named =
            VerifyOptions::new().open_options(OpenOptions::new().comparator(counting.clone()));
        let verified = verify(file.clone(), named).unwrap();
        assert_eq!(verified.is_sound(), is_within, "{verified}");
        assert_eq!(verified.to_string().contains("all together"), !is_within);
        assert_eq!(verified.entries, entries);
        let compared = assert_little("verify");
        assert!(compared > 250 * block_len || !is_within, "{compared}");
        // The one beyond repeats a key, which is an error where opening checks the whole.
        assert!(open.open_source(file.clone()).is_ok() || !is_within);
        let compared = counting.bytes.swap(0, Relaxed);
        assert!(compared <= 6 * 256 * block_len, "opening: {compared}");
        let mut described = blocks(file.clone()).unwrap();
        assert_eq!(described.all(|block| block.is_ok()), is_within);
        assert_little("layout");
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new()
            .comparator(counting.clone())
            .build(&mut rescued);
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        assert_eq!(report.entries, entries, "{report}");
        let compared = assert_little("salvage");
        assert!(compared > 250 * block_len || !is_within, "{compared}");
    }
}

fn lookup(table: &Table) {
    for key in [&b"k"[..], b"", b"\xff\xff", b"00000100"] {
        let _ = table.get(key);
    }
}

/// Until the end, or an error.
fn walk_forward(table: &Table) {
    let mut cursor = table.cursor();
    while let Ok(true) = cursor.next() {}
}

fn walk_backward(table: &Table) {
    let mut cursor = table.cursor();
    if let Ok(true) = cursor.seek_to_last() {
        while let Ok(true) = cursor.prev() {}
    }
}

/// Returns how many entries it gave to the new table.
fn salvage_all(file: Vec<u8>) -> u64 {
    // All in one block that shares what it can, so that the new table takes no more than the old.
    let options = WriteOptions::new().no_filter().block_size(usize::MAX);
    let mut builder = options.restart_interval(usize::MAX).build(std::io::sink());
    let _ = salvage(file, &mut builder, SalvageOptions::new());
    builder.entries()
}

fn salvage_by_default(file: Vec<u8>) {
    let mut builder = WriteOptions::new().build(std::io::sink());
    let _ = salvage(file, &mut builder, SalvageOptions::new());
}

// ---- Under a limit --------------------------------------------------------------------------

const CHILD: &str = "LEVELTABLE_LIMITS_CHILD";

/// The same under a limit of the address space: no file may ask the system for what it claims to hold, not even
/// for a moment and without touching it.
#[cfg(target_os = "linux")]
#[test]
fn an_address_space_limit_is_kept() {
    let _alone = MEASURING.lock().unwrap();
    let kib = if cfg!(debug_assertions) { 30 } else { 100 };
    let largest = hostile_files(kib)
        .iter()
        .map(|(_, file)| file.len())
        .max()
        .unwrap();
    // The process itself: code, stacks, and what the allocator sets aside.
    let process = 96 << 20;
    let limit = (process + WINDOWS + WALKING * largest) >> 10;
    println!("{limit} KiB, with files of {largest} bytes at most");
    assert!(limit < 1 << 20, "less than the gigabytes that are claimed");
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {limit} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, kib.to_string())
        .env("MALLOC_ARENA_MAX", "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{said}\n{complained}",
        output.status
    );
    assert!(said.contains("all files done"), "{said}");
}

#[test]
#[ignore = "run by an_address_space_limit_is_kept, under its limit"]
fn child() {
    let kib = std::env::var(CHILD)
        .expect("run by another test")
        .parse()
        .unwrap();
    let gigabyte = Vec::<u8>::new().try_reserve_exact(1 << 30);
    assert!(gigabyte.is_err(), "there is no limit");
    let claims = codecs().into_iter().flat_map(bombs);
    let claims = claims.filter(|(name, _)| name.contains("claims"));
    for (name, file) in hostile_files(kib).into_iter().chain(claims) {
        println!("{name}");
        std::io::stdout().flush().unwrap();
        if let Ok(table) = options().open_source(file.clone()) {
            lookup(&table);
            walk_forward(&table);
            walk_backward(&table);
        }
        let _ = verify(file.clone(), VerifyOptions::new()).unwrap();
        let _ = salvage_all(file);
    }
    println!("all files done");
}
