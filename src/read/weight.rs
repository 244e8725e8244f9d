//! Bytes of memory that an open table takes.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::format::properties::Properties;
use crate::read::table::{Inner, Table};

/// The two counts of an `Arc`.
pub(super) const ARC: usize = 2 * size_of::<usize>();

/// A table's weight, kept until a part of index or filters comes in.
///
/// The upper bits count these parts, so that a weight is not kept which was determined while one came in.
#[derive(Debug, Default)]
pub(super) struct Weight(AtomicU64);

impl Weight {
    /// Bits of the weight; it is 0 if it is not known.
    const BITS: u32 = 48;

    /// Called after a part has come in.
    pub(super) fn forget(&self) {
        let next = |known| Some(((known >> Weight::BITS) + 1) << Weight::BITS);
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    #[inline]
    fn get_or_find(&self, find: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(Ordering::Acquire);
        let weight = known & ((1 << Weight::BITS) - 1);
        if weight > 0 {
            return weight as usize;
        }
        let found = find();
        let kept = known | found as u64;
        let _ = self
            .0
            .compare_exchange(known, kept, Ordering::Relaxed, Ordering::Relaxed);
        found
    }
}

impl Table {
    /// Bytes of memory that the table takes, as the allocator counts them: some kilobytes, and the pieces of index and filter that were
    /// needed so far. It grows as the table is used, to the sizes of both.
    ///
    /// Leaves out the blocks in a cache, and of a file in memory what lies in that file: its [size](Table::file_bytes) is the caller's to
    /// count. Reads nothing and takes no lock; a few nanoseconds, unless parts came in since the last call.
    pub fn weight(&self) -> usize {
        let inner = &*self.inner;
        inner.weight.get_or_find(|| inner.find_weight()) + inner.file.owners.weight()
    }
}

impl Inner {
    fn find_weight(&self) -> usize {
        let file = self.file.memory();
        let filters = self.filter.iter().chain(&self.prefixes);
        let filters = filters.map(|filter| filter.weight(file));
        let properties = self.properties.as_ref().map_or(0, Properties::weight);
        let own = ARC + size_of::<Inner>() + self.file.weight();
        own + self.index.weight(file) + filters.sum::<usize>() + properties
    }
}

/// What `bytes` take, with the count that clones share, unless they lie in the `file` itself.
pub(super) fn weight_of(bytes: &Bytes, file: Option<&Bytes>) -> usize {
    let (own, file) = (bytes.as_ptr_range(), file.map(|file| file.as_ptr_range()));
    let is_in_file = file.is_some_and(|file| file.start <= own.start && own.end <= file.end);
    if is_in_file {
        0
    } else {
        bytes.len() + 3 * size_of::<usize>()
    }
}
