//! Many lookups at once: each block is read once, and many are requested at the same time.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::parts::index::{Found, NotLoaded};
use crate::read::parts::{LAYERS, Missing};
use crate::read::store::{Loaded, ReadOptions, whole};
#[cfg(doc)]
use crate::read::table::Table;
use crate::read::table::lookup::find_value;
use crate::read::table::opened::Opened;

/// A key to look up, and the block to look in.
pub(crate) struct Lookup<'t, K> {
    pub(crate) found: Found<'t>,
    /// The key's position among the caller's keys.
    pub(crate) position: usize,
    pub(crate) key: K,
}

/// Sorts lookups by the block to look in.
pub(crate) fn sort_by_block<K>(wanted: &mut [Lookup<'_, K>]) {
    wanted.sort_by_cached_key(|wanted| wanted.found.block()); // moves each element once
}

/// The blocks to load for `wanted`, and for each the lookups in it, which are adjacent.
pub(crate) fn blocks_of<'w, 't, K>(
    wanted: &'w [Lookup<'t, K>],
) -> impl Iterator<Item = (Found<'t>, &'w [Lookup<'t, K>])> {
    let of_blocks = wanted.chunk_by(|a, b| a.found.block() == b.found.block());
    of_blocks.filter_map(|keys| Some((keys.first()?.found, keys)))
}

/// Number of keys whose memory is prefetched together: enough that the waits overlap, few enough that it is still in the
/// processor's caches when it is used.
const OVERLAPPED: usize = 16;

/// The lookups of many keys, until the block to look in is known for each.
pub(crate) struct Lookups<'t, 'k> {
    opened: &'t Opened,
    order: &'t Order,
    /// The keys that index and filters have not decided yet, with their positions.
    left: Vec<(usize, &'k [u8])>,
}

impl<'t, 'k> Lookups<'t, 'k> {
    pub(crate) fn new<K: AsRef<[u8]>>(
        opened: &'t Opened,
        keys: &'k [K],
    ) -> Result<Lookups<'t, 'k>> {
        let order = opened.parts.order()?;
        for key in keys {
            opened.check_form(key.as_ref(), order)?;
        }
        Ok(Lookups {
            opened,
            order,
            left: keys.iter().map(AsRef::as_ref).enumerate().collect(),
        })
    }

    /// Asks index and filters for all remaining keys, a few at a time, and passes the lookups of those that may be in the table to
    /// `take`. Names all missing parts at once, so that many keys take as many reads as one.
    pub(crate) fn ask(
        &mut self,
        layers: usize,
        mut take: impl FnMut(Vec<Lookup<'t, &'k [u8]>>),
    ) -> Result<(), Missing> {
        let mut missing = Vec::new();
        for batch in std::mem::take(&mut self.left).chunks(OVERLAPPED) {
            let keys: Vec<&[u8]> = batch.iter().map(|&(_, key)| key).collect();
            let found = self.opened.candidates_in_memory(&keys, self.order);
            let mut wanted = Vec::with_capacity(batch.len());
            for (&(position, key), found) in batch.iter().zip(found) {
                match found {
                    Ok(Some(found)) => wanted.push(Lookup {
                        found,
                        position,
                        key,
                    }),
                    Ok(None) => {}
                    Err(NotLoaded) => {
                        let parts = &self.opened.parts;
                        missing.extend(parts.missing_for(key, self.order, layers));
                        self.left.push((position, key));
                    }
                }
            }
            take(wanted);
        }
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    }
}

/// The lookups in blocks that are neither used in place nor in the cache.
pub(crate) struct Unread<'t, K> {
    opened: &'t Opened,
    read: ReadOptions,
    wanted: Vec<Lookup<'t, K>>,
}

impl<'t, K> Unread<'t, K> {
    pub(crate) fn new(opened: &'t Opened, read: ReadOptions) -> Unread<'t, K> {
        Unread {
            opened,
            read,
            wanted: Vec::new(),
        }
    }

    /// Passes each of some lookups to `search` with its block, unless that is still to be read. The blocks of a few lookups are
    /// prefetched before any is searched, and used before others displace them from the processor's caches.
    pub(crate) fn search_held(
        &mut self,
        wanted: impl IntoIterator<Item = Lookup<'t, K>>,
        search: &mut impl FnMut(&Lookup<'t, K>, Loaded<'_>) -> Result<()>,
    ) -> Result<()> {
        let store = &self.opened.store;
        let mut wanted = wanted.into_iter();
        loop {
            let some: Vec<_> = wanted.by_ref().take(OVERLAPPED).collect();
            if some.is_empty() {
                return Ok(());
            }
            for wanted in &some {
                store.prefetch_place(wanted.found);
            }
            for wanted in &some {
                store.prefetch(wanted.found);
            }
            for wanted in some {
                let found = wanted.found;
                if let Some(loaded) = store.in_place(found.state(), found.handle()) {
                    search(&wanted, loaded)?;
                } else if let Some(cached) = store.cached_block(found.state(), found.block()) {
                    search(&wanted, whole(&cached.bytes))?;
                } else {
                    self.wanted.push(wanted);
                }
            }
        }
    }

    /// Reads the blocks of the other lookups, many at a time, each once, and passes them to `search`.
    pub(crate) fn search(
        mut self,
        search: &mut impl FnMut(&Lookup<'t, K>, Loaded<'_>) -> Result<()>,
    ) -> Result<()> {
        let Opened { parts, store, .. } = self.opened;
        sort_by_block(&mut self.wanted);
        let of_blocks = blocks_of(&self.wanted).map(|(found, keys)| (found.to_ref(), keys));
        let (blocks, of_blocks): (Vec<_>, Vec<_>) = of_blocks.unzip();
        let mut result = Ok(());
        store.load_many(parts, &blocks, self.read, |i, block| {
            if let (Ok(()), Some(keys)) = (&result, of_blocks.get(i)) {
                let mut keys = keys.iter();
                result = block
                    .and_then(|block| keys.try_for_each(|wanted| search(wanted, whole(&block))));
            }
        });
        result
    }
}

/// The results of the lookups of many keys.
pub(crate) struct Values<'t> {
    opened: &'t Opened,
    pub(crate) values: Vec<Option<Bytes>>,
}

impl<'t> Values<'t> {
    pub(crate) fn new(opened: &'t Opened, keys: usize) -> Values<'t> {
        Values {
            opened,
            values: vec![None; keys],
        }
    }

    /// Looks for a key in its block. A value is a slice of the block's bytes if the file lies in memory, and a copy otherwise.
    pub(crate) fn search(
        &mut self,
        wanted: &Lookup<'_, &[u8]>,
        (bytes, block): Loaded<'_>,
    ) -> Result<()> {
        let (store, order) = (&self.opened.store, self.opened.parts.order()?);
        let value = find_value((bytes, block), wanted.key, order, wanted.found.part());
        let value = value.map_err(|defect| store.locate(wanted.found.to_ref(), defect))?;
        if let (Some(slot), Some(value)) = (self.values.get_mut(wanted.position), value) {
            *slot = if store.file.is_memory() {
                Some(bytes.slice(value))
            } else {
                bytes.get(value).map(Bytes::copy_from_slice)
            };
        }
        Ok(())
    }
}

/// The values of many keys; see [`Table::get_many`].
pub(crate) fn get_many<K: AsRef<[u8]>>(
    opened: &Opened,
    read: ReadOptions,
    keys: &[K],
) -> Result<Vec<Option<Bytes>>> {
    let mut found = Values::new(opened, keys.len());
    let mut search = |wanted: &Lookup<'_, _>, block: Loaded<'_>| found.search(wanted, block);
    let (mut lookups, mut unread) = (Lookups::new(opened, keys)?, Unread::new(opened, read));
    let mut result = Ok(());
    let mut take = |wanted| {
        if result.is_ok() {
            result = unread.search_held(wanted, &mut search);
        }
    };
    opened.ask(|| lookups.ask(LAYERS, &mut take))?;
    result?;
    unread.search(&mut search)?;
    Ok(found.values)
}
