//! Runs of tables that open when a walk comes to them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use leveltable::{
    ErrorKind, OpenOptions, ReadAt, Result, Table, TableRange, TableRun, WriteOptions,
};

/// Files that are open now, the most at once, and bytes read of all.
#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    bytes: AtomicU64,
}

/// A file, until it is closed.
struct Opened {
    bytes: Bytes,
    counts: Arc<Counts>,
}

impl Opened {
    fn new(bytes: Vec<u8>, counts: &Arc<Counts>) -> Opened {
        let open = counts.open.fetch_add(1, Relaxed) + 1;
        counts.most.fetch_max(open, Relaxed);
        Opened {
            bytes: bytes.into(),
            counts: counts.clone(),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Relaxed);
    }
}

impl ReadAt for Opened {
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.counts.bytes.fetch_add(len as u64, Relaxed);
        self.bytes.read_at(offset, len)
    }
}

/// A level of an engine: tables of 20 entries each, with every key or every second.
struct Level {
    keys: Vec<[Vec<u8>; 2]>,
    step: usize,
    counts: Arc<Counts>,
}

const ENTRIES: usize = 20;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

impl Level {
    fn new(tables: usize, step: usize, counts: &Arc<Counts>) -> Level {
        let ends = |i: usize| [i * ENTRIES, (i + 1) * ENTRIES - 1].map(|i| key(i * step));
        Level {
            keys: (0..tables).map(ends).collect(),
            step,
            counts: counts.clone(),
        }
    }
}

impl TableRun for Level {
    fn tables(&self) -> usize {
        self.keys.len()
    }

    fn keys(&self, i: usize) -> (&[u8], &[u8]) {
        let [first, last] = &self.keys[i];
        (first, last)
    }

    fn open(&self, i: usize) -> Result<Table> {
        let mut builder = WriteOptions::new().build(Vec::new());
        for entry in i * ENTRIES..(i + 1) * ENTRIES {
            builder.add(key(entry * self.step), vec![b'v'; 100])?;
        }
        let file = builder.finish_into_writer()?.0;
        OpenOptions::new()
            .no_cache()
            .open_source(Arc::new(Opened::new(file, &self.counts)))
    }
}

/// 5,000 tables in two levels: a merge has one of each open at a time, and reads two until its first entry.
#[test]
fn five_thousand_tables_are_merged_with_two_open() {
    let counts = Arc::new(Counts::default());
    let levels = || [(2500, 1), (2500, 2)].map(|(tables, step)| Level::new(tables, step, &counts));
    let ranges = || levels().map(|level| TableRange::of_run(level, ..));
    let mut merged = Table::merge(ranges()).unwrap();
    assert_eq!(counts.open.load(Relaxed), 0);
    assert!(merged.next().unwrap());
    let read = counts.bytes.load(Relaxed);
    assert!(read <= 128 << 10, "{read} bytes until the first entry");
    let mut entries = 1;
    while merged.next().unwrap() {
        entries += 1;
    }
    assert_eq!(entries, 5000 * ENTRIES);
    assert_eq!(counts.open.load(Relaxed), 0, "closed at the end");
    while merged.prev().unwrap() {
        entries -= 1;
    }
    assert_eq!(entries, 0);
    assert_eq!(counts.most.load(Relaxed), 2);

    let bounds = key(70_001)..key(90_000);
    let within = levels().map(|level| TableRange::of_run(level, bounds.clone()));
    let range = Table::merge(within).unwrap().into_iter();
    assert_eq!(range.map(Result::unwrap).count(), 9_999);
}

/// 5,000 runs of one table each, whose keys come one after the other: one is open at a time.
#[test]
fn five_thousand_runs_of_one_table_are_merged_with_two_open() {
    struct One(Arc<Level>, usize);
    impl TableRun for One {
        fn tables(&self) -> usize {
            1
        }
        fn keys(&self, _: usize) -> (&[u8], &[u8]) {
            self.0.keys(self.1)
        }
        fn open(&self, _: usize) -> Result<Table> {
            self.0.open(self.1)
        }
    }
    let counts = Arc::new(Counts::default());
    let level = Arc::new(Level::new(5000, 1, &counts));
    let ranges = (0..5000).map(|i| TableRange::of_run(One(level.clone(), i), ..));
    let mut merged = Table::merge(ranges).unwrap();
    assert!(merged.next().unwrap());
    let read = counts.bytes.load(Relaxed);
    assert!(read <= 128 << 10, "{read} bytes until the first entry");
    let mut entries = 1;
    while merged.next().unwrap() {
        entries += 1;
    }
    assert_eq!(entries, 5000 * ENTRIES);
    let most = counts.most.load(Relaxed);
    assert!(most <= 2, "{most} open at once");
}

/// Keys that are listed and not there, a table that does not open, and an order that differs, are errors of the move.
#[test]
fn a_table_that_is_not_as_listed_is_an_error() {
    let counts = Arc::new(Counts::default());
    let mut level = Level::new(3, 1, &counts);
    level.keys[1][0] = key(19).into_iter().chain(*b"x").collect();
    let mut range = TableRange::of_run(level, ..);
    for _ in 0..ENTRIES {
        assert!(range.advance().unwrap());
    }
    let error = range.advance().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("as it is listed"), "{error}");
    assert!(!range.advance().unwrap());

    struct Closed;
    impl TableRun for Closed {
        fn tables(&self) -> usize {
            1
        }
        fn keys(&self, _: usize) -> (&[u8], &[u8]) {
            (b"a", b"z")
        }
        fn open(&self, _: usize) -> Result<Table> {
            Err(io::Error::from(io::ErrorKind::NotFound).into())
        }
    }
    let mut merged = Table::merge([TableRange::of_run(Closed, ..)]).unwrap();
    assert_eq!(merged.next().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(merged.next().unwrap_err().kind(), ErrorKind::InvalidState);
    assert!(!merged.seek("zz").unwrap(), "past what is listed");
    let outside = TableRange::of_run(Closed, "zz"..);
    assert_eq!(outside.count(), 0);
}

/// The other ends, too: of a walk forward the last keys, on the way back the first, also after a seek.
#[test]
fn a_table_that_ends_elsewhere_than_listed_is_an_error() {
    let counts = Arc::new(Counts::default());
    let mut level = Level::new(3, 1, &counts);
    let beyond: Vec<u8> = key(39).into_iter().chain(*b"x").collect();
    level.keys[1][1] = beyond.clone();
    let level = Arc::new(level);
    struct Shared(Arc<Level>);
    impl TableRun for Shared {
        fn tables(&self) -> usize {
            self.0.tables()
        }
        fn keys(&self, i: usize) -> (&[u8], &[u8]) {
            self.0.keys(i)
        }
        fn open(&self, i: usize) -> Result<Table> {
            self.0.open(i)
        }
    }
    let range = |bounds| TableRange::of_run(Shared(level.clone()), bounds);
    let mut forward = range(key(0)..key(60));
    let shown = forward.by_ref().take_while(Result::is_ok).count();
    assert_eq!(shown, 40, "and then an error");
    let mut merged = Table::merge([range(key(0)..key(60))]).unwrap();
    for target in [&beyond[..], &key(39)] {
        let moved = merged.seek(target).and_then(|_| merged.next());
        assert!(moved.unwrap_err().to_string().contains("last key to be"));
    }
    // Bounds that end before that key do not depend on it.
    assert_eq!(range(key(0)..beyond).map(Result::unwrap).count(), 40);

    let mut level = Level::new(3, 1, &counts);
    level.keys[1][0] = key(18).into_iter().chain(*b"x").collect();
    level.keys[0][1] = key(18);
    let error = TableRange::of_run(level, ..).rev().find_map(Result::err);
    assert!(error.unwrap().to_string().contains("first key to be"));
}

/// Whatever else a table has: a run ascends, and shows no key twice.
#[test]
fn keys_outside_of_what_is_listed_are_not_shown() {
    let counts = Arc::new(Counts::default());
    let mut level = Level::new(2, 1, &counts);
    level.keys[0][1] = key(15);
    level.keys[1][0] = key(25);
    let keys = |range: TableRange| range.map(|entry| entry.unwrap().0).collect::<Vec<_>>();
    let shown = keys(TableRange::of_run(level, ..));
    let expected: Vec<Bytes> = (0..=15).chain(25..40).map(|i| key(i).into()).collect();
    assert_eq!(shown, expected);
}

/// A merge of duplicates, as an input of another kind: the last of them is the last of a range.
#[test]
fn the_last_of_equal_keys_ends_a_range() {
    use leveltable::SortedSlice;

    let slice = |value| TableRange::of(SortedSlice::new([("apple", value)]), ..);
    let merged = Table::merge([slice("green"), slice("red")]).unwrap();
    let mut range = TableRange::of(merged, ..="apple");
    assert_eq!(range.next_back().unwrap().unwrap().1, "red");
}

#[test]
fn a_range_of_a_cursor_lends_nothing_before_the_first_move() {
    let table = OpenOptions::new();
    let mut builder = WriteOptions::new().build(Vec::new());
    builder.add("apple", "red").unwrap();
    builder.add("banana", "yellow").unwrap();
    let table = table
        .open_source(builder.finish_into_writer().unwrap().0)
        .unwrap();
    let mut cursor = Table::merge([&table]).unwrap();
    assert!(cursor.seek("b").unwrap());
    let mut range = cursor.into_iter();
    assert_eq!(range.key(), b"");
    assert!(range.advance().unwrap());
    assert_eq!(range.key(), b"apple");
}
