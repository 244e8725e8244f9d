//! The way back from an entry to the restart before it.

use super::super::Defect;
use super::super::block::{Block, check_shared};
use super::Place;
use super::key::{CHUNK, Key, Piece, merge};

/// The entries from a restart up to the current one.
///
/// An entry knows what it shares with the one before, so backward steps need the keys before it. The first
/// step back decodes the restart interval once. Short keys, in an interval of ordinary length, are kept as they are. For
/// others it is kept what each entry cut off the key before: an undo log, no longer than the interval itself.
#[derive(Debug, Default, Clone)]
pub(super) struct WayBack {
    short: Vec<Short>,
    long: Vec<Undo>,
    /// The cut-off key bytes of all of `long`, end to end.
    tails: Vec<u8>,
}

/// Most entries of an interval that are kept with their keys. LevelDB's have 16.
const MOST_SHORT: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Short {
    at: Place,
    key_len: u32,
    key: [u8; CHUNK],
}

/// What takes the cursor from an entry back to the one before it.
#[derive(Debug, Clone, Copy)]
struct Undo {
    before: Place,
    /// What the two keys share. The rest of the key before is in `tails`, from `tail_start` on.
    shared: u32,
    tail_start: u32,
}

impl WayBack {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
    }

    /// The entry before that `at` and its key, if both are kept.
    #[inline]
    pub(super) fn pop_short(&mut self, at: Place, key: &mut Key) -> Option<Place> {
        let leads_here = |before: &mut Short| before.at.end() == at.offset as usize;
        let before = self.short.pop_if(leads_here)?;
        key.set_short(&before.key, before.key_len as usize);
        Some(before.at)
    }

    /// The entry before that `at`, if it is in the log; `key` is taken back to its.
    pub(super) fn pop_long(&mut self, at: Place, key: &mut Key) -> Option<Place> {
        let leads_here = |undo: &mut Undo| undo.before.end() == at.offset as usize;
        let undo = self.long.pop_if(leads_here)?;
        let tail_start = undo.tail_start as usize;
        let tail = Piece::of(&self.tails, tail_start, self.tails.len() - tail_start);
        key.splice(undo.shared as usize, tail);
        self.tails.truncate(tail_start);
        Some(undo.before)
    }

    /// The entry of `block` that ends at `end`. `key` becomes its key, and the way from there back to its restart
    /// is kept.
    pub(super) fn decode<B: AsRef<[u8]>>(
        &mut self,
        block: &Block<B>,
        end: usize,
        key: &mut Key,
    ) -> Result<Place, Defect> {
        let restart = block.restart_before(end);
        self.clear();
        if let Some(last) = self.decode_short(block, restart, end) {
            key.set_short(&last.key, last.key_len as usize);
            return Ok(last.at);
        }
        self.clear();
        self.decode_long(block, restart, end, key)
    }

    /// `None` if that takes the log, or is an error.
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
                at: Place::of(offset, &entry),
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
    ) -> Result<Place, Defect> {
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
                let tail = key.as_slice().get(entry.shared..);
                self.tails.extend_from_slice(tail.unwrap_or_default());
            }
            key.splice(entry.shared, Piece::unshared(block, &entry));
            let here = Place::of(offset, &entry);
            if entry.end == end {
                return Ok(here);
            }
            if entry.end > end {
                return Err(Defect::new(
                    format!("an entry that ends at byte {end} of the block"),
                    format!("one from {offset} to {}", entry.end),
                ));
            }
            offset = entry.end;
            before = Some(here);
        }
    }
}
