//! Runs the workload with `coordinode-lsm-tree`, with its defaults. It began as `lsm-tree`, and its calls are nearly the same.

use std::fs;
use std::path::Path;

use ::coordinode::{AbstractTree as _, AnyTree, Config, Guard, MAX_SEQNO};
use anyhow::Result;

use crate::store::{Store, walk};
use crate::workload::{Answers, Key, SEEK_STEPS};

pub struct Coordinode {
    tree: AnyTree,
}

/// Keys are ingested in order, which writes them to their last level at once.
pub fn write<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
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
        Ok(Coordinode {
            tree: config.open()?,
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
