//! What the lookups of any table must answer, block by block: written from the documentation, over the naive decoder.
//!
//! A lookup rests on the index and on the block that the index names. So each data block is one of four things, and what a
//! lookup or a walk gives is known as soon as those of the blocks on its way are.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::naive::{self, Block, Compare, Entry, FOOTER_LEN, Handle, Payload};

/// A data block, as a reader of this order has to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its keys ascend and lie between its index keys.
    Sound(Vec<Entry>),
    /// It has the form of a block, but its keys are out of order: an error.
    Misordered(Vec<Entry>),
    /// A wrong checksum, or restarts that are no beginnings of entries: an error.
    Damaged,
    /// The naive decoder does not read it; the crate may.
    Unknown,
}

/// The data blocks of a table, each with its index key.
#[derive(Debug)]
pub struct Model {
    blocks: Vec<(Vec<u8>, State)>,
    compare: Compare,
}

/// Where a walk over the model ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At its bound, or at the table's.
    Bound,
    /// In a block that must be an error.
    Error,
    /// In a block of which nothing is known.
    Unknown,
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl Model {
    /// The model of `file` in the order `compare`; `None` if the naive decoder does not read its index, or the index keys
    /// do not ascend.
    pub fn of(file: &[u8], compare: Compare, most: usize) -> Option<Model> {
        let (metaindex, index) = naive::footer(file)?;
        let data_end = usize::try_from(metaindex.offset.min(index.offset)).ok()?;
        let index = naive::entries_at(file, index)?;
        if !naive::ascends(index.iter().map(|(key, _)| &key[..]), compare) {
            return None;
        }
        let mut blocks: Vec<(Vec<u8>, State)> = Vec::new();
        for (separator, handle) in index {
            let handle = Handle::decode(&mut &handle[..])?;
            handle.range(data_end.min(file.len() - FOOTER_LEN))?;
            let after = blocks.last().map(|(separator, _)| &separator[..]);
            let state = state(file, handle, after, &separator, compare, most);
            blocks.push((separator, state));
        }
        Some(Model { blocks, compare })
    }

    /// Whether a block is of one of these states.
    pub fn has(&self, is: impl Fn(&State) -> bool) -> bool {
        self.blocks.iter().any(|(_, state)| is(state))
    }

    /// Some keys to ask for: of the index and of the entries, `most` of each kind at most.
    pub fn probes(&self, most: usize) -> Vec<Vec<u8>> {
        let entries = |state: &State| match state {
            State::Sound(entries) | State::Misordered(entries) => entries.clone(),
            _ => Vec::new(),
        };
        let keys = self.blocks.iter().flat_map(|(_, state)| entries(state));
        let keys: Vec<Vec<u8>> = keys.map(|(key, _)| key).collect();
        let step = keys.len() / most + 1;
        let separators = self.blocks.iter().map(|(separator, _)| separator);
        let mut probes: Vec<_> = separators.take(most).cloned().collect();
        probes.extend(keys.into_iter().step_by(step));
        probes
    }

    /// The block that can hold `key`.
    fn seek(&self, key: &[u8]) -> Option<usize> {
        let mut separators = self.blocks.iter().map(|(separator, _)| separator);
        separators.position(|separator| (self.compare)(separator, key).is_ge())
    }

    /// What a lookup must give: `Ok` with an answer, or an error; `None` if nothing is known.
    pub fn get(&self, key: &[u8]) -> Option<Result<Option<Vec<u8>>, ()>> {
        let Some(block) = self.seek(key) else {
            return Some(Ok(None));
        };
        match &self.blocks[block].1 {
            State::Sound(entries) => {
                let mut entries = entries.iter();
                let found = entries.find(|(k, _)| (self.compare)(k, key).is_eq());
                Some(Ok(found.map(|(_, value)| value.clone())))
            }
            State::Misordered(_) | State::Damaged => Some(Err(())),
            State::Unknown => None,
        }
    }

    /// Whether no key can be within both bounds: nothing is read then.
    fn is_empty(&self, (lower, upper): Bounds) -> bool {
        let (Some(low), Some(high)) = (key_of(lower), key_of(upper)) else {
            return false;
        };
        let both = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
        match (self.compare)(low, high) {
            Ordering::Less => false,
            Ordering::Equal => !both,
            Ordering::Greater => true,
        }
    }

    /// The entries that a walk from the lower bound gives, and why it ends.
    pub fn forward(&self, (lower, upper): Bounds) -> (Vec<Entry>, End) {
        if self.is_empty((lower, upper)) {
            return (Vec::new(), End::Bound);
        }
        let start = match lower {
            Bound::Unbounded => Some(0),
            Bound::Included(key) | Bound::Excluded(key) => self.seek(key),
        };
        let start = start.unwrap_or(self.blocks.len());
        // No block after the one that may hold the bound has a key within it.
        let last = key_of(upper).and_then(|key| self.seek(key));
        let end = last.map_or(self.blocks.len(), |last| last + 1).max(start);
        let mut walked = Vec::new();
        for (_, state) in &self.blocks[start..end] {
            let entries = match state {
                State::Sound(entries) => entries,
                State::Misordered(_) | State::Damaged => return (walked, End::Error),
                State::Unknown => return (walked, End::Unknown),
            };
            for entry in entries {
                if self.is_below(lower, &entry.0) {
                    continue;
                }
                if self.is_above(upper, &entry.0) {
                    return (walked, End::Bound);
                }
                walked.push(entry.clone());
            }
        }
        (walked, End::Bound)
    }

    /// The entries that a walk from the upper bound gives, and why it ends.
    pub fn backward(&self, (lower, upper): Bounds) -> (Vec<Entry>, End) {
        if self.is_empty((lower, upper)) {
            return (Vec::new(), End::Bound);
        }
        let start = match upper {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => self.seek(key),
        };
        let start = start.map_or(self.blocks.len(), |block| block + 1);
        let first = key_of(lower).map_or(0, |key| self.seek(key).unwrap_or(self.blocks.len()));
        let mut walked = Vec::new();
        for (_, state) in self.blocks[first.min(start)..start].iter().rev() {
            let entries = match state {
                State::Sound(entries) => entries,
                State::Misordered(_) | State::Damaged => return (walked, End::Error),
                State::Unknown => return (walked, End::Unknown),
            };
            for entry in entries.iter().rev() {
                if self.is_above(upper, &entry.0) {
                    continue;
                }
                if self.is_below(lower, &entry.0) {
                    return (walked, End::Bound);
                }
                walked.push(entry.clone());
            }
        }
        (walked, End::Bound)
    }

    fn is_below(&self, lower: Bound<&[u8]>, key: &[u8]) -> bool {
        match lower {
            Bound::Unbounded => false,
            Bound::Included(limit) => (self.compare)(key, limit).is_lt(),
            Bound::Excluded(limit) => (self.compare)(key, limit).is_le(),
        }
    }

    fn is_above(&self, upper: Bound<&[u8]>, key: &[u8]) -> bool {
        match upper {
            Bound::Unbounded => false,
            Bound::Included(limit) => (self.compare)(key, limit).is_gt(),
            Bound::Excluded(limit) => (self.compare)(key, limit).is_ge(),
        }
    }
}

fn state(
    file: &[u8],
    handle: Handle,
    after: Option<&[u8]>,
    up_to: &[u8],
    compare: Compare,
    most: usize,
) -> State {
    let payload = match naive::payload_at(file, handle) {
        Payload::Content(payload) => payload,
        Payload::WrongChecksum => return State::Damaged,
        Payload::Unknown => return State::Unknown,
    };
    let Some(block) = Block::decode(&payload, most) else {
        return State::Unknown;
    };
    if !block.restarts_are_sound {
        return if block.entries.is_empty() {
            State::Unknown
        } else {
            State::Damaged
        };
    }
    let keys = || block.entries.iter().map(|(key, _)| &key[..]);
    let is_past = |key| after.is_none_or(|after| compare(after, key).is_lt());
    let ascends =
        block.ascends(compare) && keys().all(|key| is_past(key) && compare(key, up_to).is_le());
    if ascends {
        State::Sound(block.entries)
    } else {
        State::Misordered(block.entries)
    }
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}
