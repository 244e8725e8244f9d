//! The golden tables of version 1 of the format: which there are, what is in them, and how they are built.
//!
//! `README.md` beside this file says how they were generated and what is frozen. Tests include this file.

use std::path::PathBuf;

use leveltable::filter::{DelimitedPrefix, FixedPrefix};
use leveltable::{BloomFilterPolicy, Compression, RibbonFilterPolicy, WriteOptions};

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

const CODECS: [&str; 5] = ["none", "snappy", "zstd", "zlib", "deflate"];
const FILTERS: [&str; 5] = [
    "ribbon10",
    "ribbon16",
    "bloom10",
    "bloom10table",
    "nofilter",
];
const ALIGNMENTS: [&str; 2] = ["unaligned", "aligned"];
const PREFIXES: [&str; 3] = ["noprefix", "fixed6", "slash"];

/// The number of entries of the tables that are combined from all options.
const COMBINED: u64 = 300;

/// A table, named by the options that differ between tables, such as `plain-300-none-ribbon10-aligned-slash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Golden {
    /// Whether keys are a database's.
    pub(crate) database: bool,
    pub(crate) count: u64,
    pub(crate) codec: &'static str,
    pub(crate) filter: &'static str,
    alignment: &'static str,
    prefix: &'static str,
}

/// Returns all tables: those that combine all options, and of other sizes those that differ from the default in one.
pub(crate) fn all() -> Vec<Golden> {
    let mut all = Vec::new();
    for database in [false, true] {
        for count in [0, 1, 2, 30, COMBINED, 10_000, 100_000] {
            for codec in CODECS {
                for filter in FILTERS {
                    for alignment in ALIGNMENTS {
                        for prefix in PREFIXES {
                            let golden = Golden {
                                database,
                                count,
                                codec,
                                filter,
                                alignment,
                                prefix,
                            };
                            if count == COMBINED || golden.choices() <= 1 {
                                all.push(golden);
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

impl Golden {
    /// How many options differ from those of an uncompressed table by `WriteOptions::new`.
    fn choices(&self) -> usize {
        let chosen = [
            self.codec != CODECS[0],
            self.filter != FILTERS[0],
            self.alignment != ALIGNMENTS[0],
            self.prefix != PREFIXES[0],
        ];
        chosen.into_iter().filter(|&is_chosen| is_chosen).count()
    }

    pub(crate) fn name(&self) -> String {
        let Golden {
            count,
            codec,
            filter,
            alignment,
            prefix,
            ..
        } = self;
        let keys = if self.database { "database" } else { "plain" };
        format!("{keys}-{count}-{codec}-{filter}-{alignment}-{prefix}")
    }

    /// Where the table is, if it is stored as a file: the small ones, and of the next larger ones those of each codec.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let is_small =
            self.count <= 30 && self.choices() <= 1 && (self.count == 30 || self.codec == "none");
        let has_blocks = self.count == COMBINED && self.filter == FILTERS[0] && self.choices() <= 1;
        let path = crate::common::testdata(&format!("version-1/{}.ldb", self.name()));
        (is_small || has_blocks).then_some(path)
    }

    /// The options, or `None` if this build lacks the codec.
    pub(crate) fn options(&self) -> Option<WriteOptions> {
        let compression: Compression = self.codec.parse().ok()?;
        let options = WriteOptions::new().compression(compression);
        let options = match self.filter {
            "ribbon10" => options,
            "ribbon16" => options.filter_policy(RibbonFilterPolicy::new(16)),
            "bloom10" => options
                .filter_policy(BloomFilterPolicy::new(10))
                .whole_table_filter(false),
            "bloom10table" => options.filter_policy(BloomFilterPolicy::new(10)),
            _ => options.no_filter(),
        };
        let options = options.block_align(self.alignment == "aligned");
        Some(match self.prefix {
            "fixed6" => options.prefix_filter(FixedPrefix::new(6)),
            "slash" => options.prefix_filter(DelimitedPrefix::new(b'/')),
            _ => options,
        })
    }

    /// The table's entries, with keys as they are stored.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        (0..self.count)
            .map(|i| {
                if self.database {
                    version(i)
                } else {
                    (key(i), value(i))
                }
            })
            .collect()
    }

    /// Writes the table, or returns `None` if this build lacks the codec.
    pub(crate) fn build(&self) -> Option<Vec<u8>> {
        let options = self.options()?;
        if !self.database {
            let mut builder = options.build(Vec::new());
            for (key, value) in self.entries() {
                builder.add(key, value).unwrap();
            }
            return Some(builder.finish_into_writer().unwrap().0);
        }
        let mut builder = options.build_db(Vec::new());
        for (key, value) in self.entries() {
            let (user_key, tag) = key.split_last_chunk().unwrap();
            let tag = u64::from_le_bytes(*tag);
            match tag & 0xff {
                0 => builder.delete(user_key, tag >> 8).unwrap(),
                _ => builder.put(user_key, tag >> 8, value).unwrap(),
            }
        }
        Some(builder.finish_into_writer().unwrap().0)
    }
}

/// Every third number, fifty to a group: `000002/00000300`.
fn key(i: u64) -> Vec<u8> {
    format!("{:06}/{:08}", i / 50, 3 * i).into_bytes()
}

/// SplitMix64 of `i`.
fn mixed(i: u64) -> u64 {
    let mixed = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Sixteen random bytes, some of them again and again, so that codecs have something to shrink. Some values are empty, and some larger than
/// a block.
fn value(i: u64) -> Vec<u8> {
    let random = [mixed(2 * i).to_le_bytes(), mixed(2 * i + 1).to_le_bytes()].concat();
    let length = match i {
        _ if i % 97 == 96 => 0,
        _ if i % 5_000 == 4_999 => 9_000,
        _ => 10 + mixed(i) % 50,
    };
    random.into_iter().cycle().take(length as usize).collect()
}

/// Three versions of each user key, the newest first. Every seventh version is a deletion.
fn version(i: u64) -> Entry {
    let sequence = 1_000_000 - i;
    let is_deletion = i % 7 == 6;
    let tag = sequence << 8 | u64::from(!is_deletion);
    let value = if is_deletion { Vec::new() } else { value(i) };
    ([&key(i / 3)[..], &tag.to_le_bytes()].concat(), value)
}
