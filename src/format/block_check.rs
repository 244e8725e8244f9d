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

    /// Checks the form of the block, and that its keys ascend. Then calls `check_ends` with the first key and the last, if there
    /// are any.
    pub(crate) fn check_keys(
        &self,
        order: &Order,
        check_ends: impl FnOnce(&[u8], &[u8]) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        if let Order::Custom(_) = order {
            // Comparing whole keys could take the square of the block.
            KeyWork::of_block().take(self)?;
        }
        let (mut first, mut before) = (None, Key::default());
        self.check_each_entry(|_, entry| {
            let (shared, unshared) = (entry.shared, self.unshared(entry));
            let ascends = match (first, order) {
                (None, _) => {
                    first = Some(unshared);
                    true
                }
                (_, Order::Bytewise) => before.is_below(shared, unshared),
                (_, Order::Custom(_)) => {
                    let key = before.followed_by(shared, unshared);
                    order.compare(before.as_slice(), &key).is_lt()
                }
            };
            if !ascends {
                let key = before.followed_by(shared, unshared);
                let keys = order.misfit("keys", before.as_slice(), &key);
                return Err(Defect::misordered(keys));
            }
            before.splice(shared, Piece::unshared(self, entry));
            Ok(())
        })?;
        first.map_or(Ok(()), |first| check_ends(first, before.as_slice()))
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
