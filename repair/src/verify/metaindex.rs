//! Checks the metaindex, and reads what it lists: filters, properties and pieces.

use bytes::Bytes;
use leveltable::Section;
use leveltable::format::{
    BlockHandle, Entries, FilterBlock, Named, Pieces, Properties, verify_frame,
};
use leveltable::sister_crates::{Order, known_extractor, known_policy, show_key};

use super::data::{report_disorder, walk};
use super::filter::{Filter, FilterOf};
use super::report::{Place, Severity, Tally};
use super::run::Run;

/// Longer keys are left out of the properties.
const MAX_KEY_LEN: usize = 4096;

/// Checks the metaindex, which is at `place`, and loads the blocks that it leads to.
pub(super) fn check_metaindex(run: &mut Run<'_>, metaindex: Entries, place: Place) {
    // Properties first: they name the filter of keys.
    let block = metaindex.block().clone();
    if let Some(handle) = handle_of(&block, Named::Properties) {
        let decode = |block: Bytes| Properties::decode(&block);
        let stated = run.load(handle, Section::Properties, place, decode);
        run.properties = stated.map(|stated| (stated, (Section::Properties, handle.offset)));
    }
    // Only the names of known policies and extractors are kept: together, all names could take the square of the block's
    // size.
    let (mut filters, mut others) = (Vec::new(), Vec::new());
    let walked = walk(metaindex, Some(&Order::Bytewise), |_, name, value| {
        match (Named::of(name), BlockHandle::decode(value)) {
            (Named::Other, handle) => others.extend(handle),
            (_, None) => {
                let expected = format!("the handle of {}", show_key(name));
                let found = show_key(value);
                run.report.find(Severity::Damage, place, expected, found);
            }
            (Named::Filter(name), Some((handle, _))) => {
                note_filter(run, name, handle);
                let policy = known_policy(&run.options.open, name);
                filters.push((handle, policy.map(FilterOf::Keys)));
            }
            (Named::Prefixes(name), Some((handle, _))) => {
                let extractor = known_extractor(&run.options.open, name);
                filters.push((handle, extractor.map(FilterOf::Prefixes)));
            }
            (Named::Properties | Named::Pieces, Some(_)) => {}
        }
    });
    report_disorder(run, walked, place);
    if let Some(handle) = handle_of(&block, Named::Pieces) {
        let filters: Vec<BlockHandle> = filters.iter().map(|(handle, _)| *handle).collect();
        load_pieces(run, handle, place, &filters);
    }
    for (handle, of) in filters {
        load_filter(run, handle, of, place);
    }
    for (handle, _) in others {
        look_at_other(run, handle, place);
    }
}

/// Notes the filter of keys that the properties name, or else the first one.
fn note_filter(run: &mut Run<'_>, name: &[u8], handle: BlockHandle) {
    let stated = run
        .stated()
        .and_then(|stated| stated.filter_policy.as_deref());
    let is_stated = stated.is_some_and(|stated| stated.as_bytes() == name);
    if run.counted.filter_policy.is_none() || is_stated {
        run.counted.filter_policy = Some(String::from_utf8_lossy(name).into_owned());
        run.counted.filter_bytes = Some(handle.size);
    }
}

/// Examines the block that an entry with another name leads to. The entry may hold anything; if it holds the handle of a block,
/// the block is not a gap.
fn look_at_other(run: &mut Run<'_>, handle: BlockHandle, by: Place) {
    if let Ok(range) = run.file.range_of(handle, Section::Metaindex, by)
        && let Ok(frame) = run.read(range.clone())
        && verify_frame(&frame).is_ok()
    {
        run.account(Section::Metaindex, range);
    }
}

/// Reads `about.pieces`, which divides some of these `filters`.
fn load_pieces(run: &mut Run<'_>, handle: BlockHandle, by: Place, filters: &[BlockHandle]) {
    let place = (Section::Pieces, handle.offset);
    match run.load(handle, place.0, by, Pieces::decode) {
        Some(Some(pieces)) => {
            run.accept(place, pieces.check_filters(filters));
            run.pieces = Some((pieces, place));
        }
        Some(None) => {
            let expected = "a version of about.pieces that is known";
            let found = "another, which readers ignore";
            run.report.find(Severity::Warning, place, expected, found);
        }
        None => {}
    }
}

/// Reads a filter block, and compares it with `about.pieces`. Keeps it if its contents are known, and it is the first of its
/// kind: readers use the first one of a policy, and the first one of prefixes.
fn load_filter(run: &mut Run<'_>, handle: BlockHandle, of: Option<FilterOf>, by: Place) {
    let Some(payload) = run.load(handle, Section::Filter, by, Ok) else {
        return;
    };
    if let Some((pieces, place)) = &run.pieces {
        let checked = pieces.check_block(handle, &payload);
        run.accept(*place, checked);
    }
    let is_first = |of: &FilterOf| !run.filters.iter().any(|other| other.of.is_like(of));
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
    let block = run.accept((Section::Filter, handle.offset), block);
    run.filters.extend(block.map(|block| Filter {
        of,
        block,
        offset: handle.offset,
        hidden: Tally::default(),
    }));
}

/// Compares the properties with the counts. These may be incomplete if anything else is wrong.
pub(super) fn compare_properties(run: &mut Run<'_>) {
    let is_complete = run.report.blocks_are_sound();
    let Some((stated, place)) = run.properties.take().filter(|_| is_complete) else {
        return;
    };
    for ((name, own), (_, stated)) in figures(&run.counted).into_iter().zip(figures(&stated)) {
        if own != stated {
            let expected = format!("the property {name} {own}, as the table has");
            run.report.find(Severity::Damage, place, expected, stated);
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

/// The properties to compare, as text.
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
