//! The words of messages: what to do, by the commands of the tool.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{argument, complaint, repair_command, run, testdata};

/// Asserts that a command fails with these words, and without those of the library.
#[track_caller]
fn assert_says(args: &[&str], words: &[&str]) {
    let message = complaint(run(args), 2);
    for word in words {
        assert!(message.contains(word), "{word:?} not in: {message}");
    }
    assert!(!message.contains("leveltable-repair lists"), "{message}");
}

#[test]
fn damage_names_the_commands_that_help() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("words.ldb");
    let mut file = fs::read(testdata("words-b1024-r16-bloom10.ldb")).unwrap();
    file[3000] ^= 1;
    fs::write(&path, &file).unwrap();
    let path = path.to_str().unwrap();
    let both =
        "; `leveltable verify` lists all damage, and `leveltable salvage` copies what is sound";
    assert_says(
        &["scan", path, "--keys", "plain"],
        &["corrupt data block at offset 2099: ", both],
    );

    // In the directory of a database, its table is a part of what can be repaired.
    let path = directory.path().join("000005.ldb");
    fs::write(directory.path().join("CURRENT"), "MANIFEST-000002\n").unwrap();
    fs::write(&path, &file).unwrap();
    let words = [
        "corrupt data block at offset 2099: ",
        "; `leveltable verify` lists all damage; `leveltable repair ",
    ];
    assert_says(&["scan", path.to_str().unwrap(), "--keys", "plain"], &words);
}

#[test]
fn bad_copies_are_told_apart() {
    let directory = TempDir::new().unwrap();
    let file = fs::read(testdata("words-b1024-r16-bloom10.ldb")).unwrap();
    let len = file.len();
    let lines: Vec<&[u8]> = file.split(|&byte| byte == b'\n').collect();
    for (copy, words) in [
        (
            file[..len - 1].to_vec(),
            "the beginning of a LevelDB table: its last 8 bytes are ".to_owned(),
        ),
        (
            [&file[..], b"\r"].concat(),
            format!(
                "a LevelDB table that should have {len} bytes, according to its footer, in a file of {}: the rest was",
                len + 1
            ),
        ),
        (
            file[100..].to_vec(),
            "bytes are missing; copy it again".to_owned(),
        ),
        (
            lines.join(&b"\r\n"[..]),
            "line ends were changed, as in text mode; copy it again in binary mode".to_owned(),
        ),
    ] {
        let path = directory.path().join("copy.ldb");
        fs::write(&path, copy).unwrap();
        assert_says(&["get", path.to_str().unwrap(), "key"], &[&words]);
    }
}

/// Builds a database of one table, and returns its path.
fn database() -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = |name| directory.path().join(name).to_str().unwrap().to_owned();
    let (lines, db) = (path("lines.tsv"), path("db"));
    fs::write(&lines, "apple\tred\n").unwrap();
    assert!(run(["build", "--database", &db, &lines]).status.success());
    (directory, db)
}

/// A sound file of a database that is no table needs no repair.
#[test]
fn logs_and_manifests_name_the_command_that_shows_them() {
    let (_directory, db) = database();
    let manifest = format!("{db}/MANIFEST-000001");
    let scanned = argument(Path::new(&manifest));
    let shows = format!("`leveltable scan {scanned}` shows what is in it");
    assert_says(
        &["info", &manifest],
        &["this is a LevelDB MANIFEST", &shows],
    );
    let current = format!("{db}/CURRENT");
    assert_says(
        &["get", &current, "apple"],
        &["name its directory to read the database"],
    );
    for path in [&manifest, &current] {
        let message = complaint(run(["info", path]), 2);
        assert!(!message.contains("leveltable repair"), "{message}");
    }
}

#[test]
fn a_table_that_is_missing_names_the_repair() {
    let (_directory, db) = database();
    fs::remove_file(format!("{db}/000002.ldb")).unwrap();
    let new = format!("{db}.new");
    let manifest = Path::new(&db).join("MANIFEST-000001");
    let (manifest, repair) = (manifest.display(), repair_command(Path::new(&db)));
    let lists = format!(
        "opening a table that {manifest} lists: no such file; {repair} writes what is left"
    );
    for args in [
        &["scan", &db][..],
        &["get", &db, "apple"],
        &["compact", &db, &new],
    ] {
        assert_says(args, &[&lists]);
    }
}

#[test]
fn a_database_that_lost_current_is_no_directory_of_tables() {
    let (_directory, db) = database();
    fs::remove_file(format!("{db}/CURRENT")).unwrap();
    let words = ["a database that lost CURRENT", "`leveltable repair "];
    for args in [&["scan", &db][..], &["get", &db, "apple"], &["info", &db]] {
        assert_says(args, &words);
    }
    assert_eq!(run(["verify", &db]).status.code(), Some(1));
    assert!(run(["verify", &db, "--files"]).status.success());
}

/// It was said not to be a database's table, although the user said that it is.
#[test]
fn a_databases_table_in_another_order_is_called_one() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("copy.ldb");
    let table = testdata("db-compacted-reverse.ldb");
    for keys in ["auto", "database"] {
        let args = [
            "salvage",
            table.to_str().unwrap(),
            out.to_str().unwrap(),
            "--keys",
            keys,
        ];
        let words = [
            "this table is not in the order of \"leveldb.BytewiseComparator\"",
            "only a program that has its comparator can copy it, by `salvage` of leveltable-repair",
        ];
        assert_says(&args, &words);
    }
}

/// A directory in place of a file, or of the directory of a database.
#[test]
fn a_directory_says_what_to_name_instead() {
    let (directory, db) = database();
    let path = |name| directory.path().join(name).to_str().unwrap().to_owned();
    let (tables, empty, out) = (path("tables"), path("empty"), path("out.ldb"));
    fs::create_dir(&tables).unwrap();
    fs::create_dir(&empty).unwrap();
    let table = format!("{tables}/t.ldb");
    assert!(run(["build", &table, &path("lines.tsv")]).status.success());
    let name_one = "is a directory of tables: name one, such as ";
    let of_database = "of a database";
    for (args, words) in [
        (
            &["build", &db, &table][..],
            "a directory: name a file for the table",
        ),
        (
            &["merge", &db, &table],
            "a directory: name a file for the table",
        ),
        (
            &["salvage", &table, &db],
            "a directory: name a file for the table",
        ),
        (
            &["build", &out, &db],
            "is a directory: name a file of entries",
        ),
        (
            &["splits", &db, "2"],
            "`leveltable build` makes of what `leveltable scan` prints",
        ),
        (&["publish", &out, &db], "is a directory: name the tables"),
        (&["get", &tables, "apple"], name_one),
        (&["splits", &tables, "2"], name_one),
        (&["salvage", &tables, &out], name_one),
        (
            &["salvage", &empty, &out],
            "not a LevelDB database, but an empty directory",
        ),
        (&["compact", &tables, &out], of_database),
        (&["repair", &tables, &out], of_database),
        (
            &["compact", &table, &out],
            "not a directory: name that of the database",
        ),
        (
            &["repair", &table, &out],
            "not a directory: name that of the database",
        ),
    ] {
        assert_says(args, &[words]);
    }
}

#[test]
fn a_user_key_is_no_stored_key() {
    let table = testdata("db-compacted.ldb");
    let args = ["get", table.to_str().unwrap(), "apple", "--keys", "stored"];
    let words = "\"apple\" is not an internal key; leave out `--keys stored` to look up user keys";
    assert_says(&args, &[words]);
}

/// The path was there twice.
#[test]
fn a_database_that_cannot_be_verified_is_named_once() {
    let (_directory, db) = database();
    fs::remove_file(format!("{db}/CURRENT")).unwrap();
    let verified = run(["verify", &db]);
    let line = format!("{db}: not sound: a database that lost CURRENT; ");
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(said.starts_with(&line), "{said}");
}
