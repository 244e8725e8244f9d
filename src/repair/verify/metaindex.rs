//! Checks the metaindex, and reads what it names: filters, properties and pieces.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity, Tally};
use crate::comparator::Order;
use crate::error::{Section, show_key};
use crate::filter::{FilterPolicy, PrefixExtractor, prefix_of};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::internal_key::user_key;
use crate::format::pieces::{PIECES_NAME, Pieces};
use crate::format::prefix_block::PREFIXES_NAME;
use crate::format::properties::{KeyKind, MAX_KEY_LEN, PROPERTIES_NAME, Properties};

/// A sound filter block of a known policy or prefix extractor.
pub(super) struct Filter {
    /// Name of the policy, or of the extractor.
    name: String,
    offset: u64,
    /// Whether it passes a key, which is in the data block at this offset. `None` if it does not cover that.
    ask: Ask,
    /// Present keys that it rejects, taken for keys of either kind.
    pub(super) hidden: HashMap<KeyKind, Tally>,
    /// Data blocks that it does not cover.
    unfiltered: Tally,
}

type Ask = Box<dyn Fn(u64, &[u8]) -> Option<bool>>;

/// What the metaindex names, and what these parts say.
#[derive(Default)]
pub(super) struct Named {
    pub(super) filters: Vec<Filter>,
    /// Name of the policy and handle of each filter; no name for a filter of prefixes.
    filters_named: Vec<(Option<String>, BlockHandle)>,
    /// Known policies, and an empty name for prefixes, of which there was a filter.
    filters_seen: HashSet<String>,
    pub(super) properties: Option<(Properties, Place)>,
    pieces: Option<(Pieces, Place)>,
}

impl Verifier<'_> {
    /// Checks the metaindex, which is at `place`, and loads what it leads to.
    pub(super) fn check_metaindex(&mut self, block: Block<Bytes>, place: Place) {
        let mut misordered = Tally::default();
        let (mut previous, mut names_len) = (None::<Vec<u8>>, 0);
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let name = cursor.key();
            // Sharing prefixes, they could be the square of the metaindex.
            names_len += name.len() as u64;
            if names_len > self.file.size {
                let expected = "names that take less than the file, all together";
                let found = format!("{names_len} bytes");
                self.report.find(Severity::Damage, place, expected, found);
                break;
            }
            if let Some(previous) = previous.filter(|previous| &previous[..] >= name) {
                misordered.note_order(&previous, name);
            }
            previous = Some(name.to_vec());
            let is_filter = name.starts_with(FILTER_PREFIX) || name.starts_with(PREFIXES_NAME);
            let is_known = is_filter || [PROPERTIES_NAME, PIECES_NAME].contains(&name);
            match BlockHandle::decode(cursor.value()) {
                Some((handle, _)) if is_filter => self.load_filter(name, handle, place),
                Some((handle, _)) if name == PROPERTIES_NAME => {
                    let decode = |_: &mut Self, block: Bytes| Properties::decode(&block);
                    let stated = self.load(handle, Section::Properties, place, decode);
                    let place = (Section::Properties, handle.offset);
                    self.named.properties = stated.map(|stated| (stated, place));
                }
                Some((handle, _)) if name == PIECES_NAME => self.load_pieces(handle, place),
                // Other entries may hold anything. If one holds the handle of a block, the block is no gap.
                Some((handle, _)) => {
                    if let Ok(len) = self.file.check_handle(handle, Section::Metaindex)
                        && let Ok(frame) = self.read(handle, len)
                        && frame::verify(&frame).is_ok()
                    {
                        self.account((Section::Metaindex, handle.offset), len);
                    }
                }
                None if is_known => {
                    let expected = format!("the handle of {}", show_key(name));
                    let found = show_key(cursor.value());
                    self.report.find(Severity::Damage, place, expected, found);
                }
                None => {}
            }
        }
        self.report.find_tally(Severity::Damage, place, misordered);
    }

    /// Reads the filter block that the metaindex has under `name`, and keeps it if it is known.
    ///
    /// Readers use the first of a policy, and the first of prefixes. More of them are out of order, and would all be held in memory.
    fn load_filter(&mut self, name: &[u8], handle: BlockHandle, named_by: Place) {
        let payload = self.load(handle, Section::Filter, named_by, |_, payload| Ok(payload));
        let policy = name.strip_prefix(FILTER_PREFIX);
        let extractor = name.strip_prefix(PREFIXES_NAME).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(name).into_owned();
        self.named.filters_named.push((policy.map(text), handle));
        let Some(payload) = payload else {
            return;
        };
        let place = (Section::Filter, handle.offset);
        if let Some((pieces, place)) = &self.named.pieces {
            let mut divided = pieces.filters.iter();
            let divided = divided.find(|divided| divided.handle == handle);
            let checked = divided.map_or(Ok(()), |divided| divided.check_block(&payload));
            self.accept(*place, checked);
        }
        let name = text(policy.unwrap_or(extractor));
        let mut is_first = |name: &str| self.named.filters_seen.insert(name.to_owned());
        let ask = if policy.is_none() {
            let extractor = self.options.known_extractor(extractor);
            let extractor = extractor.filter(|_| is_first(""));
            extractor.map(|extractor| ask_prefixes(extractor, payload))
        } else {
            let mut policies = self.options.known_policies().into_iter();
            let policy = policies.find(|policy| policy.name() == name && is_first(&name));
            policy.map(|policy| ask_policy(policy, payload))
        };
        if let Some(ask) = ask.and_then(|ask| self.accept(place, ask)) {
            self.named.filters.push(Filter {
                name,
                offset: handle.offset,
                ask,
                hidden: Default::default(),
                unfiltered: Tally::default(),
            });
        }
    }

    /// Asks the filters for `key`, of the data block at `offset`, and notes what is wrong. `is_first`: whether it is the block's first.
    ///
    /// Where it is not certain of which kind the keys are, asks for both.
    pub(super) fn ask_filters(&mut self, offset: u64, key: &[u8], is_first: bool) {
        let key_of = |kind| {
            let reading = self.readings.iter().find(|reading| reading.kind == kind);
            // An order of stored keys does not know of user keys.
            reading.map_or_else(|| user_key(key), |own| own.order.filter_key(key))
        };
        for filter in &mut self.named.filters {
            self.report.filter_checks += 1;
            if is_first && (filter.ask)(offset, key).is_none() {
                let expected = format!("a filter for the data block at {offset}");
                let found = "none: lookups in it read the block";
                filter.unfiltered.note(|| (expected, found.into()));
            }
            for kind in [KeyKind::Plain, KeyKind::Database] {
                let may_be = self.kind.is_none_or(|own| own == kind);
                if may_be && (filter.ask)(offset, key_of(kind)) == Some(false) {
                    filter.hidden.entry(kind).or_default().note(|| {
                        let expected = format!("that {} passes each key of the table", filter.name);
                        let key = show_key(key);
                        let found =
                            format!("{key} rejected, which is in the data block at {offset}");
                        (expected, found)
                    });
                }
            }
        }
    }

    /// Reports what filters reject, now that it is known of which kind the keys are.
    pub(super) fn report_filters(&mut self) {
        for mut filter in std::mem::take(&mut self.named.filters) {
            let place = (Section::Filter, filter.offset);
            let hidden = match self.kind {
                Some(kind) => filter.hidden.remove(&kind),
                // Readers do not ask it, and it may hold user keys or stored ones.
                None if filter.hidden.contains_key(&KeyKind::Database) => {
                    filter.hidden.remove(&KeyKind::Plain)
                }
                None => None,
            };
            // In an unknown order, the keys may be a database's, whose filter holds user keys.
            let severity = if self.kind.is_none() || self.report.unknown_order {
                Severity::Unchecked
            } else {
                Severity::Damage
            };
            let hidden = hidden.unwrap_or_default();
            self.report.find_tally(severity, place, hidden);
            self.report
                .find_tally(Severity::Warning, place, filter.unfiltered);
        }
    }

    fn load_pieces(&mut self, handle: BlockHandle, named_by: Place) {
        let place = (Section::Pieces, handle.offset);
        let decode = |_: &mut Self, block| Pieces::decode(block);
        match self.load(handle, Section::Pieces, named_by, decode) {
            Some(Some(pieces)) => self.named.pieces = Some((pieces, place)),
            Some(None) => {
                let expected = "a version of about.pieces that is known";
                let found = "another, which readers ignore";
                self.report.find(Severity::Note, place, expected, found);
            }
            None => {}
        }
    }

    /// Compares `about.pieces` with the index at this handle, if that is sound, and with the names of the filters.
    pub(super) fn compare_pieces(&mut self, handle: BlockHandle, index: Option<&Block<Bytes>>) {
        let Some((pieces, place)) = self.named.pieces.take() else {
            return;
        };
        let filters = self.named.filters_named.iter();
        let filters: Vec<BlockHandle> = filters.map(|(_, handle)| *handle).collect();
        let mut compared = vec![pieces.check_filters(&filters), pieces.check_index(handle)];
        if let Some(index) = index.filter(|_| pieces.index.handle == handle) {
            compared.push(pieces.index.check_block(&index.data));
        }
        for checked in compared {
            self.accept(place, checked);
        }
    }

    /// Compares the properties with what was counted, as far as that is complete.
    pub(super) fn compare_properties(&mut self) {
        let Some((stated, place)) = self.named.properties.take() else {
            return;
        };
        let mut own = if self.counted_all {
            self.counted.properties(&Order::Bytewise, BTreeMap::new())
        } else {
            stated.clone()
        };
        own.filter_bytes = stated.filter_bytes;
        // Of several filters, the properties name one. The size of another says nothing.
        let filters = self.named.filters_named.iter();
        let mut filters = filters.filter(|(policy, _)| policy.is_some());
        let first = filters.clone().next();
        let named = filters.find(|(policy, _)| *policy == stated.filter_policy);
        let (policy, handle) = named.or(first).cloned().unzip();
        own.filter_policy = policy.flatten();
        if own.filter_policy == stated.filter_policy {
            own.filter_bytes = handle.map(|handle| handle.size);
        }
        for ((name, own), (_, stated)) in figures(&own).into_iter().zip(figures(&stated)) {
            if own != stated {
                let [own, stated] = [own, stated].map(|text| text.unwrap_or_else(|| "none".into()));
                let expected = format!("the property {name} {own}, as the table has");
                self.report.find(Severity::Damage, place, expected, stated);
            }
        }
    }
}

fn ask_policy(policy: Arc<dyn FilterPolicy>, block: Bytes) -> Result<Ask, Defect> {
    let reader = FilterBlockReader::new(block)?;
    reader.check_offsets()?;
    Ok(Box::new(move |offset, key| {
        let passes = || reader.key_may_match(&*policy, offset, key);
        reader.has_filter(offset).then(passes)
    }))
}

fn ask_prefixes(extractor: Arc<dyn PrefixExtractor>, block: Bytes) -> Result<Ask, Defect> {
    let reader = FilterBlockReader::new(block)?;
    reader.check_prefixes()?;
    Ok(Box::new(move |_, key| {
        let prefix = prefix_of(&*extractor, key);
        Some(prefix.is_none_or(|prefix| reader.prefix_may_match(prefix)))
    }))
}

/// The properties that are compared, in words.
fn figures(properties: &Properties) -> [(&'static str, Option<String>); 12] {
    let number = |number: u64| Some(number.to_string());
    let text = |text: &[u8]| format!("\"{}\"", text.escape_ascii());
    // A longer key is left out.
    let is_stored = |key: &&[u8]| key.len() <= MAX_KEY_LEN;
    let key = |key: &Option<Vec<u8>>| key.as_deref().filter(is_stored).map(text);
    let sequences = properties.sequences.as_ref();
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
        ("filter.policy", policy.map(|name| text(name.as_bytes()))),
        ("filter.bytes", properties.filter_bytes.and_then(number)),
    ]
}
