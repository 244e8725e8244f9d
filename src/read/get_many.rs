//! Many lookups at once: the reads and memory accesses of one overlap with those of others.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::fetch::{Fetched, MOST_BLOCKS};
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
    /// In a file that is not in memory, each block that holds some of the keys is read once, in file order, and many are
    /// [asked for at once](crate::ReadAt::read_many_at), so that a disk works on several at a time. In memory the waits for
    /// different keys overlap (`docs/performance.md` has figures).
    ///
    /// Takes some 75 bytes a key while it runs, and at most 6 MiB for blocks and what lies between them, or one block if that
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
    /// As [`get`](Table::get), for the first key whose block cannot be read; no value is returned then.
    /// [`get_each`](Table::get_each) returns the values of the other keys, too.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        self.get_each(keys).into_iter().collect()
    }

    /// Looks up many keys like [`get_many`](Table::get_many), and returns for each, in the order of `keys`, what
    /// [`get`](Table::get) would return: a block that cannot be read is an error of the keys that need it, and of no others.
    pub fn get_each<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let Ok(order) = self.order() else {
            return keys.iter().map(|key| self.get(key)).collect();
        };
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let mut wanted = Vec::with_capacity(keys.len());
        for (i, batch) in keys.chunks(OVERLAPPED).enumerate() {
            self.find_blocks(OVERLAPPED * i, batch, order, &mut wanted, &mut results);
        }
        if self.inner.file.is_memory() {
            self.search_memory(&wanted, order, &mut results);
        } else {
            self.search_file(wanted, order, &mut results);
        }
        results
    }

    /// Adds the blocks in which `keys` may be, the first of which is key number `first`.
    ///
    /// If there is a filter for every few blocks, the way to it leads from the index to the filter's offset to the filter:
    /// each is touched for all keys before it is read for the first.
    fn find_blocks<'k>(
        &self,
        first: usize,
        keys: &[&'k [u8]],
        order: &Order,
        wanted: &mut Vec<Wanted<'k>>,
        results: &mut [Result<Option<Bytes>>],
    ) {
        let Inner { index, filter, .. } = &*self.inner;
        let windows = filter.as_ref().filter(|filter| !filter.whole_table);
        if windows.is_some() {
            keys.iter().for_each(|key| index.prefetch(key));
        }
        let new = wanted.len();
        for (at, &key) in (first..).zip(keys) {
            if self.inner.table_filter_rejects(key, order) {
                continue;
            }
            match index.seek(key, order) {
                Some(found) => wanted.push(Wanted { found, at, key }),
                None => put(results, at, self.check_end().map(|()| None)),
            }
        }
        if let Some(filters) = windows {
            let sought = wanted.iter().skip(new);
            for wanted in sought.clone() {
                filters.block.prefetch_bounds(wanted.found.handle.offset);
            }
            for wanted in sought {
                filters.block.prefetch_filter(wanted.found.handle.offset);
            }
            let is_rejected = |wanted: &mut Wanted<'_>| {
                let offset = wanted.found.handle.offset;
                !self.inner.passes(filters, offset, wanted.key, order)
            };
            wanted.extract_if(new.., is_rejected).for_each(drop);
        }
    }

    /// Looks for the keys in blocks of a file in memory. What a search looks at is touched for several keys before it is read
    /// for the first, and blocks of a mapped file are announced for many.
    fn search_memory(
        &self,
        wanted: &[Wanted<'_>],
        order: &Order,
        results: &mut [Result<Option<Bytes>>],
    ) {
        let fetch = |wanted: &Wanted<'_>| self.inner.fetch_announced(wanted.found, self.read);
        for announced in wanted.chunks(MOST_BLOCKS) {
            for wanted in announced {
                self.inner.announce_block(wanted.found);
            }
            for batch in announced.chunks(OVERLAPPED) {
                let fetched: Vec<Result<Fetched<'_>>> = batch.iter().map(fetch).collect();
                for (wanted, fetched) in batch.iter().zip(fetched) {
                    let value = fetched.and_then(|block| {
                        let value = self.find(wanted, block.payload(), order)?;
                        Ok(value.map(|value| block.into_bytes(value)))
                    });
                    put(results, wanted.at, value);
                }
            }
        }
    }

    /// Looks for the keys in blocks of a file, in the order in which the blocks are stored.
    fn search_file(
        &self,
        mut wanted: Vec<Wanted<'_>>,
        order: &Order,
        results: &mut [Result<Option<Bytes>>],
    ) {
        wanted.sort_unstable_by_key(|wanted| (wanted.found.block, wanted.at));
        let of_blocks: Vec<&[Wanted<'_>]> = wanted
            .chunk_by(|a, b| a.found.block == b.found.block)
            .collect();
        let found: Vec<BlockRef> = of_blocks
            .iter()
            .filter_map(|keys| Some(keys.first()?.found))
            .collect();
        self.inner.fetch_all(&found, self.read, |i, block| {
            let mut fetched = Some(block);
            for wanted in of_blocks.get(i).copied().unwrap_or_default() {
                // After an error, which is the first key's, the block is read anew for the next.
                let block = fetched.take();
                let block =
                    block.unwrap_or_else(|| self.inner.fetch_apart(wanted.found, self.read));
                let value = block.and_then(|block| {
                    let value = self.find(wanted, &block, order)?;
                    let copy = value.and_then(|value| block.get(value).map(Bytes::copy_from_slice));
                    fetched = Some(Ok(block));
                    Ok(copy)
                });
                put(results, wanted.at, value);
            }
        });
    }

    /// Where the key's value lies in `payload`, that of its block.
    fn find(
        &self,
        wanted: &Wanted<'_>,
        payload: &[u8],
        order: &Order,
    ) -> Result<Option<Range<usize>>> {
        let block = wanted.found.block;
        self.inner.find_value(block, payload, wanted.key, order)
    }
}

/// Sets the result of key number `at`.
fn put(results: &mut [Result<Option<Bytes>>], at: usize, value: Result<Option<Bytes>>) {
    if let Some(result) = results.get_mut(at) {
        *result = value;
    }
}
