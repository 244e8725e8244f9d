//! How tables are written: the options that commands share, and where the table may go.

use std::error::Error as _;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use clap::{Args, ValueEnum};
use leveltable::{BloomFilterPolicy, Compression, RibbonFilterPolicy, Summary, WriteOptions};

use crate::failure::Failure;
use crate::sort::KeyOrder;

/// How a table is to be written.
#[derive(Args)]
pub(crate) struct TableOptions {
    /// How blocks are compressed
    #[arg(long, value_enum, default_value_t = Codec::Snappy, help_heading = "Table")]
    codec: Codec,
    /// How hard the codec tries: zstd 1 to 22 [default: 1], zlib and deflate 0 to 9 [default: 6]
    #[arg(long, value_name = "N", help_heading = "Table")]
    level: Option<u8>,
    /// Size of a block before it is compressed
    #[arg(long, value_parser = parse_size, default_value = "4K", value_name = "SIZE", help_heading = "Table")]
    block_size: usize,
    /// Every how many keys one is stored whole
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Table")]
    restart_interval: u32,
    /// The filter [default: ribbon; in a database's table: bloom]
    #[arg(long, value_enum, help_heading = "Table")]
    filter: Option<Filter>,
    /// What the filter may cost [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100),
        help_heading = "Table")]
    bits_per_key: Option<u32>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Codec {
    /// Not at all
    None,
    /// LevelDB's default
    Snappy,
    /// Smaller; read by LevelDB since 2023
    Zstd,
    /// Read by Mojang's fork (Minecraft)
    Zlib,
    /// Read by Mojang's fork (Minecraft)
    Deflate,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// This tool's own, one for the whole table: an eighth of the wasted reads. LevelDB does without it
    Ribbon,
    /// LevelDB's
    Bloom,
    /// No filter
    None,
}

impl TableOptions {
    /// The library's options for a table in this order.
    pub(crate) fn write(&self, order: KeyOrder) -> Result<WriteOptions, Failure> {
        let options = WriteOptions::new()
            .block_size(self.block_size)
            .restart_interval(self.restart_interval as usize)
            .compression(compression(self.codec, self.level)?);
        let options = order.write(options);
        let default = match order {
            KeyOrder::Bytewise => Filter::Ribbon,
            // What the database looks for.
            KeyOrder::Internal => Filter::Bloom,
        };
        let bits_per_key = self.bits_per_key.unwrap_or(10);
        Ok(match self.filter.unwrap_or(default) {
            Filter::None if self.bits_per_key.is_some() => {
                return Err(Failure::new(
                    "--bits-per-key: without a filter no key has any; ribbon and bloom are filters",
                ));
            }
            Filter::None => options.no_filter(),
            Filter::Ribbon => options.filter_policy(RibbonFilterPolicy::new(bits_per_key)),
            // As LevelDB writes them, so that it makes the best of them.
            Filter::Bloom => options
                .filter_policy(BloomFilterPolicy::new(bits_per_key))
                .whole_table_filter(false),
        })
    }
}

fn compression(codec: Codec, level: Option<u8>) -> Result<Compression, Failure> {
    let level_within = |least: u8, most: u8, default: u8| match level.unwrap_or(default) {
        level if (least..=most).contains(&level) => Ok(level),
        level => Err(Failure::new(format!(
            "--level {level}: this codec has levels {least} to {most}"
        ))),
    };
    Ok(match codec {
        Codec::None | Codec::Snappy if level.is_some() => {
            return Err(Failure::new(
                "--level: this codec has no levels; zstd, zlib and deflate do",
            ));
        }
        Codec::None => Compression::None,
        Codec::Snappy => Compression::Snappy,
        Codec::Zstd => Compression::Zstd(level_within(1, 22, 1)?.into()),
        Codec::Zlib => Compression::Zlib(level_within(0, 9, 6)?.into()),
        Codec::Deflate => Compression::Deflate(level_within(0, 9, 6)?.into()),
    })
}

/// Refuses a path where something is, unless it is a file that may be replaced.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Failure> {
    let fail = |what: &str| Err(Failure::new(what).at(path.display()));
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                fail("the directory it is to be in does not exist")
            }
            _ => Ok(()),
        },
        Err(e) => fail(&e.to_string()),
        // The rename would put a file in place of the link, and leave alone what it leads to.
        Ok(metadata) if metadata.is_symlink() => {
            fail("a symbolic link: name the file that it leads to, or another")
        }
        // A device, say: the rename would put a file in its place.
        Ok(metadata) if !metadata.is_file() => fail("not a file, so a table cannot take its place"),
        Ok(_) if force => Ok(()),
        Ok(_) => Err(taken(path)),
    }
}

/// What came of a table that could not be written to `out`. The library names the path by itself.
pub(crate) fn not_written(error: leveltable::Error, out: &Path) -> Failure {
    let cause = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        // Whoever made it since `check_free` wants to keep it, too.
        Some(io::ErrorKind::AlreadyExists) => taken(out),
        _ => error.into(),
    }
}

fn taken(path: &Path) -> Failure {
    let what = "exists already: give --force to replace it, or name another";
    Failure::new(what).at(path.display())
}

/// Says on a terminal what was written.
pub(crate) fn report(out: &Path, summary: &Summary) {
    if !io::stderr().is_terminal() {
        return;
    }
    let Summary {
        entries,
        data_blocks,
        file_bytes,
        filter,
        ..
    } = summary;
    let filter = match filter {
        Some(filter) => format!("filter of {:.2} bits a key", filter.bits_per_key(*entries)),
        None => "no filter".into(),
    };
    let out = out.display();
    let size = indicatif::BinaryBytes(*file_bytes);
    anstream::eprintln!("{out}: {entries} entries in {data_blocks} blocks, {filter}, {size}");
}

/// Bytes, perhaps with K, M or G for multiples of 1024.
pub(crate) fn parse_size(written: &str) -> Result<usize, String> {
    let number = written.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match written.get(number.len()..).unwrap_or_default() {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        _ => return Err("expected a number of bytes such as 4096, 64K or 1M".into()),
    };
    let bytes = number
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(unit));
    match bytes {
        Some(bytes @ 1..) => Ok(bytes),
        _ => Err("expected a number of bytes above 0, such as 4096, 64K or 1M".into()),
    }
}
