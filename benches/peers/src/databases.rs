//! Runs the workload with what a user might take instead of a table: `lsm-tree`, `redb`, LMDB (`heed`), `fst` and `cdb64`, each
//! with its defaults. `coordinode.rs` has another one.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cdb64::{CdbHash, CdbWriter};
use fst::{IntoStreamer as _, Streamer as _};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions, RoTxn, WithoutTls};
use lsm_tree::{AbstractTree as _, AnyTree, SeqNo};
use memmap2::Mmap;
use redb::{
    ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};

use crate::coordinode::{self, Coordinode};
use crate::store::{self, Store, walk};
use crate::workload::{self, Answers, Key, Measured, SEEK_STEPS, VALUE_LEN};

pub fn run(peer: &str, directory: &Path, work: &str, probes: &str) -> Result<Measured> {
    let path = directory.join(peer);
    if work == "prepare" {
        let keys = workload::read_keys(directory, "keys")?;
        let values = workload::read(directory, "values")?;
        let entries = keys.iter().zip(values.chunks_exact(VALUE_LEN).cycle());
        match peer {
            "lsm-tree" => write_lsm_tree(&path, entries)?,
            "redb" => write_redb(&path, entries)?,
            "fst" => write_fst(&path, entries)?,
            "cdb64" => write_cdb(&path, entries)?,
            "coordinode" => coordinode::write(&path, entries)?,
            _ => write_lmdb(&path, entries)?,
        }
        return Ok(Measured {
            figure: 0.0,
            disk_bytes: 0.0,
            answers: Answers::default(),
        });
    }
    match peer {
        "lsm-tree" => store::run(directory, &path, work, probes, || LsmTree::open(&path)),
        "redb" => store::run(directory, &path, work, probes, || Redb::open(&path)),
        "fst" => store::run(directory, &path, work, probes, || Fst::open(&path)),
        "lmdb" => store::run(directory, &path, work, probes, || Lmdb::open(&path)),
        "cdb64" => store::run(directory, &path, work, probes, || Cdb::open(&path)),
        "coordinode" => store::run(directory, &path, work, probes, || Coordinode::open(&path)),
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
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
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
        Ok(LsmTree {
            tree: config.open()?,
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

fn write_redb<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    let database = redb::Database::create(path)?;
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
        let database = ReadOnlyDatabase::open(path)?;
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
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
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

/// The map has the number of each key's entry. Values are in another file, end to end.
struct Fst {
    map: fst::Map<Mmap>,
    values: Mmap,
}

fn write_fst<'a>(path: &Path, entries: impl Iterator<Item = (&'a Key, &'a [u8])>) -> Result<()> {
    fs::create_dir_all(path)?;
    let mut map = fst::MapBuilder::new(BufWriter::new(File::create(path.join("map"))?))?;
    let mut values = BufWriter::new(File::create(path.join("values"))?);
    for ((key, value), number) in entries.zip(0..) {
        map.insert(key, number)?;
        values.write_all(value)?;
    }
    map.into_inner()?.into_inner()?;
    values.into_inner()?;
    Ok(())
}

impl Fst {
    fn open(path: &Path) -> Result<Fst> {
        let map = |name| -> Result<Mmap> {
            let file = File::open(path.join(name))?;
            // SAFETY: the file is in this benchmark's own directory, and nothing changes it.
            Ok(unsafe { Mmap::map(&file)? })
        };
        Ok(Fst {
            map: fst::Map::new(map("map")?)?,
            values: map("values")?,
        })
    }

    fn value(&self, number: u64) -> Result<&[u8]> {
        let start = number as usize * VALUE_LEN;
        let value = self.values.get(start..start + VALUE_LEN);
        value.context("the file of values is short")
    }

    fn walk(&self, from: &[u8], limit: usize, answers: &mut Answers) -> Result<()> {
        let mut entries = self.map.range().ge(from).into_stream();
        for _ in 0..limit {
            let Some((key, number)) = entries.next() else {
                break;
            };
            answers.entry(key, self.value(number)?);
        }
        Ok(())
    }
}

impl Store for Fst {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(number) = self.map.get(key) {
            answers.value(self.value(number)?);
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
