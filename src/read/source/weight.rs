//! Bytes of memory that an open table takes.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The two counts of an `Arc`.
pub(crate) const ARC: usize = 2 * size_of::<usize>();

/// A table's weight, kept until a part of index or filters is loaded.
///
/// The upper bits count these parts, so that a weight is not kept if a part was loaded while it was computed.
#[derive(Debug, Default)]
pub(crate) struct Weight(AtomicU64);

impl Weight {
    /// Number of bits of the weight, which is 0 if it is not known.
    const BITS: u32 = 48;

    /// Called after a part was loaded.
    pub(crate) fn forget(&self) {
        let next = |known| Some(((known >> Weight::BITS) + 1) << Weight::BITS);
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }

    #[inline]
    pub(crate) fn get_or_find(&self, find: impl FnOnce() -> usize) -> usize {
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

/// Bytes of memory that `bytes` take, with the reference count that clones share, unless they lie in the `file` itself.
pub(crate) fn weight_of(bytes: &Bytes, file: Option<&Bytes>) -> usize {
    let (own, file) = (bytes.as_ptr_range(), file.map(|file| file.as_ptr_range()));
    let is_in_file = file.is_some_and(|file| file.start <= own.start && own.end <= file.end);
    if is_in_file {
        0
    } else {
        bytes.len() + 3 * size_of::<usize>()
    }
}
