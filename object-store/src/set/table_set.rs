//! An open set.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
#[cfg(doc)]
use leveltable::remote::AsyncTable;
use leveltable::sister_crates::prefix_bounds_from;
use leveltable::{Error, KeyRange, Result, Stats};
use object_store::ObjectStore;
use object_store::path::Path;

use super::each;
use super::manifest::Manifest;
use super::open_set::OpenSet;
#[cfg(doc)]
use super::options::SetOptions;
use super::place::{Client, Place, SetVersion};
use super::range::SetRange;
use super::settings::Settings;
use super::shard::Shard;
use super::shelf::Shelf;

/// An open set: many tables with disjoint ranges of keys, which read like one.
///
/// Clones are cheap and share everything. The set is the one that the manifest listed when it was opened. A shard that was replaced
/// or removed since is an error of kind [`ErrorKind::Replaced`]: reopen the set.
#[derive(Debug, Clone)]
pub struct TableSet(Arc<OpenSet>);

impl TableSet {
    /// Opens a set with [`SetOptions::new`]; see [`SetOptions::open`].
    ///
    /// # Errors
    ///
    /// Same as [`SetOptions::open`].
    pub async fn open(store: Arc<dyn ObjectStore>, manifest: &Path) -> Result<TableSet> {
        TableSet::open_with(&Settings::new(), store, manifest).await
    }

    pub(super) async fn open_with(
        settings: &Settings,
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> Result<TableSet> {
        let client = Client::new(settings, Arc::clone(&store));
        let read = client.current(path).await?;
        Ok(TableSet::of_manifest(settings, store, path, read))
    }

    /// The set that a manifest lists, which was read at `path`.
    pub(super) fn of_manifest(
        settings: &Settings,
        store: Arc<dyn ObjectStore>,
        path: &Path,
        read: (Manifest, Place),
    ) -> TableSet {
        let shelf = Shelf::new(settings);
        TableSet(OpenSet::new(store, settings, path, read, shelf))
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
        let OpenSet {
            store,
            settings,
            manifest,
            version,
            shards,
            shelf,
        } = &*self.0;
        let client = Client::new(settings, Arc::clone(store));
        let Some(read) = client.read(manifest, Some(&version.place)).await? else {
            return Ok(self.clone());
        };
        let kept: HashSet<&Shard> = read.0.shards.iter().collect();
        let gone = shards.iter().filter(|shard| !kept.contains(shard));
        gone.for_each(|shard| shelf.close(shard));
        let (store, shelf) = (Arc::clone(store), Arc::clone(shelf));
        let set = OpenSet::new(store, settings, manifest, read, shelf);
        Ok(TableSet(set))
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
        let Some(shard) = self.0.shard_of(key.as_ref()) else {
            return Ok(None);
        };
        self.0.table(shard).await?.get(key).await
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
            if let Some(shard) = self.0.shard_of(key.as_ref()) {
                let group = wanted.entry(&shard.first_key);
                group.or_insert((shard, Vec::new())).1.push(at);
            }
        }
        let read = each(wanted.into_values(), |(shard, positions)| async {
            let table = self.0.table(shard).await?;
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
        let Some(shard) = self.0.shard_of(key) else {
            return Ok(false);
        };
        match self.0.shelf.open_table(shard) {
            Some(table) => Ok(table.may_contain(key).await?),
            None => Ok(true),
        }
    }

    /// The entries whose keys are within `bounds`, in order. Makes no request until the first entry is requested.
    ///
    /// ```no_run
    /// # async fn show(set: leveltable_object_store::TableSet) -> leveltable::Result<()> {
    /// let mut range = set.range("apple".."banana");
    /// while let Some((key, _)) = range.next().await? {
    ///     println!("{}", key.escape_ascii());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> SetRange {
        SetRange::new(&self.0, bounds.key_bounds())
    }

    /// The entries whose keys begin with `prefix`, in order, like [`range`](TableSet::range). Shards whose filter of prefixes excludes it
    /// are opened but not read.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> SetRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](TableSet::prefix) at or after `start`: the next page after a key, for example. A start before the
    /// prefix leaves all entries; one after it, none. Costs as much as a [`range`](TableSet::range).
    ///
    /// ```no_run
    /// # async fn show(set: leveltable_object_store::TableSet) -> leveltable::Result<()> {
    /// use std::ops::Bound;
    ///
    /// let last_shown = "user/20";
    /// let mut page = set.prefix_from("user/", Bound::Excluded(last_shown));
    /// while let Some((key, _)) = page.next().await? {
    ///     println!("{}", key.escape_ascii());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn prefix_from(
        &self,
        prefix: impl AsRef<[u8]>,
        start: Bound<impl AsRef<[u8]>>,
    ) -> SetRange {
        SetRange::new(&self.0, prefix_bounds_from(prefix.as_ref(), start))
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
            // Less than `total`, since no shard is empty: so fewer than `n` are due. All sizes fit into 64 bits, and products
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
                _ => self.0.table(shard).await?.splits(parts).await?,
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
}
