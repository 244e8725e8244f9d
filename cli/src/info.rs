//! `leveltable info`: describes the parts of a table's file.

mod json;
mod text;

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::{
    Corruption, ErrorKind, OpenOptions, Section, Summary, Table,
    filter::{FilterEntry, FilterInfo, FilterLayout, FilterSkipReason},
    inspect::{BlockInfo, FilterRate, Layout},
};
use serde_json::{Value, json};

use crate::Answer;
use crate::database::{info::DatabaseInfo, note_part};
use crate::failure::Failure;
use crate::files::{each_file, expand};
use crate::open::{
    AnyTable, Keys, KeysArg, Opened, Order, SHOWN_AS_STORED, note_unknown_order, open_any,
    open_in_stored_order, open_with,
};
use crate::output::{BOLD, complain, file_record};
use crate::place::{copy_if_remote, is_url};
use crate::progress::Progress;
use crate::set;
pub(crate) use json::key_json;
pub(crate) use text::{shown, size};

/// Show the sections, keys and filter of tables.
///
/// Of a directory with CURRENT, which is a database, shows the order, the logs and the files: live, missing, obsolete, or not listed.
///
/// Reads the metadata of a table; for the first and the last key also their blocks, if the properties do not state them. With --full, reads the whole file twice, the first time to check the order
/// of the keys: counts entries, measures codecs and how many absent keys the filter lets pass, and lists blocks that cannot be
/// read. Exits with status 1 if something that was read is damaged.
///
/// If the keys are neither in byte order nor in that of a database, shows everything but the filter.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/info.txt").trim_end())]
pub(crate) struct Args {
    /// Tables' files or URLs, databases, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of a database, describe the tables one by one
    #[arg(long = "files")]
    apart: bool,
    #[command(flatten)]
    keys: KeysArg,
    /// Read all data blocks, to measure entries, codecs and filter
    #[arg(long)]
    full: bool,
    /// Also list the data blocks; implies --full
    #[arg(long)]
    blocks: bool,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let mut is_first = true;
    each_file(&expand(&args.files, args.apart)?, |path| {
        let described = describe(path, args, is_first);
        is_first = false;
        if let (true, Err(failure @ Failure::Message(_))) = (args.json, &described) {
            let record = json!({ "error": failure.to_string() });
            print(|mut out| writeln!(out, "{}", file_record(path, args.fields(), record)))?;
        }
        described
    })
}

fn describe(path: &Path, args: &Args, is_first: bool) -> Result<Answer, Failure> {
    let show = |to_json: &dyn Fn() -> Value, draw: &dyn Fn(&mut Out) -> io::Result<()>| {
        print(|mut out| {
            if args.json {
                return writeln!(out, "{}", to_json());
            }
            let gap = if is_first { "" } else { "\n" };
            writeln!(out, "{gap}{BOLD}{}{BOLD:#}", path.display())?;
            draw(&mut out)
        })
    };
    let (mut fault, keys) = (None, args.keys.keys);
    if !args.apart {
        note_part(path);
    }
    let opened = open_any(path, false, || open_with_filter(path, keys, &mut fault))?;
    let mut table = match opened {
        Opened::Table(table) => table,
        Opened::Database(db) => {
            let db = DatabaseInfo::of(&db)?;
            show(&|| db.to_json(args.fields()), &|out| db.draw(out))?;
            return Ok(Answer::Yes);
        }
        Opened::Set(set) => {
            let shards = set.shards();
            let json = || set::to_json(path, &shards, args.fields());
            show(&json, &|out| set::draw(&shards, args.blocks, out))?;
            return Ok(Answer::Yes);
        }
    };
    if args.is_full() && is_url(path) {
        copy_if_remote(path)?;
        table = open_with_filter(path, keys, &mut fault)?;
    }
    if table.order != Order::Unknown && shows_another_order(table.table(), args.is_full()) {
        table = open_in_stored_order(path, table.is_database())?;
    }
    if table.order == Order::Unknown {
        note_unknown_order(path, keys, SHOWN_AS_STORED);
    }
    let mut anatomy = Anatomy::of(path, &table, args)?;
    if let Some((section, fault)) = fault {
        anatomy.hides_filter = Some(section);
        if !anatomy.other_faults.contains(&fault) {
            anatomy.other_faults.insert(0, fault);
        }
    }
    show(&|| anatomy.to_json(), &|out| anatomy.draw(out))?;
    for fault in anatomy.all_faults() {
        complain("unreadable", fault);
    }
    Ok(if anatomy.all_faults().next().is_none() {
        Answer::Yes
    } else {
        Answer::No
    })
}

type Out = anstream::AutoStream<io::StdoutLock<'static>>;

/// Writes to standard output.
fn print(write: impl FnOnce(Out) -> io::Result<()>) -> Result<(), Failure> {
    write(anstream::stdout().lock())
        .and_then(|()| io::stdout().flush())
        .map_err(Failure::output)
}

/// Opens the table with its filter; if that, the metaindex, which leads to it, or the properties are damaged, without. Then `fault`
/// is the damage.
fn open_with_filter(
    path: &Path,
    keys: Keys,
    fault: &mut Option<(Section, String)>,
) -> leveltable::Result<AnyTable> {
    open_with(path, keys, OpenOptions::new(), false).or_else(|e| {
        match e.corruption().map(Corruption::section) {
            Some(section @ (Section::Filter | Section::Metaindex | Section::Properties)) => {
                *fault = Some((section, e.to_string()));
                open_with(path, keys, OpenOptions::new().no_filter(), false)
            }
            _ => Err(e),
        }
    })
}

/// Returns whether the keys of all blocks, or of the first and the last, are in another order than the one that was assumed. In a
/// large table that shows only when a block is read.
fn shows_another_order(table: &Table, all: bool) -> bool {
    if !all && table.properties().is_some() {
        return false;
    }
    let mut cursor = table.cursor();
    let mut moved = cursor.seek_to_first();
    while all && matches!(moved, Ok(true)) {
        moved = cursor.next();
    }
    let moved = moved.and_then(|_| cursor.seek_to_last());
    moved.is_err_and(|e| e.kind() == ErrorKind::Comparator)
}

/// The fields of the record of a file. All are there in each record.
const FIELDS: [&str; 26] = [
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
    "last_sequence",
    "tables",
    "files",
    "logs",
    "left_out",
    "error",
    "blocks",
];

impl Args {
    fn is_full(&self) -> bool {
        self.full || self.blocks
    }

    /// The fields of the record of a file: the last only with --blocks.
    fn fields(&self) -> &'static [&'static str] {
        match FIELDS.split_last() {
            Some((_, others)) if !self.blocks => others,
            _ => &FIELDS,
        }
    }
}

/// Everything that is shown of a table.
struct Anatomy<'a> {
    path: &'a Path,
    args: &'a Args,
    table: &'a Table,
    is_database: bool,
    order: Order,
    /// `None` if the metaindex is damaged.
    layout: Option<Layout>,
    filter: Option<FilterInfo>,
    /// Numbers that the properties state, or that were counted.
    entries: Option<u64>,
    key_bytes: Option<u64>,
    value_bytes: Option<u64>,
    data_stored_bytes: Option<u64>,
    /// The first key and the last that can be read.
    key_range: Option<(Bytes, Bytes)>,
    /// `None` if the data blocks were not read.
    measured: Option<Measured>,
    /// An error for each data block that was not readable.
    faults: Vec<String>,
    /// Errors of filter, metaindex and properties.
    other_faults: Vec<String>,
    /// The damaged section for which the table was opened without filters.
    hides_filter: Option<Section>,
}

/// What only reading all data blocks tells.
#[derive(Default)]
struct Measured {
    filter_rate: Option<FilterRate>,
    filter_layout: Option<FilterLayout>,
    /// By the codec's name.
    codecs: BTreeMap<&'static str, CodecUse>,
    /// Uncompressed size of the data blocks.
    bytes: u64,
    /// Where the last readable data block ends.
    data_end: u64,
    /// Bytes between data blocks that keep the next one within its pages.
    padding: u64,
    /// The readable data blocks, if they are to be listed.
    blocks: Vec<BlockInfo>,
}

/// The blocks that use one codec.
#[derive(Default)]
struct CodecUse {
    blocks: u64,
    stored_bytes: u64,
    bytes: u64,
}

impl Anatomy<'_> {
    fn of<'a>(
        path: &'a Path,
        opened: &'a AnyTable,
        args: &'a Args,
    ) -> Result<Anatomy<'a>, Failure> {
        let table = opened.table();
        let (layout, other_faults) = match table.layout() {
            Ok(layout) => (Some(layout), vec![]),
            Err(e) if e.corruption().is_some() => (None, vec![e.to_string()]),
            Err(e) => return Err(e.into()),
        };
        let stated = table.properties();
        let mut anatomy = Anatomy {
            path,
            args,
            table,
            is_database: opened.is_database(),
            order: opened.order,
            layout,
            filter: table.filter(),
            entries: { stated.map(|stated| stated.entries) }
                .or((table.data_blocks() == 0).then_some(0)),
            key_bytes: stated.map(|stated| stated.key_bytes),
            value_bytes: stated.map(|stated| stated.value_bytes),
            data_stored_bytes: stated.map(|stated| stated.data_bytes),
            key_range: None,
            measured: None,
            faults: Vec::new(),
            other_faults,
            hides_filter: None,
        };
        if args.is_full() {
            anatomy.measure();
        } else {
            match ends(table) {
                Ok(ends) => anatomy.key_range = ends,
                Err(e) => anatomy.faults.push(e.to_string()),
            }
        }
        Ok(anatomy)
    }

    /// Reads all data blocks.
    fn measure(&mut self) {
        let mut measured = Measured::default();
        let mut progress = Progress::bytes(Some(self.table.file_bytes()));
        let mut walk = self.table.blocks();
        for block in &mut walk {
            match block {
                Ok(block) => {
                    progress.set(block.offset);
                    if let Some((first, last)) = &block.key_range {
                        let so_far = self.key_range.take();
                        let first = so_far.map_or_else(|| first.clone(), |(first, _)| first);
                        self.key_range = Some((first, last.clone()));
                    }
                    measured.add(block, self.args.blocks);
                }
                Err(e) => self.faults.push(e.to_string()),
            }
        }
        let totals: Summary = walk.totals();
        self.entries = Some(totals.entries);
        self.key_bytes = Some(totals.key_bytes);
        self.value_bytes = Some(totals.value_bytes);
        self.data_stored_bytes = Some(totals.data_bytes);
        match walk.filter_rate() {
            Ok(rate) => measured.filter_rate = rate,
            Err(e) => self.faults.push(e.to_string()),
        }
        measured.filter_layout = self.table.filter_layout().ok().flatten();
        self.measured = Some(measured);
        if self.order == Order::Assumed {
            self.order = Order::Certain;
        }
    }

    /// Returns the name of the comparator, if the table says it.
    fn comparator(&self) -> Option<&str> {
        let properties = self.table.properties();
        properties.map(|properties| &properties.comparator[..])
    }

    fn all_faults(&self) -> impl Iterator<Item = &String> {
        self.faults.iter().chain(&self.other_faults)
    }

    /// Returns the filters that the table was opened without, and why.
    fn unused_filters(&self) -> Vec<(&FilterEntry, String)> {
        // Opens the table again.
        let holds_user_keys = LazyCell::new(|| self.args.keys.keys.leave_filter_unused(self.path));
        let why = |unused| match unused {
            // For one of these reasons it was not asked for.
            FilterSkipReason::TurnedOff if self.hides_filter == Some(Section::Properties) => {
                "the properties are damaged".to_owned()
            }
            FilterSkipReason::TurnedOff if self.hides_filter.is_some() => {
                FilterSkipReason::Damaged.to_string()
            }
            FilterSkipReason::TurnedOff if *holds_user_keys => {
                FilterSkipReason::UserKeys.to_string()
            }
            FilterSkipReason::TurnedOff => "the order of the keys is unknown".to_owned(),
            _ => unused.to_string(),
        };
        let filters = self.table.filters().iter();
        filters
            .filter_map(|filter| Some((filter, why(filter.skipped?))))
            .collect()
    }
}

/// Returns the first key and the last: as the properties state them, or by reading blocks.
fn ends(table: &Table) -> leveltable::Result<Option<(Bytes, Bytes)>> {
    if let Some(stated) = table.properties()
        && let (Some(first), Some(last)) = (&stated.first_key, &stated.last_key)
    {
        return Ok(Some((first.clone().into(), last.clone().into())));
    }
    let ends = table.first()?.zip(table.last()?);
    Ok(ends.map(|((first, _), (last, _))| (first, last)))
}

impl Measured {
    fn add(&mut self, mut block: BlockInfo, keep: bool) {
        let codec = self.codecs.entry(block.codec).or_default();
        codec.blocks += 1;
        codec.stored_bytes += block.stored_bytes;
        codec.bytes += block.bytes;
        self.bytes += block.bytes;
        self.padding += padding(self.data_end, &block);
        self.data_end = self.data_end.max(block.offset + block.stored_bytes);
        if keep {
            // The list shows only first keys.
            if let Some((_, last)) = &mut block.key_range {
                *last = Bytes::new();
            }
            self.blocks.push(block);
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
