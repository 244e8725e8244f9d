//! Checks the metaindex, and loads the filters that it names.

use std::sync::Arc;

use super::Verifier;
use super::blocks::{Loaded, Parsed};
use super::report::{Severity, Tally, not_ascending};
use crate::error::{Section, show_key};
use crate::filter::FilterPolicy;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::BlockHandle;
use crate::format::properties::PROPERTIES_NAME;

/// A filter block whose policy is known.
pub(super) struct Filter {
    pub(super) policy: Arc<dyn FilterPolicy>,
    pub(super) reader: FilterBlockReader,
    offset: u64,
    pub(super) trusted: bool,
    /// Keys that it rejects although they are present, and data blocks that it does not cover.
    pub(super) hidden: Tally,
    pub(super) unfiltered: Tally,
}

impl Filter {
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
        let mut order = Tally::default();
        let mut previous: Option<Vec<u8>> = None;
        let mut cursor = BlockCursor::new(metaindex.block.clone());
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            if let Some(previous) = previous.filter(|previous| name <= &previous[..]) {
                order.note(|| not_ascending(&previous, name));
            }
            previous = Some(name.to_vec());
            let handle = BlockHandle::decode(cursor.value()).map(|(handle, _)| handle);
            let is_properties = name == PROPERTIES_NAME;
            match (name.strip_prefix(FILTER_PREFIX), handle) {
                (None, Some(handle)) if is_properties => {
                    self.read_properties(handle, place, metaindex.trusted);
                }
                (filter, None) if metaindex.trusted && (is_properties || filter.is_some()) => {
                    self.report.find(
                        Severity::Damage,
                        place,
                        format!("the handle of {}", show_key(name)),
                        show_key(cursor.value()),
                    )
                }
                (Some(policy), Some(handle)) => {
                    named.push((policy.to_vec(), handle.size));
                    let known = policies.iter().find(|p| p.name().as_bytes() == policy);
                    // Readers use the first of a name. More of them are out of order, and would all be held in
                    // memory.
                    let known = known.filter(|known| {
                        let mut names = filters.iter().map(|filter| filter.policy.name());
                        names.all(|name| name != known.name())
                    });
                    let filter = self.load_filter(handle, known, place, metaindex.trusted);
                    filters.extend(filter);
                }
                // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
                (None, Some(handle)) => self.account_if_sound(handle, &mut budget_of_others),
                (_, None) => {}
            }
        }
        if metaindex.trusted {
            self.report.find_tally(Severity::Damage, place, order);
            if metaindex.well_formed {
                self.counted.filters = Some(named);
            }
        }
        filters
    }

    fn load_filter(
        &mut self,
        handle: BlockHandle,
        policy: Option<&Arc<dyn FilterPolicy>>,
        named_by: (Section, u64),
        named_surely: bool,
    ) -> Option<Filter> {
        if !named_surely {
            // The handle may be rubbish, unless it leads to a sound block.
            self.try_frame(handle)?;
        }
        let Loaded { payload, trusted } = self.load(handle, Section::Filter, named_by)?;
        let policy = policy?.clone();
        let place = (Section::Filter, handle.offset);
        let reader = FilterBlockReader::new(payload)
            .and_then(|reader| reader.check_offsets().map(|()| reader))
            .map_err(|defect| {
                if trusted {
                    self.report.find_defect(place, defect);
                }
            });
        Some(Filter {
            policy,
            reader: reader.ok()?,
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
