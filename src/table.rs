//! The read path. `open`: footer, index, metaindex, filter. `get`: filter, index, `fetch_block`, find.

mod get_many;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::cache::{BlockCache, BlockKey, TableId};
use crate::comparator::{BytewiseComparator, Order};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::file::TableFile;
use crate::filter::FilterPolicy;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::block_search::{Part, touch_part};
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::index::{Index, IndexPlace};
use crate::internal_key::{self, InternalKeyComparator, is_internal};
use crate::options::{OpenOptions, ReadOptions};
use crate::source::Source;
use crate::stats::{Counter, Stats};

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
    inner: Arc<Inner>,
    read: ReadOptions,
}

struct Inner {
    file: TableFile,
    order: Order,
    index: Index,
    filter: Option<TableFilter>,
    /// Where the data ends at the latest.
    data_end: u64,
    cache: Option<BlockCache>,
    id: TableId,
}

/// The filter in use, with the policy that understands it.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(crate) policy: Arc<dyn FilterPolicy>,
    pub(crate) block: FilterBlockReader,
    pub(crate) bytes: u64,
    whole_table: bool,
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

impl OpenOptions {
    /// Opens the table at `path`.
    ///
    /// Reads the footer, the index, the metaindex and the filter: four reads at most, and one data
    /// block more where the index looks like a database's. None of it is read again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotATable`] for another kind of file, [`ErrorKind::Corruption`] for a damaged table
    /// (of the data blocks the first at most is looked at), [`ErrorKind::Comparator`], [`ErrorKind::DatabaseTable`],
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Table> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io("opening the table", e));
        file.and_then(|file| self.open_at(file.into(), Some(path)))
            .map_err(|e| e.at_path(path))
    }

    /// Opens a table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// As [`open`](OpenOptions::open).
    pub fn open_source(&self, source: impl Into<Source>) -> Result<Table> {
        self.open_at(source.into(), None)
    }

    fn open_at(&self, source: Source, path: Option<&Path>) -> Result<Table> {
        let file = TableFile::new(source, path)?;
        let footer = file.footer()?;
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let index = self.read_index(&file, &footer, &order)?;
        // The filter of a database's table holds user keys: asked for stored ones, it would hide nearly all.
        let as_stored = self.order.is_some() && !is_internal(&order) && index.looks_internal();
        let filter = match self.filters && !as_stored {
            true => self.read_filter(&file, &footer, &order, &index)?,
            false => None,
        };
        let table = Table {
            inner: Arc::new(Inner {
                file,
                order,
                index,
                filter,
                data_end: footer.data_end(),
                cache: self.cache.clone(),
                id: TableId::next(),
            }),
            read: self.read,
        };
        if self.order.is_none() {
            table.refuse_internal_keys()?;
        }
        Ok(table)
    }

    fn read_index(&self, file: &TableFile, footer: &Footer, order: &Order) -> Result<Index> {
        let block = file.read_index(footer)?;
        let place = IndexPlace {
            offset: footer.index.offset,
            data_end: footer.data_end(),
            file_size: file.size,
        };
        let decode = |order: &Order| Index::decode(block.clone(), place, order);
        decode(order).map_err(|error| {
            // The index of a database's table seldom ascends bytewise.
            let of_database = error.kind() == ErrorKind::Comparator
                && self.order.is_none()
                && decode(&internal_order()).is_ok_and(|index| index.looks_internal());
            if of_database { database_table() } else { error }
        })
    }

    /// Finds, reads and checks the filter, if the metaindex names one whose policy is known.
    fn read_filter(
        &self,
        file: &TableFile,
        footer: &Footer,
        order: &Order,
        index: &Index,
    ) -> Result<Option<TableFilter>> {
        let footer_place = (Section::Footer, file.footer_offset());
        let metaindex = file.read_block(footer.metaindex, Section::Metaindex, footer_place)?;
        let mut policies = self.policies_for(order);
        let found = find_filter(&metaindex, &policies)
            .map_err(|defect| defect.locate(Section::Metaindex, footer.metaindex.offset))?;
        let Some((i, handle)) = found else {
            return Ok(None);
        };
        let policy = policies.swap_remove(i);
        let metaindex_place = (Section::Metaindex, footer.metaindex.offset);
        let contents = file.read_block(handle, Section::Filter, metaindex_place)?;
        let bytes = contents.len() as u64;
        let block = FilterBlockReader::new(contents)
            .map_err(|defect| defect.locate(Section::Filter, handle.offset))?;
        let last_block = index
            .len()
            .checked_sub(1)
            .map(|last| index.handle(last).offset);
        Ok(Some(TableFilter {
            policy,
            whole_table: last_block.is_some_and(|offset| block.covers_all(offset)),
            block,
            bytes,
        }))
    }
}

/// Which of `policies` to use: the place of the first that the metaindex has a filter of, and that
/// filter's handle.
fn find_filter(
    metaindex: &[u8],
    policies: &[Arc<dyn FilterPolicy>],
) -> Result<Option<(usize, BlockHandle)>, Defect> {
    let mut cursor = BlockCursor::new(Block::parse(metaindex)?);
    let mut best: Option<(usize, BlockHandle)> = None;
    while cursor.next()? {
        let name = cursor.key().strip_prefix(FILTER_PREFIX);
        let known = policies
            .iter()
            .position(|p| Some(p.name().as_bytes()) == name);
        if let Some(i) = known
            && best.is_none_or(|(best, _)| i < best)
        {
            let Some((handle, _)) = BlockHandle::decode(cursor.value()) else {
                return Err(Defect::new(
                    format!("the handle of {}", show_key(cursor.key())),
                    format!(
                        "{:02x?}",
                        cursor.value().get(..20).unwrap_or(cursor.value())
                    ),
                ));
            };
            best = Some((i, handle));
        }
    }
    Ok(best)
}

fn internal_order() -> Order {
    Order::of(InternalKeyComparator::new(BytewiseComparator))
}

#[cold]
fn database_table() -> Error {
    Error::new(
        ErrorKind::DatabaseTable,
        "this table belongs to a LevelDB database (each key ends in a sequence number and a type): \
         open it with DbTable, or with the InternalKeyComparator to read its keys as they are stored",
    )
}

impl Table {
    /// Opens the table at `path` with [`OpenOptions::new`]; see [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Table> {
        OpenOptions::new().open(path)
    }

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
    fn find(
        &self,
        i: usize,
        payload: &[u8],
        key: &[u8],
        part: Part,
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

    /// The data block that can hold `key`, if filter and index let one.
    pub(crate) fn candidate(&self, key: &[u8]) -> Option<usize> {
        self.inner.candidate(key)
    }

    /// Data block `i`, for a cursor to keep, of which `part` will be looked at first.
    pub(crate) fn block(&self, i: usize, part: Part) -> Result<Block<Bytes>> {
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

    /// Refuses a database's table, whose keys are internal keys.
    ///
    /// Read as a plain one it would lose keys in silence: they are in another order, and the filter holds
    /// user keys. All index keys must look the part, and then the first keys of one data block, so
    /// that a plain table passes for one only if its keys end in what could be sequence numbers.
    fn refuse_internal_keys(&self) -> Result<()> {
        /// What is looked at, so that opening takes no longer for a block of many long keys.
        const MOST_KEYS: usize = 64;
        const MOST_BYTES: usize = 64 << 10;
        if !self.index().looks_internal() {
            return Ok(());
        }
        let internal = internal_order();
        let (mut is_internal, mut is_bytewise) = (true, true);
        let mut previous: Option<Vec<u8>> = None;
        let (mut keys, mut bytes) = (0, 0);
        let mut cursor = BlockCursor::new(self.block(0, Part::WHOLE)?);
        while keys < MOST_KEYS
            && bytes < MOST_BYTES
            && cursor.next().map_err(|defect| self.locate(0, defect))?
        {
            let key = cursor.key();
            is_internal &= internal_key::is_plausible(key);
            if let Some(previous) = &previous {
                is_internal &= internal.compare(previous, key).is_lt();
                is_bytewise &= **previous < *key;
            }
            keys += 1;
            bytes += key.len();
            previous = Some(key.to_vec());
        }
        match (is_internal, is_bytewise) {
            (true, _) => Err(database_table()),
            (false, true) => Ok(()),
            (false, false) => Err(Error::new(
                ErrorKind::Comparator,
                "the keys of the first data block do not ascend bytewise; open the table with the comparator \
                 it was written with (and as a DbTable if it is a database's)",
            )),
        }
    }
}

impl Inner {
    /// The error of a defect in data block `i`.
    #[cold]
    fn locate(&self, i: usize, defect: Defect) -> Error {
        let error = defect.locate(Section::Data, self.index.handle(i).offset);
        self.file.name_in(error)
    }

    /// The one data block that may hold `key`, by filter and index: no I/O.
    ///
    /// A filter of the whole table is asked first: most absent keys then cost nothing else.
    #[inline]
    fn candidate(&self, key: &[u8]) -> Option<usize> {
        let seek = || self.index.seek(key, &self.order);
        match &self.filter {
            None => seek(),
            Some(filter) if filter.whole_table => self.passes(filter, 0, key).then(seek)?,
            Some(filter) => seek().filter(|&i| {
                let offset = self.index.handle(i).offset;
                self.passes(filter, offset, key)
            }),
        }
    }

    #[inline]
    fn passes(&self, filter: &TableFilter, block_offset: u64, key: &[u8]) -> bool {
        let passes = filter
            .block
            .key_may_match(&*filter.policy, block_offset, key);
        self.file.counters.add(
            match passes {
                true => Counter::FilterPassed,
                false => Counter::FilterRejected,
            },
            1,
        );
        passes
    }

    /// Data block `i`, from memory, the cache or the source: checked when it comes in.
    #[inline]
    fn fetch_block(&self, i: usize, read: ReadOptions) -> Result<Fetched<'_>> {
        if let Some(handle) = self.index.sound_handle(i)
            && let Some(block) = self.borrow_block(handle)
        {
            return Ok(block);
        }
        let cached = self.cache.as_ref().and_then(|cache| cache.get(self.key(i)));
        match cached {
            Some(block) => {
                self.file.counters.add(Counter::CacheHits, 1);
                Ok(Fetched::whole(block))
            }
            None => self.admit_block(i, read).map(Fetched::whole),
        }
    }

    /// Data block `i` from the source, checked, and remembered: by a bit if it can be used where it lies in
    /// memory, else in the cache.
    fn admit_block(&self, i: usize, read: ReadOptions) -> Result<Bytes> {
        let frame = self.file.read_frame(self.index.handle(i))?;
        let block = check_frame(&frame, read)
            .and_then(|()| frame::open(&frame))
            .and_then(|block| self.check_block(i, &block).map(|()| block))
            .map_err(|defect| self.locate(i, defect))?;
        if self.file.is_memory() && frame::is_raw(&frame) {
            if read.verify_checksums {
                self.index.set_sound(i);
            }
        } else if let Some(cache) = &self.cache {
            self.file.counters.add(Counter::CacheMisses, 1);
            if read.fill_cache && read.verify_checksums {
                cache.insert(self.key(i), block.clone());
            }
        }
        Ok(block)
    }

    fn check_block(&self, i: usize, payload: &[u8]) -> Result<(), Defect> {
        let block = Block::parse(payload)?;
        block.check_restarts()?;
        if let Order::Bytewise = self.order {
            self.index.see_parts(i, &block);
        }
        Ok(())
    }

    /// The name of data block `i` in the cache.
    fn key(&self, i: usize) -> BlockKey {
        BlockKey {
            table: self.id,
            offset: self.index.handle(i).offset,
        }
    }

    /// The data block at `handle`, which is raw, where it lies in memory.
    #[inline]
    fn borrow_block(&self, handle: BlockHandle) -> Option<Fetched<'_>> {
        let file = self.file.memory()?;
        // Both fit: the index holds only handles that end inside the file.
        let start = handle.offset as usize;
        Some(Fetched {
            bytes: Cow::Borrowed(file),
            range: start..start + handle.size as usize,
        })
    }
}

fn check_frame(frame: &[u8], read: ReadOptions) -> Result<(), Defect> {
    match read.verify_checksums {
        true => frame::verify(frame),
        false => Ok(()),
    }
}

/// A data block where it lies: in the memory of the whole file, or in bytes of its own.
#[derive(Clone)]
struct Fetched<'a> {
    bytes: Cow<'a, Bytes>,
    range: Range<usize>,
}

impl Fetched<'_> {
    fn whole(block: Bytes) -> Fetched<'static> {
        Fetched {
            range: 0..block.len(),
            bytes: Cow::Owned(block),
        }
    }

    #[inline]
    fn payload(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }

    #[inline]
    fn slice(&self, range: Range<usize>) -> &[u8] {
        self.payload().get(range).unwrap_or_default()
    }

    fn bytes_at(&self, range: Range<usize>) -> Bytes {
        let start = self.range.start;
        self.bytes.slice(start + range.start..start + range.end)
    }

    /// The bytes at `range` of the payload, which lies inside it.
    #[inline]
    fn into_bytes(self, range: Range<usize>) -> Bytes {
        let start = self.range.start;
        let range = start + range.start..start + range.end;
        match self.bytes {
            Cow::Borrowed(bytes) => bytes.slice(range),
            Cow::Owned(mut bytes) => {
                // Cut to size rather than sliced: the reference count stays as it is.
                bytes.truncate(range.end);
                bytes.advance(range.start);
                bytes
            }
        }
    }

    fn into_payload(self) -> Bytes {
        let len = self.range.len();
        self.into_bytes(0..len)
    }
}
