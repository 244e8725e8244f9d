//! An open remote table.

use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;

use super::fetch::{Fetcher, REQUEST_LAYERS};
use super::range::AsyncRange;
use crate::comparator::Order;
use crate::error::{Error, Result};
use crate::filter::FilterEntry;
use crate::format::properties::Properties;
use crate::read::open::open_file;
use crate::read::open::options::OpenOptions;
use crate::read::parts::bounds::KeyRange;
use crate::read::parts::index::Found;
use crate::read::source::async_read_at::{AsyncReadAt, Tail};
use crate::read::source::file::{FileSlice, TAIL_LEN, TableFile};
use crate::read::source::stats::Stats;
use crate::read::source::{Source, SourceBytes};
use crate::read::store::{ReadOptions, whole};
#[cfg(doc)]
use crate::read::table::Table;
use crate::read::table::approximate::{bytes_within, key_at};
use crate::read::table::get_many::{Lookups, Values, blocks_of, sort_by_block};
use crate::read::table::lookup::find_value;
use crate::read::table::splits::splits_by_blocks;
use crate::read::table::table_cache::OpenTable;
use crate::read::walk::range::prefix_range;

/// An open table whose blocks are fetched from an [`AsyncReadAt`]: the asynchronous counterpart of [`Table`].
///
/// Clones are cheap and share everything; lookups and batches also share requests in flight. Memory and cache are as for a
/// [`Table`], except that the cache takes every block that a lookup fetched. The [module](crate::remote) says how many requests
/// a call makes.
#[derive(Debug, Clone)]
pub struct AsyncTable(Fetcher);

impl OpenTable for AsyncTable {
    fn weight(&self) -> usize {
        AsyncTable::weight(self)
    }
}

impl OpenOptions {
    /// Opens a remote table.
    ///
    /// Requests the last `tail_len` bytes, 64 KiB if it is `None`: one request for a table of this crate, of any size. For another
    /// writer's, it then requests the missing part of metaindex and index. [`AsyncTable::tail_len`] returns how many bytes include
    /// all of index and filters. With [`check_order`](OpenOptions::check_order), the whole table is fetched and checked.
    ///
    /// # Errors
    ///
    /// Same as [`open`](OpenOptions::open), and [`ErrorKind::Replaced`](crate::ErrorKind::Replaced).
    pub fn open_async<S: AsyncReadAt + 'static>(
        &self,
        source: S,
        tail_len: Option<u64>,
    ) -> impl Future<Output = Result<AsyncTable>> + Send + use<S> {
        let tail_len = tail_len.unwrap_or(TAIL_LEN);
        self.clone().open_dyn(Arc::new(source), tail_len)
    }

    async fn open_dyn(self, remote: Arc<dyn AsyncReadAt>, tail_len: u64) -> Result<AsyncTable> {
        let mut source = Source::of(SourceBytes::Remote(Arc::clone(&remote)));
        source.path = remote.name().map(|name| Path::new(&name).into());
        let failed = |error| {
            let doing = format!("reading the last {tail_len} bytes");
            Error::reading(doing, error).in_file(source.name())
        };
        let Tail { size, bytes } = remote.read_tail(tail_len).await.map_err(failed)?;
        let len = bytes.len();
        if len as u64 != size.min(tail_len) {
            let why = format!("the source returned {len} bytes, and a size of {size}");
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        let mut file = TableFile::new(source, size);
        let offset = size - len as u64;
        file.count_reads(&[(offset, len)]);
        file.fetched.push(FileSlice { offset, bytes });
        let table = open_file(&self.settings, file).await?;
        Ok(AsyncTable(Fetcher::new(table, remote)))
    }
}

impl AsyncTable {
    /// Opens a table with [`OpenOptions::new`]; see [`OpenOptions::open_async`].
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open_async`].
    pub async fn open(source: impl AsyncReadAt + 'static) -> Result<AsyncTable> {
        OpenOptions::new().open_async(source, None).await
    }

    /// Returns the same table, read with `options`: a cheap clone; see [`Table::with_read_options`].
    pub fn with_read_options(&self, options: ReadOptions) -> AsyncTable {
        let mut fetcher = self.0.clone();
        fetcher.table = fetcher.table.with_read_options(options);
        AsyncTable(fetcher)
    }

    /// Returns the value of `key`, or `None` if the table does not hold it: none or one request.
    ///
    /// The value is a slice of its block and keeps the whole block in memory while it lives.
    ///
    /// # Errors
    ///
    /// Same as [`Table::get`], and [`ErrorKind::Replaced`](crate::ErrorKind::Replaced).
    pub async fn get(&self, key: impl AsRef<[u8]> + Send) -> Result<Option<Bytes>> {
        let (key, order) = (key.as_ref(), self.0.table.order()?);
        self.0.table.opened.check_form(key, order)?;
        let Some(found) = self.candidate(key, order).await? else {
            return Ok(None);
        };
        let (found, part) = (found.to_ref(), found.part());
        let block = self.0.fetch_block(found).await?;
        let value = find_value(whole(&block), key, order, part);
        let value = value.map_err(|defect| self.0.table.opened.store.locate(found, defect))?;
        Ok(value.map(|value| block.slice(value)))
    }

    /// Returns the values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// Blocks near each other are fetched by one request, and up to 32 requests are in flight. Takes some 80 bytes per key
    /// while it runs, and at most 256 MiB for requests in flight, 32 of 8 MiB, if so many adjacent blocks are wanted;
    /// decompressed blocks take more.
    ///
    /// # Errors
    ///
    /// Same as [`get`](AsyncTable::get); if a block cannot be read, no value is returned.
    pub async fn get_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let (mut lookups, mut wanted) = (Lookups::new(&self.0.table.opened, keys)?, Vec::new());
        self.0
            .ask(|| lookups.ask(REQUEST_LAYERS, |some| wanted.extend(some)))
            .await?;
        sort_by_block(&mut wanted);
        let of_blocks = blocks_of(&wanted).map(|(found, keys)| (found.to_ref(), keys));
        let (blocks, of_blocks): (Vec<_>, Vec<_>) = of_blocks.unzip();
        let mut found = Values::new(&self.0.table.opened, keys.len());
        let mut arriving = self.0.fetch_blocks(&blocks);
        while let Some((i, block)) = arriving.try_next().await? {
            let mut keys = of_blocks.get(i).into_iter().copied().flatten();
            keys.try_for_each(|wanted| found.search(wanted, whole(&block)))?;
        }
        Ok(found.values)
    }

    /// Whether the table may hold `key`, according to filter and index alone: only requests pieces of these that are not loaded
    /// yet. See [`Table::may_contain`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::may_contain`].
    pub async fn may_contain(&self, key: impl AsRef<[u8]> + Send) -> Result<bool> {
        let Ok(order) = self.0.table.order() else {
            return Ok(true);
        };
        Ok(self.candidate(key.as_ref(), order).await?.is_some())
    }

    /// The only data block to look for `key` in; `None` if filter and index exclude the key.
    async fn candidate(&self, key: &[u8], order: &Order) -> Result<Option<Found<'_>>> {
        let opened = &self.0.table.opened;
        let candidate = || opened.ask_candidate(key, order, REQUEST_LAYERS);
        self.0.ask(candidate).await
    }

    /// The entries whose keys are within `bounds`, in order. Reads nothing if a filter of prefixes excludes them; see
    /// [`Table::range`].
    pub fn range(&self, bounds: impl KeyRange) -> AsyncRange {
        AsyncRange::new(&self.0, bounds.key_bounds(), None)
    }

    /// The entries whose keys begin with `prefix`, in order; see [`Table::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> AsyncRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](AsyncTable::prefix) at or after `start`; see [`Table::prefix_from`].
    pub fn prefix_from(
        &self,
        prefix: impl AsRef<[u8]>,
        start: Bound<impl AsRef<[u8]>>,
    ) -> AsyncRange {
        let order = self.0.table.order().ok();
        let (bounds, error) = prefix_range(order, prefix.as_ref(), start);
        AsyncRange::new(&self.0, bounds, error)
    }

    /// Bounds of about `n` parts of the table with about as many bytes each; see [`Table::splits`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::splits`].
    pub async fn splits(&self, n: usize) -> Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        let parts = &self.0.table.opened.parts;
        if self.0.table.order().is_ok() && splits_by_blocks(&parts.index, n) {
            let all = parts.index_parts(0..parts.index.len());
            self.0.read_parts(all).await?;
        }
        self.0.table.splits(n)
    }

    /// Approximately how many bytes the entries within `bounds` take, according to the index alone: at most one request; see
    /// [`Table::approximate_bytes`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::approximate_bytes`].
    pub async fn approximate_bytes(&self, bounds: impl KeyRange + Send) -> Result<u64> {
        let (bounds, parts) = (bounds.key_bounds(), &self.0.table.opened.parts);
        let order = self.0.table.order_of(&bounds)?;
        self.0.ask(|| bytes_within(parts, &bounds, order)).await
    }

    /// A key before which about `fraction` of the bytes of all entries lie, according to the index alone: at most one
    /// request; see [`Table::key_at_fraction`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::key_at_fraction`].
    pub async fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let parts = &self.0.table.opened.parts;
        self.0.ask(|| key_at(parts, fraction)).await
    }

    /// The table's own description; see [`Table::properties`].
    pub fn properties(&self) -> Option<&Properties> {
        self.0.table.properties()
    }

    /// Number of entries, as recorded in its properties; see [`Table::entries`].
    pub fn entries(&self) -> Option<u64> {
        self.0.table.entries()
    }

    /// The filter in use; see [`Table::filter`].
    pub fn filter(&self) -> Option<&FilterEntry> {
        self.0.table.filter()
    }

    /// Counters of the table's work so far, opening included; see [`Table::stats`]. A request is one read.
    pub fn stats(&self) -> Stats {
        self.0.table.stats()
    }

    /// Size of the file in bytes; see [`Table::file_bytes`].
    pub fn file_bytes(&self) -> u64 {
        self.0.table.file_bytes()
    }

    /// Bytes of memory that the table takes, apart from cached blocks; see [`Table::weight`].
    pub fn weight(&self) -> usize {
        self.0.table.weight()
    }

    /// Number of bytes at the end of the file that include all that opening needs, for [`OpenOptions::open_async`]: those after the last
    /// data block, or all of a file of up to 64 KiB, whose keys are checked then.
    pub fn tail_len(&self) -> u64 {
        let (size, index) = (self.0.table.file_bytes(), &self.0.table.opened.parts.index);
        match index.pieces().checked_sub(1) {
            // The last handle may not have been checked yet.
            Some(last) if size > TAIL_LEN => size.saturating_sub(index.data_end(last)),
            _ => size,
        }
    }
}
