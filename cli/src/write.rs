//! Options for writing a table that several commands share, and the checks of its path.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use leveltable::filter::{DelimitedPrefix, FixedPrefix};
use leveltable::sister_crates::{BuiltIn, POLICIES, filter_with};
use leveltable::{Compression, Summary, WriteOptions};

use crate::failure::Failure;
use crate::interrupt;
use crate::output::{count, note, report};
use crate::path::is_url;
use crate::place::check_url;
use crate::remote::{self, file_at};
use crate::sort::{Add, KeyOrder};

/// Options for writing a table.
#[derive(Args)]
#[command(next_help_heading = "Table")]
pub(crate) struct TableOptions {
    /// Compression of the blocks [default: snappy; for salvage: that of the damaged table]
    #[arg(long, value_parser = codecs())]
    codec: Option<Compression>,
    /// Compression level, if the codec has levels
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    level: Option<i32>,
    /// Size of a block before compression [default: 4K; for salvage: those of the damaged table]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    block_size: Option<usize>,
    /// Let no block touch more pages of 4 KiB than necessary: a lookup then reads one page of an uncompressed table, not
    /// two
    #[arg(long)]
    block_align: bool,
    /// Number of keys between restarts, at which a key is stored whole
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    restart_interval: u32,
    /// Filter [default: ribbon; in a table of a database: bloom; for salvage: that of the damaged table]
    #[arg(long, value_parser = filters())]
    filter: Option<Filter>,
    /// Size of the filter, in bits per key; 5 to 33 for ribbon [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    bits_per_key: Option<u32>,
    /// Add a filter of the first N bytes of keys: a scan of such a prefix, or a longer one, reads nothing if no key has
    /// it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    prefix_length: Option<u32>,
    /// Add a filter of the parts of keys up to the first CHARACTER, which may also be \t or \0, like --prefix-length
    #[arg(long, value_name = "CHARACTER", value_parser = parse_character, conflicts_with = "prefix_length")]
    prefix_delimiter: Option<u8>,
    /// Write no properties block, which describes the table; LevelDB writes none and ignores it
    #[arg(long)]
    no_properties: bool,
}

/// Parses the name of a built-in codec.
pub(crate) fn codecs() -> impl TypedValueParser<Value = Compression> {
    let named = |codec: &Compression| {
        let levels = codec.level().map_or_else(String::new, |(default, levels)| {
            let (least, most) = levels.into_inner();
            format!("; levels {least} to {most} [default: {default}]")
        });
        PossibleValue::new(codec.name()).help(format!("{}{levels}", codec.about()))
    };
    let names = PossibleValuesParser::new(Compression::all().iter().map(named));
    names.try_map(|name| name.parse::<Compression>())
}

/// A built-in filter policy, or none.
#[derive(Clone, Copy)]
struct Filter(Option<&'static BuiltIn>);

impl Filter {
    fn named(name: &str) -> Filter {
        Filter(POLICIES.iter().find(|policy| policy.option == Some(name)))
    }
}

/// Parses the name of a built-in filter policy.
fn filters() -> impl TypedValueParser<Value = Filter> {
    let named = |policy: &BuiltIn| Some(PossibleValue::new(policy.option?).help(policy.about));
    let none = PossibleValue::new("none").help("No filter");
    let names = POLICIES.iter().filter_map(named).chain([none]);
    PossibleValuesParser::new(names).map(|name| Filter::named(&name))
}

impl TableOptions {
    /// Returns the library's options for a table in this order. It leaves unset what no option sets: salvage then follows the
    /// damaged table.
    pub(crate) fn write(&self, order: KeyOrder) -> Result<WriteOptions, Failure> {
        // LevelDB's databases use this policy in their tables.
        let options = if order.is_database() {
            WriteOptions::leveldb()
        } else {
            WriteOptions::new()
        };
        let options = options
            .block_align(self.block_align)
            .restart_interval(self.restart_interval as usize)
            .properties(!self.no_properties)
            .comparator(order.comparator());
        let options = match self.block_size {
            Some(block_size) => options.block_size(block_size),
            None => options,
        };
        let options = match (self.codec, self.level) {
            (None, None) => options,
            (codec, level) => options.compression(compression(codec.unwrap_or_default(), level)?),
        };
        let options = match (self.prefix_length, self.prefix_delimiter) {
            (Some(len), _) => options.prefix_filter(FixedPrefix::new(len as usize)),
            (_, Some(delimiter)) => options.prefix_filter(DelimitedPrefix::new(delimiter)),
            _ => options,
        };
        let default = if order.is_database() {
            "bloom"
        } else {
            "ribbon"
        };
        let default = self.bits_per_key.map(|_| Filter::named(default));
        match self.filter.or(default) {
            None => Ok(options),
            Some(Filter(Some(policy))) => {
                let bits_per_key = f64::from(self.bits_per_key.unwrap_or(10));
                Ok(filter_with(options, policy, bits_per_key))
            }
            Some(Filter(None)) if self.bits_per_key.is_none() => Ok(options.no_filter()),
            Some(Filter(None)) => {
                let what = "--bits-per-key needs a filter";
                Err(Failure::new(what))
            }
        }
    }
}

/// Returns the codec at this level, which must be valid.
pub(crate) fn compression(codec: Compression, level: Option<i32>) -> Result<Compression, Failure> {
    let at_level = level.map_or(Ok(codec), |level| codec.at_level(level));
    at_level.map_err(|what| Failure::new(format!("--level: {what}")))
}

/// Fails if no table can be written to `out`: to standard output if that is a terminal, or to a file that exists, unless it is a
/// regular one and `force` allows replacing it. Whether an object exists is checked when it is about to appear.
pub(crate) fn check_out(out: &Path, force: bool) -> Result<(), Failure> {
    if is_stdout(out) && io::stdout().is_terminal() {
        return Err(Failure::new(
            "standard output is a terminal and a table is binary: redirect it to a file",
        ));
    }
    check_url(out)?;
    let Some(path) = file_at(out).filter(|_| !is_stdout(out)) else {
        return Ok(());
    };
    let fail = |what: &str| Err(Failure::of(out, what));
    match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                fail("its directory does not exist")
            }
            _ => Ok(()),
        },
        Err(e) => fail(&e.to_string()),
        // Renaming would replace the link and leave its target unchanged.
        Ok(metadata) if metadata.is_symlink() => {
            fail("is a symbolic link: name its target, or another file")
        }
        Ok(metadata) if metadata.is_dir() => {
            fail("not a regular file but a directory: name a file for the table")
        }
        // Renaming would replace a device, for example, with a file.
        Ok(metadata) if !metadata.is_file() => {
            fail("not a regular file, so a table cannot replace it")
        }
        Ok(_) if force => Ok(()),
        Ok(_) => Err(Failure::taken(out)),
    }
}

/// Writes a table with the entries that `fill` adds to `out`: a file, which appears when it is complete, an object, or standard
/// output for `-`. Returns the summary, and prints it on a terminal.
pub(crate) fn write_table(
    out: &Path,
    force: bool,
    options: &WriteOptions,
    fill: impl FnOnce(&mut Add<'_>) -> Result<(), Failure>,
) -> Result<Summary, Failure> {
    let summary = if is_stdout(out) {
        let named = |e: leveltable::Error| e.at_path(Path::new("standard output"));
        let mut builder = options.clone().build(io::stdout().lock());
        fill(&mut |key, value| builder.add(key, value).map_err(named))?;
        builder.finish().map_err(named)?
    } else if is_url(out) {
        remote::write(options, out, force, fill)?
    } else {
        let options = options.clone().replace_existing(force);
        let mut builder = interrupt::create(&options, out)?;
        fill(&mut |key, value| builder.add(key, value))?;
        builder.finish()?
    };
    let (entries, blocks) = (summary.properties.entries, summary.properties.data_blocks);
    let (entries, blocks) = (count(entries, "entry"), count(blocks, "data block"));
    report(
        out,
        format!("{entries} in {blocks}, {} bytes", summary.file_bytes),
    );
    Ok(summary)
}

/// Reports temporary directories of databases beside a new one.
pub(crate) fn report_leftovers(leftovers: &[PathBuf]) {
    for path in leftovers {
        let what = "left by a build that was killed, unless one is at work: it can be deleted";
        note(path, what);
    }
}

pub(crate) fn is_stdout(out: &Path) -> bool {
    out.as_os_str() == "-"
}

/// Parses a character of one byte. Two others can be written as escapes.
pub(crate) fn parse_character(written: &str) -> Result<u8, String> {
    match written.as_bytes() {
        [b'\\', b't'] => Ok(b'\t'),
        [b'\\', b'0'] => Ok(0),
        [byte] => Ok(*byte),
        _ => Err(r"expected one character, such as / or : or \t or \0".into()),
    }
}

/// Parses a number of bytes, with an optional K, M or G for multiples of 1024.
pub(crate) fn parse_size(written: &str) -> Result<usize, String> {
    let number = written.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match written.strip_prefix(number) {
        Some("" | "B") => Some(0),
        Some("K" | "k" | "KiB") => Some(10),
        Some("M" | "m" | "MiB") => Some(20),
        Some("G" | "g" | "GiB") => Some(30),
        _ => None,
    };
    let bytes = number.parse::<usize>().ok().zip(shift);
    bytes
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "expected a number of bytes above 0, such as 4096, 64K or 1M".into())
}
