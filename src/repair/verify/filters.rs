//! Checks the metaindex, and loads the filters that it names.

use std::sync::Arc;

use bytes::Bytes;

use super::Verifier;
use super::blocks::{NamedBy, Parsed};
use super::report::{Ascent, Severity, Tally};
use crate::error::{Section, show_key};
use crate::filter::{FilterPolicy, PrefixExtractor, prefix_of};
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
        let named_by = NamedBy {
            place,
            is_sound: metaindex.trusted,
        };
        let (mut filters, mut named) = (Vec::new(), Vec::new());
        let mut budget_of_others = self.file.size;
        let mut ascent = Ascent::default();
        let mut cursor = BlockCursor::new(metaindex.block.clone());
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            ascent.add(name, <[u8]>::cmp);
            let policy = name.strip_prefix(FILTER_PREFIX);
            let is_filter = policy.is_some() || name.starts_with(PREFIXES_NAME);
            let is_known = is_filter || [PROPERTIES_NAME, PIECES_NAME].contains(&name);
            match BlockHandle::decode(cursor.value()) {
                Some((handle, _)) if name == PROPERTIES_NAME => {
                    self.read_properties(handle, named_by);
                }
                Some((handle, _)) if name == PIECES_NAME => self.read_pieces(handle, named_by),
                Some((handle, _)) if is_filter => {
                    named.extend(policy.map(|policy| (policy.to_vec(), handle.size)));
                    self.divided.filters.push(handle);
                    self.load_filter(name, handle, named_by, &mut filters);
                }
                // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
                Some((handle, _)) => self.account_if_sound(handle, &mut budget_of_others),
                None if is_known && metaindex.trusted => {
                    let expected = format!("the handle of {}", show_key(name));
                    let found = show_key(cursor.value());
                    self.report.find(Severity::Damage, place, expected, found);
                }
                None => {}
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

    /// Reads the filter block that the metaindex has under `name`, and adds it to `filters` if it is known.
    ///
    /// Readers use the first of a policy, and the first of prefixes. More of them are out of order, and would all be held in memory.
    fn load_filter(
        &mut self,
        name: &[u8],
        handle: BlockHandle,
        named_by: NamedBy,
        filters: &mut Vec<Filter>,
    ) {
        let policy = name.strip_prefix(FILTER_PREFIX);
        let extractor = name
            .strip_prefix(PREFIXES_NAME)
            .filter(|_| policy.is_none());
        let is_first = |filter: &Filter| {
            let name = filter.is_of_keys().then(|| filter.name().as_bytes());
            name != policy
        };
        let is_first = filters.iter().all(is_first);
        let policies = self.options.known_policies();
        let known = policies
            .into_iter()
            .find(|p| is_first && Some(p.name().as_bytes()) == policy);
        let extractor = extractor.and_then(|name| self.options.known_extractor(name));
        let extractor = extractor.filter(|_| is_first);
        let decode = |payload: Bytes| {
            Ok(match (known, extractor) {
                (Some(policy), _) => {
                    let reader = FilterBlockReader::new(payload)?;
                    reader.check_offsets()?;
                    Some(FilterBlock::Keys { policy, reader })
                }
                (None, Some(extractor)) => {
                    let reader = PrefixBlockReader::new(payload)?;
                    Some(FilterBlock::Prefixes { extractor, reader })
                }
                (None, None) => None,
            })
        };
        let loaded = self.load_as(handle, Section::Filter, named_by, decode);
        filters.extend(loaded.and_then(|(block, trusted)| {
            Some(Filter {
                block: block?,
                offset: handle.offset,
                trusted,
                hidden: Tally::default(),
                unfiltered: Tally::default(),
            })
        }));
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
