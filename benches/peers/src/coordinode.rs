//! Runs the workload with `coordinode-lsm-tree`, with its defaults, except for the size of the cache. It began as `lsm-tree`, and its calls are nearly the same.

use std::path::Path;
use std::sync::Arc;

use ::coordinode::{AbstractTree as _, AnyTree, Cache, Config, Guard, MAX_SEQNO};
use anyhow::Result;

use crate::store::{Store, walk};
use crate::workload::{Answers, Key, SEEK_STEPS, USERS_CACHE_BYTES};

pub struct Coordinode {
    tree: AnyTree,
}

/// Keys are ingested in order, which writes them to their last level at once.
pub fn write<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    let Coordinode { tree } = Coordinode::open(path)?;
    let mut ingestion = tree.ingestion()?;
    for (key, value) in entries {
        ingestion.write(&key[..], value)?;
    }
    Ok(ingestion.finish()?)
}

impl Coordinode {
    pub fn open(path: &Path) -> Result<Coordinode> {
        let config = Config::new(path, Default::default(), Default::default());
        let cache = Cache::with_capacity_bytes(USERS_CACHE_BYTES);
        Ok(Coordinode {
            tree: config.use_cache(Arc::new(cache)).open()?,
        })
    }

    fn add(entry: impl Guard, answers: &mut Answers) -> Result<()> {
        let (key, value) = entry.into_inner()?;
        answers.entry(&key, &value);
        Ok(())
    }
}

impl Store for Coordinode {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.tree.get(key, MAX_SEQNO)? {
            answers.value(&value);
        }
        Ok(())
    }

    fn get_many(&self, batch: &[Key], answers: &mut Answers) -> Result<()> {
        for value in self.tree.multi_get(batch, MAX_SEQNO)?.iter().flatten() {
            answers.value(value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        let entries = self.tree.iter(MAX_SEQNO, None);
        walk(entries, limit, &mut answers, Coordinode::add)?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        let mut answers = Answers::default();
        let entries = self.tree.iter(MAX_SEQNO, None).rev();
        walk(entries, usize::MAX, &mut answers, Coordinode::add)?;
        Ok(answers)
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for start in starts {
            let entries = self.tree.range(&start[..].., MAX_SEQNO, None);
            walk(entries, SEEK_STEPS, &mut answers, Coordinode::add)?;
        }
        Ok(answers)
    }
}
