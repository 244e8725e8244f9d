//! The words of messages that people see who have made a mistake: what it is, where, and what to do.

use std::error::Error as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use leveltable::{
    BloomFilterPolicy, Compression, DbTable, Error, ErrorKind, OpenOptions, RibbonFilterPolicy,
    Table, TableBuilder, WriteOptions,
};

use crate::common::{Entry, Reverse, build};

fn entries(n: usize) -> Vec<Entry> {
    let entry = |i: usize| (format!("key{i:05}").into_bytes(), b"a\nvalue".to_vec());
    (0..n).map(entry).collect()
}

fn open(file: impl Into<Vec<u8>>) -> leveltable::Result<Table> {
    OpenOptions::new().open_source(file.into())
}

/// Asserts that a call failed with this kind of error, and with these words in its message.
#[track_caller]
fn assert_says<T>(result: leveltable::Result<T>, kind: ErrorKind, words: &[&str]) {
    let Err(error) = result else {
        panic!("no error, where {words:?} is expected");
    };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} not in: {message}");
    }
}

#[test]
fn a_range_that_was_advanced_cannot_be_merged() {
    let table = open(build(&WriteOptions::new(), &entries(10))).unwrap();
    let mut range = table.range(..);
    assert!(Table::merge([range.clone(), table.range(..)]).is_ok());
    range.next();
    let words = "a range or cursor was advanced before it was merged, and a merge begins at the first entry: make a new one";
    assert_says(
        Table::merge([range, table.range(..)]),
        ErrorKind::InvalidState,
        &[words],
    );

    let mut builder = WriteOptions::new().build_db(Vec::new());
    builder.put("apple", 9, "red").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_db_source(file).unwrap();
    let words = ["a range shows a snapshot", "call `at` on the merge"];
    assert_says(
        DbTable::merge([table.range(..).at(3)]),
        ErrorKind::InvalidState,
        &words,
    );
}

#[test]
fn a_plain_table_is_not_opened_as_a_databases() {
    for (options, words) in [
        (
            WriteOptions::new(),
            [
                "this is a plain table in the order \"leveldb.BytewiseComparator\", opened as a table of a LevelDB database",
                "open it with Table",
            ],
        ),
        (
            WriteOptions::leveldb(),
            [
                "do not ascend in the order \"leveldb.InternalKeyComparator\": \"key0",
                "these are not internal keys of a database: open the table with the comparator that it was written with, as a Table",
            ],
        ),
    ] {
        let file = build(&options.compression(Compression::None), &entries(20_000));
        assert_says(
            OpenOptions::new().open_db_source(file),
            ErrorKind::Comparator,
            &words,
        );
    }
}

#[test]
fn a_comparator_that_the_table_does_not_name_is_named() {
    let options = OpenOptions::new().comparator(Reverse);
    let file = build(&WriteOptions::new(), &entries(10));
    let words = [
        "this is a plain table in the order \"leveldb.BytewiseComparator\", opened as a plain table in the order \"test.Reverse\": open it with Table \
         and its comparator, or in its stored order",
    ];
    assert_says(options.open_source(file), ErrorKind::Comparator, &words);
    let file = build(&WriteOptions::leveldb(), &entries(10));
    let words =
        ["do not ascend in the order \"test.Reverse\": \"key00000\" comes before \"key00001\""];
    assert_says(options.open_source(file), ErrorKind::Comparator, &words);
}

#[test]
fn a_filter_of_too_few_or_too_many_bits_is_refused() {
    let bloom = WriteOptions::new().filter_policy(BloomFilterPolicy::new(0));
    let ribbon = |bits: f64| WriteOptions::new().filter_policy(RibbonFilterPolicy::new(bits));
    for (options, words) in [
        (
            bloom,
            "filter_policy \"leveldb.BuiltinBloomFilter2\": its bits per key must be at least 1, not 0",
        ),
        (
            ribbon(4.5),
            "filter_policy \"leveltable.Ribbon1\": its bits per key must be from 5 to 33, not 4.5",
        ),
        (
            ribbon(40.0),
            "filter_policy \"leveltable.Ribbon1\": its bits per key must be from 5 to 33, not 40",
        ),
    ] {
        let added = options.build(Vec::new()).add("key", "");
        assert_says(added, ErrorKind::InvalidState, &[words]);
    }
}

#[test]
fn paths_that_lead_nowhere() {
    assert_says(
        Table::open(""),
        ErrorKind::Io,
        &["\"\": opening the table: "],
    );
    let words = ["\"\": creating a table: not the path of a file"];
    assert_says(TableBuilder::create(""), ErrorKind::Io, &words);

    let directory = tempfile::tempdir().unwrap();
    assert_says(
        Table::open(directory.path()),
        ErrorKind::Io,
        &[
            "a directory: a table is one of the files in it",
            "leveltable-database",
        ],
    );
    let parent = directory.path().join("missing");
    let created = TableBuilder::create(parent.join("fruit.ldb"));
    let message = created.as_ref().unwrap_err().to_string();
    assert!(!message.contains(".leveltable-"), "{message}");
    let cause = created.as_ref().unwrap_err().io_error().unwrap().kind();
    assert_eq!(cause, io::ErrorKind::NotFound);
    assert_says(
        created,
        ErrorKind::Io,
        &["fruit.ldb: creating a table: its directory does not exist"],
    );
}

#[test]
fn an_existing_file_is_said_to_exist() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fruit.ldb");
    let options = WriteOptions::new().replace_existing(false);
    let builder = options.create(&path).unwrap();
    fs::write(&path, "came first").unwrap();
    let words = [
        "fruit.ldb: renaming a finished table to its path: ",
        "exists",
    ];
    assert_says(builder.finish(), ErrorKind::Io, &words);
    let words = [
        "fruit.ldb: creating a table: a file is there already, and replace_existing(false) keeps it",
    ];
    assert_says(options.create(&path), ErrorKind::Io, &words);
}

#[test]
fn other_files_are_recognised() {
    for (file, words) in [
        (
            "apple\tred\nbanana\tyellow\n",
            "this is plain text, which begins \"apple\\tred\" ..",
        ),
        (
            "<html><title>404</title>",
            "this is an HTML page or XML document",
        ),
        (
            "{\"error\": 404}",
            "this is JSON text, which begins \"{\\\"error\\\": 404}\"",
        ),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2115233\n",
            "this is a Git LFS pointer in place of the file: run `git lfs pull`",
        ),
        (
            "MANIFEST-000004\n",
            "this is CURRENT of a LevelDB database, which names its MANIFEST: open the .ldb or .sst files beside it",
        ),
    ] {
        assert_says(open(file), ErrorKind::NotATable, &[words]);
        let database = OpenOptions::new().open_db_source(file.as_bytes().to_vec());
        assert_says(database, ErrorKind::NotATable, &[words]);
    }
}

/// A copy that was cut, appended to, or copied as text, and what the message calls it.
#[test]
fn bad_copies_are_told_apart() {
    for options in [WriteOptions::new(), WriteOptions::leveldb()] {
        let file = build(&options.block_size(1024), &entries(10_000));
        let len = file.len();
        let cut = [
            "the beginning of a LevelDB table: its last 8 bytes are ",
            "or rescue what is left with `salvage`",
        ];
        for len in [len - 1, len / 2, 2000] {
            assert_says(open(&file[..len]), ErrorKind::NotATable, &cut);
        }
        let about = format!(
            "a LevelDB table that should have {len} bytes, according to its footer, in a file of "
        );
        for extra in [1, 5000] {
            let longer = [&file[..], &vec![7; extra]].concat();
            let words = [
                &about[..],
                "the rest was appended; copy the table alone to a new file",
            ];
            assert_says(open(longer), ErrorKind::NotATable, &words);
        }
        let words = [
            &about[..],
            "bytes are missing; copy it again; if that does not help, `verify` of",
        ];
        assert_says(open(&file[1000..]), ErrorKind::Corruption, &words);
        let words = [&about[..], "bytes were inserted; copy it again"];
        let inserted = [&file[..1000], b"inserted", &file[1000..]].concat();
        assert_says(open(inserted), ErrorKind::Corruption, &words);
        let text = file.split(|&byte| byte == b'\n').collect::<Vec<_>>();
        let words = [
            &about[..],
            "line ends were changed, as in text mode; copy it again in binary mode",
        ];
        assert_says(open(text.join(&b"\r\n"[..])), ErrorKind::Corruption, &words);
    }
}

#[test]
fn damage_names_what_lists_and_copies() {
    let remedy =
        "; `verify` of leveltable-repair lists all damage, and `salvage` copies what is sound";
    let file = build(&WriteOptions::leveldb(), &entries(10_000));
    let damaged = |at: usize| {
        let mut file = file.clone();
        file[at] ^= 1;
        open(file)
    };
    let value = damaged(100).unwrap().get("key00000");
    assert_says(
        value,
        ErrorKind::Corruption,
        &["corrupt data block at offset 0: ", remedy],
    );
    let index = damaged(file.len() - 60);
    assert_says(
        index,
        ErrorKind::Corruption,
        &["corrupt index block at offset ", remedy],
    );
}

#[test]
fn a_report_of_causes_says_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let error = Table::open(directory.path().join("missing")).unwrap_err();
    let mut report = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        report += &format!(": {error}");
        cause = error.source();
    }
    assert_eq!(report.matches("(os error 2)").count(), 1, "{report}");
    assert_eq!(error.io_error().unwrap().kind(), io::ErrorKind::NotFound);
}

/// A full disk.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("disk full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_call_the_error_is_repeated() {
    let mut builder = WriteOptions::new()
        .compression(Compression::None)
        .build(Full);
    let mut add = (0..10_000).map(|i| builder.add(format!("{i:05}"), [0; 1000]));
    assert!(add.any(|added| added.is_err()));
    let words = [
        "an earlier call failed, so start a new table: writing ",
        "at offset 0: disk full",
    ];
    assert_says(builder.add("z", ""), ErrorKind::InvalidState, &words);
    assert_says(builder.finish(), ErrorKind::InvalidState, &words);
}

#[test]
fn keys_out_of_order_are_short_and_have_a_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fruit.ldb");
    let mut builder = TableBuilder::create(&path).unwrap();
    builder.add("banana", "").unwrap();
    let added = builder.add(vec![b'a'; 3 << 20], "");
    assert_eq!(added.as_ref().unwrap_err().path(), Some(&*path));
    assert!(added.as_ref().unwrap_err().to_string().len() < 500 + path.as_os_str().len());
    let words = [
        "fruit.ldb: key \"aaaa",
        "\".. (3145728 bytes) comes before \"banana\", the last one added",
    ];
    assert_says(added, ErrorKind::OutOfOrder, &words);
}

#[test]
#[cfg(unix)]
fn too_many_open_files_have_a_remedy() {
    let error = Error::io("opening the table", io::Error::from_raw_os_error(24));
    let error = error.at_path(Path::new("fruit.ldb")).to_string();
    assert!(
        error.starts_with("fruit.ldb: opening the table: "),
        "{error}"
    );
    assert!(
        error.contains("`ulimit -n`") && error.contains("TableCache"),
        "{error}"
    );
}

/// Of the two kinds of keys, only one that is no internal key shows: every internal key could be a plain or a user key.
#[test]
fn a_user_key_is_not_looked_for_among_internal_keys() {
    let mut builder = WriteOptions::new().build_db(Vec::new());
    builder.put("apple", 9, "red").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_db_source(file).unwrap();
    let stored = "apple\x01\x09\0\0\0\0\0\0";
    assert!(table.as_table().get(stored).unwrap().is_some());
    assert!(table.get(stored).unwrap().is_none());
    for key in ["apple", "banana", "a long user key"] {
        let words = ["is not an internal key; use DbTable to look up user keys"];
        let many = table.as_table().get_many(&[key]);
        assert_says(many, ErrorKind::InvalidState, &words);
        assert_says(table.as_table().get(key), ErrorKind::InvalidState, &words);
        assert_says(
            table.as_table().contains_key(key),
            ErrorKind::InvalidState,
            &words,
        );
    }
}
