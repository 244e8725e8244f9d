//! Many lookups at once: each block is read once, and many are asked for at the same time.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::read::index::BlockRef;
use crate::read::parts::Part;
use crate::read::table::Table;

/// A key that is looked for, and the block to look in.
struct Wanted<'k> {
    found: BlockRef,
    /// The key's position among the caller's keys.
    at: usize,
    key: &'k [u8],
}

/// The lookups of [`Table::get_many`], for one who loads the blocks.
pub(super) struct Batch<'t> {
    table: &'t Table,
    wanted: Vec<Wanted<'t>>,
    /// Which of these are in each block to load.
    of_blocks: Vec<Range<usize>>,
    /// What was found so far.
    pub(super) values: Vec<Option<Bytes>>,
    /// What must be read before it is certain that the table does not hold the others.
    pub(super) parts: Vec<Part>,
}

impl<'t> Batch<'t> {
    /// The lookups of `keys`, and the blocks to load for them, in file order unless the file is in memory. What they need of index
    /// and filters is there, or is read.
    pub(super) fn new<K: AsRef<[u8]>>(
        table: &'t Table,
        keys: &'t [K],
    ) -> Result<(Vec<BlockRef>, Batch<'t>)> {
        let mut wanted = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let found = table.candidate(key)?;
            wanted.extend(found.map(|found| Wanted { found, at, key }));
        }
        if !table.inner.file.is_memory() {
            wanted.sort_unstable_by_key(|wanted| (wanted.found.block, wanted.at));
        }
        let (mut blocks, mut of_blocks, mut end) = (Vec::new(), Vec::new(), 0);
        for keys in wanted.chunk_by(|a, b| a.found.block == b.found.block) {
            blocks.extend(keys.first().map(|wanted| wanted.found));
            of_blocks.push(end..end + keys.len());
            end += keys.len();
        }
        let batch = Batch {
            table,
            wanted,
            of_blocks,
            values: vec![None; keys.len()],
            parts: Vec::new(),
        };
        Ok((blocks, batch))
    }

    /// Looks in block number `i` of those to load.
    pub(super) fn search(&mut self, i: usize, block: &Bytes) -> Result<()> {
        let (inner, order) = (&*self.table.inner, self.table.order()?);
        let of_block = self.of_blocks.get(i).cloned().unwrap_or_default();
        for wanted in self.wanted.get(of_block).unwrap_or_default() {
            let value = inner.find_value(wanted.found, block, wanted.key, order)?;
            match (value, self.values.get_mut(wanted.at)) {
                (Some(value), Some(slot)) if inner.file.is_memory() => {
                    *slot = Some(block.slice(value));
                }
                (Some(value), Some(slot)) => {
                    *slot = block.get(value).map(Bytes::copy_from_slice);
                }
                _ => self
                    .parts
                    .extend(inner.anchors(wanted.found.piece as usize)),
            }
        }
        Ok(())
    }
}

impl Table {
    /// Returns the values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// In a file that is not in memory, each block that holds some of the keys is read once, in file order, and many are
    /// [asked for at once](crate::ReadAt::read_many_at), so that a disk works on several at a time. In a mapped file, blocks that
    /// were never used are announced to the system before the first is.
    ///
    /// Takes some 65 bytes per key while it runs, and at most 6 MiB for blocks and what lies between them, or one block if that
    /// is larger. From memory, a value is a slice of its block, as that of [`get`](Table::get); from a file, it is a copy.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana"] { builder.add(key.as_bytes(), key.as_bytes())?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let values = table.get_many(&["banana", "cherry"])?;
    /// assert_eq!(values, [Some("banana".into()), None]);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](Table::get), for a block that cannot be read; no value is returned then.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let inner = &*self.inner;
        if !inner.file.is_memory() {
            self.bring_for_all(keys)?;
        }
        let (blocks, mut batch) = Batch::new(self, keys)?;
        let mut result: Result<()> = Ok(());
        inner.load_many(&blocks, self.read, |i, block| {
            if result.is_ok() {
                result = block.and_then(|block| batch.search(i, &block));
            }
        });
        result?;
        inner.bring(batch.parts)?;
        Ok(batch.values)
    }

    /// Reads what the lookups need of index and filters, in at most three waves: what tells of keys in the filter's first layer,
    /// which most are in; the next layer of those that are not; and all layers of the few that are left.
    fn bring_for_all<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        let (inner, order) = (&*self.inner, self.order()?);
        let mut keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        for layers in [1, 2, usize::MAX] {
            let mut parts = Vec::new();
            keys.retain(|key| {
                let missing = inner.missing_for(key, order, layers);
                parts.extend_from_slice(&missing);
                !missing.is_empty()
            });
            inner.bring(parts)?;
        }
        Ok(())
    }
}
