//! Runs the workload with LevelDB's ports to Rust, `rusty-leveldb` and `bedrock-leveldb`.
//!
//! `rusty-leveldb` reads a database of its own: in one that LevelDB wrote, its lookups miss keys that are equal to an index key.
//! `bedrock-leveldb` reads one in tables of 2 MiB, as LevelDB leaves it when it is compacted. When this port flushes, it writes all
//! entries anew, to one table, whose index it searches from start to end; it is told to build that with one flush.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Result, bail};
use bedrock_leveldb::{CachePolicy, CompressionPolicy, Db, VisitorControl};
use leveltable::{Compression, WriteOptions};
use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
use rusty_leveldb::{DB, DBIterator, LdbIterator as _};

use crate::store::Store;
use crate::workload::{Answers, KEY_LEN, Key, SEEK_STEPS, USERS_CACHE_BYTES};

/// Entries of a write batch.
const WRITE_BATCH: usize = 1000;

/// Writes a database as LevelDB does, uncompressed.
pub fn write_leveldb<'a>(
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    let tables = WriteOptions::leveldb().compression(Compression::None);
    let mut builder = DatabaseBuilder::create(path, DatabaseBuildOptions::new().tables(tables))?;
    for (key, value) in entries {
        builder.put(key, value)?;
    }
    builder.finish()?;
    Ok(())
}

pub struct Rusty {
    database: RefCell<DB>,
}

fn rusty_options() -> rusty_leveldb::Options {
    rusty_leveldb::Options {
        block_cache_capacity_bytes: USERS_CACHE_BYTES as usize,
        ..Default::default()
    }
}

pub fn write_rusty<'a>(
    path: &Path,
    mut entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    let mut database = DB::open(path, rusty_options())?;
    loop {
        let mut batch = rusty_leveldb::WriteBatch::default();
        for (key, value) in entries.by_ref().take(WRITE_BATCH) {
            batch.put(key, value);
        }
        if batch.count() == 0 {
            return Ok(database.close()?);
        }
        database.write(batch, false)?;
    }
}

/// Leaves nothing in the log, which would be read at opening.
pub fn compact_rusty(path: &Path) -> Result<()> {
    let mut database = DB::open(path, rusty_options())?;
    database.compact_range(&[], &[0xff; KEY_LEN])?;
    Ok(database.close()?)
}

impl Rusty {
    pub fn open(path: &Path) -> Result<Rusty> {
        Ok(Rusty {
            database: RefCell::new(DB::open(path, rusty_options())?),
        })
    }

    fn iterator(&self) -> Result<DBIterator> {
        Ok(self.database.borrow_mut().new_iter()?)
    }
}

fn add(iterator: &DBIterator, answers: &mut Answers) {
    if let Some((key, value)) = iterator.current() {
        answers.entry(&key, &value);
    }
}

impl Store for Rusty {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.database.borrow_mut().get(key) {
            answers.value(&value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut iterator = self.iterator()?;
        while answers.count < limit as u64 && iterator.advance() {
            add(&iterator, &mut answers);
        }
        Ok(answers)
    }

    /// Its iterator skips most entries of several levels on the way back.
    fn backward(&self) -> Result<Answers> {
        bail!("no such call")
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut iterator = self.iterator()?;
        for start in starts {
            iterator.seek(start);
            for _ in 0..SEEK_STEPS {
                if !iterator.valid() {
                    break;
                }
                add(&iterator, &mut answers);
                iterator.advance();
            }
        }
        Ok(answers)
    }
}

pub struct Bedrock {
    database: Db,
    options: bedrock_leveldb::ReadOptions,
}

fn bedrock_options() -> bedrock_leveldb::OpenOptions {
    bedrock_leveldb::OpenOptions {
        compression_policy: CompressionPolicy::None,
        cache_size: USERS_CACHE_BYTES as usize,
        write_buffer_size: 0,
        ..Default::default()
    }
}

pub fn write_bedrock<'a>(
    path: &Path,
    mut entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    let database = Db::open(path, bedrock_options())?;
    loop {
        let mut batch = bedrock_leveldb::WriteBatch::new();
        for (key, value) in entries.by_ref().take(WRITE_BATCH) {
            batch.put(key.to_vec(), value.to_vec());
        }
        if batch.is_empty() {
            return Ok(database.flush()?);
        }
        database.write(batch, Default::default())?;
    }
}

impl Bedrock {
    /// Lookups go past its cache unless they are told to use it.
    pub fn open(path: &Path) -> Result<Bedrock> {
        let options = bedrock_leveldb::OpenOptions {
            read_only: true,
            create_if_missing: false,
            ..bedrock_options()
        };
        Ok(Bedrock {
            database: Db::open(path, options)?,
            options: bedrock_leveldb::ReadOptions {
                cache_policy: CachePolicy::Use,
                ..Default::default()
            },
        })
    }
}

impl Store for Bedrock {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.database.get_with(key, self.options.clone())? {
            answers.value(&value);
        }
        Ok(())
    }

    fn get_many(&self, batch: &[Key], answers: &mut Answers) -> Result<()> {
        let keys = batch.iter().map(|key| key.to_vec().into());
        let values = self.database.get_many_owned(keys, self.options.clone())?;
        for value in values.iter().flatten() {
            answers.value(value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        let options = self.options.clone();
        self.database.for_each_entry(options, |key, value| {
            answers.entry(key, value);
            Ok(if answers.count < limit as u64 {
                VisitorControl::Continue
            } else {
                VisitorControl::Stop
            })
        })?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        bail!("no such call")
    }

    /// It only walks over all keys, or those of a prefix.
    fn seek(&self, _starts: &[Key]) -> Result<Answers> {
        bail!("no such call")
    }
}
