//! Checks the metaindex, and reads what it names: filters, properties and pieces.

use std::collections::HashSet;

use bytes::Bytes;

use super::Verifier;
use super::data::walk;
use super::report::{Place, Severity, Tally};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::filter::prefix_of;
use crate::format::block::Block;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::pieces::Pieces;
use crate::format::properties::{KeyKind, MAX_KEY_LEN, Properties};
use crate::read::filter::FilterOf;
use crate::read::metaindex::{Metaindex, NamedFilter};

/// A sound filter block, of a known policy the first.
pub(super) struct Filter {
    /// Name of the policy, or of the extractor.
    name: String,
    of: FilterOf,
    block: FilterBlockReader,
    offset: u64,
    /// Present keys that it rejects.
    hidden: Tally,
}

impl Filter {
    /// Whether it passes a key, which is in the data block at `offset`. `None` if it does not cover that.
    fn ask(&self, offset: u64, key: &[u8]) -> Option<bool> {
        match &self.of {
            FilterOf::Keys(policy) => {
                let passes = || self.block.key_may_match(&**policy, offset, key);
                self.block.has_filter(offset).then(passes)
            }
            FilterOf::Prefixes(extractor) => {
                let prefix = prefix_of(&**extractor, key);
                Some(prefix.is_none_or(|prefix| self.block.prefix_may_match(prefix)))
            }
        }
    }
}

impl Verifier<'_> {
    /// Checks the metaindex, which is at `place`, and loads what it leads to.
    pub(super) fn check_metaindex(&mut self, metaindex: Block<Bytes>, place: Place) {
        let named = Metaindex::decode(&metaindex.data, &self.options.open);
        let (_, tallies) = walk(metaindex, &Order::Bytewise, |_, _, _| ());
        for tally in tallies {
            self.report.find_tally(Severity::Damage, place, tally);
        }
        let Some(named) = self.accept(place, named) else {
            return;
        };
        if let Some(handle) = named.properties {
            let decode = |_: &mut _, block: Bytes| Properties::decode(&block);
            let stated = self.load(handle, Section::Properties, place, decode);
            self.properties = stated.map(|stated| (stated, (Section::Properties, handle.offset)));
        }
        if let Some(handle) = named.pieces {
            self.load_pieces(handle, place, &named.handles);
        }
        // Of several filters, the properties name one.
        let stated = self.stated();
        let stated = stated.and_then(|stated| stated.filter_policy.as_ref());
        let of_keys = named.filters.iter().map(|filter| &filter.entry);
        let of_keys = of_keys.filter(|entry| entry.prefixes.is_none());
        let one = of_keys.min_by_key(|entry| stated != Some(&entry.policy));
        self.counted.filter_policy = one.map(|entry| entry.policy.clone());
        self.counted.filter_bytes = one.map(|entry| entry.bytes);
        let mut seen = HashSet::new();
        for filter in named.filters {
            // Readers use the first of a policy, and the first of prefixes.
            let kind = (filter.entry.policy.clone(), filter.entry.prefixes.is_some());
            let filter = self.load_filter(filter, seen.insert(kind), place);
            self.filters.extend(filter);
        }
        // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
        for handle in named.others {
            if let Ok(len) = self.file.check_handle(handle, Section::Metaindex)
                && let Ok(frame) = self.read(handle, len)
                && frame::verify(&frame).is_ok()
            {
                self.account((Section::Metaindex, handle.offset), len);
            }
        }
    }

    /// Reads `about.pieces`, which divides some of these `filters`.
    fn load_pieces(&mut self, handle: BlockHandle, by: Place, filters: &[BlockHandle]) {
        let place = (Section::Pieces, handle.offset);
        match self.load(handle, place.0, by, |_, block| Pieces::decode(block)) {
            Some(Some(pieces)) => {
                self.accept(place, pieces.check_filters(filters));
                self.pieces = Some((pieces, place));
            }
            Some(None) => {
                let expected = "a version of about.pieces that is known";
                let found = "another, which readers ignore";
                self.report.find(Severity::Warning, place, expected, found);
            }
            None => {}
        }
    }

    /// Reads a filter block, and compares it with `about.pieces`. Returns it if its policy is known and it `is_first` of that.
    fn load_filter(&mut self, named: NamedFilter, is_first: bool, by: Place) -> Option<Filter> {
        let handle = self.accept(by, named.handle)?;
        let payload = self.load(handle, Section::Filter, by, |_, payload| Ok(payload))?;
        if let Some((pieces, place)) = &self.pieces {
            let mut divided = pieces.filters.iter();
            let divided = divided.find(|divided| divided.handle == handle);
            let checked = divided.map_or(Ok(()), |divided| divided.check_block(&payload));
            self.accept(*place, checked);
        }
        let (_, of) = named.of.filter(|_| is_first)?;
        let block = FilterBlockReader::new(payload).and_then(|block| {
            match of {
                FilterOf::Keys(_) => block.check_offsets()?,
                FilterOf::Prefixes(_) => block.check_prefixes()?,
            }
            Ok(block)
        });
        Some(Filter {
            name: named.entry.prefixes.unwrap_or(named.entry.policy),
            of,
            block: self.accept((Section::Filter, handle.offset), block)?,
            offset: handle.offset,
            hidden: Tally::default(),
        })
    }

    /// Asks the filters for `key`, of the data block at `offset`, and notes which of them reject it.
    pub(super) fn ask_filters(&mut self, offset: u64, key: &[u8]) {
        let asked = self.order.filter_key(key);
        for filter in &mut self.filters {
            self.report.filter_checks += 1;
            if filter.ask(offset, asked) == Some(false) {
                filter.hidden.note(|| {
                    let expected = format!("that {} passes each key of the table", filter.name);
                    let key = show_key(key);
                    let found = format!("{key} rejected, which is in the data block at {offset}");
                    (expected, found)
                });
            }
        }
    }

    /// Reports keys that filters reject, and filters that do not cover the last data block.
    pub(super) fn report_filters(&mut self) {
        let data = self
            .extents
            .iter()
            .filter(|extent| extent.2 == Section::Data);
        let last = data.map(|(offset, ..)| *offset).max();
        // Where the caller named the order of the keys as they are stored, readers do not ask a filter that may hold user keys.
        let stated = self.stated();
        let states_plain = stated.is_some_and(|stated| stated.key_kind == KeyKind::Plain);
        let is_asked = self.options.keys.is_some()
            || self.options.open.order.is_none()
            || self.report.keys == KeyKind::Database
            || states_plain
            || !self.evidence.may_hold_internal_keys();
        // In an unknown order, the keys may be a database's, whose filter holds user keys.
        let severity = if self.report.unknown_order {
            Severity::Unchecked
        } else {
            Severity::Damage
        };
        for filter in std::mem::take(&mut self.filters) {
            let place = (Section::Filter, filter.offset);
            if let Some(last) = last.filter(|&last| filter.ask(last, b"").is_none()) {
                let found = format!("none for that at {last}: lookups in it read the block");
                let expected = "a filter for each data block";
                self.report.find(Severity::Warning, place, expected, found);
            }
            if is_asked {
                self.rejects |= filter.hidden.count > 0;
                self.report.find_tally(severity, place, filter.hidden);
            }
        }
    }

    /// Compares the properties with what was counted. That may be incomplete if anything else is wrong.
    pub(super) fn compare_properties(&mut self) {
        let is_complete = self.report.blocks_are_sound();
        let Some((stated, place)) = self.properties.take().filter(|_| is_complete) else {
            return;
        };
        for ((name, own), (_, stated)) in figures(&self.counted).into_iter().zip(figures(&stated)) {
            if own != stated {
                let [own, stated] = [own, stated].map(|text| text.unwrap_or_else(|| "none".into()));
                let expected = format!("the property {name} {own}, as the table has");
                self.report.find(Severity::Damage, place, expected, stated);
            }
        }
    }
}

/// The properties that are compared, in words.
fn figures(properties: &Properties) -> [(&'static str, Option<String>); 12] {
    let number = |number: u64| Some(number.to_string());
    let text = |text: &[u8]| format!("\"{}\"", text.escape_ascii());
    // A longer key is left out.
    let is_stored = |key: &&[u8]| key.len() <= MAX_KEY_LEN;
    let key = |key: &Option<Vec<u8>>| key.as_deref().filter(is_stored).map(text);
    let sequences = properties.sequences.as_ref();
    // Of a long name, the metaindex as it is read has only the head.
    let head = |name: &String| text(name.chars().take(64).collect::<String>().as_bytes());
    let policy = properties.filter_policy.as_ref();
    [
        ("entries", number(properties.entries)),
        ("key.bytes", number(properties.key_bytes)),
        ("value.bytes", number(properties.value_bytes)),
        ("data.blocks", number(properties.data_blocks)),
        ("data.bytes", number(properties.data_bytes)),
        ("deletions", number(properties.deletions)),
        ("sequence.min", sequences.and_then(|at| number(*at.start()))),
        ("sequence.max", sequences.and_then(|at| number(*at.end()))),
        ("key.first", key(&properties.first_key)),
        ("key.last", key(&properties.last_key)),
        ("filter.policy", policy.map(head)),
        ("filter.bytes", properties.filter_bytes.and_then(number)),
    ]
}
