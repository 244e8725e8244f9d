//! Damaged directories: what repair writes of them is what the plain model does, was once put, and no key differs outside of what the
//! report says.

#![no_main]

use std::fs;
use std::path::Path;

use arbitrary::Arbitrary;
use leveltable::ErrorKind;
use leveltable_database::Database;
use leveltable_fuzz::databases::{Contents, Input, directory, write};
use leveltable_fuzz::recovery::{Files, recover};
use leveltable_repair::{Grade, RepairOptions, RepairReport, repair};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Broken<'a> {
    database: Input<'a>,
    /// Bits of the files that are gone: CURRENT, the MANIFEST, tables.
    removed: u8,
}

fuzz_target!(|broken: Broken<'_>| {
    let dir = directory();
    let written = write(&broken.database, dir);
    let tables = (10..15).map(|number| format!("{number:06}.ldb"));
    let names = ["CURRENT".to_owned(), "MANIFEST-000002".to_owned()];
    for (bit, name) in names.into_iter().chain(tables).enumerate() {
        if broken.removed >> bit & 1 == 1 {
            let _ = fs::remove_file(dir.join(name));
        }
    }
    let new = dir.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    let report = match repair(dir, &new, RepairOptions::new()) {
        Ok(report) => report,
        // Nothing is left; or what was added names another order, or looks like the files of another engine.
        Err(error) => {
            assert!(!new.exists(), "{error}");
            let is_foreign = broken.database.edit.is_some() || broken.database.record.is_some();
            let is_empty = error.kind() == ErrorKind::NotADatabase;
            return assert!(
                is_empty || is_foreign || has_damage(&written.damaged, "MANIFEST"),
                "{error}"
            );
        }
    };
    let db = Database::open_read_only(&new).expect("the new one is sound");
    let found: Contents = db
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<leveltable::Result<_>>()
        .expect("the new one is sound");
    assert_eq!(found, recover(&files(dir)), "{report:?}");
    if broken.database.record.is_some() {
        return; // which may put anything
    }
    for entry in &found {
        let entry = (entry.0.clone(), entry.1.clone());
        assert!(written.ever.contains(&entry), "{entry:?} was never put");
    }
    // An edit may take tables away, and the end of a log may be cut as by a crash.
    if broken.database.edit.is_none() && !has_damage(&written.damaged, ".log") {
        let keys = written.contents.keys().chain(found.keys());
        for key in keys.filter(|key| written.contents.get(*key) != found.get(*key)) {
            assert!(is_said(&report, key), "{key:?} differs: {report:?}");
        }
    }
});

fn files(dir: &Path) -> Files {
    let files = fs::read_dir(dir).expect("it is there");
    let file = |file: std::io::Result<fs::DirEntry>| {
        let file = file.expect("it is there");
        let name = file.file_name().into_string().expect("text");
        (name, fs::read(file.path()).expect("it can be read"))
    };
    files.map(file).collect()
}

fn has_damage(damaged: &std::collections::BTreeSet<String>, part: &str) -> bool {
    damaged.iter().any(|name| name.contains(part))
}

/// Whether a key is within a range of what is lost or unproven.
fn is_said(report: &RepairReport, key: &[u8]) -> bool {
    report.findings.iter().any(|finding| {
        matches!(finding.grade, Grade::Lost | Grade::Unproven)
            && finding.from.as_deref().is_none_or(|from| from <= key)
            && finding.to.as_deref().is_none_or(|to| key <= to)
    })
}
