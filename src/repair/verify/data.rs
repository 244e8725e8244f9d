//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Verifier;
use super::report::{Ascent, Place, Severity, Tally};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::internal_key::{InternalKey, internal_order};
use crate::format::properties::KeyKind;

/// First and last key of a data block.
type Ends = (Vec<u8>, Vec<u8>);

impl Verifier<'_, '_> {
    /// Takes the index keys as evidence. If nobody named the kind of keys, it is what the properties say, or else the index keys.
    pub(super) fn read_index_keys(&mut self, index: Block<Bytes>) {
        let mut cursor = BlockCursor::new(index);
        while let Ok(true) = cursor.next() {
            self.evidence.add_index_key(cursor.key());
        }
        self.evidence.end_block();
        let kind = self.stated_kind().unwrap_or(self.evidence.kind());
        if self.chooses_kind && kind == KeyKind::Database {
            self.order = internal_order(Order::Bytewise);
            self.report.keys = KeyKind::Database;
        }
    }

    /// Walks the index at `offset` and all data blocks that it leads to.
    pub(super) fn check_data(
        &mut self,
        offset: u64,
        index: Block<Bytes>,
        is_sound: bool,
    ) -> ControlFlow<()> {
        let place = (Section::Index, offset);
        let named_by = is_sound.then_some(place);
        let (mut ascent, mut trailing) = (Ascent::default(), Tally::default());
        let mut separator: Option<Vec<u8>> = None;
        let mut blocks = 0u64;
        let mut cursor = BlockCursor::new(index);
        while let Ok(true) = cursor.next() {
            let (i, key, value) = (blocks, cursor.key(), cursor.value());
            blocks += 1;
            ascent.add(key, |a, b| self.order.compare(a, b));
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
                if is_sound {
                    self.evidence.add_separator(&ends.1, key, &self.order);
                    self.check_separators((i, handle.offset), before.as_deref(), key, &ends);
                }
                let (first, last) = ends;
                self.counted.first_key.get_or_insert(first);
                self.counted.last_key = Some(last);
            }
            if let Some(end) = handle.end() {
                self.progress.reach(end)?;
            }
        }
        self.counted_all = is_sound && self.report.data_blocks == blocks;
        if is_sound {
            self.report_ascent(place, ascent);
            self.report.find_tally(Severity::Warning, place, trailing);
        }
        ControlFlow::Continue(())
    }

    /// Checks a data block's keys against the index keys around it and the block before.
    fn check_separators(
        &mut self,
        (i, offset): (u64, u64),
        separator_before: Option<&[u8]>,
        separator: &[u8],
        (first, last): &Ends,
    ) {
        let place = (Section::Data, offset);
        let mut wrong = Vec::new();
        if self.order.compare(last, separator).is_gt() {
            let separator = show_key(separator);
            let expected =
                format!("the last key of data block {i} at or before its index key {separator}");
            wrong.push((expected, last));
        }
        let last_before = self.counted.last_key.as_deref();
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
        for (expected, key) in wrong {
            self.misordered
                .find(Severity::Damage, place, expected, show_key(key));
        }
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters. Returns its ends.
    fn check_block(&mut self, handle: BlockHandle, named_by: Option<Place>) -> Option<Ends> {
        let place = (Section::Data, handle.offset);
        let Some((block, true)) = self.load_entries(handle, Section::Data, named_by) else {
            return None;
        };
        let (mut ascent, mut form) = (Ascent::default(), Tally::default());
        let mut first: Option<Vec<u8>> = None;
        let states_versions = self.stated_kind() == Some(KeyKind::Database);
        let is_database = self.report.keys == KeyKind::Database;
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let (key, value) = (cursor.key(), cursor.value());
            self.report.entries += 1;
            self.counted.key_bytes += key.len() as u64;
            self.counted.value_bytes += value.len() as u64;
            if states_versions {
                self.counted.add_version(key);
            }
            self.evidence.add_entry(key, value);
            if is_database && InternalKey::parse(key).is_none() {
                let expected = "internal keys: at least 8 bytes, of type 0 or 1";
                form.note(|| (expected.into(), show_key(key)));
            }
            self.ask_filters(handle.offset, key, first.is_none());
            first.get_or_insert_with(|| key.to_vec());
            ascent.add(key, |a, b| self.order.compare(a, b));
        }
        self.evidence.end_block();
        self.report.data_blocks += 1;
        self.counted.data_bytes += handle.size + TRAILER_LEN as u64;
        self.report.find_tally(Severity::Damage, place, form);
        let last = self.report_ascent(place, ascent);
        first.zip(last)
    }

    /// Reports keys that do not ascend. Returns the last one.
    fn report_ascent(&mut self, place: Place, ascent: Ascent) -> Option<Vec<u8>> {
        let (misordered, repeated) = (ascent.misordered, ascent.repeated);
        self.misordered
            .find_tally(Severity::Damage, place, misordered);
        self.report.find_tally(Severity::Damage, place, repeated);
        ascent.previous
    }
}
