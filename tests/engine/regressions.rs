//! Mistakes that were made once, each with its cost.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{self, Counting, Layout, Renamed, Reverse, handle_of, seal, take_varint};
use bytes::Bytes;
use leveltable::{
    BlockCache, BloomFilterPolicy, BytewiseComparator, Comparator, Compression, DbTable, ErrorKind,
    OpenOptions, RibbonFilterPolicy, Section, Table, WriteOptions,
    db::{InternalKey, InternalKeyComparator, ValueType, Version},
};

fn stored_key(user_key: &[u8], sequence: u64) -> Vec<u8> {
    let mut stored = Vec::new();
    let value_type = ValueType::Value;
    InternalKey {
        user_key,
        sequence,
        value_type,
    }
    .encode(&mut stored);
    stored
}

fn user_key(i: u32) -> Vec<u8> {
    format!("user{i:06}").into_bytes()
}

/// A database's table of 1000 keys, written by `options`.
fn database(options: WriteOptions) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.build_db(&mut file);
    for i in 0..1000 {
        builder
            .put(user_key(i), u64::from(i) + 1, b"value")
            .unwrap();
    }
    builder.finish().unwrap();
    file
}

fn internal_order() -> InternalKeyComparator {
    InternalKeyComparator::new(BytewiseComparator)
}

/// The filter of a database's table holds user keys. Asked for stored keys it lost 993 of 1000.
#[test]
fn a_databases_table_opened_bytewise_on_purpose_finds_its_stored_keys() {
    for options in [
        WriteOptions::leveldb(),
        WriteOptions::new().properties(false),
    ] {
        let file = database(options);
        let open = OpenOptions::new().comparator(BytewiseComparator);
        let table = open.open_source(file.clone()).unwrap();
        assert_eq!(table.filter(), None);
        for i in 0..1000 {
            let key = stored_key(&user_key(i), u64::from(i) + 1);
            assert!(table.get(&key).unwrap().is_some(), "key {i}");
        }
    }
}

/// Whether the policy is the preset's or the caller's: what one way of writing puts in, every way of reading must ask for.
#[test]
fn filters_of_internal_keys_agree_however_they_were_chosen() {
    for options in [
        WriteOptions::new().filter_policy(BloomFilterPolicy::new(10)),
        WriteOptions::new().filter_policy(RibbonFilterPolicy::new(10)),
        WriteOptions::new(),
        WriteOptions::leveldb(),
    ] {
        let mut by_table = Vec::new();
        let mut builder = options
            .clone()
            .comparator(internal_order())
            .build(&mut by_table);
        for i in 0..1000 {
            builder
                .add(stored_key(&user_key(i), u64::from(i) + 1), b"value")
                .unwrap();
        }
        builder.finish().unwrap();
        let by_db = database(options);
        assert_eq!(by_table, by_db);
        let open = OpenOptions::new();
        let open_own = open.clone().filter_policy(BloomFilterPolicy::new(10));
        for open in [open, open_own] {
            let db = open.open_db_source(by_db.clone()).unwrap();
            let table = open
                .comparator(internal_order())
                .open_source(by_db.clone())
                .unwrap();
            assert!(table.filter().is_some());
            for i in 0..1000 {
                assert_eq!(
                    db.get(user_key(i)).unwrap(),
                    Some(Version::Value("value".into()))
                );
                let stored = stored_key(&user_key(i), u64::from(i) + 1);
                assert!(table.contains_key(&stored).unwrap());
            }
            let absent = (1000..2000).filter(|&i| db.get(user_key(i)).unwrap().is_some());
            assert_eq!(absent.count(), 0);
            assert!(db.as_table().stats().filter_rejected > 900);
        }
    }
}

/// In a table of one block the index shows nothing: it opened as a plain table, and no key was found.
#[test]
fn a_database_in_another_order_is_not_taken_for_a_plain_table() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().comparator(Reverse).build_db(&mut file);
    for i in (0..50).rev() {
        builder.put(user_key(i), 7, b"value").unwrap();
    }
    builder.finish().unwrap();
    let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
    let error = OpenOptions::new().open_db_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
    let db = OpenOptions::new()
        .comparator(Reverse)
        .open_db_source(file)
        .unwrap();
    assert!(db.get(user_key(7)).unwrap().is_some());
}

/// Breaks its contract: a separator must come before the limit.
#[derive(Debug)]
struct LimitAsSeparator;

impl Comparator for LimitAsSeparator {
    fn name(&self) -> &str {
        "test.LimitAsSeparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        *start = limit.to_vec();
    }
}

/// Tagged as newest, such a separator still comes before the limit, and the limit's key was not found.
#[test]
fn a_separator_that_is_the_limits_user_key_hides_nothing() {
    let mut file = Vec::new();
    let options = WriteOptions::leveldb()
        .block_size(1)
        .comparator(LimitAsSeparator);
    let mut builder = options.build_db(&mut file);
    builder.put(b"aaaa", 9, b"1").unwrap();
    builder.put(b"b", 9, b"2").unwrap();
    builder.finish().unwrap();
    let index = common::entries(&common::payload(&file, &Layout::of(&file).index));
    assert_eq!(index[0].0, stored_key(b"aaaa", 9), "left as it was");
    let db = OpenOptions::new()
        .comparator(LimitAsSeparator)
        .open_db_source(file)
        .unwrap();
    assert_eq!(db.get(b"b").unwrap(), Some(Version::Value("2".into())));
}

/// The order of internal keys, with index keys that a function makes: from a key and the one after it, unless it is
/// the last.
#[derive(Debug)]
struct IndexedBy(fn(&mut Vec<u8>, Option<&[u8]>));

impl Comparator for IndexedBy {
    fn name(&self) -> &str {
        "leveldb.InternalKeyComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        internal_order().compare(a, b)
    }

    fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        InternalKey::parse(key).map_or(key, |parsed| parsed.user_key)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        self.0(start, Some(limit));
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        self.0(key, None);
    }
}

/// The user key of the limit, as new as can be: right in the order of internal keys, though no writer does so.
fn newest_of_limit(key: &mut Vec<u8>, limit: Option<&[u8]>) {
    let head = |key: &[u8]| key[..key.len() - 8].to_vec();
    if let Some(limit) = limit
        && head(key) != head(limit)
    {
        *key = [head(limit), vec![1], vec![0xff; 7]].concat();
    }
}

/// A lookup of that user key stopped at the separator, as if it lay between two user keys, and found nothing.
#[test]
fn a_separator_of_the_next_blocks_user_key_hides_nothing() {
    let mut file = Vec::new();
    let options = WriteOptions::leveldb().block_size(1);
    let mut builder = options
        .comparator(IndexedBy(newest_of_limit))
        .build(&mut file);
    for i in 0..100 {
        builder.add(stored_key(&user_key(i), 67), b"value").unwrap();
    }
    builder.finish().unwrap();
    let table = OpenOptions::new().open_db_source(file).unwrap();
    for i in 0..100 {
        for sequence in [67, 68, u64::MAX] {
            let found = table.at(sequence).get(user_key(i)).unwrap();
            assert_eq!(found, Some(Version::Value("value".into())));
        }
        assert_eq!(table.at(66).get(user_key(i)).unwrap(), None);
    }
}

/// 300 000 keys between two others share their first eight bytes: the search of the index was linear in them.
/// A lookup took 200 times as long as it should.
///
/// Comparisons are counted where the order is a comparator's. The built-in order calls nothing that could be
/// counted: it is held against the search that was, in turns, on the same keys, and no bound is in seconds.
#[test]
fn many_index_keys_of_one_prefix_are_searched_by_halves() {
    const TIED: u64 = 300_000;
    let mut file = Vec::new();
    let mut builder = WriteOptions::new()
        .block_size(1)
        .compression(Compression::None)
        .build(&mut file);
    builder.add(b"aaa", b"").unwrap();
    for i in 0..TIED {
        builder
            .add(format!("index:documents/{i:08}").as_bytes(), b"")
            .unwrap();
    }
    builder.add(b"zzz", b"").unwrap();
    builder.finish().unwrap();
    let file = Bytes::from(file);
    let counting = Arc::new(Counting::default());
    // Decoding the index compares neighbours.
    let open = OpenOptions::new().no_filter().preload(true);
    let counted = open.clone().comparator(counting.clone());
    let counted = counted.open_source(file.clone()).unwrap();
    let built_in = open.open_source(file).unwrap();
    assert_eq!(built_in.data_blocks() as u64, TIED + 2);

    let keys: Vec<String> = (0..2000)
        .map(|i| format!("index:documents/{:08}", i * 149))
        .collect();
    let look_up_all = |table: &Table| {
        let start = Instant::now();
        let found = |key: &String| table.contains_key(key.as_bytes()).unwrap();
        assert!(keys.iter().all(found));
        start.elapsed()
    };
    counting.comparisons.store(0, Relaxed);
    look_up_all(&counted);
    // The tops of the index by halves, and a piece by halves, each rounded up; the index's last key; and the one key of the
    // block, which is both compared and found equal.
    let most = u64::from(TIED.ilog2()) + 6;
    let comparisons = counting.comparisons.load(Relaxed);
    println!("{comparisons} comparisons for {} lookups", keys.len());
    assert!(comparisons >= keys.len() as u64, "{comparisons}");
    assert!(
        comparisons <= most * keys.len() as u64,
        "{comparisons} comparisons for {} lookups",
        keys.len()
    );

    // The best of several turns: the first brings blocks in, and others may be interrupted.
    let (mut by_trait, mut by_prefix) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        by_trait = by_trait.min(look_up_all(&counted));
        by_prefix = by_prefix.min(look_up_all(&built_in));
    }
    println!("by trait {by_trait:?}, built in {by_prefix:?}");
    assert!(
        by_prefix < by_trait * 20,
        "{by_prefix:?} against {by_trait:?} by halves"
    );
}

/// Damages entry `n` of the first data block, and makes the block's checksum right: the entry claims to share more
/// bytes than the key before it has.
fn spoil_entry(file: &mut [u8], n: usize) {
    let block = Layout::of(file).data[0].clone();
    assert_eq!(file[block.end - 5], 0, "a raw block");
    let mut rest = &file[block.start..block.end];
    for _ in 0..n {
        let [_, unshared, value] = [(); 3].map(|()| take_varint(&mut rest));
        rest = &rest[unshared + value..];
    }
    let start = block.end - rest.len();
    take_varint(&mut rest);
    let last_of_shared = block.end - rest.len() - 1;
    assert!(n > 0 && last_of_shared >= start);
    file[last_of_shared] = 0x7f;
    seal(file, &block);
}

/// All keys of the first block were compared, each a megabyte: opening took the square of the file's length.
///
/// A block that makes no sense from some entry on shows how far it was read: opening must not come to that entry.
#[test]
fn opening_looks_at_few_keys() {
    // 64 short keys at most, and no more once there are 64 KiB of them.
    for (key_len, keys, spoilt) in [(10, 1000, 65), (1000, 1000, 70), (1 << 20, 20, 2)] {
        let mut file = Vec::new();
        let mut builder = WriteOptions::leveldb()
            .compression(Compression::None)
            .block_size(usize::MAX)
            .restart_interval(usize::MAX)
            .build_db(&mut file);
        for sequence in (1..=keys).rev() {
            builder.put(vec![b'k'; key_len], sequence, b"").unwrap();
        }
        builder.finish().unwrap();
        spoil_entry(&mut file, spoilt);
        let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
        // Whoever goes on meets the damage, which costs the block: nothing in it is certain.
        let table = OpenOptions::new().open_db_source(file).unwrap();
        let (entries, errors): (Vec<_>, Vec<_>) = table.iter().partition(Result::is_ok);
        assert_eq!((entries.len(), errors.len()), (0, 1));
    }
}

/// An index value of 100 KB was printed byte for byte into the message.
#[test]
fn messages_do_not_grow_with_the_file() {
    let long = vec![0xff; 100_000];
    // Blocks in the place of the index: a value that is no handle, and two long keys that do not ascend.
    let no_handle = vec![(b"key".to_vec(), long.clone())];
    let low = [&long[..], b"1"].concat();
    let high = [&long[..], b"2"].concat();
    let two_keys = vec![(low, vec![0, 0]), (high, vec![5, 0])];
    let options = WriteOptions::leveldb().no_filter().block_size(usize::MAX);
    for (entries, order, words) in [
        (
            no_handle,
            Arc::new(BytewiseComparator) as Arc<dyn Comparator>,
            "expected the handle of a data block",
        ),
        (two_keys, Arc::new(Reverse), "do not ascend"),
    ] {
        let mut file = common::build(&options, &entries);
        let layout = Layout::of(&file);
        assert_eq!(layout.data.len(), 1);
        // The data block once more, after the metaindex, passed off as the index.
        let block = file[layout.data[0].clone()].to_vec();
        file.truncate(layout.index.start);
        file.extend(&block);
        let mut footer = handle_of(&layout.metaindex);
        footer.extend(handle_of(&(layout.index.start..file.len())));
        footer.resize(40, 0);
        footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
        file.extend(footer);
        let error = OpenOptions::new()
            .comparator(order)
            .open_source(file)
            .unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(words),
            "{}",
            &message[..message.len().min(2000)]
        );
        assert!(message.len() < 2000, "{} bytes", message.len());
    }
}

/// Logging a struct with a table in it printed the whole index.
#[test]
fn debug_output_is_short() {
    let (table, db) = tables_of_many_blocks();
    assert_short(&table, "Table");
    assert_short(&table.cursor(), "Cursor");
    assert_short(&table.iter(), "TableRange");
    assert_short(&db, "DbTable");
    assert_short(&db.iter(), "DbRange");
}

/// A cursor or range that stands on an entry printed its whole block.
#[test]
fn debug_output_is_short_within_a_block() {
    let (table, db) = tables_of_many_blocks();
    let mut cursor = table.cursor();
    assert!(cursor.seek_to_first().unwrap());
    assert_short(&cursor, "Cursor");
    let mut range = table.iter();
    assert!(range.next().is_some());
    assert_short(&range, "TableRange");
    let mut range = db.iter();
    assert!(range.next().is_some());
    assert_short(&range, "DbRange");
}

fn tables_of_many_blocks() -> (Table, DbTable) {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().build(&mut file);
    for i in 0..20_000 {
        builder.add(user_key(i), b"").unwrap();
    }
    builder.finish().unwrap();
    let table = OpenOptions::new().open_source(file).unwrap();
    assert!(table.data_blocks() > 20);
    let file = database(WriteOptions::new().block_size(2000));
    let db = OpenOptions::new().open_db_source(file).unwrap();
    assert!(db.as_table().data_blocks() > 4);
    (table, db)
}

fn assert_short(value: &dyn std::fmt::Debug, name: &str) {
    let debug = format!("{value:?}");
    assert!(debug.starts_with(name) && debug.len() < 1000, "{debug}");
}

/// Takes keys in any order, and makes index keys that ascend for those of the test below.
#[derive(Debug)]
struct AnyOrder;

impl Comparator for AnyOrder {
    fn name(&self) -> &str {
        BytewiseComparator.name()
    }

    fn compare(&self, _: &[u8], _: &[u8]) -> Ordering {
        Ordering::Less
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, _: &[u8]) {
        *start = match &start[..] {
            b"a" => b"c".to_vec(),
            _ => b"m".to_vec(),
        };
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        *key = b"zz".to_vec();
    }
}

/// In a table whose checksums are right and whose keys do not ascend, a range that was taken from both ends in turn
/// went on for ever: the bound after the last key taken could be wider than the one before.
#[test]
fn a_range_ends_from_both_ends_in_turn_whatever_the_order_of_keys() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().comparator(AnyOrder).build(&mut file);
    for (key, ends_block) in [("b", false), ("a", true), ("y", true), ("p", true)] {
        builder.add(key.as_bytes(), b"").unwrap();
        if ends_block {
            builder.flush().unwrap();
        }
    }
    builder.finish().unwrap();
    // Such a table is refused when it is opened, since it is small. In its stored order it can be walked, but not from both
    // ends in turn, which takes comparisons.
    let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let stored = OpenOptions::new().stored_order().open_source(file).unwrap();
    for fronts in 1..4 {
        let mut range = stored.iter();
        let from_front = (0..).map(|i| i % (fronts + 1) < fronts);
        let entries = from_front.map_while(|front| {
            if front {
                range.next()
            } else {
                range.next_back()
            }
        });
        let entries: Vec<_> = entries.take(100).collect();
        assert!(entries.len() < 10, "of four entries: {entries:?}");
        if fronts == 1 {
            let error = entries.into_iter().find_map(Result::err).unwrap();
            assert_eq!(error.kind(), ErrorKind::Comparator);
            assert!(error.to_string().contains("stored order"), "{error}");
        }
    }
}

/// LevelDB's, tagged as RocksDB does in tables of its first format, which is LevelDB's: with the largest type it knows.
fn tagged_by_rocksdb(key: &mut Vec<u8>, limit: Option<&[u8]>) {
    match limit {
        Some(limit) => internal_order().find_shortest_separator(key, limit),
        None => internal_order().find_short_successor(key),
    }
    let newest = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    if let Some(tag) = key.last_chunk_mut::<8>()
        && *tag == newest
    {
        tag[0] = 0x18;
    }
}

/// Its index keys were no internal keys to us: it opened as a plain table, in whose order most keys were not found,
/// and not as a database's.
#[test]
fn a_rocksdb_table_in_leveldbs_format_is_a_databases() {
    let mut file = Vec::new();
    let options = WriteOptions::leveldb().block_size(100);
    let mut builder = options
        .comparator(IndexedBy(tagged_by_rocksdb))
        .build(&mut file);
    let user_keys = ["apple", "banana", "cherry", "damson", "elderberry"];
    for user_key in user_keys {
        for sequence in [300, 5] {
            let value = format!("{user_key} as of {sequence}, and on and on");
            let stored = stored_key(user_key.as_bytes(), sequence);
            builder.add(&stored, value.as_bytes()).unwrap();
        }
    }
    builder.finish().unwrap();
    let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable);
    let table = OpenOptions::new().open_db_source(file.clone()).unwrap();
    assert!(table.as_table().data_blocks() > 3);
    for user_key in user_keys {
        for (at, sequence) in [(u64::MAX, 300), (299, 5)] {
            let value = format!("{user_key} as of {sequence}, and on and on");
            let version = table.at(at).get(user_key.as_bytes()).unwrap();
            assert_eq!(version, Some(Version::Value(value.into())));
        }
    }
}

/// The message named a data block, though a key of the index is at fault.
#[test]
fn a_plain_table_opened_as_a_databases_is_refused_at_its_index() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::leveldb().build(&mut file);
    builder.add(b"a plain key", b"").unwrap();
    builder.finish().unwrap();
    let error = OpenOptions::new().open_db_source(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let corruption = error.corruption().unwrap();
    assert_eq!(corruption.section, Section::Index);
    assert!(corruption.offset > 0);
    assert!(error.to_string().contains("open it with Table"), "{error}");
}

/// Numbers of eight bytes, and nothing else.
#[derive(Debug)]
struct Numbers;

impl Comparator for Numbers {
    fn name(&self) -> &str {
        "test.Numbers"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let number = |key: &[u8]| u64::from_le_bytes(key.try_into().expect("eight bytes"));
        number(a).cmp(&number(b))
    }
}

/// The first key was compared with an empty one before it, which nobody had added.
#[test]
fn a_comparator_is_given_keys_of_the_table_only() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new()
        .no_filter()
        .comparator(Numbers)
        .build(&mut file);
    for i in 0..1000u64 {
        builder.add(i.to_le_bytes(), b"").unwrap();
    }
    builder.finish().unwrap();
    let table = OpenOptions::new()
        .comparator(Numbers)
        .open_source(file)
        .unwrap();
    assert!((0..1000u64).all(|i| table.contains_key(i.to_le_bytes()).unwrap()));
    assert_eq!(table.iter().rev().map(Result::unwrap).count(), 1000);
}

/// Sets a flag when it is dropped.
struct Owner(Vec<u8>, Arc<AtomicU64>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

/// The block cache kept slices of what a source returned, and so the whole files of tables that were long closed.
#[test]
fn the_cache_does_not_keep_files_in_memory() {
    let options = WriteOptions::new().compression(Compression::None);
    let entries: Vec<_> = (0..5000u32)
        .map(|i| (format!("key{i:06}").into_bytes(), vec![b'v'; 30]))
        .collect();
    let dropped = Arc::new(AtomicU64::new(0));
    let cache = BlockCache::new(1 << 20);
    let owner = Owner(common::build(&options, &entries), Arc::clone(&dropped));
    let file: Arc<dyn leveltable::ReadAt> = Arc::new(Bytes::from_owner(owner));
    let open = OpenOptions::new().cache(cache.clone());
    let table = open.open_source(file).unwrap();
    assert!(table.contains_key("key002500").unwrap());
    assert!(cache.size() > 0);
    drop(table);
    assert_eq!(dropped.load(Relaxed), 1);
}

/// Errors of a database's table showed stored keys, in which nobody finds a user key again.
#[test]
fn errors_of_a_databases_table_show_user_key_and_sequence() {
    let mut builder = WriteOptions::new().build_db(Vec::new());
    builder.put("k", 5, "").unwrap();
    let error = builder.put("k", 9, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfOrder);
    assert!(error.to_string().contains("\"k\" at 9"), "{error}");
    assert!(error.to_string().contains("\"k\" at 5"), "{error}");
    let error = builder.delete("j", 5).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"j\" at 5 (a deletion) comes before"),
        "{error}"
    );

    let mut file = Vec::new();
    let options = WriteOptions::leveldb().comparator(Reverse);
    let mut builder = options.build_db(&mut file);
    builder.put("b", 7, "").unwrap();
    builder.put("a", 8, "").unwrap();
    builder.finish().unwrap();
    let error = OpenOptions::new().open_db_source(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(
        error
            .to_string()
            .contains("\"b\" at 7 comes before \"a\" at 8"),
        "{error}"
    );
}

/// Of a user key with thousands of versions, every lookup asked the filters of all their blocks.
#[test]
fn a_lookup_of_many_versions_asks_one_filter() {
    let mut builder = WriteOptions::leveldb().build_db(Vec::new());
    for sequence in (1..=50_000).rev() {
        builder.put("key", sequence, "value").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let db = OpenOptions::new().open_db_source(file).unwrap();
    assert!(db.as_table().data_blocks() > 100);
    assert!(db.get("key").unwrap().is_some());
    let stats = db.as_table().stats();
    assert_eq!((stats.filter_passed, stats.filter_rejected), (1, 0));
}

/// A table of one long key in many versions was called corrupt: its keys were more, all together, than was granted.
#[test]
fn many_versions_of_a_long_key_are_read() {
    let options = WriteOptions::new()
        .restart_interval(1 << 20)
        .block_size(64 << 10);
    let mut builder = options.build_db(Vec::new());
    let key = vec![b'k'; 5000];
    for sequence in (1..=5000).rev() {
        builder.put(&key, sequence, "").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let db = OpenOptions::new().open_db_source(file).unwrap();
    assert!(db.get(&key).unwrap().is_some());
    assert!(db.at(2500).get(&key).unwrap().is_some());
}

/// Two spellings of one key, and filters that know the part that both have.
#[derive(Debug)]
struct FourBytes;

impl Comparator for FourBytes {
    fn name(&self) -> &str {
        "test.FourBytes"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.filter_key(a).cmp(self.filter_key(b))
    }

    fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(..4).unwrap_or(key)
    }
}

/// The filter of a database's table was given whole user keys, whatever the comparator said that filters know.
#[test]
fn a_databases_filter_knows_what_the_comparator_says() {
    let options = WriteOptions::new().comparator(FourBytes);
    let mut builder = options.build_db(Vec::new());
    builder.put("abcdY", 1, "value").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let open = OpenOptions::new().comparator(FourBytes);
    let db = open.open_db_source(file).unwrap();
    assert_eq!(
        db.get("abcdX").unwrap(),
        Some(Version::Value("value".into()))
    );
    assert_eq!(db.get("abceX").unwrap(), None);
}

/// After a seek that failed, the cursor stood where it had stood before.
#[test]
fn a_failed_seek_loses_the_position() {
    let file = common::build(
        &WriteOptions::new(),
        &[(b"a".to_vec(), vec![]), (b"b".to_vec(), vec![])],
    );
    let table = OpenOptions::new().stored_order().open_source(file).unwrap();
    let mut cursor = table.cursor();
    assert!(cursor.next().unwrap());
    assert!(cursor.seek("b").is_err() && !cursor.is_valid());
    assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::InvalidState);
}

/// A source that keeps what it read in large pages.
struct Paged(Vec<u8>);

impl leveltable::ReadAt for Paged {
    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        let start = offset as usize;
        Ok(Bytes::from(self.0.clone()).slice(start..start + len))
    }
}

/// A block that is replaced in the cache, as when two threads miss it at once, made the cache believe that it was full.
#[test]
fn a_cache_with_room_keeps_every_block() {
    let options = WriteOptions::new().compression(Compression::None);
    let entries: Vec<_> = (0..20_000u32)
        .map(|i| (format!("key{i:06}").into_bytes(), vec![b'v'; 30]))
        .collect();
    let file = common::build(&options, &entries);
    let len = file.len() as u64;
    let cache = BlockCache::new(64 << 20);
    let table = OpenOptions::new()
        .cache(cache.clone())
        .open_source(Arc::new(Paged(file)))
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(table.iter().map(Result::unwrap).count(), entries.len()));
        }
    });
    assert!(cache.size() > len / 2, "{} of {len}", cache.size());
}

/// Of several filters, the best is used that is known; a handle that makes no sense matters only there.
#[test]
fn the_best_filter_that_is_known_is_used() {
    let (ribbon, renamed) = ("leveltable.Ribbon1", "test.Renamed");
    let used = |options: &OpenOptions, file: &[u8]| {
        let table = options.open_source(file.to_vec()).unwrap();
        table.filter().map(|filter| filter.policy.clone())
    };
    let open = OpenOptions::new();
    let options = WriteOptions::new().filter_policy(Renamed);
    let mut builder = options.build(Vec::new());
    for i in 0..1000 {
        builder.add(user_key(i), "value").unwrap();
    }
    let (file, summary) = builder.finish_into_writer().unwrap();
    let layout = Layout::of(&file);
    let size = layout.filter.clone().unwrap().len() as u64 - 5;
    assert_eq!(summary.properties.filter_bytes, Some(size));

    assert_eq!(used(&open, &file), None);
    let known = open.clone().filter_policy(Renamed);
    assert_eq!(used(&known, &file).as_deref(), Some(renamed));
    assert_eq!(used(&known.clone().no_filter(), &file), None);
    assert_eq!(used(&known.clone().stored_order(), &file), None);

    // Two filters, both known, and a third whose handle makes no sense.
    let index = common::payload(&file, &layout.index);
    let handle = handle_of(layout.filter.as_ref().unwrap());
    let named =
        |name: &str, handle: &[u8]| (format!("filter.{name}").into_bytes(), handle.to_vec());
    let mut metaindex = vec![named(ribbon, &handle), named(renamed, &handle)];
    let rest = &file[..layout.metaindex.start];
    let two = common::append_end(rest.to_vec(), &metaindex, &index);
    assert_eq!(used(&known, &two).as_deref(), Some(renamed));
    assert_eq!(used(&open, &two).as_deref(), Some(ribbon));
    metaindex.push(named("zoo", &[0x80]));
    let three = common::append_end(rest.to_vec(), &metaindex, &index);
    assert_eq!(used(&known, &three).as_deref(), Some(renamed));
    metaindex[0].1 = vec![0x80];
    let damaged = common::append_end(rest.to_vec(), &metaindex[..1], &index);
    assert!(open.open_source(damaged.clone()).is_err());
    assert_eq!(used(&open.clone().no_filter(), &damaged), None);

    // A database's table, by its stored keys: in bytewise order, since none is a prefix of another.
    let file = database(WriteOptions::new().properties(false));
    assert_eq!(
        used(&open.clone().comparator(BytewiseComparator), &file),
        None
    );
    let db = open.open_db_source(file).unwrap();
    assert_eq!(db.as_table().filter().unwrap().policy, ribbon);
}

/// A metaindex of nothing but filters, each entry a few bytes, took twenty times its size in memory.
#[test]
fn a_filter_is_found_among_many() {
    let mut builder = WriteOptions::leveldb().build(Vec::new());
    builder.add("key", "value").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let alone = OpenOptions::new().open_source(file.clone()).unwrap();
    let layout = Layout::of(&file);
    let index = common::payload(&file, &layout.index);
    let mut metaindex: Vec<_> = common::entries(&common::payload(&file, &layout.metaindex));
    let used = metaindex.pop().unwrap();
    metaindex.extend((0..1000).map(|i| (format!("filter.a{i:04}").into_bytes(), vec![0, 0])));
    metaindex.push(used);
    let rest = file[..layout.metaindex.start].to_vec();
    let file = common::append_end(rest, &metaindex, &index);
    let table = OpenOptions::new().open_source(file).unwrap();
    assert_eq!(table.filter(), alone.filter());
    assert_eq!(table.weight(), alone.weight());
}

/// A pipe that nobody writes to: opening it waited for ever.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = Table::open(&pipe).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let words = error.to_string();
    assert!(words.contains("not a regular file"), "{words}");
}

/// A block that compresses by more than readers allow is stored raw: the writer's own reader refused Zstandard's.
#[test]
fn a_block_that_a_codec_makes_too_small_is_readable() {
    let value = vec![0; 18 << 20];
    for &codec in Compression::all() {
        let mut builder = WriteOptions::new().compression(codec).build(Vec::new());
        builder.add("key", &value).unwrap();
        let (file, _) = builder.finish_into_writer().unwrap();
        let table = OpenOptions::new().open_source(file).unwrap();
        assert!(table.get("key").unwrap().unwrap() == value, "{codec}");
    }
}
