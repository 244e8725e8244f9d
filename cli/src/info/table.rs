//! The examination of a table by `info`.

use std::path::Path;

use leveltable::sister_crates::page;
use leveltable::{ErrorKind, OpenOptions, Section, Table};
use leveltable_repair::{Layout, NamedBlock, blocks, layout};
use serde_json::json;

use super::absent_keys::AbsentKeys;
use super::record::{Block, Described, FileSection, Filter, OtherFilter, TableRecord};
use super::text::{lines_of, shown};
use crate::failure::{Failure, with_remedies};
use crate::key::Key;
use crate::open::{AnyTable, Keys};
use crate::output::{Progress, count};
use crate::place::source;
use crate::sort::KeyOrder;

/// Sizes of a table's footer, and of the trailer of each block.
const FOOTER_BYTES: u64 = 48;
const TRAILER_BYTES: u64 = 5;

/// The first and the last stored key.
type Ends = Option<(Vec<u8>, Vec<u8>)>;

/// What to find out about a table.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) keys: Keys,
    /// Whether to read all data blocks, and whether to list them.
    pub(super) full: bool,
    pub(super) blocks: bool,
}

/// The damaged section because of which a table was opened without filters, and the error.
pub(super) type Fault = Option<(Section, String)>;

/// Describes a table that was opened without filters because of `fault`, if there is one.
pub(super) fn describe(
    opened: &AnyTable,
    fault: Fault,
    path: &Path,
    wanted: Wanted,
) -> Result<Described, Failure> {
    let (table, is_database) = (&opened.table, opened.database.is_some());
    let (layout, layout_fault) = match layout(source(path)?) {
        Ok(layout) => (Some(layout), None),
        Err(e) if e.corruption().is_some() => (None, Some(e.to_string())),
        Err(e) => return Err(e.into()),
    };
    let mut record = TableRecord {
        file_bytes: table.file_bytes(),
        keys: if is_database { "database" } else { "plain" },
        data_blocks: table.data_blocks(),
        has_damaged_metaindex: layout.is_none(),
        blocks: wanted.blocks.then(Vec::new),
        ..TableRecord::default()
    };
    let is_certain = !opened.is_assumed || wanted.full;
    record.order_known = is_certain.then_some(opened.order.is_some());
    if let Some(stated) = table.properties() {
        record.comparator = Some(stated.comparator.clone());
        record.entries = Some(stated.entries);
        record.key_bytes = Some(stated.key_bytes);
        record.value_bytes = Some(stated.value_bytes);
        record.data_stored_bytes = Some(stated.data_bytes);
    } else if table.data_blocks() == 0 {
        record.entries = Some(0);
    }
    record.filter = table.filter().map(|filter| Filter {
        policy: filter.policy.clone(),
        bytes: filter.bytes,
        ..Filter::default()
    });
    let mut unreadable = Vec::new();
    let ends = if wanted.full {
        measure(opened, &mut record, path, &mut unreadable)?
    } else {
        ends(table).unwrap_or_else(|e| {
            unreadable.push(with_remedies(&e));
            None
        })
    };
    if let Some((first, last)) = ends {
        record.first_key = Some(Key::of(&first, is_database));
        record.last_key = Some(Key::of(&last, is_database));
    }
    if let (Some(filter), Some(n)) = (&mut record.filter, record.entries) {
        let bits = |bytes: u64| {
            if n == 0 {
                0.0
            } else {
                bytes as f64 * 8.0 / n as f64
            }
        };
        filter.bits_per_key = table.filter().map(|filter| bits(filter.bytes));
    }
    record.lacks_blocks = !unreadable.is_empty();
    record.prefix_filter = table.prefix_filter().map(|prefixes| OtherFilter {
        extractor: prefixes.prefixes.clone(),
        bytes: prefixes.bytes,
        ..OtherFilter::default()
    });
    let hides_filter = fault.as_ref().map(|(section, _)| *section);
    let unused = |layout| unused_filters(opened, layout, hides_filter, path, wanted.keys);
    record.unused_filters = layout.as_ref().map_or_else(Vec::new, unused);
    record.sections = sections(table, layout.as_ref(), &record);
    unreadable.extend(fault.map(|(_, fault)| fault));
    // An earlier error may be the same fault, with advice.
    let is_told = |fault: &String| unreadable.iter().any(|told| told.starts_with(fault));
    let untold = layout_fault.filter(|fault| !is_told(fault));
    unreadable.extend(untold);
    record.unreadable.clone_from(&unreadable);
    Ok(Described {
        kind: Some("table"),
        lines: lines_of(&record),
        record: json!(record),
        unreadable,
    })
}

/// Reads all data blocks.
fn measure(
    opened: &AnyTable,
    record: &mut TableRecord,
    path: &Path,
    faults: &mut Vec<String>,
) -> Result<Ends, Failure> {
    let (table, is_database) = (&opened.table, opened.database.is_some());
    let comparator = opened.order.map(KeyOrder::comparator);
    let mut absent = AbsentKeys::new(comparator);
    let mut progress = Progress::bytes(Some(table.file_bytes()));
    let (mut walk, mut bytes, mut end) = (blocks(source(path)?)?, 0, 0);
    let codecs = record.codecs.insert(Default::default());
    while let Some(block) = walk.next_with(|key, _| absent.add(key)) {
        let block = match block {
            Ok(block) => block,
            Err(e) => {
                faults.push(e.to_string());
                absent.skip();
                continue;
            }
        };
        progress.set(block.offset);
        let codec = codecs.entry(block.codec).or_default();
        codec.blocks += 1;
        codec.stored_bytes += block.stored_bytes;
        codec.bytes += block.bytes;
        bytes += block.bytes;
        // Only `verify` checks that the padding of an aligned table is zeros.
        let padding = page::padding(end, block.stored_bytes);
        if block.offset == end + padding {
            record.padding += padding;
        }
        end = end.max(block.offset + block.stored_bytes);
        if let Some(blocks) = &mut record.blocks {
            let first = block.key_range.as_ref().map(|(first, _)| first);
            blocks.push(Block {
                offset: block.offset,
                stored_bytes: block.stored_bytes,
                bytes: block.bytes,
                codec: block.codec,
                entries: block.entries,
                first_key: first.map(|first| Key::of(first, is_database)),
            });
        }
    }
    record.data_end = Some(end);
    record.data_bytes = Some(bytes);
    let totals = walk.totals().clone();
    record.entries = Some(totals.entries);
    record.key_bytes = Some(totals.key_bytes);
    record.value_bytes = Some(totals.value_bytes);
    record.data_stored_bytes = Some(totals.data_bytes);
    let measured = record.filter.is_some().then(|| absent.measure(table));
    let rate = measured.transpose().unwrap_or_else(|e| {
        faults.push(e.to_string());
        None
    });
    let rate = rate.filter(|(sampled, _)| *sampled > 0);
    if let Some(filter) = &mut record.filter {
        filter.false_positive_rate = rate.map(|(sampled, passed)| passed as f64 / sampled as f64);
        filter.sampled_keys = rate.map(|(sampled, _)| sampled);
    }
    Ok(totals.first_key.zip(totals.last_key))
}

/// Returns the first and the last key: from the properties, or by reading blocks.
pub(super) fn ends(table: &Table) -> leveltable::Result<Ends> {
    if let Some(stated) = table.properties()
        && let (Some(first), Some(last)) = (&stated.first_key, &stated.last_key)
    {
        return Ok(Some((first.clone(), last.clone())));
    }
    let ends = table.first()?.zip(table.last()?);
    Ok(ends.map(|((first, _), (last, _))| (first.to_vec(), last.to_vec())))
}

/// Returns the filters that are not in use, and why, as far as that is known.
fn unused_filters(
    opened: &AnyTable,
    layout: &Layout,
    hides_filter: Option<Section>,
    path: &Path,
    keys: Keys,
) -> Vec<OtherFilter> {
    let holds_user_keys = || {
        let opened = source(path).and_then(|source| OpenOptions::new().open_source(source));
        opened.is_err_and(|e| e.kind() == ErrorKind::DatabaseTable)
    };
    let table = &opened.table;
    let why = || match hides_filter {
        Some(Section::Properties) => "the properties are damaged",
        Some(_) => "it is damaged",
        None if keys == Keys::Plain && holds_user_keys() => {
            "it holds, or may hold, a database's user keys"
        }
        None if opened.order.is_none() => "the order of the keys is unknown",
        None => "its policy is unknown, or another is used",
    };
    let (filter, prefixes) = (table.filter(), table.prefix_filter());
    let used_policy = filter.map(|filter| filter.policy.as_str());
    let used_extractor = prefixes.and_then(|filter| filter.prefixes.as_deref());
    let unused = layout.named.iter().filter_map(|block| {
        let name = String::from_utf8_lossy(&block.name);
        let policy = name.strip_prefix("filter.");
        let extractor = name.strip_prefix("about.prefixes.");
        let is_unused = match (policy, extractor) {
            (Some(_), _) => policy != used_policy,
            (None, Some(_)) => extractor != used_extractor,
            (None, None) => false,
        };
        is_unused.then(|| OtherFilter {
            policy: policy.map(str::to_owned),
            extractor: extractor.map(str::to_owned),
            bytes: block.stored_bytes.saturating_sub(TRAILER_BYTES),
            why: Some(why().to_owned()),
        })
    });
    unused.collect()
}

/// Returns the parts of the file in order, without gaps.
fn sections(table: &Table, layout: Option<&Layout>, record: &TableRecord) -> Vec<FileSection> {
    let file_bytes = table.file_bytes();
    let Some(layout) = layout else {
        // The known parts if the metaindex is damaged.
        let footer = file_bytes.saturating_sub(FOOTER_BYTES);
        let data = record
            .data_end
            .map(|end| FileSection::new("data", 0, end, &in_data(end, record)));
        let what = if data.is_some() { "" } else { "data, " };
        let what = format!("{what}metaindex (damaged), index and, if there is one, filter");
        let end = record.data_end.unwrap_or(0);
        let other = FileSection::new("other", end, footer.saturating_sub(end), &what);
        let footer = FileSection::new("footer", footer, FOOTER_BYTES, "");
        return data.into_iter().chain([other, footer]).collect();
    };
    let mut parts: Vec<FileSection> = layout.named.iter().map(named_part).collect();
    let blocks = table.data_blocks() as u64;
    for (name, block, entries) in [
        ("metaindex", &layout.metaindex, layout.named.len() as u64),
        ("index", &layout.index, blocks),
    ] {
        let what = count(entries, "entry");
        parts.push(FileSection::new(
            name,
            block.offset,
            block.stored_bytes,
            &what,
        ));
    }
    let footer = layout.footer_offset;
    parts.push(FileSection::new("footer", footer, file_bytes - footer, ""));
    parts.sort_by_key(|part| part.offset);

    // The data blocks come before all other parts.
    let mut end = parts.first().map_or(0, |first| first.offset);
    let mut tiles = vec![FileSection::new("data", 0, end, &in_data(end, record))];
    for part in parts {
        if let gap @ 1.. = part.offset.saturating_sub(end) {
            tiles.push(FileSection::new("unused", end, gap, ""));
        }
        end = part.offset + part.stored_bytes;
        tiles.push(part);
    }
    tiles
}

/// Describes the part of the file with the data blocks, of `bytes`.
fn in_data(bytes: u64, record: &TableRecord) -> String {
    let mut what = count(record.data_blocks as u64, "block");
    if record.data_end.is_some()
        && !record.lacks_blocks
        && let Some(stored) = record.data_stored_bytes
    {
        let padding = record.padding;
        let unused = bytes.saturating_sub(stored).saturating_sub(padding);
        for (bytes, name) in [(padding, "of padding"), (unused, "unused")] {
            if bytes > 0 {
                what += &format!(", {bytes} bytes {name}");
            }
        }
    }
    what
}

/// Describes a block that the metaindex lists.
fn named_part(block: &NamedBlock) -> FileSection {
    let name = String::from_utf8_lossy(&block.name);
    let (section, what) = match &*name {
        "about.leveltable" => ("properties", String::new()),
        "about.pieces" => ("pieces", String::new()),
        name => {
            let known = [("filter.", "filter"), ("about.prefixes.", "prefixes")];
            let mut named = { known.into_iter() }
                .filter_map(|(prefix, section)| Some((section, name.strip_prefix(prefix)?)));
            let (section, name) = named.next().unwrap_or(("other", name));
            (section, shown(name))
        }
    };
    FileSection::new(section, block.offset, block.stored_bytes, &what)
}
