//! Databases that real programs wrote, against the counts and hashes of another reader.
//!
//! The corpus is not part of the repository. `LEVELTABLE_CORPUS` names its folder:
//! `cargo test -p leveltable-database --all-features --test corpus -- --ignored`.

use std::fmt::Write;
use std::path::PathBuf;

use leveltable::ErrorKind;
use leveltable_database::{Database, DatabaseOptions};
use serde_json::Value;
use sha2::{Digest, Sha256};

struct Listed {
    path: PathBuf,
    name: String,
    comparator: String,
    live: u64,
    live_sha256: String,
    log_errors: u64,
}

fn databases() -> Vec<Listed> {
    let corpus = std::env::var_os("LEVELTABLE_CORPUS").expect("LEVELTABLE_CORPUS names the corpus");
    let folder = PathBuf::from(corpus).join("databases");
    let list = std::fs::read_to_string(folder.join("databases.jsonl")).unwrap();
    let parse = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |field: &str| line[field].as_str().unwrap().to_owned();
        let number = |field: &str| line[field].as_u64().unwrap();
        Listed {
            path: folder.join(text("database")),
            name: text("database"),
            comparator: text("comparator"),
            live: number("live"),
            live_sha256: text("live_sha256"),
            log_errors: number("log_errors"),
        }
    };
    list.lines().map(parse).collect()
}

/// Over the entries sorted by the bytes of their keys.
fn hash(entries: &mut [(impl AsRef<[u8]> + Ord, impl AsRef<[u8]> + Ord)]) -> String {
    entries.sort();
    let mut hash = Sha256::new();
    for (key, value) in entries {
        let (key, value) = (key.as_ref(), value.as_ref());
        hash.update(u32::try_from(key.len()).unwrap().to_le_bytes());
        hash.update(u32::try_from(value.len()).unwrap().to_le_bytes());
        hash.update(key);
        hash.update(value);
    }
    hash.finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
}

#[test]
#[ignore = "needs the corpus"]
fn live_entries_are_those_of_another_reader() {
    let databases = databases();
    assert!(databases.len() >= 17, "{}", databases.len());
    for listed in databases {
        let name = &listed.name;
        let mut db = Database::open_read_only(&listed.path);
        if listed.log_errors > 0 {
            // Pebble wrote the log.
            let error = db.expect_err("no log of LevelDB's");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            assert!(error.to_string().contains("Pebble"), "{name}: {error}");
            println!("{error}");
            db = DatabaseOptions::new()
                .skip_damaged(true)
                .open_read_only(&listed.path);
        }
        if std::fs::read(listed.path.join("CURRENT"))
            .unwrap()
            .starts_with(b"<<<<<<<")
        {
            // Somebody committed a conflict of two branches. The MANIFESTs of both are there.
            let error = db.expect_err("CURRENT names no MANIFEST");
            assert_eq!(error.kind(), ErrorKind::NotADatabase, "{name}: {error}");
            assert!(
                error.to_string().contains("open_without_manifest"),
                "{name}: {error}"
            );
            println!("{name}: {error}");
            db = DatabaseOptions::new().open_without_manifest(&listed.path);
        }
        let db = db.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            !db.recovery().gaps.is_empty(),
            listed.log_errors > 0,
            "{name}"
        );
        assert_eq!(db.comparator(), listed.comparator, "{name}");
        let mut entries: Vec<_> = db.iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(entries.len() as u64, listed.live, "{name}");
        let mut back: Vec<_> = db.iter().rev().collect::<Result<_, _>>().unwrap();
        back.reverse();
        assert_eq!(entries, back, "{name}");
        // One by one, in the order of the database.
        for (key, value) in &entries {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value), "{name}");
        }
        let keys: Vec<_> = entries.iter().map(|(key, _)| key).collect();
        let values: Vec<_> = entries
            .iter()
            .map(|(_, value)| Some(value.clone()))
            .collect();
        assert_eq!(db.get_many(&keys).unwrap(), values, "{name}");
        assert_eq!(hash(&mut entries), listed.live_sha256, "{name}");
        println!("{name}: {} entries", entries.len());
    }
}
