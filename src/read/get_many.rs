//! Many lookups at once: each block is read once, and many are asked for at the same time.

use bytes::Bytes;

use crate::error::Result;
use crate::read::index::BlockRef;
use crate::read::table::Table;

/// A key that is looked for, and the block to look in.
pub(crate) struct Wanted<K> {
    pub(crate) found: BlockRef,
    /// The key's position among the caller's keys.
    pub(crate) at: usize,
    pub(crate) key: K,
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
        let (inner, order) = (&*self.inner, self.order()?);
        let is_memory = inner.file.is_memory();
        if !is_memory {
            self.bring_for_all(keys)?;
        }
        let mut wanted = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            if let Some(found) = self.candidate(key)? {
                inner.announce_block(found);
                wanted.push(Wanted { found, at, key });
            }
        }
        let (mut values, mut parts) = (vec![None; keys.len()], Vec::new());
        let mut take = |wanted: &Wanted<&[u8]>, value: Option<Bytes>| match value {
            Some(value) => {
                if let Some(slot) = values.get_mut(wanted.at) {
                    *slot = Some(value);
                }
            }
            None => parts.extend(inner.anchors(wanted.found.piece as usize)),
        };
        if is_memory {
            for wanted in &wanted {
                let block = inner.load(wanted.found, self.read)?;
                let value = inner.find_value(wanted.found, block.payload(), wanted.key, order)?;
                take(wanted, value.map(|value| block.into_bytes(value)));
            }
        } else {
            self.search_blocks(wanted, |keys, block| {
                for wanted in keys {
                    let value = inner.find_value(wanted.found, &block, wanted.key, order)?;
                    let value = value.and_then(|value| block.get(value));
                    take(wanted, value.map(Bytes::copy_from_slice));
                }
                Ok(())
            })?;
        }
        inner.bring(parts)?;
        Ok(values)
    }

    /// Loads the blocks to look in, each once and many at a time, and passes each to `search` with the keys to look for in it. A
    /// block that was read is a slice of what was read with it.
    pub(crate) fn search_blocks<K>(
        &self,
        mut wanted: Vec<Wanted<K>>,
        mut search: impl FnMut(&[Wanted<K>], Bytes) -> Result<()>,
    ) -> Result<()> {
        wanted.sort_unstable_by_key(|wanted| (wanted.found.block, wanted.at));
        let of_blocks: Vec<&[Wanted<K>]> = wanted
            .chunk_by(|a, b| a.found.block == b.found.block)
            .collect();
        let firsts = of_blocks.iter().filter_map(|keys| keys.first());
        let found: Vec<BlockRef> = firsts.map(|wanted| wanted.found).collect();
        let mut result = Ok(());
        self.inner.load_many(&found, self.read, |i, block| {
            if let (Ok(()), Some(keys)) = (&result, of_blocks.get(i)) {
                result = block.and_then(|block| search(keys, block));
            }
        });
        result
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
