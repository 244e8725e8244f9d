//! Many lookups at once: what one waits for is on its way for all.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{Fetched, Table};
use crate::comparator::Order;
use crate::error::Result;
use crate::format::block::Block;
use crate::format::block_search::{Match, Walk};

/// How many keys are under way at a time: enough to keep the processor's memory reads overlapping, few enough
/// that what came in is still there when it is used.
const OVERLAPPED: usize = 32;

/// A key that is looked for, and the block to look in.
struct Wanted<'k> {
    block: usize,
    /// Its place among the keys.
    at: usize,
    key: &'k [u8],
}

/// A walk through the block of a key of a batch.
struct Walking<'b> {
    /// The key's place in the batch.
    at: usize,
    walk: Walk<'b>,
}

/// Reads these bytes and does nothing else, so that the processor waits for all of them at once.
#[inline]
fn touch_each<'b>(bytes: impl Iterator<Item = Option<&'b u8>>) {
    std::hint::black_box(bytes.flatten().fold(0, |all, byte| all | byte));
}

impl Table {
    /// The values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// A block that several keys are in is read from a disk once. In memory the waits for different keys overlap,
    /// which pays where memory is slow, and not always (`docs/performance.md`). Takes some 30 bytes a key while it
    /// runs.
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
    /// As [`get`](Table::get), for a block that cannot be read; there are no answers then.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut wanted = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let candidate = self.inner.candidate(key);
            wanted.extend(candidate.map(|block| Wanted { block, at, key }));
        }
        if !self.inner.file.is_memory() {
            wanted.sort_unstable_by_key(|wanted| (wanted.block, wanted.at));
        }
        let mut values = vec![None; keys.len()];
        let mut last = None;
        for batch in wanted.chunks(OVERLAPPED) {
            let fetched = self.fetch_all(batch, last)?;
            match self.order() {
                Order::Bytewise => self.walk_all(batch, &fetched, &mut values)?,
                Order::Custom(_) => self.find_all(batch, &fetched, &mut values)?,
            }
            last = batch
                .last()
                .map(|wanted| wanted.block)
                .zip(fetched.into_iter().last());
        }
        Ok(values)
    }

    /// The blocks of `batch`; one that is wanted several times in a row is fetched once, be it the `last` of
    /// the batch before.
    fn fetch_all<'t>(
        &'t self,
        batch: &[Wanted<'_>],
        mut last: Option<(usize, Fetched<'t>)>,
    ) -> Result<Vec<Fetched<'t>>> {
        let fetch = |wanted: &Wanted<'_>| {
            let block = match last.take() {
                Some((block, fetched)) if block == wanted.block => fetched,
                _ => self.inner.fetch_block(wanted.block, self.read)?,
            };
            last = Some((wanted.block, block.clone()));
            Ok(block)
        };
        batch.iter().map(fetch).collect()
    }

    /// Finds all keys of `batch`, stage by stage: the ends of all blocks, the restarts of all, and then all walks
    /// an entry at a time.
    fn walk_all(
        &self,
        batch: &[Wanted<'_>],
        fetched: &[Fetched<'_>],
        values: &mut [Option<Bytes>],
    ) -> Result<()> {
        touch_each(fetched.iter().map(|fetched| fetched.payload().last()));
        let mut blocks = Vec::with_capacity(batch.len());
        for (wanted, fetched) in batch.iter().zip(fetched) {
            let block = Block::parse(fetched.payload());
            blocks.push(block.map_err(|defect| self.locate(wanted.block, defect))?);
        }
        touch_each(blocks.iter().flat_map(Block::first_restarts));
        let mut walking = Vec::with_capacity(batch.len());
        for (at, (wanted, block)) in batch.iter().zip(&blocks).enumerate() {
            let walk = block.walk(wanted.key);
            let walk = walk.map_err(|defect| self.locate(wanted.block, defect))?;
            walking.push(Walking { at, walk });
        }
        while !walking.is_empty() {
            touch_each(walking.iter().map(|walking| walking.walk.next_byte()));
            let mut i = 0;
            while let Some(Walking { at, walk }) = walking.get_mut(i) {
                match walk.step() {
                    Ok(ControlFlow::Continue(())) => i += 1,
                    Ok(ControlFlow::Break(found)) => {
                        if found == Some(Match::Exact)
                            && let Some(range) = walk.next_value()
                            && let (Some(wanted), Some(fetched)) =
                                (batch.get(*at), fetched.get(*at))
                            && let Some(slot) = values.get_mut(wanted.at)
                        {
                            *slot = Some(fetched.bytes_at(range));
                        }
                        walking.swap_remove(i);
                    }
                    Err(defect) => {
                        let block = batch.get(*at).map_or(0, |wanted| wanted.block);
                        return Err(self.locate(block, defect));
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds all keys of `batch` one after another, in any order.
    fn find_all(
        &self,
        batch: &[Wanted<'_>],
        fetched: &[Fetched<'_>],
        values: &mut [Option<Bytes>],
    ) -> Result<()> {
        for (wanted, fetched) in batch.iter().zip(fetched) {
            let block = Block::parse(fetched.payload());
            let value = block
                .and_then(|block| block.find(wanted.key, self.order()))
                .map_err(|defect| self.locate(wanted.block, defect))?;
            if let (Some(range), Some(slot)) = (value, values.get_mut(wanted.at)) {
                *slot = Some(fetched.bytes_at(range));
            }
        }
        Ok(())
    }
}
