//! An open table, and its lookups: filter, index, load, find.

pub(crate) mod approximate;
pub(crate) mod get_many;
pub(crate) mod opened;
pub(crate) mod splits;
pub(crate) mod table_cache;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::filter::{FilterEntry, FilterLayout};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_search::{SearchPart, find};
use crate::format::properties::Properties;
use crate::read::parts::bounds::Direction;
use crate::read::parts::filter::TableFilter;
use crate::read::parts::index::{BlockRef, Found, NotLoaded};
use crate::read::parts::{LAYERS, Missing, Part, Parts};
use crate::read::source::stats::{Counter, Stats};
use crate::read::store::cached::ReadBlock;
use crate::read::store::{Loaded, ReadOptions};
use crate::read::table::opened::Opened;

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
/// assert!(table.filter_layout()?.unwrap().whole_table);
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

    /// Whether the table may hold `key`, according to filter and index alone: reads no data block, and only pieces of filter and
    /// index that are not loaded yet. `false` is certain if the table is in the order that it was opened in; a table whose order
    /// is not known may hold any key.
    ///
    /// # Errors
    ///
    /// Errors of reading index and filter.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        match &self.opened.parts.order {
            Some(order) => Ok(self.candidate(key.as_ref(), order)?.is_some()),
            None => Ok(true),
        }
    }

    /// The only data block to look for `key` in; `None` if filter and index exclude the key.
    #[inline(always)]
    pub(crate) fn candidate(&self, key: &[u8], order: &Order) -> Result<Option<Found<'_>>> {
        self.candidate_held(key, order, None)
    }

    /// The same. If the block is in the cache, it may be put into `held`, where [`BlockStore::load`] finds it.
    #[inline(always)]
    fn candidate_held(
        &self,
        key: &[u8],
        order: &Order,
        held: Option<&mut Option<Arc<ReadBlock>>>,
    ) -> Result<Option<Found<'_>>> {
        match self.candidate_in_memory(key, order, held) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => Ok(None), // a separate arm, so that no block is moved, which takes 2 ns
            Err(NotLoaded) => self.read_candidate(key, order),
        }
    }

    /// The same, after reading the missing parts of filter and index.
    #[cold]
    #[inline(never)]
    fn read_candidate(&self, key: &[u8], order: &Order) -> Result<Option<Found<'_>>> {
        self.opened.ask(|| self.ask_candidate(key, order, LAYERS))
    }

    /// Returns the result of [`candidate`](Table::candidate), or the missing parts of filter and index: those of the first
    /// `layers` layers of a ribbon filter all at once.
    pub(crate) fn ask_candidate(
        &self,
        key: &[u8],
        order: &Order,
        layers: usize,
    ) -> Result<Option<Found<'_>>, Missing> {
        let found = self.candidate_in_memory(key, order, None);
        found.map_err(|NotLoaded| self.opened.parts.missing_for(key, order, layers))
    }

    /// Returns the result of [`candidate`](Table::candidate), using only the parts of filter and index in memory.
    ///
    /// If the previous key passed the filter, this one is expected to as well, and its block is prefetched before the filter is
    /// checked: the processor then waits for both at once. (It looks 200 to 500 instructions ahead, so it would not reach the block
    /// while it waits for the filter.) Otherwise the filter is checked first: absent keys often follow absent keys, and then need no
    /// search of the index, unless the filter depends on the block.
    #[inline(always)] // a call would take a tenth of the instructions of an absent key
    pub(crate) fn candidate_in_memory(
        &self,
        key: &[u8],
        order: &Order,
        held: Option<&mut Option<Arc<ReadBlock>>>,
    ) -> Result<Option<Found<'_>>, NotLoaded> {
        let Opened { parts, store, .. } = &*self.opened;
        let is_expected = store.file.counters.passed_last();
        let find = || parts.index.seek(key, order, is_expected);
        let Some(filter) = &parts.filter else {
            return find();
        };
        let is_per_window = filter.is_per_window()?;
        let filter_key = order.filter_key(key);
        if !is_expected && !is_per_window {
            let passes = filter.ask(filter_key, 0)?;
            let found = if passes { find()? } else { None };
            self.note_passed(passes);
            return Ok(found);
        }
        let found = find();
        if let (true, Ok(Some(found))) = (is_expected, found) {
            match held {
                Some(held) => *held = store.hold(found),
                None => store.prefetch_in_place(found),
            }
        }
        if is_per_window {
            return self.ask_window(filter, found?, key, order);
        }
        let passes = filter.ask(filter_key, 0)?;
        let found = if passes { found? } else { None };
        self.note_passed(passes);
        Ok(found)
    }

    /// The data block that the index has found for `key`, unless the filter of its window rejects the key.
    #[inline(always)]
    fn ask_window<'t>(
        &'t self,
        filter: &TableFilter,
        found: Option<Found<'t>>,
        key: &[u8],
        order: &Order,
    ) -> Result<Option<Found<'t>>, NotLoaded> {
        let Some(block) = found else {
            return Ok(None);
        };
        let passes = filter.ask(order.filter_key(key), block.offset())?
            || matches!(order, Order::Custom(_))
                && self.opened.parts.may_be_in_next(filter, block, key, order);
        self.note_passed(passes);
        Ok(if passes { found } else { None })
    }

    /// Returns the result of [`candidate_in_memory`](Table::candidate_in_memory) for each of `keys`. A window's filter takes three steps,
    /// index, bounds and filter: the memory of each step is prefetched for all keys before any waits for it.
    pub(crate) fn candidates_in_memory<'t>(
        &'t self,
        keys: &[&[u8]],
        order: &Order,
    ) -> Vec<Result<Option<Found<'t>>, NotLoaded>> {
        let Parts { index, filter, .. } = &self.opened.parts;
        keys.iter().for_each(|key| index.prefetch(key, order));
        let filter = filter.as_ref();
        let Some((filter, windows)) = filter.and_then(|it| Some((it, it.windows()?))) else {
            let keys = keys.iter();
            return keys
                .map(|key| self.candidate_in_memory(key, order, None))
                .collect();
        };
        let sought = keys.iter().map(|key| index.seek(key, order, true));
        let found: Vec<_> = sought.collect();
        let offsets = found.iter().filter_map(|found| Some(found.ok()??.offset()));
        offsets.clone().for_each(|at| windows.prefetch_bounds(at));
        offsets.for_each(|at| windows.prefetch_filter(at));
        let found = keys.iter().zip(&found);
        let asked = found.map(|(key, found)| self.ask_window(filter, (*found)?, key, order));
        asked.collect()
    }

    /// A lookup: filter and index, block, search. Calls `take` with bytes and the range of the value in them.
    #[inline]
    fn lookup<R>(
        &self,
        key: &[u8],
        take: impl FnOnce(&Bytes, Range<usize>) -> R,
    ) -> Result<Option<R>> {
        let (Opened { parts, store, .. }, order) = (&*self.opened, self.order()?);
        let mut held = None;
        let Some(found) = self.candidate_held(key, order, Some(&mut held))? else {
            return self.missed(key, order);
        };
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
        self.check_form(key, order).map(|()| None)
    }

    /// Checks that a key to look for has the form of the table's keys.
    #[inline(always)]
    pub(crate) fn check_form(&self, key: &[u8], order: &Order) -> Result<()> {
        match order {
            Order::Custom(_) if order.is_foreign(key) => Err(self.not_internal(key)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn not_internal(&self, key: &[u8]) -> Error {
        let message = format!(
            "{} is not an internal key: use DbTable to look up user keys",
            show_key(key)
        );
        let error = Error::new(ErrorKind::InvalidState, message);
        self.opened.store.file.with_path(error)
    }

    /// Counts whether the filter passed a key.
    #[inline]
    fn note_passed(&self, passes: bool) {
        let file = &self.opened.store.file;
        let counters = &file.counters;
        counters.add_answer(passes, Counter::FilterPassed, Counter::FilterRejected);
        counters.set_passed_last(passes);
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

    /// The layout of the filter block in use; `None` without one. Reads the filter, or of a divided one a piece, unless that is loaded.
    ///
    /// # Errors
    ///
    /// Errors of reading the filter.
    pub fn filter_layout(&self) -> Result<Option<FilterLayout>> {
        self.opened.read_parts(vec![Part::Filter(0)])?;
        Ok(self
            .opened
            .parts
            .filter
            .as_ref()
            .and_then(TableFilter::layout))
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
    /// It grows with use, up to the sizes of both, and by 16 bytes per data block when a cache takes the first of its blocks.
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

/// The range of the value of `key` in the bytes of a data block.
#[inline(always)] // as `Index::seek`
pub(crate) fn find_value(
    (bytes, block): Loaded<'_>,
    key: &[u8],
    order: &Order,
    part: SearchPart,
) -> Result<Option<Range<usize>>, Defect> {
    let (start, block) = (block.start, bytes.get(block).unwrap_or_default());
    let value = find(&Block::parse(block)?, key, order, part)?;
    Ok(value.map(|value| start + value.start..start + value.end))
}
