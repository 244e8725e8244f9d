//! Databases, made by hand: what LevelDB's own look like is tested in `database/tests`, and here on a corpus of real ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use leveltable::{Comparator, DbTableBuilder, WriteOptions};
use leveltable_database::IndexedDbComparator;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{complaint, json_lines, names_in, repair_command, run, stdout, tool};

/// Writes a string with its length before it, which is below 128.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// One whole record of a log or a MANIFEST.
fn record(payload: &[u8]) -> Vec<u8> {
    let crc = crc32c::crc32c(&[&[1], payload].concat());
    let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
    let len = u16::try_from(payload.len()).unwrap();
    [&masked.to_le_bytes()[..], &len.to_le_bytes(), &[1], payload].concat()
}

/// A write batch from `sequence` on; `None` deletes.
fn batch(sequence: u64, changes: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut payload = sequence.to_le_bytes().to_vec();
    payload.extend(u32::try_from(changes.len()).unwrap().to_le_bytes());
    for (key, value) in changes {
        payload.push(u8::from(value.is_some()));
        payload.extend(string(key.as_bytes()));
        payload.extend(
            value
                .map(|value| string(value.as_bytes()))
                .unwrap_or_default(),
        );
    }
    record(&payload)
}

/// A stored key of a value.
fn stored(key: &str, sequence: u64) -> Vec<u8> {
    [key.as_bytes(), &(sequence << 8 | 1).to_le_bytes()].concat()
}

/// Writes a table of values and deletions.
fn table(path: &Path, order: impl Comparator, entries: &[(&str, u64, Option<&str>)]) {
    let options = WriteOptions::leveldb().comparator(order);
    let mut builder: DbTableBuilder<_> = options.build_db(fs::File::create(path).unwrap());
    for (key, sequence, value) in entries {
        match value {
            Some(value) => builder.put(key, *sequence, value).unwrap(),
            None => builder.delete(key, *sequence).unwrap(),
        }
    }
    builder.finish().unwrap();
}

/// A MANIFEST's edit: comparator, log 6, next file 9, last sequence 20, and one table in level 1, with its first and last key.
fn edit(comparator: &str, size: u64, first: &[u8], last: &[u8]) -> Vec<u8> {
    assert!(size < 1 << 14);
    let size = [
        u8::try_from(size & 127).unwrap() | 128,
        u8::try_from(size >> 7).unwrap(),
    ];
    let head = [
        &[1][..],
        &string(comparator.as_bytes()),
        &[2, 6, 3, 9, 4, 20, 7, 1, 5],
        &size,
    ];
    [head.concat(), string(first), string(last)].concat()
}

const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// A database whose live contents are apple, banana and cherry. Table 5 is listed and table 4 is not.
fn database() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("db");
    fs::create_dir(&path).unwrap();
    let entries = [
        ("apple", 3, Some("red")),
        ("banana", 4, Some("green")),
        ("date", 5, Some("brown")),
    ];
    table(
        &path.join("000005.ldb"),
        leveltable::BytewiseComparator,
        &entries,
    );
    let orphan = [("date", 2, Some("old")), ("fig", 1, Some("lost"))];
    table(
        &path.join("000004.ldb"),
        leveltable::BytewiseComparator,
        &orphan,
    );
    let size = fs::metadata(path.join("000005.ldb")).unwrap().len();
    let edit = edit(BYTEWISE, size, &stored("apple", 3), &stored("date", 5));
    fs::write(path.join("MANIFEST-000002"), record(&edit)).unwrap();
    fs::write(path.join("CURRENT"), "MANIFEST-000002\n").unwrap();
    let log = [
        batch(10, &[("banana", Some("yellow")), ("cherry", Some("red"))]),
        batch(12, &[("date", None)]),
    ];
    fs::write(path.join("000006.log"), log.concat()).unwrap();
    fs::write(path.join("LOCK"), "").unwrap();
    fs::write(path.join("LOG"), "opened\n").unwrap();
    (directory, path)
}

/// Runs a command on `path`.
fn on(path: &Path, command: &str, more: &[&str]) -> Output {
    let mut tool = tool();
    tool.arg(command).arg(path).args(more).output().unwrap()
}

fn shown(output: Output) -> String {
    String::from_utf8(stdout(output)).unwrap()
}

#[test]
fn a_directory_is_its_live_contents() {
    let (_directory, db) = database();
    let (apple, banana, cherry) = ("apple\tred\n", "banana\tyellow\n", "cherry\tred\n");
    let scan = |more: &[&str]| shown(on(&db, "scan", more));
    assert_eq!(scan(&[]), [apple, banana, cherry].concat());
    assert_eq!(scan(&["--reverse"]), [cherry, banana, apple].concat());
    assert_eq!(scan(&["--limit=1"]), apple);
    assert_eq!(scan(&["--from=b", "--to=c"]), banana);
    assert_eq!(scan(&["--prefix=ch"]), cherry);
    let rows = json_lines(scan(&["--json"]).as_bytes());
    assert_eq!(rows[1], json!({"key": "banana", "value": "yellow"}));
    assert_eq!(rows.len(), 3);

    let get = |more: &[&str]| on(&db, "get", more);
    assert_eq!(shown(get(&["banana"])), "yellow\n");
    assert_eq!(shown(get(&["banana", "apple"])), [banana, apple].concat());
    assert!(complaint(get(&["date"]), 1).starts_with("not found: key \"date\""));
    assert!(complaint(get(&["fig"]), 1).starts_with("not found"));
    let records = json_lines(&get(&["apple", "fig", "--json"]).stdout);
    assert_eq!(records[0], json!({"key": "apple", "value": "red"}));
    assert_eq!(records[1], json!({"key": "fig", "value": null}));
    assert!(complaint(get(&["apple", "--at=3"]), 2).contains("--at needs a table"));
}

#[test]
fn history_shows_all_versions_and_where_they_are() {
    let (_directory, db) = database();
    let history = |key: &str, more: &[&str]| on(&db, "get", &[&[key, "--history"], more].concat());
    let block = "000005.ldb\t0";
    assert_eq!(
        shown(history("banana", &[])),
        format!(
            "000006.log\t0\tlive\tbanana\t10\tvalue\tyellow\n{block}\toverwritten\tbanana\t4\tvalue\tgreen\n"
        )
    );
    let records = json_lines(shown(history("date", &["--json"])).as_bytes());
    let fields = |i: usize| {
        let record = &records[i];
        [
            &record["file"],
            &record["sequence"],
            &record["type"],
            &record["state"],
            &record["by"],
        ]
        .map(Value::clone)
    };
    assert_eq!(
        fields(0),
        [
            json!("000006.log"),
            json!(12),
            json!("deletion"),
            json!("live"),
            Value::Null
        ]
    );
    assert_eq!(
        fields(1),
        [
            json!("000005.ldb"),
            json!(5),
            json!("value"),
            json!("deleted"),
            json!(12)
        ]
    );
    assert_eq!(
        fields(2),
        [
            json!("000004.ldb"),
            json!(2),
            json!("value"),
            json!("file not listed"),
            Value::Null
        ]
    );
    assert!(complaint(history("none", &[]), 1).starts_with("not found"));
    // A scan shows them key by key.
    let all = |more: &[&str]| shown(on(&db, "scan", &[&["--history"], more].concat()));
    let keys = ["apple", "banana", "cherry", "date", "elder", "fig"];
    for json in [&[][..], &["--json"]] {
        let of_keys = keys.map(|key| on(&db, "get", &[&[key, "--history"], json].concat()));
        let of_keys = of_keys.map(|output| String::from_utf8(output.stdout).unwrap());
        assert_eq!(all(json), of_keys.concat());
        assert_eq!(all(&[&["--prefix=b"], json].concat()), of_keys[1]);
        let bounds = ["--from=banana", "--to=date"];
        let found = all(&[&bounds, json].concat());
        assert_eq!(found, of_keys[1..3].concat());
    }
    let last = all(&["--reverse", "--limit=1", "--keys-only"]);
    assert_eq!(last.lines().count(), 1);
    for (command, key) in [("get", &["apple"][..]), ("scan", &[])] {
        let refused = on(
            &db.join("000005.ldb"),
            command,
            &[key, &["--history"]].concat(),
        );
        let refused = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.contains("--history needs a database"), "{refused}");
    }
}

#[test]
fn info_shows_files_and_what_was_left_out() {
    let (_directory, db) = database();
    let log = db.join("000006.log");
    let torn = [
        fs::read(&log).unwrap(),
        batch(13, &[("x", None)])[..9].to_vec(),
    ]
    .concat();
    fs::write(&log, &torn).unwrap();
    let text = shown(on(&db, "info", &[]));
    for words in [
        "last sequence 20\norder   leveldb.BytewiseComparator\n",
        "log     000006: 3 changes in 2 batches\n",
        "a record that its writer did not finish",
        "  1          ",
        "not listed  000004.ldb",
        "live        000005.ldb",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let info: Value = serde_json::from_slice(&stdout(on(&db, "info", &["--json"]))).unwrap();
    assert_eq!(info["last_sequence"], 20);
    assert_eq!(info["tables"], 1);
    assert_eq!(info["comparator"], BYTEWISE);
    assert_eq!(
        info["logs"],
        json!([{"number": 6, "batches": 2, "changes": 3}])
    );
    assert_eq!(info["left_out"][0]["bytes"], 9);
    assert_eq!(info["files"].as_array().unwrap().len(), 7);
    // A table has none of the fields of a database.
    let table = on(&db.join("000005.ldb"), "info", &["--json"]);
    let table: Value = serde_json::from_slice(&table.stdout).unwrap();
    assert_eq!(
        (&info["kind"], &table["kind"]),
        (&json!("database"), &json!("table"))
    );
    assert_eq!(table.get("files"), None);
    assert_eq!(info.get("sections"), None);
    let apart = json_lines(&on(&db, "info", &["--files", "--json"]).stdout);
    assert_eq!(apart.len(), 2);
}

#[test]
fn verify_checks_what_the_manifest_lists() {
    let (_directory, db) = database();
    let verified = shown(on(&db, "verify", &[]));
    let expected = format!(
        "{}: sound: 3 entries in 1 block\n\
         {}: sound: a database of 1 table and 1 log; note: 000004.ldb is not listed\n",
        db.join("000005.ldb").display(),
        db.display()
    );
    assert_eq!(verified, expected);
    let records = json_lines(&stdout(on(&db, "verify", &["--json"])));
    assert_eq!(records.len(), 2);
    assert_eq!(records[1]["sound"], true);
    assert_eq!(
        json_lines(&stdout(on(&db, "verify", &["--json", "--files"]))).len(),
        2
    );

    let no = |words: &str| {
        let output = on(&db, "verify", &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(words), "{words}: {text}");
        assert!(
            text.ends_with("a database of 1 table and 1 log; note: 000004.ldb is not listed\n")
                || words != "as listed"
        );
    };
    // Another table of this number, and none.
    let listed = db.join("000005.ldb");
    fs::copy(db.join("000004.ldb"), &listed).unwrap();
    no("not as listed: 2 entries in 1 block, ");
    fs::remove_file(&listed).unwrap();
    no("000005.ldb: not sound: missing: the MANIFEST lists it\n");
    let (_directory, db) = database();
    let manifest = db.join("MANIFEST-000002");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[20] ^= 1;
    bytes.extend(record(&[2, 6]));
    fs::write(&manifest, bytes).unwrap();
    let output = on(&db, "verify", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("not sound: ") && text.contains("MANIFEST-000002"),
        "{text}"
    );
    assert!(text.contains(&repair_command(&db)), "{text}");
}

#[test]
fn logs_and_manifests_show_their_records() {
    let (_directory, db) = database();
    let log = db.join("000006.log");
    let second = batch(10, &[("banana", Some("yellow")), ("cherry", Some("red"))]).len();
    assert_eq!(
        shown(on(&log, "scan", &[])),
        format!(
            "0\tbanana\t10\tvalue\tyellow\n0\tcherry\t11\tvalue\tred\n{second}\tdate\t12\tdeletion\t\n"
        )
    );
    assert_eq!(
        shown(on(&log, "scan", &["--prefix=ch"])),
        "0\tcherry\t11\tvalue\tred\n"
    );
    assert_eq!(
        shown(on(&log, "scan", &["-n1", "--keys-only"])),
        "0\tbanana\t10\tvalue\n"
    );
    let records = json_lines(&stdout(on(&log, "scan", &["--json"])));
    let name = log.to_str().unwrap();
    assert_eq!(
        records[2],
        json!({"file": name, "offset": second, "key": "date", "sequence": 12, "type": "deletion"})
    );
    let manifest = db.join("MANIFEST-000002");
    let records = json_lines(&stdout(on(&manifest, "scan", &["--json"])));
    assert_eq!(records[0]["comparator"], BYTEWISE);
    assert_eq!(records[0]["added"][0]["first_key"], json!({"key": "apple"}));
    assert_eq!(records[0]["last_sequence"], 20);
    let text = shown(on(&manifest, "scan", &[]));
    assert!(text.starts_with("0\t{\"added\":[{"), "{text}");
}

/// A torn end is normal. Damage is an error that names the way around it.
#[test]
fn damage_in_a_log_is_an_error_unless_skipped() {
    let (_directory, db) = database();
    let log = db.join("000006.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[20] ^= 1;
    fs::write(&log, &bytes).unwrap();
    for output in [
        on(&db, "scan", &[]),
        on(&db, "get", &["apple"]),
        on(&db, "info", &[]),
    ] {
        let error = complaint(output, 2);
        assert!(
            error.contains("000006.log") && error.contains("offset 0"),
            "{error}"
        );
        assert!(
            error.contains("`scan --skip-damaged` reads the database without"),
            "{error}"
        );
    }
    let output = on(&db, "scan", &["--skip-damaged"]);
    assert_eq!(output.stdout, b"apple\tred\nbanana\tgreen\n");
    assert!(complaint(output, 1).starts_with("left out: "));
    let output = on(&log, "scan", &["--skip-damaged", "--keys-only"]);
    assert!(output.stdout.ends_with(b"\tdate\t12\tdeletion\n"));
    assert!(complaint(output, 1).starts_with("left out: "));
    assert_eq!(on(&log, "scan", &[]).status.code(), Some(2));
}

#[test]
fn a_single_table_says_that_it_is_a_part() {
    let (_directory, db) = database();
    let output = on(&db.join("000005.ldb"), "get", &["banana"]);
    assert_eq!(output.stdout, b"green\n");
    let note = complaint(output, 0);
    assert!(
        note.contains("a table of the database in") && note.contains("name the directory"),
        "{note}"
    );
    let output = on(&db.join("000004.ldb"), "scan", &[]);
    assert!(output.stdout.starts_with(b"date\t2\tvalue\told\n"));
    assert!(complaint(output, 0).contains("not listed, or no longer, by the database"));
    // One after the other, no note is needed.
    let rows = shown(on(&db, "scan", &["--files", "--keys-only"]));
    assert_eq!(rows.lines().count(), 5);
}

/// The MANIFEST names an order that nothing in a table does.
#[test]
fn the_manifest_names_the_order_of_a_table() {
    let directory = TempDir::new().unwrap();
    let db = directory.path();
    // Strings of IndexedDB's keys, in UTF-16: their number of characters comes first, and does not decide.
    let key = |text: &str| {
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let len = u8::try_from(text.len()).unwrap();
        String::from_utf8([&[0, 1, 1, 1, 1, len][..], &utf16].concat()).unwrap()
    };
    let keys = [key("a"), key("aaa"), key("b"), key("bb"), key("c")];
    assert!(!keys.is_sorted());
    let entries: Vec<(&str, u64, Option<&str>)> = { keys.iter().zip(1..) }
        .map(|(key, sequence)| (&key[..], sequence, Some("value")))
        .collect();
    let path = db.join("000005.ldb");
    table(&path, IndexedDbComparator, &entries);
    let size = fs::metadata(&path).unwrap().len();
    let (first, last) = (stored(&keys[0], 1), stored(&keys[4], 5));
    let edit = edit("idb_cmp1", size, &first, &last);
    fs::write(db.join("MANIFEST-000002"), record(&edit)).unwrap();
    fs::write(db.join("CURRENT"), "MANIFEST-000002\n").unwrap();
    fs::write(db.join("000006.log"), "").unwrap();
    for path in [db, &path] {
        stdout(on(path, "verify", &["--json"]));
        for key in &keys {
            let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
            let output = on(path, "get", &["--hex", &hex]);
            assert_eq!(output.stdout, b"76616c7565\n", "{output:?}");
        }
    }
    // In byte order, "aaa" comes after "bb", and there would be nothing in between.
    let hex = |key: &str| key.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let (from, to) = (hex(&keys[1]), hex(&keys[3]));
    assert!(from > to);
    for path in [db, &path] {
        let rows = on(
            path,
            "scan",
            &["--hex", "--keys-only", "--from", &from, "--to", &to],
        );
        let rows = String::from_utf8(rows.stdout).unwrap();
        let found: Vec<&str> = rows
            .lines()
            .map(|row| row.split('\t').next().unwrap())
            .collect();
        assert_eq!(found, [hex(&keys[1]), hex(&keys[2])]);
        // "a" and "aaa" have other numbers of characters.
        let rows = on(
            path,
            "scan",
            &["--hex", "--keys-only", "--prefix", "0001010101"],
        );
        assert_eq!(String::from_utf8(rows.stdout).unwrap().lines().count(), 5);
    }
    let out = db.join("out.sst");
    let salvaged = shown(on(db, "salvage", &[out.to_str().unwrap()]));
    assert!(
        salvaged.contains("5 entries of 1 table and 1 log copied"),
        "{salvaged}"
    );
    // The copy records its order.
    let out = db.join("out.sst");
    let copy = directory.path().join("copy");
    fs::rename(out, &copy).unwrap();
    stdout(on(&copy, "verify", &[]));
    assert_eq!(
        on(&copy, "get", &["--hex", &hex(&keys[1])]).stdout,
        b"76616c7565\n"
    );
    // It is no plain table, and still cannot be merged with one of a database in byte order.
    let other = db.join("other");
    table(&other, leveltable::BytewiseComparator, &[("a", 1, None)]);
    let inputs = [copy, other].map(|path| path.to_str().unwrap().to_owned());
    let refused = on(Path::new("-"), "merge", &[&inputs[0], &inputs[1]]);
    assert!(complaint(refused, 2).contains("or in another order"));
}

/// A program that does not know IndexedDB's order has written a table of its database.
#[test]
fn a_table_in_byte_order_is_part_of_its_database_all_the_same() {
    let directory = TempDir::new().unwrap();
    let db = directory.path().join("db");
    fs::create_dir(&db).unwrap();
    let path = db.join("000005.ldb");
    let (first, last) = ("\0\x01\x01\x01\x01\x01\0b", "\0\x01\x01\x01\x01\x02\0a\0a");
    assert!(
        IndexedDbComparator
            .compare(first.as_bytes(), last.as_bytes())
            .is_gt()
    );
    let entries = [(first, 1, Some("1")), (last, 2, Some("2"))];
    table(&path, leveltable::BytewiseComparator, &entries);
    let size = fs::metadata(&path).unwrap().len();
    let mut edit = edit("idb_cmp1", size, &stored(first, 1), &stored(last, 2));
    // In level 0, as a program flushes tables.
    let at = edit
        .windows(3)
        .position(|bytes| bytes == [7, 1, 5])
        .unwrap();
    edit[at + 1] = 0;
    fs::write(db.join("MANIFEST-000002"), record(&edit)).unwrap();
    fs::write(db.join("CURRENT"), "MANIFEST-000002\n").unwrap();
    let verified = shown(on(&db, "verify", &[]));
    assert!(
        verified.contains("note: 000005.ldb is in byte order"),
        "{verified}"
    );
    let out = directory.path().join("out.ldb");
    let salvaged = on(&db, "salvage", &[out.to_str().unwrap()]);
    let text = String::from_utf8(salvaged.stdout).unwrap();
    assert!(text.contains("2 entries of 1 table"), "{text}");
    assert_eq!(shown(on(&out, "scan", &["--keys-only"])).lines().count(), 2);
    assert_eq!(shown(on(&db, "scan", &["--keys-only"])).lines().count(), 2);
}

#[test]
fn salvage_copies_what_the_files_hold() {
    let (directory, db) = database();
    let out = directory.path().join("out.ldb");
    let salvage = |more: &[&str]| on(&db, "salvage", &[&[out.to_str().unwrap()], more].concat());
    let versions = "apple\t3\tvalue\tred\nbanana\t10\tvalue\tyellow\nbanana\t4\tvalue\tgreen\ncherry\t11\tvalue\tred\n\
                    date\t12\tdeletion\t\ndate\t5\tvalue\tbrown\n";
    let before = names_in(&db);
    let output = salvage(&[]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text,
        format!(
            "{}: 6 entries of 1 table and 1 log copied to {}\n",
            db.display(),
            out.display()
        )
    );
    assert!(
        complaint(output, 0).contains("000004.ldb: is not listed, and was not copied: --unlisted")
    );
    assert_eq!(shown(on(&out, "scan", &[])), versions);
    assert!(complaint(salvage(&[]), 2).contains("already exists"));
    let output = salvage(&["--force", "--unlisted"]);
    assert_eq!(output.status.code(), Some(0));
    let all = format!("{versions}date\t2\tvalue\told\nfig\t1\tvalue\tlost\n");
    assert_eq!(shown(on(&out, "scan", &[])), all);

    // Damage everywhere: a table's block, a log's first record; then no MANIFEST.
    let mut bytes = fs::read(db.join("000005.ldb")).unwrap();
    bytes[3] ^= 1;
    fs::write(db.join("000005.ldb"), bytes).unwrap();
    let mut bytes = fs::read(db.join("000006.log")).unwrap();
    bytes[20] ^= 1;
    fs::write(db.join("000006.log"), bytes).unwrap();
    let output = salvage(&["--force"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("left out 000005.ldb: ") && text.contains("left out 000006.log, "),
        "{text}"
    );
    assert_eq!(shown(on(&out, "scan", &[])), "date\t12\tdeletion\t\n");
    fs::write(db.join("CURRENT"), "<<<<<<< HEAD\n").unwrap();
    let output = salvage(&["--force"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("taking all tables and logs")
    );
    let rows = shown(on(&out, "scan", &[]));
    assert_eq!(
        rows,
        "date\t12\tdeletion\t\ndate\t2\tvalue\told\nfig\t1\tvalue\tlost\n"
    );
    assert_eq!(names_in(&db), before);
}

/// `repair` calls it lost.
#[test]
fn a_damaged_end_of_a_log_is_no_crash() {
    let (_directory, db) = database();
    let log = db.join("000006.log");
    let mut bytes = fs::read(&log).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&log, &bytes).unwrap();
    let out = on(&db, "verify", &[]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains(" bytes: damage\n"), "{text}");
}

#[test]
fn other_directories_are_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    for (name, contents, words) in [
        ("notes.txt", "", "neither CURRENT nor tables"),
        ("KEYREGISTRY", "", "a database of Badger"),
        ("OPTIONS-000007", "", "RocksDB or Pebble"),
        (
            "CURRENT",
            "MANIFEST-000001\n",
            "CURRENT names MANIFEST-000001, which is not there",
        ),
    ] {
        fs::write(path.join(name), contents).unwrap();
        for (command, more) in [("get", &["key"][..]), ("scan", &[]), ("info", &[])] {
            let error = complaint(on(path, command, more), 2);
            assert!(error.contains(words), "{command}: {error}");
        }
        fs::remove_file(path.join(name)).unwrap();
    }
    // No message advises what would destroy something.
    for command in ["salvage", "verify", "scan", "get", "info", "merge", "build"] {
        let help = String::from_utf8(stdout(run([command, "--help"]))).unwrap();
        assert!(!help.contains("let LevelDB repair"), "{help}");
    }
    let help = String::from_utf8(stdout(run(["salvage", "--help"]))).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("work on a copy of the database, with the LevelDB that wrote it"));
}

/// A writer may be at work.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs strace"]
fn nothing_is_opened_for_writing_created_or_locked() {
    let (directory, db) = database();
    let out = directory.path().join("out.ldb");
    let (path, out) = (db.to_str().unwrap(), out.to_str().unwrap());
    let file = |name: &str| db.join(name).to_str().unwrap().to_owned();
    let (log, manifest, table) = (
        file("000006.log"),
        file("MANIFEST-000002"),
        file("000005.ldb"),
    );
    let before = names_in(&db);
    for args in [
        &["get", path, "apple", "none"][..],
        &["get", path, "banana", "--history"],
        &["scan", path],
        &["scan", path, "--files"],
        &["scan", path, "--skip-damaged"],
        &["scan", &log],
        &["scan", &manifest],
        &["scan", &table, "--skip-damaged"],
        &["info", path],
        &["info", path, "--files", "--full"],
        &["verify", path],
        &["verify", path, "--files"],
        &["salvage", path, out, "--unlisted", "--force"],
    ] {
        let trace = directory.path().join("trace");
        let output = std::process::Command::new("strace")
            .args(["-f", "-y", "-e", "trace=%file,%desc", "-o"])
            .arg(&trace)
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .args(args)
            .output()
            .expect("strace is installed");
        assert!(output.status.code() < Some(2), "{args:?}: {output:?}");
        let trace = fs::read_to_string(trace).unwrap();
        let calls: Vec<&str> = trace.lines().filter(|line| line.contains(path)).collect();
        assert!(calls.len() > 2, "{args:?}");
        for call in calls {
            let changes = [
                "O_WRONLY",
                "O_RDWR",
                "O_CREAT",
                "O_TRUNC",
                "flock(",
                "F_SETLK",
                "F_OFD_SETLK",
                "unlink",
                "rename",
                "mkdir",
            ];
            // The table that is made lies beside the directory.
            let is_in_it =
                call.contains(&format!("{path}/")) || call.contains(&format!("{path}\""));
            let changed = changes.iter().find(|change| call.contains(**change));
            assert!(!is_in_it || changed.is_none(), "{args:?}: {call}");
        }
        assert_eq!(names_in(&db), before, "{args:?}");
    }
}

/// `LEVELTABLE_CORPUS` names a folder of real databases, with the number of live entries that another reader found.
#[test]
#[ignore = "needs the corpus"]
fn real_databases_have_as_many_entries_as_another_reader_found() {
    let corpus = std::env::var_os("LEVELTABLE_CORPUS").expect("LEVELTABLE_CORPUS names the corpus");
    let folder = Path::new(&corpus).join("databases");
    let list = fs::read(folder.join("databases.jsonl")).unwrap();
    let mut whole = 0;
    for listed in json_lines(&list) {
        let name = listed["database"].as_str().unwrap();
        let db = folder.join(name);
        let scanned = on(&db, "scan", &["--json"]);
        let errors = String::from_utf8_lossy(&scanned.stderr).into_owned();
        if !scanned.status.success() {
            // Damage is said, with the file.
            assert_eq!(scanned.status.code(), Some(2), "{name}: {errors}");
            assert!(
                ["CURRENT holds", "corrupt log", "a log of RocksDB or Pebble"]
                    .iter()
                    .any(|why| errors.contains(why)),
                "{errors}"
            );
            // What another program wrote is not damage: `verify` cannot say whether it is sound.
            let expected = if errors.contains("RocksDB") { 2 } else { 1 };
            assert_eq!(
                on(&db, "verify", &[]).status.code(),
                Some(expected),
                "{name}"
            );
            continue;
        }
        whole += 1;
        assert_eq!(errors, "", "{name}");
        let rows = json_lines(&scanned.stdout);
        assert_eq!(
            rows.len() as u64,
            listed["live"].as_u64().unwrap(),
            "{name}"
        );
        let verified = on(&db, "verify", &[]);
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert_eq!(verified.status.code(), Some(0), "{name}: {text}");
        stdout(on(&db, "info", &[]));
    }
    assert!(whole >= 15, "{whole}");
}
