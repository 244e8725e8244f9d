//! What repairs make of a damaged database, compared with what its owner had.

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use leveltable_database::IndexedDbComparator;
use leveltable_repair::{Grade, RepairOptions, RepairReport, repair};

use crate::common::{Settings, Writer, copy_dir, hex};
use crate::owned::{Contents, goleveldb};

/// Keys that differ from the truth.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) lost: usize,
    /// With another value than the newest.
    pub(crate) stale: usize,
    /// There, although they were deleted.
    pub(crate) back: usize,
}

impl Difference {
    pub(crate) fn all(self) -> usize {
        self.lost + self.stale + self.back
    }

    pub(crate) fn between(truth: &Contents, found: &Contents) -> Difference {
        let mut difference = Difference::default();
        for key in keys_that_differ(truth, found) {
            match (truth.contains_key(key), found.contains_key(key)) {
                (true, true) => difference.stale += 1,
                (true, false) => difference.lost += 1,
                _ => difference.back += 1,
            }
        }
        difference
    }
}

impl AddAssign for Difference {
    fn add_assign(&mut self, other: Difference) {
        self.lost += other.lost;
        self.stale += other.stale;
        self.back += other.back;
    }
}

fn keys_that_differ<'a>(truth: &'a Contents, found: &'a Contents) -> Vec<&'a Vec<u8>> {
    let absent = |key: &&Vec<u8>| !truth.contains_key(*key);
    let mut keys: Vec<_> = truth
        .iter()
        .filter(|(key, value)| found.get(*key) != Some(value))
        .map(|(key, _)| key)
        .collect();
    keys.extend(found.keys().filter(absent));
    keys
}

/// A range of user keys that a report names, both ends inclusive.
pub(crate) struct Named {
    grade: Grade,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl Named {
    fn has(&self, key: &Vec<u8>) -> bool {
        self.from.as_ref().is_none_or(|from| from <= key)
            && self.to.as_ref().is_none_or(|to| key <= to)
    }
}

/// What a repair made of a database.
pub(crate) struct Repaired {
    pub(crate) contents: Contents,
    pub(crate) is_complete: bool,
    pub(crate) named: Vec<Named>,
    /// The report, for messages.
    pub(crate) said: Vec<String>,
}

impl Repaired {
    /// Repairs the database in `dir` to `new`, and reads the result by C++ LevelDB.
    pub(crate) fn by_us(
        writer: &mut Writer,
        dir: &Path,
        new: &Path,
        settings: &Settings,
    ) -> Result<Repaired, String> {
        let options = match settings.indexed_db {
            true => RepairOptions::new().comparator(IndexedDbComparator),
            false => RepairOptions::new(),
        };
        let report = repair(dir, new, options).map_err(|error| error.to_string())?;
        Repaired::of(writer, report, new, settings)
    }

    fn of(
        writer: &mut Writer,
        report: RepairReport,
        new: &Path,
        settings: &Settings,
    ) -> Result<Repaired, String> {
        let named = report.findings.iter().map(|finding| Named {
            grade: finding.grade,
            from: finding.from.clone(),
            to: finding.to.clone(),
        });
        let counts = |named: &Named| matches!(named.grade, Grade::Lost | Grade::Unproven);
        Ok(Repaired {
            contents: contents(writer, new, settings)?,
            is_complete: report.is_complete(),
            named: named.filter(counts).collect(),
            said: report.findings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Keys that differ where nothing was said of them.
    pub(crate) fn silent(&self, truth: &Contents) -> Vec<String> {
        let differ = keys_that_differ(truth, &self.contents).into_iter();
        let silent = differ.filter(|key| !self.named.iter().any(|named| named.has(key)));
        let show = |key: &Vec<u8>| {
            let state = match (truth.contains_key(key), self.contents.contains_key(key)) {
                (true, true) => "stale",
                (true, false) => "lost",
                _ => "back",
            };
            format!("{state} \"{}\"", key.escape_ascii())
        };
        silent.map(show).collect()
    }

    /// Keys, there or not any more, that are called lost.
    pub(crate) fn keys_called_lost(&self, truth: &Contents) -> usize {
        let mut lost = self.named.iter().filter(|named| named.grade == Grade::Lost);
        let lost: Vec<_> = lost.by_ref().collect();
        let is_lost = |key: &&Vec<u8>| lost.iter().any(|named| named.has(key));
        truth.keys().filter(is_lost).count()
    }
}

/// What C++ LevelDB's `RepairDB` makes of a copy: what the iterator shows until it fails. Nothing, where LevelDB does not open the result
/// or ends by an assertion.
pub(crate) fn by_repair_db(
    writer: &mut Writer,
    dir: &Path,
    copy: &Path,
    settings: &Settings,
) -> Contents {
    copy_dir(dir, copy);
    let repaired = writer.ask(&format!("repair {}", copy.display()));
    if repaired != "ok" || writer.try_open(copy, settings) != "ok" {
        return Contents::new();
    }
    let scratch = crate::common::scratch();
    let (_, entries) = writer.dump_until_error(scratch.path());
    entries.into_iter().collect()
}

/// What LevelDB finds in a database, by its iterator, and by `Get`, which must agree.
fn contents(writer: &mut Writer, dir: &Path, settings: &Settings) -> Result<Contents, String> {
    let answer = writer.try_open(dir, settings);
    if answer != "ok" {
        return Err(format!("LevelDB does not open it: {answer}"));
    }
    let scratch = crate::common::scratch();
    let contents: Contents = writer.dump(scratch.path()).into_iter().collect();
    match writer.ask("check") {
        answer if answer == format!("ok {}", contents.len()) => Ok(contents),
        answer => Err(format!("Get and the iterator disagree: {answer}")),
    }
}

/// Checks that goleveldb, if it is here, finds the same in a copy of a new database, and that it can be used.
pub(crate) fn check_by_goleveldb(
    new: &Path,
    copy: &Path,
    contents: &Contents,
    settings: &Settings,
) -> Result<(), String> {
    let Some(program) = goleveldb().filter(|_| !settings.indexed_db) else {
        return Ok(());
    };
    copy_dir(new, copy);
    let _ = fs::remove_file(copy.join("LOG")); // to which goleveldb appends
    let mut writer = Writer::of(program);
    if self::contents(&mut writer, copy, settings)? != *contents {
        return Err("goleveldb finds something else".to_owned());
    }
    check_in_use(&mut writer, copy, contents.clone(), settings)
}

/// Checks that LevelDB, which has `dir` open, has nothing to compact, takes writes and compacts everything.
pub(crate) fn check_in_use(
    writer: &mut Writer,
    dir: &Path,
    mut contents: Contents,
    settings: &Settings,
) -> Result<(), String> {
    let said = || fs::read_to_string(dir.join("LOG")).unwrap();
    // The compaction that LevelDB may think of runs in the background.
    std::thread::sleep(Duration::from_millis(20));
    let log = said();
    let has_tables = !contents.is_empty();
    if [
        "ompact",
        "Level-0 table",
        "memdb@flush",
        "orrupt",
        "gnoring",
    ]
    .iter()
    .any(|word| log.contains(word))
    {
        return Err(format!("LevelDB has something to do: {log}"));
    }
    let keys: Vec<_> = contents.keys().step_by(97).cloned().collect();
    let mut changes: Vec<_> = keys
        .into_iter()
        .enumerate()
        .map(|(i, key)| (key, (i % 3 > 0).then(|| vec![7; 100])))
        .collect();
    changes.push((b"zz, a new key".to_vec(), Some(b"its value".to_vec())));
    writer.batch(&changes);
    for (key, value) in changes {
        match value {
            Some(value) => contents.insert(key, value),
            None => contents.remove(&key),
        };
    }
    let ends = [&b"\0"[..], &[0xff; 20]].map(hex).join(" ");
    let answer = writer.ask(&format!("compact_between {ends}"));
    if !answer.starts_with("ok") || has_tables && !said().contains("ompact") {
        return Err(format!("no compaction: {answer}"));
    }
    let answer = writer.try_open(dir, settings);
    let scratch = crate::common::scratch();
    if answer != "ok" || !writer.dump(scratch.path()).into_iter().eq(contents) {
        return Err(format!("not what was written: {answer}"));
    }
    Ok(())
}

/// Names, bytes, modes and times of the files of a directory.
pub(crate) fn fingerprint(dir: &Path) -> BTreeMap<String, (Vec<u8>, [i64; 5])> {
    let mut files = BTreeMap::new();
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let about = fs::metadata(&path).unwrap();
        let (mode, inode) = (i64::from(about.mode()), about.ino().cast_signed());
        let times = [about.mtime(), about.mtime_nsec(), about.ctime()];
        let about = [times[0], times[1], times[2], mode, inode];
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.insert(name, (fs::read(path).unwrap(), about));
    }
    let about = fs::metadata(dir).unwrap();
    let about = [about.mtime(), about.mtime_nsec(), about.ctime(), 0, 0];
    files.insert(".".to_owned(), (Vec::new(), about));
    files
}
