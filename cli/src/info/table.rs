//! What `info` finds out of a table.

use std::path::Path;

use bytes::Bytes;
use leveltable::filter::FilterSkipReason;
use leveltable::inspect::{BlockInfo, Layout, NamedBlock};
use leveltable::{ErrorKind, OpenOptions, Section, Table};

use super::record::{Block, Filter, Key, OtherFilter, Part, Record};
use super::text::shown;
use super::{Args, Fault};
use crate::failure::Failure;
use crate::open::{AnyTable, Keys, Order};
use crate::output::{count, entries};
use crate::place::source;
use crate::progress::Progress;

/// Size of a table's footer.
const FOOTER_BYTES: u64 = 48;

/// Fills in the record of a table that was opened without filters because of `fault`, if there is one.
pub(super) fn describe(
    opened: &AnyTable,
    mut record: Record,
    fault: Fault,
    path: &Path,
    args: &Args,
) -> Result<Record, Failure> {
    let (table, is_database) = (opened.table(), opened.is_database());
    let is_full = args.full || args.blocks;
    let mut faults = Vec::new();
    let layout = match table.layout() {
        Ok(layout) => Some(layout),
        Err(e) if e.corruption().is_some() => {
            faults.push(e.to_string());
            None
        }
        Err(e) => return Err(e.into()),
    };
    record.file_bytes = Some(table.file_bytes());
    record.keys = Some(if is_database { "database" } else { "plain" });
    record.data_blocks = Some(table.data_blocks());
    record.has_damaged_metaindex = layout.is_none();
    record.comparator = table.properties().map(|stated| stated.comparator.clone());
    let mut data = DataPart::default();
    let mut unreadable = Vec::new();
    let mut measured = Filter::default();
    state(table, &mut record);
    if is_full {
        (data, measured) = measure(table, &mut record, is_database, &mut unreadable);
    } else {
        match ends(table) {
            Ok(Some((first, last))) => {
                record.first_key = Some(Key::of(&first, is_database));
                record.last_key = Some(Key::of(&last, is_database));
            }
            Ok(None) => {}
            Err(e) => unreadable.push(e.to_string()),
        }
    }
    let n = record.entries;
    record.filter = table.filter().map(|filter| Filter {
        bits_per_key: n.map(|n| filter.bits_per_key(n)),
        policy: filter.policy,
        bytes: filter.bytes,
        ..measured
    });
    record.order_known = match opened.order {
        Order::Assumed if !is_full => None,
        order => Some(order != Order::Unknown),
    };
    record.lacks_blocks = !unreadable.is_empty();
    record.prefix_filter = table.prefix_filter().map(|prefixes| OtherFilter {
        policy: None,
        extractor: Some(prefixes.extractor),
        bytes: prefixes.bytes,
        why: None,
    });
    let hides_filter = fault.as_ref().map(|(section, _)| *section);
    record.unused_filters = Some(unused_filters(table, hides_filter, path, args));
    record.sections = Some(parts(table, layout.as_ref(), &record, &data));
    unreadable.extend(fault.map(|(_, fault)| fault));
    faults.retain(|fault| !unreadable.contains(fault));
    unreadable.append(&mut faults);
    record.unreadable = Some(unreadable);
    Ok(record)
}

/// Fills in the numbers that the properties state.
fn state(table: &Table, record: &mut Record) {
    if let Some(stated) = table.properties() {
        record.entries = Some(stated.entries);
        record.key_bytes = Some(stated.key_bytes);
        record.value_bytes = Some(stated.value_bytes);
        record.data_stored_bytes = Some(stated.data_bytes);
    } else if table.data_blocks() == 0 {
        record.entries = Some(0);
    }
}

/// What only reading all data blocks tells of their part of the file.
#[derive(Default)]
struct DataPart {
    /// Where the last readable data block ends. `None` if none was read.
    end: Option<u64>,
    /// Bytes between data blocks that keep the next one within its pages.
    padding: u64,
}

/// Reads all data blocks.
fn measure(
    table: &Table,
    record: &mut Record,
    is_database: bool,
    faults: &mut Vec<String>,
) -> (DataPart, Filter) {
    let mut progress = Progress::bytes(Some(table.file_bytes()));
    let (mut end, mut padding) = (0, 0);
    let (mut last, mut blocks, is_listed) = (None, Vec::new(), record.blocks.is_some());
    let (mut walk, mut bytes, codecs) =
        (table.blocks(), 0, record.codecs.insert(Default::default()));
    for block in &mut walk {
        let block = match block {
            Ok(block) => block,
            Err(e) => {
                faults.push(e.to_string());
                continue;
            }
        };
        progress.set(block.offset);
        let codec = codecs.entry(block.codec).or_default();
        codec.blocks += 1;
        codec.stored_bytes += block.stored_bytes;
        codec.bytes += block.bytes;
        bytes += block.bytes;
        padding += padding_before(end, &block);
        end = end.max(block.offset + block.stored_bytes);
        let keys = block.key_range.as_ref();
        let first_key = keys.map(|(first, _)| Key::of(first, is_database));
        record.first_key = record.first_key.take().or_else(|| first_key.clone());
        last = block.key_range.map(|(_, last)| last).or(last);
        if is_listed {
            blocks.push(Block {
                offset: block.offset,
                stored_bytes: block.stored_bytes,
                bytes: block.bytes,
                codec: block.codec,
                entries: block.entries,
                first_key,
            });
        }
    }
    record.blocks = is_listed.then_some(Some(blocks));
    record.last_key = last.map(|last| Key::of(&last, is_database));
    record.data_bytes = Some(bytes);
    let totals = walk.totals();
    record.entries = Some(totals.entries);
    record.key_bytes = Some(totals.key_bytes);
    record.value_bytes = Some(totals.value_bytes);
    record.data_stored_bytes = Some(totals.data_bytes);
    let rate = walk.filter_rate().unwrap_or_else(|e| {
        faults.push(e.to_string());
        None
    });
    let layout = table.filter_layout().ok().flatten();
    let end = Some(end);
    let filter = Filter {
        false_positive_rate: rate.map(|rate| rate.false_positive_rate()),
        sampled_keys: rate.map(|rate| rate.sampled_keys),
        filters: layout.map(|layout| layout.filters),
        whole_table: layout.map(|layout| layout.whole_table),
        ..Filter::default()
    };
    (DataPart { end, padding }, filter)
}

/// Returns how many bytes between `end`, where the block before ends, and `block` are the padding of an aligned table. Only
/// `verify` checks that they are zeros.
fn padding_before(end: u64, block: &BlockInfo) -> u64 {
    const PAGE: u64 = 4096;
    let gap = block.offset.saturating_sub(end);
    let pages = |at: u64| (at % PAGE + block.stored_bytes).div_ceil(PAGE);
    let is_padding =
        gap < PAGE && block.offset.is_multiple_of(PAGE) && pages(end) > pages(block.offset);
    if is_padding { gap } else { 0 }
}

/// Returns the first key and the last: as the properties state them, or by reading blocks.
pub(super) fn ends(table: &Table) -> leveltable::Result<Option<(Bytes, Bytes)>> {
    if let Some(stated) = table.properties()
        && let (Some(first), Some(last)) = (&stated.first_key, &stated.last_key)
    {
        return Ok(Some((first.clone().into(), last.clone().into())));
    }
    let ends = table.first()?.zip(table.last()?);
    Ok(ends.map(|((first, _), (last, _))| (first, last)))
}

/// Returns the filters that the table was opened without, and why.
fn unused_filters(
    table: &Table,
    hides_filter: Option<Section>,
    path: &Path,
    args: &Args,
) -> Vec<OtherFilter> {
    let holds_user_keys = || {
        let opened = source(path).and_then(|source| OpenOptions::new().open_source(source));
        opened.is_err_and(|e| e.kind() == ErrorKind::DatabaseTable)
    };
    let why = |unused| match (unused, hides_filter) {
        // For one of these reasons it was not asked for.
        (FilterSkipReason::TurnedOff, Some(Section::Properties)) => {
            "the properties are damaged".to_owned()
        }
        (FilterSkipReason::TurnedOff, Some(_)) => FilterSkipReason::Damaged.to_string(),
        (FilterSkipReason::TurnedOff, _) if args.keys.keys == Keys::Plain && holds_user_keys() => {
            FilterSkipReason::UserKeys.to_string()
        }
        (FilterSkipReason::TurnedOff, _) => "the order of the keys is unknown".to_owned(),
        _ => unused.to_string(),
    };
    let unused = table.filters().iter().filter_map(|filter| {
        let (extractor, policy) = (filter.prefixes.clone(), filter.policy.clone());
        Some(OtherFilter {
            policy: extractor.is_none().then_some(policy),
            extractor,
            bytes: filter.bytes,
            why: Some(why(filter.skipped?)),
        })
    });
    unused.collect()
}

// ---- Parts of the file ----------------------------------------------------------------------

impl Part {
    fn new(section: &str, offset: u64, stored_bytes: u64, what: String) -> Part {
        Part {
            section: section.to_owned(),
            offset,
            stored_bytes,
            what,
        }
    }
}

/// Returns the parts of the file in order, without gaps.
fn parts(table: &Table, layout: Option<&Layout>, record: &Record, data: &DataPart) -> Vec<Part> {
    let file_bytes = table.file_bytes();
    let Some(layout) = layout else {
        // What is known of the parts if the metaindex is damaged.
        let footer = file_bytes.saturating_sub(FOOTER_BYTES);
        let end = data.end.unwrap_or(0);
        let what = if data.end.is_some() { "" } else { "data, " };
        let what = format!("{what}metaindex (damaged), index and, if there is one, filter");
        let blocks = data
            .end
            .map(|end| Part::new("data", 0, end, in_data(end, record, data)));
        let other = Part::new("other", end, footer.saturating_sub(end), what);
        let footer = Part::new("footer", footer, FOOTER_BYTES, String::new());
        return blocks.into_iter().chain([other, footer]).collect();
    };
    let mut parts: Vec<Part> = layout.named.iter().map(named_part).collect();
    for (name, block) in [("metaindex", &layout.metaindex), ("index", &layout.index)] {
        let mut what = entries(block.entries);
        if block.codec != "none" {
            what += &format!(", {}", block.codec);
        }
        parts.push(Part::new(name, block.offset, block.stored_bytes, what));
    }
    let footer_bytes = file_bytes - layout.footer_offset;
    let footer = Part::new("footer", layout.footer_offset, footer_bytes, String::new());
    parts.push(footer);
    parts.sort_by_key(|part| part.offset);

    // The data blocks come before all other parts.
    let data_bytes = parts.first().map_or(0, |first| first.offset);
    let what = in_data(data_bytes, record, data);
    let mut tiles = vec![Part::new("data", 0, data_bytes, what)];
    for part in parts {
        let end = tiles
            .last()
            .map_or(0, |last| last.offset + last.stored_bytes);
        if let gap @ 1.. = part.offset.saturating_sub(end) {
            tiles.push(Part::new("unused", end, gap, String::new()));
        }
        tiles.push(part);
    }
    tiles
}

/// Returns what is in the data blocks' part of the file, of `bytes`.
fn in_data(bytes: u64, record: &Record, data: &DataPart) -> String {
    let mut what = count(record.data_blocks.unwrap_or(0) as u64, "block");
    if let (Some(_), false, Some(stored)) =
        (data.end, record.lacks_blocks, record.data_stored_bytes)
    {
        let between = bytes.saturating_sub(stored);
        let unused = between.saturating_sub(data.padding);
        for (bytes, name) in [(data.padding, "of padding"), (unused, "unused")] {
            if bytes > 0 {
                what += &format!(", {bytes} bytes {name}");
            }
        }
    }
    what
}

/// Returns the part of a block that the metaindex names.
fn named_part(block: &NamedBlock) -> Part {
    let name = String::from_utf8_lossy(&block.name);
    let (name, what) = match name.strip_prefix("filter.") {
        Some(policy) => ("filter", shown(policy)),
        None if name == "about.leveltable" => ("properties", String::new()),
        None if name == "about.pieces" => ("pieces", String::new()),
        None => match name.strip_prefix("about.prefixes.") {
            Some(extractor) => ("prefixes", shown(extractor)),
            None => ("other", shown(&name)),
        },
    };
    Part::new(name, block.offset, block.stored_bytes, what)
}
