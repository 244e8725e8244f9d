//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity, Tally};
use crate::error::{Section, show_key};
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::internal_key::InternalKey;
use crate::format::properties::KeyKind;
use crate::read::recognise::Evidence;

/// First and last key of a data block.
type Ends = (Vec<u8>, Vec<u8>);

impl Verifier<'_> {
    /// Walks the index, which is at `place`, and all data blocks that it leads to, until the run is cancelled.
    pub(super) fn check_data(&mut self, index: Block<Bytes>, place: Place) {
        let mut trailing = Tally::default();
        let mut blocks = 0u64;
        self.walk(place, index, |verifier, before, key, value| {
            if verifier.options.progress.is_cancelled {
                return;
            }
            let i = blocks;
            blocks += 1;
            let Some((handle, len)) = BlockHandle::decode(value) else {
                let expected = format!("a handle for data block {i}");
                let report = &mut verifier.report;
                return report.find(Severity::Damage, place, expected, show_key(value));
            };
            if len < value.len() {
                let expected = || format!("nothing after the handle of data block {i}");
                trailing.note(|| (expected(), format!("{} bytes more", value.len() - len)));
            }
            if let Some(ends) = verifier.check_block(handle, place) {
                let last_before = verifier.counted.last_key.take();
                let block = (i, handle.offset);
                verifier.check_ends(block, before, key, last_before.as_deref(), &ends);
                let (first, last) = ends;
                verifier.counted.first_key.get_or_insert(first);
                verifier.counted.last_key = Some(last);
            }
            let _ = verifier.options.progress.reach(handle.end().unwrap_or(0));
        });
        self.counted_all = self.counted.data_blocks == blocks;
        self.report.find_tally(Severity::Warning, place, trailing);
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
        let mut find = |expected: String, found: &[u8]| {
            let place = (Section::Data, offset);
            let found = show_key(found);
            self.misordered
                .find(Severity::Damage, place, expected, found);
        };
        if self.order.compare(last, separator).is_gt() {
            let separator = show_key(separator);
            let what = format!("the last key of data block {i} at or before its index key");
            find(format!("{what} {separator}"), last);
        }
        for (before, what) in [
            (separator_before, "the previous index key"),
            (last_before, "the last key of the previous block"),
        ] {
            if let Some(before) = before.filter(|key| self.order.compare(key, first).is_ge()) {
                let before = show_key(before);
                let expected = format!("the first key of data block {i} after {what}, {before}");
                find(expected, first);
            }
        }
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters. Returns its ends.
    fn check_block(&mut self, handle: BlockHandle, named_by: Place) -> Option<Ends> {
        let block = self.load(handle, Section::Data, named_by, KeyWork::open)?;
        let place = (Section::Data, handle.offset);
        self.counted.data_blocks += 1;
        self.counted.data_bytes += handle.size + TRAILER_LEN as u64;
        let mut form = Tally::default();
        let states_versions = self.stated_kind() == Some(KeyKind::Database);
        let ends = self.walk(place, block, |verifier, _, key, value| {
            verifier.counted.entries += 1;
            verifier.counted.key_bytes += key.len() as u64;
            verifier.counted.value_bytes += value.len() as u64;
            if states_versions {
                verifier.counted.add_version(key);
            }
            if verifier.report.keys == KeyKind::Database && InternalKey::parse(key).is_none() {
                let expected = "internal keys: at least 8 bytes, of type 0 or 1";
                form.note(|| (expected.into(), show_key(key)));
            }
            verifier.ask_filters(handle.offset, key);
        });
        self.report.find_tally(Severity::Damage, place, form);
        ends
    }

    /// Calls `each` with each entry of a block: the key before, key and value. Reports keys that do not ascend. Returns the first
    /// key and the last.
    fn walk(
        &mut self,
        place: Place,
        block: Block<Bytes>,
        mut each: impl FnMut(&mut Self, Option<&[u8]>, &[u8], &[u8]),
    ) -> Option<Ends> {
        let mut evidence = Evidence::default();
        let mut misordered = Tally::default();
        let mut ends: Option<Ends> = None;
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let (key, value) = (cursor.key(), cursor.value());
            match place.0 {
                Section::Index => evidence.add_index_key(key),
                _ => evidence.add_entry(key, value),
            }
            let previous = ends.as_ref().map(|(_, last)| &last[..]);
            each(self, previous, key, value);
            let is_below = |previous: &&[u8]| self.order.compare(previous, key).is_lt();
            if let Some(previous) = previous.filter(|previous| !is_below(previous)) {
                misordered.note_order(previous, key);
            }
            let (_, last) = ends.get_or_insert_with(|| (key.to_vec(), Vec::new()));
            last.clear();
            last.extend_from_slice(key);
        }
        self.evidence.add(&evidence.counts());
        self.misordered
            .find_tally(Severity::Damage, place, misordered);
        ends
    }
}
