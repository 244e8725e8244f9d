//! The way back from an entry to the restart before it.

use super::super::Defect;
use super::super::block::{Block, check_shared};
use super::EntrySpan;
use super::key::{CHUNK, Key, Piece, merge};

/// The entries from a restart up to the current one.
///
/// An entry does not say how the one before began, so the first step back decodes the entries from the restart on, and
/// keeps what the next steps need. Short keys of an interval of ordinary length are kept as they are. For other intervals
/// it keeps an undo log: the bytes that each entry cut off the key before. The log is no longer than the interval.
#[derive(Debug, Default, Clone)]
pub(super) struct WayBack {
    short: Vec<Short>,
    long: Vec<Undo>,
    /// The bytes that all entries of `long` cut off, end to end.
    tails: Vec<u8>,
}

/// Most entries of an interval that are kept with their keys. LevelDB's intervals have 16.
const MOST_SHORT: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Short {
    at: EntrySpan,
    key_len: u32,
    key: [u8; CHUNK],
}

/// Takes the cursor from an entry back to the one before.
#[derive(Debug, Clone, Copy)]
struct Undo {
    before: EntrySpan,
    /// How many bytes the two keys share. The rest of the key before is in `tails`, from `tail_start` on.
    shared: u32,
    tail_start: u32,
}

impl WayBack {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
    }

    /// Pops the entry before the one at `at`, and sets `key` to its key. `None` if the entry is not kept in `short`.
    #[inline]
    pub(super) fn pop_short(&mut self, at: EntrySpan, key: &mut Key) -> Option<EntrySpan> {
        let leads_here = |before: &mut Short| before.at.end() == at.offset as usize;
        let before = self.short.pop_if(leads_here)?;
        key.set_short(&before.key, before.key_len as usize);
        Some(before.at)
    }

    /// Pops the entry before the one at `at`, and turns `key` back into its key. `None` if the entry is not in the log.
    pub(super) fn pop_long(&mut self, at: EntrySpan, key: &mut Key) -> Option<EntrySpan> {
        let leads_here = |undo: &mut Undo| undo.before.end() == at.offset as usize;
        let undo = self.long.pop_if(leads_here)?;
        let tail_start = undo.tail_start as usize;
        let tail = Piece::of(&self.tails, tail_start, self.tails.len() - tail_start);
        key.splice(undo.shared as usize, tail);
        self.tails.truncate(tail_start);
        Some(undo.before)
    }

    /// Decodes the entry of `block` that ends at `end`, and sets `key` to its key. Keeps the way from there back to its
    /// restart.
    pub(super) fn decode<B: AsRef<[u8]>>(
        &mut self,
        block: &Block<B>,
        end: usize,
        key: &mut Key,
    ) -> Result<EntrySpan, Defect> {
        let restart = block.restart_before(end);
        self.clear();
        if let Some(last) = self.decode_short(block, restart, end) {
            key.set_short(&last.key, last.key_len as usize);
            return Ok(last.at);
        }
        self.clear();
        self.decode_long(block, restart, end, key)
    }

    /// `None` if the interval needs the undo log, or is damaged: `decode_long` finds out which.
    fn decode_short<B: AsRef<[u8]>>(
        &mut self,
        block: &Block<B>,
        mut offset: usize,
        end: usize,
    ) -> Option<Short> {
        let (mut key, mut key_len) = ([0; CHUNK], 0);
        loop {
            let entry = block.short_entry(offset)?;
            let unshared = Piece::unshared(block, &entry);
            if entry.shared > key_len {
                return None;
            }
            key = merge(&key, entry.shared, unshared)?;
            key_len = entry.shared + unshared.len();
            let here = Short {
                at: EntrySpan::of(offset, &entry),
                key_len: key_len as u32,
                key,
            };
            offset = entry.end;
            if key_len > CHUNK || offset > end || self.short.len() == MOST_SHORT {
                return None;
            }
            if offset == end {
                return Some(here);
            }
            self.short.push(here);
        }
    }

    fn decode_long<B: AsRef<[u8]>>(
        &mut self,
        block: &Block<B>,
        mut offset: usize,
        end: usize,
        key: &mut Key,
    ) -> Result<EntrySpan, Defect> {
        key.clear();
        self.tails.clear();
        let mut before = None;
        loop {
            let entry = block.entry(offset)?;
            check_shared(offset, entry.shared, key.len())?;
            if let Some(before) = before {
                self.long.push(Undo {
                    before,
                    shared: entry.shared as u32,
                    tail_start: self.tails.len() as u32,
                });
                #[expect(clippy::indexing_slicing, reason = "`check_shared` has just passed")]
                self.tails
                    .extend_from_slice(&key.as_slice()[entry.shared..]);
            }
            key.splice(entry.shared, Piece::unshared(block, &entry));
            let here = EntrySpan::of(offset, &entry);
            if entry.end == end {
                return Ok(here);
            }
            if entry.end > end {
                return Err(Defect::new(
                    format!("an entry that ends at byte {end} of the block"),
                    format!("one from byte {offset} to {}", entry.end),
                ));
            }
            offset = entry.end;
            before = Some(here);
        }
    }
}
