//! A file in memory, with several reference counts, so that threads do not contend for one.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::read::source::stats::{SHARDS, shard_of_this_thread};

/// Handles to a file in memory that count their slices separately; few threads share one.
///
/// All slices of one [`Bytes`] share a count. Two threads whose lookups return slices would contend for its cache line, which
/// takes longer than a lookup in a small table.
#[derive(Debug)]
pub(crate) struct Owners(Box<[OnceLock<Bytes>]>);

/// Keeps counts in cache lines of their own; processors fetch lines in pairs.
#[repr(align(128))]
struct Owner(Bytes);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Owners {
    /// Handles to a file in memory; none for any other file.
    pub(crate) fn new(is_memory: bool) -> Owners {
        let count = if is_memory { SHARDS } else { 0 };
        Owners((0..count).map(|_| OnceLock::new()).collect())
    }

    /// Bytes of memory that they take. An owner has a counter before it, in cache lines of its own.
    pub(crate) fn weight(&self) -> usize {
        let made = self.0.iter().filter(|owner| owner.get().is_some());
        size_of_val(&*self.0) + made.count() * 2 * size_of::<Owner>()
    }

    /// The bytes of `file`, with the calling thread's count. Every call must pass the same `file`.
    #[inline]
    pub(crate) fn of_this_thread<'a>(&'a self, file: &'a Bytes) -> &'a Bytes {
        match self.0.get(shard_of_this_thread()) {
            Some(owner) => owner.get_or_init(|| Bytes::from_owner(Owner(file.clone()))),
            None => file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_handles_of_their_own_to_the_same_bytes() {
        let file = Bytes::from(b"a file".to_vec());
        let owners = Owners::new(true);
        let own = |_| {
            let own = owners.of_this_thread(&file);
            assert_eq!(own.as_ptr_range(), file.as_ptr_range());
            std::ptr::from_ref(own) as usize
        };
        let mine = own(());
        assert_eq!(own(()), mine);
        let other = std::thread::scope(|scope| scope.spawn(|| own(())).join().unwrap());
        assert_ne!(other, mine);
        // A slice that outlives all of them.
        let slice = owners.of_this_thread(&file).slice(2..);
        drop((owners, file));
        assert_eq!(slice, "file");
    }
}
