//! Recognises index and metaindex among blocks that a scan found, and tells them from data.

use std::ops::Range;

use super::IndexState;
use super::found::{Found, key_room};
use super::survey::Survey;
use crate::comparator::Order;
use crate::error::Section;
use crate::format::filter_block::FILTER_PREFIX;
use crate::format::footer::BlockHandle;
use crate::format::page;
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::PROPERTIES_NAME;
use crate::read::index::Index;
use crate::read::options::OpenOptions;

/// A block that may be the index.
#[derive(Debug)]
struct Candidate {
    index: Index,
    metaindex: Option<BlockHandle>,
    /// Bytes of the blocks before it that it knows.
    known_bytes: u64,
}

impl Survey<'_> {
    /// Looks among the blocks found for one that is the index of those before it. If there are several, one may be that of
    /// an older table: takes the one that lists most. Takes none that lies within a block of another index, where it is
    /// part of a value.
    pub(super) fn look_for_index(&mut self) {
        /// Most candidates that are examined. Only data that consists of handles makes more, or so large ones that there is
        /// no room for the next, and the true index comes after such data.
        const MOST: usize = 64;
        let candidates = self
            .data()
            .filter(|(found, digest)| digest.all_handles && !self.is_metaindex(found));
        let candidates: Vec<BlockHandle> = candidates.map(|(found, _)| found.handle()).collect();
        let indexes = candidates.into_iter().rev().filter_map(|handle| {
            // In a file that lost or gained bytes before them, handles may lead anywhere.
            let index = self.sound_index_at(handle, u64::MAX)?;
            Some((handle, index))
        });
        let mut room = key_room(self.file.size);
        let few = indexes.take(MOST).take_while(|(_, index)| {
            let fits = room > 0;
            let keys = (0..index.len()).map(|i| index.key(i).len() as u64);
            room = room.saturating_sub(keys.sum());
            fits
        });
        let likely = few.filter_map(|(handle, index)| {
            let candidate = self.index_at(handle, index)?;
            Some((handle, candidate))
        });
        let likely: Vec<(BlockHandle, Candidate)> = likely.collect();
        let is_inside = |inner: BlockHandle| {
            let mut others = likely.iter().filter(|(handle, _)| *handle != inner);
            others.any(|(_, other)| block_around(&other.index, inner).is_some())
        };
        let inside: Vec<bool> = likely
            .iter()
            .map(|(handle, _)| is_inside(*handle))
            .collect();
        let best = likely
            .into_iter()
            .zip(inside)
            .filter_map(|(candidate, inside)| (!inside).then_some(candidate))
            .max_by_key(|(_, candidate)| candidate.known_bytes);
        if let Some((handle, candidate)) = best {
            self.set_aside(Section::Index, handle);
            if let Some(metaindex) = candidate.metaindex {
                self.set_aside(Section::Metaindex, metaindex);
            }
            self.settle_on(candidate.index, handle, IndexState::Found);
        }
    }

    /// `index`, which is the block at `handle`, if it can be the index of the blocks before it.
    ///
    /// A data block could pass for an index only if each of its values were the handle of a block, in the file's order, if
    /// the blocks before it had those sizes, and if its keys separated theirs. With two blocks or more, its keys would then
    /// be out of order as data. An index of a single block is recognised by its place: a metaindex or properties lie between the
    /// last data block and the index, and no data after it.
    fn index_at(&self, handle: BlockHandle, index: Index) -> Option<Candidate> {
        let end = handle.end()?;
        let known = |found: &Found| belongs(&index, found, self.order);
        let in_place =
            |found: &Found| known(found).is_some_and(|i| index.handle(i) == found.handle());
        let mut before = self.data_before(handle.offset).peekable();
        let metaindex = before.next_if(|found| !in_place(found) && self.is_metaindex(found));
        let metaindex = metaindex.map(Found::handle);
        let after_metaindex = |data_end: u64| {
            let before = self.map.frames.range(..handle.offset).next_back();
            let is_empty = before.is_some_and(|(_, before)| {
                before.range.end == handle.offset && before.entries() == 0
            });
            // A gap of any length will do: what lies there may have lost bytes.
            let has_room = data_end < handle.offset;
            (metaindex.is_some() || is_empty || has_room).then_some(())
        };
        let is_last = || {
            let after = self.map.frames.range(end..).map(|(_, found)| found);
            let mut after = after.filter(|found| found.digest().is_some());
            after.all(|found| {
                found.range.start == end && (self.is_set_aside(found) || self.is_metaindex(found))
            })
        };
        if let Some(last) = before.peek() {
            known(last)?;
            // As data after that block, it would have only higher keys.
            let highest = &last.digest()?.last;
            if self.order.compare(index.key(0), highest).is_gt() {
                after_metaindex(last.range.end)?;
            }
        } else if !(is_last() && fills_the_front(&index)) {
            // No data block survived. The handles must at least fit the place. If bytes are missing before it, they must
            // be those of blocks that fill a file from its front, which values are not by chance, unless there is only
            // one.
            after_metaindex(index.handle(index.len().checked_sub(1)?).end()?)?;
        }
        let (mut blocks, mut known_bytes, mut unknown_bytes) = (0, 0, 0);
        for found in before {
            if known(found).is_some() {
                blocks += 1;
                known_bytes += found.len();
            } else if block_around(&index, found.handle()).is_none() {
                unknown_bytes += found.len();
            } // else it was part of a value in a block that is damaged
        }
        (known_bytes >= unknown_bytes && (blocks > 1 || is_last())).then_some(Candidate {
            index,
            metaindex,
            known_bytes,
        })
    }

    /// Looks for a metaindex at the end of what was found. Unless an index has a data block in its place, nothing else
    /// tells it from data whose keys come before `filter.`.
    pub(super) fn look_for_metaindex(&mut self) {
        let is_data = |found: &Found| {
            let index = self.index.as_ref();
            let place =
                index.and_then(|index| Some(index.handle(belongs(index, found, self.order)?)));
            place == Some(found.handle())
        };
        let last = self.data_before(self.file.size).next();
        let metaindex = last
            .filter(|last| !is_data(last) && self.is_metaindex(last))
            .map(Found::handle);
        if let Some(handle) = metaindex {
            self.set_aside(Section::Metaindex, handle);
        }
    }

    /// Whether `found` names filters, which lie before it and are not data.
    fn is_metaindex(&self, found: &Found) -> bool {
        // Beside the metaindex lies the index: its keys may look like names of filters since those of the data do. It comes
        // after the metaindex, except in tables that have properties.
        let names_properties = |found: &Found| {
            found
                .digest()
                .is_some_and(|digest| *digest.first == *PROPERTIES_NAME)
        };
        let is_stock = |other: &&Found| self.is_stock(other) && self.names_filters(other);
        let before = self.map.frames.range(..found.range.start).next_back();
        let before = before.map(|(_, before)| before).filter(is_stock);
        let after = self.map.frames.range(found.range.end..).next();
        let after = after.map(|(_, after)| after).filter(is_stock);
        let is_index = before.is_some() || after.is_some_and(names_properties);
        (names_properties(found) || !is_index) && self.names_filters(found)
    }

    /// Whether `found` names properties, a filter of prefixes and a filter of a built-in policy, or some of these, and nothing
    /// else, as in most tables.
    fn is_stock(&self, found: &Found) -> bool {
        let policies = OpenOptions::new().known_policies();
        let is_stock = |name: &[u8]| {
            let filter = name.strip_prefix(FILTER_PREFIX);
            let mut names = policies.iter().map(|policy| policy.name().as_bytes());
            name == PROPERTIES_NAME
                || name.starts_with(PREFIXES_NAME)
                || filter.is_some_and(|filter| names.any(|name| name == filter))
        };
        found.digest().is_some_and(|digest| {
            digest.entries <= 3 && is_stock(&digest.first) && is_stock(&digest.last)
        })
    }

    /// As [`is_metaindex`](Self::is_metaindex), by the block alone.
    fn names_filters(&self, found: &Found) -> bool {
        let Some(digest) = found.digest().filter(|digest| digest.all_handles) else {
            return false;
        };
        if !names_part(&digest.first) && !digest.last.starts_with(FILTER_PREFIX) {
            return false;
        }
        let start = found.range.start;
        let is_stock = self.is_stock(found);
        let may_be_there = |other: &Found| other.range == found.range || other.no_data().is_some();
        let is_free = |place: Range<u64>| self.map.has_only_filters(place, start);
        self.handles_in(found.handle()).iter().all(|filter| {
            let Some(end) = filter.end() else {
                return false;
            };
            let here = if is_stock {
                // No data has such a name by chance. If it is data after all, its handle leads to data exactly.
                self.map.at(*filter).is_none_or(may_be_there)
            } else {
                // The handle leads to a filter, or to nothing sound. In a file that lost bytes, that place may reach
                // past the block itself.
                filter.offset < start && is_free(filter.offset..end.min(start))
            };
            // In a file that lost or gained bytes, the filter is the block right before, or was.
            let len = end - filter.offset;
            let right_before = || {
                if is_stock {
                    return is_free(start.saturating_sub(len)..start);
                }
                let before = start.checked_sub(len);
                before
                    .and_then(|at| self.map.frames.get(&at))
                    .is_some_and(|found| found.range.end == start && found.no_data().is_some())
            };
            here || right_before()
        })
    }
}

/// Whether a metaindex, of this crate or of RocksDB, has a filter or properties under `name`.
pub(super) fn names_part(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [FILTER_PREFIX, PREFIXES_NAME, b"fullfilter.", b"rocksdb."];
    name == PROPERTIES_NAME || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Which data block of `index` the block `found` is, wherever in the file it lies: by its size, and by the index keys,
/// between which its keys must lie.
pub(super) fn belongs(index: &Index, found: &Found, order: &Order) -> Option<usize> {
    let digest = found.digest()?;
    let i = index.seek(&digest.last, order)?.block;
    let after_previous = i
        .checked_sub(1)
        .is_none_or(|before| order.compare(index.key(before), &digest.first).is_lt());
    (after_previous && index.handle(i).size == found.handle().size).then_some(i)
}

/// Whether the blocks of `index` follow each other from the front of a file, without gaps or with the padding of an aligned
/// table.
fn fills_the_front(index: &Index) -> bool {
    let handles = (0..index.len()).map(|i| index.handle(i));
    handles
        .scan(Some(0), |end, handle| {
            let follows = end.is_some_and(|end: u64| {
                let padded = end.checked_add(page::to_boundary(end));
                end == handle.offset || padded == Some(handle.offset)
            });
            *end = handle.end();
            Some(follows)
        })
        .all(|follows| follows)
}

/// The block of `index` that `inner` lies within, at its beginning or further in.
pub(super) fn block_around(index: &Index, inner: BlockHandle) -> Option<BlockHandle> {
    let (mut low, mut high) = (0, index.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if index.handle(middle).offset <= inner.offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let outer = index.handle(low.checked_sub(1)?);
    (inner.end()? <= outer.end()?).then_some(outer)
}
