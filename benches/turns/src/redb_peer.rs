//! Lookups in `redb`, with a cache as large as the one that our tables share.

use std::path::Path;

use anyhow::Result;
use redb::{Builder, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase as _, TableDefinition};

use crate::data::{Answers, Key};

const CACHE_BYTES: usize = 32 << 20;
const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");

pub fn write<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    let database = Builder::new().create(path)?;
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(ENTRIES)?;
    for (key, value) in entries {
        table.insert(&key[..], value)?;
    }
    drop(table);
    Ok(transaction.commit()?)
}

pub struct Redb {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    _database: ReadOnlyDatabase,
}

impl Redb {
    pub fn open(path: &Path) -> Result<Redb> {
        let mut options = Builder::new();
        let database = options.set_cache_size(CACHE_BYTES).open_read_only(path)?;
        Ok(Redb {
            table: database.begin_read()?.open_table(ENTRIES)?,
            _database: database,
        })
    }

    pub fn look_up(&self, keys: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for key in keys {
            if let Some(value) = self.table.get(&key[..])? {
                answers.value(value.value());
            }
        }
        Ok(answers)
    }
}
