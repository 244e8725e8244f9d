//! The filter of prefixes: scans within one prefix that find nothing read nothing, and no scan misses a key.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::CountingReadAt;
use crate::common::prefixes::{Mixed, Named, by_slash, fixed, tenants, write};
use bytes::Bytes;
use leveltable::db::Version;
use leveltable::filter::{DelimitedPrefix, FixedPrefix, PrefixExtractor};
use leveltable::{
    Comparator, Compression, DbTable, ErrorKind, OpenOptions, Section, Table, WriteOptions,
};

use crate::common::Layout;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Pseudorandom numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A key of few different bytes, so that keys meet, among them those that matter at the ends of prefixes.
    fn key(&mut self, longest: u64) -> Vec<u8> {
        const BYTES: [u8; 6] = [0, b'.', b'/', b'0', 0xfe, 0xff];
        let len = self.below(longest + 1);
        let byte = |_| BYTES[self.below(6) as usize];
        (0..len).map(byte).collect()
    }
}

/// Whether the filter passes a prefix, or is not asked.
fn passes(table: &Table, prefix: impl AsRef<[u8]>) -> bool {
    let rejected = table.stats().prefix_rejected;
    let _ = table.prefix(prefix).next();
    table.stats().prefix_rejected == rejected
}

/// Whether the filter passes a prefix of user keys, or is not asked.
fn passes_in_db(db: &DbTable, prefix: impl AsRef<[u8]>) -> bool {
    let rejected = db.as_table().stats().prefix_rejected;
    let _ = db.prefix(prefix).next();
    db.as_table().stats().prefix_rejected == rejected
}

fn keys_of(range: leveltable::TableRange) -> Vec<Vec<u8>> {
    range.map(|entry| entry.unwrap().0.to_vec()).collect()
}

/// Opens `file` without a cache, past the reads of opening, and counts the reads from then on.
fn counted(file: impl Into<Bytes>) -> (Table, Arc<CountingReadAt<Bytes>>) {
    let source = Arc::new(CountingReadAt::new(file.into()));
    let options = OpenOptions::new().no_cache();
    let table = options.open_source(Arc::clone(&source)).unwrap();
    (table, source)
}

#[test]
fn a_scan_that_finds_nothing_reads_nothing() {
    let (table, source) = counted(write(&by_slash(), tenants(100)));
    let info = table.prefix_filter().unwrap();
    assert_eq!(
        info.prefixes.as_deref(),
        Some("leveltable.DelimitedPrefix(2f)")
    );
    assert!(info.bytes * 8 <= 500 * 10 + 480, "{info:?}");
    let opening = source.reads();
    let mut passed = 0;
    for tenant in (1..1000).step_by(2) {
        let reads = source.reads();
        let prefix = format!("{tenant:04}/");
        let within = format!("{tenant:04}/1")..format!("{tenant:04}/5");
        let to_next = format!("{tenant:04}/1")..format!("{tenant:04}0");
        assert_eq!(table.prefix(&prefix).count(), 0);
        assert_eq!(table.prefix(&prefix).rev().count(), 0);
        assert_eq!(table.prefix(format!("{tenant:04}/0000")).count(), 0);
        assert_eq!(table.range(within).count(), 0);
        assert_eq!(table.range(to_next).count(), 0);
        if passes(&table, &prefix) {
            passed += 1;
        } else {
            assert_eq!(source.reads(), reads, "{prefix}");
        }
    }
    assert!(passed <= 5, "{passed} of 500 passed");
    if passed == 0 {
        assert_eq!(source.reads(), opening);
    }
    let stats = table.stats();
    assert_eq!(stats.prefix_rejected, (500 - passed) * 6);
    assert_eq!(stats.filter_passed + stats.filter_rejected, 0);
    // A present one is read, and so are those that the filter does not know.
    assert_eq!(table.prefix("0002/").count(), 100);
    assert_eq!(table.prefix("0002").count(), 100);
    assert_eq!(table.prefix("0003").count(), 0);
    assert_eq!(table.stats().prefix_rejected, stats.prefix_rejected);
}

/// Extractors of all kinds. The last is an application's own, in which some keys have no prefix although longer and shorter
/// ones have.
fn extractors() -> Vec<Any> {
    vec![
        Any(Arc::new(FixedPrefix::new(1))),
        Any(Arc::new(FixedPrefix::new(2))),
        Any(Arc::new(FixedPrefix::new(3))),
        Any(Arc::new(DelimitedPrefix::new(b'/'))),
        Any(Arc::new(DelimitedPrefix::new(0xff))),
        Any(Arc::new(DelimitedPrefix::new(0))),
        Any(Arc::new(Mixed)),
    ]
}

/// Any extractor.
#[derive(Debug, Clone)]
struct Any(Arc<dyn PrefixExtractor>);

impl PrefixExtractor for Any {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        self.0.prefix_len(key)
    }
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(9) {
        0 => Bound::Unbounded,
        1..=4 => Bound::Included(random.key(5)),
        _ => Bound::Excluded(random.key(5)),
    }
}

/// Bounds that often lie within one prefix, or just do not.
fn bounds(random: &mut Random) -> Bounds {
    let (mut lower, mut upper) = (bound(random), bound(random));
    if let (Bound::Included(low) | Bound::Excluded(low), 0..3) = (&lower, random.below(4)) {
        let mut high = low.clone();
        high.truncate(random.below(high.len() as u64 + 1) as usize);
        match (random.below(3), high.last_mut()) {
            (0, Some(last)) => *last = last.wrapping_add(1),
            (1, _) => high.extend(random.key(3)),
            _ => {}
        }
        upper = match random.below(3) {
            0 => Bound::Included(high),
            _ => Bound::Excluded(high),
        };
    }
    if random.below(8) == 0 {
        std::mem::swap(&mut lower, &mut upper);
    }
    (lower, upper)
}

fn is_within(key: &[u8], (lower, upper): &Bounds) -> bool {
    let after = match lower {
        Bound::Included(low) => key >= &low[..],
        Bound::Excluded(low) => key > &low[..],
        Bound::Unbounded => true,
    };
    let before = match upper {
        Bound::Included(high) => key <= &high[..],
        Bound::Excluded(high) => key < &high[..],
        Bound::Unbounded => true,
    };
    after && before
}

/// Asks tables of random keys for random bounds and prefixes, and compares the replies with those of the naive model.
/// Returns how many of them a filter gave.
fn ask_at_random(seed: u64, questions: u64) -> u64 {
    let mut random = Random(seed);
    let mut asked = 0;
    let mut rejected = 0;
    while asked < questions {
        let extractors = extractors();
        let extractor = &extractors[random.below(extractors.len() as u64) as usize];
        let count = random.below(24);
        let keys: BTreeMap<Vec<u8>, ()> = (0..count).map(|_| (random.key(5), ())).collect();
        let keys: Vec<Vec<u8>> = keys.into_keys().collect();
        let options = WriteOptions::leveldb()
            .compression(Compression::None)
            .block_size(1 + random.below(60) as usize)
            .prefix_filter(extractor.clone());
        let open = OpenOptions::new()
            .no_cache()
            .prefix_extractor(extractor.clone());
        let table = open.open_source(write(&options, &keys)).unwrap();
        assert!(table.prefix_filter().is_some(), "{extractor:?}");
        let db = random.below(2) == 0;
        let db = db.then(|| {
            let mut builder = options.build_db(Vec::new());
            for key in &keys {
                builder.put(key, 9, "new").unwrap();
                builder.delete(key, 4).unwrap();
            }
            let (file, _) = builder.finish_into_writer().unwrap();
            open.open_db_source(file).unwrap()
        });
        for _ in 0..200 {
            asked += 1;
            let what;
            let (expected, found) = if random.below(2) == 0 {
                let prefix = random.key(5);
                what = format!("prefix {prefix:02x?}");
                let expected: Vec<&Vec<u8>> =
                    keys.iter().filter(|key| key.starts_with(&prefix)).collect();
                let may = passes(&table, &prefix);
                assert!(
                    may || expected.is_empty(),
                    "{what} of {keys:02x?} by {extractor:?}"
                );
                if let Some(db) = &db {
                    let may = passes_in_db(db, &prefix);
                    assert!(
                        may || expected.is_empty(),
                        "{what} of {keys:02x?} by {extractor:?}"
                    );
                }
                assert_pages(&mut random, &prefix, &keys, &table, db.as_ref());
                (expected, table.prefix(&prefix))
            } else {
                let bounds = bounds(&mut random);
                what = format!("range {bounds:02x?}");
                let expected: Vec<&Vec<u8>> =
                    keys.iter().filter(|key| is_within(key, &bounds)).collect();
                if let Some(db) = &db {
                    let found = db
                        .range(bounds.clone())
                        .map(|entry| entry.unwrap().user_key);
                    let twice = expected.iter().flat_map(|key| [&key[..], &key[..]]);
                    assert!(found.eq(twice), "{what} of {keys:02x?} by {extractor:?}");
                }
                (expected, table.range(bounds))
            };
            let is_backward = random.below(4) == 0;
            let found: Vec<Vec<u8>> = if is_backward {
                let found = found.rev().map(|entry| entry.unwrap().0.to_vec());
                let mut found: Vec<_> = found.collect();
                found.reverse();
                found
            } else {
                keys_of(found)
            };
            assert!(
                found.iter().eq(expected),
                "{what} of {keys:02x?} by {extractor:?}: {found:02x?}"
            );
        }
        rejected += table.stats().prefix_rejected;
    }
    rejected
}

/// Asks for the keys of a prefix from anywhere on.
fn assert_pages(
    random: &mut Random,
    prefix: &[u8],
    keys: &[Vec<u8>],
    table: &Table,
    db: Option<&DbTable>,
) {
    let start = bound(random);
    let from = (start.clone(), Bound::Unbounded);
    let expected = keys.iter().filter(|key| key.starts_with(prefix));
    let expected: Vec<_> = expected.filter(|key| is_within(key, &from)).collect();
    let found = keys_of(table.prefix_from(prefix, start.clone()));
    assert!(found.iter().eq(expected.iter().copied()), "{start:?}");
    let Some(db) = db else { return };
    let key = |entry: leveltable::Result<leveltable::db::DbEntry>| entry.unwrap().user_key;
    let twice = expected.iter().flat_map(|key| [&key[..], &key[..]]);
    assert!(db.prefix_from(prefix, start.clone()).map(key).eq(twice));
    let once = expected.iter().map(|key| &key[..]);
    assert!(db.prefix_from(prefix, start).at(9).map(key).eq(once));
}

#[test]
fn no_scan_misses_a_key() {
    let rejected = ask_at_random(15, 60_000);
    assert!(rejected > 8_000, "only {rejected} asked the filter");
}

/// `cargo test --release --test engine prefix_filter:: -- --ignored`
#[test]
#[ignore = "takes a minute in a release build"]
fn no_scan_of_ten_million_misses_a_key() {
    let rejected = ask_at_random(1, 10_000_000);
    println!("the filter rejected {rejected} scans of 10,000,000, and none of a key");
    assert!(rejected > 1_000_000);
}

/// Absent prefixes between a million others, and past them.
#[test]
#[ignore = "slow in a debug build"]
fn wasted_reads_of_empty_scans_are_few() {
    const PREFIXES: u64 = 1_000_000;
    let key = |prefix: u64| format!("{prefix:012}/{}", prefix % 7);
    let options = WriteOptions::leveldb()
        .no_filter()
        .prefix_filter(DelimitedPrefix::new(b'/'));
    let file = write(&options, (0..PREFIXES).map(|i| key(2 * i)));
    let file = Bytes::from(file);
    let (table, source) = counted(file.clone());
    let bits = table.prefix_filter().unwrap().bytes as f64 * 8.0 / PREFIXES as f64;
    assert!(bits <= 10.0, "{bits} bits per prefix");
    let scans = |table: &Table, count: u64| {
        let start = std::time::Instant::now();
        for i in 0..count {
            assert_eq!(table.prefix(format!("{:012}/", 2 * i + 1)).count(), 0);
        }
        start.elapsed().as_nanos() / u128::from(count)
    };
    let reads = source.reads();
    let with = scans(&table, 2 * PREFIXES);
    let wasted = (source.reads() - reads) as f64 / (2 * PREFIXES) as f64;
    println!(
        "{:.4} % of empty scans read, at {bits:.3} bits per distinct prefix",
        wasted * 100.0
    );
    let unfiltered = OpenOptions::new().no_filter().open_source(file).unwrap();
    let without = scans(&unfiltered, PREFIXES / 10);
    println!("{with} ns an empty scan; from memory without the filter {without} ns");
    assert!(wasted <= 0.0015, "{wasted}");
}

/// The shape of RocksDB's pull request 10144: the upper bound is the successor of the prefix among keys of the same length, and
/// shorter keys lie between the two.
#[test]
fn short_keys_before_the_upper_bound_are_found() {
    let table = |keys: &[&[u8]]| {
        let file = write(&fixed(3), keys);
        OpenOptions::new().open_source(file).unwrap()
    };
    let short = table(&[b"ac"]);
    let bounds = |upper: &[u8]| {
        (
            Bound::Included(b"ab\xff".to_vec()),
            Bound::Excluded(upper.to_vec()),
        )
    };
    assert_eq!(keys_of(short.range(bounds(b"ac\x00"))), [b"ac"]);
    assert_eq!(keys_of(short.range(bounds(b"ac"))), [b""; 0]);
    assert_eq!(
        short.stats().prefix_rejected,
        1,
        "the second holds one prefix only"
    );
    let short = table(&[b"", b"\xff", b"\xff\xff"]);
    assert_eq!(keys_of(short.prefix("")), [&b""[..], b"\xff", b"\xff\xff"]);
    assert_eq!(keys_of(short.prefix("\u{ff}")), [b""; 0]);
    assert_eq!(keys_of(short.prefix(b"\xff")), [&b"\xff"[..], b"\xff\xff"]);
    assert_eq!(short.prefix(b"\xff\xff\xff").count(), 0);
    let tail = (Bound::Included(b"\xff\xff\xff".to_vec()), Bound::Unbounded);
    assert_eq!(short.range(tail).count(), 0);
    assert_eq!(short.stats().prefix_rejected, 2);
}

#[test]
fn prefixes_longer_and_shorter_than_the_extractors_are_right() {
    let keys = ["ab", "abc", "abcd", "abcde", "abcdf", "b", "bcde"];
    let table = OpenOptions::new()
        .open_source(write(&fixed(4), keys))
        .unwrap();
    for (prefix, expected) in [
        ("", &keys[..]),
        ("a", &keys[..5]),
        ("abc", &keys[1..5]),
        ("abcd", &keys[2..5]),
        ("abcdf", &keys[4..5]),
        ("abcdx", &[]),
        ("bcd", &keys[6..]),
        ("bcdf", &[]),
        ("c", &[]),
        ("cdefg", &[]),
    ] {
        let found = keys_of(table.prefix(prefix));
        assert!(
            found.iter().eq(expected.iter().map(|key| key.as_bytes())),
            "{prefix}: {found:?}"
        );
        assert!(expected.is_empty() || passes(&table, prefix));
    }
    // Past all keys.
    assert_eq!(table.prefix("d").count(), 0);
    // No key has a prefix.
    let table = OpenOptions::new()
        .open_source(write(&fixed(4), ["a", "b"]))
        .unwrap();
    assert!(!passes(&table, "aaaa"));
    assert!(passes(&table, "a"));
    assert_eq!(table.iter().count(), 2);
}

#[test]
fn another_extractors_filter_is_not_used() {
    let options = WriteOptions::new().prefix_filter(Mixed);
    let keys = [".ab1", ".ab2", "/1", "0"];
    let file = {
        let mut builder = options.build(Vec::new());
        keys.iter().for_each(|key| builder.add(key, "").unwrap());
        builder.finish_into_writer().unwrap().0
    };
    let opened = OpenOptions::new()
        .prefix_extractor(Mixed)
        .open_source(file.clone());
    let opened = opened.unwrap();
    let written = opened.prefix_filter().unwrap();
    assert_eq!(written.prefixes.as_deref(), Some("test.Mixed(/,1,.,3)"));

    let table = OpenOptions::new().open_source(file.clone()).unwrap();
    assert_eq!(table.prefix_filter(), None);
    assert_eq!(table.prefix(".cd").count(), 0);
    assert_eq!(table.stats().prefix_rejected, 0);
    assert!(table.filter().is_some());

    let given = OpenOptions::new()
        .prefix_extractor(FixedPrefix::new(3))
        .prefix_extractor(Mixed);
    let table = given.open_source(file.clone()).unwrap();
    assert_eq!(table.prefix_filter(), Some(written));
    assert_eq!(table.prefix(".cd").count(), 0);
    assert_eq!(table.stats().prefix_rejected, 1);
    assert!(table.filter().is_some());

    let table = given.no_filter().open_source(file).unwrap();
    assert_eq!(table.prefix_filter(), None);
    // Other parameters are another extractor, and names that are nearly right are none.
    for (name, is_known) in [
        ("leveltable.FixedPrefix(4)", true),
        ("leveltable.FixedPrefix(04)", false),
        ("leveltable.FixedPrefix(+4)", false),
        ("leveltable.FixedPrefix(0)", false),
        ("leveltable.FixedPrefix(99999999999999999999)", false),
        ("leveltable.DelimitedPrefix(ff)", true),
        ("leveltable.DelimitedPrefix(FF)", false),
        ("leveltable.DelimitedPrefix(f)", false),
        ("leveltable.DelimitedPrefix", false),
        ("", false),
    ] {
        let file = write(
            &WriteOptions::new().prefix_filter(Named(name)),
            ["abcdefgh"],
        );
        let table = OpenOptions::new().open_source(file).unwrap();
        assert_eq!(table.prefix_filter().is_some(), is_known, "{name}");
    }
}

/// Bytewise order by another type.
#[derive(Debug)]
struct ByTrait;

impl Comparator for ByTrait {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

#[test]
fn orders_other_than_bytewise_do_not_use_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = fixed(3).comparator(ByTrait);
    for error in [
        options.build(Vec::new()).add("key", "").unwrap_err(),
        options.build_db(Vec::new()).put("key", 1, "").unwrap_err(),
        options.create(directory.path().join("table")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert!(error.to_string().contains("bytewise order"), "{error}");
    }
    let file = write(&fixed(3), ["abcd"]);
    let table = OpenOptions::new()
        .comparator(ByTrait)
        .open_source(file.clone())
        .unwrap();
    assert_eq!(table.prefix_filter(), None);
    assert!(passes(&table, "xyz"));
    assert_eq!(table.range("xyz".."xyzz").count(), 0);
    assert_eq!(table.stats().prefix_rejected, 0);
    let table = OpenOptions::new().stored_order().open_source(file).unwrap();
    assert_eq!(table.prefix_filter(), None);
    assert!(passes(&table, "xyz"));
}

#[test]
fn senseless_extractors_are_refused() {
    let error = fixed(0).build(Vec::new()).add("key", "").unwrap_err();
    assert!(error.to_string().contains("at least 1"), "{error}");

    #[derive(Debug)]
    struct LastSlash;
    impl PrefixExtractor for LastSlash {
        fn name(&self) -> &str {
            "test.LastSlash"
        }
        fn prefix_len(&self, key: &[u8]) -> Option<usize> {
            Some(key.iter().rposition(|&byte| byte == b'/')? + 1)
        }
    }
    let mut builder = WriteOptions::new()
        .prefix_filter(LastSlash)
        .build(Vec::new());
    builder.add("a/b", "").unwrap();
    let error = builder.add("a/b/c", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(
        error
            .to_string()
            .contains("\"test.LastSlash\" breaks its rule"),
        "{error}"
    );
    builder.add("a/c", "").unwrap();
    let (file, summary) = builder.finish_into_writer().unwrap();
    assert_eq!(summary.properties.entries, 2);
    assert_eq!(
        OpenOptions::new().open_source(file).unwrap().iter().count(),
        2
    );
}

#[test]
fn a_databases_table_knows_prefixes_of_user_keys() {
    let mut builder = by_slash().block_size(64).build_db(Vec::new());
    for tenant in (0..100).step_by(2) {
        let key = format!("{tenant:03}/key");
        builder.delete(&key, 8).unwrap();
        builder.put(&key, 3, "old").unwrap();
    }
    builder.put("short", 1, "no prefix").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let source = Arc::new(CountingReadAt::new(Bytes::from(file)));
    let options = OpenOptions::new().no_cache();
    let table: DbTable = options.open_db_source(Arc::clone(&source)).unwrap();
    let reads = source.reads();
    let mut passed = 0;
    for tenant in (1..100).step_by(2) {
        let prefix = format!("{tenant:03}/");
        passed += u64::from(passes_in_db(&table, &prefix));
        assert_eq!(
            table.range(prefix.clone()..format!("{tenant:03}0")).count(),
            0
        );
        assert_eq!(
            table
                .range(prefix.clone()..=format!("{prefix}z"))
                .rev()
                .count(),
            0
        );
    }
    assert!(passed <= 2, "{passed}");
    assert!(source.reads() - reads <= passed * 4);
    assert_eq!(table.range("002/".."0020").count(), 2);
    assert_eq!(table.range("s".."t").count(), 1);
    assert_eq!(table.get("002/key").unwrap(), Some(Version::Deleted));
    assert!(passes_in_db(&table, "002/") && passes_in_db(&table, "short"));

    // Read as it is stored, by a caller who names the order of stored keys.
    let internal = leveltable::db::InternalKeyComparator::new(leveltable::BytewiseComparator);
    let stored = OpenOptions::new().comparator(internal);
    let stored = stored.open_source(Arc::clone(&source)).unwrap();
    assert_eq!(stored.iter().count(), 101);
    assert!(passes(&stored, "003/"), "it is asked for user keys only");
}

/// A table that fits both kinds: one version of each key, no filter of keys, no properties, no index key that was shortened.
#[test]
fn a_filter_that_may_be_of_user_keys_is_not_asked_for_stored_ones() {
    let options = fixed(3).no_filter().properties(false);
    let table = |first_sequence: u64| {
        let mut builder = options.clone().build_db(Vec::new());
        builder.put(b"\xff\x01", first_sequence, "value").unwrap();
        builder
            .put(b"\xff\xff", first_sequence + 1, "value")
            .unwrap();
        builder.finish_into_writer().unwrap().0
    };
    // Sequence numbers that a database has.
    let error = OpenOptions::new().open_source(table(5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable);
    let file = table(1 << 40);
    let db = OpenOptions::new().open_db_source(file.clone()).unwrap();
    assert!(!passes_in_db(&db, b"\xff\x01\x01"));
    let plain = OpenOptions::new().open_source(file).unwrap();
    assert_eq!(plain.prefix(b"\xff\x01\x01").count(), 1);
    assert_eq!(plain.prefix_filter(), None);
}

/// The bytes of the prefix filter.
fn block(file: &[u8]) -> Vec<u8> {
    file[Layout::of(file).prefixes.unwrap()].to_vec()
}

#[test]
fn a_databases_filter_is_that_of_its_user_keys() {
    let keys = ["a", "ab", "abc", "abcd", "bcd"];
    let mut builder = fixed(3).build_db(Vec::new());
    for key in keys {
        builder.put(key, 7, "new").unwrap();
        builder.put(key, 2, "old").unwrap();
    }
    let (db, _) = builder.finish_into_writer().unwrap();
    let plain = write(&fixed(3), keys);
    assert_eq!(block(&db), block(&plain));
    // Keys that are too short add nothing.
    let long = write(&fixed(3), &keys[2..]);
    assert_eq!(block(&long), block(&db));
}

/// The offset of the prefix filter, and its bytes.
fn place(file: &[u8]) -> (usize, usize) {
    let block = Layout::of(file).prefixes.unwrap();
    let table = OpenOptions::new().open_source(file.to_vec()).unwrap();
    assert_eq!(block.len() as u64, table.prefix_filter().unwrap().bytes + 5);
    (block.start, block.len())
}

/// The table is small, so its filters come with its tail, and are checked when it is opened.
#[test]
fn damage_is_an_error_at_open_and_can_be_opened_without() {
    let file = write(&by_slash(), tenants(3));
    let (offset, len) = place(&file);
    for at in [offset, offset + len / 2, offset + len - 6, offset + len - 1] {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        let opened = OpenOptions::new().open_source(damaged.clone());
        if at <= offset + len / 2 {
            let error = opened.unwrap_err();
            let corruption = error.corruption().unwrap();
            assert_eq!(corruption.section, Section::Filter, "{error}");
            let places = offset as u64..=at as u64;
            assert!(places.contains(&corruption.offset), "{error}");
        } else {
            // Pieces have checksums of their own, and there is a copy of the end: neither this nor the block's checksum is read.
            let table = opened.unwrap();
            assert_eq!(table.prefix("0002/").count(), 3);
            assert!(!passes(&table, "0003/"));
        }
        let table = OpenOptions::new()
            .no_filter()
            .open_source(damaged.clone())
            .unwrap();
        assert_eq!(table.prefix("0002/").count(), 3);
        assert_eq!(table.prefix("0003/").count(), 0);
    }
}

/// Whatever bit is flipped, a scan returns an error or all its keys.
#[test]
fn damage_anywhere_hides_no_key_from_scans() {
    let keys = tenants(1).split_off(490);
    let file = write(&by_slash().block_size(64), &keys);
    let expected = |prefix: &str| keys.iter().filter(|key| key.starts_with(prefix)).count();
    let mut opened = 0;
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        for options in [OpenOptions::new(), OpenOptions::new().no_filter()] {
            let Ok(table) = options.no_cache().open_source(damaged.clone()) else {
                continue;
            };
            opened += 1;
            for prefix in ["0980/", "0981/", "0998/", "0999/", "098"] {
                let found: Result<Vec<_>, _> = table.prefix(prefix).collect();
                if let Ok(found) = found {
                    assert_eq!(
                        found.len(),
                        expected(prefix),
                        "{prefix} with bit {bit} flipped"
                    );
                    assert!(found.is_empty() || passes(&table, prefix));
                }
            }
        }
    }
    assert!(opened > file.len(), "{opened}");
}

/// Without the option, a file has no byte more, and its metaindex no name.
#[test]
fn a_table_without_it_pays_nothing() {
    let keys = tenants(2);
    let (with, without) = (
        write(&by_slash(), &keys),
        write(&WriteOptions::new(), &keys),
    );
    let (_, len) = place(&with);
    // The block, its entry (three lengths, a name, a handle), and what is said of its pieces.
    let name = "about.prefixes.leveltable.DelimitedPrefix(2f)".len() - "about.".len();
    let pieces = |file: &[u8]| Layout::of(file).pieces.unwrap().len();
    let said = pieces(&with) - pieces(&without);
    assert!(said < 50, "{said}");
    let most = len + 3 + name + 10 + 8 + said;
    assert!(
        with.len() - without.len() <= most,
        "{}",
        with.len() - without.len()
    );
    assert!(!without.windows(8).any(|bytes| bytes == b"prefixes"));
    let table = OpenOptions::new().open_source(without).unwrap();
    assert_eq!(table.prefix_filter(), None);
    assert_eq!(table.prefix("0003/").count(), 0);
    assert!(passes(&table, "0003/"));
    assert_eq!(
        table.stats().prefix_passed + table.stats().prefix_rejected,
        0
    );
}
