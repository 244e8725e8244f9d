//! The manifest: a table that lists the shards of a set. The [module](super) describes it.

use std::io;

use bytes::Bytes;
use leveltable::{Error, ErrorKind, OpenOptions, Result, Table, WriteOptions};
use object_store::path::Path;

use super::record::{self, directory_of, number_of};
use super::shard::Shard;

pub(super) const FORMAT: &str = "leveltable.set";
const ID: &str = "leveltable.set.id";
const HISTORY: &str = "leveltable.set.history";

/// The version of the format that this crate writes and reads.
const VERSION: &[u8] = b"1";

/// Maximum number of ids in a history.
const MAX_HISTORY: usize = 64;

/// Maximum size of a manifest, which is read as a whole. A million shards take some 100 MB.
pub(super) const MAX_LEN: u64 = 1 << 30;

/// The random number of a publication.
pub(super) type Id = [u8; 16];

/// Identifies a publication and its predecessors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lineage {
    pub(super) id: Id,
    /// The ids, the latest first.
    history: Vec<Id>,
}

impl Lineage {
    /// The lineage of a new publication with the random number `id`, which replaces `previous`.
    pub(super) fn new(id: Id, previous: Option<&Lineage>) -> Lineage {
        let before = previous.iter().flat_map(|previous| {
            let before = previous.history.iter();
            std::iter::once(&previous.id).chain(before)
        });
        Lineage {
            id,
            history: before.take(MAX_HISTORY).copied().collect(),
        }
    }

    /// Whether the publication `id` is a predecessor.
    pub(super) fn follows(&self, id: &Id) -> bool {
        self.history.contains(id)
    }

    /// Whether the history contains all predecessors, because there are few.
    pub(super) fn is_complete(&self) -> bool {
        self.history.len() < MAX_HISTORY
    }
}

/// The contents of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) lineage: Lineage,
    /// In the order of their keys, which do not overlap.
    pub(super) shards: Vec<Shard>,
}

impl Manifest {
    /// The table for the path `path`, under whose directory all shards must lie.
    pub(super) fn encode(&self, path: &Path) -> Result<Bytes> {
        let directory = directory_of(path);
        let mut builder = WriteOptions::new().no_filter().build(Vec::new());
        builder.property(FORMAT, VERSION)?;
        builder.property(ID, self.lineage.id)?;
        builder.property(HISTORY, self.lineage.history.concat())?;
        for shard in &self.shards {
            let record = record::encode(shard, &directory).ok_or_else(|| {
                let why = format!(
                    "the shard {} does not lie under the directory \"{directory}\" of the manifest",
                    shard.path
                );
                Error::new(ErrorKind::InvalidState, why)
            })?;
            builder.add(&shard.last_key, record)?;
        }
        let (file, _) = builder.finish_into_writer()?;
        Ok(file.into())
    }

    /// Decodes the manifest at `path`, which is untrusted.
    pub(super) fn decode(file: Bytes, path: &Path) -> Result<Manifest> {
        let name = std::path::Path::new(path.as_ref());
        Manifest::decode_unnamed(file, path).map_err(|error| error.at_path(name))
    }

    fn decode_unnamed(file: Bytes, path: &Path) -> Result<Manifest> {
        let options = OpenOptions::new().no_cache().check_order(true);
        let table = options.open_source(file)?;
        let lineage = lineage_of(&table)?;
        let directory = directory_of(path);
        let mut shards: Vec<Shard> = Vec::new();
        for entry in table.iter() {
            let (last_key, record) = entry?;
            let number = shards.len() + 1;
            let shard = record::decode(last_key, &record, &directory)
                .map_err(|why| damaged(format!("the record of shard {number}: {why}")))?;
            if let Some(last) = shards
                .last()
                .filter(|last| last.last_key >= shard.first_key)
            {
                let (a, b) = (&last.path, &shard.path);
                return Err(damaged(format!("its shards {a} and {b} overlap")));
            }
            shards.push(shard);
        }
        let mut sums = shards.iter().map(|it| (it.size, it.entries.unwrap_or(0)));
        let sum = sums.try_fold((0u64, 0u64), |sum, it| {
            Some((sum.0.checked_add(it.0)?, sum.1.checked_add(it.1)?))
        });
        if sum.is_none() {
            let why = "the sizes or the entries of its shards add up to 2^64 or more";
            return Err(damaged(why.into()));
        }
        Ok(Manifest { lineage, shards })
    }
}

/// Returns the shards of the set whose manifest is at `manifest` in a local directory, with blocking calls: for a program without a
/// runtime. The paths of the shards are relative to the directory of the manifest.
///
/// ```
/// use leveltable::Table;
/// use leveltable_object_store::set::read_local;
/// # fn find(words: &std::path::Path, key: &[u8]) -> leveltable::Result<Option<bytes::Bytes>> {
/// let shards = read_local(&words.join("manifest"))?;
/// let at = shards.partition_point(|shard| shard.last_key < key);
/// match shards.get(at).filter(|shard| shard.first_key <= key) {
///     Some(shard) => Table::open(words.join(shard.path.as_ref()))?.get(key),
///     None => Ok(None),
/// }
/// # }
/// ```
///
/// A program that looks up many keys should keep the tables open.
///
/// # Errors
///
/// [`ErrorKind::Io`] if it cannot be read; errors of [`SetOptions::open`](super::SetOptions::open) if it is not a
/// manifest.
pub fn read_local(manifest: &std::path::Path) -> Result<Vec<Shard>> {
    let failed = |error| Error::io("reading the manifest", error).at_path(manifest);
    let entries = std::fs::read_dir(manifest).map_err(failed)?;
    let entries: Vec<_> = entries.collect::<io::Result<_>>().map_err(failed)?;
    let number = |entry: &std::fs::DirEntry| {
        let (_, number) = number_of(&Path::from(entry.file_name().to_str()?))?;
        Some((number, entry.path()))
    };
    let last = entries.iter().filter_map(number).max();
    let none = || failed(io::ErrorKind::NotFound.into());
    let (_, path) = last.ok_or_else(none)?;
    let bytes = std::fs::read(&path).map_err(|error| Error::io("reading", error).at_path(&path))?;
    let decoded = Manifest::decode_unnamed(bytes.into(), &Path::from("manifest"));
    Ok(decoded.map_err(|error| error.at_path(&path))?.shards)
}

/// The lineage in the properties, or the error that this is not a manifest.
fn lineage_of(table: &Table) -> Result<Lineage> {
    let property = |name| {
        table
            .properties()
            .and_then(|properties| properties.user(name))
    };
    match property(FORMAT) {
        Some(VERSION) => {}
        Some(other) => {
            let version = other.escape_ascii();
            let why = format!("a manifest of format {version}; this version reads format 1");
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        None => {
            let why = "a table, but not the manifest of a set: it has no property leveltable.set";
            return Err(Error::new(ErrorKind::NotATable, why));
        }
    }
    let id = property(ID).and_then(|id| Id::try_from(id).ok());
    let id = id.ok_or_else(|| damaged("its id does not have 16 bytes".into()))?;
    let (history, rest) = property(HISTORY).unwrap_or_default().as_chunks();
    if !rest.is_empty() {
        return Err(damaged("its history does not consist of ids".into()));
    }
    Ok(Lineage {
        id,
        history: history.to_vec(),
    })
}

#[cold]
fn damaged(why: String) -> Error {
    Error::new(ErrorKind::Corruption, format!("a damaged manifest: {why}"))
}
