//! Damaged files against a model that knows what was written where. It shares no code with `salvage`: it follows the bytes
//! of each block from where they were written to where the damage moved them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use leveltable::db::KeyKind;
use leveltable::repair::{IndexState, SalvageOptions, SalvageReport, salvage};
use leveltable::{BytewiseComparator, Comparator, Compression, OpenOptions, WriteOptions};
use leveltable::db::InternalKeyComparator;

use super::common::{Entry, Layout, Random, Reverse};
use super::content;

#[path = "../../examples/indexeddb.rs"]
#[allow(dead_code)]
mod indexeddb;

use indexeddb::IndexedDb;

/// In which order a table is, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOrder {
    Bytewise,
    Database,
    IndexedDb,
    Reverse,
}

const ORDERS: [KeyOrder; 4] = [
    KeyOrder::Bytewise,
    KeyOrder::Database,
    KeyOrder::IndexedDb,
    KeyOrder::Reverse,
];

impl KeyOrder {
    fn of_user_keys(self) -> Arc<dyn Comparator> {
        match self {
            KeyOrder::Bytewise | KeyOrder::Database => Arc::new(BytewiseComparator),
            KeyOrder::IndexedDb => Arc::new(IndexedDb),
            KeyOrder::Reverse => Arc::new(Reverse),
        }
    }

    fn is_database(self) -> bool {
        matches!(self, KeyOrder::Database | KeyOrder::IndexedDb)
    }

    fn of_stored_keys(self) -> Arc<dyn Comparator> {
        if self.is_database() {
            Arc::new(InternalKeyComparator::new(self.of_user_keys()))
        } else {
            self.of_user_keys()
        }
    }
}

fn codecs() -> Vec<Compression> {
    vec![
        Compression::None,
        Compression::Snappy,
        #[cfg(feature = "zstd")]
        Compression::Zstd(1),
        #[cfg(feature = "zlib")]
        Compression::Zlib(6),
        #[cfg(feature = "zlib")]
        Compression::Deflate(6),
    ]
}

/// A data block as it was written.
#[derive(Debug, Clone)]
struct Block {
    frame: Vec<u8>,
    entries: Vec<Entry>,
}

/// A table as it was written.
#[derive(Debug, Clone)]
struct Written {
    file: Vec<u8>,
    blocks: Vec<(Range<usize>, Block)>,
    index: Range<usize>,
    order: KeyOrder,
    codec: Compression,
}

/// Key number `i`, of user keys.
fn key(order: KeyOrder, prefix: u8, i: usize) -> Vec<u8> {
    match order {
        KeyOrder::IndexedDb if i % 7 == 3 => {
            let text = format!("{}{i}", char::from(prefix));
            let mut key = vec![0, 1, 1, 1, 1, text.len() as u8];
            key.extend(text.bytes().flat_map(|byte| [0, byte]));
            key
        }
        KeyOrder::IndexedDb => {
            let number = i as f64 * 3.5 + f64::from(prefix) * 1000.0;
            [&[0, 1, 1, 1, 3][..], &number.to_le_bytes()].concat()
        }
        _ => format!("{}key {i:06}", char::from(prefix)).into_bytes(),
    }
}

/// Builds a table of `n` keys, and notes the entries of each block as they are added.
fn write(order: KeyOrder, codec: Compression, n: usize, prefix: u8, random: &mut Random) -> Written {
    let comparator = order.of_user_keys();
    let mut keys: Vec<Vec<u8>> = (0..n).map(|i| key(order, prefix, i * 2 + random.below(2))).collect();
    keys.sort_by(|a, b| comparator.compare(a, b));
    keys.dedup();
    let options = if random.below(2) == 0 { WriteOptions::leveldb() } else { WriteOptions::new() };
    let options = options
        .properties(random.below(3) == 0)
        .compression(codec)
        .block_size(usize::MAX)
        .block_align(random.below(8) == 0);
    let options = if random.below(3) == 0 { options.no_filter() } else { options };
    let options = if order == KeyOrder::Bytewise || order == KeyOrder::Database {
        options
    } else {
        options.comparator(comparator)
    };
    let (mut file, mut blocks) = (Vec::new(), Vec::new());
    let mut block: Vec<Entry> = Vec::new();
    let size = 1 + random.below(9);
    let value = |random: &mut Random| {
        let len = random.below(40);
        let mut value = random.bytes(len);
        value.extend(vec![b'v'; random.below(60)]);
        value
    };
    macro_rules! add_all {
        ($builder:ident, $add:expr) => {{
            for (i, key) in keys.iter().enumerate() {
                let value = value(random);
                let stored = $add(&mut $builder, key, i as u64, &value);
                block.push((stored, value));
                if block.len() >= size + random.below(3) {
                    $builder.flush().unwrap();
                    blocks.push(std::mem::take(&mut block));
                }
            }
            if !block.is_empty() {
                blocks.push(block);
            }
            $builder.finish().unwrap();
        }};
    }
    if order.is_database() {
        let mut builder = options.build_db(&mut file);
        add_all!(builder, |builder: &mut leveltable::DbTableBuilder<_>, key: &Vec<u8>, i: u64, value: &Vec<u8>| {
            builder.put(key, i + 1, value).unwrap();
            [&key[..], &((i + 1) << 8 | 1).to_le_bytes()].concat()
        });
    } else {
        let mut builder = options.build(&mut file);
        add_all!(builder, |builder: &mut leveltable::TableBuilder<_>, key: &Vec<u8>, _, value: &Vec<u8>| {
            builder.add(key, value).unwrap();
            key.clone()
        });
    }
    let (ranges, index) = layout(&file);
    assert_eq!(ranges.len(), blocks.len());
    let blocks = ranges.into_iter().zip(blocks).map(|(range, entries)| {
        let frame = file[range.clone()].to_vec();
        (range, Block { frame, entries })
    });
    Written { blocks: blocks.collect(), file, index, order, codec }
}

/// Where the data blocks of a table lie, and its index.
fn layout(file: &[u8]) -> (Vec<Range<usize>>, Range<usize>) {
    let mut handles = &file[file.len() - 48..];
    let handles = [(); 4].map(|()| super::common::take_varint(&mut handles));
    let index = handles[2]..handles[2] + handles[3] + 5;
    let table = OpenOptions::new().stored_order().open_source(file.to_vec()).unwrap();
    let blocks = table.blocks().map(|block| {
        let block = block.unwrap();
        let start = block.offset as usize;
        start..start + block.stored_bytes as usize
    });
    (blocks.collect(), index)
}
