//! Checks a block when it is first read: its form, and the order of its keys, on which every search relies.

use super::Defect;
use super::block::{Block, Entry, check_shared, split_entry};
use super::block_cursor::key::{Key, Piece};
use crate::comparator::Order;

impl<B: AsRef<[u8]>> Block<B> {
    /// Checks that the restarts ascend from 0 and lie inside the entries.
    pub(crate) fn check_restarts(&self) -> Result<(), Defect> {
        let entries_len = self.entries().len();
        let mut before = None;
        for (i, restart) in self.restarts().enumerate() {
            let in_order = match before {
                None => restart == 0,
                Some(before) => restart > before && restart < entries_len,
            };
            if !in_order {
                return Err(Defect::new(
                    format!(
                        "restart {i} of {} after {before:?}, the first at 0, all below {entries_len}",
                        self.restart_count()
                    ),
                    format!("{restart}"),
                ));
            }
            before = Some(restart);
        }
        Ok(())
    }

    /// Checks the form of the block: its [restarts](Block::check_restarts), that the entries follow one another up to the
    /// restarts, and that an entry whose key is stored whole begins at each restart.
    pub(crate) fn check_entries(&self) -> Result<(), Defect> {
        self.check_each_entry(|_, _| Ok(()))
    }

    /// Checks the form of the block, and that its keys ascend: from past `after`, the index key of the block before, up to
    /// `up_to`, the block's own index key.
    pub(crate) fn check_keys(
        &self,
        order: &Order,
        after: Option<&[u8]>,
        up_to: &[u8],
    ) -> Result<(), Defect> {
        if let Order::Custom(_) = order {
            // Comparing whole keys could take the square of the block.
            KeyWork::of_block().take(self)?;
        }
        let mut before = Key::default();
        self.check_each_entry(|offset, entry| {
            let (shared, unshared) = (entry.shared, self.unshared(entry));
            let first_after = after.filter(|_| offset == 0);
            let ascends = match (order, first_after) {
                (_, Some(after)) => order.compare(after, unshared).is_lt(),
                (_, None) if offset == 0 => true,
                (Order::Bytewise, _) => before.is_below(shared, unshared),
                (Order::Custom(_), _) => {
                    let key = before.followed_by(shared, unshared);
                    order.compare(before.as_slice(), &key).is_lt()
                }
            };
            if !ascends {
                let key = before.followed_by(shared, unshared);
                return Err(match first_after {
                    Some(after) => {
                        misordered(order, "an index key and the next block's", after, &key)
                    }
                    None => misordered(order, "keys", before.as_slice(), &key),
                });
            }
            before.splice(shared, Piece::unshared(self, entry));
            Ok(())
        })?;
        let last = before.as_slice();
        if !self.entries().is_empty() && order.compare(last, up_to).is_gt() {
            let what = "a block's last key and its index key";
            return Err(misordered(order, what, last, up_to));
        }
        Ok(())
    }

    /// Checks the form of the block, and calls `check` with the offset of each entry and the entry.
    #[inline]
    fn check_each_entry(
        &self,
        mut check: impl FnMut(usize, &Entry) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        self.check_restarts()?;
        let count = self.restart_count();
        let mut offset = 0;
        for next in 1..=count {
            let end = if next < count {
                self.restart(next)
            } else {
                self.entries().len()
            };
            // The key at a restart is stored whole.
            let mut key_len = 0;
            while offset < end {
                let entry = self.entry(offset)?;
                check_shared(offset, entry.shared, key_len)?;
                check(offset, &entry)?;
                key_len = entry.shared + self.unshared(&entry).len();
                offset = entry.end;
            }
            if offset != end {
                return Err(Defect::new(
                    format!("restart {next} at the beginning of an entry"),
                    format!("at byte {end} of the block"),
                ));
            }
        }
        Ok(())
    }

    /// The lengths of all keys, added up as far as the entries can be decoded: the work of comparing each key.
    fn key_bytes(&self) -> u64 {
        let entries = self.entries();
        let (mut rest, mut key_len, mut key_bytes) = (entries, 0, 0u64);
        while !rest.is_empty()
            && let Ok(entry) = split_entry(entries, rest)
            && entry.shared <= key_len
        {
            key_len = entry.shared + entry.unshared.len();
            key_bytes = key_bytes.saturating_add(key_len as u64);
            rest = entry.rest;
        }
        key_bytes
    }
}

#[cold]
fn misordered(order: &Order, what: &str, previous: &[u8], key: &[u8]) -> Defect {
    Defect::misordered(order.misfit(what, previous, key))
}

/// Limits the work of comparing keys in a hostile file: a budget for the lengths of all its keys.
///
/// Keys that share long prefixes can add up to the square of their block's length. No ordinary table comes near the
/// limit: it would take more than 4 GiB of keys that are longer than a kilobyte, differ in a byte or two, have no
/// values, and come by the hundreds to a restart.
#[derive(Debug)]
pub(crate) struct KeyWork(u64);

impl KeyWork {
    /// Granted to each file, and to each byte of a block.
    const FILE: u64 = 4 << 30;
    /// Granted to a block by itself: whole keys of this many bytes are compared in milliseconds.
    const BLOCK: u64 = 64 << 20;
    const BLOCK_BYTE: u64 = 256;

    /// The budget of a file.
    pub(crate) fn of_file() -> KeyWork {
        KeyWork(KeyWork::FILE)
    }

    /// The budget of a single block.
    pub(crate) fn of_block() -> KeyWork {
        KeyWork(KeyWork::BLOCK)
    }

    /// Takes the keys of `block` from the budget. An error if they exceed it: they must not be compared then.
    pub(crate) fn take<B: AsRef<[u8]>>(&mut self, block: &Block<B>) -> Result<(), Defect> {
        let granted = (block.entries().len() as u64).saturating_mul(KeyWork::BLOCK_BYTE);
        let most = self.0.saturating_add(granted);
        let key_bytes = block.key_bytes();
        let Some(left) = most.checked_sub(key_bytes) else {
            return Err(Defect::new(
                format!("keys of at most {most} bytes, all together"),
                format!("{key_bytes}"),
            ));
        };
        self.0 = left.min(KeyWork::FILE);
        Ok(())
    }
}
