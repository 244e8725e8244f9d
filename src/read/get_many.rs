//! Many lookups at once: the reads and memory accesses of one overlap with those of others.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::format::block_search::{SearchPart, touch_part};
use crate::read::fetch::Fetched;
use crate::read::index::BlockRef;
use crate::read::table::{Inner, Table};

/// Number of keys that are looked up at a time: enough to keep the processor's memory reads overlapping, few enough that
/// what came in is still in its caches when it is used.
const OVERLAPPED: usize = 16;

/// A key that is looked for, and the block to look in.
struct Wanted<'k> {
    found: BlockRef,
    /// The key's position among the caller's keys.
    at: usize,
    key: &'k [u8],
}

impl Table {
    /// Returns the values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// A block that holds several of the keys is read from a disk once. In memory the waits for different keys overlap
    /// (`docs/performance.md` has figures). Takes some 50 bytes a key while it runs.
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
    /// As [`get`](Table::get), for the first block that cannot be read; no value is returned then.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let inner = &*self.inner;
        let order = inner.order()?;
        let mut wanted = Vec::with_capacity(keys.len());
        for (i, batch) in keys.chunks(OVERLAPPED).enumerate() {
            if self.find_blocks(OVERLAPPED * i, batch, order, &mut wanted) {
                self.check_end()?;
            }
        }
        if !inner.file.is_memory() {
            wanted.sort_unstable_by_key(|wanted| (wanted.found.block, wanted.at));
        }
        let mut values = vec![None; keys.len()];
        let mut last = None;
        for batch in wanted.chunks(OVERLAPPED) {
            let fetched = self.fetch_all(batch, last)?;
            let touched = |(wanted, fetched): (&Wanted<'_>, &Fetched<'_>)| {
                let BlockRef { block, prefix, .. } = wanted.found;
                let position = inner.index.position_of(block, prefix);
                let part = inner.hints.of(block).part(position);
                touch_part(fetched.payload(), part);
                part
            };
            let parts: Vec<SearchPart> = batch.iter().zip(&fetched).map(touched).collect();
            for ((wanted, fetched), part) in batch.iter().zip(&fetched).zip(parts) {
                let payload = fetched.payload();
                let block = wanted.found.block;
                let value = inner.find_value(block, payload, wanted.key, order, part)?;
                if let (Some(range), Some(slot)) = (value, values.get_mut(wanted.at)) {
                    *slot = Some(fetched.bytes_at(range));
                }
            }
            last = batch
                .last()
                .map(|wanted| wanted.found.block)
                .zip(fetched.into_iter().last());
        }
        Ok(values)
    }

    /// Adds the blocks in which `keys` may be, the first of which is key number `first`. Returns whether a key is past the
    /// last index key.
    ///
    /// If there is a filter for every few blocks, the way to it leads from the index to the filter's offset to the filter:
    /// each is touched for all keys before it is read for the first.
    fn find_blocks<'k>(
        &self,
        first: usize,
        keys: &[&'k [u8]],
        order: &Order,
        wanted: &mut Vec<Wanted<'k>>,
    ) -> bool {
        let Inner { index, filter, .. } = &*self.inner;
        let windows = filter.as_ref().filter(|filter| !filter.whole_table);
        if windows.is_some() {
            keys.iter().for_each(|key| index.touch(key));
        }
        let new = wanted.len();
        let mut past_end = false;
        for (at, &key) in (first..).zip(keys) {
            if self.inner.table_filter_rejects(key, order) {
                continue;
            }
            match index.seek(key, order) {
                Some(found) => wanted.push(Wanted { found, at, key }),
                None => past_end = true,
            }
        }
        if let Some(filters) = windows {
            let sought = wanted.iter().skip(new);
            for wanted in sought.clone() {
                filters.block.touch_bounds(wanted.found.handle.offset);
            }
            for wanted in sought {
                filters.block.touch_filter(wanted.found.handle.offset);
            }
            let is_rejected = |wanted: &mut Wanted<'_>| {
                let offset = wanted.found.handle.offset;
                !self.inner.passes(filters, offset, wanted.key, order)
            };
            wanted.extract_if(new.., is_rejected).for_each(drop);
        }
        past_end
    }

    /// The blocks of `batch`. One that is wanted several times in a row is fetched once, even if it is the `last` of the
    /// batch before.
    fn fetch_all<'t>(
        &'t self,
        batch: &[Wanted<'_>],
        mut last: Option<(usize, Fetched<'t>)>,
    ) -> Result<Vec<Fetched<'t>>> {
        let fetch = |wanted: &Wanted<'_>| {
            let block = match last.take() {
                Some((block, fetched)) if block == wanted.found.block => fetched,
                _ => self.inner.fetch_block(wanted.found, self.read)?,
            };
            last = Some((wanted.found.block, block.clone()));
            Ok(block)
        };
        batch.iter().map(fetch).collect()
    }
}
