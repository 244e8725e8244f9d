//! The state of an open table, shared by its clones: it reads missing parts.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::format::properties::Properties;
use crate::read::parts::index::{BlockRef, Found};
use crate::read::parts::{Missing, Part, Parts};
use crate::read::source::weight::ARC;
use crate::read::store::BlockStore;

/// Index and filters, and data blocks. Asks `parts`, and reads what they miss.
pub(crate) struct Opened {
    pub(crate) parts: Parts,
    pub(crate) store: BlockStore,
    pub(crate) properties: Option<Properties>,
    /// Bytes of memory that it takes with the loaded parts, apart from the owners of a file in memory.
    weight: AtomicUsize,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.store.leave();
    }
}

impl Opened {
    pub(crate) fn new(parts: Parts, store: BlockStore, properties: Option<Properties>) -> Opened {
        let own = ARC + size_of::<Opened>() + store.file.weight();
        let of_properties = properties.as_ref().map_or(0, Properties::weight);
        let weight = own + parts.weight(store.file.memory()) + of_properties;
        Opened {
            parts,
            store,
            properties,
            weight: AtomicUsize::new(weight),
        }
    }

    /// Checks a part of index or filters and keeps it; `bytes` are those at its [range](Parts::range).
    pub(crate) fn admit_part(&self, part: Part, bytes: &Bytes) -> Result<()> {
        let file = &self.store.file;
        let loaded = self.parts.admit(part, bytes, file.memory());
        let loaded = loaded.map_err(|defect| {
            let offset = self.parts.range(part).start;
            file.locate(defect, Parts::section(part), offset)
        })?;
        self.weight.fetch_add(loaded, Relaxed);
        Ok(())
    }

    /// Reads the `parts` that are not loaded, all at once, those less than a page apart together, and keeps them.
    #[cold]
    pub(crate) fn read_parts(&self, parts: Vec<Part>) -> Result<()> {
        let (ranges, parts): (Vec<_>, Vec<_>) = self.parts.unread(parts).into_iter().unzip();
        let mut result = Ok(());
        self.store.file.read_each(&ranges, &mut |i, bytes| {
            if let (Ok(()), Some(&part)) = (&result, parts.get(i)) {
                let bytes = bytes.map_err(|e| e.of_section(Parts::section(part)));
                result = bytes.and_then(|bytes| self.admit_part(part, &bytes));
            }
        });
        result
    }

    /// Returns the answer of `ask`, which answers or names the missing parts: those are read, and it is asked again. May take several
    /// reads, since a key may be in any layer of a ribbon filter.
    #[inline]
    pub(crate) fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, Missing>) -> Result<T> {
        for _ in 0..=MAX_READS {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(missing) => self.read_parts(missing)?,
            }
        }
        Err(still_missing())
    }

    /// The data block that a search of the [index](crate::read::parts::index::Index::seek) finds for `key`.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8], is_wanted: bool) -> Result<Option<Found<'_>>> {
        let order = self.parts.order()?;
        self.ask(|| self.parts.seek(key, order, is_wanted))
    }

    /// Data block `i`, one of `0..data_blocks()`.
    pub(crate) fn block(&self, i: usize) -> Result<BlockRef> {
        self.ask(|| self.parts.block(i))
    }

    /// Bytes of memory that this takes, as the allocator counts them.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Relaxed) + self.store.file.owners.weight() + self.store.weight()
    }
}

/// Maximum number of reads until a question is answered: as many as a ribbon can have layers.
pub(crate) const MAX_READS: usize = 256;

/// The error of a question that is not answered although all parts that it named were read.
#[cold]
pub(crate) fn still_missing() -> Error {
    let message = "index or filter lack a part that was read";
    Error::new(ErrorKind::InvalidState, message)
}
