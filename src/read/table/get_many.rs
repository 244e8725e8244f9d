//! Many lookups at once: each block is read once, and many are requested at the same time.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::parts::index::{Found, NotLoaded};
use crate::read::parts::{LAYERS, Missing};
use crate::read::store::{Loaded, whole};
use crate::read::table::opened::Opened;
use crate::read::table::{Table, find_value};

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
    table: &'t Table,
    order: &'t Order,
    /// The keys that index and filters have not decided yet, with their positions.
    left: Vec<(usize, &'k [u8])>,
    /// The keys that may be in the table, in the order in which this was found out.
    pub(crate) wanted: Vec<Lookup<'t, &'k [u8]>>,
}

impl<'t, 'k> Lookups<'t, 'k> {
    pub(crate) fn new<K: AsRef<[u8]>>(table: &'t Table, keys: &'k [K]) -> Result<Lookups<'t, 'k>> {
        let order = table.order()?;
        for key in keys {
            table.check_form(key.as_ref(), order)?;
        }
        Ok(Lookups {
            table,
            order,
            left: keys.iter().map(AsRef::as_ref).enumerate().collect(),
            wanted: Vec::with_capacity(keys.len()),
        })
    }

    /// Asks index and filters for all remaining keys. Names all missing parts at once, so that many keys take as many reads as one.
    pub(crate) fn ask(&mut self, layers: usize) -> Result<(), Missing> {
        let mut missing = Vec::new();
        for batch in std::mem::take(&mut self.left).chunks(OVERLAPPED) {
            let keys: Vec<&[u8]> = batch.iter().map(|&(_, key)| key).collect();
            let found = self.table.candidates_in_memory(&keys, self.order);
            for (&(position, key), found) in batch.iter().zip(found) {
                match found {
                    Ok(Some(found)) => self.wanted.push(Lookup {
                        found,
                        position,
                        key,
                    }),
                    Ok(None) => {}
                    Err(NotLoaded) => {
                        let parts = &self.table.opened.parts;
                        missing.extend(parts.missing_for(key, self.order, layers));
                        self.left.push((position, key));
                    }
                }
            }
        }
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    }
}

/// The results of the lookups of many keys.
pub(crate) struct Values<'t> {
    table: &'t Table,
    pub(crate) values: Vec<Option<Bytes>>,
}

impl<'t> Values<'t> {
    pub(crate) fn new(table: &'t Table, keys: usize) -> Values<'t> {
        Values {
            table,
            values: vec![None; keys],
        }
    }

    /// Looks for keys in their block. Values are slices of its bytes if the file lies in memory, and copies otherwise.
    pub(crate) fn search(&mut self, keys: &[Lookup<'_, &[u8]>], block: Loaded<'_>) -> Result<()> {
        let (store, order) = (&self.table.opened.store, self.table.order()?);
        for wanted in keys {
            let value = find_value(block.clone(), wanted.key, order, wanted.found.part());
            let value = value.map_err(|defect| store.locate(wanted.found.to_ref(), defect))?;
            match (self.values.get_mut(wanted.position), value) {
                (Some(slot), Some(value)) if store.file.is_memory() => {
                    *slot = Some(block.0.slice(value));
                }
                (Some(slot), Some(value)) => *slot = block.0.get(value).map(Bytes::copy_from_slice),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Table {
    /// Returns the values of many keys, in the order of `keys`; `None` for each that the table does not hold.
    ///
    /// In a file that is not in memory, each block that holds some of the keys is read once, in file order, and many are
    /// [requested at once](crate::ReadAt::read_many_at), so that a disk works on several at a time. In a mapped file, blocks that
    /// were never used are announced to the system before the first is used.
    ///
    /// Takes some 80 bytes per key while it runs, and at most 6 MiB for blocks and the bytes between them, or one block if that
    /// is larger. From memory, a value is a slice of its block, like that of [`get`](Table::get); from a file, it is a copy.
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
    /// Same as [`get`](Table::get); if a block cannot be read, no value is returned.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut found = Values::new(self, keys.len());
        let mut wanted = self.wanted(keys)?;
        if !self.opened.store.file.is_memory() {
            sort_by_block(&mut wanted);
        }
        self.search_blocks(&wanted, |keys, block| found.search(keys, block))?;
        Ok(found.values)
    }

    /// The keys that may be in the table, in the order in which this was found out, each with the block to look in.
    fn wanted<'k, K: AsRef<[u8]>>(&self, keys: &'k [K]) -> Result<Vec<Lookup<'_, &'k [u8]>>> {
        let mut lookups = Lookups::new(self, keys)?;
        self.opened.ask(|| lookups.ask(LAYERS))?;
        Ok(lookups.wanted)
    }

    /// Loads the blocks to look in, many at a time, each once for adjacent keys, and passes each to `search` with the keys to look for
    /// in it. If the file is not in memory, `wanted` is in the order of blocks.
    pub(crate) fn search_blocks<K>(
        &self,
        wanted: &[Lookup<'_, K>],
        mut search: impl FnMut(&[Lookup<'_, K>], Loaded<'_>) -> Result<()>,
    ) -> Result<()> {
        let Opened { parts, store, .. } = &*self.opened;
        if store.file.is_memory() {
            let found = wanted.iter().map(|wanted| wanted.found.to_ref());
            found.for_each(|found| store.announce_block(parts, found));
            // Blocks of some keys are loaded from memory while those of others are searched.
            let prefetch = |wanted: &Lookup<'_, K>| store.prefetch_in_place(wanted.found);
            let mut ahead = wanted.iter();
            ahead.by_ref().take(OVERLAPPED).for_each(prefetch);
            for (found, keys) in blocks_of(wanted) {
                ahead.by_ref().take(keys.len()).for_each(prefetch);
                search(keys, store.load(parts, found, self.read, false, &mut None)?)?;
            }
            return Ok(());
        }
        let of_blocks = blocks_of(wanted).map(|(found, keys)| (found.to_ref(), keys));
        let (blocks, keys): (Vec<_>, Vec<_>) = of_blocks.unzip();
        let mut result = Ok(());
        store.load_many(parts, &blocks, self.read, |i, block| {
            if let (Ok(()), Some(keys)) = (&result, keys.get(i)) {
                result = block.and_then(|block| search(keys, whole(&block)));
            }
        });
        result
    }
}
