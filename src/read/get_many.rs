//! Many lookups at once: each block is read once, and many are asked for at the same time.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::read::index::{BlockRef, NotLoaded};
use crate::read::parts::Part;
use crate::read::table::Table;

/// A key that is looked for, and the block to look in.
pub(crate) struct Wanted<K> {
    pub(crate) found: BlockRef,
    /// The key's position among the caller's keys.
    pub(crate) at: usize,
    pub(crate) key: K,
}

/// Lookups in blocks that are loaded once each, in file order.
pub(super) struct Batch<K> {
    wanted: Vec<Wanted<K>>,
    pub(super) blocks: Vec<BlockRef>,
    /// Which of the lookups are in each of these.
    of_blocks: Vec<Range<usize>>,
}

impl<K> Batch<K> {
    pub(super) fn new(mut wanted: Vec<Wanted<K>>) -> Batch<K> {
        wanted.sort_by_cached_key(|wanted| wanted.found.block); // moves each once
        let (mut blocks, mut of_blocks, mut end) = (Vec::new(), Vec::new(), 0);
        for keys in wanted.chunk_by(|a, b| a.found.block == b.found.block) {
            blocks.extend(keys.first().map(|wanted| wanted.found));
            of_blocks.push(end..end + keys.len());
            end += keys.len();
        }
        Batch {
            wanted,
            blocks,
            of_blocks,
        }
    }

    /// The lookups in block number `i` of those to load.
    pub(super) fn keys(&self, i: usize) -> &[Wanted<K>] {
        let of_block = self.of_blocks.get(i).cloned().unwrap_or_default();
        self.wanted.get(of_block).unwrap_or_default()
    }
}

/// What the lookups of many keys found.
pub(super) struct Values<'t> {
    table: &'t Table,
    pub(super) values: Vec<Option<Bytes>>,
    /// What must be read before it is certain that the table does not hold the other keys.
    pub(super) parts: Vec<Part>,
}

impl<'t> Values<'t> {
    pub(super) fn new(table: &'t Table, keys: usize) -> Values<'t> {
        Values {
            table,
            values: vec![None; keys],
            parts: Vec::new(),
        }
    }

    fn take(&mut self, wanted: &Wanted<&[u8]>, value: Option<Bytes>) {
        match (self.values.get_mut(wanted.at), value) {
            (Some(slot), Some(value)) => *slot = Some(value),
            _ => (self.parts).extend(self.table.inner.anchors(wanted.found.piece as usize)),
        }
    }

    /// Looks for keys in their block, and copies their values.
    pub(super) fn search(&mut self, keys: &[Wanted<&[u8]>], block: &[u8]) -> Result<()> {
        let (inner, order) = (&*self.table.inner, self.table.order()?);
        for wanted in keys {
            let value = inner.find_value(wanted.found, block, wanted.key, order)?;
            let value = value.and_then(|value| block.get(value));
            self.take(wanted, value.map(Bytes::copy_from_slice));
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
    /// Takes some 80 bytes per key while it runs, and at most 6 MiB for blocks and what lies between them, or one block if that
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
        let (inner, order) = (&*self.inner, self.order()?);
        let mut found = Values::new(self, keys.len());
        if inner.file.is_memory() {
            // In the order of the keys. For neighbouring keys, a block that no cache keeps is decompressed once.
            let mut wanted = self.wanted(keys)?;
            wanted.sort_by_key(|wanted| wanted.at);
            for keys in wanted.chunk_by(|a, b| a.found.block == b.found.block) {
                let Some(first) = keys.first() else { continue };
                let block = inner.load(first.found, self.read)?;
                for wanted in keys {
                    let value = inner.find_value(wanted.found, &block, wanted.key, order)?;
                    found.take(wanted, value.map(|value| block.slice(value)));
                }
            }
        } else {
            self.search_blocks(self.wanted(keys)?, |keys, block| found.search(keys, &block))?;
        }
        inner.bring(found.parts)?;
        Ok(found.values)
    }

    /// The keys that may be in the table, in the order in which that was found out, and the block to look in for each. Announces these
    /// blocks in a mapped file.
    ///
    /// Reads what is missing of index and filters, in at most three waves: what tells of keys in the filter's first layer, which most
    /// are in; the next layer of those that are not; and all layers of the few that are left.
    pub(super) fn wanted<'k, K: AsRef<[u8]>>(
        &self,
        keys: &'k [K],
    ) -> Result<Vec<Wanted<&'k [u8]>>> {
        let (inner, order) = (&*self.inner, self.order()?);
        let mut wanted = Vec::with_capacity(keys.len());
        let mut take = |at, key, found| {
            if let Some(found) = found {
                inner.announce_block(found);
                wanted.push(Wanted { found, at, key });
            }
        };
        let mut left: Vec<_> = keys.iter().map(AsRef::as_ref).enumerate().collect();
        for layers in [1, 2, usize::MAX] {
            let mut parts = Vec::new();
            left.retain(|&(at, key)| {
                let found = self.candidate_here(key, order);
                match found {
                    Ok(found) => take(at, key, found),
                    Err(NotLoaded) => parts.extend(inner.missing_for(key, order, layers)),
                }
                found.is_err()
            });
            inner.bring(parts)?;
        }
        for (at, key) in left {
            take(at, key, self.candidate(key, order)?);
        }
        Ok(wanted)
    }

    /// Loads the blocks to look in, each once and many at a time, and passes each to `search` with the keys to look for in it.
    pub(crate) fn search_blocks<K>(
        &self,
        wanted: Vec<Wanted<K>>,
        mut search: impl FnMut(&[Wanted<K>], Bytes) -> Result<()>,
    ) -> Result<()> {
        let (batch, mut result) = (Batch::new(wanted), Ok(()));
        self.inner.load_many(&batch.blocks, self.read, |i, block| {
            if result.is_ok() {
                result = block.and_then(|block| search(batch.keys(i), block));
            }
        });
        result
    }
}
