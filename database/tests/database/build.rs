//! Databases that this crate builds, read by itself: contents, files, what is refused, and what is left after errors at each step.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leveltable::db::{InternalKey, ValueType};
use leveltable::{
    Comparator, Compression, DbTable, ErrorKind, OpenOptions, SortedEntries, WriteOptions,
};
use leveltable_database::sister_crates::{build, open};
use leveltable_database::{
    BuiltDatabase, Database, DatabaseBuildOptions, DatabaseBuilder, DatabaseOptions, Edit,
    FileKind, FileState, IndexedDbComparator, LogItem, LogReader,
};

use crate::common::memory::{Fault, Memory};
use crate::common::{codecs, scratch};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn model(entries: u32, seed: u64) -> Model {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut entry = |i: u32| {
        let len = if random.u32(..1000) == 0 {
            100_000
        } else {
            random.usize(..200)
        };
        let value = (0..len).map(|_| random.u8(..16)).collect();
        (format!("user/{:08}", i * 7).into_bytes(), value)
    };
    (0..entries).map(&mut entry).collect()
}

fn small_tables() -> DatabaseBuildOptions {
    DatabaseBuildOptions::new().table_bytes(20_000)
}

fn write(path: &Path, model: &Model, options: DatabaseBuildOptions) -> BuiltDatabase {
    let mut builder = DatabaseBuilder::create(path, options).unwrap();
    builder.extend(SortedEntries::new(model)).unwrap();
    builder.finish().unwrap()
}

fn contents(db: &Database) -> Model {
    let entries = db
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    entries.collect::<Result<_, _>>().unwrap()
}

/// The one edit of a MANIFEST.
fn edit(dir: &Path) -> Edit {
    let items: Vec<_> = LogReader::open(dir.join("MANIFEST-000001"))
        .unwrap()
        .collect();
    let [Ok(LogItem::Record(record))] = &items[..] else {
        panic!("{items:?}");
    };
    Edit::parse(&record.payload).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// All versions that a table holds, deletions among them, as a merge of tables yields them.
#[test]
fn versions_are_taken_from_any_source_of_stored_keys() {
    let scratch = scratch();
    let mut table = WriteOptions::new().build_db(Vec::new());
    table.delete("a", 9).unwrap();
    table.put("a", 4, "old").unwrap();
    table.put("b", 7, "new").unwrap();
    table.put("b", 2, "older").unwrap();
    let (file, _) = table.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_db_source(file).unwrap();
    let path = scratch.path().join("db");
    let mut builder = DatabaseBuilder::create(&path, small_tables()).unwrap();
    builder.extend_versions(table.cursor()).unwrap();
    let plain = SortedEntries::new([("c", "")]);
    let error = builder.extend_versions(plain).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(
        error.to_string().contains("\"c\" is not an internal key"),
        "{error}"
    );
    let built = builder.finish().unwrap();
    assert_eq!((built.entries, built.last_sequence), (4, 9));
    let written = DbTable::open(path.join("000002.ldb")).unwrap();
    let all = |table: &DbTable| table.iter().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(all(&written), all(&table));
    let db = Database::open_read_only(&path).unwrap();
    assert_eq!(contents(&db), [(b"b".to_vec(), b"new".to_vec())].into());
}

#[test]
fn a_database_has_what_was_added_and_only_the_files_that_it_needs() {
    for (entries, seed) in [(0, 1), (1, 2), (300, 3), (10_000, 4)] {
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let model = model(entries, seed);
        let built = write(&dir, &model, small_tables());
        let db = Database::open_read_only(&dir).unwrap();
        assert_eq!(contents(&db), model);
        assert_eq!((built.entries, built.level), (entries.into(), 1));
        assert_eq!(db.last_sequence(), u64::from(entries > 0));
        for key in model.keys().step_by(100) {
            assert_eq!(
                db.get(key).unwrap().as_deref(),
                model.get(key).map(|value| &value[..])
            );
        }
        let files = db.files().unwrap();
        assert!(
            files.iter().all(|file| file.state == FileState::Live),
            "{files:?}"
        );
        let tables = files
            .iter()
            .filter(|file| file.kind == FileKind::Table)
            .count();
        assert_eq!((tables as u64, files.len()), (built.tables, tables + 2));
        let bytes: u64 = files.iter().filter_map(|file| file.bytes).sum();
        assert_eq!(bytes, built.bytes);
        let edit = edit(&dir);
        assert_eq!(
            edit.comparator.as_deref(),
            Some(&b"leveldb.BytewiseComparator"[..])
        );
        assert_eq!((edit.log_number, edit.prev_log_number), (Some(0), Some(0)));
        let largest = files.iter().filter_map(|file| file.number).max();
        assert_eq!(edit.next_file_number, largest.map(|number| number + 1));
        assert_eq!(names(scratch.path()), ["db"], "nothing is left beside it");
    }
}

#[test]
fn tables_end_at_their_size_and_never_between_versions_of_a_key() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let mut builder = DatabaseBuilder::create(&dir, small_tables()).unwrap();
    let mut versions = 0;
    for key in 0..200u32 {
        let key = key.to_be_bytes();
        // Some keys alone have more than a table.
        for sequence in (0..if key[3] % 50 == 7 { 400 } else { 20 }).rev() {
            let value_type = if sequence % 3 == 0 {
                ValueType::Deletion
            } else {
                ValueType::Value
            };
            let value = if sequence % 3 == 0 {
                vec![]
            } else {
                fastrand::u128(..)
                    .to_le_bytes()
                    .map(|byte| [byte; 9].map(|b| b.wrapping_mul(fastrand::u8(..))))
                    .concat()
            };
            let version = InternalKey {
                user_key: &key,
                sequence: 1000 + sequence,
                value_type,
            };
            builder.add(version, value).unwrap();
            versions += 1;
        }
    }
    let built = builder.finish().unwrap();
    assert_eq!((built.entries, built.last_sequence), (versions, 1399));
    let edit = edit(&dir);
    assert!(edit.added.len() > 20);
    for pair in edit.added.windows(2) {
        let ((_, a), (_, b)) = (&pair[0], &pair[1]);
        assert!(a.last_user_key() < b.first_user_key());
        // LevelDB ends a table when the blocks written reach the size: not before, and a block and versions later at most.
        let file = dir.join(format!("{:06}.ldb", a.number));
        assert_eq!(fs::metadata(&file).unwrap().len(), a.size);
        assert!(a.size > 20_000, "{}", a.size);
    }
    let db = Database::open_read_only(&dir).unwrap();
    assert_eq!(db.history_range(..).unwrap().count() as u64, versions);
    // The newest version of the keys with 400 versions is a deletion.
    assert_eq!(db.iter().count(), 196);
}

#[test]
fn two_builds_of_the_same_entries_are_the_same_bytes() {
    let scratch = scratch();
    let model = model(5000, 9);
    let dirs = ["one", "another, later"].map(|name| scratch.path().join(name));
    for dir in &dirs {
        write(dir, &model, small_tables());
        std::thread::sleep(Duration::from_millis(20));
    }
    let [one, other] = dirs.map(|dir| Memory::of(&dir));
    let of = |memory: &Memory| format!("{memory:?}").replace("another, later", "one");
    assert_eq!(of(&one), of(&other));
}

#[test]
fn options_are_taken_and_orders_named() {
    let scratch = scratch();
    let tables = WriteOptions::leveldb()
        .compression(Compression::None)
        .no_filter();
    let options = small_tables()
        .tables(tables)
        .comparator(IndexedDbComparator)
        .last_sequence(77);
    let dir = scratch.path().join("indexeddb");
    let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
    // Numbers of object stores are little-endian: 1, 256.
    builder.put([0x04, 1, 1, 0, 0, 0], "one").unwrap();
    builder.put([0x04, 1, 0, 1, 0, 0], "256").unwrap();
    let built = builder.finish().unwrap();
    assert_eq!(built.last_sequence, 77);
    let db = Database::open_read_only(&dir).unwrap();
    assert_eq!(
        (db.comparator(), db.has_known_order()),
        (IndexedDbComparator.name().into(), true)
    );
    assert_eq!(db.iter().count(), 2);
    let table = OpenOptions::new()
        .comparator(IndexedDbComparator)
        .open_db(dir.join("000002.ldb"));
    let table = table.unwrap();
    assert!(table.as_table().filter().is_none());
    assert_eq!(codecs(table.as_table()), ["none"]);

    let bad = small_tables().tables(WriteOptions::leveldb().block_size(0));
    let error = DatabaseBuilder::create(scratch.path().join("bad"), bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(error.to_string().contains("block_size"), "{error}");
    assert_eq!(names(scratch.path()), ["indexeddb"]);
}

/// A rejected entry begins no table: an empty one would be listed with keys that are none.
#[test]
fn a_rejected_first_entry_of_a_table_changes_nothing() {
    let scratch = scratch();
    let path = scratch.path().join("db");
    let options = DatabaseBuildOptions::new().table_bytes(1);
    let mut builder = DatabaseBuilder::create(&path, options).unwrap();
    let version = |user_key: &'static str, sequence| InternalKey {
        user_key: user_key.as_bytes(),
        sequence,
        value_type: ValueType::Value,
    };
    let reject = |builder: &mut DatabaseBuilder| {
        let error = builder.add(version("c", 1 << 56), "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    };
    reject(&mut builder);
    builder.add(version("b", 9), "new").unwrap();
    reject(&mut builder);
    builder.add(version("b", 4), "old").unwrap();
    let error = builder.put("a", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfOrder, "{error}");
    reject(&mut builder);
    assert_eq!(builder.finish().unwrap().tables, 1);
    let db = Database::open_read_only(&path).unwrap();
    assert_eq!(
        contents(&db),
        Model::from([(b"b".to_vec(), b"new".to_vec())])
    );
}

#[test]
fn what_is_out_of_order_is_refused_and_the_rest_goes_on() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let mut builder =
        DatabaseBuilder::create(&dir, DatabaseBuildOptions::new().table_bytes(1)).unwrap();
    for key in ["b", "c", "d"] {
        builder
            .put(key, fastrand::u64(..).to_le_bytes().repeat(2000))
            .unwrap();
        for wrong in ["a", key] {
            let error = builder.put(wrong, "").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfOrder, "{error}");
            assert!(
                error.to_string().contains(&format!("\"{wrong}\"")),
                "{error}"
            );
        }
    }
    assert_eq!(builder.finish().unwrap().tables, 3);
    let db = Database::open_read_only(&dir).unwrap();
    let keys: Vec<_> = contents(&db).into_keys().collect();
    assert_eq!(keys, [b"b", b"c", b"d"]);
}

#[test]
fn a_name_that_is_too_long_is_told_first() {
    let scratch = scratch();
    let path = scratch.path().join("n".repeat(300));
    assert!(DatabaseBuilder::create(path, small_tables()).is_err());
    assert_eq!(names(scratch.path()), Vec::<String>::new());
}

#[test]
fn nothing_is_replaced_and_what_cannot_be_made_is_told_first() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/file"), "1").unwrap();
    fs::write(at("file"), "2").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
    let mut taken = vec!["empty", "empty/", "full", "file"];
    taken.extend(cfg!(unix).then_some("link"));
    for name in taken {
        let error = DatabaseBuilder::create(at(name), small_tables()).unwrap_err();
        assert_eq!(
            io::Error::from(error).kind(),
            io::ErrorKind::AlreadyExists,
            "{name}"
        );
    }
    for name in ["missing/db", "file/db"] {
        let error = DatabaseBuilder::create(at(name), small_tables()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("parent directory does not exist"),
            "{error}"
        );
    }
    for name in ["/", ".."] {
        assert!(DatabaseBuilder::create(Path::new(name), small_tables()).is_err());
    }
    if cfg!(unix) {
        let error =
            DatabaseBuilder::create(at("db"), small_tables().expected_bytes(1 << 60)).unwrap_err();
        assert!(
            error.to_string().contains("1152921504606846976 bytes"),
            "{error}"
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    }
    let mut expected = vec!["empty", "file", "full"];
    expected.extend(cfg!(unix).then_some("link"));
    assert_eq!(names(scratch.path()), expected);

    // What appears later is not replaced either, not even an empty directory.
    let mut builder = DatabaseBuilder::create(at("late"), small_tables()).unwrap();
    builder.put("key", "value").unwrap();
    fs::create_dir(at("late")).unwrap();
    let error = builder.finish().unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(names(&at("late")), Vec::<String>::new());
    expected.push("late");
    expected.sort();
    assert_eq!(names(scratch.path()), expected);
}

#[test]
fn a_builder_that_is_dropped_leaves_nothing_and_leftovers_are_told() {
    let scratch = scratch();
    let dir = scratch.path().join("db/");
    let mut builder = DatabaseBuilder::create(&dir, small_tables()).unwrap();
    builder.extend(SortedEntries::new(&model(1000, 5))).unwrap();
    let temporary = builder.temporary_path().unwrap().to_owned();
    assert!(names(&temporary).len() > 1);
    drop(builder);
    assert_eq!(names(scratch.path()), Vec::<String>::new());

    let mut killed = DatabaseBuilder::create(&dir, small_tables()).unwrap();
    killed.put("key", "value").unwrap();
    let left = killed.temporary_path().unwrap().to_owned();
    std::mem::forget(killed);
    let name = left.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(".leveltable-") && name.ends_with(".tmp"));
    let built = write(&dir, &model(10, 6), small_tables());
    assert_eq!(built.leftovers, [left]);
    assert_eq!(Database::open_read_only(&dir).unwrap().iter().count(), 10);
}

#[cfg(unix)]
#[test]
fn a_directory_and_its_files_have_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = scratch();
    fs::create_dir(scratch.path().join("usual")).unwrap();
    fs::write(scratch.path().join("usual/file"), "").unwrap();
    write(&scratch.path().join("db"), &model(10, 1), small_tables());
    let mode = |path: &str| {
        fs::metadata(scratch.path().join(path))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("db"), mode("usual"));
    for file in ["CURRENT", "MANIFEST-000001", "000002.ldb"] {
        assert_eq!(mode(&format!("db/{file}")), mode("usual/file"));
    }
}

fn build_in_memory(memory: &Memory, model: &Model) -> leveltable::Result<BuiltDatabase> {
    let mut builder = build(Box::new(memory.clone()), small_tables())?;
    builder.extend(SortedEntries::new(model))?;
    builder.finish()
}

fn read_memory(memory: &Memory) -> Model {
    let memory = Memory::clone(memory);
    contents(&open(Arc::new(memory), &DatabaseOptions::new()).unwrap())
}

#[test]
fn an_error_at_any_step_leaves_no_database_and_names_file_and_step() {
    let model = model(1500, 11);
    let sound = Memory::new("new");
    build_in_memory(&sound, &model).unwrap();
    assert_eq!(read_memory(&sound), model);
    let steps = sound.steps();
    let published = steps.iter().position(|step| step == "renaming").unwrap();
    assert_eq!(
        published + 2,
        steps
            .iter()
            .take_while(|step| *step != "listing" && !step.starts_with("opening"))
            .count()
    );
    for step in 0..published + 2 {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            let memory = Memory::new("new").failing_at(step, Fault::Error(kind));
            let error = build_in_memory(&memory, &model).unwrap_err();
            // A table is synced while the next one is written: in which order, differs from run to run.
            let steps = memory.steps();
            let (what, after) = (&steps[step], &steps[step + 1..]);
            assert_eq!(memory.is_published(), step > published, "{what}");
            let is_beside = |other: &String| other.ends_with(".ldb") && what.ends_with(".ldb");
            assert!(after.iter().all(is_beside), "it goes on after {what}");
            let creates = after.iter().filter(|other| other.starts_with("creating"));
            assert!(creates.count() <= 1, "it goes on after {what}: {after:?}");
            let message = error.to_string();
            let file = what
                .split(' ')
                .next_back()
                .filter(|name| name.contains('.') || *name == "CURRENT");
            assert!(message.starts_with("new"), "{what}: {message}");
            assert!(message.contains(file.unwrap_or("new")), "{what}: {message}");
            // "writing 000002.ldb" is "writing": the step is in the message.
            let verb = what.split(' ').next().unwrap();
            assert!(message.contains(verb), "{what}: {message}");
            assert_eq!(io::Error::from(error).kind(), kind, "{what}");
        }
        let short = Memory::new("new").failing_at(step, Fault::Short);
        let built = build_in_memory(&short, &model);
        let what = &short.steps()[step];
        match built {
            // A short write is continued.
            Ok(_) => assert_eq!(
                (short.files(), what.starts_with("writing")),
                (sound.files(), true)
            ),
            Err(_) => assert!(!what.starts_with("writing"), "{what}"),
        }
    }
}

#[test]
fn after_a_loss_of_power_a_directory_is_whole_or_not_there() {
    let model = model(1500, 12);
    let mut random = fastrand::Rng::with_seed(1);
    let sound = Memory::new("new");
    build_in_memory(&sound, &model).unwrap();
    let steps = sound.steps().len();
    let mut seen = [0, 0];
    for round in 0..300 {
        let step = steps - 1 - round % steps.min(60);
        let memory = Memory::new("new").failing_at(step, Fault::Error(io::ErrorKind::Other));
        let _ = build_in_memory(&memory, &model);
        let left = memory.after_power_loss(&mut random);
        seen[usize::from(left.is_some())] += 1;
        if let Some(left) = left {
            assert_eq!(read_memory(&left), model);
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Builds without end, for the test that kills it.
#[test]
#[ignore = "the child of another test"]
fn child_builds() {
    let Some(dir) = std::env::var_os("DATABASE") else {
        return;
    };
    let model = model(20_000, 3);
    for n in 0.. {
        write(
            &Path::new(&dir).join(format!("{n}")),
            &model,
            small_tables(),
        );
    }
}

#[test]
fn a_killed_build_leaves_whole_databases_and_what_is_named_temporary() {
    let mut random = fastrand::Rng::new();
    for _ in 0..30 {
        let scratch = scratch();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "build::child_builds", "--ignored", "--nocapture"]);
        let child = child
            .env("DATABASE", scratch.path())
            .stdout(std::process::Stdio::null());
        let mut child = child.spawn().unwrap();
        let begin = Instant::now();
        while names(scratch.path()).is_empty() && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.u64(..300_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut temporary = 0;
        for name in names(scratch.path()) {
            if name.starts_with(".leveltable-") && name.ends_with(".tmp") {
                temporary += 1;
                continue;
            }
            let db = Database::open_read_only(scratch.path().join(name)).unwrap();
            assert_eq!(contents(&db).len(), 20_000);
        }
        assert!(temporary <= 1);
    }
}
