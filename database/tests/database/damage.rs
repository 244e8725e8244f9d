//! Damage in logs and MANIFESTs, and directories that are no databases. The files are made here, by a second encoder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{BLOCK, Log, batch, edit, internal, manifest, scratch, string, write_database};
use leveltable::{ErrorKind, Section, WriteOptions};
use leveltable_database::{
    Batch, Database, DatabaseOptions, Edit, FileKind, GapKind, HistoryEntry, LogItem, LogReader,
    TableMetadata, VersionState,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A log of 4 KiB, and the contents after each of its batches.
fn log_and_contents() -> (Vec<u8>, Vec<Model>) {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut log, mut model, mut sequence) = (Log::default(), Model::new(), 1001);
    let mut contents = vec![model.clone()];
    while log.0.len() < 4096 {
        let keys: Vec<Vec<u8>> = (0..random.usize(1..6))
            .map(|_| format!("key{}", random.u8(..30)).into_bytes())
            .collect();
        let values: Vec<Option<Vec<u8>>> = { keys.iter() }
            .map(|_| (random.u8(..4) > 0).then(|| vec![random.u8(..); random.usize(..80)]))
            .collect();
        let changes: Vec<_> = { keys.iter().zip(&values) }
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        log.add(&batch(sequence, &changes));
        sequence += changes.len() as u64;
        for (key, value) in keys.into_iter().zip(values) {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        contents.push(model.clone());
    }
    (log.0, contents)
}

fn entries(db: &Database) -> leveltable::Result<Model> {
    let walked = db.iter();
    walked
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

/// Opens a database that was damaged. The contents are right, or the damage is reported; an error names the file.
fn assert_reported(dir: &Path, contents: &[Model], whole: &Model, what: &str) -> &'static str {
    match Database::open_read_only(dir) {
        Err(error) => {
            assert!(error.path().is_some(), "{what}: {error}");
            "error"
        }
        Ok(db) => {
            let found = match entries(&db) {
                Ok(found) => found,
                Err(_) => return "error",
            };
            if found == *whole {
                return "right";
            }
            let gaps = db.recovery().gaps;
            assert!(!gaps.is_empty(), "{what}: unreported");
            assert!(contents.contains(&found), "{what}: {gaps:?}");
            "reported"
        }
    }
}

#[test]
fn every_bit_of_a_log_is_right_or_reported() {
    let dir = scratch();
    let (log, contents) = log_and_contents();
    let whole = contents.last().unwrap();
    write_database(dir.path(), &manifest(&[edit(3, &[])]), &log);
    assert_eq!(
        entries(&Database::open_read_only(dir.path()).unwrap()).unwrap(),
        *whole
    );
    let mut seen = BTreeMap::<_, u32>::new();
    // Files are slow below Wine: there, one or two bits of every byte, each of the eight in turn.
    let step = if cfg!(windows) { 7 } else { 1 };
    for bit in (0..log.len() * 8).step_by(step) {
        let mut log = log.clone();
        log[bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path().join("000003.log"), &log).unwrap();
        let outcome = assert_reported(dir.path(), &contents, whole, &format!("bit {bit}"));
        *seen.entry(outcome).or_default() += 1;
    }
    // Nothing is left of the log unseen, and only the last record's damage is taken for a torn end.
    assert_eq!(seen.get("right"), None, "{seen:?}");
    assert!(seen["error"] > seen["reported"] * 10, "{seen:?}");
}

/// A database with a log and three tables, one of which is no longer listed.
fn database_with_tables(dir: &Path) -> (Vec<Vec<u8>>, Model) {
    let mut model = Model::new();
    let mut tables = Vec::new();
    for number in [5u64, 6, 7] {
        let path = dir.join(format!("{number:06}.ldb"));
        let mut builder = WriteOptions::leveldb().create_db(&path).unwrap();
        let keys: Vec<Vec<u8>> = (0..20)
            .map(|i| format!("{number}/{i:03}").into_bytes())
            .collect();
        for key in &keys {
            builder.put(key, number, number.to_string()).unwrap();
            if number != 6 {
                model.insert(key.clone(), number.to_string().into_bytes());
            }
        }
        builder.finish().unwrap();
        tables.push(TableMetadata {
            number,
            size: fs::metadata(path).unwrap().len(),
            smallest: internal(&keys[0], number),
            largest: internal(&keys[19], number),
        });
    }
    let first = edit(3, &[&tables[0], &tables[1]]);
    let mut second = vec![6, 1, 6]; // no longer 000006.ldb
    second.extend(&edit(3, &[&tables[2]])[28..]);
    (vec![first, second], model)
}

#[test]
fn every_bit_of_a_manifest_is_right_or_reported() {
    let dir = scratch();
    let (records, whole) = database_with_tables(dir.path());
    let bytes = manifest(&records);
    write_database(dir.path(), &bytes, &[]);
    assert_eq!(
        entries(&Database::open_read_only(dir.path()).unwrap()).unwrap(),
        whole
    );
    fs::write(dir.path().join("MANIFEST-000002"), manifest(&records[..1])).unwrap();
    let without_last = entries(&Database::open_read_only(dir.path()).unwrap()).unwrap();
    assert_ne!(without_last, whole);
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path().join("MANIFEST-000002"), &bytes).unwrap();
        let contents = [without_last.clone()];
        let outcome = assert_reported(dir.path(), &contents, &whole, &format!("bit {bit}"));
        assert_ne!(outcome, "right", "{bit}");
    }
}

#[test]
fn damage_before_sound_records_is_an_error_that_names_the_way_out() {
    let dir = scratch();
    let mut log = Log::default();
    let mut ends = Vec::new();
    for (i, key) in ["a", "b", "c"].iter().enumerate() {
        log.add(&batch(1001 + i as u64, &[(key.as_bytes(), Some(b"value"))]));
        ends.push(log.0.len());
    }
    log.0[ends[0] + 10] ^= 1;
    write_database(dir.path(), &manifest(&[edit(3, &[])]), &log.0);
    let error = Database::open_read_only(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let corruption = error.corruption().unwrap();
    assert_eq!(
        (corruption.section, corruption.offset),
        (Section::Log, ends[0] as u64)
    );
    assert!(error.to_string().contains("000003.log"), "{error}");
    assert!(error.to_string().contains("skip_damaged"), "{error}");

    let db = DatabaseOptions::new()
        .skip_damaged(true)
        .open_read_only(dir.path())
        .unwrap();
    let keys: Vec<_> = db.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, ["a", "c"]);
    let gaps = db.recovery().gaps;
    assert_eq!(gaps.len(), 1);
    let (file, gap) = &gaps[0];
    assert_eq!((gap.kind, gap.offset), (GapKind::Damaged, ends[0] as u64));
    assert_eq!(gap.bytes, (ends[1] - ends[0]) as u64);
    assert_eq!(file, "000003.log");
}

/// Kind, offset and bytes.
type Gaps = Vec<(GapKind, u64, u64)>;

/// Reads the records of `bytes`, and the kinds of gaps between them.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Gaps) {
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    for item in LogReader::new(bytes) {
        match item.unwrap() {
            LogItem::Record(record) => records.push(record.payload),
            LogItem::Gap(gap) => gaps.push((gap.kind, gap.offset, gap.bytes)),
        }
    }
    (records, gaps)
}

#[test]
fn records_of_every_length_come_back_wherever_blocks_end() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut lens: Vec<usize> = (0..40)
        .chain([BLOCK - 7, BLOCK - 6, BLOCK, 3 * BLOCK + 1])
        .collect();
    lens.extend((BLOCK - 40..BLOCK + 20).step_by(3));
    random.shuffle(&mut lens);
    let mut log = Log::default();
    let records: Vec<Vec<u8>> = lens.iter().map(|&len| vec![random.u8(..); len]).collect();
    for record in &records {
        log.add(record);
    }
    assert_eq!(read(&log.0), (records.clone(), vec![]));

    // Cut anywhere, it holds the records that are whole, and says what is left.
    for cut in (0..log.0.len()).step_by(997) {
        let (found, gaps) = read(&log.0[..cut]);
        assert_eq!(found, records[..found.len()]);
        let torn: u64 = gaps.iter().map(|(_, _, bytes)| bytes).sum();
        assert!(gaps.len() <= 1 && gaps.iter().all(|gap| gap.0 == GapKind::Torn));
        let whole: usize = records[..found.len()].iter().map(Vec::len).sum();
        assert!(whole + torn as usize <= cut);
    }
}

#[test]
fn zeros_are_passed_over_and_reported() {
    let mut log = Log::default();
    log.add(b"one");
    let end = log.0.len();
    log.0.resize(BLOCK, 0);
    log.add(b"two");
    log.0.resize(BLOCK + 1000, 0);
    let (records, gaps) = read(&log.0);
    assert_eq!(records, [b"one", b"two"]);
    let zeros = |offset: usize, end: usize| (GapKind::Zeros, offset as u64, (end - offset) as u64);
    assert_eq!(gaps, [zeros(end, BLOCK), zeros(BLOCK + end, BLOCK + 1000)]);
}

#[test]
fn a_record_without_its_end_or_its_start_is_damage() {
    let mut log = Log::default();
    log.fragment(2, b"first");
    log.fragment(1, b"whole");
    log.fragment(4, b"last");
    log.fragment(1, b"whole, too");
    let (records, gaps) = read(&log.0);
    assert_eq!(records, [&b"whole"[..], b"whole, too"]);
    assert_eq!(
        gaps,
        [(GapKind::Damaged, 0, 12), (GapKind::Damaged, 24, 11)]
    );
}

#[test]
fn records_of_other_engines_are_named() {
    let mut log = Log::default();
    log.add(&[&7u64.to_le_bytes()[..], &1u32.to_le_bytes(), &[2, 0, 0]].concat());
    let error = Batch::parse(&log.0[7..]).unwrap_err();
    assert!(error.to_string().contains("other engines"), "{error}");
    let dir = scratch();
    // A new file as RocksDB lists it.
    write_database(dir.path(), &manifest(&[edit(3, &[]), vec![100, 0, 0]]), &[]);
    let error = Database::open_read_only(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("RocksDB or Pebble"), "{error}");
    assert!(Edit::parse(&[42]).is_err());
    // A log of RocksDB or Pebble, whose one record is not taken for an end that is torn.
    let mut log = Log::default();
    log.fragment(5, b"the log's number, and a batch");
    write_database(dir.path(), &manifest(&[edit(3, &[])]), &log.0);
    let error = Database::open_read_only(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("RocksDB or Pebble"), "{error}");
}

#[test]
fn directories_that_are_no_databases_are_named() {
    let named = |files: &[(&str, &str)]| {
        let dir = scratch();
        for (name, contents) in files {
            fs::write(dir.path().join(name), contents).unwrap();
        }
        let error = Database::open_read_only(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADatabase, "{error}");
        error.to_string()
    };
    assert!(named(&[]).contains("an empty directory"));
    assert!(named(&[("MANIFEST", "Bdgr\0\0\0\u{8}")]).contains("Badger"));
    assert!(named(&[("000001.vlog", ""), ("KEYREGISTRY", "")]).contains("Badger"));
    let pebble = [
        ("marker.manifest.000001.MANIFEST-000001", ""),
        ("000002.sst", ""),
    ];
    assert!(named(&pebble).contains("Pebble"));
    assert!(named(&[("notes.txt", "")]).contains("neither CURRENT nor tables"));
    assert!(named(&[("000005.ldb", "")]).contains("open_without_manifest"));
    let dangling = named(&[("CURRENT", "MANIFEST-000009\n")]);
    assert!(
        dangling.contains("MANIFEST-000009, which is not there"),
        "{dangling}"
    );
    for current in [
        "",
        "MANIFEST-000009",
        "../MANIFEST-1\n",
        "MANIFEST-000009\nmore\n",
    ] {
        assert!(named(&[("CURRENT", current)]).contains("instead of a MANIFEST's name"));
    }
    let dir = scratch();
    let error = Database::open_read_only(dir.path().join("absent")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn files_are_told_by_names_as_leveldb_writes_them() {
    for (name, kind, number) in [
        ("MANIFEST-000002", FileKind::Manifest, 2),
        ("000003.log", FileKind::Log, 3),
        ("000005.ldb", FileKind::Table, 5),
        ("000005.sst", FileKind::Table, 5),
    ] {
        assert_eq!(FileKind::of(name), (kind, Some(number)), "{name}");
    }
    for name in [
        "MANIFEST.000002",
        "MANIFEST-",
        "MANIFEST-2.log",
        "000003-log",
        "000005-ldb",
        "000005-sst",
        "000007.dbtmp",
        "LOCK",
        "LOG",
        "+5.ldb",
        ".ldb",
        "5",
    ] {
        assert_eq!(FileKind::of(name), (FileKind::Other, None), "{name}");
    }
}

#[test]
fn tables_are_those_that_the_manifest_lists() {
    let dir = scratch();
    let (records, model) = database_with_tables(dir.path());
    write_database(dir.path(), &manifest(&records), &[]);
    // Old LevelDB named tables otherwise.
    fs::rename(dir.path().join("000005.ldb"), dir.path().join("000005.sst")).unwrap();
    let db = Database::open_read_only(dir.path()).unwrap();
    assert_eq!(entries(&db).unwrap(), model);
    assert_eq!(db.get("6/001").unwrap(), None);
    // Not every Windows takes the name from a file that is open.
    drop(db);

    let table = dir.path().join("000007.ldb");
    let bytes = fs::read(&table).unwrap();
    fs::write(&table, [&bytes[..], b"more"].concat()).unwrap();
    let error = Database::open_read_only(dir.path())
        .unwrap()
        .get("7/001")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotATable, "{error}");
    fs::remove_file(&table).unwrap();
    let db = Database::open_read_only(dir.path()).unwrap();
    let error = db.get("7/001").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let words = "MANIFEST-000002 lists: no such file; `repair` of leveltable-repair makes a new database of what is left";
    assert!(error.to_string().ends_with(words), "{error}");
    // Others are there.
    assert_eq!(db.get("5/001").unwrap().unwrap(), "5");
}

#[test]
fn tables_of_a_level_may_share_a_user_key_and_nothing_else() {
    let dir = scratch();
    let table = |number: u64, entries: &[(&str, u64)]| {
        let path = dir.path().join(format!("{number:06}.ldb"));
        let mut builder = WriteOptions::new().create_db(&path).unwrap();
        for (key, sequence) in entries {
            builder
                .put(key, *sequence, format!("{key}{sequence}"))
                .unwrap();
        }
        builder.finish().unwrap();
        let internal = |(key, sequence): &(&str, u64)| internal(key.as_bytes(), *sequence);
        TableMetadata {
            number,
            size: fs::metadata(path).unwrap().len(),
            smallest: internal(&entries[0]),
            largest: internal(entries.last().unwrap()),
        }
    };
    let (a, b, c) = (
        table(5, &[("a", 1), ("k", 9), ("k", 8)]),
        table(6, &[("k", 7)]),
        table(7, &[("k", 6), ("z", 2)]),
    );
    write_database(dir.path(), &manifest(&[edit(3, &[&c, &b, &a])]), &[]);
    let db = Database::open_read_only(dir.path()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "k9");
    assert_eq!(
        db.get_many(&["z", "k", "b"]).unwrap(),
        [Some("z2".into()), Some("k9".into()), None]
    );
    let keys: Vec<_> = db.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, ["a", "k", "z"]);
    let keys: Vec<_> = db.iter().rev().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, ["z", "k", "a"]);
    let state = |entry: leveltable::Result<HistoryEntry>| {
        let entry = entry.unwrap();
        (entry.user_key, entry.sequence, entry.state)
    };
    let all: Vec<_> = db.history_range(..).unwrap().map(state).collect();
    let expected = [
        ("a", 1, VersionState::Live),
        ("k", 9, VersionState::Live),
        ("k", 8, VersionState::Overwritten(9)),
        ("k", 7, VersionState::Overwritten(8)),
        ("k", 6, VersionState::Overwritten(7)),
        ("z", 2, VersionState::Live),
    ];
    let expected = expected.map(|(key, sequence, state)| (key.into(), sequence, state));
    assert_eq!(all, expected);
    let some: Vec<_> = db.history_range("b".."z").unwrap().map(state).collect();
    assert_eq!(some, expected[1..5]);

    let overlapping = TableMetadata {
        smallest: internal(b"k", 8),
        ..b.clone()
    };
    write_database(dir.path(), &manifest(&[edit(3, &[&a, &overlapping])]), &[]);
    let error = Database::open_read_only(dir.path()).unwrap_err();
    assert_eq!(error.corruption().unwrap().section, Section::Manifest);
    assert!(error.to_string().contains("5 and 6"), "{error}");
}

/// Without the comparator, walking works and lookups say what they need.
#[test]
fn a_database_of_an_unknown_order_is_walked_in_stored_order() {
    let dir = scratch();
    let mut log = Log::default();
    log.add(&batch(
        1,
        &[(b"b", Some(b"1")), (b"a", Some(b"1")), (b"c", Some(b"1"))],
    ));
    log.add(&batch(4, &[(b"a", None), (b"b", Some(b"2"))]));
    let mut record = vec![1];
    string(&mut record, b"somebody.Else");
    record.extend(&edit(3, &[])[28..]);
    write_database(dir.path(), &manifest(&[record]), &log.0);
    let db = Database::open_read_only(dir.path()).unwrap();
    assert!(!db.has_known_order());
    let model = entries(&db).unwrap();
    let expected = [(b"b", b"2"), (b"c", b"1")].map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert_eq!(model, Model::from(expected));
    for error in [
        db.get("a").unwrap_err(),
        db.range("a"..).next().unwrap().unwrap_err(),
        db.prefix("a").next().unwrap().unwrap_err(),
        db.iter().next_back().unwrap().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(error.to_string().contains("order"), "{error}");
    }
    let mut range = db.iter();
    assert!(range.advance().unwrap());
    let error = range.next_back().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(range.next().is_none() && range.key().is_empty());
    assert_eq!(db.history("b").unwrap().len(), 2);
    let error = db.history_range(..).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    fs::write(dir.path().join("000003.log"), "").unwrap();
    let empty = Database::open_read_only(dir.path()).unwrap();
    assert!(empty.iter().next().is_none());
    let error = empty.iter().next_back().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let error = DatabaseOptions::new().comparator(leveltable::BytewiseComparator);
    let error = error.open_read_only(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(error.to_string().contains("somebody.Else"), "{error}");
}

/// Where tables begin and end says nothing then, nor how their keys lie to those of others.
#[test]
fn the_history_in_an_unknown_order_is_of_all_tables() {
    let dir = scratch();
    let table = |number: u64, entries: &[(&str, u64)]| {
        let path = dir.path().join(format!("{number:06}.ldb"));
        let mut builder = WriteOptions::new().create_db(&path).unwrap();
        for (key, sequence) in entries {
            builder.put(key, *sequence, "value").unwrap();
        }
        builder.finish().unwrap();
        TableMetadata {
            number,
            size: fs::metadata(path).unwrap().len(),
            smallest: internal(b"z", 1),
            largest: internal(b"y", 1),
        }
    };
    let tables = [
        table(5, &[("m", 1), ("t", 2), ("z", 3)]),
        table(6, &[("a", 4), ("b", 5), ("t", 9)]),
        table(7, &[("b", 6)]),
    ];
    let mut record = vec![1];
    string(&mut record, b"somebody.Else");
    record.extend(&edit(3, &tables.each_ref())[28..]);
    write_database(dir.path(), &manifest(&[record]), &[]);
    let db = Database::open_read_only(dir.path()).unwrap();
    let history = |key| {
        let history = db.history(key).unwrap().into_iter();
        history
            .map(|entry| (entry.file, entry.state))
            .collect::<Vec<_>>()
    };
    let [first, second, third] = [5, 6, 7].map(|number| format!("{number:06}.ldb"));
    assert_eq!(history("m"), [(first.clone(), VersionState::Live)]);
    assert_eq!(history("a"), [(second.clone(), VersionState::Live)]);
    assert_eq!(
        history("b"),
        [
            (third, VersionState::Live),
            (second.clone(), VersionState::Overwritten(6))
        ]
    );
    assert_eq!(
        history("t"),
        [
            (second, VersionState::Live),
            (first, VersionState::Overwritten(9))
        ]
    );
}
