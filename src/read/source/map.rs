//! A file mapped into memory.

use std::sync::Arc;

use bytes::Bytes;
#[cfg(unix)]
use memmap2::Advice;
use memmap2::Mmap;

use crate::read::source::read_at::Announce;

/// The owner inside the `Bytes` of a map.
struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of a map, and how to tell the system which of them will be needed.
pub(super) fn share(map: Mmap) -> (Bytes, Announce) {
    // Accesses are random: read-ahead would be wasted. What is needed is announced. If the system refuses, it reads more.
    #[cfg(unix)]
    let _ = map.advise(Advice::Random);
    let map = Arc::new(map);
    let bytes = Bytes::from_owner(Owner(Arc::clone(&map)));
    (
        bytes,
        Arc::new(move |offset, len| announce(&map, offset, len)),
    )
}

#[cfg(unix)]
fn announce(map: &Mmap, offset: u64, len: u64) {
    let end = offset.saturating_add(len).min(map.len() as u64);
    if offset < end {
        // Both are at most the map's length. If the system refuses, the bytes are read when they are touched.
        let (offset, len) = (offset as usize, (end - offset) as usize);
        let _ = map.advise_range(Advice::WillNeed, offset, len);
    }
}

#[cfg(not(unix))]
fn announce(_: &Mmap, _: u64, _: u64) {}
