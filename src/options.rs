//! How tables are written, opened and read.

use std::sync::Arc;

use crate::cache::BlockCache;
use crate::comparator::{Comparator, Order};
use crate::filter::{BloomFilterPolicy, FilterPolicy, OldBloomFilterPolicy, RibbonFilterPolicy};
use crate::format::codec::Compression;
use crate::format::filter_block::FilterSpan;
use crate::internal_key::{is_internal, policy_for};

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

/// How a table is opened.
///
/// ```no_run
/// use leveltable::{BlockCache, OpenOptions};
///
/// let table = OpenOptions::new().cache(BlockCache::new(64 << 20)).open("table.ldb")?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// `None` where the caller did not say: bytewise, and a database's table is recognised and refused.
    pub(crate) order: Option<Order>,
    pub(crate) policies: Vec<Arc<dyn FilterPolicy>>,
    pub(crate) filters: bool,
    pub(crate) cache: Option<BlockCache>,
    pub(crate) read: ReadOptions,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Bytewise order, the built-in filter policies, the shared cache of 8 MiB, checksums verified.
    pub fn new() -> OpenOptions {
        OpenOptions {
            order: None,
            policies: Vec::new(),
            filters: true,
            cache: Some(BlockCache::shared()),
            read: ReadOptions::new(),
        }
    }

    /// The order that the table was written in.
    ///
    /// Naming one, the bytewise one too, also says that the table is to be read as it is stored: one that
    /// looks like a database's is then not refused; if the comparator is not the
    /// [`InternalKeyComparator`](crate::InternalKeyComparator), its filter, which knows user keys, is left unused.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> OpenOptions {
        self.order = Some(Order::of(comparator));
        self
    }

    /// Adds a filter policy to those that are known by their names; before a built-in one of that name.
    pub fn filter_policy(mut self, policy: impl FilterPolicy + 'static) -> OpenOptions {
        self.policies.push(Arc::new(policy));
        self
    }

    /// The filter policies that are known to tables in `order`, the best first.
    pub(crate) fn policies_for(&self, order: &Order) -> Vec<Arc<dyn FilterPolicy>> {
        let built_in: [Arc<dyn FilterPolicy>; 3] = [
            // Bits a key matter to builders only.
            Arc::new(RibbonFilterPolicy::new(10)),
            Arc::new(BloomFilterPolicy::new(10)),
            Arc::new(OldBloomFilterPolicy),
        ];
        let known = self.policies.iter().chain(&built_in);
        known.map(|policy| policy_for(policy, order)).collect()
    }

    /// Whether the filter is left unused: that of a database's table holds user keys, and asked for stored ones, by a
    /// caller who named another order than that of internal keys, it would hide nearly all.
    /// Whether the index looks like a database's, which takes a look at each of its keys, is asked only where it matters.
    pub(crate) fn leaves_filter(&self, looks_internal: impl FnOnce() -> bool) -> bool {
        let other = self.order.as_ref().is_some_and(|order| !is_internal(order));
        other && looks_internal()
    }

    /// Opens without filters, and so also a table whose filter or metaindex block is damaged.
    /// Every lookup then fetches a data block.
    pub fn no_filters(mut self) -> OpenOptions {
        self.filters = false;
        self
    }

    /// Keeps blocks in `cache` instead of the shared one.
    pub fn cache(mut self, cache: BlockCache) -> OpenOptions {
        self.cache = Some(cache);
        self
    }

    /// Keeps no blocks: each lookup reads its block.
    pub fn no_cache(mut self) -> OpenOptions {
        self.cache = None;
        self
    }

    /// How lookups read unless [`Table::with`](crate::Table::with) says otherwise.
    pub fn read(mut self, options: ReadOptions) -> OpenOptions {
        self.read = options;
        self
    }
}

/// How an open table is read; see [`Table::with`](crate::Table::with).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    pub(crate) fill_cache: bool,
    pub(crate) verify_checksums: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions::new()
    }
}

impl ReadOptions {
    /// Blocks that are read go to the cache, and their checksums are verified.
    pub fn new() -> ReadOptions {
        ReadOptions {
            fill_cache: true,
            verify_checksums: true,
        }
    }

    /// Whether blocks that are read are kept in the cache. `false` suits a long scan, which would
    /// drive out what lookups use. What is in the cache already is used either way.
    pub fn fill_cache(mut self, yes: bool) -> ReadOptions {
        self.fill_cache = yes;
        self
    }

    /// Whether data blocks are checked against their checksums when they come in (about 7 ns for
    /// 100 bytes). Without, damage may go unnoticed, and blocks that are read are not kept in the cache, where
    /// others would take them for checked. Index, metaindex and filter are always checked.
    pub fn verify_checksums(mut self, yes: bool) -> ReadOptions {
        self.verify_checksums = yes;
        self
    }
}
