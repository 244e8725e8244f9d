//! What opening a table asks its source for: which bytes, and how often one request waits for another. What it needs is
//! computed here from the specification.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::common::{self, Entry, Layout, Random};
use bytes::Bytes;
use leveltable::filter::FixedPrefix;
use leveltable::{
    BloomFilterPolicy, Compression, ErrorKind, OpenOptions, ReadAt, Table, WriteOptions,
};

const TAIL: usize = 64 << 10;

/// A file that notes what it is asked for: a step for each call, since a caller waits for one before it makes the next.
struct Asked {
    file: Bytes,
    steps: Mutex<Vec<Vec<Range<usize>>>>,
}

impl Asked {
    fn new(file: &[u8]) -> Arc<Asked> {
        Arc::new(Asked {
            file: Bytes::copy_from_slice(file),
            steps: Mutex::default(),
        })
    }

    fn note(&self, parts: &[(u64, usize)]) {
        let range = |&(offset, len): &(u64, usize)| offset as usize..offset as usize + len;
        let step = parts.iter().map(range).collect();
        self.steps.lock().unwrap().push(step);
    }

    fn take(&self) -> Vec<Vec<Range<usize>>> {
        std::mem::take(&mut self.steps.lock().unwrap())
    }
}

impl ReadAt for Asked {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.note(&[(offset, len)]);
        self.file.read_at(offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        self.note(parts);
        self.file.read_many_at(parts, each);
    }
}

fn options() -> OpenOptions {
    OpenOptions::new()
        .no_cache()
        .prefix_extractor(FixedPrefix::new(5))
}

/// Keys that separators do not shorten, and small values.
fn entries(n: usize) -> Vec<Entry> {
    let entry = |i: usize| (format!("key{i:08}").into_bytes(), vec![b'v'; 20]);
    (0..n).map(entry).collect()
}

/// A table of these entries with a property of `property` bytes. An entry a block makes a long index.
fn table(options: &WriteOptions, n: usize, block_size: usize, property: usize) -> Vec<u8> {
    let options = options
        .clone()
        .compression(Compression::None)
        .block_size(block_size);
    let mut builder = options.build(Vec::new());
    for (key, value) in entries(n) {
        builder.add(key, value).unwrap();
    }
    if property > 0 {
        builder.property("large", vec![b'p'; property]).unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

/// What opening `file` should ask for, step by step: no filter, and of a table that divides its index, nothing of that.
fn expected(file: &[u8]) -> Vec<Vec<Range<usize>>> {
    let layout = Layout::of(file);
    let tail = file.len().saturating_sub(TAIL)..file.len();
    let mut steps = vec![vec![tail.clone()]];
    let mut known = vec![tail];
    let mut ask = |parts: &[&Range<usize>]| {
        let is_known = |part: &Range<usize>| {
            let mut known = known.iter();
            known.any(|known| known.start <= part.start && part.end <= known.end)
        };
        let mut missing: Vec<Range<usize>> = parts
            .iter()
            .filter(|part| !is_known(part))
            .map(|part| (*part).clone())
            .collect();
        missing.sort_by_key(|part| part.start);
        // What lies together is read together, up to 256 KiB.
        missing.dedup_by(|part, before| {
            let together = part.start == before.end && part.end - before.start <= 256 << 10;
            before.end = if together { part.end } else { before.end };
            together
        });
        known.extend(missing.iter().cloned());
        steps.extend(Some(missing).filter(|missing| !missing.is_empty()));
    };
    if layout.metaindex.start < file.len().saturating_sub(TAIL) {
        // The metaindex does not lie in the tail: it is read with the index, and some room for the properties.
        let with_room = layout.metaindex.start - (4 << 10)..layout.metaindex.end;
        ask(&[&with_room, &layout.index]);
    }
    let index = layout.pieces.as_ref().unwrap_or(&layout.index);
    let properties = layout.properties.iter();
    ask(&properties.chain([index]).collect::<Vec<_>>());
    steps
}

fn count(steps: &[Vec<Range<usize>>]) -> usize {
    steps.iter().map(Vec::len).sum()
}

/// The promise of [`OpenOptions::open`], for tables of all sizes of index, filter and properties.
#[test]
fn a_table_of_any_size_is_opened_by_its_tail() {
    let with_prefixes = WriteOptions::new().prefix_filter(FixedPrefix::new(5));
    for options in [
        WriteOptions::new(),
        WriteOptions::new().no_filter(),
        WriteOptions::new().filter_policy(BloomFilterPolicy::new(10)),
        with_prefixes.clone(),
        with_prefixes.no_filter(),
    ] {
        for (n, block_size, property) in [
            (10, 4096, 0),
            (3_000, 4096, 0),
            (3_000, 1, 0),
            (20_000, 4096, 0),
            (20_000, 1, 0),
            (3_000, 4096, 70_000),
            (3_000, 1, 70_000),
            // More than is read together.
            (20_000, 1, 8 << 20),
        ] {
            let file = table(&options, n, block_size, property);
            let disk = Asked::new(&file);
            let opened = self::options().open_source(Arc::clone(&disk)).unwrap();
            let steps = disk.take();
            let what = format!("{n} entries, {block_size}, {property}, {options:?}");
            assert_eq!(steps, expected(&file), "{what}");
            // Only properties that are longer than the tail take a read of their own.
            let expected_reads = 1 + usize::from(property > TAIL);
            assert_eq!(count(&steps), expected_reads, "{what}: {steps:?}");
            assert_eq!(opened.stats().source_reads, count(&steps) as u64);

            // The same without filters.
            let table = self::options().no_filter();
            let table = table.open_source(Arc::clone(&disk)).unwrap();
            assert_eq!(disk.take(), steps, "{what}");
            assert!(table.filter().is_none() && table.prefix_filter().is_none());
        }
    }
}

/// Tables in LevelDB's order take a step more, for metaindex and index; filters are read when they are first asked.
#[test]
fn a_large_table_in_leveldbs_order_is_opened_in_two_steps() {
    let with_prefixes = WriteOptions::new().prefix_filter(FixedPrefix::new(5));
    let mut seen = [0; 3];
    for options in [
        WriteOptions::leveldb(),
        WriteOptions::leveldb().no_filter(),
        WriteOptions::leveldb().prefix_filter(FixedPrefix::new(5)),
        WriteOptions::new(),
        with_prefixes,
    ] {
        for (n, block_size) in [
            (10, 4096),
            (3_000, 1),
            (20_000, 4096),
            (20_000, 1),
            (150_000, 4096),
        ] {
            let file = table(&options, n, block_size, 0);
            let file = common::in_both_orders(&file).pop().unwrap();
            let layout = Layout::of(&file);
            assert!(layout.metaindex.end == layout.index.start);
            let disk = Asked::new(&file);
            let table = self::options().open_source(Arc::clone(&disk)).unwrap();
            let steps = disk.take();
            let what = format!("{n} entries, {block_size}, {options:?}");
            assert_eq!(steps, expected(&file), "{what}");
            assert!(steps.len() <= 2, "{what}: {steps:?}");
            seen[steps.len()] += 1;
            assert_eq!(table.filter().is_some(), layout.filter.is_some());
            assert_eq!(table.prefix_filter().is_some(), layout.prefixes.is_some());
            let unfiltered = self::options().no_filter();
            unfiltered.open_source(Arc::clone(&disk)).unwrap();
            assert_eq!(disk.take(), expected(&file), "{what}");
        }
    }
    assert!(seen[1..].iter().all(|&tables| tables > 0), "{seen:?}");
}

/// A source that gives no more than so many bytes at once. What could not be read in one part is read in smaller ones, and not
/// block by block.
#[test]
fn what_cannot_be_read_at_once_is_read_in_parts() {
    struct Short(Arc<Asked>);
    impl ReadAt for Short {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            let read = self.0.read_at(offset, len);
            read.and_then(|bytes| match len {
                ..=1_000_000 => Ok(bytes),
                _ => Err(io::Error::other("too much at once")),
            })
        }
    }
    let file = table(&WriteOptions::leveldb(), 120_000, 4096, 0);
    assert!((3 << 20..4 << 20).contains(&file.len()), "{}", file.len());
    let asked = Asked::new(&file);
    let source = Arc::new(Short(Arc::clone(&asked)));
    let table = options().check_order(true).open_source(source).unwrap();
    let reads = count(&asked.take());
    assert!((10..=25).contains(&reads), "{reads}");
    let (key, value) = entries(60_000).pop().unwrap();
    assert_eq!(table.get(key).unwrap().unwrap(), value);
}

/// The padding between the blocks of an aligned table is read with them.
#[test]
fn the_order_of_an_aligned_table_is_checked_with_long_reads() {
    let file = table(&WriteOptions::new().block_align(true), 20_000, 3000, 0);
    let asked = Asked::new(&file);
    let source = Arc::clone(&asked);
    options().check_order(true).open_source(source).unwrap();
    let (reads, long) = (count(&asked.take()), file.len() / (256 << 10));
    assert!((long..long + 8).contains(&reads), "{reads}");
}

/// Filters are read when they are first asked, and the filter of a policy or of prefixes that the reader does not know is not
/// read at all.
#[test]
fn filters_that_are_not_known_are_not_read() {
    #[derive(Debug)]
    struct Unknown;
    impl leveltable::filter::PrefixExtractor for Unknown {
        fn name(&self) -> &str {
            "test.Unknown"
        }
        fn prefix_len(&self, key: &[u8]) -> Option<usize> {
            (key.len() >= 5).then_some(5)
        }
    }
    let options = WriteOptions::new().prefix_filter(Unknown);
    let file = table(&options, 20_000, 1, 0);
    let layout = Layout::of(&file);
    assert!(layout.prefixes.is_some());
    for file in common::in_both_orders(&file) {
        let disk = Asked::new(&file);
        let table = self::options().open_source(Arc::clone(&disk)).unwrap();
        assert!(table.filter().is_some() && table.prefix_filter().is_none());
        assert_eq!(disk.take(), expected(&file));
        let layout = Layout::of(&file);
        let (filter, unknown) = (layout.filter.unwrap(), layout.prefixes.unwrap());
        let touches = |part: &Range<usize>, read: &Range<usize>| {
            read.start < part.end && part.start < read.end
        };
        for (i, (key, _)) in entries(20_000).iter().step_by(100).enumerate() {
            assert!(table.get(key).unwrap().is_some());
            assert!(table.prefix(&key[..5]).next().unwrap().is_ok());
            let reads = disk.take().concat();
            let is_held = i > 0 || filter.start >= file.len() - TAIL;
            assert!(is_held || reads.iter().any(|read| touches(&filter, read)));
            assert!(
                !reads.iter().any(|read| touches(&unknown, read)),
                "{reads:?}"
            );
        }
    }
}

/// A source that has some of a file's bytes, as one over a network has what it has fetched. What is missing is noted, and an
/// error: everything is asked for before anything fails.
struct Partial {
    file: Bytes,
    known: Vec<Range<usize>>,
    missing: Mutex<Vec<Range<usize>>>,
}

impl ReadAt for Partial {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = offset as usize..offset as usize + len;
        let mut known = self.known.iter();
        if known.any(|known| known.start <= range.start && range.end <= known.end) {
            return self.file.read_at(offset, len);
        }
        self.missing.lock().unwrap().push(range);
        Err(io::Error::other("not fetched"))
    }
}

/// Opens `file` with what is missing fetched after each attempt. Returns the table, the number of attempts, and how many
/// bytes were fetched.
fn open_by_fetching(file: &Bytes, options: &OpenOptions, tail: usize) -> (Table, usize, usize) {
    let end = file.len().saturating_sub(tail)..file.len();
    let mut known = vec![end];
    for attempt in 1..10 {
        let source = Arc::new(Partial {
            file: file.clone(),
            known: known.clone(),
            missing: Mutex::default(),
        });
        let opened = options.open_source(Arc::clone(&source));
        let mut missing = std::mem::take(&mut *source.missing.lock().unwrap());
        if missing.is_empty() {
            let bytes = known.iter().map(Range::len).sum();
            return (opened.unwrap(), attempt, bytes);
        }
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Io, "{missing:?}");
        // What was asked for together, and then one by one, is fetched once.
        missing.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        missing.dedup_by(|range, before| range.end <= before.end);
        known.extend(missing);
    }
    panic!("still not open");
}

#[test]
fn all_that_is_missing_is_asked_for_at_once() {
    let with_prefixes = WriteOptions::new().prefix_filter(FixedPrefix::new(5));
    let with_filter = self::options();
    for options in [WriteOptions::new(), with_prefixes, WriteOptions::leveldb()] {
        let file = table(&options, 20_000, 1, 0);
        for file in common::in_both_orders(&file) {
            let layout = Layout::of(&file);
            let is_leveldbs = layout.metaindex.start < layout.index.start;
            let data_end = layout.data.last().unwrap().end;
            let file = Bytes::from(file);
            for tail in [TAIL, 256 << 10] {
                for open in [with_filter.clone(), with_filter.clone().no_filter()] {
                    let (table, attempts, bytes) = open_by_fetching(&file, &open, tail);
                    assert_eq!(table.data_blocks(), 20_000);
                    assert!(attempts <= if is_leveldbs { 3 } else { 2 });
                    assert!(bytes <= file.len() - data_end + tail + (4 << 10));
                }
            }
        }
    }
}

// ---- Hostile and damaged files --------------------------------------------------------------

/// Rebuilds the end of a table from parts, so that checksums are right: its metaindex with these values, then its index.
fn with_handles(file: &[u8], named: &[Entry], index_first: bool) -> Vec<u8> {
    let layout = Layout::of(file);
    let index = common::payload(file, &layout.index);
    let mut out = file[..layout.metaindex.start.min(layout.index.start)].to_vec();
    let named = common::block(named);
    let (metaindex, index) = if index_first {
        let index = common::append(&mut out, &index);
        (common::append(&mut out, &named), index)
    } else {
        let metaindex = common::append(&mut out, &named);
        (metaindex, common::append(&mut out, &index))
    };
    out.extend(common::footer(&metaindex, &index));
    out
}

/// A file whose index and filters are loaded answers as it does from memory, where nothing is read ahead: the same table or the
/// same error. Returns it. Without preloading, it opens if that does; returns the bytes that are read for that, too.
#[track_caller]
fn assert_opens_alike(file: &[u8], what: &str) -> (Result<Table, leveltable::Error>, usize) {
    let disk = Asked::new(file);
    let lazy = options().open_source(Arc::clone(&disk));
    let lazy_steps = disk.take();
    let options = options().preload(true);
    let opened = options.open_source(Arc::clone(&disk));
    let steps = disk.take();
    assert!(lazy.is_ok() || opened.is_err(), "{what}: {lazy:?}");
    assert!(
        count(&lazy_steps) <= count(&steps),
        "{what}: {lazy_steps:?}"
    );
    let simple = options.open_source(file.to_vec());
    match (&opened, &simple) {
        (Ok(opened), Ok(simple)) => {
            assert_eq!(opened.data_blocks(), simple.data_blocks(), "{what}");
            assert_eq!(opened.filter(), simple.filter(), "{what}");
            assert_eq!(opened.prefix_filter(), simple.prefix_filter(), "{what}");
            assert_eq!(opened.properties(), simple.properties(), "{what}");
        }
        (Err(opened), Err(simple)) if opened.to_string() != simple.to_string() => {
            // Where both filters are damaged, it is the error of either.
            for error in [opened, simple] {
                let section = error.corruption().map(|corruption| corruption.section);
                assert_eq!(
                    section,
                    Some(leveltable::Section::Filter),
                    "{what}: {error}"
                );
            }
        }
        (Err(_), Err(_)) => {}
        _ => panic!("{what}: {opened:?} is not {simple:?}"),
    }
    let bytes = |steps: &[Vec<Range<usize>>]| {
        let ranges = steps.iter().flatten();
        ranges
            .inspect(|range| assert!(range.end <= file.len(), "{what}: {range:?}"))
            .map(Range::len)
            .sum()
    };
    let read: usize = bytes(&lazy_steps);
    let preloaded: usize = bytes(&steps);
    // Each of two filters once.
    assert!(preloaded <= read + 2 * file.len(), "{what}: {preloaded}");
    (opened, read)
}

/// Handles that lead anywhere: the same answers, and no byte is read twice but those of the tail and of the ends of a damaged
/// file.
#[test]
fn handles_that_lead_anywhere_cost_no_more_than_the_file() {
    let mut random = Random(14);
    let options = WriteOptions::new().prefix_filter(FixedPrefix::new(5));
    let file = table(&options, 4_000, 1, 70_000);
    let file = common::in_both_orders(&file).pop().unwrap();
    let layout = Layout::of(&file);
    let named = common::entries(&common::payload(&file, &layout.metaindex));
    assert_eq!(named.len(), 3);
    let len = file.len();
    let index = layout.index.clone();
    let footer = len - 48;
    let mut outcomes = [0; 2];
    for round in 0..400 {
        let mut named = named.clone();
        for _ in 0..=random.below(3) {
            let range = match random.below(9) {
                0 => 0..footer,
                1 => index.clone(),
                2 => layout.metaindex.clone(),
                3 => index.start - 1000..index.start + 1000,
                4 => layout.filter.clone().unwrap(),
                5 => layout.prefixes.clone().unwrap(),
                6 => footer..len,
                _ => {
                    let start = random.below(footer - 5);
                    start..start + 5 + random.below(footer - 5 - start)
                }
            };
            let value = match random.below(8) {
                // Huge, and past all ends.
                0 => [common::varint(random.next()), common::varint(random.next())].concat(),
                1 => [common::varint(0), common::varint(u64::from(u32::MAX))].concat(),
                _ => common::handle_of(&range),
            };
            let which = random.below(3);
            named[which].1 = value;
        }
        let index_first = random.below(2) == 0;
        let file = with_handles(&file, &named, index_first);
        let what = format!("{round}: {:?}", named.iter().map(|(_, value)| value));
        let (opened, bytes) = assert_opens_alike(&file, &what);
        outcomes[usize::from(opened.is_ok())] += 1;
        let ends = if opened.is_ok() { 0 } else { 2 * TAIL };
        // Where the tail does not tell what there is, metaindex and index come before the rest.
        let first = if index_first { 0 } else { file.len() };
        assert!(bytes <= TAIL + ends + first + file.len(), "{what}: {bytes}");
    }
    assert!(outcomes.iter().all(|&n| n > 20), "{outcomes:?}");
}

/// A byte changed in each part, or several parts damaged: the same error as without reading ahead, that of the part that is
/// needed first.
#[test]
fn damage_is_reported_as_without_reading_ahead() {
    let mut random = Random(7);
    let options = WriteOptions::new().prefix_filter(FixedPrefix::new(5));
    let file = table(&options, 4_000, 1, 70_000);
    for file in common::in_both_orders(&file) {
        let layout = Layout::of(&file);
        let parts = [
            layout.index,
            layout.metaindex,
            layout.properties.unwrap(),
            layout.filter.unwrap(),
            layout.prefixes.unwrap(),
            layout.footer,
        ];
        for round in 0..200 {
            let mut damaged = file.clone();
            for _ in 0..=random.below(3) {
                let part = &parts[random.below(parts.len())];
                damaged[part.start + random.below(part.len())] ^= 1 << random.below(8);
            }
            if random.below(8) == 0 {
                damaged.truncate(random.below(damaged.len()));
            }
            let _ = assert_opens_alike(&damaged, &format!("{round}"));
        }
    }
}
