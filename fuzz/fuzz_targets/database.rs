//! Whole directories: a MANIFEST of arbitrary edits, logs and tables of arbitrary changes, and arbitrary bytes in their place.

#![no_main]

use leveltable_database::{Database, DatabaseOptions};
use leveltable_fuzz::databases::{Contents, Input, directory, key, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| {
    let dir = directory();
    let model = write(&input, dir).contents;
    let is_whole = input.damage.is_empty() && input.edit.is_none() && input.record.is_none();
    if let Ok(db) = Database::open_read_only(dir) {
        let found = ask(&db);
        if is_whole {
            assert_eq!(found, Some(model));
        }
    } else {
        assert!(!is_whole, "a sound database is refused");
    }
    let lenient = DatabaseOptions::new().skip_damaged(true);
    for db in [
        lenient.open_read_only(dir),
        lenient.open_without_manifest(dir),
    ]
    .into_iter()
    .flatten()
    {
        ask(&db);
    }
});

/// Asks a database everything. All answers agree; `None` if one was an error.
fn ask(db: &Database) -> Option<Contents> {
    let walk = |entry: leveltable::Result<(bytes::Bytes, bytes::Bytes)>| {
        entry
            .ok()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
    };
    let forward: Option<Vec<_>> = db.iter().map(walk).collect();
    let back: Option<Vec<_>> = db.iter().rev().map(walk).collect();
    let keys: Vec<Vec<u8>> = (0..=255).step_by(5).map(key).collect();
    let many = db.get_many(&keys);
    let single: Vec<_> = keys.iter().map(|key| db.get(key)).collect();
    let _ = (
        db.history(&keys[3]),
        db.files(),
        db.recovery(),
        db.refresh(),
        db.pin(),
    );
    let forward = forward?;
    assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let mut back = back?;
    back.reverse();
    assert_eq!(forward, back);
    let contents: Contents = forward.into_iter().collect();
    if let Ok(many) = many {
        for ((key, one), many) in keys.iter().zip(single).zip(many) {
            // An edit may put tables into levels in which a newer version is below an older one: lookups stop at the first, as
            // LevelDB's do.
            assert_eq!(one.ok()?, many);
            assert!(
                many.is_some() == contents.contains_key(key) || !is_layered(db),
                "{key:?}"
            );
        }
    }
    Some(contents)
}

/// Whether all tables are in level 0, where the sequence numbers decide.
fn is_layered(db: &Database) -> bool {
    let files = db.files().unwrap_or_default();
    files
        .iter()
        .all(|file| file.listed.as_ref().is_none_or(|(level, _)| *level == 0))
}
