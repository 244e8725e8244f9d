//! Checking the order of a block's keys, on which every search rests.

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
        let mut key: Vec<u8> = Vec::with_capacity(64);
        let mut whole = Vec::new(); // the key in question, where an order compares whole keys
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
            check_shared(offset, shared, if is_restart { 0 } else { key.len() })?;
            let (head, tail) = key.split_at(shared);
            let previous = if offset > 0 { Some(&key[..]) } else { after };
            let ascends = match (order, previous) {
                (_, None) => true,
                // What the two share need not be compared.
                (Order::Bytewise, Some(_)) if offset > 0 => compare_bytes(tail, unshared).0.is_lt(),
                (_, Some(previous)) => {
                    whole.clear();
                    whole.extend_from_slice(head);
                    whole.extend_from_slice(unshared);
                    order.compare(previous, &whole).is_lt()
                }
            };
            if !ascends {
                let what = if offset > 0 {
                    "keys"
                } else {
                    "an index key and a key of the next block"
                };
                let this = [head, unshared].concat();
                return Err(misordered(order, what, previous.unwrap_or(&[]), &this));
            }
            key.truncate(shared);
            key.extend_from_slice(unshared);
            rest = next;
        }
        if let Some(restart) = restarts.next().filter(|_| !entries.is_empty()) {
            return Err(Defect::new(
                "each restart at the beginning of an entry",
                format!("one at byte {restart} of the block"),
            ));
        }
        if !entries.is_empty() && order.compare(&key, up_to).is_gt() {
            return Err(misordered(
                order,
                "a block's last key and its index key",
                &key,
                up_to,
            ));
        }
        Ok(())
    }
}

#[cold]
fn misordered(order: &Order, what: &str, previous: &[u8], key: &[u8]) -> Defect {
    Defect::misordered(order.misfit(what, &show_key(previous), &show_key(key)))
}
