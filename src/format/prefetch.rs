//! Fetching memory into the processor's caches before it is needed.
//!
//! The processor fetches memory a cache line at a time, and waits for each line that it did not expect. Lines that are
//! requested together arrive together, while other work continues.

use prefetch_index::prefetch_index;

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Requests the lines in which `items` begin. Only a hint, which never waits.
#[inline]
pub(crate) fn prefetch<'a, T: 'a>(items: impl Iterator<Item = &'a T>) {
    items.for_each(|item| prefetch_index(std::slice::from_ref(item), 0));
}

/// Requests the line at an address, whether or not there is anything.
#[inline]
pub(crate) fn prefetch_address(address: usize) {
    let none: &[u8] = &[];
    prefetch_index(none, address.wrapping_sub(none.as_ptr().addr()));
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
