//! The read path. `open`: footer, index, metaindex, filter. `get`: filter, index, `fetch_block`, find.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, Section};
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_search::{SearchPart, touch_part};
use crate::format::filter_block::FilterBlockReader;
use crate::read::cache::{BlockCache, TableId};
use crate::read::fetch::Fetched;
use crate::read::file::TableFile;
use crate::read::index::Index;
use crate::read::options::ReadOptions;
use crate::read::stats::{Counter, Stats};

/// An open table: immutable, sorted, safe to read from any number of threads at once.
///
/// Clones are cheap and share everything. Memory: the index block and 23 bytes for each data block, the
/// filter block, and a few kilobytes. Blocks live in the [`BlockCache`].
///
/// The file must not change while it is open. One that is *replaced* (by
/// [`WriteOptions::create`](crate::WriteOptions::create), say) is not changed: the open table goes on
/// reading the old one.
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
/// assert_eq!(table.get(b"apple")?.as_deref(), Some(&b"red"[..]));
/// assert_eq!(table.get(b"cherry")?, None);
/// for entry in table.iter().rev() {
///     let (key, value) = entry?;
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    pub(super) inner: Arc<Inner>,
    pub(super) read: ReadOptions,
}

pub(super) struct Inner {
    pub(super) file: TableFile,
    pub(super) order: Order,
    pub(super) index: Index,
    pub(super) filter: Option<TableFilter>,
    /// Where the data ends at the latest.
    pub(super) data_end: u64,
    pub(super) cache: Option<BlockCache>,
    pub(super) id: TableId,
}

/// The filter in use, with the policy that understands it.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(crate) policy: Arc<dyn FilterPolicy>,
    pub(crate) block: FilterBlockReader,
    pub(crate) bytes: u64,
    pub(super) whole_table: bool,
}

/// What a table's filter is; see [`Table::filter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterInfo<'a> {
    /// Name of the policy.
    pub policy: &'a str,
    /// Bytes of the filter block, which are held in memory. Eight times this, divided by the number of
    /// entries, is what it costs in bits a key.
    pub bytes: u64,
    /// Number of filters, empty ones included.
    pub filters: usize,
    /// Whether one filter covers the whole table, so that it is asked before the index.
    pub whole_table: bool,
}

/// In a line: an index has too much to print.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("source", &self.inner.file.source)
            .field("data_blocks", &self.data_blocks())
            .field("filter", &self.filter())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// The same table, read with `options`: a cheap clone.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, ReadOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # WriteOptions::new().build(&mut file).finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let scan = table.with(ReadOptions::new().fill_cache(false));
    /// for entry in scan.iter() {
    ///     let (key, value) = entry?;
    ///     // the cache keeps what lookups put there
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn with(&self, options: ReadOptions) -> Table {
        Table {
            inner: Arc::clone(&self.inner),
            read: options,
        }
    }

    /// The value of `key`, or `None` if the table does not hold it.
    ///
    /// Reads one data block at most, and none where the filter rejects the key or the block is in the
    /// cache. The value is a slice of its block and keeps the whole block in memory while it lives; copy
    /// it to keep it long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`], [`ErrorKind::Corruption`] and [`ErrorKind::Unsupported`], of that one block.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.lookup(key, |block, value| block.into_bytes(value))
    }

    /// Calls `read` with the value of `key`; `None` if the table does not hold it.
    ///
    /// Like [`get`](Table::get), without making a [`Bytes`]: for a table in memory, no reference count
    /// is touched, which matters where many threads read the same block.
    ///
    /// # Errors
    ///
    /// As [`get`](Table::get).
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.lookup(key, |block, value| read(block.slice(value)))
    }

    /// Whether the table holds `key`. Costs what [`get`](Table::get) costs.
    ///
    /// # Errors
    ///
    /// As [`get`](Table::get).
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        Ok(self.lookup(key, |_, _| ())?.is_some())
    }

    /// Whether the table may hold `key`, by filter and index alone, without I/O: `false` is certain.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.inner.candidate(key).is_some()
    }

    #[inline]
    fn lookup<R>(
        &self,
        key: &[u8],
        take: impl FnOnce(Fetched<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>> {
        let Some(i) = self.inner.candidate(key) else {
            return Ok(None);
        };
        let fetched = self.inner.fetch_block(i, self.read)?;
        let part = self.inner.index.part_of(i, key);
        let payload = fetched.payload();
        touch_part(payload, part);
        let value = self.find(i, payload, key, part)?;
        Ok(value.map(|value| take(fetched, value)))
    }

    /// Where the value of `key` lies in data block `i`, of which `payload` was fetched.
    #[inline]
    pub(super) fn find(
        &self,
        i: usize,
        payload: &[u8],
        key: &[u8],
        part: SearchPart,
    ) -> Result<Option<Range<usize>>> {
        let block = Block::parse(payload);
        block
            .and_then(|block| block.find(key, &self.inner.order, part))
            .map_err(|defect| self.locate(i, defect))
    }

    /// About where in the file `key` is or would be, in bytes: the offset of its data block, or, as in
    /// LevelDB, that of the metaindex block for a key behind the last. No I/O.
    pub fn approximate_offset_of(&self, key: &[u8]) -> u64 {
        let Inner {
            index,
            order,
            data_end,
            ..
        } = &*self.inner;
        let block = index.seek(key, order);
        block.map_or(*data_end, |i| index.handle(i).offset)
    }

    /// What the table has done so far, for all its clones together, opening included.
    pub fn stats(&self) -> Stats {
        self.inner.file.counters.snapshot()
    }

    /// The filter in use; `None` if the table has none whose policy is known.
    pub fn filter(&self) -> Option<FilterInfo<'_>> {
        self.inner.filter.as_ref().map(|filter| FilterInfo {
            policy: filter.policy.name(),
            bytes: filter.bytes,
            filters: filter.block.filter_count(),
            whole_table: filter.whole_table,
        })
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> usize {
        self.inner.index.len()
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.inner.file.size
    }

    pub(crate) fn file(&self) -> &TableFile {
        &self.inner.file
    }

    pub(crate) fn filter_in_use(&self) -> Option<&TableFilter> {
        self.inner.filter.as_ref()
    }

    pub(crate) fn index(&self) -> &Index {
        &self.inner.index
    }

    pub(crate) fn order(&self) -> &Order {
        &self.inner.order
    }

    /// The data block that holds `key` if any does, by the index and a filter of the whole table.
    pub(crate) fn seek_block(&self, key: &[u8]) -> Option<usize> {
        self.inner.seek_block(key)
    }

    /// Whether data block `i` may hold `key`, by the filter that it shares with few.
    pub(crate) fn passes_block(&self, i: usize, key: &[u8]) -> bool {
        self.inner.passes_block(i, key)
    }

    /// Data block `i`, for a cursor to keep, of which `part` will be looked at first.
    pub(crate) fn block(&self, i: usize, part: SearchPart) -> Result<Block<Bytes>> {
        let payload = self.inner.fetch_block(i, self.read)?.into_payload();
        touch_part(&payload, part);
        Block::parse(payload).map_err(|defect| self.locate(i, defect))
    }

    /// Where data block `i` lies in memory, if it is used there as it is.
    pub(crate) fn place_in_memory(&self, i: usize) -> Option<usize> {
        let handle = self.index().sound_handle(i)?;
        usize::try_from(handle.offset).ok()
    }

    /// The error of a defect in data block `i`.
    #[cold]
    pub(crate) fn locate(&self, i: usize, defect: Defect) -> Error {
        self.inner.locate(i, defect)
    }
}

impl Inner {
    /// The error of a defect in data block `i`.
    #[cold]
    pub(super) fn locate(&self, i: usize, defect: Defect) -> Error {
        let offset = self.index.handle(i).offset;
        self.file.locate(defect, Section::Data, offset)
    }

    /// The one data block that may hold `key`, by filter and index: no I/O.
    ///
    /// A filter of the whole table is asked first: most absent keys then cost nothing else.
    #[inline]
    pub(super) fn candidate(&self, key: &[u8]) -> Option<usize> {
        self.seek_block(key).filter(|&i| self.passes_block(i, key))
    }

    /// The data block that holds `key` if any does, by the index and a filter of the whole table.
    #[inline]
    pub(super) fn seek_block(&self, key: &[u8]) -> Option<usize> {
        let filter = self.filter.as_ref().filter(|filter| filter.whole_table);
        let passes = filter.is_none_or(|filter| self.passes(filter, 0, key));
        passes.then(|| self.index.seek(key, &self.order))?
    }

    /// Whether the filter of data block `i`, if it has one that it shares with few, lets `key` pass.
    #[inline]
    pub(super) fn passes_block(&self, i: usize, key: &[u8]) -> bool {
        let filter = self.filter.as_ref().filter(|filter| !filter.whole_table);
        filter.is_none_or(|filter| self.passes(filter, self.index.handle(i).offset, key))
    }

    #[inline]
    pub(super) fn passes(&self, filter: &TableFilter, block_offset: u64, key: &[u8]) -> bool {
        let passes =
            filter
                .block
                .key_may_match(&*filter.policy, block_offset, self.order.filter_key(key));
        self.file.counters.add(
            match passes {
                true => Counter::FilterPassed,
                false => Counter::FilterRejected,
            },
            1,
        );
        passes
    }
}
