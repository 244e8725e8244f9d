//! What `info` prints of a table.

use std::io::{self, Write};

use super::record::{Block, Record};
use crate::notation::quoted;
use crate::output::{BOLD, and_entries, count};

pub(super) fn draw(record: &Record, out: &mut impl Write) -> io::Result<()> {
    let kind = match record.keys {
        Some("database") => "a table of a LevelDB database",
        _ => "a LevelDB table",
    };
    let order = match &record.comparator {
        _ if record.order_known != Some(false) => String::new(),
        Some(name) => format!(" ordered by {}", shown(name)),
        None => " in an order of its own".to_owned(),
    };
    let file_bytes = record.file_bytes.unwrap_or(0);
    let n = and_entries(record.entries);
    let is_partial = record.lacks_blocks && record.codecs.is_some();
    let readable = if is_partial { " that can be read" } else { "" };
    writeln!(out, "{kind}{order}, {}{n}{readable}\n", size(file_bytes))?;
    let (offset, bytes) = ("offset", "bytes");
    writeln!(
        out,
        "{BOLD}{offset:>12} {bytes:>12}         section{BOLD:#}"
    )?;
    for part in record.sections.iter().flatten() {
        let (offset, bytes, section) = (part.offset, part.stored_bytes, &part.section);
        let share = percent(bytes, file_bytes);
        let line = format!(
            "{offset:>12} {bytes:>12} {share:>6}  {section:<10} {}",
            part.what
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)?;
    let mut title = "keys";
    if let (Some(keys), Some(values)) = (record.key_bytes, record.value_bytes) {
        writeln!(out, "{title:<7} {keys} bytes, values {values} bytes")?;
        title = "";
    }
    if let (Some(first), Some(last)) = (&record.first_key, &record.last_key) {
        writeln!(out, "{title:<7} {}\n     .. {}", first.show(), last.show())?;
    }
    let mut title = "codecs";
    for (name, codec) in record.codecs.iter().flatten() {
        let (bytes, stored_bytes) = (codec.bytes, codec.stored_bytes);
        let (blocks, ratio) = (count(codec.blocks, "block"), percent(stored_bytes, bytes));
        let stored = format!("{bytes} bytes stored in {stored_bytes} ({ratio})");
        writeln!(out, "{title:<7} {name}: {blocks}, {stored}")?;
        title = "";
    }
    draw_filters(record, out)?;
    match &record.blocks {
        Some(blocks) => draw_blocks(blocks.iter().flatten(), out),
        None => Ok(()),
    }
}

fn draw_filters(record: &Record, out: &mut impl Write) -> io::Result<()> {
    let unused = record.unused_filters.iter().flatten();
    if let Some(filter) = &record.filter {
        let span = match (filter.whole_table, filter.filters) {
            (Some(true), _) => ", one for the whole table".to_owned(),
            (_, Some(filters)) => format!(", {}", count(filters as u64, "filter")),
            _ => String::new(),
        };
        // Unreadable blocks make the number of keys unknown.
        let bits = filter.bits_per_key.filter(|_| !record.lacks_blocks);
        let bits = bits.map_or_else(String::new, |bits| format!(", {bits:.2} bits a key"));
        writeln!(out, "filter  {}{span}", shown(&filter.policy))?;
        writeln!(out, "        {} bytes{bits}", filter.bytes)?;
        if let (Some(rate), Some(keys)) = (filter.false_positive_rate, filter.sampled_keys) {
            let passed = format!("{:.2} % of absent keys pass", rate * 100.0);
            writeln!(out, "        lets {passed}, of {keys} tried")?;
        }
    } else if record.has_damaged_metaindex {
        let what = "unknown: the metaindex, which leads to it, is damaged";
        return writeln!(out, "filter  {what}");
    } else if unused.clone().next().is_none() {
        writeln!(out, "filter  none")?;
    }
    for filter in unused.chain(&record.prefix_filter) {
        let name = match (&filter.extractor, &filter.policy) {
            (Some(extractor), _) => format!("of prefixes, {}", shown(extractor)),
            (None, policy) => shown(policy.as_deref().unwrap_or_default()),
        };
        let bytes = filter.bytes;
        match &filter.why {
            Some(why) => writeln!(
                out,
                "filter  not used: {why}\n        {name}, {bytes} bytes"
            )?,
            None => writeln!(out, "filter  {name}\n        {bytes} bytes")?,
        }
    }
    Ok(())
}

fn draw_blocks<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    out: &mut impl Write,
) -> io::Result<()> {
    let title = format!("{:>12} {:>9} {:>9}  codec ", "offset", "bytes", "unpacked");
    writeln!(out, "\n{BOLD}{title}  entries  first key{BOLD:#}")?;
    for block in blocks {
        let (offset, stored, bytes) = (block.offset, block.stored_bytes, block.bytes);
        let first = block.first_key.as_ref().map(|first| quoted(&first.key, 24));
        let (first, codec, n) = (first.unwrap_or_default(), block.codec, block.entries);
        let line = format!("{offset:>12} {stored:>9} {bytes:>9}  {codec:<7} {n:>7}  {first}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns a name that the file holds: as it is if it is graphic ASCII, else quoted and escaped, since it goes to a
/// terminal.
pub(crate) fn shown(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        name.to_owned()
    } else {
        quoted(name.as_bytes(), 64)
    }
}

/// Returns a size in bytes, and from 1 KiB on also in a larger unit.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => count(bytes, "byte"),
        _ => format!("{bytes} bytes ({})", indicatif::BinaryBytes(bytes)),
    }
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => String::new(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}
