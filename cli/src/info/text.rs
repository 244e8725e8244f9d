//! The text output of `info` for a table.

use super::record::TableRecord;
use crate::notation::quoted;
use crate::output::{BOLD, and_entries, count};

/// Returns the lines that `info` prints for a table.
pub(super) fn lines_of(record: &TableRecord) -> Vec<String> {
    let kind = match record.keys {
        "database" => "a table of a LevelDB database",
        _ => "a LevelDB table",
    };
    let order = match &record.comparator {
        _ if record.order_known != Some(false) => String::new(),
        Some(name) => format!(" ordered by {}", shown(name)),
        None => " in an order of its own".to_owned(),
    };
    let file_bytes = record.file_bytes;
    let (bytes, n) = (size(file_bytes), and_entries(record.entries));
    let is_partial = record.lacks_blocks && record.codecs.is_some();
    let readable = if is_partial { " that can be read" } else { "" };
    let title = format!("{:>12} {:>12}         section", "offset", "bytes");
    let mut lines = vec![
        format!("{kind}{order}, {bytes}{n}{readable}\n"),
        format!("{BOLD}{title}{BOLD:#}"),
    ];
    for part in &record.sections {
        let (offset, bytes, section) = (part.offset, part.stored_bytes, &part.section);
        let share = percent(bytes, file_bytes);
        let line = format!(
            "{offset:>12} {bytes:>12} {share:>6}  {section:<10} {}",
            part.what
        );
        lines.push(line.trim_end().to_owned());
    }
    lines.push(String::new());
    let mut title = "keys";
    if let (Some(keys), Some(values)) = (record.key_bytes, record.value_bytes) {
        lines.push(format!("{title:<7} {keys} bytes, values {values} bytes"));
        title = "";
    }
    if let (Some(first), Some(last)) = (&record.first_key, &record.last_key) {
        lines.push(format!(
            "{title:<7} {}\n     .. {}",
            first.show(),
            last.show()
        ));
    }
    let mut title = "codecs";
    for (name, codec) in record.codecs.iter().flatten() {
        let (bytes, stored_bytes) = (codec.bytes, codec.stored_bytes);
        let (blocks, ratio) = (count(codec.blocks, "block"), percent(stored_bytes, bytes));
        let stored = format!("{bytes} bytes stored in {stored_bytes} ({ratio})");
        lines.push(format!("{title:<7} {name}: {blocks}, {stored}"));
        title = "";
    }
    add_filters(record, &mut lines);
    if let Some(blocks) = &record.blocks {
        let title = format!("{:>12} {:>9} {:>9}  codec ", "offset", "bytes", "unpacked");
        lines.push(format!("\n{BOLD}{title}  entries  first key{BOLD:#}"));
        for block in blocks {
            let (offset, stored, bytes) = (block.offset, block.stored_bytes, block.bytes);
            let first = block.first_key.as_ref().map(|first| quoted(&first.key, 24));
            let (first, codec, n) = (first.unwrap_or_default(), block.codec, block.entries);
            let line = format!("{offset:>12} {stored:>9} {bytes:>9}  {codec:<7} {n:>7}  {first}");
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

fn add_filters(record: &TableRecord, lines: &mut Vec<String>) {
    let unused = record.unused_filters.iter();
    if let Some(filter) = &record.filter {
        // Unreadable blocks make the number of keys unknown.
        let bits = filter.bits_per_key.filter(|_| !record.lacks_blocks);
        let bits = bits.map_or_else(String::new, |bits| format!(", {bits:.2} bits per key"));
        lines.push(format!("filter  {}", shown(&filter.policy)));
        lines.push(format!("        {} bytes{bits}", filter.bytes));
        if let (Some(rate), Some(keys)) = (filter.false_positive_rate, filter.sampled_keys) {
            let rate = rate * 100.0;
            lines.push(format!(
                "        false-positive rate {rate:.2} %, of {keys} absent keys tried"
            ));
        }
    } else if record.has_damaged_metaindex {
        let what = "unknown: the metaindex, which leads to it, is damaged";
        lines.push(format!("filter  {what}"));
        return;
    } else if record.unused_filters.is_empty() {
        lines.push("filter  none".to_owned());
    }
    for filter in unused.chain(&record.prefix_filter) {
        let name = match (&filter.extractor, &filter.policy) {
            (Some(extractor), _) => format!("of prefixes, {}", shown(extractor)),
            (None, policy) => shown(policy.as_deref().unwrap_or_default()),
        };
        let bytes = filter.bytes;
        lines.push(match &filter.why {
            Some(why) => format!("filter  not used: {why}\n        {name}, {bytes} bytes"),
            None => format!("filter  {name}\n        {bytes} bytes"),
        });
    }
}

/// Returns a name from the file: unchanged if it is printable ASCII, else quoted and escaped, since it goes to a
/// terminal.
pub(super) fn shown(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        name.to_owned()
    } else {
        quoted(name.as_bytes(), 64)
    }
}

/// Returns a size in bytes, and from 1 KiB on also in a larger unit.
pub(super) fn size(bytes: u64) -> String {
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
