//! An open set.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Error, ErrorKind, Result, Stats};
use object_store::ObjectStore;
use object_store::path::Path;

use super::manifest::Manifest;
use super::place::{Place, is_not_found};
use super::record::Shard;
use super::shelf::Shelf;
use super::{SetOptions, SetVersion, each};
use crate::Version;
use crate::source::UNKNOWN;

/// An open set: many tables with disjoint ranges of keys, which read like one.
///
/// Clones are cheap and share everything. The set is the one that the manifest listed when it was opened. A shard that was replaced
/// or removed since is an error of kind [`ErrorKind::Replaced`]: reopen the set.
#[derive(Debug, Clone)]
pub struct TableSet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    options: SetOptions,
    manifest: Path,
    version: SetVersion,
    /// In the order of their keys.
    shards: Vec<Shard>,
    shelf: Arc<Shelf>,
}

impl SetOptions {
    /// Opens the set whose manifest is at `manifest`: one request, however many shards it has.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Io`], with [`NotFound`](std::io::ErrorKind::NotFound) if there is no manifest.
    /// - [`ErrorKind::NotATable`] if the object is not a manifest, and [`ErrorKind::Unsupported`] if it has a later version.
    /// - [`ErrorKind::Corruption`] if it is damaged.
    pub async fn open(&self, store: Arc<dyn ObjectStore>, manifest: &Path) -> Result<TableSet> {
        let client = self.client(Arc::clone(&store));
        let (read, place) = client.current(manifest).await?;
        Ok(self.set(store, manifest, read, place, Shelf::new(self)))
    }

    /// The set of a manifest that was read before: these `bytes` of the object at `path`, in this version. Makes no
    /// request.
    ///
    /// # Errors
    ///
    /// Errors of [`open`](SetOptions::open) if it is not a manifest.
    pub fn open_manifest(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
        bytes: Bytes,
        version: Option<Version>,
    ) -> Result<TableSet> {
        let place = Place::Object(version.unwrap_or(UNKNOWN));
        let read = Manifest::decode(bytes, path)?;
        Ok(self.set(store, path, read, place, Shelf::new(self)))
    }

    fn set(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
        manifest: Manifest,
        place: Place,
        shelf: Arc<Shelf>,
    ) -> TableSet {
        TableSet(Arc::new(Inner {
            store,
            options: self.clone(),
            manifest: path.clone(),
            version: SetVersion {
                lineage: manifest.lineage,
                place,
            },
            shards: manifest.shards,
            shelf,
        }))
    }
}

impl TableSet {
    /// Opens a set with [`SetOptions::new`]; see [`SetOptions::open`].
    ///
    /// # Errors
    ///
    /// Same as [`SetOptions::open`].
    pub async fn open(store: Arc<dyn ObjectStore>, manifest: &Path) -> Result<TableSet> {
        SetOptions::new().open(store, manifest).await
    }

    /// Returns the set that is published now: this one, or the one that has replaced it. One request, conditional on the known
    /// manifest.
    ///
    /// A shard whose path, version and keys are unchanged keeps its open table and its cached blocks. Tables that are not listed
    /// any more are closed; clones and walks of this set can still use them as long as the objects exist.
    ///
    /// ```no_run
    /// # use leveltable_object_store::TableSet;
    /// # async fn watch(mut set: TableSet) -> leveltable::Result<()> {
    /// loop {
    ///     tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    ///     set = set.refresh().await?; // and pass a clone to those who look up keys
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`SetOptions::open`]. This set can still be read.
    pub async fn refresh(&self) -> Result<TableSet> {
        let Inner {
            store,
            options,
            manifest,
            version,
            shards,
            shelf,
        } = &*self.0;
        let client = options.client(Arc::clone(store));
        let Some((read, place)) = client.read(manifest, Some(&version.place)).await? else {
            return Ok(self.clone());
        };
        let kept: HashSet<&Shard> = read.shards.iter().collect();
        let gone = shards.iter().filter(|shard| !kept.contains(shard));
        gone.for_each(|shard| shelf.close(shard));
        let (store, shelf) = (Arc::clone(store), Arc::clone(shelf));
        Ok(options.set(store, manifest, read, place, shelf))
    }

    /// Identifies the publication, for [`publish`](super::publish) to replace.
    pub fn version(&self) -> &SetVersion {
        &self.0.version
    }

    /// The [shards](Shard), in the order of their keys.
    pub fn shards(&self) -> &[Shard] {
        &self.0.shards
    }

    /// Number of entries; `None` if a [shard](Shard::entries) does not say.
    pub fn entries(&self) -> Option<u64> {
        let mut entries = self.shards().iter().map(|shard| shard.entries);
        entries.try_fold(0u64, |sum, entries| sum.checked_add(entries?))
    }

    /// The [statistics](Stats) of the tables so far, openings included. Reads by a range from a table that was closed meanwhile are not
    /// counted.
    pub fn stats(&self) -> Stats {
        self.0.shelf.stats().0
    }

    /// Number of open tables; [`SetOptions::max_open`] limits it.
    pub fn open_tables(&self) -> usize {
        self.0.shelf.stats().1
    }

    /// Returns the value of `key`, or `None` if the set does not hold it.
    ///
    /// A key between two shards takes no request. For others, one request opens the shard if it is not open, and one reads the
    /// block, unless the shard's filter excludes the key or the block is in the cache.
    ///
    /// # Errors
    ///
    /// Same as [`AsyncTable::get`], and errors of opening a shard; [`ErrorKind::Corruption`] if the keys or the number of entries in
    /// its properties are not those in the manifest.
    pub async fn get(&self, key: impl AsRef<[u8]> + Send) -> Result<Option<Bytes>> {
        let Some(shard) = self.shard_of(key.as_ref()) else {
            return Ok(None);
        };
        self.table(shard).await?.get(key).await
    }

    /// Calls `read` with the value of `key`, and returns its result; `None` if the set does not hold the key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](TableSet::get).
    pub async fn get_with<R>(
        &self,
        key: impl AsRef<[u8]> + Send,
        read: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>> {
        let value = self.get(key).await?;
        Ok(value.map(|value| read(&value)))
    }

    /// Whether the set holds `key`. Costs as much as [`get`](TableSet::get).
    ///
    /// # Errors
    ///
    /// Same as [`get`](TableSet::get).
    pub async fn contains_key(&self, key: impl AsRef<[u8]> + Send) -> Result<bool> {
        Ok(self.get(key).await?.is_some())
    }

    /// Returns the values of many keys, in the order of `keys`; `None` for each that the set does not hold.
    ///
    /// Shards are read concurrently, 32 at a time, each like [`AsyncTable::get_many`]; see also
    /// [`SetOptions::max_requests`].
    ///
    /// # Errors
    ///
    /// Same as [`get`](TableSet::get); if a shard or block cannot be read, no value is returned.
    pub async fn get_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        // The positions of the keys of each shard.
        let mut wanted: BTreeMap<&[u8], (&Shard, Vec<usize>)> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            if let Some(shard) = self.shard_of(key.as_ref()) {
                let group = wanted.entry(&shard.first_key);
                group.or_insert((shard, Vec::new())).1.push(at);
            }
        }
        let read = each(wanted.into_values(), |(shard, positions)| async {
            let table = self.table(shard).await?;
            let keys = positions.iter().filter_map(|&at| keys.get(at));
            let keys: Vec<&K> = keys.collect();
            Ok::<_, Error>(positions.into_iter().zip(table.get_many(&keys).await?))
        });
        let mut values = vec![None; keys.len()];
        for (at, found) in read.await?.into_iter().flatten() {
            if let Some(value) = values.get_mut(at) {
                *value = found;
            }
        }
        Ok(values)
    }

    /// Whether the set may hold `key`: according to the keys of its shards, and to filter and index of the shard that the key
    /// would be in, if it is open. Only requests pieces of these, like [`AsyncTable::may_contain`].
    ///
    /// # Errors
    ///
    /// Errors of reading filter and index.
    pub async fn may_contain(&self, key: impl AsRef<[u8]> + Send) -> Result<bool> {
        let key = key.as_ref();
        let Some(shard) = self.shard_of(key) else {
            return Ok(false);
        };
        match self.0.shelf.open_table(shard) {
            Some(table) => Ok(table.may_contain(key).await?),
            None => Ok(true),
        }
    }

    /// Returns the bounds of at most `n` parts of the set, in order and of similar size: every key lies in exactly one. A
    /// [`range`](TableSet::range) walks each.
    ///
    /// If there are at most as many parts as shards, they end where shards end, which takes no request. For more parts, shards are
    /// opened, by one request each, and split between blocks.
    ///
    /// # Errors
    ///
    /// Errors of opening a shard.
    pub async fn splits(&self, n: usize) -> Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        let sizes = self.shards().iter().map(|shard| u128::from(shard.size));
        let total = sizes.sum::<u128>().max(1);
        let ends = if n <= self.shards().len() {
            self.ends_of_shards(n.max(1) as u128, total)
        } else {
            self.ends_of_blocks(n, total).await?
        };
        let mut lower = Bound::Unbounded;
        let mut bounds = Vec::new();
        for end in ends {
            bounds.push((lower, Bound::Included(end.clone())));
            lower = Bound::Excluded(end);
        }
        bounds.push((lower, Bound::Unbounded));
        Ok(bounds)
    }

    /// Last keys of up to `n` parts, without the last part. Each part ends with the shard whose end is nearest to the ideal place.
    fn ends_of_shards(&self, n: u128, total: u128) -> Vec<Bytes> {
        let (mut bytes, mut due) = (0, 1);
        let mut ends = Vec::new();
        for (shard, next) in self.shards().iter().zip(self.shards().iter().skip(1)) {
            bytes += u128::from(shard.size);
            let nearer = bytes + u128::from(next.size) / 2;
            // Less than `total`, since no shard is empty: so fewer than `n` are due. All sizes fit 64 bits, and products
            // 128.
            if nearer * n >= due * total {
                ends.push(shard.last_key.clone());
                due = nearer * n / total + 1;
            }
        }
        ends
    }

    /// Last keys of `n` parts, except the last part, for more parts than shards: each shard gets one, and the others go to the large
    /// ones.
    async fn ends_of_blocks(&self, n: usize, total: u128) -> Result<Vec<Bytes>> {
        let shards = self.shards();
        let spare = (n - shards.len()) as u128;
        let mut bytes = 0;
        let parts = shards.iter().map(|shard| {
            let before = bytes * spare / total;
            bytes += u128::from(shard.size);
            1 + (bytes * spare / total - before) as usize
        });
        let parts: Vec<usize> = parts.collect();
        let splits = each(shards.iter().zip(parts), |(shard, parts)| async move {
            Ok::<_, Error>(match parts {
                1 => Vec::new(),
                _ => self.table(shard).await?.splits(parts).await?,
            })
        });
        let splits = splits.await?.into_iter().flatten();
        let mut ends: Vec<Bytes> = splits
            .filter_map(|(_, upper)| match upper {
                Bound::Included(end) => Some(end),
                _ => None,
            })
            .chain(shards.iter().map(|shard| shard.last_key.clone()))
            .collect();
        ends.sort_unstable();
        ends.pop();
        Ok(ends)
    }

    /// The shard that `key` would be in.
    fn shard_of(&self, key: &[u8]) -> Option<&Shard> {
        let shards = self.shards();
        let found = shards.partition_point(|shard| shard.last_key < key);
        shards.get(found).filter(|shard| shard.covers(key))
    }

    /// The table of `shard`, opened by one request if it is not open.
    pub(super) async fn table(&self, shard: &Shard) -> Result<AsyncTable> {
        self.0.shelf.table(shard, || self.open_shard(shard)).await
    }

    fn open_shard(&self, shard: &Shard) -> BoxFuture<'static, Result<AsyncTable>> {
        let (set, shard) = (self.clone(), shard.clone());
        Box::pin(async move {
            let Inner {
                store,
                options,
                shelf,
                ..
            } = &*set.0;
            let open = || {
                let source = { options.source(Arc::clone(store), &shard.path) }
                    .pinned_to(shard.version.clone())
                    .sized(shard.size)
                    .limited(Arc::clone(&shelf.limit));
                options.tables.open_async(source, Some(shard.tail_len))
            };
            let opened = match open().await {
                // It may have been damaged in transit.
                Err(error) if error.kind() == ErrorKind::Corruption => open().await,
                opened => opened,
            };
            let name = std::path::Path::new(shard.path.as_ref());
            let table = opened.map_err(|error| {
                if !is_not_found(&error) {
                    return error;
                }
                let why = "the shard was removed since the set was published";
                Error::new(ErrorKind::Replaced, why).at_path(name)
            })?;
            matches_record(&table, &shard).map_err(|error| error.at_path(name))?;
            Ok(table)
        })
    }
}

/// Compares the table's properties with the manifest's record. Lookups rely on the record, and would miss entries silently if it
/// were wrong.
fn matches_record(table: &AsyncTable, shard: &Shard) -> Result<()> {
    let properties = table.properties();
    let first_key = properties.and_then(|p| p.first_key.as_deref());
    let last_key = properties.and_then(|p| p.last_key.as_deref());
    let key = |key: &[u8]| key.escape_ascii().to_string();
    let number = |entries: u64| entries.to_string();
    let (recorded, found) = (shard.entries, table.entries());
    for (what, recorded, found) in [
        ("first key", Some(key(&shard.first_key)), first_key.map(key)),
        ("last key", Some(key(&shard.last_key)), last_key.map(key)),
        ("number of entries", recorded.map(number), found.map(number)),
    ] {
        if let (Some(recorded), Some(found)) = (recorded, found)
            && recorded != found
        {
            let why = format!("the manifest says that its {what} is {recorded}, the table {found}");
            return Err(Error::new(ErrorKind::Corruption, why));
        }
    }
    Ok(())
}
