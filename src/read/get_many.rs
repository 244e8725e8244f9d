//! Many lookups at once: what one waits for is on its way for all.

use bytes::Bytes;

use crate::error::Result;
use crate::format::block_search::{SearchPart, touch_part};
use crate::read::fetch::Fetched;
use crate::read::table::{Inner, Table};

/// How many keys are under way at a time: enough to keep the processor's memory reads overlapping, few enough
/// that what came in is still there when it is used.
const OVERLAPPED: usize = 16;

/// A key that is looked for, and the block to look in.
struct Wanted<'k> {
    block: usize,
    /// Its place among the keys.
    at: usize,
    key: &'k [u8],
}

impl Table {
    /// The values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// A block that several keys are in is read from a disk once. In memory the waits for different keys overlap,
    /// so that each takes a quarter less than with [`get`](Table::get) in a table of a million entries, and half of it
    /// in one of ten million (`docs/performance.md`).
    /// Takes some 30 bytes a key while it runs.
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
        for (i, batch) in keys.chunks(OVERLAPPED).enumerate() {
            self.find_candidates(OVERLAPPED * i, batch, &mut wanted);
        }
        if !self.inner.file.is_memory() {
            wanted.sort_unstable_by_key(|wanted| (wanted.block, wanted.at));
        }
        let mut values = vec![None; keys.len()];
        let mut last = None;
        for batch in wanted.chunks(OVERLAPPED) {
            let fetched = self.fetch_all(batch, last)?;
            let touched = |(wanted, fetched): (&Wanted<'_>, &Fetched<'_>)| {
                let part = self.inner.index.part_of(wanted.block, wanted.key);
                touch_part(fetched.payload(), part);
                part
            };
            let parts: Vec<SearchPart> = batch.iter().zip(&fetched).map(touched).collect();
            for ((wanted, fetched), part) in batch.iter().zip(&fetched).zip(parts) {
                let value = self.find(wanted.block, fetched.payload(), wanted.key, part)?;
                if let (Some(range), Some(slot)) = (value, values.get_mut(wanted.at)) {
                    *slot = Some(fetched.bytes_at(range));
                }
            }
            last = batch
                .last()
                .map(|wanted| wanted.block)
                .zip(fetched.into_iter().last());
        }
        Ok(values)
    }

    /// Adds what filter and index leave of `keys`, the first of which is key number `first`.
    ///
    /// Where there is a filter for every few blocks, the way to it is from the index to the filter's offset to the
    /// filter: each is touched for all keys before it is read for the first.
    fn find_candidates<'k, K: AsRef<[u8]>>(
        &self,
        first: usize,
        keys: &'k [K],
        wanted: &mut Vec<Wanted<'k>>,
    ) {
        let Inner { index, order, .. } = &*self.inner;
        let filters = self.inner.filter.as_ref();
        let filters = filters.filter(|filter| !filter.whole_table);
        if filters.is_some() {
            keys.iter().for_each(|key| index.touch(key.as_ref()));
        }
        let new = wanted.len()..;
        for (at, key) in (first..).zip(keys) {
            let key = key.as_ref();
            let block = match filters {
                Some(_) => index.seek(key, order),
                None => self.inner.candidate(key),
            };
            wanted.extend(block.map(|block| Wanted { block, at, key }));
        }
        let Some(filters) = filters else {
            return;
        };
        let offset = |wanted: &Wanted<'_>| index.handle(wanted.block).offset;
        let sought = wanted.get(new.clone()).unwrap_or_default();
        for wanted in sought {
            filters.block.touch_bounds(offset(wanted));
        }
        for wanted in sought {
            filters.block.touch_filter(offset(wanted));
        }
        let is_rejected =
            |wanted: &mut Wanted<'_>| !self.inner.passes(filters, offset(wanted), wanted.key);
        wanted.extract_if(new, is_rejected).for_each(drop);
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
}
