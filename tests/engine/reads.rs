//! The cost of operations in reads, counted where the reading is done and not by the filter's own statistics.

use std::collections::BTreeMap;
use std::io;
use std::iter::repeat_with;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, CountingReadAt, Entry, Layout};
use bytes::Bytes;
use leveltable::{
    BlockCache, BloomFilterPolicy, BytewiseComparator, Comparator, Compression, ErrorKind,
    OpenOptions, ReadAt, ReadOptions, Stats, Table, WriteOptions,
    db::{MAX_SEQUENCE, Version},
    filter::FixedPrefix,
    sister_crates::counts,
};

/// Reads, and bytes of them.
type Cost = (u64, u64);

const NOTHING: Cost = (0, 0);

/// Number of reads of a walk over blocks of these lengths: the first `alone` blocks come alone, and each read after them takes up to
/// twice as many blocks as the one before might, at most 256 KiB, and one block at least.
fn reads_of_a_walk(lens: &[u64], alone: usize) -> u64 {
    let (first, mut rest) = lens.split_at(alone.min(lens.len()));
    let (mut reads, mut most) = (first.len() as u64, 1);
    while !rest.is_empty() {
        most *= 2;
        let fits = |n: &usize| *n == 1 || rest[..*n].iter().sum::<u64>() <= 256 << 10;
        let blocks = (1..=rest.len().min(most)).take_while(fits);
        rest = &rest[blocks.last().unwrap()..];
        reads += 1;
    }
    reads
}

/// A table whose reads are counted.
struct Counted {
    file: Bytes,
    layout: Layout,
    disk: Arc<CountingReadAt<Bytes>>,
    table: Table,
}

/// 400 keys, the even numbers.
fn some_entries() -> Vec<Entry> {
    let entry = |i: u32| {
        let key = format!("key{:06}", 2 * i);
        (key.into_bytes(), format!("value {i}").into_bytes())
    };
    (0..400).map(entry).collect()
}

fn small_blocks() -> WriteOptions {
    WriteOptions::new().block_size(300).restart_interval(4)
}

/// Every kind of filter, by name.
fn filters() -> [(&'static str, WriteOptions); 4] {
    let bloom = small_blocks().filter_policy(BloomFilterPolicy::new(10));
    [
        ("none", small_blocks().no_filter()),
        ("the default", small_blocks()),
        ("windows", bloom.clone().whole_table_filter(false)),
        ("whole table", bloom.whole_table_filter(true)),
    ]
}

fn own_cache() -> OpenOptions {
    OpenOptions::new().cache(BlockCache::new(1 << 20))
}

impl Counted {
    fn open(write: &WriteOptions, open: &OpenOptions) -> Counted {
        let file = Bytes::from(common::build(write, &some_entries()));
        let disk = Arc::new(CountingReadAt::new(file.clone()));
        let table = open.open_source(Arc::clone(&disk)).unwrap();
        let layout = Layout::of(&file);
        assert!(layout.data.len() > 20);
        Counted {
            file,
            layout,
            disk,
            table,
        }
    }

    /// The cost of `operation`. The table itself must count the same.
    fn cost<R>(&self, operation: impl FnOnce(&Table) -> R) -> Cost {
        let (reads, bytes) = (self.disk.reads(), self.disk.bytes());
        operation(&self.table);
        let stats = self.table.stats();
        assert_eq!(stats.source_reads, self.disk.reads());
        assert_eq!(stats.source_bytes, self.disk.bytes());
        (self.disk.reads() - reads, self.disk.bytes() - bytes)
    }

    fn entries_of_block(&self, i: usize) -> Vec<Entry> {
        common::entries(&common::payload(&self.file, &self.layout.data[i]))
    }

    /// The cost of reading data block `i`.
    fn one_block(&self, i: usize) -> Cost {
        (1, self.layout.data[i].len() as u64)
    }

    /// Bytes of all data blocks.
    fn data_bytes(&self) -> u64 {
        self.layout
            .data
            .iter()
            .map(|range| range.len() as u64)
            .sum()
    }

    /// The cost of a walk over all data blocks, forward or backward.
    fn walk(&self, forward: bool) -> Cost {
        let mut lens: Vec<u64> = self
            .layout
            .data
            .iter()
            .map(|range| range.len() as u64)
            .collect();
        if !forward {
            lens.reverse();
        }
        (reads_of_a_walk(&lens, 2), self.data_bytes())
    }

    fn index_keys(&self) -> Vec<Vec<u8>> {
        let index = common::payload(&self.file, &self.layout.index);
        let entries = common::entries(&index).into_iter();
        entries.map(|(key, _)| key).collect()
    }

    /// Keys that are not there: before, between and after all that are, and the index's own keys
    /// with their neighbours, where a lookup could stray into a second block.
    fn absent_keys(&self) -> Vec<Vec<u8>> {
        let stored: Vec<Vec<u8>> = some_entries().into_iter().map(|(key, _)| key).collect();
        let odd_numbers = (0..400).map(|i| format!("key{:06}", 2 * i + 1).into_bytes());
        let around = |key: Vec<u8>| {
            let longer = [&key[..], b"\0"].concat();
            let shorter = key[..key.len() - 1].to_vec();
            [key, longer, shorter]
        };
        let keys = stored.iter().cloned().chain(self.index_keys());
        let mut absent: Vec<_> = keys.flat_map(around).chain(odd_numbers).collect();
        absent.extend([vec![], b"\xff\xff\xff".to_vec()]);
        absent.retain(|key| stored.binary_search(key).is_err());
        absent.sort();
        absent.dedup();
        assert!(absent.len() > 800);
        absent
    }
}

// ---- Opening --------------------------------------------------------------------------------

/// A counter that nothing adds to would be shown, as 0.
#[test]
fn every_counter_is_counted() {
    let write = small_blocks().prefix_filter(FixedPrefix::new(3));
    let table = Counted::open(&write, &own_cache()).table;
    for key in ["key000000", "key000000", "key000001"] {
        table.get(key).unwrap();
    }
    for prefix in ["key", "kex"] {
        table.prefix(prefix).next();
    }
    for (name, count) in counts(&table.stats()) {
        assert!(count > 0, "{name}");
    }
}

/// The promise of `OpenOptions::open`: one read for a small table. For larger ones see `tests/engine/opening.rs`.
#[test]
fn opening_a_small_table_takes_one_read() {
    for (name, write) in filters() {
        for open in [own_cache(), own_cache().no_filter()] {
            let Counted { disk, file, .. } = Counted::open(&write, &open);
            let whole = (1, file.len() as u64);
            assert_eq!((disk.reads(), disk.bytes()), whole, "filter: {name}");
        }
    }
}

#[test]
fn opening_an_empty_table_costs_no_more() {
    let file = Bytes::from(common::build(&WriteOptions::new(), &[]));
    let disk = Arc::new(CountingReadAt::new(file));
    let table = own_cache().open_source(Arc::clone(&disk)).unwrap();
    assert_eq!(disk.reads(), 1);
    assert_eq!(table.get(b"key").unwrap(), None);
    assert!(table.iter().next().is_none() && table.first().unwrap().is_none());
    assert_eq!(disk.reads(), 1, "there is nothing to read");
}

/// To recognise a database's table takes no more reads than to open it.
#[test]
fn refusing_a_databases_table_takes_one_read() {
    let mut file = Vec::new();
    let mut builder = small_blocks().build_db(&mut file);
    for (key, value) in some_entries() {
        builder.put(&key, 1, &value).unwrap();
    }
    builder.finish().unwrap();
    let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
    let db = own_cache().open_db_source(Arc::clone(&disk)).unwrap();
    assert_eq!(db.as_table().stats().source_reads, 1);
    assert_eq!(disk.reads(), 1);

    let error = own_cache().open_source(Arc::clone(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable);
    assert_eq!(disk.reads(), 2);

    let as_stored = own_cache().comparator(leveltable::db::InternalKeyComparator::new(
        BytewiseComparator,
    ));
    let table = as_stored.open_source(Arc::clone(&disk)).unwrap();
    assert!(table.filter().is_some());
    assert_eq!(disk.reads(), 3);
}

/// The keys of a table fit both kinds: its first block is read once to tell. Its filter may hold user keys, and is not asked. Then
/// the blocks before the tail come at once, for their order to be checked.
#[test]
fn an_unclear_table_is_opened_with_one_read_of_a_data_block() {
    /// Shortens nothing, so that index keys show nothing.
    #[derive(Debug)]
    struct Unshortened;
    impl Comparator for Unshortened {
        fn name(&self) -> &str {
            BytewiseComparator.name()
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.cmp(b)
        }
    }
    let mut builder = WriteOptions::leveldb()
        .compression(Compression::None)
        .comparator(Unshortened)
        .build_db(Vec::new());
    for (i, (key, _)) in some_entries().into_iter().enumerate() {
        builder
            .put(&key, (1 << 48) + i as u64, [b'v'; 300])
            .unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let layout = Layout::of(&file);
    let (len, block) = (file.len() as u64, layout.data[0].len() as u64);
    assert!(len > 100_000 && layout.filter.is_some());
    let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
    let table = own_cache().open_source(Arc::clone(&disk)).unwrap();
    assert!(table.filter().is_none());
    assert_eq!((disk.reads(), disk.bytes()), (2, (64 << 10) + block));
    for entry in table.iter() {
        let (key, value) = entry.unwrap();
        assert_eq!(table.get(&key).unwrap(), Some(value));
    }
}

#[test]
fn the_size_is_asked_once() {
    struct Sized(Bytes, AtomicU64);

    impl ReadAt for Sized {
        fn size(&self) -> io::Result<u64> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.size()
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.0.read_at(offset, len)
        }
    }

    let file = common::build(&small_blocks(), &some_entries());
    let disk = Arc::new(Sized(file.into(), AtomicU64::new(0)));
    let table = own_cache().open_source(Arc::clone(&disk)).unwrap();
    common::assert_holds(&table, &some_entries());
    assert_eq!(disk.1.load(Ordering::Relaxed), 1);
}

// ---- Lookups --------------------------------------------------------------------------------

#[test]
fn a_present_key_costs_its_block_and_nothing_once_that_is_cached() {
    for (name, write) in filters() {
        let counted = Counted::open(&write, &own_cache());
        for i in 0..counted.layout.data.len() {
            for (n, (key, value)) in counted.entries_of_block(i).iter().enumerate() {
                let expected = match n {
                    0 => counted.one_block(i),
                    _ => NOTHING,
                };
                let get = |table: &Table| assert_eq!(table.get(key).unwrap().unwrap(), value);
                assert_eq!(counted.cost(get), expected, "filter: {name}");
                assert_eq!(counted.cost(get), NOTHING, "filter: {name}");
            }
        }
    }
}

#[test]
fn an_absent_key_costs_nothing_where_the_filter_rejects_it_and_one_block_at_most() {
    for (name, write) in filters() {
        let counted = Counted::open(&write, &OpenOptions::new().no_cache());
        let absent = counted.absent_keys();
        let last = counted.index_keys().pop().unwrap();
        let mut reads = 0;
        for key in &absent {
            let get = |table: &Table| assert_eq!(table.get(key).unwrap(), None);
            let (cost, _) = counted.cost(get);
            let may_read = counted.table.may_contain(key).unwrap();
            assert_eq!(cost, u64::from(may_read), "{:?}", key.escape_ascii());
            assert!(*key <= last || cost == 0, "past the end");
            reads += cost;
        }
        let passed = reads as f64 / absent.len() as f64;
        match name {
            "none" => assert!(passed > 0.99, "{passed}"),
            // LevelDB's Bloom filter passes 3 % of keys like these, and as a whole-table filter more.
            _ => assert!(
                passed < 0.1,
                "{passed} of absent keys pass the filter: {name}"
            ),
        }
        println!(
            "filter: {name}: {reads} reads for {} absent keys",
            absent.len()
        );
    }
}

#[test]
fn all_kinds_of_lookup_cost_the_same() {
    for (_, write) in filters() {
        let counted = Counted::open(&write, &OpenOptions::new().no_cache());
        let stored = some_entries().into_iter().map(|(key, _)| key);
        for key in stored
            .step_by(7)
            .chain(counted.absent_keys().into_iter().step_by(7))
        {
            let get = counted.cost(|table| table.get(&key).unwrap());
            assert_eq!(
                counted.cost(|table| table.get_with(&key, <[u8]>::len).unwrap()),
                get
            );
            assert_eq!(counted.cost(|table| table.contains_key(&key).unwrap()), get);
            assert_eq!(
                counted.cost(|table| table.may_contain(&key).unwrap()),
                NOTHING
            );
        }
    }
}

#[test]
fn a_lookup_in_a_databases_table_costs_one_block_at_most_except_for_keys_of_the_index() {
    for (name, write) in filters() {
        let mut file = Vec::new();
        let mut builder = write.build_db(&mut file);
        let mut user_keys = Vec::new();
        // The sequence number of each key's newest version, and the value of all.
        let mut stored = BTreeMap::new();
        for (i, (mut key, value)) in some_entries().into_iter().enumerate() {
            key.extend(b"/tail"); // to be cut off in the index
            // Up to 20 versions of a key, so that some fill a block and more.
            let versions = 1 + i as u64 % 20;
            for sequence in (1..=versions).rev() {
                builder.put(&key, 10 * sequence, &value).unwrap();
            }
            stored.insert(key.clone(), (10 * versions, value));
            user_keys.push(key);
        }
        builder.finish().unwrap();
        let layout = Layout::of(&file);
        let index = common::entries(&common::payload(&file, &layout.index));
        let separators = index.iter().map(|(key, _)| key[..key.len() - 8].to_vec());
        assert!(
            separators.clone().any(|key| !user_keys.contains(&key)),
            "none is cut"
        );
        let between: Vec<_> = user_keys
            .iter()
            .map(|key| [&key[..], b"\0"].concat())
            .collect();

        let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
        let no_cache = OpenOptions::new().no_cache();
        let table = no_cache.open_db_source(Arc::clone(&disk)).unwrap();
        let mut second_reads = 0;
        let cut: Vec<Vec<u8>> = separators.filter(|key| !user_keys.contains(key)).collect();
        for key in user_keys.iter().chain(&cut).chain(&between) {
            for sequence in [MAX_SEQUENCE, 200, 195, 100, 15, 10, 5, 0] {
                let before = disk.reads();
                let found = table.at(sequence).get(key).unwrap();
                let reads = disk.reads() - before;
                let value = stored
                    .get(key)
                    .filter(|_| sequence >= 10)
                    .map(|(_, value)| Version::Value(Bytes::copy_from_slice(value)));
                assert_eq!(found, value);
                assert!(reads > 0 || value.is_none(), "nothing is cached");
                // Without a filter, the newest version of a key that the index was cut to may be on either side of
                // the cut.
                let may_be_after = name == "none" && sequence == MAX_SEQUENCE && cut.contains(key);
                let shown = key.escape_ascii();
                assert!(
                    reads <= 1 + u64::from(may_be_after),
                    "{shown} at {sequence}: {reads} reads, filter: {name}"
                );
                second_reads += reads.saturating_sub(1);
            }
        }
        assert_eq!(second_reads > 0, name == "none", "{second_reads}");
    }
}

/// A key whose piece of the index is not there yet was counted twice.
#[test]
fn the_filter_counts_each_key_once() {
    let key = |i: usize| format!("key {i:09}").into_bytes();
    let entries: Vec<Entry> = (0..40_000).map(|i| (key(i), vec![7; 20])).collect();
    let file = common::build(&WriteOptions::new().block_size(256), &entries);
    let open = || {
        let source = Arc::new(CountingReadAt::new(Bytes::from(file.clone())));
        OpenOptions::new().open_source(source).unwrap()
    };
    let keys: Vec<_> = (0..400).map(|i| key(i * 100)).collect();
    let table = open();
    for key in &keys {
        assert!(table.get(key).unwrap().is_some());
    }
    assert_eq!(table.stats().filter_passed, 400);
    let table = open();
    assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(table.stats().filter_passed, 400);
}

// ---- Caches ---------------------------------------------------------------------------------

#[test]
fn without_a_cache_every_lookup_reads() {
    let no_room = OpenOptions::new().cache(BlockCache::new(0));
    for open in [OpenOptions::new().no_cache(), no_room] {
        let counted = Counted::open(&small_blocks(), &open);
        for i in 0..counted.layout.data.len() {
            for (key, _) in counted.entries_of_block(i) {
                for _ in 0..2 {
                    let cost = counted.cost(|table| table.get(&key).unwrap());
                    assert_eq!(cost, counted.one_block(i));
                }
            }
        }
    }
}

#[test]
fn a_read_that_does_not_fill_the_cache_leaves_it_as_it_was_and_yet_uses_it() {
    let cache = BlockCache::new(1 << 20);
    let counted = Counted::open(&small_blocks(), &OpenOptions::new().cache(cache.clone()));
    let (hot, _) = &counted.entries_of_block(0)[0];
    counted.cost(|table| table.get(hot).unwrap());
    let size = cache.size();
    assert!(size > 0);

    let lens: Vec<u64> = counted
        .layout
        .data
        .iter()
        .map(|range| range.len() as u64)
        .collect();
    let all_but_hot = (reads_of_a_walk(&lens[1..], 1), lens[1..].iter().sum());
    let scan = |table: &Table| {
        let aside = table.with_read_options(ReadOptions::new().fill_cache(false));
        assert_eq!(aside.iter().map(Result::unwrap).count(), 400);
    };
    for _ in 0..2 {
        assert_eq!(counted.cost(scan), all_but_hot);
        assert_eq!(cache.size(), size);
    }
    assert_eq!(counted.cost(|table| table.get(hot).unwrap()), NOTHING);
    let (cold, _) = &counted.entries_of_block(4)[0];
    assert_eq!(
        counted.cost(|table| table.get(cold).unwrap()),
        counted.one_block(4)
    );
}

/// A cache that the caller chose keeps each block when it is first read, and so does the shared one for a source that is no file. Of
/// files, the shared one keeps what is asked for again.
#[test]
fn the_cache_keeps_what_is_asked_for_again() {
    // Large enough that opening does not read all of it.
    let key = |i: u32| format!("key{i:06}");
    let mut random = fastrand::Rng::with_seed(7);
    let mut value = || {
        repeat_with(|| random.u8(..))
            .take(20)
            .chain([7; 60])
            .collect()
    };
    let entries: Vec<Entry> = (0..4000)
        .map(|i| (key(2 * i).into_bytes(), value()))
        .collect();
    for compression in [Compression::None, Compression::Snappy] {
        let write = WriteOptions::new().block_size(600).compression(compression);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, common::build(&write, &entries)).unwrap();
        let source = || {
            Arc::new(CountingReadAt::new(
                std::fs::File::open(file.path()).unwrap(),
            ))
        };
        let own_cache = || OpenOptions::new().cache(BlockCache::new(4 << 20));
        for (what, is_near, table) in [
            ("chosen", false, own_cache().open(file.path()).unwrap()),
            (
                "default",
                true,
                OpenOptions::new().open(file.path()).unwrap(),
            ),
            (
                "not a file",
                false,
                OpenOptions::new().open_source(source()).unwrap(),
            ),
        ] {
            let cost = |lookups: &dyn Fn()| {
                let before = table.stats().source_reads;
                lookups();
                table.stats().source_reads - before
            };
            let get = |(key, value): &Entry| assert_eq!(table.get(key).unwrap().unwrap(), value);
            let get_all = || entries.iter().step_by(3).for_each(get);
            let costs: Vec<u64> = (0..9).map(|_| cost(&get_all)).collect();
            let last = costs.last().copied();
            if is_near {
                // The cache is shared with other tests, and may be full.
                assert_eq!(last, Some(0), "{what}, {compression:?}: {costs:?}");
            } else {
                let blocks = table.data_blocks() as u64;
                assert_eq!(costs[..2], [blocks, 0], "{what}, {compression:?}");
            }
            // A batch and a walk find what lookups left.
            let keys: Vec<_> = entries.iter().step_by(9).map(|entry| &entry.0).collect();
            let batch = || assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
            let walk = || assert_eq!(table.iter().map(Result::unwrap).count(), entries.len());
            assert_eq!(cost(&batch), 0, "{what}, {compression:?}");
            assert_eq!(cost(&walk), 0, "{what}, {compression:?}");
        }
    }
}

/// The next walk finds what a walk has left, also if each block is read alone, and if there is no order to check.
#[test]
fn a_walk_over_a_file_leaves_its_blocks_in_the_cache() {
    let entries: Vec<Entry> = (0..2000u32)
        .map(|i| (format!("key{i:06}").into_bytes(), vec![7; 1000]))
        .collect();
    let walk = |table: &Table| {
        let reads = table.stats().source_reads;
        let found = table.iter().map(Result::unwrap);
        assert!(
            found.eq(entries
                .iter()
                .map(|(key, value)| (key.clone().into(), value.clone().into())))
        );
        table.stats().source_reads - reads
    };
    for block_size in [600, 300 << 10] {
        let write = WriteOptions::new()
            .block_size(block_size)
            .compression(Compression::None);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, common::build(&write, &entries)).unwrap();
        let options = || OpenOptions::new().cache(BlockCache::new(128 << 20));
        for options in [options(), options().stored_order()] {
            let table = options.open(file.path()).unwrap();
            assert!(walk(&table) > 1);
            assert_eq!(walk(&table), 0, "{block_size}");
        }
        let table = options().open(file.path()).unwrap();
        let aside = table.with_read_options(ReadOptions::new().fill_cache(false));
        assert!(walk(&aside) > 1 && walk(&aside) > 1, "{block_size}");
    }
}

/// A table that is dropped, as by a reload, leaves its room to others; clones and walks keep it.
#[test]
fn blocks_of_dropped_tables_leave_the_cache() {
    let file = Bytes::from(common::build(&small_blocks(), &some_entries()));
    let cache = BlockCache::new(8 << 20);
    let options = OpenOptions::new().cache(cache.clone());
    let disk = || Arc::new(CountingReadAt::new(file.clone()));
    let kept = options.open_source(disk()).unwrap();
    common::assert_holds(&kept, &some_entries());
    let size = cache.size();
    assert!(size > file.len() as u64);
    let table = options.open_source(disk()).unwrap();
    let clone = table.clone();
    common::assert_holds(&table, &some_entries());
    assert_eq!(cache.size(), 2 * size);
    drop(table);
    let walk = clone.iter();
    drop(clone);
    assert_eq!(cache.size(), 2 * size);
    drop(walk);
    assert_eq!(cache.size(), size);
}

/// A cache that is full goes on taking blocks, also after threads have inserted the same one. If all that it holds was used since it
/// became full, it may take a block at its second use.
#[test]
fn a_full_cache_takes_what_is_used() {
    let file = Bytes::from(common::build(&small_blocks(), &some_entries()));
    let cache = BlockCache::new(file.len() as u64 / 4);
    let options = OpenOptions::new().cache(cache.clone());
    let table = options
        .open_source(Arc::new(CountingReadAt::new(file)))
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| common::assert_holds(&table, &some_entries()));
        }
    });
    assert!(cache.size() > cache.capacity() / 2);
    let (key, value) = some_entries().swap_remove(300);
    let read = |_| {
        let before = table.stats().source_reads;
        assert_eq!(table.get(&key).unwrap().unwrap(), value);
        table.stats().source_reads - before
    };
    assert_eq!([0; 4].map(read)[2..], [0, 0]);
}

/// Two tables in one cache, and the same file opened twice: no block is taken for another's.
#[test]
fn tables_that_share_a_cache_do_not_share_blocks() {
    let shared = OpenOptions::new().cache(BlockCache::new(1 << 20));
    let first = Counted::open(&small_blocks(), &shared);
    let second = Counted::open(&small_blocks(), &shared);
    let all = first.walk(true);
    let walk = |table: &Table| common::assert_holds(table, &some_entries());
    assert_eq!(first.cost(walk), all);
    assert_eq!(second.cost(walk), all);
    assert_eq!(first.cost(walk), NOTHING);
    assert_eq!(second.cost(walk), NOTHING);
}

// ---- Walks ----------------------------------------------------------------------------------

#[test]
fn a_walk_reads_each_block_once_in_either_direction() {
    let counted = Counted::open(&small_blocks(), &OpenOptions::new().no_cache());
    let last = counted.layout.data.len() - 1;
    let (forward, backward) = (counted.walk(true), counted.walk(false));
    assert!(forward.0 < 10 && counted.layout.data.len() > 20);
    assert_eq!(counted.cost(|table| table.iter().count()), forward);
    assert_eq!(counted.cost(|table| table.iter().rev().count()), backward);
    assert_eq!(
        counted.cost(|table| table.first().unwrap()),
        counted.one_block(0)
    );
    assert_eq!(
        counted.cost(|table| table.last().unwrap()),
        counted.one_block(last)
    );
    assert_eq!(
        counted.cost(|table| table.iter()),
        NOTHING,
        "not before it is asked for"
    );

    // A range within one block reads that block, whichever end is taken; one more step, the next.
    let entries = counted.entries_of_block(5);
    let (low, high) = (&entries[1].0, &entries[3].0);
    let range = |table: &Table| table.range(low..high);
    assert_eq!(
        counted.cost(|table| range(table).count()),
        counted.one_block(5)
    );
    assert_eq!(
        counted.cost(|table| range(table).rev().count()),
        counted.one_block(5)
    );
    let mut cursor = counted.table.cursor();
    assert_eq!(
        counted.cost(|_| cursor.seek(low).unwrap()),
        counted.one_block(5)
    );
    for _ in 2..entries.len() {
        assert_eq!(counted.cost(|_| cursor.next().unwrap()), NOTHING);
    }
    assert_eq!(
        counted.cost(|_| cursor.seek(high).unwrap()),
        NOTHING,
        "the same block"
    );
    assert_eq!(
        counted.cost(|_| cursor.seek(&entries[entries.len() - 1].0).unwrap()),
        NOTHING
    );
    assert_eq!(
        counted.cost(|_| cursor.next().unwrap()),
        counted.one_block(6)
    );
    assert_eq!(
        counted.cost(|_| cursor.prev().unwrap()),
        counted.one_block(5)
    );
}

#[test]
fn a_seek_past_the_end_costs_nothing() {
    let counted = Counted::open(&small_blocks(), &OpenOptions::new().no_cache());
    let mut cursor = counted.table.cursor();
    assert_eq!(
        counted.cost(|_| assert!(!cursor.seek(b"z").unwrap())),
        NOTHING
    );
    let range = |table: &Table| assert_eq!(table.range("z"..).count(), 0);
    assert_eq!(counted.cost(range), NOTHING);
    assert_eq!(
        counted.cost(|table| assert_eq!(table.get(b"z").unwrap(), None)),
        NOTHING
    );
}

// ---- Memory and statistics ------------------------------------------------------------------

#[test]
fn a_table_in_memory_costs_no_reads() {
    for compression in [Compression::None, Compression::Snappy] {
        let file = common::build(&small_blocks().compression(compression), &some_entries());
        let table = own_cache().open_source(file).unwrap();
        common::assert_holds(&table, &some_entries());
        let stats = table.stats();
        assert_eq!((stats.source_reads, stats.source_bytes), (0, 0));
        let uses_cache = stats.cache_hits + stats.cache_misses > 0;
        assert_eq!(uses_cache, compression != Compression::None);
    }
}

#[test]
fn statistics_account_for_every_lookup() {
    for (name, write) in filters() {
        let counted = Counted::open(&write, &own_cache());
        let opened = counted.table.stats();
        let mut opening = Stats::default();
        opening.source_reads = opened.source_reads;
        opening.source_bytes = opened.source_bytes;
        assert_eq!(
            opened, opening,
            "opening reads, and does nothing else that is counted"
        );

        let mut lookups = 0;
        let mut look_up = |key: &[u8]| {
            counted.table.get(key).unwrap();
            lookups += 1;
        };
        some_entries().iter().for_each(|(key, _)| look_up(key));
        counted.absent_keys().iter().for_each(|key| look_up(key));
        let stats = counted.table.clone().stats();
        let fetched = stats.cache_hits + stats.cache_misses;
        assert_eq!(stats.cache_misses, stats.source_reads - opened.source_reads);
        if name == "none" {
            assert_eq!((stats.filter_passed, stats.filter_rejected), (0, 0));
            assert!((lookups - 4..=lookups).contains(&fetched), "{fetched}");
        } else {
            // Past the last index key there is no block to ask a filter about, nor to fetch.
            let asked = stats.filter_passed + stats.filter_rejected;
            assert!(
                (lookups - 4..=lookups).contains(&asked),
                "{asked} of {lookups}"
            );
            assert!((stats.filter_passed - 4..=stats.filter_passed).contains(&fetched));
            assert!(stats.filter_passed >= 400 && stats.filter_rejected > 700);
        }
    }
}

/// In memory, what the filter answered last decides whether it is asked before the index or after: the answers are the same, and
/// it is asked once for each key.
#[test]
fn present_and_absent_keys_in_turns_are_found_and_counted() {
    for (name, write) in filters() {
        let options = OpenOptions::new().cache(BlockCache::new(1 << 20));
        let write = write.compression(Compression::None);
        let table = options
            .open_source(common::build(&write, &some_entries()))
            .unwrap();
        let entries = some_entries();
        let mut random = fastrand::Rng::with_seed(11);
        let mut lookups = 0;
        // Twice: of a block that was not seen before, nothing is touched early.
        for _ in 0..2 {
            for (key, value) in &entries {
                for _ in 0..random.usize(..4) {
                    let absent = [&key[..], b"~"].concat();
                    assert_eq!(table.get(&absent).unwrap(), None, "{name}");
                    assert_eq!(table.get([0xff; 3]).unwrap(), None, "{name}");
                    lookups += 2;
                }
                for _ in 0..random.usize(..4) {
                    assert_eq!(table.get(key).unwrap().unwrap(), value, "{name}");
                    lookups += 1;
                }
            }
        }
        let stats = table.stats();
        let asked = stats.filter_passed + stats.filter_rejected;
        if matches!(name, "the default" | "whole table") {
            assert_eq!(asked, lookups, "{name}");
        } else {
            assert!(asked <= lookups, "{name}");
        }
    }
}

/// Many keys at once, with every kind of filter: the values in the order asked, each block read once, the filter
/// asked once for each key that the index leaves.
#[test]
fn get_many_returns_values_in_order_and_reads_each_block_once() {
    let value = |n: u32| Bytes::copy_from_slice(&n.to_le_bytes());
    // And whether one filter covers the table.
    let kinds = [
        (WriteOptions::new(), true),
        (WriteOptions::leveldb(), false),
        (WriteOptions::leveldb().whole_table_filter(true), true),
        (WriteOptions::leveldb().no_filter(), false),
    ];
    for (options, is_whole) in kinds {
        let mut file = Vec::new();
        let mut builder = options.block_size(512).build(&mut file);
        for n in (0..4000).step_by(2) {
            builder.add(format!("{n:06}").as_bytes(), value(n)).unwrap();
        }
        let summary = builder.finish().unwrap();
        let disk = Arc::new(CountingReadAt::new(Bytes::from(file.clone())));
        let on_disk = OpenOptions::new()
            .no_cache()
            .open_source(Arc::clone(&disk))
            .unwrap();
        let in_memory = OpenOptions::new().open_source(file).unwrap();
        // Every key, present and absent, one past the last, some of them twice, in an order of no use.
        let numbers: Vec<u32> = (0..5000).map(|i| i * 7919 % 4001).collect();
        let keys: Vec<String> = numbers.iter().map(|n| format!("{n:06}")).collect();
        let expected: Vec<Option<Bytes>> = numbers
            .iter()
            .map(|&n| (n % 2 == 0 && n < 4000).then(|| value(n)))
            .collect();
        assert_eq!(in_memory.get_many(&keys).unwrap(), expected);
        let stats = in_memory.stats();
        let asked = stats.filter_passed + stats.filter_rejected;
        let with_filter = in_memory.filter().is_some();
        // All but those past the last key, 003998; a filter of the whole table is asked before the index.
        let left = numbers.iter().filter(|&&n| n <= 3998).count() as u64;
        let all = keys.len() as u64;
        let expected_to_ask = match (with_filter, is_whole) {
            (true, true) => all..=all,
            // The last index key may be a successor, past which nothing is asked.
            (true, false) => left..=all,
            (false, _) => 0..=0,
        };
        assert!(
            expected_to_ask.contains(&asked),
            "{asked} of {expected_to_ask:?}"
        );
        assert!(!with_filter || stats.filter_rejected > 2000);
        let (opening, opening_bytes) = (disk.reads(), disk.bytes());
        let batches = disk.batches();
        assert_eq!(on_disk.get_many(&keys).unwrap(), expected);
        // Each block has keys to find, and all of them lie side by side.
        assert_eq!((disk.batches() - batches, disk.reads() - opening), (1, 1));
        assert_eq!(disk.bytes() - opening_bytes, summary.properties.data_bytes);
        // Those near each other come with what lies between them, up to a page. More than that is not read.
        let (opening, opening_bytes) = (disk.reads(), disk.bytes());
        on_disk.get_many(&["000500", "000600", "003500"]).unwrap();
        assert_eq!((disk.batches() - batches, disk.reads() - opening), (2, 2));
        assert!(disk.bytes() - opening_bytes < 8 << 10);
        assert_eq!(on_disk.get_many::<&[u8]>(&[]).unwrap(), vec![]);
    }
}

/// Blocks come together if less than a page lies between them.
#[test]
fn a_batch_reads_across_less_than_a_page() {
    // The frame between has so many bytes more than its value: lengths and a key of one byte, a restart and their number, the trailer.
    for (between, reads) in [(4095, 1), (4096, 2)] {
        let mut file = Vec::new();
        let options = WriteOptions::new().compression(Compression::None);
        let mut builder = options.block_size(1).build(&mut file);
        builder.add("a", "first").unwrap();
        builder.add("b", vec![b'v'; between - 18]).unwrap();
        builder.add("c", "last").unwrap();
        builder.finish().unwrap();
        let [first, _, last] = &Layout::of(&file).data[..] else {
            panic!("three blocks");
        };
        assert_eq!(last.start - first.end, between);
        let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
        let options = OpenOptions::new().no_cache().preload(true);
        let table = options.open_source(Arc::clone(&disk)).unwrap();
        let opened = disk.reads();
        let values = table.get_many(&["a", "c"]).unwrap();
        assert_eq!(values, [Some("first".into()), Some("last".into())]);
        assert_eq!(disk.reads() - opened, reads, "{between} bytes between");
    }
}

/// As those of a plain table.
#[test]
fn a_databases_table_reads_nothing_between_bounds_that_exclude_each_other() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().build_db(&mut file);
    for i in 0..5_000 {
        builder.put(format!("{i:05}"), 9, [b'v'; 100]).unwrap();
    }
    builder.finish().unwrap();
    let source: Arc<dyn ReadAt> = Arc::new(bytes::Bytes::from(file));
    let table = OpenOptions::new()
        .no_cache()
        .open_db_source(source)
        .unwrap();
    let opened = table.as_table().stats().source_reads;
    assert_eq!(table.range("04000".."03000").count(), 0);
    assert_eq!(table.as_table().stats().source_reads, opened);
}
