//! Options for opening and reading a table, and opening with them.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::open_file;
use super::settings::Settings;
use crate::comparator::{Comparator, Order};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::read::source::file::TableFile;
use crate::read::source::{ReadAt, Source};
use crate::read::store::ReadOptions;
use crate::read::store::cache::BlockCache;
use crate::read::table::Table;

/// Options for opening a table.
///
/// Options that are on or off take a `bool`. [`no_filter`](OpenOptions::no_filter) and [`no_cache`](OpenOptions::no_cache) switch off
/// a default; [`stored_order`](OpenOptions::stored_order) replaces a [`comparator`](OpenOptions::comparator).
///
/// ```no_run
/// use leveltable::{BlockCache, OpenOptions};
///
/// let table = OpenOptions::new().cache(BlockCache::new(64 << 20)).open("table.ldb")?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct OpenOptions {
    pub(crate) settings: Settings,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Bytewise order, the built-in filter policies, the shared cache of 32 MiB, checksums verified.
    pub fn new() -> OpenOptions {
        OpenOptions {
            settings: Settings::new(),
        }
    }

    /// The [order](Comparator) that the table was written in. The default is the bytewise one.
    ///
    /// Naming one, even the bytewise one, also says that the table is to be read as stored: a table that looks like a
    /// database's is then not rejected. Its filter, which holds user keys, is used only if the comparator [provides
    /// them](Comparator::filter_key), as [`InternalKeyComparator`](crate::db::InternalKeyComparator) does.
    ///
    /// A comparator with another order than the table's is an error as soon as this shows: when the index keys do not
    /// ascend, or the keys of a data block that is read for the first time. Until then, a key can be missed: see
    /// [`check_order`](OpenOptions::check_order).
    pub fn comparator(mut self, comparator: impl Comparator) -> OpenOptions {
        self.settings.order = Some(Order::of(comparator));
        self.settings.stored_order = false;
        self
    }

    /// Opens a table whose order is not known, to walk it in the order in which it is stored. Off by default.
    ///
    /// Cursors and ranges over all of it work in both directions; a range from one end only. Operations that compare keys
    /// return an error of [`ErrorKind::Comparator`](crate::ErrorKind::Comparator): lookups, seeks, and ranges with bounds.
    /// The filter is not read.
    pub fn stored_order(mut self) -> OpenOptions {
        self.settings.order = None;
        self.settings.stored_order = true;
        self
    }

    /// Whether opening reads the whole file to check that its keys are in the order that the table is opened in. `false` by
    /// default. Afterwards, every lookup returns the right answer or an error, whoever wrote the table and in whatever
    /// order.
    ///
    /// A table that records its order in its [properties](crate::Table::properties), as tables of this crate do by default, needs no such
    /// check: opening it with another comparator fails. For any other table, only what is read is checked: the index when the table is
    /// opened, each data block when it is first read, and a file of up to 64 KiB completely. **A larger table in another order than the
    /// assumed one can hide keys from lookups:** if its index ascends in the assumed order, and so do the blocks that lookups read,
    /// [`get`](crate::Table::get) returns `None` for a key in a block that it did not look in. The first block that shows the order is an
    /// error. This takes an order that rarely differs from the assumed one.
    ///
    /// `true` costs a read of all data blocks, up to 256 KiB in a read, and their decompression; lookups then check no order.
    /// Opening fails with [`ErrorKind::Comparator`](crate::ErrorKind::Comparator), and names two keys, if they are in another
    /// order; it also fails if a block cannot be read, is damaged, or has a codec that this build lacks, since its keys may be
    /// any. Filters are not checked; `verify` of the crate `leveltable-repair` does that. Has no effect together with
    /// [`stored_order`](OpenOptions::stored_order).
    pub fn check_order(mut self, yes: bool) -> OpenOptions {
        self.settings.check_order = yes;
        self
    }

    /// Whether opening reads and checks all of index and filters, so that damage in them is an error then, and no later lookup
    /// reads more than its data block. `false` by default: their pieces are read when they are first needed. It costs memory for all of
    /// both ([`Table::weight`](crate::Table::weight)).
    pub fn preload(mut self, yes: bool) -> OpenOptions {
        self.settings.preload = yes;
        self
    }

    /// Adds a [filter policy](FilterPolicy), which is found by its name. It replaces a built-in one of the same name, or one that was
    /// added before. If a table has filters of several policies, the one added first is used. By default, the ribbon filter of this
    /// crate and LevelDB's Bloom filter are known.
    pub fn filter_policy(mut self, policy: impl FilterPolicy + 'static) -> OpenOptions {
        self.settings
            .policies
            .retain(|other| other.name() != policy.name());
        self.settings.policies.push(Arc::new(policy));
        self
    }

    /// Adds an application's own prefix extractor. A [filter of prefixes](crate::WriteOptions::prefix_filter) that was
    /// written with an extractor of the same name is then used. The built-in extractors are known by default.
    pub fn prefix_extractor(mut self, extractor: impl PrefixExtractor + 'static) -> OpenOptions {
        self.settings.extractors.push(Arc::new(extractor));
        self
    }

    /// Opens without the filter; this also opens a table whose filter or metaindex block is damaged. Every lookup then
    /// fetches a data block. A filter of prefixes is not used either. By default, [`Table::filter`](crate::Table::filter)
    /// is used.
    pub fn no_filter(mut self) -> OpenOptions {
        self.settings.filters = false;
        self
    }

    /// Keeps blocks in `cache` instead of the shared one: every block that is read. (The [shared](BlockCache::shared) one keeps those
    /// of a file that fit in it or are asked for again.) The default is the shared one, of 32 MiB.
    pub fn cache(mut self, cache: BlockCache) -> OpenOptions {
        self.settings.cache = Some(cache);
        self.settings.chose_cache = true;
        self
    }

    /// Keeps no blocks: each lookup reads its block. By default, the [shared cache](BlockCache::shared) keeps some.
    pub fn no_cache(mut self) -> OpenOptions {
        self.settings.cache = None;
        self
    }

    /// Default for how lookups read; [`Table::with_read_options`](crate::Table::with_read_options) overrides it. The
    /// default is [`ReadOptions::new`].
    pub fn read(mut self, options: ReadOptions) -> OpenOptions {
        self.settings.read = options;
        self
    }

    /// Opens the table at `path`.
    ///
    /// Reads the last 64 KiB of the file. That is enough for a table of this crate of any size, unless its index keys are long, which
    /// takes a second read. Pieces of its index and filters are read when a lookup first needs them, unless
    /// [`preload`](OpenOptions::preload) is set. For a large table of another writer, it then reads metaindex and index; the filter
    /// is read when it is first needed. If nothing says what the table is and its index could be a database's, opening also reads its
    /// first data block. The order of keys is checked in the parts of the index that are read, and in all blocks of a file of up to
    /// 64 KiB. **A larger table that does not record its order, and whose order rarely differs from the assumed one, can hide keys:**
    /// a lookup returns `None` for a key that the table has, until a block that shows the order is read.
    /// [`check_order`](OpenOptions::check_order) rules that out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotATable`] for another kind of file, [`ErrorKind::Corruption`] for a damaged table (except for its data
    /// blocks, of which at most the first must be readable), [`ErrorKind::Comparator`], [`ErrorKind::DatabaseTable`],
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Table> {
        self.open_source(Source::open(path)?)
    }

    /// Opens a table from memory, an open file, or anything that implements [`ReadAt`].
    ///
    /// # Errors
    ///
    /// Same as [`open`](OpenOptions::open).
    pub fn open_source(&self, source: impl Into<Source>) -> Result<Table> {
        let source = source.into();
        let failed = |e| Error::io("asking for the table's size", e).in_file(source.name());
        let size = source.size().map_err(failed)?;
        ready(open_file(&self.settings, TableFile::new(source, size)))
    }
}

impl Table {
    /// Opens the table at `path` with [`OpenOptions::new`]; see [`OpenOptions::open`].
    ///
    /// **A table of more than 64 KiB that does not record its order can hide keys, if its order rarely differs from the bytewise one:**
    /// [`get`](Table::get) returns `None` for a key that the table has, until a block that shows the order is read.
    /// [`OpenOptions::check_order`] rules that out. Tables of this crate record their order, unless they are written without
    /// [properties](crate::WriteOptions::properties), as LevelDB's tables are.
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Table> {
        OpenOptions::new().open(path)
    }
}

/// Returns the result of `future`, which never waits: only requests are awaited, and there are none.
fn ready<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Error::new(
            ErrorKind::InvalidState,
            "reading a file waits, although nothing that it awaits does",
        )),
    }
}
