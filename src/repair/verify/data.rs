//! Walks the index and the data blocks that it leads to: keys against each other, against the index, and against
//! the filters.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::Verifier;
use super::blocks::{Loaded, NamedBy, Parsed};
use super::filters::Filter;
use super::properties::Stated;
use super::report::{Ascent, Severity, Tally};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::internal_key::{InternalKey, internal_order};
use crate::format::properties::KeyKind;
use crate::read::recognise::Evidence;

/// A data block's first and last key.
struct Ends {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Verifier<'_, '_> {
    /// Takes the index keys as evidence. If the caller did not name the kind of keys, decides on it: by the properties, or by
    /// the index keys and the first data block that can be read.
    pub(super) fn read_index_keys(&mut self, index: &Parsed) {
        /// Bounds the work in a damaged file.
        const MAX_BLOCKS: usize = 16;
        let mut cursor = BlockCursor::new(index.block.clone());
        while let Ok(true) = cursor.next() {
            self.evidence.add_index_key(cursor.key());
        }
        self.evidence.end_block();
        if let Some(stated) = &self.stated {
            if self.looks_at_keys && stated.key_kind() == KeyKind::Database {
                self.check_as_database();
            }
            return;
        }
        if !self.looks_at_keys || !self.evidence.may_be_database() {
            return;
        }
        let mut evidence = Evidence::default();
        evidence.add(&self.evidence.counts());
        let mut cursor = BlockCursor::new(index.block.clone());
        for _ in 0..MAX_BLOCKS {
            let Ok(true) = cursor.next() else { break };
            if self.add_entries(cursor.value(), &mut evidence).is_some() {
                break;
            }
        }
        if evidence.kind() == KeyKind::Database {
            self.check_as_database();
        }
    }

    fn check_as_database(&mut self) {
        self.order = internal_order(Order::Bytewise);
        self.report.keys = KeyKind::Database;
    }

    /// Adds the entries of the data block at the encoded handle `value`; `None` if the block cannot be read.
    fn add_entries(&mut self, value: &[u8], evidence: &mut Evidence) -> Option<()> {
        let (handle, _) = BlockHandle::decode(value)?;
        let payload = frame::open(&self.try_frame(handle)?);
        let mut cursor = BlockCursor::new(Block::parse(payload.ok()?).ok()?);
        while cursor.next().ok()? {
            evidence.add_entry(cursor.key(), cursor.value());
        }
        Some(())
    }

    /// Walks the index and all data blocks that it leads to.
    pub(super) fn check_data(
        &mut self,
        index_offset: u64,
        index: &Parsed,
        filters: &mut [Filter],
    ) -> ControlFlow<()> {
        let place = (Section::Index, index_offset);
        let named_by = NamedBy {
            place,
            is_sound: index.trusted,
        };
        let (mut ascent, mut trailing) = (Ascent::default(), Tally::default());
        let mut separator: Option<Vec<u8>> = None;
        let mut last_key: Option<Vec<u8>> = None;
        let mut cursor = BlockCursor::new(index.block.clone());
        let mut blocks = 0u64;
        // If an entry makes no sense, the check of the structure has reported it.
        while let Ok(true) = cursor.next() {
            let (i, key, value) = (blocks, cursor.key(), cursor.value());
            blocks += 1;
            ascent.add(key, |a, b| self.order.compare(a, b));
            let decoded = BlockHandle::decode(value);
            let rest = decoded.map_or(0, |(_, len)| value.len() - len);
            if rest > 0 {
                let expected = || format!("nothing after the handle of data block {i}");
                trailing.note(|| (expected(), format!("{rest} bytes more")));
            }
            let loaded = match decoded {
                Some((handle, _)) => {
                    self.counted.add_block(handle);
                    self.load(handle, Section::Data, named_by)
                }
                None if index.trusted => {
                    let expected = format!("a handle for data block {i}");
                    self.report
                        .find(Severity::Damage, place, expected, show_key(value));
                    None
                }
                None => None,
            };
            let offset = decoded.map_or(0, |(handle, _)| handle.offset);
            let ends = loaded.and_then(|loaded| self.check_block(offset, loaded, filters));
            if let Some(ends) = ends {
                let data = &mut self.counted.data;
                data.first_key.get_or_insert_with(|| ends.first.clone());
                let before = (separator.as_deref(), last_key.as_deref());
                if index.trusted {
                    self.evidence.add_separator(&ends.last, key, &self.order);
                    self.check_separators((i, offset), before, key, &ends);
                }
                last_key = Some(ends.last);
            }
            separator = Some(key.to_vec());
            if let Some(end) = decoded.and_then(|(handle, _)| handle.end()) {
                self.progress.reach(end)?;
            }
        }
        self.counted.is_complete =
            index.trusted && index.well_formed && self.counted.data.data_blocks == blocks;
        self.counted.data.last_key = last_key;
        if index.trusted {
            self.report_ascent(place, ascent);
            self.report.find_tally(Severity::Warning, place, trailing);
        }
        ControlFlow::Continue(())
    }

    /// Checks a data block's keys against the index keys around it and the block before.
    fn check_separators(
        &mut self,
        (i, offset): (u64, u64),
        (separator_before, last_before): (Option<&[u8]>, Option<&[u8]>),
        separator: &[u8],
        ends: &Ends,
    ) {
        let place = (Section::Data, offset);
        if self.order.compare(&ends.last, separator) == Ordering::Greater {
            self.misordered.find(
                Severity::Damage,
                place,
                format!(
                    "the last key of data block {i} at or before its index key {}",
                    show_key(separator)
                ),
                show_key(&ends.last),
            );
        }
        for (before, what) in [
            (separator_before, "the previous index key"),
            (last_before, "the last key of the previous block"),
        ] {
            if let Some(before) = before
                && self.order.compare(before, &ends.first) != Ordering::Less
            {
                self.misordered.find(
                    Severity::Damage,
                    place,
                    format!(
                        "the first key of data block {i} after {what}, {}",
                        show_key(before)
                    ),
                    show_key(&ends.first),
                );
            }
        }
    }

    /// Walks a data block: structure, order, form of the keys, and each key against the filters.
    fn check_block(&mut self, offset: u64, loaded: Loaded, filters: &mut [Filter]) -> Option<Ends> {
        if !loaded.trusted {
            return None;
        }
        let place = (Section::Data, offset);
        let Parsed {
            block, well_formed, ..
        } = self.parse(offset, loaded, Section::Data)?;
        filters
            .iter_mut()
            .for_each(|filter| filter.note_uncovered(offset));
        let (mut ascent, mut form) = (Ascent::default(), Tally::default());
        let mut first: Option<Vec<u8>> = None;
        let states_versions = self.stated.as_ref().map(Stated::key_kind) == Some(KeyKind::Database);
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let key = cursor.key();
            self.report.entries += 1;
            self.counted.add_entry(key, cursor.value(), states_versions);
            self.evidence.add_entry(key, cursor.value());
            let is_database = self.report.keys == KeyKind::Database;
            if is_database && InternalKey::parse(key).is_none() {
                form.note(|| {
                    (
                        "internal keys: at least 8 bytes, of type 0 or 1".into(),
                        show_key(key),
                    )
                });
            }
            for filter in filters.iter_mut().filter(|filter| filter.trusted) {
                self.report.filter_checks += 1;
                filter.note_rejected(offset, key, self.order.filter_key(key));
            }
            first.get_or_insert_with(|| key.to_vec());
            ascent.add(key, |a, b| self.order.compare(a, b));
        }
        self.evidence.end_block();
        self.report.data_blocks += 1;
        if !well_formed {
            return None;
        }
        self.counted.data.data_blocks += 1;
        self.report.find_tally(Severity::Damage, place, form);
        let last = self.report_ascent(place, ascent);
        first.zip(last).map(|(first, last)| Ends { first, last })
    }

    /// Reports keys that do not ascend. Returns the last one.
    fn report_ascent(&mut self, place: (Section, u64), ascent: Ascent) -> Option<Vec<u8>> {
        let Ascent {
            previous,
            misordered,
            repeated,
        } = ascent;
        self.misordered
            .find_tally(Severity::Damage, place, misordered);
        self.report.find_tally(Severity::Damage, place, repeated);
        previous
    }
}
