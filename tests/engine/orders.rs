//! Tables whose order or kind nobody names: each answer is right, or an error.
//!
//! The oracle is the list of entries that a test wrote. Each test prints what it counted; `--nocapture` shows it.

#![cfg(not(miri))]

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{DbEntry, MAX_SEQUENCE, Version};
use leveltable::{
    BytewiseComparator, Comparator, Compression, Error, ErrorKind, OpenOptions, ReadAt, Result,
    Source, WriteOptions,
};

use crate::common::{self, CountingReadAt, Entry, Random, build};

/// Orders in which applications keep tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Backwards,
    Length,
    LastByte,
    CaseFolding,
    LittleEndian,
    /// Decimal numbers by what they are worth.
    Numeric,
    /// Bytewise, except for a few keys.
    Strays,
    /// After Chrome's `idb_cmp1`: varint numbers, then a typed key.
    IndexedDb,
    /// By a hash.
    Random,
}

const KINDS: [Kind; 8] = [
    Kind::Backwards,
    Kind::Length,
    Kind::LastByte,
    Kind::CaseFolding,
    Kind::LittleEndian,
    Kind::Numeric,
    Kind::Strays,
    Kind::IndexedDb,
];

#[derive(Debug, Clone, Copy)]
struct Order {
    kind: Kind,
    /// Whether index keys are shortened.
    shortens: bool,
}

impl Comparator for Order {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Backwards => "test.Backwards",
            Kind::Length => "test.Length",
            Kind::LastByte => "test.LastByte",
            Kind::CaseFolding => "test.CaseFolding",
            Kind::LittleEndian => "test.LittleEndian",
            Kind::Numeric => "test.Numeric",
            Kind::Strays => "test.Strays",
            Kind::IndexedDb => "idb_cmp1",
            Kind::Random => "test.Random",
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let by = match self.kind {
            Kind::Backwards => b.cmp(a),
            Kind::Length => a.len().cmp(&b.len()),
            Kind::LastByte => a.last().cmp(&b.last()),
            Kind::CaseFolding => a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()),
            Kind::LittleEndian => a.iter().rev().cmp(b.iter().rev()),
            Kind::Numeric => number(a).cmp(&number(b)),
            Kind::Strays => stray(a).cmp(&stray(b)),
            Kind::IndexedDb => IdbKey::of(a).cmp(&IdbKey::of(b)),
            Kind::Random => hash(a).cmp(&hash(b)),
        };
        by.then_with(|| a.cmp(b))
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        if !self.shortens {
            return;
        }
        let shared = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
        let candidate = match self.kind {
            // A prefix comes after what it is a prefix of.
            Kind::Backwards => start.get(..=shared).map(<[u8]>::to_vec),
            Kind::LastByte => start.last().map(|last| vec![last.saturating_add(1)]),
            Kind::CaseFolding => {
                let mut folded = start.to_ascii_lowercase();
                BytewiseComparator
                    .find_shortest_separator(&mut folded, &limit.to_ascii_lowercase());
                Some(folded)
            }
            Kind::Strays => {
                let mut key = start.clone();
                BytewiseComparator.find_shortest_separator(&mut key, limit);
                Some(key)
            }
            Kind::Length | Kind::LittleEndian | Kind::Numeric | Kind::IndexedDb | Kind::Random => {
                None
            }
        };
        let fits =
            |key: &Vec<u8>| self.compare(start, key).is_le() && self.compare(key, limit).is_lt();
        if let Some(key) = candidate.filter(fits) {
            *start = key;
        }
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        if self.shortens && self.kind == Kind::Backwards {
            key.clear();
        }
    }
}

/// FNV-1a.
fn hash(key: &[u8]) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    key.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The number at the end of `key`; 0 if there is none.
fn number(key: &[u8]) -> u128 {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let digits = digits.take(38).count();
    let text = str::from_utf8(&key[key.len() - digits..]).unwrap();
    text.parse().unwrap_or(0)
}

/// `key`, or, for one key of about two hundred, its bytes in reverse.
fn stray(key: &[u8]) -> Vec<u8> {
    let mut stray = key.to_vec();
    if crc32c::crc32c(key).is_multiple_of(200) {
        stray.reverse();
    }
    stray
}

/// A key of an IndexedDB table: numbers of database, object store and index, each a length and so many little-endian
/// bytes; then a type and what it holds. Bytes that are none come before all others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct IdbKey {
    prefix: Option<[u64; 3]>,
    kind: u8,
    number: u64,
    text: Vec<u16>,
}

impl IdbKey {
    fn of(bytes: &[u8]) -> IdbKey {
        let nothing = IdbKey {
            prefix: None,
            kind: 0,
            number: 0,
            text: Vec::new(),
        };
        IdbKey::parse(bytes).unwrap_or(nothing)
    }

    fn parse(bytes: &[u8]) -> Option<IdbKey> {
        let (&lengths, mut rest) = bytes.split_first()?;
        let lengths = [lengths >> 5, lengths >> 2 & 7, lengths & 3].map(|n| usize::from(n) + 1);
        let mut prefix = [0; 3];
        for (slot, len) in prefix.iter_mut().zip(lengths) {
            let (number, after) = rest.split_at_checked(len)?;
            *slot = number
                .iter()
                .rev()
                .fold(0, |n, &byte| n << 8 | u64::from(byte));
            rest = after;
        }
        let (&kind, rest) = rest.split_first()?;
        let mut key = IdbKey {
            prefix: Some(prefix),
            kind,
            number: 0,
            text: Vec::new(),
        };
        match kind {
            // Chrome writes a double as the machine has it; all of these are positive.
            3 => key.number = u64::from_le_bytes(*rest.first_chunk()?),
            _ => {
                let (_len, text) = rest.split_first()?;
                let units = text.as_chunks::<2>().0;
                key.text = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            }
        }
        Some(key)
    }

    fn encode(prefix: [u64; 3], key: IdbValue) -> Vec<u8> {
        let width = |n: u64| (8 - n.leading_zeros() as usize / 8).max(1);
        let [a, b, c] = prefix.map(width);
        let mut bytes = vec![((a - 1) << 5 | (b - 1) << 2 | (c - 1)) as u8];
        for n in prefix {
            bytes.extend(&n.to_le_bytes()[..width(n)]);
        }
        match key {
            IdbValue::Number(number) => {
                bytes.push(3);
                bytes.extend(number.to_le_bytes());
            }
            IdbValue::Text(text) => {
                bytes.push(1);
                bytes.push(text.len() as u8);
                bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
            }
        }
        bytes
    }
}

enum IdbValue {
    Number(f64),
    Text(String),
}

/// A name, now and then with a capital.
fn name(random: &mut Random) -> String {
    let len = random.below(8) + 1;
    let capital = random.below(20) == 0;
    let letter = |i, random: &mut Random| {
        let letter = b'a' + random.below(26) as u8;
        let letter = if capital && i == 0 {
            letter.to_ascii_uppercase()
        } else {
            letter
        };
        char::from(letter)
    };
    (0..len).map(|i| letter(i, random)).collect()
}

/// A key as users of the order have them.
fn key(kind: Kind, design: usize, i: usize, random: &mut Random) -> Vec<u8> {
    match (kind, design) {
        (Kind::LittleEndian, 0) => (random.below(5000) as u64).to_le_bytes().to_vec(),
        (Kind::LittleEndian, _) => (i as u32).to_le_bytes().to_vec(),
        (Kind::IndexedDb, _) => {
            let prefix = [
                1 + random.below(2) as u64,
                1 + random.below(1 + 200 * design) as u64,
                1,
            ];
            let value = if random.below(2) == 0 {
                IdbValue::Number(random.below(100_000) as f64)
            } else {
                IdbValue::Text(name(random))
            };
            IdbKey::encode(prefix, value)
        }
        (Kind::Numeric, 0) => random.below(1_000_000).to_string().into_bytes(),
        (_, 0) => name(random).into_bytes(),
        (_, 1) => format!("user:{i}").into_bytes(),
        _ => {
            let len = random.below(12);
            random.bytes(len)
        }
    }
}

/// A table in some order, and what is in it.
struct Written {
    entries: Vec<Entry>,
    file: Bytes,
    what: String,
}

/// A random table of user keys, of at least about `least_len` bytes.
fn random_table(seed: u64, least_len: usize, database: bool) -> Written {
    let mut random = Random(seed);
    let kind = KINDS[random.below(KINDS.len())];
    table_in(kind, 1, random, least_len, database)
}

/// A random table in an order of this kind, of at least `fewest` keys.
fn table_in(
    kind: Kind,
    fewest: usize,
    mut random: Random,
    least_len: usize,
    database: bool,
) -> Written {
    let (seed, random) = (random.0, &mut random);
    let order = Order {
        kind,
        shortens: random.below(2) == 0,
    };
    let design = random.below(3);
    let most = [3, 30, 300, 2000][random.below(4)];
    let count = fewest.max(random.below(most) + 1);
    let keys: BTreeSet<Vec<u8>> = (0..count).map(|i| key(kind, design, i, random)).collect();
    let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
    keys.sort_by(|a, b| order.compare(a, b));
    let value_len = if least_len == 0 {
        random.below(24)
    } else {
        least_len / keys.len() + random.below(400)
    };
    let block_size = [1, 64, 512, 4096][random.below(4)];
    let filter = random.below(3);
    let mut options = WriteOptions::new()
        .properties(false)
        .compression(Compression::None)
        .block_size(block_size)
        .restart_interval([1, 3, 16][random.below(3)])
        .comparator(order);
    match filter {
        0 => options = options.no_filter(),
        1 => options = options.whole_table_filter(false),
        _ => {}
    }
    let keys = keys.into_iter().map(|key| {
        let len = if value_len == 0 {
            0
        } else {
            value_len - random.below(value_len.min(8))
        };
        let mut value = vec![b'.'; len];
        value
            .iter_mut()
            .zip(key.iter())
            .for_each(|(slot, byte)| *slot = *byte);
        (key, value)
    });
    let user_entries: Vec<Entry> = keys.collect();
    let what =
        format!("{seed}: {order:?} {design} {count} keys, blocks {block_size}, filter {filter}");
    if !database {
        let file = Bytes::from(build(&options, &user_entries));
        return Written {
            entries: user_entries,
            file,
            what,
        };
    }
    let mut file = Vec::new();
    let mut builder = options.build_db(&mut file);
    for (i, (key, value)) in user_entries.iter().enumerate() {
        builder.put(key, 1000 + i as u64, value).unwrap();
    }
    builder.finish().unwrap();
    Written {
        entries: user_entries,
        file: file.into(),
        what,
    }
}

/// The file, read through [`ReadAt`].
struct Disk(Bytes);

impl ReadAt for Disk {
    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        self.0.read_at(offset, len)
    }
}

fn sources(file: &Bytes) -> [Source; 2] {
    [
        file.clone().into(),
        Source::from(Arc::new(Disk(file.clone()))),
    ]
}

/// What became of tables and lookups.
#[derive(Debug, Default)]
struct Tally {
    tables: u64,
    refused_at_open: u64,
    /// Tables of which a lookup missed a key in silence.
    with_misses: u64,
    right: u64,
    refused: u64,
    missed: u64,
}

impl Tally {
    /// Counts an answer: right, wrong, or an error, which has to be one of [`ErrorKind::Comparator`] that says what to do.
    fn count(&mut self, answer: Result<bool>) {
        match answer {
            Ok(true) => self.right += 1,
            Ok(false) => self.missed += 1,
            Err(error) => {
                check_words(&error);
                self.refused += 1;
            }
        }
    }
}

fn check_words(error: &Error) {
    let words = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Comparator, "{words}");
    assert!(
        words.contains("open the table with the comparator that it was written with")
            || words.contains("need not lie together"),
        "{words}"
    );
}

/// Refused as what it is not: an order whose keys look like a database's.
fn check_refusal(error: &Error) {
    match error.kind() {
        ErrorKind::DatabaseTable | ErrorKind::Corruption => {}
        _ => check_words(error),
    }
}

/// Looks up every key of a table that was opened without its comparator.
fn ask_all(written: &Written, options: &OpenOptions, tally: &mut Tally) {
    let mut sorted = written.entries.clone();
    sorted.sort();
    for source in sources(&written.file) {
        tally.tables += 1;
        let table = match options.open_source(source) {
            Ok(table) => table,
            Err(error) => {
                check_refusal(&error);
                tally.refused_at_open += 1;
                continue;
            }
        };
        let before = tally.missed;
        let step = written.entries.len() / 300 + 1;
        for (i, (key, value)) in sorted.iter().enumerate() {
            let is_it = |found: Option<Bytes>| found.as_deref() == Some(&value[..]);
            tally.count(table.get(key).map(is_it));
            tally.count(table.contains_key(key));
            if i % step != 0 {
                continue;
            }
            tally.count(
                table
                    .get_many(&[key])
                    .map(|mut found| is_it(found.remove(0))),
            );
            let mut cursor = table.cursor();
            tally.count(
                cursor
                    .seek(key)
                    .map(|found| found && cursor.key() == &key[..]),
            );
            let owned = |e: (Bytes, Bytes)| (e.0.to_vec(), e.1.to_vec());
            let from_key: Result<Vec<Entry>> = table
                .range(&key[..]..)
                .take(3)
                .map(|e| e.map(owned))
                .collect();
            let expected = sorted.iter().skip(i).take(3);
            tally.count(from_key.map(|found| found.iter().eq(expected)));
            let up_to: Result<Vec<Entry>> = table
                .range(..=&key[..])
                .rev()
                .take(3)
                .map(|e| e.map(owned))
                .collect();
            let expected = sorted[..=i].iter().rev().take(3);
            tally.count(up_to.map(|found| found.iter().eq(expected)));
            let prefix = &key[..key.len().min(3)];
            let with_prefix: Result<Vec<Entry>> =
                table.prefix(prefix).map(|e| e.map(owned)).collect();
            let expected = sorted.iter().filter(|(key, _)| key.starts_with(prefix));
            tally.count(with_prefix.map(|found| found.iter().eq(expected)));
        }
        if tally.missed > before {
            tally.with_misses += 1;
            // Not all of the file was checked, and whoever walks it sees what it is.
            assert!(written.file.len() > CHECKED && in_place(&written.file).contains(&false));
            assert!(table.iter().any(|entry| entry.is_err()));
            if std::env::var_os("SHOW").is_some() {
                let missed = tally.missed - before;
                println!(
                    "{} bytes, {} blocks, {missed} missed: {}",
                    table.file_bytes(),
                    table.data_blocks(),
                    written.what
                );
            }
        }
    }
}

/// The same for a database's table, opened with user keys in bytewise order.
fn ask_all_db(written: &Written, options: &OpenOptions, tally: &mut Tally) {
    for source in sources(&written.file) {
        tally.tables += 1;
        let table = match options.open_db_source(source) {
            Ok(table) => table,
            Err(error) => {
                check_refusal(&error);
                tally.refused_at_open += 1;
                continue;
            }
        };
        let before = tally.missed;
        for (key, value) in &written.entries {
            let is_it = |version: Option<Version>| {
                version == Some(Version::Value(Bytes::copy_from_slice(value)))
            };
            tally.count(table.get(key).map(is_it));
            let first = table.range(&key[..]..=&key[..]).next().transpose();
            tally.count(
                first.map(|found: Option<DbEntry>| found.is_some_and(|e| e.user_key == key)),
            );
        }
        if tally.missed > before {
            tally.with_misses += 1;
            if std::env::var_os("SHOW").is_some() {
                println!("{} missed: {}", tally.missed - before, written.what);
            }
        }
    }
}

fn tables() -> u64 {
    let count = std::env::var("TABLES").ok();
    count.map_or(400, |count| count.parse().unwrap())
}

#[test]
fn small_tables_of_other_orders_miss_nothing_in_silence() {
    let options = OpenOptions::new();
    let (mut plain, mut database) = (Tally::default(), Tally::default());
    for seed in 0..tables() {
        let written = random_table(seed, 0, false);
        if written.file.len() <= 64 << 10 {
            ask_all(&written, &options, &mut plain);
        }
        let written = random_table(seed, 0, true);
        if written.file.len() <= 64 << 10 {
            ask_all_db(&written, &options, &mut database);
        }
    }
    println!("plain {plain:?}\ndatabase {database:?}");
    assert_eq!((plain.missed, database.missed), (0, 0));
    assert!(plain.refused_at_open > 0 && plain.right > 0);
}

/// For each data block, whether its keys are where bytewise order has them: ascending, between the block's index keys.
fn in_place(file: &[u8]) -> Vec<bool> {
    let layout = common::Layout::of(file);
    let index = common::entries(&common::payload(file, &layout.index));
    let mut after: Option<&[u8]> = None;
    let mut in_place = Vec::new();
    for (range, (up_to, _)) in layout.data.iter().zip(&index) {
        let entries = common::entries(&common::payload(file, range));
        let mut keys = entries.iter().map(|(key, _)| &key[..]);
        in_place.push(
            keys.clone().is_sorted_by(|a, b| a < b)
                && keys.all(|key| after.is_none_or(|after| after < key) && *key <= **up_to),
        );
        after = Some(up_to);
    }
    in_place
}

/// Files of up to this size are checked as a whole when they are opened.
const CHECKED: usize = 64 << 10;

/// Orders that differ from the assumed one so often that a larger table shows it before a key is missed: its index keys do not
/// ascend, or the block in which a key is looked for does not.
const EVIDENT: [Kind; 4] = [
    Kind::Backwards,
    Kind::Length,
    Kind::LittleEndian,
    Kind::Random,
];

/// In a larger file, a block that no lookup reads may hold the key, while the index ascends: by chance where blocks are
/// few, and as a rule where an order seldom differs from the assumed one. Keys are missed then, until a lookup or a walk reads a
/// block that shows the order. This counts them; the assertion about the sizes of plain tables is in `ask_all`.
fn ask_large_tables(kinds: &[Kind], fewest: usize, least_len: usize, count: u64) -> [Tally; 2] {
    let options = OpenOptions::new();
    let [mut plain, mut database] = [Tally::default(), Tally::default()];
    for seed in 0..count {
        let kind = kinds[seed as usize % kinds.len()];
        let table = |is_database| table_in(kind, fewest, Random(seed), least_len, is_database);
        ask_all(&table(false), &options, &mut plain);
        ask_all_db(&table(true), &options, &mut database);
    }
    println!("from {least_len} bytes: plain {plain:?}\ndatabase {database:?}");
    [plain, database]
}

#[test]
fn large_tables_of_evident_orders_miss_nothing_in_silence() {
    for least_len in [80_000, 300_000] {
        for tally in ask_large_tables(&EVIDENT, 300, least_len, tables() / 8) {
            assert!(tally.refused_at_open > 0);
            assert_eq!((tally.missed, tally.with_misses), (0, 0), "{tally:?}");
        }
    }
}

#[test]
#[ignore = "25,600 tables: minutes in release"]
fn many_tables_of_evident_orders_miss_nothing_in_silence() {
    for (least_len, count) in [(66_000, 6_000), (260_000, 4_400), (1_100_000, 2_400)] {
        for tally in ask_large_tables(&EVIDENT, 300, least_len, count) {
            assert_eq!((tally.missed, tally.with_misses), (0, 0), "{tally:?}");
        }
    }
}

/// What the documentation of [`OpenOptions::check_order`] says: an order that seldom differs from the assumed one can hide keys.
#[test]
fn a_walk_shows_what_lookups_in_a_table_of_another_order_may_miss() {
    for tally in ask_large_tables(&KINDS, 1, 80_000, tables() / 8) {
        assert!(tally.refused_at_open > 0 && tally.right > 0);
    }
}

/// With [`OpenOptions::check_order`], opening the same tables makes sure of each answer, errors included.
#[test]
fn large_tables_miss_nothing_once_their_order_is_checked() {
    let options = OpenOptions::new().check_order(true);
    let (mut plain, mut database) = (Tally::default(), Tally::default());
    for seed in 0..tables() / 4 {
        let least_len = if seed % 2 == 0 { 80_000 } else { 300_000 };
        ask_all(&random_table(seed, least_len, false), &options, &mut plain);
        ask_all_db(
            &random_table(seed, least_len, true),
            &options,
            &mut database,
        );
    }
    println!("plain {plain:?}\ndatabase {database:?}");
    for tally in [plain, database] {
        assert_eq!((tally.missed, tally.refused), (0, 0));
        assert!(tally.refused_at_open > 0);
    }
}

/// Keys as applications make them.
const DESIGNS: [&str; 11] = [
    "microseconds on the minute",
    "page-aligned offsets",
    "an id and a zero byte",
    "table, zero, name, zero",
    "two little-endian numbers",
    "counter << 8 | 1, little-endian",
    "UUIDs",
    "ULIDs",
    "hashes",
    "padded names",
    "decimal text",
];

/// `count` different keys of a design, in bytewise order.
fn design_keys(design: usize, count: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let first = random.below(1 << 20) as u64;
    let mut keys = BTreeSet::new();
    while keys.len() < count {
        let i = keys.len() as u64;
        let key = match design {
            0 => ((1_600_000_000 + first * 60 + random.below(5000) as u64 * 60) * 1_000_000)
                .to_be_bytes()
                .to_vec(),
            1 => ((first + random.below(1 << 16) as u64) * 4096)
                .to_be_bytes()
                .to_vec(),
            2 => format!("{:08}\0", first + i).into_bytes(),
            3 => format!("table{}\0{}{}\0", random.below(4), name(random), i).into_bytes(),
            4 => [
                (random.below(2) as u32).to_le_bytes(),
                (first as u32 + i as u32).to_le_bytes(),
            ]
            .concat(),
            5 => ((first + i) << 8 | 1).to_le_bytes().to_vec(),
            6 => random.bytes(16),
            7 => {
                let mut text = "01HQ8".to_owned();
                let digit = |random: &mut Random| {
                    char::from(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[random.below(32)])
                };
                (0..21).for_each(|_| text.push(digit(random)));
                text.into_bytes()
            }
            8 => random.bytes(32),
            9 => {
                let mut padded = format!("{}{i}", name(random)).into_bytes();
                padded.resize(24, [0, b' '][(first % 2) as usize]);
                padded
            }
            _ => random.below(1 << 30).to_string().into_bytes(),
        };
        keys.insert(key);
    }
    keys.into_iter().collect()
}

/// Bytewise order by a writer that stores index keys as they are.
#[derive(Debug)]
struct Unshortened;

impl Comparator for Unshortened {
    fn name(&self) -> &str {
        BytewiseComparator.name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

const WRITERS: [&str; 3] = ["ours", "leveldb()", "without shortening"];

fn writer(i: usize) -> WriteOptions {
    match i {
        0 => WriteOptions::new().properties(false),
        1 => WriteOptions::leveldb().compression(Compression::None),
        _ => WriteOptions::leveldb()
            .compression(Compression::None)
            .comparator(Unshortened),
    }
}

const COUNTS: [usize; 4] = [1, 2, 20, 1000];

/// Writes and opens so many plain tables of each design and number of entries; returns how many were misjudged.
fn misjudged_plain_tables(each: u64) -> u64 {
    let mut misjudged = 0;
    for (design, name) in DESIGNS.iter().enumerate() {
        for count in COUNTS {
            let mut wrong = [0; WRITERS.len()];
            for seed in 0..each {
                let random = &mut Random(seed << 16 | (design << 12 | count) as u64);
                let entries: Vec<Entry> = design_keys(design, count, random)
                    .into_iter()
                    .map(|key| (key, b"value".to_vec()))
                    .collect();
                let by = seed as usize % WRITERS.len();
                let file = build(
                    &writer(by).block_size([256, 4096][seed as usize / 3 % 2]),
                    &entries,
                );
                let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| &key[..]).collect();
                match OpenOptions::new().no_cache().open_source(file) {
                    Ok(table) => {
                        let found = table.get_many(&keys).unwrap();
                        let missed = found
                            .iter()
                            .filter(|value| value.as_deref() != Some(b"value"))
                            .count();
                        assert_eq!(missed, 0, "{name}, {count} entries, {}", WRITERS[by]);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{name}: {error}");
                        wrong[by] += 1;
                    }
                }
            }
            for (by, wrong) in WRITERS.iter().zip(wrong).filter(|(_, wrong)| *wrong > 0) {
                println!("plain: {wrong} of {each} misjudged: {name}, {count} entries, {by}");
                misjudged += wrong;
            }
        }
    }
    misjudged
}

#[test]
fn plain_tables_of_every_design_are_plain() {
    assert_eq!(misjudged_plain_tables(6), 0);
}

#[test]
#[ignore = "440,000 tables: some minutes in release"]
fn many_plain_tables_of_every_design_are_plain() {
    assert_eq!(misjudged_plain_tables(10_000), 0);
}

/// What became of the tables of databases.
#[derive(Debug, Default)]
struct DbTally {
    recognised: u64,
    /// Refused for their order.
    refused: u64,
    /// Taken for plain, with something in the file that no plain table has.
    mistaken: u64,
    /// Taken for plain with nothing of the kind, by writer: one version of each key, and no index key that was shortened.
    fits_both: [u64; WRITERS.len()],
}

/// Writes and opens so many tables of databases of each sequence number, number of entries and writer.
fn judged_databases(each: u64) -> DbTally {
    const SEQUENCES: [u64; 4] = [0, 1 << 48, 1_700_000_000_000_000, MAX_SEQUENCE];
    let mut tally = DbTally::default();
    for base in SEQUENCES {
        for count in COUNTS {
            for seed in 0..each {
                let random = &mut Random(seed << 20 | base >> 8 ^ count as u64);
                let design = random.below(DESIGNS.len());
                let by = seed as usize % WRITERS.len();
                let user_keys = design_keys(design, count, random);
                let versions = random.below(2) + 1;
                let mut entries = Vec::new();
                for user_key in user_keys {
                    let newest = match base {
                        MAX_SEQUENCE => base - random.below(3) as u64,
                        _ => base + random.below(2 * count) as u64,
                    };
                    for version in 0..(random.below(versions) as u64 + 1).min(newest + 1) {
                        let is_value = random.below(4) != 0;
                        entries.push((user_key.clone(), newest - version, is_value));
                    }
                }
                let mut file = Vec::new();
                let has_filter = seed % 4 != 3;
                let options = if has_filter {
                    writer(by)
                } else {
                    writer(by).no_filter()
                };
                let mut builder = options.build_db(&mut file);
                let mut stored = Vec::new();
                for (user_key, sequence, is_value) in &entries {
                    match is_value {
                        true => builder.put(user_key, *sequence, b"value"),
                        false => builder.delete(user_key, *sequence),
                    }
                    .unwrap();
                    let tag = sequence << 8 | u64::from(*is_value);
                    stored.push([&user_key[..], &tag.to_le_bytes()].concat());
                }
                builder.finish().unwrap();
                let file = Bytes::from(file);
                let table = OpenOptions::new()
                    .no_cache()
                    .open_db_source(file.clone())
                    .unwrap();
                for (user_key, sequence, is_value) in &entries {
                    let version = match is_value {
                        true => Version::Value("value".into()),
                        false => Version::Deleted,
                    };
                    assert_eq!(table.at(*sequence).get(user_key).unwrap(), Some(version));
                }
                let what = format!(
                    "{}, {count} entries at {base}, {}, {seed}",
                    DESIGNS[design], WRITERS[by]
                );
                match OpenOptions::new().no_cache().open_source(file.clone()) {
                    Err(error) if error.kind() == ErrorKind::DatabaseTable => tally.recognised += 1,
                    Err(error) => {
                        check_words(&error);
                        tally.refused += 1;
                        println!("refused for its order: {what}: {error}");
                    }
                    Ok(table) => {
                        for key in &stored {
                            assert!(
                                table.get(key).unwrap().is_some(),
                                "a stored key is missed: {what}"
                            );
                        }
                        let ascends = stored.is_sorted_by(|a, b| a < b);
                        let index = common::entries(&common::payload(
                            &file,
                            &common::Layout::of(&file).index,
                        ));
                        let shortened = index
                            .iter()
                            .any(|(key, _)| stored.binary_search(key).is_err());
                        if ascends && !shortened {
                            tally.fits_both[by] += 1;
                        } else {
                            tally.mistaken += 1;
                            println!(
                                "taken for plain: {what}: ascends {ascends}, shortened {shortened}"
                            );
                        }
                    }
                }
            }
        }
    }
    tally
}

#[test]
fn tables_of_databases_are_recognised_by_any_evidence() {
    let tally = judged_databases(24);
    println!("{tally:?}");
    assert_eq!(tally.mistaken, 0);
}

#[test]
#[ignore = "160,000 tables: some minutes in release"]
fn many_tables_of_databases_are_recognised_by_any_evidence() {
    let tally = judged_databases(10_000);
    println!("{tally:?}");
    assert_eq!(tally.mistaken, 0);
}

/// In the order in which a table is stored it can be walked, whatever that order is, and no more.
#[test]
fn a_table_in_its_stored_order_can_be_walked_and_no_more() {
    for seed in 0..60 {
        let written = random_table(seed, if seed % 4 == 0 { 80_000 } else { 0 }, false);
        for source in sources(&written.file) {
            let table = OpenOptions::new()
                .stored_order()
                .open_source(source)
                .unwrap();
            let owned = |entry: Result<(Bytes, Bytes)>| {
                let (key, value) = entry.unwrap();
                (key.to_vec(), value.to_vec())
            };
            assert!(table.iter().map(owned).eq(written.entries.iter().cloned()));
            assert!(
                table
                    .iter()
                    .rev()
                    .map(owned)
                    .eq(written.entries.iter().rev().cloned())
            );
            assert_eq!(
                table.first().unwrap().map(|e| e.0.to_vec()),
                written.entries.first().map(|e| e.0.clone())
            );
            let mut cursor = table.cursor();
            assert!(cursor.seek_to_last().unwrap());
            assert_eq!(Some(cursor.key()), written.entries.last().map(|e| &e.0[..]));

            let key = &written.entries[written.entries.len() / 2].0[..];
            let refused = [
                table.get(key).err(),
                table.get_with(key, |_| ()).err(),
                table.contains_key(key).err(),
                table.get_many(&[key]).err(),
                table.cursor().seek(key).err(),
                table.range(key..).next().and_then(Result::err),
                table.range(..key).next().and_then(Result::err),
                table.range(..=key).next_back().and_then(Result::err),
                table.range(key..=key).next_back().and_then(Result::err),
                table.prefix(key).next().and_then(Result::err),
                table.prefix(b"").next_back().and_then(Result::err),
            ];
            for (i, error) in refused.into_iter().enumerate() {
                let error =
                    error.unwrap_or_else(|| panic!("lookup {i} of {} is answered", written.what));
                assert_eq!(error.kind(), ErrorKind::Comparator);
                assert!(
                    error
                        .to_string()
                        .contains("with the comparator that it was written with"),
                    "{error}"
                );
            }
            assert!(table.may_contain(key).unwrap(), "nothing is known of it");
        }
    }
}

/// The words of each refusal name both keys, the order, and what to do.
#[test]
fn a_refusal_names_the_two_keys() {
    let backwards = Order {
        kind: Kind::Backwards,
        shortens: false,
    };
    let entries = |keys: &[&str], value_len| -> Vec<Entry> {
        let value = vec![b'v'; value_len];
        keys.iter()
            .map(|key| (key.as_bytes().to_vec(), value.clone()))
            .collect()
    };
    let options = WriteOptions::new()
        .properties(false)
        .compression(Compression::None)
        .no_filter()
        .comparator(backwards);
    let advice = "open the table with the comparator that it was written with";

    // Two index keys.
    let file = build(
        &options.clone().block_size(1),
        &entries(&["melon", "apple"], 40_000),
    );
    let error = OpenOptions::new().open_source(file).unwrap_err();
    check_words(&error);
    let words = error.to_string();
    assert!(
        words.contains("melon") && words.contains("apple") && words.contains(advice),
        "{words}"
    );

    // Two keys of a block, which is seen when a lookup reads it, or, if all is checked, when the table is opened.
    let options = options.block_size(1 << 20);
    let keys = ["melon", "kiwi", "apple"];
    let file = build(&options, &entries(&keys, 200_000));
    let error = OpenOptions::new().check_order(true);
    let error = error.open_source(file.clone());
    let words = error.unwrap_err().to_string();
    assert!(
        words.contains("melon") && words.contains("kiwi") && words.contains(advice),
        "{words}"
    );
    let table = OpenOptions::new().open_source(file).unwrap();
    // Past the last index key no block is read.
    assert_eq!(table.get("zucchini").unwrap(), None);
    for key in ["aardvark", "apple"] {
        let error = table.get(key).unwrap_err();
        let words = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(
            words.contains("melon") && words.contains("kiwi") && words.contains(advice),
            "{words}"
        );
        assert!(words.contains("leveldb.BytewiseComparator"), "{words}");
    }
    assert_eq!(
        table.iter().next().unwrap().unwrap_err().kind(),
        ErrorKind::Comparator
    );

    // A database's table of user keys in another order.
    let mut file = Vec::new();
    let options = WriteOptions::new().properties(false).comparator(backwards);
    let mut builder = options.build_db(&mut file);
    for key in ["melon", "apple"] {
        builder.put(key, 7, "value").unwrap();
    }
    builder.finish().unwrap();
    let error = OpenOptions::new().open_db_source(file).unwrap_err();
    check_words(&error);
    assert!(
        error.to_string().contains("melon") && error.to_string().contains("apple"),
        "{error}"
    );
}

/// Bytewise order, as it says, except that one key lies far from where it belongs.
#[derive(Debug)]
struct OneAstray;

const ASTRAY: &str = "key 01000+";

impl OneAstray {
    fn place(key: &[u8]) -> &[u8] {
        if key == ASTRAY.as_bytes() {
            b"key 04000"
        } else {
            key
        }
    }
}

impl Comparator for OneAstray {
    fn name(&self) -> &str {
        BytewiseComparator.name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        OneAstray::place(a)
            .cmp(OneAstray::place(b))
            .then_with(|| a.cmp(b))
    }
}

/// A table of more than a megabyte; with `is_astray`, it holds a key that its index hides.
fn large_table(is_astray: bool, properties: bool) -> Vec<u8> {
    let mut keys: Vec<String> = (0..5000).map(|i| format!("key {i:05}")).collect();
    if is_astray {
        keys.push(ASTRAY.into());
    }
    keys.sort_by(|a, b| OneAstray.compare(a.as_bytes(), b.as_bytes()));
    let entries: Vec<Entry> = keys
        .into_iter()
        .map(|key| (key.into_bytes(), vec![b'v'; 500]))
        .collect();
    let options = WriteOptions::new().compression(Compression::None);
    build(
        &options.properties(properties).comparator(OneAstray),
        &entries,
    )
}

/// The index ascends, and the block in which the key is looked for is in order. A table that lies about its order is no
/// different.
#[test]
fn a_key_that_its_index_hides_is_found_by_checking_the_order() {
    for properties in [false, true] {
        let file = Bytes::from(large_table(true, properties));
        for source in sources(&file) {
            let table = OpenOptions::new().open_source(source).unwrap();
            assert_eq!(table.properties().is_some(), properties);
            assert_eq!(table.get(ASTRAY).unwrap(), None, "silently missed");
            assert!(table.iter().any(|entry| entry.is_err()));
        }
        for source in sources(&file) {
            let options = OpenOptions::new().check_order(true);
            let error = options.open_source(source.clone()).unwrap_err();
            check_words(&error);
            let words = error.to_string();
            assert!(words.contains(ASTRAY), "{words}");
            let table = options.comparator(OneAstray).open_source(source).unwrap();
            assert_eq!(table.get(ASTRAY).unwrap().unwrap().len(), 500);
        }
    }
}

/// Large reads in the file's order. Only the bytes that opening reads anyway are read twice.
#[test]
fn checking_the_order_reads_the_file_once() {
    let file = large_table(false, false);
    let len = file.len() as u64;
    let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
    let options = OpenOptions::new().no_cache();
    // No data block is read.
    let in_stored_order = options.clone().stored_order();
    in_stored_order.open_source(Arc::clone(&disk)).unwrap();
    let (reads, bytes) = (disk.reads(), disk.bytes());
    let table = options
        .check_order(true)
        .open_source(Arc::clone(&disk))
        .unwrap();
    let (checking, checked) = (disk.reads() - 2 * reads, disk.bytes() - 2 * bytes);
    // Reads of 256 KiB, less what is left of the last block of each.
    assert!(checking <= len.div_ceil(240 << 10) + 1, "{checking} reads");
    assert!((len - bytes..=len).contains(&checked), "{checked} of {len}");
    let before = disk.reads();
    assert_eq!(table.get("key 07000").unwrap(), None);
    assert_eq!(disk.reads(), before, "the end was seen");
}

/// What cannot be read, or is damaged, may hold any key: there is no certainty then.
#[test]
fn a_block_that_cannot_be_checked_is_an_error_of_opening() {
    struct Failing(Bytes);
    impl ReadAt for Failing {
        fn size(&self) -> std::io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
            if (offset..offset + len as u64).contains(&1_500_000) {
                return Err(std::io::Error::other("unreadable"));
            }
            self.0.read_at(offset, len)
        }
    }
    let mut file = large_table(false, false);
    let options = OpenOptions::new().check_order(true);
    let failing = Arc::new(Failing(file.clone().into()));
    let error = options.open_source(failing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");

    file[1_500_000] ^= 1;
    for source in sources(&file.into()) {
        let error = options.open_source(source.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        // Without the check, damage is left for lookups to find.
        let table = OpenOptions::new().open_source(source).unwrap();
        let found: Vec<bool> = (0..5000)
            .map(|i| table.get(format!("key {i:05}")).is_ok())
            .collect();
        let lost = found.iter().filter(|found| !**found).count();
        assert!((1..20).contains(&lost), "{lost}");
    }
}

/// A block that does not decompress ends no check of the others.
#[test]
fn a_small_file_is_checked_behind_a_block_that_does_not_decompress() {
    let value = b"value".to_vec();
    let mut file = Vec::new();
    let broken = common::append(&mut file, &[9, 0xff, 0xff]);
    // Snappy, it says.
    file[broken.end - 5] = 1;
    common::seal(&mut file, &broken);
    let keys = [b"d".to_vec(), b"c".to_vec()];
    let misordered = common::block(&keys.map(|key| (key, value.clone())));
    let misordered = common::append(&mut file, &misordered);
    let index = common::block(&[
        (b"b".to_vec(), common::handle_of(&broken)),
        (b"e".to_vec(), common::handle_of(&misordered)),
    ]);
    let file = common::append_end(file, &[], &index);
    let error = OpenOptions::new().open_source(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
}

/// The order of a small file is checked even if it could not be read at once.
#[test]
fn a_small_file_is_checked_whatever_its_first_read_gives() {
    struct FailsOnce(Bytes, std::sync::atomic::AtomicBool);
    impl ReadAt for FailsOnce {
        fn size(&self) -> std::io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
            if !self.1.swap(true, std::sync::atomic::Ordering::Relaxed) {
                return Err(std::io::Error::other("not now"));
            }
            self.0.read_at(offset, len)
        }
    }
    // By their last byte, the index ascends in bytewise order by chance: b, d.
    let by_last_byte = Order {
        kind: Kind::LastByte,
        shortens: false,
    };
    let options = WriteOptions::leveldb()
        .comparator(by_last_byte)
        .block_size(1000);
    let mut file = Vec::new();
    let mut builder = options.build(&mut file);
    for key in ["ma", "cb"] {
        builder.add(key, vec![7; 600]).unwrap();
    }
    builder.flush().unwrap();
    builder.add("dd", "").unwrap();
    builder.finish().unwrap();
    let file = Bytes::from(file);
    let source = Arc::new(FailsOnce(file.clone(), Default::default()));
    for source in [Source::from(file), Source::from(source)] {
        let error = OpenOptions::new().open_source(source).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
    }
}

/// Ordinary sequence numbers after user keys are a database's, though both orders fit and the index shortened nothing.
#[test]
fn ordinary_sequence_numbers_tell_a_database() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::leveldb().no_filter().build_db(&mut file);
    builder.put("a", 301, "value").unwrap();
    builder.put("b", 300, "value").unwrap();
    builder.finish().unwrap();
    let error = OpenOptions::new().open_source(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
}

/// The keys of a database's table fit a plain one, too: they are found as they are stored, since the filter, which holds user
/// keys, is not asked.
#[test]
fn a_table_whose_keys_fit_both_kinds_hides_none_of_them() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::leveldb().build_db(&mut file);
    builder.put("a", 301 << 40, "value").unwrap();
    builder.put("b", 300 << 40, "value").unwrap();
    builder.finish().unwrap();
    for options in [OpenOptions::new(), OpenOptions::new().no_filter()] {
        let table = options.open_source(file.clone()).unwrap();
        for (user_key, sequence) in [("a", 301u64 << 40), ("b", 300 << 40)] {
            let tag = (sequence << 8 | 1).to_le_bytes();
            let key = [user_key.as_bytes(), &tag].concat();
            assert_eq!(table.get(&key).unwrap().as_deref(), Some(&b"value"[..]));
            assert!(table.may_contain(&key).unwrap());
        }
        assert!(table.filter().is_none());
    }
    let table = OpenOptions::new().open_db_source(file).unwrap();
    assert!(table.as_table().filter().is_some());
}

/// A newer version that does not lie beside the others of its key is out of bytewise order: an error that names both causes.
#[test]
fn versions_out_of_bytewise_order_are_an_error() {
    for count in [300, 3000] {
        let mut file = Vec::new();
        let mut builder = WriteOptions::leveldb()
            .compression(Compression::None)
            .comparator(Unshortened)
            .build_db(&mut file);
        for i in 0..count {
            let key = format!("key{i:06}");
            if i == count - 7 {
                builder.put(&key, 1 << 48 | 0xf_ffff, [b'v'; 300]).unwrap();
            }
            builder.put(&key, (1 << 48) + i, [b'v'; 300]).unwrap();
        }
        builder.finish().unwrap();
        assert!(file.len() > 64 << 10);
        let table = OpenOptions::new().open_source(file);
        let error = table.and_then(|table| table.iter().try_for_each(|entry| entry.map(drop)));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{count}: {error}");
        assert!(error.to_string().contains("as a DbTable"), "{error}");
    }
}

/// A comparator over stored keys of a database whose user keys are backwards, by somebody who does not know of filters.
#[derive(Debug)]
struct BackwardsByHand;

impl Comparator for BackwardsByHand {
    fn name(&self) -> &str {
        "test.BackwardsByHand"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let parts = |key: &[u8]| {
            let (user, tag) = key.split_at(key.len().saturating_sub(8));
            let tag = tag
                .iter()
                .rev()
                .fold(0u64, |n, &byte| n << 8 | u64::from(byte));
            (user.to_vec(), tag)
        };
        let ((a, a_tag), (b, b_tag)) = (parts(a), parts(b));
        b.cmp(&a).then(b_tag.cmp(&a_tag))
    }
}

/// The filter of a database's table holds user keys. A caller who looks for stored keys in an order that does not know of that, named
/// or assumed, must not ask it, however little the keys tell.
#[test]
fn a_filter_of_user_keys_is_not_asked_for_stored_keys() {
    let backwards = Order {
        kind: Kind::Backwards,
        shortens: false,
    };
    for count in [1u64, 3, 30, 60, 90, 1000] {
        let mut file = Vec::new();
        let options = WriteOptions::leveldb()
            .comparator(backwards)
            .block_size(512);
        let mut builder = options.build_db(&mut file);
        for i in (0..count).rev() {
            builder.put(format!("key{i:05}"), 100 + i, "value").unwrap();
        }
        builder.finish().unwrap();
        let options = OpenOptions::new().comparator(BackwardsByHand);
        let table = options.open_source(file).unwrap();
        let entries: Vec<_> = table.iter().map(Result::unwrap).collect();
        assert_eq!(entries.len() as u64, count);
        for (key, value) in entries {
            assert_eq!(table.get(&key).unwrap(), Some(value), "{count}");
        }
    }
    // Two neighbours that ascend bytewise only.
    let mut file = Vec::new();
    let options = WriteOptions::leveldb().comparator(backwards);
    let mut builder = options.build_db(&mut file);
    builder.put("a\0", 5, "value").unwrap();
    builder.put("a", 6, "value").unwrap();
    builder.finish().unwrap();
    if let Ok(table) = OpenOptions::new().open_source(file) {
        for entry in table.iter() {
            let (key, value) = entry.unwrap();
            assert_eq!(table.get(&key).unwrap(), Some(value));
        }
    }
}

/// Keys that could be a database's, in a table that is none: four of them that pass show whose keys the filter holds.
#[test]
fn a_filter_of_stored_keys_is_used_if_they_could_be_internal() {
    let entries: Vec<Entry> = (0..5000u64)
        .map(|i| ((2 * i).to_be_bytes().to_vec(), vec![b'v'; 100]))
        .collect();
    let file = Bytes::from(build(&WriteOptions::leveldb(), &entries));
    for options in [
        OpenOptions::new(),
        OpenOptions::new().comparator(BytewiseComparator),
    ] {
        let table = options.open_source(file.clone()).unwrap();
        assert!(table.filter().is_some());
        let absent = (0..5000u64).filter(|i| table.may_contain((2 * i + 1).to_be_bytes()).unwrap());
        assert!(absent.count() < 1500);
    }
}
