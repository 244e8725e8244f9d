//! Checks the metaindex, and reads what it names: filters, properties and pieces.

use std::collections::HashSet;

use bytes::Bytes;

use super::Verifier;
use super::report::{Ascent, Place, Severity, Tally};
use crate::error::{Section, show_key};
use crate::filter::prefix_of;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::internal_key::user_key;
use crate::format::pieces::{PIECES_NAME, Pieces};
use crate::format::prefix_block::{PREFIXES_NAME, PrefixBlockReader};
use crate::format::properties::{KeyKind, MAX_KEY_LEN, PROPERTIES_NAME, Properties};

/// A sound filter block of a known policy or prefix extractor.
pub(super) struct Filter {
    /// Name of the policy, or of the extractor.
    name: String,
    offset: u64,
    /// Whether it passes a key, which is in the data block at this offset. `None` if it does not cover that.
    ask: Ask,
    /// Keys that it rejects although they are present, and data blocks that it does not cover.
    hidden: Tally,
    unfiltered: Tally,
    /// Whether it rejects a key that is taken for one of the other kind, too, if it can be.
    rejects_other_kind: bool,
}

impl Filter {
    pub(super) fn rejects_keys(&self) -> bool {
        self.hidden.count > 0
    }

    /// Whether it rejects keys of the table, whatever kind they are of.
    pub(super) fn rejects_either_kind(&self) -> bool {
        self.rejects_keys() && self.rejects_other_kind
    }
}

type Ask = Box<dyn Fn(u64, &[u8]) -> Option<bool>>;

/// What the metaindex names, and what these parts say.
#[derive(Default)]
pub(super) struct Named {
    pub(super) filters: Vec<Filter>,
    /// Name of the policy and handle of each filter; no name for a filter of prefixes, and those that there is no room for.
    filters_named: Vec<(Option<String>, BlockHandle)>,
    /// Bytes of the names in it.
    names_len: u64,
    /// Whether there was a filter of prefixes.
    has_prefixes: bool,
    /// The known policies of which there was a filter.
    policies: HashSet<String>,
    /// Whether all filters are named: the metaindex is sound.
    has_all_filters: bool,
    /// Each with its offset.
    pub(super) properties: Option<(Properties, u64)>,
    pieces: Option<(Pieces, u64)>,
}

impl Verifier<'_, '_> {
    /// Checks the metaindex and loads what it leads to.
    pub(super) fn check_metaindex(&mut self, offset: u64, metaindex: Block<Bytes>, is_sound: bool) {
        let place = (Section::Metaindex, offset);
        let named_by = is_sound.then_some(place);
        let mut ascent = Ascent::default();
        let mut cursor = BlockCursor::new(metaindex);
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            ascent.add(name, <[u8]>::cmp);
            let policy = name.strip_prefix(FILTER_PREFIX);
            let is_filter = policy.is_some() || name.starts_with(PREFIXES_NAME);
            let is_known = is_filter || [PROPERTIES_NAME, PIECES_NAME].contains(&name);
            match BlockHandle::decode(cursor.value()) {
                Some((handle, _)) if name == PROPERTIES_NAME => {
                    let decode = |block: Bytes, _: &mut _| Properties::decode(&block);
                    let loaded = self.load(handle, Section::Properties, named_by, decode);
                    let sound = loaded.filter(|(_, is_sound)| *is_sound);
                    self.named.properties = sound.map(|(stated, _)| (stated, handle.offset));
                }
                Some((handle, _)) if name == PIECES_NAME => self.load_pieces(handle, named_by),
                Some((handle, _)) if is_filter => self.load_filter(name, handle, named_by),
                // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
                Some((handle, _)) => {
                    if let Some(frame) = self.sound_frame(handle) {
                        self.account((Section::Metaindex, handle.offset), frame.len() as u64);
                    }
                }
                None if is_known && is_sound => {
                    let expected = format!("the handle of {}", show_key(name));
                    let found = show_key(cursor.value());
                    self.report.find(Severity::Damage, place, expected, found);
                }
                None => {}
            }
        }
        self.named.has_all_filters = is_sound && self.named.names_len <= self.file.size;
        if is_sound {
            for tally in [ascent.misordered, ascent.repeated] {
                self.report.find_tally(Severity::Damage, place, tally);
            }
        }
    }

    /// Reads the filter block that the metaindex has under `name`, and keeps it if it is known.
    ///
    /// Readers use the first of a policy, and the first of prefixes. More of them are out of order, and would all be held in memory.
    fn load_filter(&mut self, name: &[u8], handle: BlockHandle, named_by: Option<Place>) {
        let text = |name| String::from_utf8_lossy(name).into_owned();
        let policy = name.strip_prefix(FILTER_PREFIX).map(text);
        let extractor = name.strip_prefix(PREFIXES_NAME).unwrap_or_default();
        // Sharing prefixes, the names could be the square of the metaindex.
        self.named.names_len += name.len() as u64;
        let has_room = self.named.names_len <= self.file.size;
        let named = policy.clone().filter(|_| has_room);
        self.named.filters_named.push((named, handle));
        let mut policies = self.options.known_policies().into_iter();
        let known = policies.find(|known| Some(known.name()) == policy.as_deref());
        let known = known.filter(|known| self.named.policies.insert(known.name().to_owned()));
        let is_of_prefixes = policy.is_none();
        let name = policy.unwrap_or_else(|| text(extractor));
        let is_first = is_of_prefixes && !self.named.has_prefixes;
        self.named.has_prefixes |= is_of_prefixes;
        let extractor = self.options.known_extractor(extractor).filter(|_| is_first);
        let decode = |payload: Bytes, _: &mut _| {
            Ok(match (known, extractor) {
                (Some(policy), _) => {
                    let reader = FilterBlockReader::new(payload)?;
                    reader.check_offsets()?;
                    Some(Box::new(move |offset, key: &[u8]| {
                        let passes = || reader.key_may_match(&*policy, offset, key);
                        reader.has_filter(offset).then(passes)
                    }) as Ask)
                }
                (None, Some(extractor)) => {
                    let reader = PrefixBlockReader::new(payload)?;
                    Some(Box::new(move |_, key: &[u8]| {
                        let prefix = prefix_of(&*extractor, key);
                        Some(prefix.is_none_or(|prefix| reader.may_match(prefix)))
                    }) as Ask)
                }
                (None, None) => None,
            })
        };
        if let Some((Some(ask), true)) = self.load(handle, Section::Filter, named_by, decode) {
            self.named.filters.push(Filter {
                name,
                offset: handle.offset,
                ask,
                hidden: Tally::default(),
                unfiltered: Tally::default(),
                rejects_other_kind: false,
            });
        }
    }

    /// Asks the filters for `key`, of the data block at `offset`, and notes what is wrong. `is_first`: whether it is the block's first.
    pub(super) fn ask_filters(&mut self, offset: u64, key: &[u8], is_first: bool) {
        let other_kind = match self.report.keys {
            KeyKind::Plain => user_key(key),
            KeyKind::Database => key,
        };
        for filter in &mut self.named.filters {
            self.report.filter_checks += 1;
            // Where the kind is not known, one of the two has to pass.
            if self.guesses_kind && !filter.rejects_other_kind {
                filter.rejects_other_kind = (filter.ask)(offset, other_kind) == Some(false);
            }
            match (filter.ask)(offset, self.order.filter_key(key)) {
                None if is_first => filter.unfiltered.note(|| {
                    let expected = format!("a filter for the data block at {offset}");
                    (expected, "none: lookups in it read the block".into())
                }),
                Some(false) => filter.hidden.note(|| {
                    let expected = format!("that {} passes each key of the table", filter.name);
                    let key = show_key(key);
                    let found = format!("{key} rejected, which is in the data block at {offset}");
                    (expected, found)
                }),
                _ => {}
            }
        }
    }

    /// `fits_both`: whether the keys may be of either kind.
    pub(super) fn report_filters(&mut self, fits_both: bool) {
        // In an unknown order, the keys may be a database's, whose filter holds user keys.
        let severity = if self.report.unknown_order || fits_both {
            Severity::Unchecked
        } else {
            Severity::Damage
        };
        for filter in std::mem::take(&mut self.named.filters) {
            let place = (Section::Filter, filter.offset);
            self.report.find_tally(severity, place, filter.hidden);
            self.report
                .find_tally(Severity::Warning, place, filter.unfiltered);
        }
    }

    fn load_pieces(&mut self, handle: BlockHandle, named_by: Option<Place>) {
        let decode = |block, _: &mut _| Pieces::decode(block);
        match self.load(handle, Section::Pieces, named_by, decode) {
            Some((Some(pieces), true)) => self.named.pieces = Some((pieces, handle.offset)),
            Some((None, true)) => {
                let expected = "a version of about.pieces that is known";
                let found = "another, which readers ignore";
                let place = (Section::Pieces, handle.offset);
                self.report.find(Severity::Note, place, expected, found);
            }
            Some((_, false)) | None => {}
        }
    }

    /// Compares `about.pieces` with the index at this handle, if that is sound, and with the sound filters.
    pub(super) fn compare_pieces(&mut self, handle: BlockHandle, index: Option<&Block<Bytes>>) {
        let Some((pieces, offset)) = self.named.pieces.take() else {
            return;
        };
        let filters = self.named.filters_named.iter();
        let filters: Vec<BlockHandle> = filters.map(|(_, handle)| *handle).collect();
        let mut compared = vec![pieces.check_filters(&filters), pieces.check_index(handle)];
        if let Some(index) = index.filter(|_| pieces.index.handle == handle) {
            compared.push(pieces.index.check_block(index.data()));
        }
        for divided in &pieces.filters {
            if let Some(frame) = self.sound_frame(divided.handle) {
                let block = frame::open(&frame);
                compared.push(block.and_then(|block| divided.check_block(&block)));
            }
        }
        for defect in compared.into_iter().filter_map(Result::err) {
            self.report.find_defect((Section::Pieces, offset), defect);
        }
    }

    /// Compares the properties with what was counted, as far as that is complete.
    pub(super) fn compare_properties(&mut self) {
        let Some((stated, offset)) = self.named.properties.take() else {
            return;
        };
        let counted = std::mem::take(&mut self.counted);
        let mut rows = Vec::new();
        if self.counted_all {
            let numbers = [
                ("entries", self.report.entries, stated.entries),
                ("key.bytes", counted.key_bytes, stated.key_bytes),
                ("value.bytes", counted.value_bytes, stated.value_bytes),
                ("data.blocks", self.report.data_blocks, stated.data_blocks),
                ("data.bytes", counted.data_bytes, stated.data_bytes),
                ("deletions", counted.deletions, stated.deletions),
            ];
            let number = |number: u64| Some(number.to_string());
            rows.extend(numbers.map(|(name, own, stated)| (name, number(own), number(stated))));
            let sequences = [counted.sequences, stated.sequences];
            let ends = sequences.map(|range| range.map(|range| range.into_inner()).unzip());
            let [(own_min, own_max), (min, max)] = ends;
            for (name, own, stated) in [
                ("sequence.min", own_min, min),
                ("sequence.max", own_max, max),
            ] {
                let [own, stated] =
                    [own, stated].map(|sequence| sequence.map(|sequence| sequence.to_string()));
                rows.push((name, own, stated));
            }
            // A longer key is left out.
            let short = |key: Option<Vec<u8>>| key.filter(|key| key.len() <= MAX_KEY_LEN);
            for (name, own, stated) in [
                ("key.first", short(counted.first_key), stated.first_key),
                ("key.last", short(counted.last_key), stated.last_key),
            ] {
                let [own, stated] = [own, stated].map(|key| key.map(|key| show_all(&key)));
                rows.push((name, own, stated));
            }
        }
        if self.named.has_all_filters {
            // Of several filters, the properties name one. The size of another says nothing.
            let filters = self.named.filters_named.iter();
            let mut filters = filters.filter(|(policy, _)| policy.is_some());
            let first = filters.clone().next();
            let named = filters.find(|(policy, _)| *policy == stated.filter_policy);
            let (policy, handle) = named.or(first).cloned().unzip();
            let policy = policy.flatten();
            if policy == stated.filter_policy {
                let sizes = [handle.map(|handle| handle.size), stated.filter_bytes];
                let [own, stated] = sizes.map(|size| size.map(|size| size.to_string()));
                rows.push(("filter.bytes", own, stated));
            } else {
                let names = [policy, stated.filter_policy];
                let [own, stated] = names.map(|name| name.map(|name| show_all(name.as_bytes())));
                rows.push(("filter.policy", own, stated));
            }
        }
        for (name, own, stated) in rows.into_iter().filter(|(_, own, stated)| own != stated) {
            let [own, stated] = [own, stated].map(|text| text.unwrap_or_else(|| "none".into()));
            let expected = format!("the property {name} {own}, as the table has");
            let place = (Section::Properties, offset);
            self.report.find(Severity::Damage, place, expected, stated);
        }
    }
}

/// A key or a name in full, in the form of [`show_key`].
fn show_all(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
