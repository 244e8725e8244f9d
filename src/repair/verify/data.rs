//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity, Tally, VerifyReport};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::internal_key::InternalKey;
use crate::format::properties::KeyKind;
use crate::read::recognise::Evidence;

/// First and last key of a data block.
type Ends = (Vec<u8>, Vec<u8>);

/// The keys of a table, taken for keys of one kind and in one order.
pub(super) struct Reading {
    pub(super) kind: KeyKind,
    pub(super) order: Order,
    /// Keys out of order, as damage: until it is known whether this is the order of the table.
    pub(super) misordered: VerifyReport,
    /// What index keys say about the order.
    pub(super) evidence: Evidence,
}

impl Reading {
    pub(super) fn new(kind: KeyKind, order: Order) -> Reading {
        Reading {
            kind,
            order,
            misordered: VerifyReport::default(),
            evidence: Evidence::default(),
        }
    }

    /// Checks the keys of data block `i` at `offset` against the index keys around it and the last key of the block before.
    fn check_ends(
        &mut self,
        (i, offset): (u64, u64),
        separator_before: Option<&[u8]>,
        separator: &[u8],
        last_before: Option<&[u8]>,
        (first, last): &Ends,
    ) {
        self.evidence.add_separator(last, separator, &self.order);
        let mut wrong = Vec::new();
        if self.order.compare(last, separator).is_gt() {
            let separator = show_key(separator);
            let expected =
                format!("the last key of data block {i} at or before its index key {separator}");
            wrong.push((expected, last));
        }
        for (before, what) in [
            (separator_before, "the previous index key"),
            (last_before, "the last key of the previous block"),
        ] {
            if let Some(before) = before.filter(|key| self.order.compare(key, first).is_ge()) {
                let before = show_key(before);
                let expected = format!("the first key of data block {i} after {what}, {before}");
                wrong.push((expected, first));
            }
        }
        let place = (Section::Data, offset);
        for (expected, key) in wrong {
            self.misordered
                .find(Severity::Damage, place, expected, show_key(key));
        }
    }
}

impl Verifier<'_> {
    /// Walks the index at `offset` and all data blocks that it leads to.
    pub(super) fn check_data(
        &mut self,
        offset: u64,
        index: Block<Bytes>,
        is_sound: bool,
    ) -> ControlFlow<()> {
        let place = (Section::Index, offset);
        let named_by = is_sound.then_some(place);
        self.walk(place, index.clone(), is_sound, |verifier, key, _| {
            verifier.evidence.add_index_key(key);
        });
        let mut trailing = Tally::default();
        let mut separator: Option<Vec<u8>> = None;
        let mut blocks = 0u64;
        let mut cursor = BlockCursor::new(index);
        while let Ok(true) = cursor.next() {
            let (i, key, value) = (blocks, cursor.key(), cursor.value());
            blocks += 1;
            let before = separator.replace(key.to_vec());
            let Some((handle, len)) = BlockHandle::decode(value) else {
                if is_sound {
                    let expected = format!("a handle for data block {i}");
                    let found = show_key(value);
                    self.report.find(Severity::Damage, place, expected, found);
                }
                continue;
            };
            if len < value.len() {
                let expected = || format!("nothing after the handle of data block {i}");
                trailing.note(|| (expected(), format!("{} bytes more", value.len() - len)));
            }
            if let Some(ends) = self.check_block(handle, named_by) {
                let last_before = self.counted.last_key.take();
                if is_sound {
                    let (block, before) = ((i, handle.offset), before.as_deref());
                    for reading in &mut self.readings {
                        reading.check_ends(block, before, key, last_before.as_deref(), &ends);
                    }
                }
                let (first, last) = ends;
                self.counted.first_key.get_or_insert(first);
                self.counted.last_key = Some(last);
            }
            if let Some(end) = handle.end() {
                self.progress.reach(end)?;
            }
        }
        self.counted_all = is_sound && self.counted.data_blocks == blocks;
        if is_sound {
            self.report.find_tally(Severity::Warning, place, trailing);
        }
        ControlFlow::Continue(())
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters. Returns its ends.
    fn check_block(&mut self, handle: BlockHandle, named_by: Option<Place>) -> Option<Ends> {
        let place = (Section::Data, handle.offset);
        let Some((block, true)) = self.load_entries(handle, Section::Data, named_by) else {
            return None;
        };
        self.counted.data_blocks += 1;
        self.counted.data_bytes += handle.size + TRAILER_LEN as u64;
        let mut is_first = true;
        let mut form = Tally::default();
        let states_versions = self.stated_kind() == Some(KeyKind::Database);
        let ends = self.walk(place, block, true, |verifier, key, value| {
            verifier.counted.entries += 1;
            verifier.counted.key_bytes += key.len() as u64;
            verifier.counted.value_bytes += value.len() as u64;
            if states_versions {
                verifier.counted.add_version(key);
            }
            verifier.evidence.add_entry(key, value);
            if InternalKey::parse(key).is_none() {
                let expected = "internal keys: at least 8 bytes, of type 0 or 1";
                form.note(|| (expected.into(), show_key(key)));
            }
            verifier.ask_filters(handle.offset, key, is_first);
            is_first = false;
        });
        self.malformed.find_tally(Severity::Damage, place, form);
        ends
    }

    /// Calls `each` with each entry of a block. If the block is sound, notes keys that do not ascend. Returns the first key and
    /// the last.
    fn walk(
        &mut self,
        place: Place,
        block: Block<Bytes>,
        is_sound: bool,
        mut each: impl FnMut(&mut Self, &[u8], &[u8]),
    ) -> Option<Ends> {
        // In no order does a key come before itself.
        let mut repeated = Tally::default();
        let mut misordered: Vec<Tally> = Vec::new();
        misordered.resize_with(self.readings.len(), Tally::default);
        let mut ends: Option<Ends> = None;
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let key = cursor.key();
            each(self, key, cursor.value());
            let Some((_, previous)) = &mut ends else {
                ends = Some((key.to_vec(), key.to_vec()));
                continue;
            };
            if previous == key {
                repeated.note_order(previous, key);
            } else {
                for (reading, tally) in self.readings.iter().zip(&mut misordered) {
                    if !reading.order.compare(previous, key).is_lt() {
                        tally.note_order(previous, key);
                    }
                }
            }
            previous.clear();
            previous.extend_from_slice(key);
        }
        self.evidence.end_block();
        if is_sound {
            self.report.find_tally(Severity::Damage, place, repeated);
            for (reading, tally) in self.readings.iter_mut().zip(misordered) {
                reading
                    .misordered
                    .find_tally(Severity::Damage, place, tally);
            }
        }
        ends
    }
}
