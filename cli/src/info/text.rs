//! What `info` prints of a table.

use std::io::{self, Write};

use leveltable::{
    db::InternalKey,
    inspect::{BlockInfo, NamedBlock},
};

use super::{Anatomy, CodecUse};
use crate::notation::quoted;
use crate::open::{Order, type_name};
use crate::output::{BOLD, count, entries};

/// Size of a table's footer.
const FOOTER_BYTES: u64 = 48;

/// A stretch of the file.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    what: String,
}

impl Part {
    fn new(name: &str, offset: u64, bytes: u64, what: String) -> Part {
        Part {
            name: name.to_owned(),
            offset,
            bytes,
            what,
        }
    }
}

impl Anatomy<'_> {
    /// Returns the parts of the file in order, without gaps.
    pub(super) fn parts(&self) -> Vec<Part> {
        let Some(layout) = &self.layout else {
            return self.parts_without_layout();
        };
        let mut parts: Vec<Part> = layout.named.iter().map(named_part).collect();
        for (name, block) in [("metaindex", &layout.metaindex), ("index", &layout.index)] {
            let mut what = entries(block.entries);
            if block.codec != "none" {
                what += &format!(", {}", block.codec);
            }
            parts.push(Part::new(name, block.offset, block.stored_bytes, what));
        }
        let footer_bytes = self.table.file_bytes() - layout.footer_offset;
        let footer = Part::new("footer", layout.footer_offset, footer_bytes, String::new());
        parts.push(footer);
        parts.sort_by_key(|part| part.offset);

        // The data blocks come before all other parts.
        let data_bytes = parts.first().map_or(0, |first| first.offset);
        let mut tiles = vec![Part::new("data", 0, data_bytes, self.data(data_bytes))];
        for part in parts {
            let end = tiles.last().map_or(0, |last| last.offset + last.bytes);
            if let gap @ 1.. = part.offset.saturating_sub(end) {
                tiles.push(Part::new("unused", end, gap, String::new()));
            }
            tiles.push(part);
        }
        tiles
    }

    /// Returns what is in the data blocks' part of the file, of `bytes`.
    fn data(&self, bytes: u64) -> String {
        let mut what = count(self.table.data_blocks() as u64, "block");
        if let (Some(measured), [], Some(stored)) =
            (&self.measured, &self.faults[..], self.data_stored_bytes)
        {
            let between = bytes.saturating_sub(stored);
            let unused = between.saturating_sub(measured.padding);
            for (bytes, name) in [(measured.padding, "of padding"), (unused, "unused")] {
                if bytes > 0 {
                    what += &format!(", {bytes} bytes {name}");
                }
            }
        }
        what
    }

    /// Returns what is known of the parts if the metaindex is damaged.
    fn parts_without_layout(&self) -> Vec<Part> {
        let footer = self.table.file_bytes().saturating_sub(FOOTER_BYTES);
        let data = self.measured.as_ref().map(|measured| measured.data_end);
        let data = data.map(|end| Part::new("data", 0, end, self.data(end)));
        let end = data.as_ref().map_or(0, |data| data.bytes);
        let what = if data.is_some() { "" } else { "data, " };
        let what = format!("{what}metaindex (damaged), index and, if there is one, filter");
        let other = Part::new("other", end, footer.saturating_sub(end), what);
        let footer = Part::new("footer", footer, FOOTER_BYTES, String::new());
        data.into_iter().chain([other, footer]).collect()
    }

    pub(super) fn draw(&self, out: &mut impl Write) -> io::Result<()> {
        let kind = if self.is_database {
            "a table of a LevelDB database"
        } else {
            "a LevelDB table"
        };
        let order = match self.comparator() {
            _ if self.order != Order::Unknown => String::new(),
            Some(name) => format!(" ordered by {}", shown(name)),
            None => " in an order of its own".to_owned(),
        };
        let file_bytes = self.table.file_bytes();
        write!(out, "{kind}{order}, {}", size(file_bytes))?;
        if let Some(n) = self.entries {
            write!(out, ", {}", entries(n))?;
        }
        let readable = if self.faults.is_empty() || self.measured.is_none() {
            ""
        } else {
            " that can be read"
        };
        writeln!(out, "{readable}\n")?;
        writeln!(
            out,
            "{BOLD}{:>12} {:>12}         section{BOLD:#}",
            "offset", "bytes"
        )?;
        for part in self.parts() {
            let share = percent(part.bytes, file_bytes);
            let Part {
                name,
                offset,
                bytes,
                what,
            } = part;
            let line = format!("{offset:>12} {bytes:>12} {share:>6}  {name:<10} {what}");
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out)?;
        self.draw_keys(out)?;
        self.draw_codecs(out)?;
        self.draw_filter(out)?;
        if let Some(prefixes) = self.table.prefix_filter() {
            writeln!(out, "filter  of prefixes, {}", shown(&prefixes.extractor))?;
            writeln!(out, "        {} bytes", prefixes.bytes)?;
        }
        if self.args.blocks {
            self.draw_blocks(out)?;
        }
        Ok(())
    }

    fn draw_keys(&self, out: &mut impl Write) -> io::Result<()> {
        let mut title = "keys";
        if let (Some(keys), Some(values)) = (self.key_bytes, self.value_bytes) {
            writeln!(out, "{title:<7} {keys} bytes, values {values} bytes")?;
            title = "";
        }
        if let Some((first, last)) = &self.key_range {
            writeln!(out, "{title:<7} {}", self.key(first))?;
            writeln!(out, "     .. {}", self.key(last))?;
        }
        Ok(())
    }

    /// Returns a key as text, cut to fit a line.
    fn key(&self, key: &[u8]) -> String {
        match InternalKey::parse(key).filter(|_| self.is_database) {
            Some(InternalKey {
                user_key,
                sequence,
                value_type,
            }) => {
                let key = quoted(user_key, 36);
                format!("{key}, sequence {sequence}, {}", type_name(value_type))
            }
            None => quoted(key, 64),
        }
    }

    fn draw_codecs(&self, out: &mut impl Write) -> io::Result<()> {
        let mut title = "codecs";
        for (name, codec) in self.measured.iter().flat_map(|measured| &measured.codecs) {
            let CodecUse {
                blocks,
                stored_bytes,
                bytes,
            } = codec;
            let ratio = percent(*stored_bytes, *bytes);
            let blocks = count(*blocks, "block");
            writeln!(
                out,
                "{title:<7} {name}: {blocks}, {bytes} bytes stored in {stored_bytes} ({ratio})"
            )?;
            title = "";
        }
        Ok(())
    }

    fn draw_filter(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(filter) = &self.filter else {
            if self.layout.is_none() {
                let what = "unknown: the metaindex, which leads to it, is damaged";
                return writeln!(out, "filter  {what}");
            }
            if self
                .table
                .filters()
                .iter()
                .all(|filter| filter.skipped.is_none())
            {
                return writeln!(out, "filter  none");
            }
            return self.draw_unused_filters(out);
        };
        let layout = (self.measured.as_ref()).and_then(|measured| measured.filter_layout);
        let span = match layout {
            None => String::new(),
            Some(layout) if layout.whole_table => ", one for the whole table".to_owned(),
            Some(layout) => format!(", {}", count(layout.filters as u64, "filter")),
        };
        writeln!(out, "filter  {}{span}", shown(&filter.policy))?;
        write!(out, "        {} bytes", filter.bytes)?;
        // Unreadable blocks make the number of keys unknown.
        if let Some(n) = self.entries.filter(|_| self.faults.is_empty()) {
            write!(out, ", {:.2} bits a key", filter.bits_per_key(n))?;
        }
        writeln!(out)?;
        match self
            .measured
            .as_ref()
            .and_then(|measured| measured.filter_rate)
        {
            Some(rate) => writeln!(
                out,
                "        lets {:.2} % of absent keys pass, of {} tried",
                rate.false_positive_rate() * 100.0,
                rate.sampled_keys
            ),
            None => Ok(()),
        }?;
        self.draw_unused_filters(out)
    }

    fn draw_unused_filters(&self, out: &mut impl Write) -> io::Result<()> {
        for (filter, why) in self.unused_filters() {
            writeln!(out, "filter  not used: {why}")?;
            let of_prefixes = filter.prefixes.as_ref();
            let name = match of_prefixes {
                Some(extractor) => format!("of prefixes, {}", shown(extractor)),
                None => shown(&filter.policy),
            };
            writeln!(out, "        {name}, {} bytes", filter.bytes)?;
        }
        Ok(())
    }

    fn draw_blocks(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\n{BOLD}{:>12} {:>9} {:>9}  {:<7} {:>7}  first key{BOLD:#}",
            "offset", "bytes", "unpacked", "codec", "entries"
        )?;
        for block in self.measured.iter().flat_map(|measured| &measured.blocks) {
            let BlockInfo {
                offset,
                stored_bytes,
                bytes,
                codec,
                entries,
                key_range,
                ..
            } = block;
            let first = key_range.as_ref().map(|(first, _)| {
                let parsed = InternalKey::parse(first).filter(|_| self.is_database);
                quoted(parsed.map_or(first, |key| key.user_key), 24)
            });
            let first = first.unwrap_or_default();
            let line = format!(
                "{offset:>12} {stored_bytes:>9} {bytes:>9}  {codec:<7} {entries:>7}  {first}"
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
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
