//! Tables in a memory map: they return what those read from the file do, and read no more of a cold file than they need.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{Entry, Layout, Random, Reverse, assert_holds, read_entries, testdata};
use leveltable::{BlockCache, Compression, ErrorKind, OpenOptions, Result, Source, WriteOptions};

#[expect(unsafe_code, reason = "a test promises that its files stay unchanged")]
fn map(path: impl AsRef<Path>) -> Result<Source> {
    // SAFETY: the tests' files are in their own temporary directories or in the repository, and nobody changes them.
    unsafe { Source::map(path) }
}

#[test]
fn golden_tables_hold_the_same_in_a_map() {
    let files = fs::read_dir(testdata("")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|extension| extension == "ldb"));
    let mut held = 0;
    for path in tables {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut options = OpenOptions::new();
        if name.contains("reverse") {
            options = options.comparator(Reverse);
        }
        let mapped = options.open_source(map(&path).unwrap());
        match (options.open(&path), mapped) {
            (Ok(_), Ok(mapped)) => {
                let end = name.find("-b").unwrap();
                assert_holds(&mapped, &read_entries(&format!("{}.entries", &name[..end])));
                assert_eq!(mapped.stats().source_reads, 0);
                held += 1;
            }
            (Err(read), Err(mapped)) => assert_eq!(mapped.to_string(), read.to_string()),
            (read, mapped) => panic!("{name}: {read:?}, but mapped {mapped:?}"),
        }
    }
    assert!(held > 40, "{held}");
}

/// On Windows, a file may stay as long as it is mapped.
#[test]
fn a_map_outlives_the_name_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, entries) = (dir.path().join("table"), &entries()[..1000]);
    write(&options(Compression::Snappy), entries, &path);
    let table = OpenOptions::new().open_source(map(&path).unwrap()).unwrap();
    let removed = fs::remove_file(&path);
    assert!(removed.is_ok() || cfg!(windows), "{removed:?}");
    assert_holds(&table, entries);
    drop(table);
    assert!(removed.is_ok() || fs::remove_file(&path).is_ok());
}

/// Some 12 MB of entries under the even numbers below 100,000, so that something is absent between any two.
fn entries() -> Vec<Entry> {
    let mut random = Random(1);
    let entry = |n: u64| {
        let len = 50 + random.below(150);
        // Digits, so that blocks are compressed where they can be.
        let digits = random.bytes(len);
        let value = digits.iter().map(|byte| b'0' + byte % 4).collect();
        (format!("{:08}", 2 * n).into_bytes(), value)
    };
    (0..100_000).map(entry).collect()
}

fn options(compression: Compression) -> WriteOptions {
    WriteOptions::new().compression(compression)
}

fn write(options: &WriteOptions, entries: &[Entry], path: &Path) {
    let mut builder = options.create(path).unwrap();
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.finish().unwrap();
}

/// Lookups, batches and walks from random positions, against the entries themselves, by several threads at once.
#[test]
fn threads_find_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries();
    for compression in [Compression::None, Compression::Snappy] {
        let path = dir.path().join(format!("{compression:?}"));
        write(&options(compression), &entries, &path);
        let opening = OpenOptions::new().cache(BlockCache::new(1 << 20));
        let table = opening.open_source(map(&path).unwrap()).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (table, entries) = (&table, &entries);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..150 {
                        let at = random.below(entries.len() - 40);
                        let (key, value) = &entries[at];
                        assert_eq!(table.get(key).unwrap().unwrap(), value[..]);
                        let is_right = table.get_with(key, |found| found == value).unwrap();
                        assert_eq!(is_right, Some(true));
                        let absent = format!("{:08}", 2 * at + 1);
                        assert_eq!(table.get(absent).unwrap(), None);
                        let keys: Vec<&[u8]> = (0..20)
                            .map(|_| &entries[random.below(entries.len())].0[..])
                            .collect();
                        for (key, found) in keys.iter().zip(table.get_many(&keys).unwrap()) {
                            let at = entries.binary_search_by_key(key, |(key, _)| key).unwrap();
                            assert_eq!(found.unwrap(), entries[at].1[..]);
                        }
                        let mut cursor = table.cursor();
                        assert!(cursor.seek(key).unwrap());
                        for (key, value) in &entries[at..at + 40] {
                            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                            cursor.next().unwrap();
                        }
                        for (key, _) in entries[at..at + 40].iter().rev() {
                            cursor.prev().unwrap();
                            assert_eq!(cursor.key(), key);
                        }
                    }
                });
            }
        });
        // In the map, except for what was decompressed.
        let is_in_place = table.stats().cache_misses == 0;
        assert_eq!(is_in_place, compression == Compression::None);
        let value = table.get(&entries[7].0).unwrap().unwrap();
        drop(table);
        assert_eq!(value, entries[7].1[..], "a value keeps the map");
    }
}

/// The error of opening, or of what `source` makes; in a thread, so that one that hangs is seen.
fn error_of(path: &Path, source: fn(&Path) -> Result<Source>) -> ErrorKind {
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let opened = source(&path).and_then(|source| OpenOptions::new().open_source(source));
        let error = opened.unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        sender.send(error.kind()).unwrap();
    });
    let waited = receiver.recv_timeout(Duration::from_secs(100));
    waited.expect("an error, soon")
}

#[test]
fn what_is_no_table_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let ways: [fn(&Path) -> Result<Source>; 2] = [|path| map(path), |path| Source::load(path)];
    for way in ways {
        assert_eq!(error_of(&empty, way), ErrorKind::NotATable);
        assert_eq!(error_of(dir.path(), way), ErrorKind::Io);
        assert_eq!(error_of(&dir.path().join("absent"), way), ErrorKind::Io);
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode};
            let pipe = dir.path().join("pipe");
            if !pipe.exists() {
                rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
            }
            assert_eq!(error_of(&pipe, way), ErrorKind::Io);
            assert_eq!(error_of(Path::new("/dev/zero"), way), ErrorKind::Io);
        }
    }
}

/// A sparse file that is larger than any machine's memory.
#[test]
fn what_does_not_fit_memory_is_an_error() {
    if fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode == b"1\n") {
        eprintln!("skipped: this system grants memory that it does not have");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sizes = [1 << 62, 1 << 52, 1 << 43].into_iter();
    if !sizes.any(|size| file.as_file().set_len(size).is_ok()) {
        eprintln!("skipped: this filesystem has no file of 8 TiB");
        return;
    }
    assert_eq!(
        error_of(file.path(), |path| Source::load(path)),
        ErrorKind::Io
    );
}

/// Cold files, on Linux, which counts what a thread brings in from a disk and how often it waits for that.
#[cfg(target_os = "linux")]
mod cold {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// The bytes that this thread had read from a disk, and its page faults that had to wait for a disk.
    fn counts() -> Option<(u64, u64)> {
        let io = fs::read_to_string("/proc/thread-self/io").ok()?;
        let read = io
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: "))?;
        let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
        // Field 12; the first two, of which the name may hold spaces, end with a bracket.
        let major_faults = stat.rsplit(')').next()?.split_whitespace().nth(9)?;
        Some((read.parse().ok()?, major_faults.parse().ok()?))
    }

    /// What `work` adds to these counts.
    fn count(work: impl FnOnce()) -> (u64, u64) {
        let before = counts().unwrap();
        work();
        let after = counts().unwrap();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Drops the file from the page cache. Returns `false` if that cannot be done or cannot be seen here.
    fn drop_pages(path: &Path) -> bool {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let is_counted = counts().is_some()
            && count(|| {
                file.read_at(&mut [0], 0).unwrap();
            })
            .0 > 0;
        if !is_counted {
            eprintln!("skipped: this system or filesystem does not count reads from a disk");
        }
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        is_counted
    }

    /// The permissions and advice of the map of `path` in this process.
    fn flags_of_map(path: &Path) -> String {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let map = maps.split_once(path.to_str().unwrap()).unwrap().1;
        let flags = map.lines().find(|line| line.starts_with("VmFlags:"));
        flags.unwrap().to_owned()
    }

    /// A file of 30 MB, larger than what systems read ahead, of which little is touched.
    #[test]
    fn what_is_needed_is_read_and_all_of_it_at_once() {
        const BLOCK: u64 = 4 << 10;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let entries: Vec<Entry> = (0..250_000u32)
            .map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 110]))
            .collect();
        write(&options(Compression::None), &entries, &path);
        if !drop_pages(&path) {
            return;
        }

        let open = |path: &Path, options: OpenOptions| {
            let mut opened = None;
            let counts = count(|| {
                let source = map(path).unwrap();
                opened = Some(options.open_source(source).unwrap());
            });
            (opened.unwrap(), counts)
        };
        // The end of the file, with a page on each side.
        let (table, (bytes, waits)) = open(&path, OpenOptions::new());
        let end = 64 << 10..=72 << 10;
        assert!(end.contains(&bytes), "{bytes}");
        assert_eq!(waits, 0, "pages that were not announced");
        // The first lookup: pieces of filter and index, each with a page on each side, and a block.
        let (bytes, waits) = count(|| {
            assert!(table.get(&entries[70_000].0).unwrap().is_some());
        });
        assert!(bytes <= 4 * (24 << 10), "{bytes}");
        assert_eq!(waits, 0, "pages that were not announced");

        // All that follows the data.
        drop(table);
        let whole = dir.path().join("whole");
        fs::copy(&path, &whole).unwrap();
        assert!(drop_pages(&whole));
        let (table, (bytes, waits)) = open(&whole, OpenOptions::new().preload(true));
        let index = Layout::of(&fs::read(&path).unwrap()).index.start as u64;
        let rest = table.file_bytes() - index;
        // Restarts of the index are not read.
        let restarts = 4 * table.data_blocks() as u64;
        let pages = rest - restarts - (8 << 10)..=rest + (8 << 10);
        assert!(pages.contains(&bytes), "{bytes} of {rest}");
        assert_eq!(waits, 0, "pages that were not announced");
        // For pages that the system drops later: "random read".
        let flags = flags_of_map(&whole);
        assert!(flags.split(' ').any(|flag| flag == "rr"), "{flags}");

        // A block lies in two pages, seldom in three, and its neighbour may have brought in one of them.
        let pages_of = |blocks: u64| (blocks - blocks / 10) * BLOCK..=blocks * BLOCK * 5 / 2;
        let mut random = Random(9);
        let mut key = || &entries[random.below(entries.len() / 2)].0;
        let (bytes, waits) = count(|| {
            for _ in 0..100 {
                assert!(table.get(key()).unwrap().is_some());
            }
        });
        assert!(pages_of(100).contains(&bytes), "{bytes}");
        assert_eq!(waits, 0, "pages that were not announced");
        let (bytes, waits) = count(|| {
            let keys: Vec<_> = (0..100).map(|_| key()).collect();
            let found = table.get_many(&keys).unwrap();
            assert!(found.iter().all(Option::is_some));
        });
        assert!(pages_of(100).contains(&bytes), "{bytes}");
        assert_eq!(waits, 0, "pages that were not announced");

        // Walks through the other half, over a few blocks and over many. They read ahead, but not far.
        let mut cursor = table.cursor();
        let mut at = 130_000;
        for (blocks, least, most) in [(2, 2, 6), (8, 12, 24), (1000, 1030, 1150)] {
            for backward in [false, true] {
                let len = 36 * blocks; // entries
                let (bytes, waits) = count(|| {
                    let start = if backward { at + len } else { at };
                    assert!(cursor.seek(&entries[start].0).unwrap());
                    for _ in 0..len {
                        assert!(
                            if backward {
                                cursor.prev()
                            } else {
                                cursor.next()
                            }
                            .unwrap()
                        );
                    }
                });
                let pages = least * BLOCK..=most * BLOCK;
                assert!(pages.contains(&bytes), "{blocks} {backward} {bytes}");
                assert_eq!(waits, 0, "pages that were not announced");
                at += len + 36 * 150;
            }
        }
    }
}
