//! Runs the workload with what a user might take instead of a table: here `lsm-tree`, `redb`, LMDB (`heed`) and `cdb64`, each with its
//! defaults, except for the size of the cache. `coordinode.rs`, `dictionaries.rs` and `ports.rs` have others.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cdb64::{CdbHash, CdbWriter};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions, RoTxn, WithoutTls};
use lsm_tree::{AbstractTree as _, AnyTree, SeqNo};
use redb::{
    ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};

use crate::coordinode::{self, Coordinode};
use crate::dictionaries::{Fst, Tantivy, write_fst, write_tantivy};
use crate::ports::{self, Bedrock, Rusty};
use crate::store::{self, Store, walk};
use crate::workload::{self, Answers, Key, Measured, SEEK_STEPS, USERS_CACHE_BYTES};

pub fn run(peer: &str, directory: &Path, work: &str, probes: &str) -> Result<Measured> {
    let path = directory.join(peer);
    match (work, peer) {
        ("prepare", _) => {
            workload::remove(&path)?;
            let (keys, values) = read_entries(directory)?;
            let entries = workload::entries(&keys, &values);
            match peer {
                "bedrock-leveldb" => ports::write_leveldb(&path, entries)?,
                _ => write(peer, &path, entries)?,
            }
            if peer == "rusty-leveldb" {
                ports::compact_rusty(&path)?;
            }
            Ok(Measured {
                figure: 0.0,
                disk_bytes: 0.0,
                answers: Answers::default(),
            })
        }
        ("build", _) => {
            let (keys, values) = read_entries(directory)?;
            let path = directory.join("built-by-".to_owned() + peer);
            let entries = workload::entries(&keys, &values);
            workload::time_writing(keys.len(), &path, || write(peer, &path, entries))
        }
        (_, "lsm-tree") => store::run(directory, &path, work, probes, || LsmTree::open(&path)),
        (_, "redb") => store::run(directory, &path, work, probes, || Redb::open(&path)),
        (_, "fst") => store::run(directory, &path, work, probes, || Fst::open(&path)),
        (_, "tantivy-sstable") => {
            store::run(directory, &path, work, probes, || Tantivy::open(&path))
        }
        (_, "lmdb") => store::run(directory, &path, work, probes, || Lmdb::open(&path)),
        (_, "cdb64") => store::run(directory, &path, work, probes, || Cdb::open(&path)),
        (_, "coordinode") => store::run(directory, &path, work, probes, || Coordinode::open(&path)),
        (_, "bedrock-leveldb") => {
            store::run(directory, &path, work, probes, || Bedrock::open(&path))
        }
        (_, "rusty-leveldb") => store::run(directory, &path, work, probes, || Rusty::open(&path)),
        _ => bail!("unknown peer {peer}"),
    }
}

fn read_entries(directory: &Path) -> Result<(Vec<Key>, Vec<u8>)> {
    let keys = workload::read_keys(directory, "keys")?;
    Ok((keys, workload::read(directory, "values")?))
}

/// Writes all entries in each library's ordinary way.
fn write<'a>(
    peer: &str,
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    match peer {
        "lsm-tree" => write_lsm_tree(path, entries),
        "redb" => write_redb(path, entries),
        "fst" => write_fst(path, entries),
        "tantivy-sstable" => write_tantivy(path, entries),
        "lmdb" => write_lmdb(path, entries),
        "cdb64" => write_cdb(path, entries),
        "coordinode" => coordinode::write(path, entries),
        "bedrock-leveldb" => ports::write_bedrock(path, entries),
        "rusty-leveldb" => ports::write_rusty(path, entries),
        _ => bail!("unknown peer {peer}"),
    }
}

/// Keys are ingested in order, which writes them to their last level at once.
struct LsmTree {
    tree: AnyTree,
}

fn write_lsm_tree<'a>(
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    let LsmTree { tree } = LsmTree::open(path)?;
    let mut ingestion = tree.ingestion()?;
    for (key, value) in entries {
        ingestion.write(&key[..], value)?;
    }
    Ok(ingestion.finish()?)
}

impl LsmTree {
    fn open(path: &Path) -> Result<LsmTree> {
        let config = lsm_tree::Config::new(path, Default::default(), Default::default());
        let cache = lsm_tree::Cache::with_capacity_bytes(USERS_CACHE_BYTES);
        Ok(LsmTree {
            tree: config.use_cache(Arc::new(cache)).open()?,
        })
    }

    fn add(entry: impl lsm_tree::Guard, answers: &mut Answers) -> Result<()> {
        let (key, value) = entry.into_inner()?;
        answers.entry(&key, &value);
        Ok(())
    }
}

impl Store for LsmTree {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.tree.get(key, SeqNo::MAX)? {
            answers.value(&value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        walk(
            self.tree.iter(SeqNo::MAX, None),
            limit,
            &mut answers,
            LsmTree::add,
        )?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        let mut answers = Answers::default();
        let entries = self.tree.iter(SeqNo::MAX, None).rev();
        walk(entries, usize::MAX, &mut answers, LsmTree::add)?;
        Ok(answers)
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for start in starts {
            let entries = self.tree.range(&start[..].., SeqNo::MAX, None);
            walk(entries, SEEK_STEPS, &mut answers, LsmTree::add)?;
        }
        Ok(answers)
    }
}

const REDB_TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");

struct Redb {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    _database: ReadOnlyDatabase,
}

fn redb_builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(USERS_CACHE_BYTES as usize);
    builder
}

fn write_redb<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    let database = redb_builder().create(path)?;
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(REDB_TABLE)?;
    for (key, value) in entries {
        table.insert(&key[..], value)?;
    }
    drop(table);
    Ok(transaction.commit()?)
}

type RedbEntry<'a> = redb::Result<
    (
        redb::AccessGuard<'a, &'static [u8]>,
        redb::AccessGuard<'a, &'static [u8]>,
    ),
    redb::StorageError,
>;

impl Redb {
    fn open(path: &Path) -> Result<Redb> {
        let database = redb_builder().open_read_only(path)?;
        Ok(Redb {
            table: database.begin_read()?.open_table(REDB_TABLE)?,
            _database: database,
        })
    }

    fn add(entry: RedbEntry<'_>, answers: &mut Answers) -> Result<()> {
        let (key, value) = entry?;
        answers.entry(key.value(), value.value());
        Ok(())
    }
}

impl Store for Redb {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.table.get(&key[..])? {
            answers.value(value.value());
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        walk(self.table.iter()?, limit, &mut answers, Redb::add)?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        let mut answers = Answers::default();
        walk(
            self.table.iter()?.rev(),
            usize::MAX,
            &mut answers,
            Redb::add,
        )?;
        Ok(answers)
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for start in starts {
            walk(
                self.table.range(&start[..]..)?,
                SEEK_STEPS,
                &mut answers,
                Redb::add,
            )?;
        }
        Ok(answers)
    }
}

struct Lmdb {
    transaction: RoTxn<'static, WithoutTls>,
    entries: heed::Database<'static, Bytes, Bytes>,
}

fn lmdb_environment(path: &Path) -> Result<heed::Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 36); // LMDB has no default that a table of this size fits into
    // SAFETY: the file is in this benchmark's own directory, and nothing else changes it.
    Ok(unsafe { options.open(path)? })
}

fn write_lmdb<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    fs::create_dir_all(path)?;
    let environment = lmdb_environment(path)?;
    let opened = environment.create_databases_and_commit(
        environment.write_txn()?,
        |opener, transaction| {
            let database = opener.create_database::<Bytes, Bytes>(transaction, None)?;
            anyhow::Ok(CommitOrAbort::<_, ()>::Commit(database))
        },
    )?;
    let database = opened.unwrap_commit();
    let mut transaction = environment.write_txn()?;
    for (key, value) in entries {
        // In order, so that pages are full.
        database.put_with_flags(&mut transaction, heed::PutFlags::APPEND, key, value)?;
    }
    Ok(transaction.commit()?)
}

impl Lmdb {
    fn open(path: &Path) -> Result<Lmdb> {
        let environment = lmdb_environment(path)?;
        let opened = environment.open_databases_and_commit(
            environment.read_txn()?,
            |opener, transaction| {
                let database = opener.open_database::<Bytes, Bytes>(transaction, None)?;
                anyhow::Ok(CommitOrAbort::<_, ()>::Commit(database))
            },
        )?;
        let entries = opened.unwrap_commit();
        Ok(Lmdb {
            entries: entries.context("LMDB lost its database")?,
            transaction: environment.static_read_txn()?,
        })
    }

    fn add(entry: heed::Result<(&[u8], &[u8])>, answers: &mut Answers) -> Result<()> {
        let (key, value) = entry?;
        answers.entry(key, value);
        Ok(())
    }
}

impl Store for Lmdb {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.entries.get(&self.transaction, key)? {
            answers.value(value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        let entries = self.entries.iter(&self.transaction)?;
        walk(entries, limit, &mut answers, Lmdb::add)?;
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        let mut answers = Answers::default();
        let entries = self.entries.rev_iter(&self.transaction)?;
        walk(entries, usize::MAX, &mut answers, Lmdb::add)?;
        Ok(answers)
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        let mut answers = Answers::default();
        for start in starts {
            let from = (
                std::ops::Bound::Included(&start[..]),
                std::ops::Bound::Unbounded,
            );
            let entries = self.entries.range(&self.transaction, &from)?;
            walk(entries, SEEK_STEPS, &mut answers, Lmdb::add)?;
        }
        Ok(answers)
    }
}

struct Cdb(cdb64::Cdb<File, CdbHash>);

fn write_cdb<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut writer = CdbWriter::<_, CdbHash>::new(file)?;
    for (key, value) in entries {
        writer.put(key, value)?;
    }
    writer.finalize()?;
    writer.into_inner()?.into_inner()?;
    Ok(())
}

impl Cdb {
    fn open(path: &Path) -> Result<Cdb> {
        Ok(Cdb(cdb64::Cdb::open_mmap(path)?))
    }
}

impl Store for Cdb {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.0.get(key)? {
            answers.value(&value);
        }
        Ok(())
    }

    fn forward(&self, _limit: usize) -> Result<Answers> {
        bail!("no such call")
    }

    fn backward(&self) -> Result<Answers> {
        bail!("no such call")
    }

    fn seek(&self, _starts: &[Key]) -> Result<Answers> {
        bail!("no such call")
    }
}
