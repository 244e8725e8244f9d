//! Checking the order of a block's keys, on which every search rests.

use std::borrow::Cow;

use super::Defect;
use super::block::{Block, KeyWork, SplitEntry, check_shared, split_entry};
use crate::comparator::{Order, compare_bytes};
use crate::error::show_key;

impl<B: AsRef<[u8]>> Block<B> {
    /// Checks that entries and restarts have the form of a block, and that its keys ascend from past `after`, the index key
    /// of the block before, up to `up_to`, the block's own.
    ///
    /// One walk over the entries, for when a data block is first seen.
    pub(crate) fn check_keys(
        &self,
        order: &Order,
        after: Option<&[u8]>,
        up_to: &[u8],
    ) -> Result<(), Defect> {
        self.check_restarts()?;
        if let Order::Custom(_) = order {
            // Comparing whole keys could take the square of the block.
            KeyWork::of_block().take(self)?;
        }
        let entries = self.entries();
        let mut restarts = self.restarts().peekable();
        let mut previous = Key::default();
        let mut rest = entries;
        while !rest.is_empty() {
            let offset = entries.len() - rest.len();
            let SplitEntry {
                shared,
                unshared,
                rest: next,
                ..
            } = split_entry(entries, rest)?;
            let is_restart = restarts.next_if_eq(&offset).is_some();
            check_shared(offset, shared, if is_restart { 0 } else { previous.len() })?;
            let ascends = match (order, after) {
                (_, None) if offset == 0 => true,
                (_, Some(after)) if offset == 0 => order.compare(after, unshared).is_lt(),
                (Order::Bytewise, _) => previous.is_below(shared, unshared),
                (Order::Custom(_), _) => {
                    let key = previous.followed_by(shared, unshared);
                    order.compare(&previous.whole(), &key).is_lt()
                }
            };
            if !ascends {
                let before = after.filter(|_| offset == 0);
                let key = previous.followed_by(shared, unshared);
                return Err(match before {
                    Some(before) => {
                        misordered(order, "an index key and the next block's", before, &key)
                    }
                    None => misordered(order, "keys", &previous.whole(), &key),
                });
            }
            previous.become_next(shared, unshared);
            rest = next;
        }
        if let Some(restart) = restarts.next().filter(|_| !entries.is_empty()) {
            return Err(Defect::new(
                "each restart at the beginning of an entry",
                format!("one at byte {restart} of the block"),
            ));
        }
        let last = previous.whole();
        if !entries.is_empty() && order.compare(&last, up_to).is_gt() {
            return Err(misordered(
                order,
                "a block's last key and its index key",
                &last,
                up_to,
            ));
        }
        Ok(())
    }
}

/// A key in two parts: a copy of what it shares with the key before, and the rest where it lies in the block.
///
/// The next key shares most of what this one shares, so that few bytes are copied and compared for each entry.
#[derive(Default)]
struct Key<'a> {
    shared: Vec<u8>,
    unshared: &'a [u8],
}

impl<'a> Key<'a> {
    fn len(&self) -> usize {
        self.shared.len() + self.unshared.len()
    }

    fn whole(&self) -> Cow<'_, [u8]> {
        if self.shared.is_empty() {
            Cow::Borrowed(self.unshared)
        } else {
            Cow::Owned([&self.shared, self.unshared].concat())
        }
    }

    /// The key that shares so many bytes of this one.
    fn followed_by(&self, shared: usize, unshared: &[u8]) -> Vec<u8> {
        let mut key = self.whole().into_owned();
        key.truncate(shared);
        key.extend_from_slice(unshared);
        key
    }

    /// Whether this key is below the one that shares its first `shared` bytes, of which there are so many, in bytewise
    /// order.
    #[inline]
    fn is_below(&self, shared: usize, unshared: &[u8]) -> bool {
        match shared.checked_sub(self.shared.len()) {
            Some(more) => {
                let (_, rest) = self.unshared.split_at(more);
                match (rest.first(), unshared.first()) {
                    (Some(a), Some(b)) if a != b => a < b,
                    _ => compare_bytes(rest, unshared).0.is_lt(),
                }
            }
            None => {
                let rest = self.shared.iter().skip(shared).chain(self.unshared);
                rest.lt(unshared)
            }
        }
    }

    /// Becomes the key that shares so many bytes of this one.
    #[inline]
    fn become_next(&mut self, shared: usize, unshared: &'a [u8]) {
        match shared.checked_sub(self.shared.len()) {
            Some(more) => self
                .shared
                .extend_from_slice(self.unshared.split_at(more).0),
            None => self.shared.truncate(shared),
        }
        self.unshared = unshared;
    }
}

#[cold]
fn misordered(order: &Order, what: &str, previous: &[u8], key: &[u8]) -> Defect {
    Defect::misordered(order.misfit(what, &show_key(previous), &show_key(key)))
}
