//! An open table, and its lookups: filter, index, load, find.

pub(crate) mod approximate;
pub(crate) mod get_many;
pub(crate) mod lookup;
pub(crate) mod opened;
pub(crate) mod splits;
pub(crate) mod table_cache;

use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::FilterEntry;
use crate::format::block::Block;
use crate::format::properties::Properties;
use crate::read::parts::bounds::{Bounds, Direction, KeyRange};
use crate::read::parts::index::BlockRef;
use crate::read::source::stats::Stats;
use crate::read::store::ReadOptions;
use crate::read::table::approximate::{bytes_within, key_at};
use crate::read::table::lookup::find_value;
use crate::read::table::opened::Opened;
use crate::read::table::splits::split;

/// An open table: immutable, sorted, safe to read from any number of threads at once.
///
/// Clones are cheap and share everything. Pieces of the index and filters are read when they are first needed, and stay in memory
/// ([`weight`](Table::weight)) until the last clone is dropped. Blocks live in the [`BlockCache`](crate::BlockCache).
///
/// The file must not change while it is open. It may be *replaced*, for example by
/// [`WriteOptions::create`](crate::WriteOptions::create): the open table keeps reading the old file.
///
/// ```
/// use leveltable::{Table, TableBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("fruit.ldb");
/// # let mut builder = TableBuilder::create(&path)?;
/// # builder.add(b"apple", b"red")?;
/// # builder.add(b"banana", b"yellow")?;
/// # builder.finish()?;
/// let table = Table::open(&path)?;
/// assert_eq!(table.get("apple")?.as_deref(), Some(&b"red"[..]));
/// assert_eq!(table.get("cherry")?, None);
/// for entry in table.iter().rev() {
///     let (key, value) = entry?;
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
///
/// // Properties of the table. These read nothing, and take no lock.
/// assert_eq!((table.entries(), table.data_blocks()), (Some(2), 1));
/// assert_eq!(table.properties().unwrap().comparator, "leveldb.BytewiseComparator");
/// assert_eq!(table.filter().unwrap().policy, "leveltable.Ribbon1");
/// assert!(table.prefix_filter().is_none() && table.file_bytes() < 1000);
///
/// // Work done so far.
/// assert!(!table.may_contain("cherry")?);
/// assert!(table.stats().filter_rejected > 0);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) opened: Arc<Opened>,
    pub(crate) read: ReadOptions,
}

/// On one line, since an index is too long to print.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("source", &self.opened.store.file.source)
            .field("data_blocks", &self.data_blocks())
            .field("filter", &self.filter())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Returns the same table, read with `options`: a cheap clone.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, ReadOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # WriteOptions::new().build(&mut file).finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let scan = table.with_read_options(ReadOptions::new().fill_cache(false));
    /// for entry in scan.iter() {
    ///     let (key, value) = entry?;
    ///     // the cache keeps the blocks of lookups
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn with_read_options(&self, options: ReadOptions) -> Table {
        Table {
            opened: Arc::clone(&self.opened),
            read: options,
        }
    }

    /// Returns the value of `key`, or `None` if the table does not hold it.
    ///
    /// Reads at most one data block, and none if the filter rejects the key or the block is in the cache. The value is a
    /// slice of its block and keeps the whole block in memory while it lives; copy it to keep it long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) of that one block;
    /// [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) if its keys are in another order. In a database's table,
    /// [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) if `key` is not an [internal key](crate::db::InternalKey).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.lookup(key.as_ref(), Bytes::slice)
    }

    /// Calls `read` with the value of `key`, and returns its result; `None` if the table does not hold the key.
    ///
    /// Like [`get`](Table::get), for a value that need not be kept.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Table::get).
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.lookup(key.as_ref(), |bytes, value| {
            read(bytes.get(value).unwrap_or_default())
        })
    }

    /// Whether the table holds `key`. Costs as much as [`get`](Table::get).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Table::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.lookup(key.as_ref(), |_, _| ())?.is_some())
    }

    /// Returns the values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// In a file that is not in memory, each block that holds some of the keys is read once, in file order, and many are
    /// [requested at once](crate::ReadAt::read_many_at), so that a disk works on several at a time. In a mapped file, blocks that
    /// were never used are announced to the system before the first is used.
    ///
    /// Takes some 80 bytes per key while it runs, and at most 6 MiB for blocks and the bytes between them, or one block if that
    /// is larger. From memory, a value is a slice of its block, like that of [`get`](Table::get); from a file, it is a copy.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana"] { builder.add(key.as_bytes(), key.as_bytes())?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let values = table.get_many(&["banana", "cherry"])?;
    /// assert_eq!(values, [Some("banana".into()), None]);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`get`](Table::get); if a block cannot be read, no value is returned.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        get_many::get_many(&self.opened, self.read, keys)
    }

    /// Whether the table may hold `key`, according to filter and index alone: reads no data block, and only pieces of filter and
    /// index that are not loaded yet. `false` is certain if the table is in the order that it was opened in; a table whose order
    /// is not known may hold any key.
    ///
    /// # Errors
    ///
    /// Errors of reading index and filter.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        match &self.opened.parts.order {
            Some(order) => Ok(self.opened.candidate(key.as_ref(), order)?.is_some()),
            None => Ok(true),
        }
    }

    /// A lookup: filter and index, block, search. Calls `take` with bytes and the range of the value in them.
    #[inline]
    fn lookup<R>(
        &self,
        key: &[u8],
        take: impl FnOnce(&Bytes, Range<usize>) -> R,
    ) -> Result<Option<R>> {
        let (Opened { parts, store, .. }, order) = (&*self.opened, self.order()?);
        let Some(found) = self.opened.candidate(key, order)? else {
            return self.missed(key, order);
        };
        let mut held = None;
        let (bytes, block) = store.load(parts, found, self.read, true, &mut held)?;
        let value = find_value((bytes, block), key, order, found.part());
        let value = value.map_err(|defect| store.locate(found.to_ref(), defect))?;
        value.map_or_else(
            || self.missed(key, order),
            |value| Ok(Some(take(bytes, value))),
        )
    }

    /// The result of looking up a `key` that the table does not hold: an error if no key of the table can have its
    /// form.
    #[inline(always)]
    fn missed<R>(&self, key: &[u8], order: &Order) -> Result<Option<R>> {
        self.opened.check_form(key, order).map(|()| None)
    }

    /// Returns the bounds of at most `n` parts of the table, in order and of similar size: every key lies in exactly one. Parts
    /// begin and end at piece boundaries of the index, or if there are few pieces, at those of data blocks, so there are never more
    /// parts than data blocks.
    ///
    /// [`range`](Table::range) accepts each. The first part has no lower bound and the last no upper bound; if the order of
    /// the table is not known, there is one part.
    ///
    /// # Errors
    ///
    /// Errors of reading the index. It is not read if it has so many pieces that parts differ by less than a quarter.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for i in 0..10_000 { builder.add(format!("{i:05}").as_bytes(), b"value")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let parts = table.splits(4)?;
    /// let entries = parts.into_iter().map(|bounds| table.range(bounds).count());
    /// assert_eq!(entries.sum::<usize>(), 10_000);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn splits(&self, n: usize) -> Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        split(&self.opened, n)
    }

    /// Returns approximately how many bytes of the file the entries within `bounds` take, as stored: the bytes from the block that the
    /// lower bound would be in to the one that the upper bound would be in. The error is less than one block, so the result is 0 if
    /// both lie in the same one; whether a bound is included makes no difference. `..` returns the bytes of all data blocks.
    ///
    /// Reads the two pieces of the index that name these blocks, unless they are loaded, and nothing else. Allocates the two bounds,
    /// and takes no lock. This is `GetApproximateSizes` of C++ LevelDB.
    ///
    /// # Errors
    ///
    /// Errors of reading the index, and [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) for a bound in a table whose order is
    /// not known.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for i in 0..10_000 { builder.add(format!("{i:04}"), [7; 100])?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let all = table.approximate_bytes(..)? as f64;
    /// let some = table.approximate_bytes("2000".."5000")? as f64;
    /// assert!((some / all - 0.3).abs() < 0.01);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let (bounds, parts) = (bounds.key_bounds(), &self.opened.parts);
        let order = self.order_of(&bounds)?;
        self.opened.ask(|| bytes_within(parts, &bounds, order))
    }

    /// The order, if a bound needs it: an error if it is not known.
    pub(crate) fn order_of(&self, bounds: &Bounds) -> Result<Option<&Order>> {
        let is_bounded = *bounds != (Bound::Unbounded, Bound::Unbounded);
        is_bounded.then(|| self.order()).transpose()
    }

    /// Returns a key before which about `fraction` of the bytes of all entries lie: 0.5 returns the middle of the table. It is the first
    /// key of the index, not always one of the table's, with at least that much before it: at most one block too far. `None` in an empty
    /// table.
    ///
    /// Reads the one piece of the index that names the block, unless it is loaded. Allocates the key, and takes no lock. C++ LevelDB
    /// has no counterpart. For parts of equal size, see [`splits`](Table::splits).
    ///
    /// # Errors
    ///
    /// Errors of reading the index.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for i in 0..10_000 { builder.add(format!("{i:04}"), [7; 100])?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let middle = table.key_at_fraction(0.5)?.unwrap();
    /// assert!(middle >= "4990" && middle < "5090");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let parts = &self.opened.parts;
        self.opened.ask(|| key_at(parts, fraction))
    }

    /// Counters of the table's work so far, for all its clones together, opening included. Reads nothing and takes no lock.
    pub fn stats(&self) -> Stats {
        self.opened.store.file.counters.snapshot()
    }

    /// The filter in use; `None` if the table has none that can be used.
    pub fn filter(&self) -> Option<&FilterEntry> {
        self.opened
            .parts
            .filter
            .as_ref()
            .map(|filter| &filter.entry)
    }

    /// The filter of prefixes in use; `None` if the table has none that can be used.
    pub fn prefix_filter(&self) -> Option<&FilterEntry> {
        self.opened
            .parts
            .prefixes
            .as_ref()
            .map(|filter| &filter.entry)
    }

    /// The table's own description: its order, number of entries, and so on. `None` if it has no properties block, as
    /// in tables of other writers.
    pub fn properties(&self) -> Option<&Properties> {
        self.opened.properties.as_ref()
    }

    /// Number of entries, without a walk, from the table's [properties](Table::properties). `None` if it has none, as in
    /// tables of other writers.
    pub fn entries(&self) -> Option<u64> {
        self.properties().map(|properties| properties.entries)
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> usize {
        self.opened.parts.index.len()
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.opened.store.file.size
    }

    /// The order of the keys; an error if it is not known.
    #[inline]
    pub(crate) fn order(&self) -> Result<&Order> {
        self.opened.parts.order()
    }

    /// A data block to keep.
    pub(crate) fn block(&self, found: BlockRef) -> Result<Block<Bytes>> {
        let Opened { parts, store, .. } = &*self.opened;
        store.announce_block(parts, found);
        self.parse(found, store.load_bytes(parts, found, self.read)?)
    }

    /// A data block from its loaded contents.
    pub(crate) fn parse(&self, found: BlockRef, payload: Bytes) -> Result<Block<Bytes>> {
        Block::parse(payload).map_err(|defect| self.opened.store.locate(found, defect))
    }

    /// The first key that a walk in `direction` reaches, if the properties name it.
    pub(crate) fn stated_key(&self, direction: Direction) -> Option<&[u8]> {
        let properties = self.properties()?;
        let key = direction.pick(&properties.first_key, &properties.last_key);
        key.as_deref()
    }

    /// Bytes of memory that the table takes, as the allocator counts them: some kilobytes, and the loaded pieces of index and filter.
    /// It grows with use, up to the sizes of both, and by 2 KiB for each 64 data blocks when a cache takes the first of
    /// them.
    ///
    /// Excludes the blocks in a cache, and for a file in memory everything in that file: its [size](Table::file_bytes) is the caller's to
    /// count. Reads nothing and takes no lock; a few nanoseconds, unless parts were loaded since the last call.
    pub fn weight(&self) -> usize {
        self.opened.weight()
    }

    /// Whether the file that the table was opened on is still at its path, and unchanged: the same file, of the same size, with the same
    /// modification time as at opening. `false` if it was replaced, removed or written to. A table whose file was replaced can still be
    /// read, and can be reopened; one whose file was written to must be reopened.
    ///
    /// One system call, for the metadata at the path, and no read. A change that preserves all of this goes unnoticed, such as one within
    /// the few milliseconds in which a file system's clock does not advance. On Windows, files are distinguished by the time of their
    /// creation. C++ LevelDB has no counterpart, since nobody replaces its tables.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidState`] for a table whose file was not opened by this crate, by its path; [`ErrorKind::Io`] if the system call
    /// fails.
    ///
    /// ```
    /// use leveltable::{Table, TableBuilder};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("fruit.ldb");
    /// TableBuilder::create(&path)?.finish()?;
    /// let table = Table::open(&path)?;
    /// assert!(table.is_current()?);
    /// TableBuilder::create(&path)?.finish()?;
    /// assert!(!table.is_current()?);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn is_current(&self) -> Result<bool> {
        let file = &self.opened.store.file;
        let Some(opened) = &file.source.opened else {
            let message = "this table was not opened by the path of a file: nothing tells whether it has changed";
            return Err(file.with_path(Error::new(ErrorKind::InvalidState, message)));
        };
        let doing = "asking whether the table has changed";
        let asked = opened.is_current();
        asked.map_err(|e| file.with_path(Error::io(doing, e)))
    }
}
