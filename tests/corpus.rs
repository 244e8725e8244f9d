//! Tables that real programs wrote, read in every way and compared with the content that C++ LevelDB
//! reads; and files that are no tables, or damaged ones, which must be refused with a message that says what the file is.
//!
//! The files are other people's data and not part of this project, so plain `cargo test` leaves this out:
//!
//! ```text
//! LEVELTABLE_CORPUS=DIRECTORY cargo test --release --all-features --test corpus -- --ignored
//! ```
//!
//! The folder holds `manifest.jsonl`, a line of JSON for each file:
//!
//! ```text
//! file           path below the folder
//! sha256, size   of the file
//! entries        number of entries
//! kv_sha256      SHA-256 over, for each entry: u32 LE key length, key, u32 LE value length, value
//! compression    none, snappy, mixed, zlib or deflate-raw
//! filter         name of its policy, or null
//! internal_keys  whether keys are those of a database, with 8 bytes of sequence and type
//! expect         absent: it can be read; error: it cannot;
//!                entries-or-clear-unsupported-error: as the build's codecs go
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::{
    BytewiseComparator, DbTable, Error, ErrorKind, OpenOptions, Table,
    db::{DbEntry, InternalKeyComparator, MAX_SEQUENCE, Version},
};
use sha2::{Digest, Sha256};

/// The fault that a check found, in one line.
type Outcome = Result<(), String>;

/// Entries as stored, in order.
type Entries = Vec<(Bytes, Bytes)>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

#[test]
#[ignore = "needs a folder of real tables, named by LEVELTABLE_CORPUS"]
fn real_files_are_read_or_refused_in_clear_words() {
    let folder = PathBuf::from(
        std::env::var_os("LEVELTABLE_CORPUS")
            .expect("LEVELTABLE_CORPUS must name a folder of tables that holds a manifest.jsonl"),
    );
    let manifest = folder.join("manifest.jsonl");
    let manifest = std::fs::read_to_string(&manifest)
        .unwrap_or_else(|e| panic!("reading {}: {e}", manifest.display()));
    let files: Vec<File> = manifest.lines().map(File::from_line).collect();

    let mut checked = BTreeMap::new();
    let mut failures = Vec::new();
    for file in &files {
        let check = catch_unwind(AssertUnwindSafe(|| file.check(&folder, &files)));
        match check {
            Ok(Ok(())) => *checked.entry(file.expect.as_str()).or_insert(0) += 1,
            Ok(Err(wrong)) => failures.push(format!("{}: {wrong}", file.name)),
            Err(_) => failures.push(format!("{}: panicked, see above", file.name)),
        }
    }
    println!(
        "{} of {} files as expected: {checked:?}",
        checked.values().sum::<usize>(),
        files.len()
    );
    assert!(
        failures.is_empty(),
        "{} of {} files:\n{}",
        failures.len(),
        files.len(),
        failures.join("\n")
    );
    assert!(!files.is_empty(), "an empty manifest proves nothing");
}

/// A line of the manifest.
struct File {
    name: String,
    sha256: String,
    size: u64,
    /// Number of entries and their hash, for tables.
    content: Option<(u64, String)>,
    compression: String,
    filter: Option<String>,
    internal_keys: bool,
    /// `entries` where the manifest has nothing.
    expect: String,
}

impl File {
    fn from_line(line: &str) -> File {
        let json: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("manifest: {e} in {line}"));
        let text = |key: &str| json[key].as_str().map(String::from);
        File {
            name: text("file").expect("file"),
            sha256: text("sha256").expect("sha256"),
            size: json["size"].as_u64().expect("size"),
            content: json["entries"].as_u64().zip(text("kv_sha256")),
            compression: text("compression").unwrap_or_default(),
            filter: text("filter"),
            internal_keys: json["internal_keys"].as_bool().unwrap_or_default(),
            expect: text("expect").unwrap_or("entries".into()),
        }
    }

    fn check(&self, folder: &Path, all: &[File]) -> Outcome {
        let path = folder.join(&self.name);
        let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
        ensure!(
            bytes.len() as u64 == self.size,
            "{} bytes, not {}",
            bytes.len(),
            self.size
        );
        ensure!(
            hex(Sha256::digest(&bytes)) == self.sha256,
            "not the file of the manifest"
        );
        match self.expect.as_str() {
            "entries" if self.internal_keys => {
                let entries = self.check_stored(&path)?;
                check_database(&path, &entries)
            }
            "entries" => self.check_stored(&path).map(drop),
            "entries-or-clear-unsupported-error" => self.check_codec(&path),
            "error" => self.check_refused(&path, folder, all),
            other => Err(format!(
                "the manifest expects {other:?}, which this test does not know"
            )),
        }
    }

    /// Options under which the table's keys are those which it stores.
    fn options(&self) -> OpenOptions {
        let options = OpenOptions::new();
        if self.internal_keys {
            options.comparator(InternalKeyComparator::new(BytewiseComparator))
        } else {
            options
        }
    }

    /// Reads every stored entry in every way there is, from the file and from memory.
    fn check_stored(&self, path: &Path) -> Result<Entries, String> {
        self.check_kind(path)?;
        let mut entries = Entries::new();
        let bytes = std::fs::read(path).map_err(said("reading"))?;
        let options = self.options();
        for table in [options.open(path), options.open_source(bytes)] {
            let table = table.map_err(said("opening"))?;
            entries = self.check_walk(&table)?;
            check_lookups(&table, &entries)?;
            check_cursor(&table, &entries)?;
        }
        self.check_filter(path, &entries)?;
        Ok(entries)
    }

    /// A database's table is not taken for a plain one, nor the other way round.
    fn check_kind(&self, path: &Path) -> Outcome {
        if self.internal_keys {
            let error = Table::open(path).err().ok_or("opened as a plain table")?;
            ensure!(
                error.kind() == ErrorKind::DatabaseTable
                    && message(&error, path).contains("open it with DbTable"),
                "opened as a plain table, says {error:?}"
            );
        } else {
            let error = DbTable::open(path)
                .err()
                .ok_or("opened as a database's table")?;
            ensure!(
                matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Comparator),
                "opened as a database's table, says {error:?}"
            );
        }
        Ok(())
    }

    /// Forward and backward, against the count and hash of the manifest.
    fn check_walk(&self, table: &Table) -> Result<Entries, String> {
        let (count, hash) = self.content.as_ref().ok_or("no content in the manifest")?;
        let entries = collect(table.iter()).map_err(said("forward"))?;
        ensure!(
            entries.len() as u64 == *count,
            "{} entries, not {count}",
            entries.len()
        );
        ensure!(
            hash_of(&entries) == *hash,
            "other content than C++ LevelDB reads"
        );
        let mut backward = collect(table.iter().rev()).map_err(said("backward"))?;
        backward.reverse();
        ensure!(backward == entries, "backward differs from forward");
        let first = table.first().map_err(said("first"))?;
        let last = table.last().map_err(said("last"))?;
        ensure!(first.as_ref() == entries.first(), "first() is {first:?}");
        ensure!(last.as_ref() == entries.last(), "last() is {last:?}");
        Ok(entries)
    }

    /// A filter whose policy the library has is asked each time, passes every key that exists, and
    /// does reject others.
    fn check_filter(&self, path: &Path, entries: &Entries) -> Outcome {
        // Reopened, so that the counts are these lookups' alone.
        let table = self.options().open(path).map_err(said("opening"))?;
        let mut found = 0;
        for (key, _) in entries {
            found += usize::from(table.get(key).map_err(said("get"))?.is_some());
        }
        let present = table.stats();
        let mut unfounded = 0;
        for (key, _) in entries {
            unfounded += usize::from(table.get(self.like(key)).map_err(said("get"))?.is_some());
        }
        let rejected = table.stats().filter_rejected - present.filter_rejected;
        ensure!(
            found == entries.len() && unfounded == 0,
            "found {found} and {unfounded} more"
        );

        let entries = entries.len() as u64;
        let names = ["leveldb.BuiltinBloomFilter", "leveldb.BuiltinBloomFilter2"];
        let known = self.filter.as_deref().filter(|name| names.contains(name));
        let used = table.filter().map(|filter| filter.policy.clone());
        ensure!(
            used.as_deref() == known,
            "uses the filter {used:?}, not {known:?}"
        );
        let expected = if known.is_some() {
            (entries, 0)
        } else {
            (0, 0)
        };
        let verdicts = (present.filter_passed, present.filter_rejected);
        ensure!(
            verdicts == expected,
            "existing keys (passed, rejected): {verdicts:?}"
        );
        // Of absent keys Bloom lets a few in a hundred pass, and not a half.
        ensure!(
            known.is_none() || rejected * 2 > entries,
            "only {rejected} of {entries} absent keys rejected"
        );
        Ok(())
    }

    /// A key that does not exist, beside one that does.
    fn like(&self, key: &[u8]) -> Vec<u8> {
        let mut like = key.to_vec();
        let user_key = key.len() - if self.internal_keys { 8 } else { 0 };
        like.splice(user_key..user_key, *b"?absent?");
        like
    }

    /// A codec that is optional: the entries, or an error that names it.
    fn check_codec(&self, path: &Path) -> Outcome {
        let stored = self.options().open(path);
        let error = match stored.and_then(|table| collect(table.iter())) {
            Ok(_) => return check_database(path, &self.check_stored(path)?),
            Err(error) => error,
        };
        let plain = Table::open(path).and_then(|table| collect(table.iter()).map(drop));
        let db = DbTable::open(path).and_then(|db| db.iter().try_for_each(|e| e.map(drop)));
        let plain = plain.err().ok_or("read as a plain table")?;
        let db = db.err().ok_or("read by DbTable, and not as it is stored")?;
        let name = match self.compression.as_str() {
            "deflate-raw" => "deflate",
            other => other,
        };
        for error in [error, plain, db] {
            ensure!(
                error.kind() == ErrorKind::Unsupported && message(&error, path).contains(name),
                "{name} is not named by: {error:?}"
            );
        }
        Ok(())
    }

    /// No table, or a damaged one: an error in words a user can act on, and before it nothing wrong.
    fn check_refused(&self, path: &Path, folder: &Path, all: &[File]) -> Outcome {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        let (_, words) = REFUSALS
            .iter()
            .find(|refusal| refusal.0 == name)
            .ok_or("not in this test's list of refusals")?;
        let error = match Table::open(path) {
            Err(error) => error,
            Ok(table) => {
                ensure!(name.starts_with("h-"), "opened");
                let original = all.iter().find(|file| file.name.ends_with("/h.ldb"));
                let original = folder.join(&original.ok_or("no h.ldb to compare with")?.name);
                let original = Table::open(original).and_then(|table| collect(table.iter()));
                check_damaged(&table, &original.map_err(said("h.ldb"))?)?
            }
        };
        let message = message(&error, path);
        ensure!(
            matches!(error.kind(), ErrorKind::NotATable | ErrorKind::Corruption),
            "refused as {error:?}"
        );
        for word in *words {
            ensure!(message.contains(word), "{word:?} is not in: {message}");
        }
        println!("{name}: {message}");
        Ok(())
    }
}

/// The words that an error must contain, for each file that must give one.
const REFUSALS: &[(&str, &[&str])] = &[
    (
        "pebble-h-no-compression.sst",
        &["Pebble table", "open it with Pebble"],
    ),
    (
        "pebble-two-level-index.sst",
        &["Pebble table", "open it with Pebble"],
    ),
    (
        "minecraft-real-world-cut-short.ldb",
        &["cut short", "still being written"],
    ),
    ("47-bytes-of-footer.ldb", &["only 47 bytes", "cut short"]),
    ("48-bytes-footer-alone.ldb", &["footer", "handle"]),
    ("git-lfs-pointer.ldb", &["Git LFS", "git lfs pull"]),
    ("html-404.ldb", &["HTML", "404", "download it again"]),
    ("gzip-of-h.ldb", &["gzip", "decompress"]),
    ("h-minus-1-byte.ldb", &["cut short", "last 8 bytes"]),
    ("h-half.ldb", &["cut short", "last 8 bytes"]),
    ("h-minus-footer.ldb", &["cut short", "last 8 bytes"]),
    ("h-plus-1-byte.ldb", &["the rest was appended", "copy"]),
    ("h-plus-1000-zeros.ldb", &["the rest was appended", "copy"]),
    ("h-first-100-bytes-missing.ldb", &["index block", "copy"]),
    ("h-with-20-bytes-in-front.ldb", &["index block", "copy"]),
    ("h-magic-byte-swapped.ldb", &["last 8 bytes", "instead of"]),
    ("h-bit-flip-in-data.ldb", &["data block", "checksum"]),
    ("h-bit-flip-in-index.ldb", &["index block", "checksum"]),
    ("h-footer-handles-changed.ldb", &["index block", "checksum"]),
    ("h-crlf-mangled.ldb", &["index block", "line ends"]),
    ("h-zeroed-2k.ldb", &["data block", "checksum"]),
];

/// Every kind of lookup finds every key.
fn check_lookups(table: &Table, entries: &Entries) -> Outcome {
    for (key, value) in entries {
        let got = table.get(key).map_err(said("get"))?;
        ensure!(
            got.as_ref() == Some(value),
            "get({key:?}) is {got:?}, not {value:?}"
        );
        let length = table
            .get_with(key, |value| value.len())
            .map_err(said("get_with"))?;
        ensure!(
            length == Some(value.len()),
            "get_with({key:?}) saw {length:?} bytes"
        );
        ensure!(
            table.contains_key(key).map_err(said("contains_key"))?,
            "lacks {key:?}"
        );
        ensure!(table.may_contain(key).unwrap(), "certainly lacks {key:?}");
    }
    Ok(())
}

/// A cursor, stepped to the end and back, and sent to every key.
fn check_cursor(table: &Table, entries: &Entries) -> Outcome {
    let mut cursor = table.cursor();
    let mut steps = Vec::new();
    let mut valid = cursor.seek_to_first().map_err(said("seek_to_first"))?;
    while valid {
        steps.push((
            Bytes::copy_from_slice(cursor.key()),
            Bytes::copy_from_slice(cursor.value()),
        ));
        valid = cursor.next().map_err(said("next"))?;
    }
    ensure!(
        steps == *entries,
        "a cursor forward differs from the iterator"
    );
    let mut valid = cursor.seek_to_last().map_err(said("seek_to_last"))?;
    for (key, value) in entries.iter().rev() {
        ensure!(
            valid && cursor.key() == key && cursor.value() == value,
            "a cursor backward misses {key:?}"
        );
        valid = cursor.prev().map_err(said("prev"))?;
    }
    ensure!(!valid, "a cursor backward goes on after the first entry");
    for (i, (key, value)) in entries.iter().enumerate() {
        ensure!(
            cursor.seek(key).map_err(said("seek"))?,
            "seek({key:?}) finds nothing"
        );
        ensure!(
            cursor.key() == key && cursor.value() == value,
            "seek({key:?}) is at {:?}",
            cursor.key()
        );
        let more = cursor.next().map_err(said("next"))?;
        let next = entries.get(i + 1);
        ensure!(more == next.is_some(), "after {key:?}: {more}");
        ensure!(
            next.is_none_or(|next| cursor.key() == next.0),
            "after {key:?}: {:?}",
            cursor.key()
        );
    }
    Ok(())
}

/// A damaged copy of a table with `entries`: walks and lookups give these or an error, and the walks
/// do give an error, which is returned.
fn check_damaged(table: &Table, entries: &Entries) -> Result<Error, String> {
    let (good, bad): (Vec<_>, Vec<_>) = table.iter().partition(Result::is_ok);
    let good: Entries = good.into_iter().flatten().collect();
    ensure!(
        entries.starts_with(&good),
        "forward, other entries than the sound table's"
    );
    ensure!(
        bad.len() == 1 && good.len() < entries.len(),
        "forward, {} errors",
        bad.len()
    );
    let (back, back_bad): (Vec<_>, Vec<_>) = table.iter().rev().partition(Result::is_ok);
    let mut back: Entries = back.into_iter().flatten().collect();
    back.reverse();
    ensure!(
        entries.ends_with(&back),
        "backward, other entries than the sound table's"
    );
    ensure!(back_bad.len() == 1, "backward, {} errors", back_bad.len());
    let mut lost = 0;
    for (key, value) in entries {
        match table.get(key) {
            Ok(got) => ensure!(
                got.as_ref() == Some(value),
                "get({key:?}) is {got:?}, not an error"
            ),
            Err(_) => lost += 1,
        }
    }
    // The damage costs the blocks that it hit and nothing else.
    ensure!(
        good.len() + lost + back.len() == entries.len(),
        "{lost} lookups fail"
    );
    bad.into_iter()
        .find_map(Result::err)
        .ok_or("no error".into())
}

/// The versions of each user key that a database's table holds, by sequence.
type Model = BTreeMap<Bytes, BTreeMap<u64, Version>>;

fn check_database(path: &Path, entries: &Entries) -> Outcome {
    let mut model = Model::new();
    let mut sequences = Vec::new();
    for (stored, value) in entries {
        let (user_key, sequence, version) = parsed(stored, value)?;
        sequences.push(sequence);
        model.entry(user_key).or_default().insert(sequence, version);
    }
    sequences.sort_unstable();
    let db = DbTable::open(path).map_err(said("opening with DbTable"))?;

    let expected = entries.iter().map(|(stored, value)| parsed(stored, value));
    let mut expected = expected.collect::<Result<Vec<_>, _>>()?;
    let parts = |entry: DbEntry| (entry.user_key, entry.sequence, entry.version);
    let forward: Result<Vec<_>, _> = db.iter().map(|entry| entry.map(parts)).collect();
    let backward: Result<Vec<_>, _> = db.iter().rev().map(|entry| entry.map(parts)).collect();
    ensure!(
        forward.map_err(said("DbTable forward"))? == expected,
        "DbTable walks other entries"
    );
    expected.reverse();
    ensure!(
        backward.map_err(said("DbTable backward"))? == expected,
        "DbTable walks other entries backward"
    );

    let quarters = (0..=4).map(|quarter| sequences[(sequences.len() - 1) * quarter / 4]);
    let probes: Vec<u64> = quarters.chain([0, MAX_SEQUENCE]).collect();
    for (user_key, versions) in &model {
        let newest = versions.last_key_value().map(|(_, version)| version);
        let got = db.get(user_key).map_err(said("DbTable::get"))?;
        ensure!(
            got.as_ref() == newest,
            "DbTable::get({user_key:?}) is {got:?}, not {newest:?}"
        );
        // Besides those, just before, at and just after each version of this key.
        let own = versions
            .keys()
            .flat_map(|&s| [s.saturating_sub(1), s, s + 1]);
        for sequence in probes.iter().copied().chain(own) {
            let visible = versions
                .range(..=sequence)
                .next_back()
                .map(|(_, version)| version);
            let got = db
                .at(sequence)
                .get(user_key)
                .map_err(said("DbTable::get_at"))?;
            ensure!(
                got.as_ref() == visible,
                "DbTable::get_at({user_key:?}, {sequence}) is {got:?}, not {visible:?}"
            );
        }
        let absent = [user_key, &b"?absent?"[..]].concat();
        if !model.contains_key(&absent[..]) {
            let got = db.get(&absent).map_err(said("DbTable::get"))?;
            ensure!(got.is_none(), "DbTable::get({absent:?}) is {got:?}");
        }
    }
    Ok(())
}

/// User key, sequence and version of a stored entry; on its own, so as not to trust the library.
fn parsed(stored: &Bytes, value: &Bytes) -> Result<(Bytes, u64, Version), String> {
    let at = stored
        .len()
        .checked_sub(8)
        .ok_or("a stored key under 8 bytes")?;
    let tag = u64::from_le_bytes(stored[at..].try_into().expect("8 bytes"));
    let version = match tag & 0xff {
        0 => Version::Deleted,
        1 => Version::Value(value.clone()),
        other => return Err(format!("a stored key of type {other}")),
    };
    Ok((stored.slice(..at), tag >> 8, version))
}

fn collect(walk: impl Iterator<Item = Result<(Bytes, Bytes), Error>>) -> Result<Entries, Error> {
    walk.collect()
}

/// An error's message without the path, since the files are named for what they are.
fn message(error: &Error, path: &Path) -> String {
    error.to_string().replace(&*path.to_string_lossy(), "FILE")
}

/// The manifest's hash of entries.
fn hash_of(entries: &Entries) -> String {
    let mut hash = Sha256::new();
    for part in entries.iter().flat_map(|(key, value)| [key, value]) {
        hash.update((part.len() as u32).to_le_bytes());
        hash.update(part);
    }
    hex(hash.finalize())
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Says what was being done when an error came up.
fn said<E: Display>(doing: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{doing}: {error}")
}
