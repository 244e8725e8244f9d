//! The rules one by one, with small directories made by hand.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use leveltable::db::{InternalKey, ValueType};
use leveltable::format::codec_name;
use leveltable::sister_crates::data_frame;
use leveltable::{Comparator, ErrorKind, OpenOptions, WriteOptions};
use leveltable_database::{IndexedDbComparator, TableMetadata};
use leveltable_repair::sister_crates::repair_in;
use leveltable_repair::{Grade, RepairOptions, RepairReport};

use crate::encode::{Log, batch, listing, manifest, string, varint};
use crate::memory::{Fault, Memory};
use crate::recovery::recover;
use crate::{Contents, repair_memory};

/// A version: key, sequence number, value or none.
type Version<'a> = (&'a str, u64, Option<&'a str>);

/// Makes a table of blocks of one version each.
fn table(number: u64, versions: &[Version<'_>]) -> (Vec<u8>, TableMetadata) {
    table_in(leveltable::BytewiseComparator, number, versions)
}

fn table_in(
    order: impl Comparator,
    number: u64,
    versions: &[Version<'_>],
) -> (Vec<u8>, TableMetadata) {
    let options = WriteOptions::leveldb().comparator(order).block_size(1);
    let mut builder = options.build_db(Vec::new());
    let mut keys = Vec::new();
    for &(user_key, sequence, value) in versions {
        let value_type = if value.is_some() {
            ValueType::Value
        } else {
            ValueType::Deletion
        };
        let user_key = user_key.as_bytes();
        let key = InternalKey {
            user_key,
            sequence,
            value_type,
        };
        builder.add(key, value.unwrap_or_default()).unwrap();
        let mut stored = Vec::new();
        key.encode(&mut stored);
        keys.push(stored);
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let listed = TableMetadata {
        number,
        size: file.len() as u64,
        smallest: keys[0].clone(),
        largest: keys[keys.len() - 1].clone(),
    };
    (file, listed)
}

/// A record of a MANIFEST: numbers, tables that are deleted and added.
fn record(numbers: &[(u8, u64)], deleted: &[u64], added: &[&TableMetadata]) -> Vec<u8> {
    let mut record = Vec::new();
    for &(tag, number) in numbers {
        record.push(tag);
        varint(&mut record, number);
    }
    for &number in deleted {
        record.extend([6, 1]);
        varint(&mut record, number);
    }
    added
        .iter()
        .for_each(|table| record.extend(listing(1, table)));
    record
}

fn first_record(order: &str, log: u64, added: &[&TableMetadata]) -> Vec<u8> {
    let mut first = vec![1];
    string(&mut first, order.as_bytes());
    first.extend(record(&[(2, log), (9, 0), (3, 50), (4, 100)], &[], added));
    first
}

const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// Keys, and their new values or none.
type Changes<'a> = &'a [(&'a str, Option<&'a str>)];

fn log_of(batches: &[(u64, Changes<'_>)]) -> Log {
    let mut log = Log::default();
    for (sequence, changes) in batches {
        let changes: Vec<_> = { changes.iter() }
            .map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes)))
            .collect();
        log.add(&batch(*sequence, &changes));
    }
    log
}

/// A directory under construction.
struct Dir(Memory);

impl Dir {
    /// Holds a MANIFEST of these records, number 2, that CURRENT names.
    fn new(records: &[Vec<u8>]) -> Dir {
        let dir = Dir(Memory::new("old"));
        dir.with("CURRENT", b"MANIFEST-000002\n")
            .with("MANIFEST-000002", &manifest(records))
    }

    fn with(self, name: &str, bytes: &[u8]) -> Dir {
        self.0.put(name, bytes.to_vec());
        self
    }

    fn without(self, name: &str) -> Dir {
        self.0.remove(name);
        self
    }

    fn repair(&self) -> (RepairReport, Contents) {
        repair_memory(&self.0, RepairOptions::new()).unwrap()
    }

    /// Repairs, and compares the contents: `a=1 b=2`. Returns the findings, without notes.
    fn holds(&self, expected: &str) -> Vec<String> {
        let (report, found) = self.repair();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found: Vec<_> = { found.iter() }
            .map(|(key, value)| format!("{}={}", text(key), text(value)))
            .collect();
        assert_eq!(found.join(" "), expected, "{:#?}", report.findings);
        let findings = { report.findings.iter() }.filter(|finding| finding.grade != Grade::Note);
        let key = |key: &Option<Vec<u8>>| key.as_ref().map_or("..".into(), |key| text(key));
        findings
            .map(|finding| {
                let file = finding.file.as_deref().unwrap_or("-");
                let (from, to) = (key(&finding.from), key(&finding.to));
                format!("{} {file} {from} {to}", finding.grade)
            })
            .collect()
    }
}

const NOTHING: [&str; 0] = [];

/// Two tables and a log over them.
fn usual() -> Dir {
    let (file, listed) = table(5, &[("a", 1, Some("1")), ("b", 2, Some("2"))]);
    let (other, also) = table(
        6,
        &[("c", 4, None), ("c", 3, Some("3")), ("d", 5, Some("5"))],
    );
    let log = log_of(&[
        (6, &[("b", Some("6")), ("e", Some("7"))]),
        (8, &[("a", None)]),
    ]);
    Dir::new(&[first_record(BYTEWISE, 4, &[&listed, &also])])
        .with("000004.log", &log.0)
        .with("000005.ldb", &file)
        .with("000006.ldb", &other)
}

#[test]
fn newest_puts_are_written_under_their_own_sequence_numbers() {
    let dir = usual();
    assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
    let (report, _) = dir.repair();
    assert_eq!(report.written.last_sequence, 100); // as the MANIFEST states
    assert_eq!(report.comparator, BYTEWISE);
    let taken = |name: &str| {
        report
            .files
            .iter()
            .find(|file| file.name == name)
            .unwrap()
            .versions
    };
    assert_eq!(
        ["000004.log", "000005.ldb", "000006.ldb"].map(taken),
        [3, 2, 3]
    );
    let new = Memory::new("new");
    let options = leveltable_database::DatabaseOptions::new();
    let _ = leveltable_repair::sister_crates::repair_in(
        std::sync::Arc::new(dir.0),
        Box::new(new.clone()),
        RepairOptions::new(),
    )
    .unwrap();
    let db = leveltable_database::sister_crates::open(std::sync::Arc::new(new), &options).unwrap();
    let sequences: Vec<u64> = db
        .history_range(..)
        .unwrap()
        .map(|entry| entry.unwrap().sequence)
        .collect();
    assert_eq!(sequences, [6, 5, 7]);
}

#[test]
fn the_highest_sequence_number_is_kept_even_if_it_is_a_deletions() {
    let log = log_of(&[(101, &[("a", Some("1"))]), (102, &[("a", None)])]);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[])]).with("000004.log", &log.0);
    assert_eq!(dir.holds(""), NOTHING);
    assert_eq!(dir.repair().0.written.last_sequence, 102);
}

#[test]
fn only_current_is_lost() {
    for text in [
        "",
        "\0\0\0\0",
        "MANIFEST-000009\n",
        "<<<<<<< HEAD\nMANIFEST-000002\n",
    ] {
        let dir = usual().with("CURRENT", text.as_bytes());
        assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
    }
    let dir = usual().without("CURRENT");
    assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
    let notes: Vec<_> = dir.repair().0.findings;
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].grade, Grade::Note);
    let words = "it is missing or unreadable: MANIFEST-000002 is used";
    assert_eq!(notes[0].reason, words);
}

#[test]
fn of_two_manifests_the_newer_is_taken() {
    let (_, listed) = table(5, &[("a", 1, Some("1"))]);
    let dir = usual().without("CURRENT");
    // The older one has the higher number, as none has that is older; its last sequence is lower.
    let old = record(&[(2, 3), (3, 9), (4, 1)], &[], &[&listed]);
    let dir = dir.with("MANIFEST-000009", &manifest(&[old]));
    assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
}

#[test]
fn without_a_manifest_everything_counts_and_nothing_is_proven() {
    for bytes in [None, Some(&b""[..]), Some(b"rubbish"), Some(&[0; 100])] {
        let dir = match bytes {
            None => usual().without("MANIFEST-000002"),
            Some(bytes) => usual().with("MANIFEST-000002", bytes),
        };
        assert_eq!(dir.holds("b=6 d=5 e=7"), ["unproven - .. .."]);
    }
}

#[test]
fn what_a_whole_manifest_does_not_list_counts_nowhere() {
    let (stray, _) = table(60, &[("a", 99, Some("stray")), ("z", 98, Some("stray"))]);
    let dir = usual().with("000060.ldb", &stray);
    assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
    // Nor does it if it is torn, or empty.
    for len in [0, 10, stray.len() / 2] {
        let dir = usual().with("000060.ldb", &stray[..len]);
        assert_eq!(dir.holds("b=6 d=5 e=7"), NOTHING);
    }
}

#[test]
fn what_a_damaged_manifest_does_not_list_counts_unless_it_deletes_it() {
    let (file, listed) = table(5, &[("a", 1, Some("1"))]);
    let (stray, _) = table(6, &[("b", 2, Some("2"))]);
    let (gone, was) = table(7, &[("c", 3, Some("3"))]);
    let records = [
        first_record(BYTEWISE, 4, &[&listed, &was]),
        record(&[], &[7], &[]),
    ];
    let cut = [manifest(&records), b"torn".to_vec()].concat();
    let dir = Dir::new(&records)
        .with("MANIFEST-000002", &cut)
        .with("000004.log", b"")
        .with("000005.ldb", &file)
        .with("000006.ldb", &stray)
        .with("000007.ldb", &gone);
    assert_eq!(dir.holds("a=1 b=2"), ["unproven - .. .."]);
}

#[test]
fn a_missing_table_is_lost_and_filled_in_from_what_does_not_count() {
    let dir = usual().without("000006.ldb");
    assert_eq!(dir.holds("b=6 e=7"), ["lost 000006.ldb c d"]);
    // An older log holds a version of a lost key, and one of a key that is not lost.
    let old = log_of(&[(3, &[("d", Some("old")), ("b", Some("old"))])]);
    let dir = dir.with("000003.log", &old.0);
    assert_eq!(dir.holds("b=6 d=old e=7"), ["lost 000006.ldb c d"]);
    // So does a table that was deleted.
    let (deleted, _) = table(30, &[("b", 20, Some("no")), ("d", 20, Some("yes"))]);
    let dir = dir.with("000030.ldb", &deleted);
    assert_eq!(dir.holds("b=6 d=yes e=7"), ["lost 000006.ldb c d"]);
}

#[test]
fn a_table_is_what_the_manifest_lists_only_if_ends_and_size_are() {
    // Another table has taken the place of number 6, as in a directory of two copies.
    let (other, _) = table(6, &[("c", 2, Some("other")), ("d", 1, Some("other"))]);
    let dir = usual().with("000006.ldb", &other);
    assert_eq!(
        dir.holds("b=6 c=other d=other e=7"),
        ["lost 000006.ldb c d"]
    );
}

#[test]
fn a_missing_table_that_a_compaction_replaced_is_no_loss() {
    let older = [("a", 1, Some("1")), ("b", 3, None), ("c", 2, Some("2"))];
    let newer = [("a", 5, Some("5")), ("d", 4, Some("4"))];
    let (_, first) = table(5, &older);
    let (second, also) = table(6, &newer);
    let (output, _) = table(
        8,
        &[
            ("a", 5, Some("5")),
            ("c", 2, Some("2")),
            ("d", 4, Some("4")),
        ],
    );
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&first, &also])])
        .with("000004.log", b"")
        .with("000006.ldb", &second)
        .with("000008.ldb", &output);
    assert_eq!(dir.holds("a=5 c=2 d=4"), NOTHING);
    // Of an output that is torn, what may follow is unproven.
    let dir = dir.with("000008.ldb", &output[..60]);
    assert_eq!(dir.holds("a=5 c=2 d=4"), ["unproven 000008.ldb c .."]);
    // One without an end of the missing table proves nothing.
    let dir = dir.with("000008.ldb", &output[..30]);
    let findings = dir.holds("a=5 d=4");
    assert_eq!(findings, ["lost 000005.ldb a c"]);
}

#[test]
fn what_a_compaction_dropped_does_not_come_back() {
    // Without a MANIFEST, tables 5 and 6 are there again, of which 8 was made: `b` was deleted.
    let (first, _) = table(5, &[("a", 1, Some("1")), ("b", 2, Some("2"))]);
    let (output, _) = table(8, &[("a", 1, Some("1")), ("c", 4, Some("4"))]);
    let dir = Dir(Memory::new("old"))
        .with("000009.log", b"")
        .with("000005.ldb", &first)
        .with("000008.ldb", &output);
    assert_eq!(
        dir.holds("a=1 c=4"),
        ["unproven - .. ..", "left-out 000005.ldb .. .."]
    );
}

#[test]
fn a_damaged_block_costs_the_keys_between_its_neighbours() {
    let versions = [
        ("a", 1, Some("1")),
        ("b", 2, Some("2")),
        ("c", 3, Some("3")),
    ];
    let (mut file, listed) = table(5, &versions);
    let records = [first_record(BYTEWISE, 4, &[&listed])];
    file[40] ^= 1;
    let dir = Dir::new(&records)
        .with("000004.log", b"")
        .with("000005.ldb", &file);
    let (report, found) = dir.repair();
    let lost: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.grade == Grade::Lost)
        .collect();
    assert_eq!((lost.len(), found.len()), (1, 2));
    let missing: Vec<_> = versions
        .iter()
        .filter(|(key, ..)| !found.contains_key(key.as_bytes()))
        .collect();
    let (key, from, to) = (
        missing[0].0.as_bytes(),
        lost[0].from.as_deref(),
        lost[0].to.as_deref(),
    );
    assert!(from.unwrap() <= key && key <= to.unwrap());
    assert!(lost[0].offset.is_some() && lost[0].bytes.is_some());
}

#[test]
fn footer_and_index_are_not_needed() {
    let versions = [
        ("a", 1, Some("1")),
        ("b", 2, Some("2")),
        ("c", 3, Some("3")),
    ];
    let (file, listed) = table(5, &versions);
    let layout = leveltable_repair::layout(file.clone()).unwrap();
    let index = layout.index;
    let dir = || Dir::new(&[first_record(BYTEWISE, 4, &[&listed])]).with("000004.log", b"");
    let cut = dir().with("000005.ldb", &file[..file.len() - 48]);
    assert_eq!(cut.holds("a=1 b=2 c=3"), NOTHING);
    let mut flipped = file.clone();
    flipped[index.offset as usize + 3] ^= 4;
    assert_eq!(
        dir().with("000005.ldb", &flipped).holds("a=1 b=2 c=3"),
        NOTHING
    );
    // Without an end of the data, more may have followed; but the MANIFEST says that `c` is the last.
    let data = 3 * file[..index.offset as usize].len() / 4;
    let findings = dir()
        .with("000005.ldb", &file[..data.min(150)])
        .repair()
        .0
        .findings;
    assert!(
        findings
            .iter()
            .all(|finding| finding.to.as_deref() == Some(b"c")),
        "{findings:?}"
    );
}

#[test]
fn holes_of_logs_are_losses_of_any_key_and_gaps_without_holes_are_none() {
    let dir = |logs: &[(&str, &[u8])]| {
        let mut dir = Dir::new(&[first_record(BYTEWISE, 4, &[])]);
        for (name, bytes) in logs {
            dir = dir.with(name, bytes);
        }
        dir
    };
    let [one, two, three] =
        [(1, "a"), (2, "b"), (3, "c")].map(|(n, key)| log_of(&[(n, &[(key, Some("v"))])]).0);
    let all = [&one[..], &two, &three].concat();
    assert_eq!(dir(&[("000004.log", &all)]).holds("a=v b=v c=v"), NOTHING);
    // A record in the middle, at the beginning, at the end.
    for (at, left) in [
        (0, "b=v c=v"),
        (one.len(), "a=v c=v"),
        (all.len() - 3, "a=v b=v"),
    ] {
        let mut damaged = all.clone();
        damaged[at + 2] ^= 1;
        assert_eq!(
            dir(&[("000004.log", &damaged)]).holds(left),
            ["lost 000004.log .. .."]
        );
    }
    // A crash cuts the last record, or leaves zeros; a reopened log goes on after either.
    let cut = &all[..all.len() - 1];
    let is_cut = dir(&[("000004.log", cut)]);
    assert_eq!(is_cut.holds("a=v b=v"), NOTHING);
    let report = is_cut.repair().0;
    let notes: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    let words = "bytes of a record that its writer did not finish";
    assert!(
        matches!(&notes[..], [note] if note.starts_with("note: 000004.log at offset ") && note.ends_with(words)),
        "{notes:?}"
    );
    let zeros = [&one[..], &[0; 100]].concat();
    assert_eq!(dir(&[("000004.log", &zeros)]).holds("a=v"), NOTHING);
    let torn = [&one[..], &two[..two.len() - 2]].concat();
    assert_eq!(
        dir(&[("000004.log", &torn), ("000007.log", &two)]).holds("a=v b=v"),
        NOTHING
    );
    // Between two logs.
    let findings = dir(&[("000004.log", &one), ("000007.log", &three)]).holds("a=v c=v");
    assert_eq!(findings, ["lost 000007.log .. .."]);
    // Even if the first log lost all that it had: tables end below what comes next.
    let findings = dir(&[("000004.log", &one[..9]), ("000007.log", &two)]).holds("b=v");
    assert_eq!(findings, ["lost 000007.log .. .."]);
    let findings = dir(&[("000004.log", b""), ("000007.log", &two)]).holds("b=v");
    assert_eq!(findings, ["lost 000007.log .. .."]);
    // A damaged record before one that is cut is damage all the same.
    let mut damaged = cut.to_vec();
    damaged[one.len() + 2] ^= 1;
    assert_eq!(
        dir(&[("000004.log", &damaged)]).holds("a=v"),
        ["lost 000004.log .. .."]
    );
}

#[test]
fn a_log_within_a_value_is_no_log() {
    let inner = log_of(&[(7, &[("ghost", Some("boo"))]), (8, &[("ghost", None)])]);
    let mut log = Log::default();
    log.add(&batch(1, &[(b"a", Some(b"1"))]));
    let at = log.0.len();
    log.add(&batch(2, &[(b"big", Some(&inner.0))]));
    log.add(&batch(3, &[(b"c", Some(b"3"))]));
    log.0[at] ^= 1;
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[])]).with("000004.log", &log.0);
    assert_eq!(dir.holds("a=1 c=3"), ["lost 000004.log .. .."]);
}

#[test]
fn a_batch_whose_sequence_goes_back_is_not_taken() {
    let log = log_of(&[
        (5, &[("a", Some("5"))]),
        (3, &[("a", Some("3"))]),
        (6, &[("b", Some("6"))]),
    ]);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[])]).with("000004.log", &log.0);
    assert_eq!(dir.holds("a=5 b=6"), ["lost 000004.log .. .."]);
}

#[test]
fn older_logs_do_not_count_and_missing_ones_are_losses() {
    let old = log_of(&[(1, &[("a", Some("old")), ("z", Some("old"))])]);
    assert_eq!(
        usual().with("000003.log", &old.0).holds("b=6 d=5 e=7"),
        NOTHING
    );
    let without = usual().without("000004.log");
    assert_eq!(without.holds("a=1 b=2 d=5"), ["lost 000004.log .. .."]);
    assert_eq!(
        without.with("000003.log", &old.0).holds("a=1 b=2 d=5"),
        ["lost 000004.log .. .."]
    );
}

#[test]
fn log_number_0_needs_no_log() {
    let (file, listed) = table(5, &[("a", 1, Some("1"))]);
    let dir = |log| Dir::new(&[first_record(BYTEWISE, log, &[&listed])]).with("000005.ldb", &file);
    assert_eq!(dir(0).holds("a=1"), NOTHING);
    // But not if a table is newer than the MANIFEST.
    let (newer, _) = table(70, &[("b", 2, Some("2"))]);
    let findings = dir(0).with("000070.ldb", &newer).holds("a=1 b=2");
    assert_eq!(findings, ["lost - .. ..", "unproven - .. .."]);
    assert_eq!(dir(4).holds("a=1"), ["lost 000004.log .. .."]);
}

#[test]
fn a_later_log_tells_that_the_manifest_is_old() {
    let (file, listed) = table(5, &[("a", 1, Some("1"))]);
    let (flushed, _) = table(8, &[("b", 2, Some("2"))]);
    let dir = |first| {
        let log = log_of(&[(first, &[("c", Some("3"))])]);
        Dir::new(&[first_record(BYTEWISE, 4, &[&listed])])
            .with("000005.ldb", &file)
            .with("000008.ldb", &flushed)
            .with("000007.log", &log.0)
    };
    assert_eq!(dir(3).holds("a=1 b=2 c=3"), ["unproven - .. .."]);
    assert_eq!(
        dir(9).holds("a=1 b=2 c=3"),
        ["lost 000007.log .. ..", "unproven - .. .."]
    );
}

#[test]
fn equal_sequence_numbers_with_different_values_are_said() {
    let (file, listed) = table(5, &[("a", 1, Some("1")), ("b", 2, Some("2"))]);
    let (other, also) = table(6, &[("a", 1, Some("other")), ("c", 3, Some("3"))]);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed, &also])])
        .with("000004.log", b"")
        .with("000005.ldb", &file)
        .with("000006.ldb", &other);
    assert_eq!(dir.holds("a=other b=2 c=3"), ["unproven - a a"]);
}

fn error_of(dir: &Dir, options: RepairOptions<'_>) -> leveltable::Error {
    repair_memory(&dir.0, options).unwrap_err()
}

#[derive(Debug)]
struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

#[test]
fn the_order_is_the_manifests_or_asked_for() {
    let (file, listed) = table_in(Reverse, 5, &[("b", 2, Some("2")), ("a", 1, Some("1"))]);
    let dir = Dir::new(&[first_record("reverse", 4, &[&listed])])
        .with("000004.log", b"")
        .with("000005.ldb", &file);
    let error = error_of(&dir, RepairOptions::new());
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(error.to_string().contains("\"reverse\""), "{error}");
    let new = Memory::new("new");
    let options = RepairOptions::new().comparator(Reverse);
    let old = std::sync::Arc::new(dir.0.clone());
    let report = leveltable_repair::sister_crates::repair_in(old, Box::new(new), options).unwrap();
    assert!(report.is_complete());
    assert_eq!(
        (report.comparator.as_str(), report.written.entries),
        ("reverse", 2)
    );
    // A wrong one is refused, and without a MANIFEST nothing tells this one.
    let error = error_of(&usual(), RepairOptions::new().comparator(Reverse));
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let error = error_of(&dir.without("MANIFEST-000002"), RepairOptions::new());
    assert_eq!(error.kind(), ErrorKind::Comparator);
}

#[test]
fn keys_of_indexed_db_tell_their_order() {
    // Database 1, object store 1, index 1; numbers are little-endian doubles: 256.0 and 1.0 descend bytewise.
    let key = |number: f64| [&[0, 1, 1, 1, 3][..], &number.to_le_bytes()].concat();
    let keys = [key(1.0), key(256.0)];
    let texts: Vec<String> = keys
        .iter()
        .map(|key| key.iter().map(|&byte| char::from(byte)).collect())
        .collect();
    assert!(texts.iter().all(|text| !text.is_empty()));
    let mut builder = WriteOptions::leveldb()
        .comparator(IndexedDbComparator)
        .build_db(Vec::new());
    for (i, key) in keys.iter().enumerate() {
        builder.put(key, i as u64 + 1, "v").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let dir = Dir(Memory::new("old"))
        .with("000005.ldb", &file)
        .with("000006.log", b"");
    let (report, found) = repair_memory(&dir.0, RepairOptions::new()).unwrap();
    let descends = keys[0] > keys[1];
    if descends {
        assert_eq!((report.comparator.as_str(), found.len()), ("idb_cmp1", 2));
    }
    // One key fits both orders.
    let mut builder = WriteOptions::leveldb().build_db(Vec::new());
    builder.put(&keys[0], 1, "v").unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let dir = Dir(Memory::new("old"))
        .with("000005.ldb", &file)
        .with("000006.log", b"");
    let error = error_of(&dir, RepairOptions::new());
    assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
    let options = RepairOptions::new().comparator(IndexedDbComparator);
    assert!(repair_memory(&dir.0, options).is_ok());
}

#[test]
fn a_table_in_bytewise_order_is_sorted_where_the_database_has_another() {
    let (file, listed) = table(
        5,
        &[("a", 1, Some("1")), ("b", 3, Some("3")), ("b", 2, None)],
    );
    let (other, also) = table_in(Reverse, 6, &[("c", 5, Some("5")), ("a", 4, Some("4"))]);
    let dir = Dir::new(&[first_record("reverse", 4, &[&listed, &also])])
        .with("000004.log", b"")
        .with("000005.ldb", &file)
        .with("000006.ldb", &other);
    let new = Memory::new("new");
    let options = RepairOptions::new().comparator(Reverse);
    let old = std::sync::Arc::new(dir.0);
    let report = leveltable_repair::sister_crates::repair_in(old, Box::new(new.clone()), options);
    let report = report.unwrap();
    assert!(report.is_complete(), "{:?}", report.findings);
    let options = leveltable_database::DatabaseOptions::new().comparator(Reverse);
    let db = leveltable_database::sister_crates::open(std::sync::Arc::new(new), &options).unwrap();
    let expected = [("a", "4"), ("b", "3"), ("c", "5")];
    let expected =
        expected.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(crate::contents(&db), Contents::from(expected));
}

#[test]
fn the_files_of_other_engines_are_refused() {
    let mut log = Log::default();
    log.add(&batch(1, &[(b"a", Some(b"1"))]));
    log.fragment(5, b"recyclable");
    let error = error_of(&usual().with("000004.log", &log.0), RepairOptions::new());
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let foreign = manifest(&[vec![0xe7, 0x07, 1, 2, 3]]); // tag 999
    let error = error_of(
        &usual().with("MANIFEST-000002", &foreign),
        RepairOptions::new(),
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn data_that_looks_like_an_index_is_data() {
    // A value that could be the handle of the block at offset 0.
    let versions = [
        ("a", 1, Some("1")),
        ("b", 2, Some("2")),
        ("c", 3, Some("\0\u{5}")),
    ];
    let (mut file, listed) = table(5, &versions);
    let layout = leveltable_repair::layout(file.clone()).unwrap();
    file[layout.index.offset as usize + 3] ^= 4;
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed])])
        .with("000004.log", b"")
        .with("000005.ldb", &file);
    assert_eq!(dir.holds("a=1 b=2 c=\0\u{5}"), NOTHING);
}

#[test]
fn an_index_is_never_taken_for_data() {
    // Another table's index lies where data was, and the own one is damaged.
    let (mut file, listed) = table(5, &[("a", 1, Some("1")), ("b", 2, Some("2"))]);
    let (other, _) = table(6, &[("x", 9, Some("9"))]);
    let index_of = |file: &[u8]| leveltable_repair::layout(file.to_vec()).unwrap().index;
    let (own, stray) = (index_of(&file), index_of(&other));
    file[own.offset as usize + 3] ^= 4;
    let stray = &other[stray.offset as usize..(stray.offset + stray.stored_bytes) as usize];
    file.truncate(own.offset as usize);
    file.extend_from_slice(stray);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed])])
        .with("000004.log", b"")
        .with("000005.ldb", &file);
    let (_, found) = dir.repair();
    assert_eq!(found.len(), 2);
}

#[test]
fn an_index_is_not_data_even_if_it_is_the_only_sound_block() {
    let versions = [("a", 1, Some("1")), ("b", 2, Some("2"))];
    for versions in [&versions[..1], &versions] {
        let (mut file, listed) = table(5, versions);
        let index = leveltable_repair::layout(file.clone()).unwrap().index;
        for at in (3..index.offset as usize).step_by(5) {
            file[at] ^= 4;
        }
        // No footer leads to the index.
        let end = (index.offset + index.stored_bytes) as usize;
        file[end..].fill(0);
        let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed])])
            .with("000004.log", b"")
            .with("000005.ldb", &file);
        assert_eq!(dir.holds("").len(), 1);
        assert_eq!(recover(&dir.0.stored()), Contents::new());
    }
}

#[test]
fn a_codec_that_this_build_lacks_is_an_error() {
    let (mut file, listed) = table(5, &[("a", 1, Some("1")), ("b", 2, Some("2"))]);
    let end = 21; // of the first payload: an entry of 13 bytes, two numbers
    file[end] = 77;
    let crc = crc32c::crc32c(&file[..=end]);
    let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
    file[end + 1..end + 5].copy_from_slice(&masked.to_le_bytes());
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed])])
        .with("000004.log", b"")
        .with("000005.ldb", &file);
    let error = error_of(&dir, RepairOptions::new());
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("000005.ldb"), "{error}");
}

/// Repairs, and returns the codec of the first block.
fn codec_of_repaired(dir: Dir) -> &'static str {
    let new = Memory::new("new");
    let options = RepairOptions::new();
    let report = repair_in(Arc::new(dir.0), Box::new(new.clone()), options).unwrap();
    assert!(report.written.entries > 0);
    let files = new.files();
    let table = files.iter().find(|(name, _)| name.ends_with(".ldb"));
    let table = OpenOptions::new().open_db_source(table.unwrap().1.clone());
    let frame = data_frame(table.unwrap().as_table(), 0).unwrap();
    codec_name(&frame).unwrap()
}

/// Minecraft's LevelDB has no Snappy, and every LevelDB reads raw blocks.
#[test]
fn where_no_table_shows_a_codec_none_is_used() {
    let value = "7".repeat(1000);
    let log = log_of(&[(6, &[("a", Some(&value))])]);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[])]).with("000004.log", &log.0);
    assert_eq!(codec_of_repaired(dir), "none");
}

/// The newest table is often a small one of a raw block.
#[test]
fn the_largest_table_shows_the_codec() {
    let value = "value, ".repeat(1000);
    let (large, listed) = table(5, &[("a", 1, Some(&value))]);
    let (small, also) = table(6, &[("b", 2, Some("2"))]);
    let dir = Dir::new(&[first_record(BYTEWISE, 4, &[&listed, &also])])
        .with("000004.log", b"")
        .with("000005.ldb", &large)
        .with("000006.ldb", &small);
    assert_eq!(codec_of_repaired(dir), "snappy");
}

#[test]
fn a_database_that_changes_meanwhile_is_in_use() {
    for name in ["MANIFEST-000002", "000004.log", "000099.ldb"] {
        let dir = usual();
        let (memory, mut calls) = (dir.0.clone(), 0);
        let options = RepairOptions::new().progress(|_| {
            calls += 1;
            if calls == 1 {
                memory.append(name, b"more");
            }
            ControlFlow::Continue(())
        });
        let error = error_of(&dir, options);
        assert_eq!(error.kind(), ErrorKind::Replaced, "{name}: {error}");
    }
}

#[test]
fn a_run_is_interrupted_by_its_progress() {
    let error = error_of(
        &usual(),
        RepairOptions::new().progress(|_| ControlFlow::Break(())),
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Interrupted);
    let mut last = (0, 0);
    let options = RepairOptions::new().progress(|progress| {
        assert!(progress.done >= last.0);
        last = (progress.done, progress.total);
        ControlFlow::Continue(())
    });
    let _ = repair_memory(&usual().0, options).unwrap();
    assert!(last.0 > 0 && last.0 == last.1);
}

#[test]
fn what_is_no_database_is_refused() {
    for dir in [
        Dir(Memory::new("old")),
        Dir(Memory::new("old"))
            .with("CURRENT", b"x")
            .with("notes.txt", b"x"),
    ] {
        assert_eq!(
            error_of(&dir, RepairOptions::new()).kind(),
            ErrorKind::NotADatabase
        );
    }
    let twice = usual().with("000005.sst", b"");
    assert_eq!(
        error_of(&twice, RepairOptions::new()).kind(),
        ErrorKind::InvalidState
    );
}

/// Whatever fails at whatever step, there is no half directory, and what is read wrong is said.
#[test]
fn a_fault_at_each_step_leaves_nothing_or_a_whole_directory() {
    let dir = usual();
    let repair = |old: &Memory, new: &Memory| {
        let (old, new) = (std::sync::Arc::new(old.clone()), Box::new(new.clone()));
        leveltable_repair::sister_crates::repair_in(old, new, RepairOptions::new())
    };
    let (old, new) = (dir.0.copy(), Memory::new("new"));
    assert!(repair(&old, &new).unwrap().is_complete());
    let whole = new.files();
    let published = new
        .steps()
        .iter()
        .position(|step| step == "renaming")
        .unwrap();
    for (step, what) in new.steps().iter().enumerate() {
        let (old, new) = (dir.0.copy(), Memory::new("new"));
        let new = new.failing_at(step, Fault::Error(io::ErrorKind::StorageFull));
        let error = repair(&old, &new).unwrap_err();
        assert_eq!(new.is_published(), step > published, "{what}");
        let (verb, message) = (what.split(' ').next().unwrap(), error.to_string());
        assert!(
            message.contains(verb) && message.starts_with("new"),
            "{what}: {message}"
        );
    }
    let mut outcomes = BTreeMap::<_, u32>::new();
    for (step, what) in old.steps().iter().enumerate() {
        for fault in [Fault::Error(io::ErrorKind::Other), Fault::Short] {
            let (old, new) = (dir.0.copy().failing_at(step, fault), Memory::new("new"));
            let outcome = match repair(&old, &new) {
                Err(error) => {
                    assert!(!new.is_published(), "{what}");
                    assert!(error.to_string().starts_with("old"), "{what}: {error}");
                    "error"
                }
                Ok(report) if report.is_complete() => {
                    assert_eq!(new.files(), whole, "{what}");
                    "whole"
                }
                Ok(_) => "said",
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    assert!(outcomes.contains_key("error"), "{outcomes:?}");
}

/// Names, bytes and times of a directory's files.
fn state(dir: &std::path::Path) -> BTreeMap<std::ffi::OsString, (Vec<u8>, std::time::SystemTime)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let state = |entry: std::fs::DirEntry| {
        let modified = entry.metadata().unwrap().modified().unwrap();
        (
            entry.file_name(),
            (std::fs::read(entry.path()).unwrap(), modified),
        )
    };
    entries.map(state).collect()
}

#[test]
fn a_directory_is_written_beside_the_old_one_which_stays_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let (old, new) = (scratch.path().join("old"), scratch.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    for (name, bytes) in usual().0.stored() {
        std::fs::write(old.join(name), bytes).unwrap();
    }
    #[cfg(unix)]
    {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        for name in state(&old).keys() {
            set_permissions(old.join(name), Permissions::from_mode(0o640)).unwrap();
        }
        set_permissions(&old, Permissions::from_mode(0o2750)).unwrap();
    }
    let before = state(&old);
    let (mut temporary, mut calls) = (None, 0);
    let options = RepairOptions::new()
        .on_temporary(|path| temporary = Some(path.to_owned()))
        .progress(|_| {
            calls += 1;
            ControlFlow::Continue(())
        });
    let report = leveltable_repair::repair(&old, &new, options).unwrap();
    assert!(report.is_complete() && calls > 0);
    assert!(temporary.is_some_and(|path| path.starts_with(scratch.path()) && !path.exists()));
    assert_eq!(state(&old), before);
    let db = leveltable_database::Database::open_read_only(&new).unwrap();
    assert_eq!(crate::contents(&db).len(), 3);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&new), 0o2750);
        for name in state(&new).keys() {
            assert_eq!(mode(&new.join(name)), 0o640, "{name:?}");
        }
    }
    // Nothing is replaced, and nothing is made within the old one.
    let again = leveltable_repair::repair(&old, &new, RepairOptions::new()).unwrap_err();
    assert_eq!(io::Error::from(again).kind(), io::ErrorKind::AlreadyExists);
    let within = leveltable_repair::repair(&old, old.join("new"), RepairOptions::new());
    assert_eq!(within.unwrap_err().kind(), ErrorKind::InvalidState);
    assert_eq!(state(&old), before);
    let names = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(names, 2);
}
