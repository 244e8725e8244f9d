//! How a table is written.

use std::sync::Arc;

use crate::comparator::{Comparator, Order};
use crate::filter::{BloomFilterPolicy, FilterPolicy, RibbonFilterPolicy};
use crate::format::codec::Compression;
use crate::format::filter_block::FilterSpan;

/// How a table is written.
///
/// [`new`](WriteOptions::new) gives the best that this crate has, which every LevelDB can read;
/// [`leveldb`](WriteOptions::leveldb) gives the very bytes that LevelDB writes.
///
/// ```
/// use leveltable::{Compression, WriteOptions};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new()
///     .compression(Compression::None)
///     .block_size(16 << 10)
///     .build(&mut file);
/// builder.add(b"key", b"value")?;
/// builder.finish()?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub(crate) block_size: usize,
    pub(crate) restart_interval: usize,
    pub(crate) compression: Compression,
    pub(crate) filter: Option<Arc<dyn FilterPolicy>>,
    pub(crate) span: FilterSpan,
    pub(crate) order: Order,
    pub(crate) replace: bool,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions::new()
    }
}

impl WriteOptions {
    /// Snappy, blocks of 4 KiB, a restart every 16 keys, and one [`RibbonFilterPolicy`] filter at 10 bits
    /// a key for the whole table: an eighth of the wasted reads of LevelDB's filter of the same size.
    ///
    /// LevelDB reads the table, but does not know the filter: its lookups then cost a read each. For
    /// tables that LevelDB itself looks keys up in, start from [`leveldb`](WriteOptions::leveldb).
    pub fn new() -> WriteOptions {
        WriteOptions {
            filter: Some(Arc::new(RibbonFilterPolicy::new(10))),
            span: FilterSpan::Table,
            ..WriteOptions::leveldb()
        }
    }

    /// What C++ LevelDB writes with Snappy and its Bloom filter at 10 bits a key: the same bytes, but
    /// for what `snap` and the C++ Snappy library compress differently. With
    /// [`Compression::None`], the same bytes to the last.
    pub fn leveldb() -> WriteOptions {
        WriteOptions {
            block_size: 4096,
            restart_interval: 16,
            compression: Compression::Snappy,
            filter: Some(Arc::new(BloomFilterPolicy::new(10))),
            span: FilterSpan::Window,
            order: Order::Bytewise,
            replace: true,
        }
    }

    /// Ends a data block when its uncompressed size reaches `bytes`. What one lookup reads, and what the
    /// cache keeps. At least 1, which gives a block to each entry.
    pub fn block_size(mut self, bytes: usize) -> WriteOptions {
        self.block_size = bytes;
        self
    }

    /// Stores every `keys`th key whole. Fewer make the file smaller and lookups slower. At least 1.
    pub fn restart_interval(mut self, keys: usize) -> WriteOptions {
        self.restart_interval = keys.max(1);
        self
    }

    /// How blocks are compressed.
    pub fn compression(mut self, compression: Compression) -> WriteOptions {
        self.compression = compression;
        self
    }

    /// Filters with `policy`. A reader uses the filter if it knows a policy of the same name.
    ///
    /// `policy` is given the keys of the table as they are stored, or in a database's table the user keys;
    /// with a comparator that calls different byte strings
    /// equal, it must [agree with it](Comparator#comparators-and-filters).
    pub fn filter_policy(mut self, policy: impl FilterPolicy + 'static) -> WriteOptions {
        self.filter = Some(Arc::new(policy));
        self
    }

    /// Writes no filter block.
    pub fn no_filter(mut self) -> WriteOptions {
        self.filter = None;
        self
    }

    /// With `true`, one filter covers the whole table; with `false`, there is one for each 2 KiB of file,
    /// as LevelDB writes them.
    ///
    /// One filter costs fewer bits (no filter is rounded up, and there is one offset), and a reader of
    /// this crate asks it before it searches the index. LevelDB reads such a table rightly, too, since the
    /// file says how many bytes a filter covers. The filter is made in memory at `finish`: until then the builder keeps 4
    /// bytes for each key ([`BloomFilterPolicy`]) or 8 ([`RibbonFilterPolicy`], and 17 while it finishes).
    ///
    /// Not for [`BloomFilterPolicy`] on large tables of keys with structure: of the absent numbers between a million
    /// decimal ones its 32-bit hash lets a seventh pass (`docs/filters.md`).
    pub fn whole_table_filter(mut self, yes: bool) -> WriteOptions {
        self.span = match yes {
            true => FilterSpan::Table,
            false => FilterSpan::Window,
        };
        self
    }

    /// Orders keys by `comparator` instead of by their bytes. Readers must use the same.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> WriteOptions {
        self.order = Order::of(comparator);
        self
    }

    /// Whether a table that is [created](WriteOptions::create) at a path takes the place of a file that is
    /// there. It does, unless told otherwise.
    ///
    /// With `false`, `create` refuses a path where something is, and `finish` one where something has
    /// appeared since: with an error whose [`source`](std::error::Error::source) is of the kind
    /// [`AlreadyExists`](std::io::ErrorKind::AlreadyExists). Nothing is ever replaced, whoever makes a file there
    /// at the same moment.
    pub fn replace_existing(mut self, yes: bool) -> WriteOptions {
        self.replace = yes;
        self
    }
}
