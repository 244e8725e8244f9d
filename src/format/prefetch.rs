//! Fetching memory into the processor's caches before it is needed.
//!
//! The processor fetches memory a cache line at a time, and waits for each line that it did not expect. Lines that are
//! requested together arrive together, while other work continues.

use std::sync::atomic::AtomicU64;
#[cfg(not(feature = "prefetch"))]
use std::sync::atomic::Ordering::Relaxed;

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Whether prefetching is only a hint, which never waits. Otherwise, prefetching from a mapped file may wait for a disk.
pub(crate) const IS_HINT: bool = cfg!(feature = "prefetch");

/// Requests the lines in which `items` begin.
#[cfg(feature = "prefetch")]
#[inline]
pub(crate) fn prefetch<'a, T: Copy + 'a>(items: impl Iterator<Item = &'a T>) {
    items.for_each(|item| prefetch_index::prefetch_index(std::slice::from_ref(item), 0));
}

/// Reads `items`: loads their cache lines together, so that the waits overlap.
#[cfg(not(feature = "prefetch"))]
#[inline]
pub(crate) fn prefetch<'a, T: Copy + 'a>(items: impl Iterator<Item = &'a T>) {
    items.for_each(|item| _ = std::hint::black_box(*item));
}

/// Requests the line of `item`.
#[inline]
pub(crate) fn prefetch_atomic(item: &AtomicU64) {
    #[cfg(feature = "prefetch")]
    prefetch_index::prefetch_index(std::slice::from_ref(item), 0);
    #[cfg(not(feature = "prefetch"))]
    std::hint::black_box(item.load(Relaxed));
}

/// Returns one byte of each cache line that `bytes` take, beginning with the first byte.
#[inline]
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &u8> {
    let (lines, rest) = bytes.as_chunks::<LINE>();
    lines
        .iter()
        .filter_map(|line| line.first())
        .chain(rest.first())
}
