//! `leveltable info`: describes the parts of a table's file.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::{
    Corruption, ErrorKind, OpenOptions, Section, Summary, Table,
    db::InternalKey,
    filter::{FoundFilter, PrefixFilterInfo, Unused},
    inspect::{BlockInfo, FilterRate, Layout},
};
use serde_json::{Map, Value, json};

use crate::Answer;
use crate::failure::Failure;
use crate::files::{each_file, expand};
use crate::notation::quoted;
use crate::open::{
    AnyTable, Keys, KeysArg, SHOWN_AS_STORED, check_is_file, note_unknown_order, open,
    open_in_stored_order, open_with, refused, type_name,
};
use crate::output::{BOLD, complain, count, entries, file_record};
use crate::progress::Progress;
use crate::remote::Set;
use crate::set_info::SetInfo;

/// Show the sections, codecs, keys and filter of tables.
///
/// Also shows the size of the filter and measures how many absent keys it lets pass. Reads the whole file twice, first
/// to check the order of the keys. Reports unreadable blocks and exits with status 1.
///
/// If the keys are neither in byte order nor in that of a database, shows everything but the filter.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable info 000005.ldb
  leveltable info 000005.ldb --blocks | less
  leveltable info db                              all tables of a database
  leveltable info 000005.ldb --json | jq .filter.bits_per_key

With --json, every file has a line with the same fields. If a file could not be read, they are null and `error` says \
why.

The bytes of a block include its trailer of five: one byte for the codec, four for the checksum.")]
pub(crate) struct Args {
    /// The tables' files or URLs, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    keys: KeysArg,
    /// Also list the data blocks
    #[arg(long)]
    blocks: bool,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let files = expand(&args.files)?;
    if let ([file], false) = (&files[..], args.json) {
        return describe(file, args, Heading::Name);
    }
    let mut heading = Heading::First;
    each_file(&files, |path| {
        let described = describe(path, args, heading);
        heading = Heading::Next;
        if let (true, Err(failure @ Failure::Message(_))) = (args.json, &described) {
            let record = json!({ "error": failure.to_string() });
            print(|mut out| writeln!(out, "{}", file_record(path, args.fields(), record)))?;
        }
        described
    })
}

/// What comes before the description of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heading {
    /// The name, if there is one file.
    Name,
    /// What `head` prints before the first of several files, and before the next.
    First,
    Next,
}

fn describe(path: &Path, args: &Args, heading: Heading) -> Result<Answer, Failure> {
    let title = |out: &mut dyn Write| {
        let path = path.display();
        match heading {
            Heading::Name => writeln!(out, "{BOLD}{path}{BOLD:#}"),
            Heading::First => writeln!(out, "{BOLD}==> {path} <=={BOLD:#}"),
            Heading::Next => writeln!(out, "\n{BOLD}==> {path} <=={BOLD:#}"),
        }
    };
    match Set::open(path) {
        Ok(Some(set)) => {
            let set = SetInfo::of(path, &set, args.blocks);
            print(|mut out| {
                if args.json {
                    return writeln!(out, "{}", set.to_json(args.fields()));
                }
                title(&mut out)?;
                set.draw(&mut out)
            })?;
            return Ok(Answer::Yes);
        }
        Ok(None) => {}
        Err(failure) => {
            if heading != Heading::Name && !args.json {
                print(|mut out| title(&mut out))?;
            }
            return Err(failure);
        }
    }
    let opened = open_with_filter(path, args.keys.keys).and_then(|(table, fault)| {
        if table.order_is_known && shows_another_order(table.table()) {
            let stored = open_in_stored_order(path, table.is_database())?;
            return Ok((stored, fault));
        }
        Ok((table, fault))
    });
    let (table, fault) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            if heading != Heading::Name && !args.json {
                print(|mut out| title(&mut out))?;
            }
            return Err(failure);
        }
    };
    if !table.order_is_known {
        note_unknown_order(path, args.keys.keys, SHOWN_AS_STORED);
    }
    let mut anatomy = Anatomy::of(path, &table, args.blocks)?;
    if let Some((section, fault)) = fault {
        anatomy.hides_filter = Some(section);
        if !anatomy.other_faults.contains(&fault) {
            anatomy.other_faults.insert(0, fault);
        }
    }
    print(|mut out| {
        if args.json {
            return writeln!(out, "{}", anatomy.to_json(args));
        }
        title(&mut out)?;
        anatomy.draw(args, &mut out)
    })?;
    for fault in anatomy.all_faults() {
        complain("unreadable", fault);
    }
    Ok(if anatomy.all_faults().next().is_none() {
        Answer::Yes
    } else {
        Answer::No
    })
}

/// Returns whether a walk over the entries comes upon keys that are not in the order that was assumed. In a large table
/// they show only when their block is read.
fn shows_another_order(table: &Table) -> bool {
    let mut cursor = table.cursor();
    loop {
        match cursor.next() {
            Ok(true) => {}
            Ok(false) => return false,
            Err(e) => return e.kind() == ErrorKind::Comparator,
        }
    }
}

/// Writes to standard output.
fn print(
    write: impl FnOnce(anstream::AutoStream<io::StdoutLock<'static>>) -> io::Result<()>,
) -> Result<(), Failure> {
    write(anstream::stdout().lock())
        .and_then(|()| io::stdout().flush())
        .map_err(Failure::output)
}

/// Opens the table with its filter; if that, the metaindex, which leads to it, or the properties are damaged, without. Then returns the
/// damage, too.
fn open_with_filter(
    path: &Path,
    keys: Keys,
) -> Result<(AnyTable, Option<(Section, String)>), Failure> {
    check_is_file(path)?;
    match open_with(path, keys, &OpenOptions::new()) {
        Ok(table) => Ok((table, None)),
        Err(e) => {
            let section = e.corruption().map(Corruption::section);
            match section {
                Some(section @ (Section::Filter | Section::Metaindex | Section::Properties)) => {
                    Ok((open(path, keys)?, Some((section, e.to_string()))))
                }
                _ => Err(refused(e, path)),
            }
        }
    }
}

/// The fields of the record of a file. All are there in each record.
const FIELDS: [&str; 21] = [
    "file_bytes",
    "keys",
    "order_known",
    "comparator",
    "entries",
    "key_bytes",
    "value_bytes",
    "first_key",
    "last_key",
    "data_blocks",
    "data_stored_bytes",
    "data_bytes",
    "codecs",
    "sections",
    "filter",
    "prefix_filter",
    "unused_filters",
    "unreadable",
    "shards",
    "error",
    "blocks",
];

impl Args {
    /// The fields of the record of a file: the last only with --blocks.
    fn fields(&self) -> &'static [&'static str] {
        match FIELDS.split_last() {
            Some((_, others)) if !self.blocks => others,
            _ => &FIELDS,
        }
    }
}

/// Size of a table's footer.
const FOOTER_BYTES: u64 = 48;

/// Everything that is shown of a table.
struct Anatomy<'a> {
    path: &'a Path,
    table: &'a Table,
    is_database: bool,
    order_is_known: bool,
    /// `None` if the metaindex is damaged.
    layout: Option<Layout>,
    summary: Summary,
    filter_rate: Option<FilterRate>,
    /// By the codec's name.
    codecs: BTreeMap<&'static str, CodecUse>,
    /// Uncompressed size of the data blocks.
    bytes: u64,
    /// Where the last readable data block ends.
    data_end: u64,
    /// Bytes between data blocks that keep the next one within its pages.
    padding: u64,
    key_range: Option<(Bytes, Bytes)>,
    /// The readable data blocks, if they are to be listed.
    blocks: Vec<BlockInfo>,
    /// An error for each unreadable data block.
    faults: Vec<String>,
    /// Errors of filter, metaindex and properties.
    other_faults: Vec<String>,
    /// The damaged section for which the table was opened without filters.
    hides_filter: Option<Section>,
}

/// The blocks that use one codec.
#[derive(Default)]
struct CodecUse {
    blocks: u64,
    stored_bytes: u64,
    bytes: u64,
}

/// A stretch of the file.
struct Part {
    name: String,
    offset: u64,
    bytes: u64,
    what: String,
}

impl Anatomy<'_> {
    fn of<'a>(
        path: &'a Path,
        table: &'a AnyTable,
        keep_blocks: bool,
    ) -> Result<Anatomy<'a>, Failure> {
        let (is_database, order_is_known) = (table.is_database(), table.order_is_known);
        let table = table.table();
        let (layout, other_faults) = match table.layout() {
            Ok(layout) => (Some(layout), vec![]),
            Err(e) if e.corruption().is_some() => (None, vec![e.to_string()]),
            Err(e) => return Err(e.into()),
        };
        let mut progress = Progress::bytes(Some(table.file_bytes()));
        let mut walk = table.blocks();
        let mut anatomy = Anatomy {
            path,
            table,
            is_database,
            order_is_known,
            layout,
            other_faults,
            summary: Summary::default(),
            filter_rate: None,
            codecs: BTreeMap::new(),
            bytes: 0,
            data_end: 0,
            padding: 0,
            key_range: None,
            blocks: Vec::new(),
            faults: Vec::new(),
            hides_filter: None,
        };
        for block in &mut walk {
            match block {
                Ok(block) => {
                    progress.set(block.offset);
                    anatomy.add(block, keep_blocks);
                }
                Err(e) => anatomy.faults.push(e.to_string()),
            }
        }
        anatomy.summary = walk.totals();
        anatomy.filter_rate = walk.filter_rate();
        Ok(anatomy)
    }

    /// Returns the name of the comparator, if the table says it.
    fn comparator(&self) -> Option<&str> {
        let properties = self.table.properties();
        properties.map(|properties| &properties.comparator[..])
    }

    fn all_faults(&self) -> impl Iterator<Item = &String> {
        self.faults.iter().chain(&self.other_faults)
    }

    fn add(&mut self, mut block: BlockInfo, keep: bool) {
        let codec = self.codecs.entry(block.codec).or_default();
        codec.blocks += 1;
        codec.stored_bytes += block.stored_bytes;
        codec.bytes += block.bytes;
        self.bytes += block.bytes;
        self.padding += padding(self.data_end, &block);
        self.data_end = self.data_end.max(block.offset + block.stored_bytes);
        if let Some((first, last)) = &block.key_range {
            match &mut self.key_range {
                Some((_, so_far)) => *so_far = last.clone(),
                none => *none = Some((first.clone(), last.clone())),
            }
        }
        if keep {
            // The list shows only first keys.
            if let Some((_, last)) = &mut block.key_range {
                *last = Bytes::new();
            }
            self.blocks.push(block);
        }
    }

    /// Returns the parts of the file in order, without gaps.
    fn parts(&self) -> Vec<Part> {
        let Some(Layout {
            metaindex,
            index,
            named,
            footer_offset,
            ..
        }) = &self.layout
        else {
            return self.parts_without_layout();
        };
        let part = |name: &str, offset, bytes, what| Part {
            name: name.to_owned(),
            offset,
            bytes,
            what,
        };
        let mut parts: Vec<Part> = named
            .iter()
            .map(|block| {
                let name = String::from_utf8_lossy(&block.name);
                let (name, what) = match name.strip_prefix("filter.") {
                    Some(policy) => ("filter", shown(policy)),
                    None if name == "about.leveltable" => ("properties", String::new()),
                    None => match name.strip_prefix("about.prefixes.") {
                        Some(extractor) => ("prefixes", shown(extractor)),
                        None => ("other", shown(&name)),
                    },
                };
                part(name, block.offset, block.stored_bytes, what)
            })
            .collect();
        for (name, block) in [("metaindex", metaindex), ("index", index)] {
            let mut what = entries(block.entries);
            if block.codec != "none" {
                what += &format!(", {}", block.codec);
            }
            parts.push(part(name, block.offset, block.stored_bytes, what));
        }
        let footer_bytes = self.table.file_bytes() - footer_offset;
        parts.push(part("footer", *footer_offset, footer_bytes, String::new()));
        parts.sort_by_key(|part| part.offset);

        // The data blocks come before all other parts.
        let data_bytes = parts.first().map_or(0, |first| first.offset);
        let mut what = count(self.table.data_blocks() as u64, "block");
        let between = data_bytes.saturating_sub(self.summary.data_bytes);
        let unused = between.saturating_sub(self.padding);
        for (bytes, name) in [(self.padding, "of padding"), (unused, "unused")] {
            if bytes > 0 && self.faults.is_empty() {
                what += &format!(", {bytes} bytes {name}");
            }
        }
        let mut tiles = vec![part("data", 0, data_bytes, what)];
        for part in parts {
            let end = tiles.last().map_or(0, |last| last.offset + last.bytes);
            if let gap @ 1.. = part.offset.saturating_sub(end) {
                tiles.push(Part {
                    name: "unused".into(),
                    offset: end,
                    bytes: gap,
                    what: String::new(),
                });
            }
            tiles.push(part);
        }
        tiles
    }

    /// Returns what is known of the parts if the metaindex is damaged.
    fn parts_without_layout(&self) -> Vec<Part> {
        let blocks = count(self.table.data_blocks() as u64, "block");
        let end = self.data_end;
        let part = |name: &str, offset, bytes, what| Part {
            name: name.to_owned(),
            offset,
            bytes,
            what,
        };
        let footer = self.table.file_bytes().saturating_sub(FOOTER_BYTES);
        let what = "metaindex (damaged), index and, if there is one, filter".to_owned();
        vec![
            part("data", 0, end, blocks),
            part("other", end, footer.saturating_sub(end), what),
            part("footer", footer, FOOTER_BYTES, String::new()),
        ]
    }

    fn draw(&self, args: &Args, out: &mut impl Write) -> io::Result<()> {
        let Summary {
            entries: n,
            key_bytes,
            value_bytes,
            ..
        } = self.summary;
        let kind = if self.is_database {
            "a table of a LevelDB database"
        } else {
            "a LevelDB table"
        };
        let order = match self.comparator() {
            _ if self.order_is_known => String::new(),
            Some(name) => format!(" ordered by {}", shown(name)),
            None => " in an order of its own".to_owned(),
        };
        let file_bytes = self.table.file_bytes();
        let readable = if self.faults.is_empty() {
            ""
        } else {
            " that can be read"
        };
        writeln!(
            out,
            "{kind}{order}, {}, {}{readable}\n",
            size(file_bytes),
            entries(n)
        )?;

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

        writeln!(
            out,
            "\nkeys    {key_bytes} bytes, values {value_bytes} bytes"
        )?;
        if let Some((first, last)) = &self.key_range {
            writeln!(out, "        {}", self.key(first))?;
            writeln!(out, "     .. {}", self.key(last))?;
        }
        self.draw_codecs(out)?;
        self.draw_filter(args, out)?;
        if let Some(prefixes) = self.table.prefix_filter() {
            let PrefixFilterInfo {
                extractor, bytes, ..
            } = prefixes;
            writeln!(out, "filter  of prefixes, {}", shown(&extractor))?;
            writeln!(out, "        {bytes} bytes")?;
        }
        if args.blocks {
            self.draw_blocks(out)?;
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
        for (name, codec) in &self.codecs {
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

    fn draw_filter(&self, args: &Args, out: &mut impl Write) -> io::Result<()> {
        let Some(filter) = &self.summary.filter else {
            if self.layout.is_none() {
                let what = "unknown: the metaindex, which leads to it, is damaged";
                return writeln!(out, "filter  {what}");
            }
            if self
                .table
                .filters()
                .iter()
                .all(|filter| filter.unused.is_none())
            {
                return writeln!(out, "filter  none");
            }
            return self.draw_unused_filters(args, out);
        };
        let span = if filter.whole_table {
            "one for the whole table".to_owned()
        } else {
            count(filter.filters as u64, "filter")
        };
        writeln!(out, "filter  {}, {span}", shown(&filter.policy))?;
        write!(out, "        {} bytes", filter.bytes)?;
        // Unreadable blocks make the number of keys unknown.
        if self.faults.is_empty() {
            let bits = filter.bits_per_key(self.summary.entries);
            write!(out, ", {bits:.2} bits a key")?;
        }
        writeln!(out)?;
        match self.filter_rate {
            Some(rate) => writeln!(
                out,
                "        lets {:.2} % of absent keys pass, of {} tried",
                rate.false_positive_rate() * 100.0,
                rate.sampled_keys
            ),
            None => Ok(()),
        }?;
        self.draw_unused_filters(args, out)
    }

    fn draw_unused_filters(&self, args: &Args, out: &mut impl Write) -> io::Result<()> {
        for (filter, why) in self.unused_filters(args) {
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

    /// Returns the filters that the table was opened without, and why.
    fn unused_filters(&self, args: &Args) -> Vec<(&FoundFilter, String)> {
        // Opens the table again.
        let holds_user_keys = LazyCell::new(|| args.keys.keys.leave_filter_unused(self.path));
        let why = |unused| match unused {
            // For one of these reasons it was not asked for.
            Unused::TurnedOff if self.hides_filter == Some(Section::Properties) => {
                "the properties are damaged".to_owned()
            }
            Unused::TurnedOff if self.hides_filter.is_some() => Unused::Damaged.to_string(),
            Unused::TurnedOff if *holds_user_keys => Unused::UserKeys.to_string(),
            Unused::TurnedOff => "the order of the keys is unknown".to_owned(),
            _ => unused.to_string(),
        };
        let filters = self.table.filters().iter();
        filters
            .filter_map(|filter| Some((filter, why(filter.unused?))))
            .collect()
    }

    fn draw_blocks(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\n{BOLD}{:>12} {:>9} {:>9}  {:<7} {:>7}  first key{BOLD:#}",
            "offset", "bytes", "unpacked", "codec", "entries"
        )?;
        for block in &self.blocks {
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

    fn to_json(&self, args: &Args) -> Value {
        let Summary {
            entries,
            key_bytes,
            value_bytes,
            data_blocks,
            data_bytes,
            file_bytes,
            ..
        } = self.summary;
        let codecs: Map<String, Value> = self
            .codecs
            .iter()
            .map(|(&name, codec)| {
                let CodecUse {
                    blocks,
                    stored_bytes,
                    bytes,
                } = codec;
                let codec = json!({"blocks": blocks, "stored_bytes": stored_bytes, "bytes": bytes});
                (name.to_owned(), codec)
            })
            .collect();
        let sections: Vec<Value> = self
            .parts()
            .into_iter()
            .map(|part| {
                let Part {
                    name,
                    offset,
                    bytes,
                    ..
                } = part;
                json!({"section": name, "offset": offset, "stored_bytes": bytes})
            })
            .collect();
        let filter = self.summary.filter.as_ref().map(|filter| {
            json!({
                "policy": filter.policy,
                "bytes": filter.bytes,
                "filters": filter.filters,
                "whole_table": filter.whole_table,
                "bits_per_key": filter.bits_per_key(entries),
                "false_positive_rate": self.filter_rate.map(|rate| rate.false_positive_rate()),
                "sampled_keys": self.filter_rate.map_or(0, |rate| rate.sampled_keys),
            })
        });
        let unused_filters = self.unused_filters(args).into_iter();
        let unused_filters = unused_filters.map(|(filter, why)| match &filter.prefixes {
            None => json!({"policy": filter.policy, "bytes": filter.bytes, "why": why}),
            Some(extractor) => json!({"extractor": extractor, "bytes": filter.bytes, "why": why}),
        });
        let (first, last) = self.key_range.clone().unzip();
        let mut json = json!({
            "file_bytes": file_bytes,
            "keys": if self.is_database { "database" } else { "plain" },
            "order_known": self.order_is_known,
            "comparator": self.comparator(),
            "entries": entries,
            "key_bytes": key_bytes,
            "value_bytes": value_bytes,
            "first_key": first.map(|key| self.key_to_json(&key)),
            "last_key": last.map(|key| self.key_to_json(&key)),
            "data_blocks": data_blocks,
            "data_stored_bytes": data_bytes,
            "data_bytes": self.bytes,
            "codecs": codecs,
            "sections": sections,
            "filter": filter,
            "prefix_filter": self.table.prefix_filter().map(|prefixes| {
                json!({"extractor": prefixes.extractor, "bytes": prefixes.bytes})
            }),
            "unused_filters": unused_filters.collect::<Vec<_>>(),
            "unreadable": self.all_faults().collect::<Vec<_>>(),
        });
        if let (true, Some(object)) = (args.blocks, json.as_object_mut()) {
            let blocks = self.blocks.iter().map(|block| self.block_to_json(block));
            object.insert("blocks".into(), blocks.collect());
        }
        file_record(self.path, args.fields(), json)
    }

    fn block_to_json(&self, block: &BlockInfo) -> Value {
        let first = block.key_range.as_ref().map(|(first, _)| first);
        json!({
            "offset": block.offset,
            "stored_bytes": block.stored_bytes,
            "bytes": block.bytes,
            "codec": block.codec,
            "entries": block.entries,
            "first_key": first.map(|key| self.key_to_json(key)),
        })
    }

    /// Returns a key with the fields that `scan --json` prints.
    fn key_to_json(&self, key: &[u8]) -> Value {
        let parsed = InternalKey::parse(key).filter(|_| self.is_database);
        let user_key = parsed.map_or(key, |parsed| parsed.user_key);
        let mut json = key_json(user_key);
        if let (Some(parsed), Some(object)) = (parsed, json.as_object_mut()) {
            object.insert("sequence".into(), parsed.sequence.into());
            object.insert("type".into(), type_name(parsed.value_type).into());
        }
        json
    }
}

/// Returns a key without sequence number with the field that `scan --json` prints.
pub(crate) fn key_json(key: &[u8]) -> Value {
    match std::str::from_utf8(key) {
        Ok(text) => json!({"key": text}),
        Err(_) => {
            let hex: String = key.iter().map(|b| format!("{b:02x}")).collect();
            json!({"key_hex": hex})
        }
    }
}

/// Returns how many bytes between `end`, where the block before ends, and `block` are the padding of an aligned table. Only
/// `verify` checks that they are zeros.
fn padding(end: u64, block: &BlockInfo) -> u64 {
    const PAGE: u64 = 4096;
    let gap = block.offset.saturating_sub(end);
    let pages = |at: u64| (at % PAGE + block.stored_bytes).div_ceil(PAGE);
    let is_padding =
        gap < PAGE && block.offset.is_multiple_of(PAGE) && pages(end) > pages(block.offset);
    if is_padding { gap } else { 0 }
}

/// Returns a name that the file holds: as it is if it is graphic ASCII, else quoted and escaped, since it goes to a
/// terminal.
fn shown(name: &str) -> String {
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
