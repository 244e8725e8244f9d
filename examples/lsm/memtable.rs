//! The part of the engine that is not tables on disk: the memtable, and the log of what is in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Bound;
use std::path::Path;

use leveltable::db::Version;
use leveltable::{Compression, DbTable, OpenOptions, WriteOptions};

use super::Result;

/// The versions of each key by their sequence numbers, newest first.
#[derive(Default)]
pub(crate) struct Memtable(BTreeMap<Vec<u8>, BTreeMap<Reverse<u64>, Version>>);

impl Memtable {
    pub(crate) fn insert(&mut self, key: &[u8], sequence: u64, version: Version) {
        let versions = self.0.entry(key.to_vec()).or_default();
        versions.insert(Reverse(sequence), version);
    }

    /// The newest version of `key` at a sequence number.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<Version> {
        let (_, version) = self.0.get(key)?.range(Reverse(at)..).next()?;
        Some(version.clone())
    }

    /// The bytes of a table of the entries in `keys`.
    pub(crate) fn table(&self, keys: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Vec<u8>> {
        let options = WriteOptions::leveldb().compression(Compression::None);
        let mut builder = options.no_filter().build_db(Vec::new());
        for (key, versions) in self.0.range::<[u8], _>(keys) {
            for (Reverse(sequence), version) in versions {
                match version {
                    Version::Value(value) => builder.put(key, *sequence, value)?,
                    Version::Deleted => builder.delete(key, *sequence)?,
                }
            }
        }
        Ok(builder.finish_into_writer()?.0)
    }
}

/// A file of records. Each is a length and a whole table, which brings its checksums. That adds microseconds to a record, and
/// syncing it takes milliseconds.
pub(crate) struct Log {
    pub(crate) number: u64,
    file: File,
}

impl Log {
    pub(crate) fn create(number: u64, path: &Path) -> Result<Log> {
        let file = File::create(path)?;
        Ok(Log { number, file })
    }

    /// Returns when the record is on disk. After an error, part of it may be, and another one would not be found after that.
    pub(crate) fn append(&mut self, table: &[u8]) -> Result<()> {
        let len = (table.len() as u64).to_be_bytes();
        self.file.write_all(&[&len, table].concat())?;
        Ok(self.file.sync_data()?)
    }

    /// The records up to the first that is not whole: a crash tore that one, and its `append` has not returned.
    pub(crate) fn read(path: &Path) -> Result<Vec<DbTable>> {
        let log = fs::read(path)?;
        let (mut rest, mut records) = (log.as_slice(), Vec::new());
        while let Some((len, after)) = rest.split_first_chunk()
            && let Ok(len) = usize::try_from(u64::from_be_bytes(*len))
            && let Some((record, after)) = after.split_at_checked(len)
            && let Ok(table) = OpenOptions::new().open_db_source(record.to_vec())
            && table.iter().all(|entry| entry.is_ok())
        {
            records.push(table);
            rest = after;
        }
        Ok(records)
    }
}
