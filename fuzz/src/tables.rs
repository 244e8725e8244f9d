//! Tables made of arbitrary data.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, RibbonFilterPolicy,
    WriteOptions,
    db::MAX_SEQUENCE,
    filter::{DelimitedPrefix, FixedPrefix},
};

use crate::naive::{Compare, Entry};

/// Orders that tables are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum KeyOrder {
    /// By bytes, as the crate knows it: with code of its own for searching.
    Bytewise,
    /// The same by another type, so that the crate takes the way of all other orders.
    ByTrait,
    /// Descending bytes.
    Reverse,
}

impl KeyOrder {
    /// The order as a function, without the crate's code.
    pub fn compare(self) -> Compare {
        match self {
            KeyOrder::Reverse => |a, b| b.cmp(a),
            KeyOrder::Bytewise | KeyOrder::ByTrait => |a, b| a.cmp(b),
        }
    }

    /// Options that write in this order.
    pub fn write(self, options: WriteOptions) -> WriteOptions {
        match self {
            KeyOrder::Bytewise => options,
            other => options.comparator(other),
        }
    }
}

impl Comparator for KeyOrder {
    fn name(&self) -> &str {
        match self {
            // A table says which order it is in, by this name.
            KeyOrder::Bytewise | KeyOrder::ByTrait => "leveldb.BytewiseComparator",
            KeyOrder::Reverse => "fuzz.Reverse",
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        KeyOrder::compare(*self)(a, b)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        match self {
            KeyOrder::Reverse => {}
            _ => BytewiseComparator.find_shortest_separator(start, limit),
        }
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        match self {
            KeyOrder::Reverse => {}
            _ => BytewiseComparator.find_short_successor(key),
        }
    }
}

/// Entries with different keys, in bytewise order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(pub Vec<Entry>);

impl Entries {
    /// The entries in another order.
    pub fn in_order(mut self, order: KeyOrder) -> Vec<Entry> {
        if order == KeyOrder::Reverse {
            self.0.reverse();
        }
        self.0
    }
}

impl Arbitrary<'_> for Entries {
    /// Keys grow out of one another, so that prefixes are shared; values are short, or long and more or
    /// less compressible, so that a table has many blocks and spans many filters.
    fn arbitrary(u: &mut Unstructured) -> Result<Entries> {
        let mut entries = BTreeMap::new();
        let mut key = Vec::new();
        for _ in 0..u.int_in_range(0..=48)? {
            if u.is_empty() {
                break;
            }
            let [keep, more, kind] = u.arbitrary::<[u8; 3]>()?;
            key.truncate(usize::from(keep) % (key.len() + 1));
            key.extend(u.bytes(usize::from(more % 8).min(u.len()))?);
            if more >= 0xf8 {
                // Lengths whose varints take two bytes.
                key.resize(key.len() + 120 + usize::from(more), b'k');
            }
            let value = match kind {
                0..0xf0 => u.bytes(usize::from(kind % 24).min(u.len()))?.to_vec(),
                0xf0..0xf8 => vec![kind; u.arbitrary::<u16>()? as usize % 2500],
                _ => noise(kind, u.arbitrary::<u16>()? as usize % 2500),
            };
            entries.insert(key.clone(), value);
        }
        Ok(Entries(entries.into_iter().collect()))
    }
}

/// Bytes that do not compress.
fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// How a table is written.
#[derive(Debug, Clone)]
pub struct Options {
    /// The order of its keys: of the user keys in a database's table.
    pub order: KeyOrder,
    /// The options, that order included.
    pub write: WriteOptions,
    /// The codec among them: the second decoder has only Snappy.
    pub compression: Compression,
    /// Whether they ask for a filter of prefixes, which takes keys in bytewise order only.
    pub has_prefixes: bool,
}

impl Arbitrary<'_> for Options {
    fn arbitrary(u: &mut Unstructured) -> Result<Options> {
        let order = u.arbitrary()?;
        let block_size = match u.arbitrary::<u8>()? {
            small @ 0..0x80 => usize::from(small) + 1,
            large => usize::from(large - 0x7f) * 64,
        };
        let restart_interval = u.int_in_range(1..=18)?;
        // Those that take long to set up come seldom.
        let compression = match u.arbitrary::<u8>()? {
            0..0x80 => Compression::None,
            0x80..0xf8 => Compression::Snappy,
            any => Compression::all()[usize::from(any) % Compression::all().len()],
        };
        let options = WriteOptions::leveldb()
            .block_size(block_size)
            .restart_interval(restart_interval)
            .block_align(u.arbitrary()?)
            .compression(compression)
            .whole_table_filter(u.arbitrary()?);
        let bits = u32::from(u.arbitrary::<u8>()? % 50);
        let options = match u.arbitrary::<u8>()? % 4 {
            0 => options.no_filter(),
            1 => options.filter_policy(BloomFilterPolicy::new(bits.max(1))),
            2 => options.filter_policy(RibbonFilterPolicy::new(bits.clamp(5, 33))),
            _ => options,
        };
        // Only for keys in bytewise order.
        let prefixes = u.arbitrary::<u8>()?;
        let options = match (order, prefixes) {
            (KeyOrder::Bytewise, len @ 0..8) => {
                options.prefix_filter(FixedPrefix::new(usize::from(len) + 1))
            }
            (KeyOrder::Bytewise, delimiter @ 8..0x80) => {
                options.prefix_filter(DelimitedPrefix::new(delimiter))
            }
            _ => options,
        };
        Ok(Options {
            order,
            write: order.write(options),
            compression,
            has_prefixes: matches!(order, KeyOrder::Bytewise) && prefixes < 0x80,
        })
    }
}

/// What a database's table holds: user key, sequence number, and the value unless it was deleted.
pub type DbEntry = (Vec<u8>, u64, Option<Vec<u8>>);

impl Entries {
    /// Versions of these keys, newest first: how many, and of which numbers, is up to the value.
    pub fn into_versions(self, order: KeyOrder) -> Vec<DbEntry> {
        let versions = |(key, value): Entry| {
            let last = match value.last() {
                None => MAX_SEQUENCE,
                Some(&byte) => u64::from(byte) + 2,
            };
            let count = value.len() as u64 % 3 + 1;
            let version = move |i| match (value.len() as u64 + i) % 4 {
                3 => (key.clone(), last - i, None),
                _ => (key.clone(), last - i, Some(value.clone())),
            };
            (0..count).map(version)
        };
        self.in_order(order)
            .into_iter()
            .flat_map(versions)
            .collect()
    }
}

/// The table of `entries`, which are in order.
pub fn build(options: &WriteOptions, entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.build(&mut file);
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.finish().unwrap();
    file
}

/// The database's table of `entries`, which are in order.
pub fn build_db(options: &WriteOptions, entries: &[DbEntry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.build_db(&mut file);
    for (key, sequence, value) in entries {
        match value {
            Some(value) => builder.put(key, *sequence, value),
            None => builder.delete(key, *sequence),
        }
        .unwrap();
    }
    builder.finish().unwrap();
    file
}
