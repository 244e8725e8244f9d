//! Runs the workload with `fst` and `tantivy-sstable`, which map keys to numbers: here the number of a key's entry. The values are
//! end to end in another file. All files are mapped.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use fst::{IntoStreamer as _, Streamer as _};
use memmap2::Mmap;
use tantivy_common::OwnedBytes;
use tantivy_sstable::{Dictionary, MonotonicU64SSTable};

use crate::store::Store;
use crate::workload::{Answers, Key, SEEK_STEPS, VALUE_LEN};

fn map(path: &Path) -> Result<Mmap> {
    // SAFETY: the file is in this benchmark's own directory, and nothing changes it.
    Ok(unsafe { Mmap::map(&File::open(path)?)? })
}

pub struct Values(Mmap);

impl Values {
    fn create(path: &Path) -> Result<BufWriter<File>> {
        Ok(BufWriter::new(File::create(path.join("values"))?))
    }

    fn open(path: &Path) -> Result<Values> {
        Ok(Values(map(&path.join("values"))?))
    }

    fn get(&self, number: u64) -> Result<&[u8]> {
        let start = number as usize * VALUE_LEN;
        let value = self.0.get(start..start + VALUE_LEN);
        value.context("the file of values is short")
    }
}

/// A dictionary of the numbers of entries, with the values beside it.
pub trait Numbers {
    fn number(&self, key: &Key) -> Result<Option<u64>>;

    fn values(&self) -> &Values;

    /// Walks over up to `limit` entries from `from` on.
    fn walk(&self, from: &[u8], limit: usize, answers: &mut Answers) -> Result<()>;
}

impl<D: Numbers> Store for D {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(number) = self.number(key)? {
            answers.value(self.values().get(number)?);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        self.walk(&[], limit, &mut answers)?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        bail!("no such call")
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for start in starts {
            self.walk(start, SEEK_STEPS, &mut answers)?;
        }
        Ok(answers)
    }
}

pub struct Fst {
    map: fst::Map<Mmap>,
    values: Values,
}

pub fn write_fst<'a>(
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    fs::create_dir_all(path)?;
    let mut map = fst::MapBuilder::new(BufWriter::new(File::create(path.join("map"))?))?;
    let mut values = Values::create(path)?;
    for ((key, value), number) in entries.zip(0..) {
        map.insert(key, number)?;
        values.write_all(value)?;
    }
    map.into_inner()?.into_inner()?;
    values.into_inner()?;
    Ok(())
}

impl Fst {
    pub fn open(path: &Path) -> Result<Fst> {
        Ok(Fst {
            map: fst::Map::new(map(&path.join("map"))?)?,
            values: Values::open(path)?,
        })
    }
}

impl Numbers for Fst {
    fn number(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.map.get(key))
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn walk(&self, from: &[u8], limit: usize, answers: &mut Answers) -> Result<()> {
        let mut entries = self.map.range().ge(from).into_stream();
        for _ in 0..limit {
            let Some((key, number)) = entries.next() else {
                break;
            };
            answers.entry(key, self.values.get(number)?);
        }
        Ok(())
    }
}

/// Its own values are numbers, too, which may not descend.
pub struct Tantivy {
    dictionary: Dictionary<MonotonicU64SSTable>,
    values: Values,
}

pub fn write_tantivy<'a>(
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    fs::create_dir_all(path)?;
    let file = BufWriter::new(File::create(path.join("map"))?);
    let mut map = Dictionary::<MonotonicU64SSTable>::builder(file)?;
    let mut values = Values::create(path)?;
    for ((key, value), number) in entries.zip(0..) {
        map.insert(key, &number)?;
        values.write_all(value)?;
    }
    map.finish()?.into_inner()?;
    values.into_inner()?;
    Ok(())
}

impl Tantivy {
    pub fn open(path: &Path) -> Result<Tantivy> {
        let map = OwnedBytes::new(map(&path.join("map"))?);
        Ok(Tantivy {
            dictionary: Dictionary::from_bytes(map)?,
            values: Values::open(path)?,
        })
    }
}

impl Numbers for Tantivy {
    fn number(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.dictionary.get(key)?)
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn walk(&self, from: &[u8], limit: usize, answers: &mut Answers) -> Result<()> {
        let entries = self.dictionary.range().ge(from).limit(limit as u64);
        let mut entries = entries.into_stream()?;
        for _ in 0..limit {
            let Some((key, number)) = entries.next() else {
                break;
            };
            answers.entry(key, self.values.get(*number)?);
        }
        Ok(())
    }
}
