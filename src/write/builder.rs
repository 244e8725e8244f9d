//! The write path, in the file's order: `add -> flush_block -> frame::seal -> write_all`, then `finish` (`finish.rs`).

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::comparator::{Order, common_prefix};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::block::{Block, BlockBuilder};
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockBuilder;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::prefix_block::PrefixBlockBuilder;
use crate::format::properties::{KeyKind, Properties};
use crate::sorted_input::SortedInput;
use crate::write::align::Pages;
use crate::write::finish::Tail;
use crate::write::new_file::{Destination, NewFile};
#[cfg(doc)]
use crate::write::options::WriteOptions;
use crate::write::output::{Output, too_large};
use crate::write::settings::Settings;
use crate::write::summary::Summary;

/// Writes a table: [`add`](TableBuilder::add) every entry in order, then
/// [`finish`](TableBuilder::finish).
///
/// Memory is constant, except for the index (a key and a handle for each data block) and the filter policy's data for
/// each key.
///
/// A builder that is dropped before `finish`, or that failed, publishes nothing: a file at its path stays as it was.
///
/// ```
/// use leveltable::{Table, TableBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("fruit.ldb");
/// let mut builder = TableBuilder::create(&path)?;
/// builder.add("apple", "red")?;
/// builder.add("banana", "yellow")?;
/// let summary = builder.finish()?;
/// assert_eq!(summary.properties.entries, 2);
///
/// assert_eq!(Table::open(&path)?.get(b"banana")?.as_deref(), Some(&b"yellow"[..]));
/// # Ok::<(), leveltable::Error>(())
/// ```
#[must_use = "there is no table until `finish`"]
pub struct TableBuilder<D: Destination> {
    file: Output<D>,
    data: BlockBuilder,
    index: BlockBuilder,
    filter: Option<FilterBlockBuilder>,
    prefixes: Option<PrefixBlockBuilder>,
    /// The last data block, until the next key is known: the index key between them may be shorter than either.
    pending: Option<BlockHandle>,
    pub(crate) settings: Settings,
    /// Decides where blocks end and begin in an aligned table.
    pages: Option<Pages>,
    pub(crate) summary: Summary,
}

/// Shows only the progress: blocks are too long to print.
impl<D: Destination> fmt::Debug for TableBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableBuilder")
            .field("entries", &self.entries())
            .field("file_bytes", &self.file_bytes())
            .finish_non_exhaustive()
    }
}

impl TableBuilder<NewFile> {
    /// Starts a table at `path` with [`WriteOptions::new`]. LevelDB reads such a table and ignores its filter: for tables that LevelDB
    /// looks keys up in, use [`WriteOptions::leveldb()`](WriteOptions::leveldb)`.create(path)`.
    ///
    /// The table appears when it is finished; see [`WriteOptions::create`].
    ///
    /// # Errors
    ///
    /// Same as [`WriteOptions::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<TableBuilder<NewFile>> {
        TableBuilder::create_with(&Settings::new(), path.as_ref())
    }

    pub(super) fn create_with(settings: &Settings, path: &Path) -> Result<TableBuilder<NewFile>> {
        settings
            .check()
            .map_err(|why| Error::new(ErrorKind::InvalidState, why))?;
        let file = NewFile::create(path, settings)?;
        Ok(TableBuilder::new(settings, file, Some(path.to_owned())))
    }

    /// The path of the table's bytes until [`finish`](TableBuilder::finish). A program that may be ended by a signal
    /// removes this file itself, since nothing is dropped then.
    pub fn temporary_path(&self) -> &Path {
        self.file.destination.temporary.path()
    }
}

impl<W: io::Write> TableBuilder<W> {
    /// Like [`finish`](TableBuilder::finish), but returns the writer as well.
    ///
    /// ```
    /// # use leveltable::WriteOptions;
    /// let mut builder = WriteOptions::new().build(Vec::new());
    /// builder.add("key", "value")?;
    /// let (file, summary) = builder.finish_into_writer()?;
    /// assert_eq!(file.len() as u64, summary.file_bytes);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`finish`](TableBuilder::finish); the writer is then dropped.
    pub fn finish_into_writer(self) -> Result<(W, Summary)> {
        self.complete()
    }
}

impl<D: Destination> TableBuilder<D> {
    /// A builder of the table at `path`, if that is known. If a setting is out of its range, every call fails.
    pub(super) fn new(settings: &Settings, destination: D, path: Option<PathBuf>) -> Self {
        TableBuilder {
            file: Output::new(
                destination,
                path,
                settings.compressor(),
                settings.check().err(),
            ),
            data: BlockBuilder::new(settings.restart_interval),
            index: BlockBuilder::new(1),
            filter: settings.filter_builder(),
            prefixes: settings.prefixes.clone().map(PrefixBlockBuilder::new),
            pending: None,
            pages: settings
                .block_align
                .then(|| Pages::new(settings.block_size)),
            summary: Summary {
                properties: Properties::of_order(&settings.order),
                ..Summary::default()
            },
            settings: settings.clone(),
        }
    }

    /// Adds an entry. Keys come in ascending order, each once.
    ///
    /// Copies both into the current block; only allocates while the block and the index grow. A full block is compressed, and once
    /// 256 KiB are buffered, they are written.
    ///
    /// # Errors
    ///
    /// After these, nothing has changed, and the builder can be used further:
    /// - [`ErrorKind::OutOfOrder`]: `key` does not come after the previous one.
    /// - [`ErrorKind::TooLarge`]: the entry does not fit into a block, whose offsets have 32 bits.
    /// - [`ErrorKind::Comparator`]: the comparator made a separator that does not separate.
    /// - [`ErrorKind::InvalidState`]: the key shows that the prefix extractor breaks
    ///   [its rule](crate::filter::PrefixExtractor#the-one-rule).
    ///
    /// After these, every further call fails:
    /// - [`ErrorKind::Io`]: a block could not be compressed or written.
    /// - [`ErrorKind::TooLarge`]: the index has reached 4 GiB.
    /// - [`ErrorKind::InvalidState`]: an earlier call failed in this way, or an option is out of its range.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_entry(key.as_ref(), value.as_ref())
    }

    fn add_entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.file.check()?;
        // Everything that can reject the entry comes before any change to the table.
        let shared = self.check_order(key)?;
        let ends_block = self.ends_block_before(key, shared, value)?;
        let begins_block = ends_block || self.pending.is_some();
        let separator = begins_block.then(|| self.separator(Some(key)));
        let separator = separator.transpose()?;
        if let Some(prefixes) = &mut self.prefixes {
            let order = &self.settings.order;
            let previous = (self.summary.properties.entries > 0).then_some(&self.data.last_key);
            let previous = previous.map(|previous| order.filter_key(previous));
            if !prefixes.add_key(previous, order.filter_key(key)) {
                return Err(self.breaks_rule(key));
            }
        }
        if ends_block {
            self.flush_block()?;
        }
        if let Some(separator) = separator {
            self.add_index_entry(&separator)?;
        }
        if let (Some(filter), None) = (&mut self.filter, &self.pages) {
            filter.add_key(self.settings.order.filter_key(key));
        }
        self.data.add(key, shared, value);
        self.summary.properties.add(key, value);
        let is_full = match &self.pages {
            None => self.data.len() >= self.settings.block_size,
            Some(pages) => pages.end_after(self.file.offset(), self.data.len()),
        };
        if is_full {
            self.flush_block()?;
        }
        Ok(())
    }

    /// Adds all entries of a source: a map, a range or a merge of tables, what a [`Sorter`](crate::Sorter) returns.
    ///
    /// Costs an [`add`](TableBuilder::add) for each entry; the source lends key and value. In C++ LevelDB, a program loops over an
    /// `Iterator`.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, SortedEntries, Table, WriteOptions};
    /// # use std::collections::BTreeMap;
    /// let map = BTreeMap::from([("apple", "red"), ("banana", "yellow")]);
    /// let mut builder = WriteOptions::new().build(Vec::new());
    /// builder.extend(SortedEntries::new(&map))?;
    /// let (file, summary) = builder.finish_into_writer()?;
    /// assert_eq!(summary.properties.entries, 2);
    ///
    /// let table = OpenOptions::new().open_source(file)?;
    /// let mut copy = WriteOptions::new().build(Vec::new());
    /// copy.extend(table.range("b"..))?;
    /// assert_eq!(copy.entries(), 1);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the source, and of [`add`](TableBuilder::add). The entries before the error have been added.
    pub fn extend(&mut self, mut source: impl SortedInput) -> Result<()> {
        while source.advance()? {
            self.add_entry(source.key(), source.value())?;
        }
        Ok(())
    }

    /// Ends the current data block, so that the next entry starts a new one: for entries that belong together. Does
    /// nothing if the block has no entries.
    ///
    /// Does not flush the destination: the block may be buffered until there are enough bytes for a large write.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]; every further call then fails.
    pub fn flush(&mut self) -> Result<()> {
        self.file.check()?;
        self.flush_block()
    }

    /// Stores `value` under `name` in the properties block, which [`finish`](TableBuilder::finish) writes. A repeated
    /// name replaces the value.
    ///
    /// ```
    /// # use leveltable::WriteOptions;
    /// let mut builder = WriteOptions::new().build(Vec::new());
    /// builder.add("key", "value")?;
    /// builder.property("schema", "v3")?;
    /// builder.finish()?;
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Nothing has changed after
    /// - [`ErrorKind::InvalidState`]: the table gets [no properties](WriteOptions::properties).
    /// - [`ErrorKind::TooLarge`]: all names and values set so far would take more than 16 MiB. Opening a table reads them.
    pub fn property(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        if !self.settings.properties {
            let why = "this table gets no properties: WriteOptions::properties(false), as in WriteOptions::leveldb()";
            return Err(Error::new(ErrorKind::InvalidState, why));
        }
        self.summary.properties.set_user(name, value.as_ref())
    }

    /// Writes the last data block, and everything after the data: index, filters, properties and the footer. Publishes a file
    /// made with [`create`](WriteOptions::create): syncs it, renames it to its path, then syncs the directory.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Io`].
    /// - [`ErrorKind::TooLarge`] if the filters or the index reach 4 GiB.
    /// - [`ErrorKind::Comparator`] if the comparator made an index key that comes before the last key.
    /// - [`ErrorKind::InvalidState`] after an earlier failure, or if an option is out of its range.
    ///
    /// The path is then as it was. The exception is a directory that could not be synced, which the error says: the table is
    /// complete and at its path, but its name may not survive a crash. A file system that cannot sync directories is not an
    /// error.
    pub fn finish(self) -> Result<Summary> {
        Ok(self.complete()?.1)
    }

    /// Number of entries added so far. [`finish`](TableBuilder::finish) returns it as well.
    pub fn entries(&self) -> u64 {
        self.summary.properties.entries
    }

    /// Bytes of the file so far: the finished data blocks. Use it, with [`entries`](TableBuilder::entries), to decide when a table is large
    /// enough.
    pub fn file_bytes(&self) -> u64 {
        self.file.offset()
    }

    fn complete(mut self) -> Result<(D::Published, Summary)> {
        self.flush()?;
        if self.entries() > 0 {
            let successor = self.separator(None)?;
            self.add_index_entry(&successor)?;
            self.summary.properties.last_key = Some(self.data.last_key);
        }
        let (tail, summary) = (Tail::new(&mut self.file, self.index), &mut self.summary);
        tail.write(&self.settings, self.prefixes, self.filter, summary)?;
        Ok((self.file.publish()?, self.summary))
    }

    /// Takes codec and filter from the settings, which have changed. A table with entries keeps its filter.
    pub(crate) fn restyle(&mut self) {
        self.file.compressor = self.settings.compressor();
        if self.entries() == 0 {
            self.filter = self.settings.filter_builder();
        }
    }

    /// Checks that `key` comes after the last one; returns the length of their common prefix.
    #[inline]
    fn check_order(&self, key: &[u8]) -> Result<usize> {
        if self.entries() == 0 {
            return Ok(0);
        }
        let last = &self.data.last_key;
        let shared = common_prefix(last, key);
        let ascends = match &self.settings.order {
            // The next byte decides; a key that ends here comes first.
            Order::Bytewise => last.get(shared) < key.get(shared),
            Order::Custom(comparator) => comparator.compare(last, key) == Ordering::Less,
        };
        if ascends {
            Ok(shared)
        } else {
            Err(self.out_of_order(key))
        }
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let last = &self.data.last_key;
        let how = match self.settings.order.compare(last, key) {
            Ordering::Equal => "repeats",
            _ => "comes before",
        };
        let rule = if self.summary.properties.key_kind == KeyKind::Database {
            "user keys ascend, and the versions of each go from the newest to the oldest".into()
        } else {
            let order = self.settings.order.comparator().name();
            format!("keys ascend in the order {order:?}")
        };
        let message = format!(
            "key {} {how} {}, the last one added: {rule}",
            self.settings.order.describe_key(key),
            self.settings.order.describe_key(last)
        );
        Error::new(ErrorKind::OutOfOrder, message).in_file(self.file.path.as_deref())
    }

    /// Whether the current block must end before the entry, which would not fit into it or, in an aligned table, into
    /// its pages.
    #[inline]
    fn ends_block_before(&self, key: &[u8], shared: usize, value: &[u8]) -> Result<bool> {
        let (key_len, value_len) = (key.len(), value.len());
        if !self.data.has_room(key_len, value_len) {
            if BlockBuilder::new(1).has_room(key_len, value_len) {
                return Ok(true);
            }
            // The entry does not even fit into an empty block.
            let what = format!("a key of {key_len} and a value of {value_len} bytes do");
            return Err(too_large(&what));
        }
        let Some(pages) = self.pages.as_ref().filter(|_| !self.data.is_empty()) else {
            return Ok(false);
        };
        let longer = self.data.len_with(key_len, shared, value_len);
        Ok(pages.end_before(self.file.offset(), self.data.len(), longer))
    }

    /// A key at or after the last one and before `next`, as short as the comparator makes it.
    ///
    /// Checked, because a wrong one would hide keys.
    #[inline(never)]
    fn separator(&self, next: Option<&[u8]>) -> Result<Vec<u8>> {
        let (order, last) = (&self.settings.order, &self.data.last_key);
        let comparator = order.comparator();
        let mut key = last.to_vec();
        match next {
            Some(next) => comparator.find_shortest_separator(&mut key, next),
            None => comparator.find_short_successor(&mut key),
        }
        let separates = order.compare(last, &key) != Ordering::Greater
            && next.is_none_or(|next| order.compare(&key, next) == Ordering::Less);
        if separates {
            return Ok(key);
        }
        let message = format!(
            "comparator {:?} made {}, which does not lie between {} and {}",
            comparator.name(),
            order.describe_key(&key),
            order.describe_key(last),
            next.map_or("the end".into(), |next| order.describe_key(next))
        );
        Err(Error::new(ErrorKind::Comparator, message))
    }

    /// Adds the index entry of the last data block, if it is still pending.
    #[inline(never)]
    fn add_index_entry(&mut self, separator: &[u8]) -> Result<()> {
        let Some(handle) = self.pending.take() else {
            return Ok(());
        };
        if !self.index.has_room(separator.len(), BlockHandle::MAX_LEN) {
            return Err(self.file.stop(too_large("the index does")));
        }
        self.index.add(separator, 0, &handle.encode());
        Ok(())
    }

    #[inline(never)]
    fn flush_block(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let handle = self.data.finish(|block| {
            let handle = self.file.seal(block, false, self.pages.as_mut())?;
            if let (Some(filter), Some(_)) = (&mut self.filter, &self.pages) {
                // The block's offset, known only now, decides which filter its keys belong to.
                filter.start_block(handle.offset);
                let located = |defect: Defect| defect.locate(Section::Data, handle.offset);
                let mut cursor = BlockCursor::new(Block::parse(block).map_err(located)?);
                while cursor.next().map_err(located)? {
                    filter.add_key(self.settings.order.filter_key(cursor.key()));
                }
            }
            Ok::<_, Error>(handle)
        })?;
        self.pending = Some(handle);
        self.summary.properties.data_blocks += 1;
        self.summary.properties.data_bytes += handle.size + TRAILER_LEN as u64;
        if let (Some(filter), None) = (&mut self.filter, &self.pages) {
            filter.start_block(self.file.offset());
        }
        Ok(())
    }

    /// The error of a prefix extractor that breaks its rule at `key`.
    #[cold]
    fn breaks_rule(&self, key: &[u8]) -> Error {
        let extractor = self.settings.prefixes.as_ref();
        let why = format!(
            "the prefix extractor {:?} breaks its rule at the key {}: every key that begins with a prefix must have \
             that prefix",
            extractor.map_or("", |extractor| extractor.name()),
            self.settings.order.describe_key(key)
        );
        Error::new(ErrorKind::InvalidState, why)
    }
}
