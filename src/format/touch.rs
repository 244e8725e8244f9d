//! Memory asked for before it is needed.
//!
//! What is not in the processor's caches comes in a line at a time, each to be waited for. Lines that are asked for
//! beforehand arrive together, and while other work goes on.

/// Bytes that processors fetch at once.
pub(crate) const LINE: usize = 64;

/// Asks for the lines that `items` begin in.
#[cfg(feature = "prefetch")]
#[inline]
pub(crate) fn touch<'a, T: Copy + 'a>(items: impl Iterator<Item = &'a T>) {
    items.for_each(|item| prefetch_index::prefetch_index(std::slice::from_ref(item), 0));
}

/// Reads `items`: sooner or later the processor waits for their lines, but not for one after the other.
#[cfg(not(feature = "prefetch"))]
#[inline]
pub(crate) fn touch<'a, T: Copy + 'a>(items: impl Iterator<Item = &'a T>) {
    items.for_each(|item| _ = std::hint::black_box(*item));
}

/// The first byte of each line of `bytes`, counted from their beginning.
#[inline]
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &u8> {
    bytes.chunks(LINE).filter_map(<[u8]>::first)
}
