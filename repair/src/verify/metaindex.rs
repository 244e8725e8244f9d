//! Checks the metaindex, and reads what it names: filters, properties and pieces.

use std::sync::Arc;

use bytes::Bytes;
use leveltable::Section;
use leveltable::db::KeyKind;
use leveltable::filter::{FilterPolicy, PrefixExtractor};
use leveltable::format::{
    BlockHandle, Entries, FilterBlock, Named, Pieces, Properties, verify_frame,
};
use leveltable::sister_crates::{
    Order, known_extractor, known_policy, named_order, show_key, user_key,
};

use super::Verifier;
use super::data::walk;
use super::report::{Place, Severity, Tally};

/// A longer key is left out of the properties.
const MAX_KEY_LEN: usize = 4096;

/// A sound filter block, of a known policy the first.
pub(super) struct Filter {
    of: FilterOf,
    block: FilterBlock,
    offset: u64,
    /// Present keys that it rejects.
    hidden: Tally,
}

/// What a filter holds.
enum FilterOf {
    Keys(Arc<dyn FilterPolicy>),
    Prefixes(Arc<dyn PrefixExtractor>),
}

impl FilterOf {
    /// Name of the policy, or of the extractor.
    fn name(&self) -> &str {
        match self {
            FilterOf::Keys(policy) => policy.name(),
            FilterOf::Prefixes(extractor) => extractor.name(),
        }
    }

    /// Whether readers use one of the two.
    fn is_like(&self, other: &FilterOf) -> bool {
        match (self, other) {
            (FilterOf::Keys(own), FilterOf::Keys(other)) => own.name() == other.name(),
            (FilterOf::Prefixes(_), FilterOf::Prefixes(_)) => true,
            _ => false,
        }
    }
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
                let prefix = extractor.prefix_len(key).and_then(|len| key.get(..len));
                Some(prefix.is_none_or(|prefix| self.block.prefix_may_match(prefix)))
            }
        }
    }
}

impl Verifier<'_> {
    /// Checks the metaindex, which is at `place`, and loads what it leads to.
    pub(super) fn check_metaindex(&mut self, metaindex: Entries, place: Place) {
        // Properties first: they say which filter is theirs.
        let block = metaindex.block().clone();
        if let Some(handle) = handle_of(&block, Named::Properties) {
            let decode = |block: Bytes| Properties::decode(&block);
            let stated = self.load(handle, Section::Properties, place, decode);
            self.properties = stated.map(|stated| (stated, (Section::Properties, handle.offset)));
        }
        // No names are kept but those of policies and extractors that are known: together, they could be the square of the block.
        let (mut filters, mut others) = (Vec::new(), Vec::new());
        let walked = walk(metaindex, Some(&Order::Bytewise), |_, name, value| {
            match (Named::of(name), BlockHandle::decode(value)) {
                (Named::Other, handle) => others.extend(handle),
                (_, None) => {
                    let expected = format!("the handle of {}", show_key(name));
                    let found = show_key(value);
                    self.report.find(Severity::Damage, place, expected, found);
                }
                (Named::Filter(name), Some((handle, _))) => {
                    self.note_filter(name, handle);
                    let policy = known_policy(&self.options.open, name);
                    filters.push((handle, policy.map(FilterOf::Keys)));
                }
                (Named::Prefixes(name), Some((handle, _))) => {
                    let extractor = known_extractor(&self.options.open, name);
                    filters.push((handle, extractor.map(FilterOf::Prefixes)));
                }
                (Named::Properties | Named::Pieces, Some(_)) => {}
            }
        });
        self.report_disorder(walked, place);
        if let Some(handle) = handle_of(&block, Named::Pieces) {
            let filters: Vec<BlockHandle> = filters.iter().map(|(handle, _)| *handle).collect();
            self.load_pieces(handle, place, &filters);
        }
        for (handle, of) in filters {
            self.load_filter(handle, of, place);
        }
        for (handle, _) in others {
            self.look_at_other(handle, place);
        }
    }

    /// Notes the filter of keys that the properties name, or else the first one.
    fn note_filter(&mut self, name: &[u8], handle: BlockHandle) {
        let stated = self
            .stated()
            .and_then(|stated| stated.filter_policy.as_deref());
        let is_stated = stated.is_some_and(|stated| stated.as_bytes() == name);
        if self.counted.filter_policy.is_none() || is_stated {
            self.counted.filter_policy = Some(String::from_utf8_lossy(name).into_owned());
            self.counted.filter_bytes = Some(handle.size);
        }
    }

    /// Looks at what an entry of another name leads to. It may hold anything; if it holds the handle of a block, the block is no gap.
    fn look_at_other(&mut self, handle: BlockHandle, by: Place) {
        if let Ok(range) = self.file.range_of(handle, Section::Metaindex, by)
            && let Ok(frame) = self.read(range.clone())
            && verify_frame(&frame).is_ok()
        {
            self.account(Section::Metaindex, range);
        }
    }

    /// Reads `about.pieces`, which divides some of these `filters`.
    fn load_pieces(&mut self, handle: BlockHandle, by: Place, filters: &[BlockHandle]) {
        let place = (Section::Pieces, handle.offset);
        match self.load(handle, place.0, by, Pieces::decode) {
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

    /// Reads a filter block, and compares it with `about.pieces`. Keeps it if it is known what it holds, and it is the first of that:
    /// readers use the first of a policy, and the first of prefixes.
    fn load_filter(&mut self, handle: BlockHandle, of: Option<FilterOf>, by: Place) {
        let Some(payload) = self.load(handle, Section::Filter, by, Ok) else {
            return;
        };
        if let Some((pieces, place)) = &self.pieces {
            let checked = pieces.check_filter_block(handle, &payload);
            self.accept(*place, checked);
        }
        let is_first = |of: &FilterOf| !self.filters.iter().any(|other| other.of.is_like(of));
        let Some(of) = of.filter(is_first) else {
            return;
        };
        let block = FilterBlock::new(payload).and_then(|block| {
            match of {
                FilterOf::Keys(_) => block.check_offsets()?,
                FilterOf::Prefixes(_) => block.check_prefixes()?,
            }
            Ok(block)
        });
        let block = self.accept((Section::Filter, handle.offset), block);
        self.filters.extend(block.map(|block| Filter {
            of,
            block,
            offset: handle.offset,
            hidden: Tally::default(),
        }));
    }

    /// Asks the filters for `key`, of the data block at `offset`, and notes which of them reject it.
    pub(super) fn ask_filters(&mut self, offset: u64, key: &[u8]) {
        let order = self.order.as_ref();
        let asked = order.map_or(key, |order| order.filter_key(key));
        let is_database = self.report.keys == KeyKind::Database;
        // The filter of a database's table holds user keys, even if the order is not known.
        let asked = if order.is_none() && is_database {
            user_key(key)
        } else {
            asked
        };
        let other = if is_database { key } else { user_key(key) };
        for filter in &mut self.filters {
            self.report.filter_checks += 1;
            let rejects = |key| filter.ask(offset, key) == Some(false);
            if rejects(asked) && (!self.is_kind_guessed || rejects(other)) {
                filter.hidden.note(|| {
                    let expected =
                        format!("that {} passes each key of the table", filter.of.name());
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
        let is_asked = self.options.keys.is_some()
            || named_order(&self.options.open).is_none()
            || self.report.keys == KeyKind::Database
            || stated.is_some_and(|stated| stated.key_kind == KeyKind::Plain)
            || !self.fits_both_kinds;
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
            if let Some((expected, found)) = filter.hidden.words().filter(|_| is_asked) {
                self.report.find(severity, place, expected, found);
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
                let expected = format!("the property {name} {own}, as the table has");
                self.report.find(Severity::Damage, place, expected, stated);
            }
        }
    }
}

/// The first handle of this name in a metaindex.
fn handle_of(metaindex: &Bytes, named: Named<'_>) -> Option<BlockHandle> {
    let mut entries = Entries::of_damaged(metaindex.clone()).ok()?;
    while let Ok(true) = entries.advance() {
        if Named::of(entries.key()) == named {
            return BlockHandle::decode(entries.value()).map(|(handle, _)| handle);
        }
    }
    None
}

/// The properties that are compared, in words.
fn figures(properties: &Properties) -> [(&'static str, String); 12] {
    let number = |number: u64| number.to_string();
    let text = |text: &[u8]| format!("\"{}\"", text.escape_ascii());
    let or_none = |words: Option<String>| words.unwrap_or_else(|| "none".into());
    let key = |key: &Option<Vec<u8>>| {
        let stored = key.as_deref().filter(|key| key.len() <= MAX_KEY_LEN);
        or_none(stored.map(text))
    };
    let sequences = properties.sequences.as_ref();
    let policy = properties.filter_policy.as_ref();
    [
        ("entries", number(properties.entries)),
        ("key.bytes", number(properties.key_bytes)),
        ("value.bytes", number(properties.value_bytes)),
        ("data.blocks", number(properties.data_blocks)),
        ("data.bytes", number(properties.data_bytes)),
        ("deletions", number(properties.deletions)),
        (
            "sequence.min",
            or_none(sequences.map(|at| number(*at.start()))),
        ),
        (
            "sequence.max",
            or_none(sequences.map(|at| number(*at.end()))),
        ),
        ("key.first", key(&properties.first_key)),
        ("key.last", key(&properties.last_key)),
        (
            "filter.policy",
            or_none(policy.map(|name| text(name.as_bytes()))),
        ),
        ("filter.bytes", or_none(properties.filter_bytes.map(number))),
    ]
}
