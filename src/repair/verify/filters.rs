//! Checks the metaindex, and loads the filters that it names.

use std::sync::Arc;

use bytes::Bytes;

use super::Verifier;
use super::blocks::{Loaded, Parsed};
use super::report::{Ascent, Severity, Tally};
use crate::error::{Section, show_key};
use crate::filter::{FilterPolicy, PrefixExtractor, prefix_of};
use crate::format::Defect;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::BlockHandle;
use crate::format::pieces::PIECES_NAME;
use crate::format::prefix_block::{PREFIXES_NAME, PrefixBlockReader};
use crate::format::properties::PROPERTIES_NAME;

/// A filter block that can be asked.
pub(super) struct Filter {
    block: FilterBlock,
    offset: u64,
    pub(super) trusted: bool,
    /// Keys that it rejects although they are present, and data blocks that it does not cover.
    pub(super) hidden: Tally,
    pub(super) unfiltered: Tally,
}

enum FilterBlock {
    Keys {
        policy: Arc<dyn FilterPolicy>,
        reader: FilterBlockReader,
    },
    Prefixes {
        extractor: Arc<dyn PrefixExtractor>,
        reader: PrefixBlockReader,
    },
}

impl Filter {
    fn is_of_keys(&self) -> bool {
        matches!(self.block, FilterBlock::Keys { .. })
    }

    /// Whether it is of the data block at `offset`, among others.
    fn covers(&self, offset: u64) -> bool {
        match &self.block {
            FilterBlock::Keys { reader, .. } => reader.has_filter(offset),
            FilterBlock::Prefixes { .. } => true,
        }
    }

    /// Whether it passes `key`, which is in the data block at `offset`.
    fn passes(&self, offset: u64, key: &[u8]) -> bool {
        match &self.block {
            FilterBlock::Keys { policy, reader } => reader.key_may_match(&**policy, offset, key),
            FilterBlock::Prefixes { extractor, reader } => {
                prefix_of(&**extractor, key).is_none_or(|prefix| reader.may_match(prefix))
            }
        }
    }

    /// Name of the policy, or of the prefix extractor.
    pub(super) fn name(&self) -> &str {
        match &self.block {
            FilterBlock::Keys { policy, .. } => policy.name(),
            FilterBlock::Prefixes { extractor, .. } => extractor.name(),
        }
    }

    /// Notes the data block at `offset` if it has no filter.
    pub(super) fn note_uncovered(&mut self, offset: u64) {
        if !self.covers(offset) {
            self.unfiltered.note(|| {
                (
                    format!("a filter for the data block at {offset}"),
                    "none: lookups in it read the block".into(),
                )
            });
        }
    }

    /// Notes `key`, of the data block at `offset`, if the filter rejects it. It is asked for `filter_key`.
    pub(super) fn note_rejected(&mut self, offset: u64, key: &[u8], filter_key: &[u8]) {
        if !self.passes(offset, filter_key) {
            let name = self.name().to_owned();
            self.hidden.note(|| {
                (
                    format!("that {name} passes each key of the table"),
                    format!(
                        "{} rejected, which is in the data block at {offset}",
                        show_key(key)
                    ),
                )
            });
        }
    }

    /// Whether it rejected a key that is present.
    pub(super) fn hides_keys(&self) -> bool {
        self.trusted && !self.hidden.is_empty()
    }
}

impl Verifier<'_, '_> {
    /// Checks the metaindex and loads what it leads to. Returns the filters that can be asked.
    pub(super) fn check_metaindex(&mut self, offset: u64, metaindex: &Parsed) -> Vec<Filter> {
        let place = (Section::Metaindex, offset);
        let policies = self.options.known_policies();
        let mut filters: Vec<Filter> = Vec::new();
        let mut named = Vec::new();
        let mut budget_of_others = self.file.size;
        let mut ascent = Ascent::default();
        let mut cursor = BlockCursor::new(metaindex.block.clone());
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            ascent.add(name, <[u8]>::cmp);
            let handle = BlockHandle::decode(cursor.value()).map(|(handle, _)| handle);
            let is_properties = name == PROPERTIES_NAME;
            let is_pieces = name == PIECES_NAME;
            let prefixes = name.strip_prefix(PREFIXES_NAME);
            match (name.strip_prefix(FILTER_PREFIX), handle) {
                (None, Some(handle)) if is_properties => {
                    self.read_properties(handle, place, metaindex.trusted);
                }
                (None, Some(handle)) if is_pieces => {
                    self.read_pieces(handle, place, metaindex.trusted);
                }
                (filter, None)
                    if metaindex.trusted
                        && (is_properties
                            || is_pieces
                            || prefixes.is_some()
                            || filter.is_some()) =>
                {
                    self.report.find(
                        Severity::Damage,
                        place,
                        format!("the handle of {}", show_key(name)),
                        show_key(cursor.value()),
                    )
                }
                (Some(policy), Some(handle)) => {
                    named.push((policy.to_vec(), handle.size));
                    self.divided.filters.push(handle);
                    let known = policies.iter().find(|p| p.name().as_bytes() == policy);
                    // Readers use the first of a name. More of them are out of order, and would all be held in
                    // memory.
                    let known = known.filter(|known| {
                        let mut others = filters.iter().filter(|filter| filter.is_of_keys());
                        others.all(|other| other.name() != known.name())
                    });
                    let decode = |payload| {
                        let policy = Arc::clone(known?);
                        let reader = FilterBlockReader::new(payload);
                        let reader = reader.and_then(|r| r.check_offsets().map(|()| r));
                        Some(reader.map(|reader| FilterBlock::Keys { policy, reader }))
                    };
                    filters.extend(self.load_filter(handle, place, metaindex.trusted, decode));
                }
                (None, Some(handle)) if prefixes.is_some() => {
                    self.divided.filters.push(handle);
                    let known = prefixes.and_then(|name| self.options.known_extractor(name));
                    // Readers use the first.
                    let known = known.filter(|_| filters.iter().all(Filter::is_of_keys));
                    let decode = |payload| {
                        let (extractor, reader) = (known?, PrefixBlockReader::new(payload));
                        Some(reader.map(|reader| FilterBlock::Prefixes { extractor, reader }))
                    };
                    filters.extend(self.load_filter(handle, place, metaindex.trusted, decode));
                }
                // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
                (None, Some(handle)) => self.account_if_sound(handle, &mut budget_of_others),
                (_, None) => {}
            }
        }
        if metaindex.trusted {
            for tally in [ascent.misordered, ascent.repeated] {
                self.report.find_tally(Severity::Damage, place, tally);
            }
            self.counted.filters = metaindex.well_formed.then_some(named);
        }
        filters
    }

    /// Reads the filter block at `handle` and has it decoded, which returns `None` if the filter is not known.
    fn load_filter(
        &mut self,
        handle: BlockHandle,
        named_by: (Section, u64),
        named_surely: bool,
        decode: impl FnOnce(Bytes) -> Option<Result<FilterBlock, Defect>>,
    ) -> Option<Filter> {
        let loaded = self.load_named(handle, Section::Filter, named_by, named_surely);
        let Loaded { payload, trusted } = loaded?;
        let place = (Section::Filter, handle.offset);
        let block = decode(payload)?.map_err(|defect| {
            if trusted {
                self.report.find_defect(place, defect);
            }
        });
        Some(Filter {
            block: block.ok()?,
            offset: handle.offset,
            trusted,
            hidden: Tally::default(),
            unfiltered: Tally::default(),
        })
    }

    fn account_if_sound(&mut self, handle: BlockHandle, budget: &mut u64) {
        if let Some(frame) = self.sound_frame(handle, budget) {
            self.account((Section::Metaindex, handle.offset), frame.len() as u64);
        }
    }

    pub(super) fn report_filters(&mut self, filters: Vec<Filter>) {
        for filter in filters {
            let place = (Section::Filter, filter.offset);
            // In an unknown order, the keys may be a database's, whose filter holds user keys.
            let severity = if self.report.unknown_order {
                Severity::Unchecked
            } else {
                Severity::Damage
            };
            self.report.find_tally(severity, place, filter.hidden);
            self.report
                .find_tally(Severity::Warning, place, filter.unfiltered);
        }
    }
}
