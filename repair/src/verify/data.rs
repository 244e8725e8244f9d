//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use leveltable::Section;
use leveltable::db::{InternalKey, KeyKind, ValueType};
use leveltable::format::{BlockHandle, Entries};
use leveltable::sister_crates::{Order, show_key};

use super::Verifier;
use super::report::{Place, Severity};

/// First and last key of a data block.
type KeySpan = (Vec<u8>, Vec<u8>);

impl Verifier<'_> {
    /// Walks the index, which is at `place`, and all data blocks that it leads to, until the run is cancelled.
    pub(super) fn check_data(&mut self, index: Entries, place: Place) {
        let order = self.order.clone();
        let (mut blocks, mut end, mut trailing) = (0, 0, None);
        let walked = walk(index, order.as_ref(), |before, key, value| {
            if self.options.progress.is_cancelled {
                return;
            }
            let i = blocks;
            blocks += 1;
            let Some((handle, len)) = BlockHandle::decode(value) else {
                let expected = format!("a handle for data block {i}");
                return self
                    .report
                    .find(Severity::Damage, place, expected, show_key(value));
            };
            if len < value.len() {
                trailing.get_or_insert((i, value.len() - len));
            }
            let frame = handle.frame().unwrap_or(end..end);
            let is_inside = frame.end <= self.file.footer_offset();
            if is_inside && (frame.start < end || frame.end > self.data_end) {
                let expected = format!(
                    "data block {i} between {end} and {}, in the order of the keys",
                    self.data_end
                );
                let found = format!("a handle to {} bytes at {}", handle.size, handle.offset);
                self.report.find(Severity::Damage, place, expected, found);
            }
            end = frame.end;
            let last_before = self.counted.last_key.take();
            self.counted.last_key = match self.check_block(handle, place) {
                None => last_before,
                Some((first, last)) => {
                    let before = [before, last_before.as_deref()];
                    self.check_ends((i, handle.offset), before, key, [&first, &last]);
                    self.counted.first_key.get_or_insert(first);
                    Some(last)
                }
            };
            let _ = self.options.progress.reach(end);
        });
        if let Some((i, len)) = trailing {
            let (expected, found) = (
                format!("nothing after the handle of data block {i}"),
                format!("{len} bytes more"),
            );
            self.report.find(Severity::Warning, place, expected, found);
        }
        self.report_disorder(walked, place);
    }

    /// Reports keys out of order, and returns the ends of the block.
    pub(super) fn report_disorder(&mut self, walked: Walked, place: Place) -> Option<KeySpan> {
        if let Some((expected, found)) = walked.disorder {
            self.report.find(Severity::Damage, place, expected, found);
        }
        walked.ends
    }

    /// Checks the ends of data block `i` at `offset` against its index key, and against those before: the previous index key, and the last
    /// key of the previous block.
    fn check_ends(
        &mut self,
        (i, offset): (u64, u64),
        before: [Option<&[u8]>; 2],
        key: &[u8],
        [first, last]: [&[u8]; 2],
    ) {
        let Some(order) = &self.order else {
            return;
        };
        let place = (Section::Data, offset);
        if order.compare(last, key).is_gt() {
            let key = show_key(key);
            let expected =
                format!("the last key of data block {i} at or before its index key {key}");
            self.report
                .find(Severity::Damage, place, expected, show_key(last));
        }
        let what = [
            "the previous index key",
            "the last key of the previous block",
        ];
        for (before, what) in before.into_iter().zip(what) {
            if let Some(before) = before.filter(|key| order.compare(key, first).is_ge()) {
                let before = show_key(before);
                let expected = format!("the first key of data block {i} after {what}, {before}");
                self.report
                    .find(Severity::Damage, place, expected, show_key(first));
            }
        }
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters. Returns its ends.
    fn check_block(&mut self, handle: BlockHandle, named_by: Place) -> Option<KeySpan> {
        let block = self.load(handle, Section::Data, named_by, Entries::new)?;
        let place = (Section::Data, handle.offset);
        self.counted.data_blocks += 1;
        self.counted.data_bytes += handle.frame().map_or(0, |frame| frame.end - frame.start);
        let stated = self.stated();
        let states_versions = stated.is_some_and(|stated| stated.key_kind == KeyKind::Database);
        let (order, mut malformed) = (self.order.clone(), None);
        let walked = walk(block, order.as_ref(), |_, key, value| {
            self.count_entry(key, value, states_versions);
            if self.report.keys == KeyKind::Database && InternalKey::parse(key).is_none() {
                malformed.get_or_insert_with(|| show_key(key));
            }
            self.ask_filters(handle.offset, key);
        });
        if let Some(found) = malformed {
            let expected = "internal keys: at least 8 bytes, of type 0 or 1";
            self.report.find(Severity::Damage, place, expected, found);
        }
        self.report_disorder(walked, place)
    }

    /// Counts an entry, with its version if the properties state those of the table.
    fn count_entry(&mut self, key: &[u8], value: &[u8], states_versions: bool) {
        let counted = &mut self.counted;
        counted.entries += 1;
        counted.key_bytes += key.len() as u64;
        counted.value_bytes += value.len() as u64;
        if let Some(key) = InternalKey::parse(key).filter(|_| states_versions) {
            let sequence = key.sequence;
            let seen = counted.sequences.clone().unwrap_or(sequence..=sequence);
            counted.sequences = Some(sequence.min(*seen.start())..=sequence.max(*seen.end()));
            counted.deletions += u64::from(key.value_type == ValueType::Deletion);
        }
    }
}

/// What a walk through a block shows.
pub(super) struct Walked {
    ends: Option<KeySpan>,
    /// The first key that does not come after the one before: what was expected and what was found.
    pub(super) disorder: Option<(String, String)>,
}

/// Calls `each` with each entry of a block: the key before, key and value. In no order does a key come after itself.
pub(super) fn walk(
    mut entries: Entries,
    order: Option<&Order>,
    mut each: impl FnMut(Option<&[u8]>, &[u8], &[u8]),
) -> Walked {
    let mut walked = Walked {
        ends: None,
        disorder: None,
    };
    while let Ok(true) = entries.advance() {
        let key = entries.key();
        let previous = walked.ends.as_ref().map(|(_, last)| &last[..]);
        each(previous, key, entries.value());
        let is_before = |previous: &[u8]| match order {
            Some(order) => order.compare(previous, key).is_lt(),
            None => previous != key,
        };
        if let Some(previous) = previous.filter(|previous| !is_before(previous)) {
            let expected = || format!("keys that ascend, one after {}", show_key(previous));
            walked
                .disorder
                .get_or_insert_with(|| (expected(), show_key(key)));
        }
        let (_, last) = walked
            .ends
            .get_or_insert_with(|| (key.to_vec(), Vec::new()));
        key.clone_into(last);
    }
    walked
}
