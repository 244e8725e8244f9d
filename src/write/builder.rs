//! The write path, in the file's order: `add -> flush_block -> seal -> append`, then `finish`.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::filter::FilterPolicy;
use crate::format::block::BlockBuilder;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockBuilder, FilterBlockReader};
use crate::format::footer::{BlockHandle, Footer};
use crate::inspect::sample::AbsentKeys;
use crate::write::new_file::{Destination, NewFile};
use crate::write::options::WriteOptions;
use crate::write::output::Output;

/// Writes a table: [`add`](TableBuilder::add) every entry in order, then
/// [`finish`](TableBuilder::finish).
///
/// Memory is constant but for the index (a key and a handle for each data block) and what the filter
/// policy keeps of each key.
///
/// A builder that is dropped before `finish`, or that failed, publishes nothing: what was at the path
/// stays there.
///
/// ```
/// use leveltable::{Table, TableBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("fruit.ldb");
/// let mut builder = TableBuilder::create(&path)?;
/// builder.add(b"apple", b"red")?;
/// builder.add(b"banana", b"yellow")?;
/// let summary = builder.finish()?;
/// assert_eq!(summary.entries, 2);
///
/// assert_eq!(Table::open(&path)?.get(b"banana")?.as_deref(), Some(&b"yellow"[..]));
/// # Ok::<(), leveltable::Error>(())
/// ```
pub struct TableBuilder<D: Destination> {
    file: Output<D>,
    data: BlockBuilder,
    index: BlockBuilder,
    filter: Option<TableFilter>,
    /// The last data block, whose index entry waits for the key after it: the separator of the two
    /// may be shorter than either.
    pending: Option<BlockHandle>,
    order: Order,
    block_size: usize,
    restart_interval: usize,
    summary: Summary,
}

/// In a line: how far it has come.
impl<D: Destination> fmt::Debug for TableBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableBuilder")
            .field("entries", &self.entries())
            .field("file_bytes", &self.file_bytes())
            .finish_non_exhaustive()
    }
}

/// The filter under way, its policy, and what to measure it on.
struct TableFilter {
    policy: Arc<dyn FilterPolicy>,
    block: FilterBlockBuilder,
    absent: AbsentKeys,
}

/// What was written, answered by [`TableBuilder::finish`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of keys, as added.
    pub key_bytes: u64,
    /// Bytes of values, as added.
    pub value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of the data blocks in the file, compressed, with their trailers.
    pub data_bytes: u64,
    /// Bytes of the whole file.
    pub file_bytes: u64,
    /// The filter, where one was written.
    pub filter: Option<FilterSummary>,
}

/// What the filter of a table is and costs.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterSummary {
    /// Name of the filter policy, as in the metaindex.
    pub policy: String,
    /// Bytes of the filter block, everything in it counted: what a reader holds in memory.
    pub bytes: u64,
    /// `bytes` in bits, divided by the number of entries; 0 without entries.
    pub bits_per_key: f64,
    /// Share of absent keys that the filter lets pass, each of which costs a wasted read; measured on keys
    /// between the table's own that differ from them in a byte. `None` where none could be made.
    pub false_positive_rate: Option<f64>,
    /// Number of absent keys that the rate was measured on, up to 32 000.
    pub sampled_keys: u64,
}

impl FilterSummary {
    /// Measures the `filters` of a table of `entries` entries, a block of `bytes`, on `absent`.
    pub(crate) fn measure(
        policy: &dyn FilterPolicy,
        filters: &FilterBlockReader,
        bytes: u64,
        entries: u64,
        absent: &AbsentKeys,
    ) -> FilterSummary {
        let (sampled_keys, false_positive_rate) = absent.measure(policy, filters);
        FilterSummary {
            policy: policy.name().to_owned(),
            bytes,
            bits_per_key: match entries {
                0 => 0.0,
                entries => bytes as f64 * 8.0 / entries as f64,
            },
            false_positive_rate,
            sampled_keys,
        }
    }
}

impl WriteOptions {
    /// Starts a table that appears at `path` when it is finished: whole, synced to disk, in place of a
    /// file that was there, with ordinary permissions; or not at all. A symbolic link at `path` is replaced,
    /// not followed. A relative path is resolved now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] where no temporary file can be made in the directory of `path`, or where something is
    /// at `path` that is not to be [replaced](WriteOptions::replace_existing).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<TableBuilder<NewFile>> {
        let path = path.as_ref();
        let file = NewFile::create(path, self.replace)
            .map_err(|e| Error::io(format!("creating a table at {}", path.display()), e))?;
        Ok(self.build(file))
    }

    /// Starts a table that is written to `writer`, from its current position; offsets count from there.
    ///
    /// Takes any [`io::Write`](std::io::Write), `&mut Vec<u8>` included. Writes are large, so it need
    /// not be buffered. `finish` flushes it; syncing is the caller's business.
    pub fn build<D: Destination>(&self, writer: D) -> TableBuilder<D> {
        let filter = self.filter.clone().map(|policy| {
            let mut block = FilterBlockBuilder::new(policy.builder(), self.span);
            block.start_block(0);
            TableFilter {
                policy,
                block,
                absent: AbsentKeys::default(),
            }
        });
        TableBuilder {
            file: Output::new(writer, self.compression),
            data: BlockBuilder::new(self.restart_interval),
            index: BlockBuilder::new(1),
            filter,
            pending: None,
            order: self.order.clone(),
            block_size: self.block_size,
            restart_interval: self.restart_interval,
            summary: Summary::default(),
        }
    }
}

impl TableBuilder<NewFile> {
    /// Starts a table at `path` with [`WriteOptions::new`]; see [`WriteOptions::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<TableBuilder<NewFile>> {
        WriteOptions::new().create(path)
    }

    /// Where the table's bytes are until [`finish`](TableBuilder::finish): for a program that wants to remove
    /// them when a signal ends it, since nothing is dropped then.
    pub fn temporary_path(&self) -> &Path {
        self.file.destination.temporary_path()
    }
}

impl<D: Destination> TableBuilder<D> {
    /// Adds an entry. Keys come in ascending order, each once.
    ///
    /// # Errors
    ///
    /// Nothing is changed, and the builder can go on, after
    /// - [`ErrorKind::OutOfOrder`]: `key` does not come after the key before;
    /// - [`ErrorKind::TooLarge`]: the entry does not fit a block, whose offsets have 32 bits;
    /// - [`ErrorKind::Comparator`]: the comparator made a separator that does not separate.
    ///
    /// After [`ErrorKind::Io`] every further call fails; and after [`ErrorKind::TooLarge`] of the index, which then has
    /// 4 GiB: the table has become too large.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.file.check()?;
        let shared = self.check_order(key)?;
        self.make_room(key, value)?;
        if let Some(handle) = self.pending {
            self.add_index_entry(handle, Some(key))?;
        }
        if let Some(filter) = &mut self.filter {
            filter.block.add_key(self.order.filter_key(key));
            let n = self.summary.entries;
            if n > 0 {
                let (below, offset) = (self.data.last_key(), self.file.offset());
                filter.absent.offer(n, below, key, offset, &self.order);
            }
        }
        self.data.add(key, shared, value);
        self.summary.entries += 1;
        self.summary.key_bytes += key.len() as u64;
        self.summary.value_bytes += value.len() as u64;
        match self.data.len() >= self.block_size {
            true => self.flush_block(),
            false => Ok(()),
        }
    }

    /// Ends the data block under way, so that the next entry begins a new one. Without an entry in it,
    /// does nothing. For a writer whose entries belong together; `finish` does it by itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]; every further call then fails.
    pub fn flush(&mut self) -> Result<()> {
        self.file.check()?;
        self.flush_block()
    }

    /// Writes what is left, the filter, the metaindex, the index and the footer, and publishes a file
    /// made with [`create`](WriteOptions::create): synced, then renamed to its path, then the directory
    /// synced.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]; [`ErrorKind::TooLarge`] where filters or index take 4 GiB; [`ErrorKind::Comparator`] where the
    /// comparator made an index key that comes before the last key; [`ErrorKind::InvalidState`] after an earlier
    /// failure. The path is as it was, unless the error came from the last step (which it says): then the table is there
    /// whole, but may not survive a power cut.
    pub fn finish(mut self) -> Result<Summary> {
        self.flush()?;
        if let Some(handle) = self.pending {
            self.add_index_entry(handle, None)?;
        }
        let filter = self.write_filter()?;
        let metaindex = self.write_metaindex(filter)?;
        let index = self.index.finish(|block| self.file.seal(block))?;
        self.file.append_footer(Footer { metaindex, index });
        self.summary.file_bytes = self.file.offset();
        self.file.publish()?;
        Ok(self.summary)
    }

    /// Number of entries added so far.
    pub fn entries(&self) -> u64 {
        self.summary.entries
    }

    /// Bytes of the file so far: whole data blocks, not the one under way, nor what `finish` adds.
    pub fn file_bytes(&self) -> u64 {
        self.file.offset()
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Takes entries in the order in which they come, from the first on.
    pub(crate) fn keep_stored_order(&mut self) -> Result<()> {
        if self.summary.entries > 0 {
            return Err(Error::new(
                ErrorKind::InvalidState,
                "a builder that holds entries cannot change its order",
            ));
        }
        self.order = self.order.as_stored();
        Ok(())
    }

    /// Checks that `key` comes after the last; answers how many leading bytes the two share.
    #[inline]
    fn check_order(&self, key: &[u8]) -> Result<usize> {
        let previous = self.data.last_key();
        let shared = common_prefix(previous, key);
        let is_first = self.summary.entries == 0;
        let ascends = is_first
            || match &self.order {
                // The next byte decides, none coming before any.
                Order::Bytewise => previous.get(shared) < key.get(shared),
                Order::Custom(comparator) => comparator.compare(previous, key) == Ordering::Less,
            };
        match ascends {
            true => Ok(shared),
            false => Err(self.out_of_order(key)),
        }
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let how = match self.order.compare(self.data.last_key(), key) {
            Ordering::Equal => "repeats",
            _ => "comes before",
        };
        let message = format!(
            "key {} {how} {}, the last added, in the order {:?}",
            show_key(key),
            show_key(self.data.last_key()),
            self.order.comparator().name()
        );
        Error::new(ErrorKind::OutOfOrder, message)
    }

    /// Sees to it that the block under way can take the entry: ends one that is too full for it.
    #[inline]
    fn make_room(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.data.has_room(key.len(), value.len()) {
            true => Ok(()),
            false => self.end_full_block(key, value),
        }
    }

    #[cold]
    fn end_full_block(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if !BlockBuilder::new(1).has_room(key.len(), value.len()) {
            let (key_len, value_len) = (key.len(), value.len());
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "a key of {key_len} and a value of {value_len} bytes do not fit a block of 4 GiB"
                ),
            ));
        }
        self.flush_block()
    }

    /// Gives the last data block, at `handle`, its index entry, now that the key after it is known (or that there
    /// is none).
    #[inline(never)]
    fn add_index_entry(&mut self, handle: BlockHandle, next: Option<&[u8]>) -> Result<()> {
        let separator = separator(&self.order, self.data.last_key(), next)?;
        if !self.index.has_room(separator.len(), BlockHandle::MAX_LEN) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "the index does not fit a block of 4 GiB",
            ));
        }
        let mut value = Vec::with_capacity(BlockHandle::MAX_LEN);
        handle.encode(&mut value);
        let shared = common_prefix(self.index.last_key(), &separator);
        self.index.add(&separator, shared, &value);
        self.pending = None;
        Ok(())
    }

    #[inline(never)]
    fn flush_block(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let handle = self.data.finish(|block| self.file.seal(block))?;
        self.pending = Some(handle);
        self.summary.data_blocks += 1;
        self.summary.data_bytes = self.file.offset();
        if let Some(filter) = &mut self.filter {
            filter.block.start_block(self.file.offset());
        }
        Ok(())
    }

    /// Writes the filter block; answers the metaindex entry that finds it.
    fn write_filter(&mut self) -> Result<Option<(Vec<u8>, BlockHandle)>> {
        let Some(TableFilter {
            policy,
            block,
            absent,
        }) = self.filter.take()
        else {
            return Ok(None);
        };
        let name = policy.name();
        let Some(contents) = block.finish().map(Bytes::from) else {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the filters of {name:?} do not fit a block of 4 GiB"),
            ));
        };
        let handle = self.file.seal_raw(&contents)?;
        let bytes = contents.len() as u64;
        self.summary.filter = FilterBlockReader::new(contents).ok().map(|filters| {
            FilterSummary::measure(&*policy, &filters, bytes, self.summary.entries, &absent)
        });
        Ok(Some(([FILTER_PREFIX, name.as_bytes()].concat(), handle)))
    }

    fn write_metaindex(&mut self, entry: Option<(Vec<u8>, BlockHandle)>) -> Result<BlockHandle> {
        let mut metaindex = BlockBuilder::new(self.restart_interval);
        if let Some((name, handle)) = entry {
            let mut value = Vec::new();
            handle.encode(&mut value);
            metaindex.add(&name, 0, &value);
        }
        metaindex.finish(|block| self.file.seal(block))
    }
}

/// A key at or after `last` and before `next`, as short as the comparator makes it; checked, since a
/// wrong one would hide keys.
fn separator(order: &Order, last: &[u8], next: Option<&[u8]>) -> Result<Vec<u8>> {
    let comparator = order.comparator();
    let mut key = last.to_vec();
    match next {
        Some(next) => comparator.find_shortest_separator(&mut key, next),
        None => comparator.find_short_successor(&mut key),
    }
    let separates = order.compare(last, &key) != Ordering::Greater
        && next.is_none_or(|next| order.compare(&key, next) == Ordering::Less);
    match separates {
        true => Ok(key),
        false => Err(Error::new(
            ErrorKind::Comparator,
            format!(
                "comparator {:?} made {}, which does not lie between {} and {}",
                comparator.name(),
                show_key(&key),
                show_key(last),
                next.map_or("the end".into(), show_key)
            ),
        )),
    }
}
