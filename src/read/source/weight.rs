//! Bytes of memory that an open table takes.

use bytes::Bytes;

/// The two counts of an `Arc`.
pub(crate) const ARC: usize = 2 * size_of::<usize>();

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
