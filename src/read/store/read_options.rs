//! Options for reading an open table.

/// Options for reading an open table; see [`Table::with_read_options`](crate::Table::with_read_options).
///
/// ```
/// use leveltable::{OpenOptions, ReadOptions, WriteOptions};
///
/// # let (file, _) = WriteOptions::new().build(Vec::new()).finish_into_writer()?;
/// let table = OpenOptions::new().open_source(file)?;
/// let scan = table.with_read_options(ReadOptions::new().fill_cache(false));
/// assert_eq!(scan.iter().count(), 0);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    pub(crate) fill_cache: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions::new()
    }
}

impl ReadOptions {
    /// By default, blocks that are read are kept in the cache.
    pub fn new() -> ReadOptions {
        ReadOptions { fill_cache: true }
    }

    /// Whether blocks that are read are kept in the cache. The default is `true`. `false` suits a long scan, which would evict the blocks
    /// that lookups use. A block that is in the cache is used either way.
    pub fn fill_cache(mut self, yes: bool) -> ReadOptions {
        self.fill_cache = yes;
        self
    }
}
