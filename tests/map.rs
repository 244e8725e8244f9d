//! Tables in a memory map: they return what those read from the file do, and read no more of a cold file than they need.

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Entry, Random, Reverse, assert_holds, read_entries, testdata};
use leveltable::{
    BlockCache, Compression, ErrorKind, OpenOptions, ReadOptions, Result, Source, WriteOptions,
};

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
                let table = table.with(ReadOptions::new().verify_checksums(seed != 3));
                let entries = &entries;
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
    let waited = receiver.recv_timeout(Duration::from_secs(20));
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
