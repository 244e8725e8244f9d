//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity, Tally};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::internal_key::InternalKey;
use crate::format::properties::KeyKind;

/// First and last key of a data block.
type KeySpan = (Vec<u8>, Vec<u8>);

impl Verifier<'_> {
    /// Walks the index, which is at `place`, and all data blocks that it leads to, until the run is cancelled.
    pub(super) fn check_data(&mut self, index: Block<Bytes>, place: Place) {
        let order = self.order.clone();
        let (mut trailing, mut blocks) = (Tally::default(), 0u64);
        let (_, [misordered, repeated]) = walk(index, &order, |before, key, value| {
            if self.options.progress.is_cancelled {
                return;
            }
            self.evidence.add_index_key(before, key);
            let i = blocks;
            blocks += 1;
            let Some((handle, len)) = BlockHandle::decode(value) else {
                let expected = format!("a handle for data block {i}");
                return (self.report).find(Severity::Damage, place, expected, show_key(value));
            };
            if len < value.len() {
                let expected = || format!("nothing after the handle of data block {i}");
                trailing.note(|| (expected(), format!("{} bytes more", value.len() - len)));
            }
            if let Some(ends) = self.check_block(handle, place) {
                self.check_ends((i, handle.offset), before, key, ends);
            }
            let _ = self.options.progress.reach(handle.end().unwrap_or(0));
        });
        self.report.find_tally(Severity::Warning, place, trailing);
        self.report.find_tally(Severity::Damage, place, repeated);
        self.misordered
            .find_tally(Severity::Damage, place, misordered);
    }

    /// Checks the ends of data block `i` at `offset` against the index keys around it and the last key of the block before.
    fn check_ends(&mut self, block: (u64, u64), before: Option<&[u8]>, key: &[u8], ends: KeySpan) {
        let ((i, offset), (first, last)) = (block, ends);
        self.evidence.add_separator(&last, key, &self.order);
        let mut find = |expected: String, found: &[u8]| {
            let (place, found) = ((Section::Data, offset), show_key(found));
            (self.misordered).find(Severity::Damage, place, expected, found);
        };
        if self.order.compare(&last, key).is_gt() {
            let key = show_key(key);
            let what = format!("the last key of data block {i} at or before its index key");
            find(format!("{what} {key}"), &last);
        }
        let last_before = self.counted.last_key.replace(last);
        for (before, what) in [
            (before, "the previous index key"),
            (last_before.as_deref(), "the last key of the previous block"),
        ] {
            if let Some(before) = before.filter(|key| self.order.compare(key, &first).is_ge()) {
                let before = show_key(before);
                let expected = format!("the first key of data block {i} after {what}, {before}");
                find(expected, &first);
            }
        }
        self.counted.first_key.get_or_insert(first);
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters. Returns its ends.
    fn check_block(&mut self, handle: BlockHandle, named_by: Place) -> Option<KeySpan> {
        let block = self.load(handle, Section::Data, named_by, KeyWork::open)?;
        let place = (Section::Data, handle.offset);
        self.counted.data_blocks += 1;
        self.counted.data_bytes += handle.size + TRAILER_LEN as u64;
        let (order, mut form) = (self.order.clone(), Tally::default());
        let stated = self.stated();
        let states_versions = stated.is_some_and(|stated| stated.key_kind == KeyKind::Database);
        let (ends, [misordered, repeated]) = walk(block, &order, |before, key, value| {
            self.evidence.add_entry(before, key, value);
            self.counted.entries += 1;
            self.counted.key_bytes += key.len() as u64;
            self.counted.value_bytes += value.len() as u64;
            if states_versions {
                self.counted.add_version(key);
            }
            if self.report.keys == KeyKind::Database && InternalKey::parse(key).is_none() {
                let expected = "internal keys: at least 8 bytes, of type 0 or 1";
                form.note(|| (expected.into(), show_key(key)));
            }
            self.ask_filters(handle.offset, key);
        });
        self.report.find_tally(Severity::Damage, place, form);
        self.report.find_tally(Severity::Damage, place, repeated);
        self.misordered
            .find_tally(Severity::Damage, place, misordered);
        ends
    }
}

/// Calls `each` with each entry of a block: the key before, key and value. Returns the first key and the last, the keys that do not
/// ascend, and those that are repeated, which they are in no order.
pub(super) fn walk(
    block: Block<Bytes>,
    order: &Order,
    mut each: impl FnMut(Option<&[u8]>, &[u8], &[u8]),
) -> (Option<KeySpan>, [Tally; 2]) {
    let (mut ends, [mut unsorted, mut repeated]) = (None::<KeySpan>, <[Tally; 2]>::default());
    let mut cursor = BlockCursor::new(block);
    while let Ok(true) = cursor.next() {
        let key = cursor.key();
        let previous = ends.as_ref().map(|(_, last)| &last[..]);
        each(previous, key, cursor.value());
        let is_below = |previous: &&[u8]| order.compare(previous, key).is_lt();
        if let Some(previous) = previous.filter(|previous| !is_below(previous)) {
            let expected = || format!("keys that ascend, one after {}", show_key(previous));
            let equal = previous == key;
            let tally = if equal { &mut repeated } else { &mut unsorted };
            tally.note(|| (expected(), show_key(key)));
        }
        let (_, last) = ends.get_or_insert_with(|| (key.to_vec(), Vec::new()));
        key.clone_into(last);
    }
    (ends, [unsorted, repeated])
}
