//! Damaged files against a model that knows what was written where. It shares no code with `salvage`: it follows the bytes
//! of each block from where they were written to where the damage moved them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use leveltable::db::InternalKeyComparator;
use leveltable::db::KeyKind;
use leveltable::repair::{SalvageOptions, SalvageReport, salvage};
use leveltable::{BytewiseComparator, Comparator, Compression, OpenOptions, Section, WriteOptions};

use super::common::{Entry, Random, Reverse, handle_of, take_varint};
use super::content;

#[path = "../../database/src/indexeddb.rs"]
#[allow(dead_code, unreachable_pub)]
mod indexeddb;

pub(super) use indexeddb::IndexedDbComparator as IndexedDb;

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

pub(super) fn codecs() -> Vec<Compression> {
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

/// A table of `n` keys, the last of which, or all, have handles of blocks as values: of those before them, or of another table.
fn write_handles(
    order: KeyOrder,
    codec: Compression,
    n: usize,
    prefix: u8,
    others: &[Written],
    random: &mut Random,
) -> Written {
    let seed = random.next();
    let with = |count: usize, handles: &[Vec<u8>]| {
        let last = handles.iter().cycle().take(count).cloned().collect();
        write_with(order, codec, n, prefix, last, &mut Random(seed))
    };
    let handles_of = |table: &Written, count: usize| -> Vec<Vec<u8>> {
        let ranges = table.blocks.iter().map(|(range, _)| range);
        ranges.take(count).map(handle_of).collect()
    };
    let count = [n, 1 + random.below(n.min(6))][random.below(2)];
    let mut handles = vec![vec![0, random.below(128) as u8]];
    let is_others = !others.is_empty() && random.below(2) == 0;
    if is_others {
        let other = &others[random.below(others.len())];
        handles = handles_of(other, other.blocks.len());
    }
    let mut table = with(count, &handles);
    let mut before = 0;
    let is_before = |(_, block): &&(_, Block)| {
        before += block.entries.len();
        before + count <= n
    };
    let blocks = table.blocks.iter().take_while(is_before).count();
    if !is_others && blocks > 0 {
        table = with(count, &handles_of(&table, blocks));
    }
    // Nothing tells a block from an index that is the same to the byte.
    let is_index = |(_, block): &(_, Block)| block.frame == table.file[table.index.clone()];
    if table.blocks.iter().any(is_index) {
        return write(order, codec, n, prefix, random);
    }
    table
}

/// A table of `n` keys with values of all kinds.
fn write(
    order: KeyOrder,
    codec: Compression,
    n: usize,
    prefix: u8,
    random: &mut Random,
) -> Written {
    write_with(order, codec, n, prefix, Vec::new(), random)
}

/// Builds a table of `n` keys, and notes the entries of each block as they are added. `last` are the last values, in blocks of their
/// own.
fn write_with(
    order: KeyOrder,
    codec: Compression,
    n: usize,
    prefix: u8,
    last: Vec<Vec<u8>>,
    random: &mut Random,
) -> Written {
    let comparator = order.of_user_keys();
    let mut keys: Vec<Vec<u8>> = (0..n)
        .map(|i| key(order, prefix, i * 2 + random.below(2)))
        .collect();
    keys.sort_by(|a, b| comparator.compare(a, b));
    keys.dedup();
    let options = if random.below(2) == 0 {
        WriteOptions::leveldb()
    } else {
        WriteOptions::new()
    };
    let options = options
        .properties(random.below(3) == 0)
        .compression(codec)
        .block_size(usize::MAX)
        .block_align(random.below(8) == 0);
    let options = if random.below(3) == 0 {
        options.no_filter()
    } else {
        options
    };
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
        ($builder:ident, $flush:expr, $add:expr) => {{
            for (i, key) in keys.iter().enumerate() {
                let mut value = value(random);
                let from_end = keys.len() - i;
                if from_end <= last.len() {
                    value.clone_from(&last[last.len() - from_end]);
                }
                let stored = $add(&mut $builder, key, i as u64, &value);
                block.push((stored, value));
                if block.len() >= size + random.below(3) || from_end == last.len() + 1 {
                    $flush.unwrap();
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
        add_all!(
            builder,
            builder.table_mut().flush(),
            |builder: &mut leveltable::DbTableBuilder<_>,
             key: &Vec<u8>,
             i: u64,
             value: &Vec<u8>| {
                builder.put(key, i + 1, value).unwrap();
                [&key[..], &((i + 1) << 8 | 1).to_le_bytes()].concat()
            }
        );
    } else {
        let mut builder = options.build(&mut file);
        add_all!(
            builder,
            builder.flush(),
            |builder: &mut leveltable::TableBuilder<_>, key: &Vec<u8>, _, value: &Vec<u8>| {
                builder.add(key, value).unwrap();
                key.clone()
            }
        );
    }
    let (ranges, index) = layout(&file);
    assert_eq!(ranges.len(), blocks.len());
    let blocks = ranges.into_iter().zip(blocks).map(|(range, entries)| {
        let frame = file[range.clone()].to_vec();
        (range, Block { frame, entries })
    });
    Written {
        blocks: blocks.collect(),
        file,
        index,
        order,
    }
}

/// Where the data blocks of a table lie, and its index.
fn layout(file: &[u8]) -> (Vec<Range<usize>>, Range<usize>) {
    let mut handles = &file[file.len() - 48..];
    let handles = [(); 4].map(|()| super::common::take_varint(&mut handles));
    let index = handles[2]..handles[2] + handles[3] + 5;
    let table = OpenOptions::new()
        .stored_order()
        .open_source(file.to_vec())
        .unwrap();
    let blocks = table.blocks().map(|block| {
        let block = block.unwrap();
        let start = block.offset as usize;
        start..start + block.stored_bytes as usize
    });
    (blocks.collect(), index)
}

/// A file of tables, perhaps damaged, and what is known of it.
struct File {
    bytes: Vec<u8>,
    tables: Vec<Written>,
    /// Tables that are stored in values.
    inner: Vec<Written>,
    /// What was done to it.
    history: Vec<String>,
}

/// Where `part` occurs in `bytes`.
fn occurrences(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(part.len()).enumerate();
    let found = windows.filter(|(_, window)| window[0] == part[0] && *window == part);
    found.map(|(start, _)| start).collect()
}

impl File {
    fn new(random: &mut Random) -> File {
        let mut order = ORDERS[random.below(4)];
        let codecs = codecs();
        let count = [1, 1, 1, 2, 3][random.below(5)];
        let mut inner = Vec::new();
        let mut tables = Vec::new();
        let has_kinds = count > 1 && random.below(4) == 0;
        for _ in 0..count {
            if has_kinds {
                order = ORDERS[random.below(4)];
            }
            let codec = codecs[random.below(codecs.len())];
            let n = [1, 2, 5, 20, 60][random.below(5)];
            let prefix = b"abc"[random.below(3)];
            if count == 1 && order == KeyOrder::Bytewise && random.below(5) == 0 {
                tables.push(with_tables_in_values(codec, &mut inner, random));
            } else if random.below(6) == 0 {
                tables.push(write_handles(order, codec, n, prefix, &tables, random));
            } else {
                tables.push(write(order, codec, n, prefix, random));
            }
        }
        let mut bytes: Vec<u8> = tables.iter().flat_map(|table| table.file.clone()).collect();
        let orders: Vec<KeyOrder> = tables.iter().map(|table| table.order).collect();
        let mut history = vec![format!("in {orders:?}")];
        if random.below(6) == 0 {
            bytes = bytes.repeat(2);
            history.push("doubled".into());
        }
        if random.below(6) == 0 {
            let (before, after) = (random.below(300), random.below(300));
            bytes = [random.bytes(before), bytes, random.bytes(after)].concat();
            history.push(format!("embedded in {before} and {after} bytes"));
        }
        File {
            bytes,
            tables,
            inner,
            history,
        }
    }

    /// The frame of some block, where it is now.
    fn some_block(&self, random: &mut Random) -> Option<Range<usize>> {
        let table = &self.tables[random.below(self.tables.len())];
        let (_, block) = &table.blocks[random.below(table.blocks.len())];
        let start = *occurrences(&self.bytes, &block.frame).first()?;
        Some(start..start + block.frame.len())
    }

    fn damage(&mut self, random: &mut Random) -> Option<()> {
        let len = self.bytes.len();
        let at = random.below(len);
        let what = match random.below(12) {
            0 => {
                let at = if random.below(2) == 0 {
                    self.some_block(random)?.end
                } else {
                    at
                };
                self.bytes.truncate(at);
                format!("cut at {at}")
            }
            1 => {
                self.bytes.drain(..at);
                format!("cut off the first {at}")
            }
            2 => {
                let end = len.min(at + random.below(400));
                self.bytes[at..end].fill(0);
                format!("zeroed {at}..{end}")
            }
            3 => {
                self.bytes[at] ^= 1 << random.below(8);
                format!("flipped a bit at {at}")
            }
            4 => {
                let (from, to) = (self.some_block(random)?, self.some_block(random)?);
                let copied = self.bytes[from.clone()].to_vec();
                let end = len.min(to.start + copied.len());
                self.bytes[to.start..end].copy_from_slice(&copied[..end - to.start]);
                format!("copied {from:?} over {to:?}")
            }
            5 => {
                let (a, b) = (self.some_block(random)?, self.some_block(random)?);
                let (a, b) = if a.start < b.start { (a, b) } else { (b, a) };
                if a.end > b.start {
                    return None;
                }
                let bytes = &self.bytes;
                self.bytes = [
                    &bytes[..a.start],
                    &bytes[b.clone()],
                    &bytes[a.end..b.start],
                    &bytes[a.clone()],
                    &bytes[b.end..],
                ]
                .concat();
                format!("swapped {a:?} and {b:?}")
            }
            6 => {
                let block = self.some_block(random)?;
                self.bytes.drain(block.clone());
                format!("removed {block:?}")
            }
            7 => {
                let (n, byte) = (1 + random.below(20), random.below(256) as u8);
                self.bytes.splice(at..at, vec![byte; n]);
                format!("inserted {n} at {at}")
            }
            8 => {
                // The last bits of the magic number, and the index, too.
                self.bytes[len - 1] ^= 1;
                let table = &self.tables[self.tables.len() - 1];
                let index = table.file[table.index.clone()].to_vec();
                for start in occurrences(&self.bytes, &index) {
                    self.bytes[start + index.len() / 2] ^= 0x40;
                }
                "destroyed footer and index".into()
            }
            9 => {
                self.bytes[len - 1] ^= 1;
                "flipped a bit of the magic number".into()
            }
            10 => {
                let small = |table: &&Written| table.blocks.len() == 1;
                let table = &self.tables.iter().find(small)?.file;
                let lost = [0, 1, 48][random.below(3)];
                let to = random.below(20);
                let moved = [&random.bytes(to), &table[..table.len() - lost]].concat();
                let parts = [&self.bytes[..], &moved, &self.bytes];
                let parts = [&parts[..2], &parts[1..2], &parts[1..]][random.below(3)];
                self.bytes = parts.concat();
                format!("a table without its last {lost} bytes moved by {to} bytes")
            }
            _ => {
                let block = self.some_block(random)?;
                let at = block.start + random.below(block.len());
                self.bytes[at] ^= 1 << random.below(8);
                format!("flipped a bit at {at} of {block:?}")
            }
        };
        self.history.push(what);
        (!self.bytes.is_empty()).then_some(())
    }

    /// The blocks of the tables that are whole, each once: those inside of other whole blocks are parts of values.
    fn intact(&self) -> Vec<(&Written, &Block)> {
        let mut intact: BTreeMap<&[u8], (&Written, &Block)> = BTreeMap::new();
        for table in &self.tables {
            for (_, block) in &table.blocks {
                if !occurrences(&self.bytes, &block.frame).is_empty() {
                    intact.insert(&block.frame, (table, block));
                }
            }
        }
        intact.into_values().collect()
    }

    /// Whether `frame` of a table that was stored in a value lies in no value of an intact block any more: nothing tells it from
    /// others then.
    fn is_loose(&self, frame: &[u8]) -> bool {
        let intact = self.intact().into_iter().flat_map(|(_, block)| {
            let starts = occurrences(&self.bytes, &block.frame).into_iter();
            starts.map(|start| start..start + block.frame.len())
        });
        let intact: Vec<Range<usize>> = intact.collect();
        let mut starts = occurrences(&self.bytes, frame).into_iter();
        starts.any(|start| intact.iter().all(|range| !range.contains(&start)))
    }

    /// The blocks that were stored in values and are loose.
    fn loose(&self) -> impl Iterator<Item = &Block> {
        let blocks = self.inner.iter().flat_map(|table| &table.blocks);
        blocks
            .map(|(_, block)| block)
            .filter(|block| self.is_loose(&block.frame))
    }

    /// Whether an index that was stored in a value is loose, and the last of all: it is of use then, as any other.
    fn ends_in_a_loose_index(&self) -> bool {
        let last = |table: &Written| {
            let index = &table.file[table.index.clone()];
            occurrences(&self.bytes, index).last().copied()
        };
        let last_own = self.tables.iter().filter_map(last).max();
        let loose = self
            .inner
            .iter()
            .filter(|table| self.is_loose(&table.file[table.index.clone()]));
        loose.filter_map(last).max() > last_own
    }

    /// Whether a block lies as far from the last copy of the index as it was written: that is the table to copy.
    fn is_in_place(&self, table: &Written, block: &Block) -> bool {
        let index = &table.file[table.index.clone()];
        let moved_to = *occurrences(&self.bytes, index).last().unwrap();
        let mut own = table.blocks.iter();
        let (place, _) = own.find(|(_, own)| own.frame == block.frame).unwrap();
        let starts = occurrences(&self.bytes, &block.frame);
        { starts.iter() }.any(|start| start + table.index.start == moved_to + place.start)
    }

    /// Whether a block has come to lie where another block of its table should be, and is not: nothing in there is copied.
    fn is_inside_another(&self, table: &Written, block: &Block) -> bool {
        let index = &table.file[table.index.clone()];
        let moved_to = *occurrences(&self.bytes, index).last().unwrap();
        let starts = occurrences(&self.bytes, &block.frame);
        let inside = |start: usize, place: &Range<usize>| {
            // Both offsets in the table as it was written.
            (start + table.index.start)
                .checked_sub(moved_to)
                .is_some_and(|start| place.start < start && start + block.frame.len() < place.end)
        };
        starts.into_iter().all(|start| {
            let mut places = table.blocks.iter();
            places.any(|(place, _)| inside(start, place))
        })
    }

    /// The last table whose index is whole. If tables have the same index to the byte, that of which most blocks lie where it
    /// says.
    fn indexed(&self) -> Option<&Written> {
        let last = self.tables.iter().filter_map(|table| {
            let index = &table.file[table.index.clone()];
            let last = *occurrences(&self.bytes, index).last()?;
            let is_there = |(range, block): &&(Range<usize>, Block)| {
                let start = (last + range.start).checked_sub(table.index.start);
                let bytes = start.and_then(|start| self.bytes.get(start..));
                bytes.is_some_and(|bytes| bytes.starts_with(&block.frame))
            };
            Some((last, table.blocks.iter().filter(is_there).count(), table))
        });
        let last = last.max_by_key(|(at, there, _)| (*at, *there));
        last.map(|(.., table)| table)
    }

    /// Whether a block was set aside that could as well be the index of a table that is gone: its only value is the handle of a block
    /// at the front of a file.
    fn is_set_aside(&self, block: &Block, report: &SalvageReport) -> bool {
        let [(_, value)] = &block.entries[..] else {
            return false;
        };
        let mut rest = &value[..];
        let could_be_index = value.first() == Some(&0) && value.len() > 1 && {
            take_varint(&mut rest);
            take_varint(&mut rest);
            rest.is_empty()
        };
        let starts = occurrences(&self.bytes, &block.frame);
        let is_there = |(section, range): &(Section, Range<u64>)| {
            *section == Section::Index && starts.contains(&(range.start as usize))
        };
        // An index has no data right after it.
        let intact = self.intact();
        let is_followed = starts.iter().any(|start| {
            let rest = &self.bytes[start + block.frame.len()..];
            intact.iter().any(|(_, next)| rest.starts_with(&next.frame))
        });
        could_be_index && !is_followed && report.set_aside.iter().any(is_there)
    }

    /// The entries that must be in the copy, for a builder of this order.
    fn expected(&self, builder: &dyn Comparator, report: &SalvageReport) -> BTreeSet<Entry> {
        let intact = self.intact();
        let entries = |blocks: Vec<&Block>| {
            blocks
                .into_iter()
                .flat_map(|block| block.entries.clone())
                .collect()
        };
        if self.ends_in_a_loose_index() {
            return BTreeSet::new();
        }
        if let Some(table) = self.indexed() {
            let own = |block: &&Block| table.blocks.iter().any(|(_, own)| own.frame == block.frame);
            // A block that is not in its place is taken from wherever one of its size fits: perhaps from another table.
            let rivals: Vec<&Block> = { intact.iter() }
                .map(|(_, block)| *block)
                .filter(|block| !own(block))
                .collect();
            let has_rival = |block: &Block| {
                rivals
                    .iter()
                    .any(|rival| rival.frame.len() == block.frame.len())
            };
            let listed = intact.into_iter().map(|(_, block)| block).filter(own);
            let listed = listed.filter(|block| {
                let is_away = !self.is_in_place(table, block);
                !(is_away && (has_rival(block) || self.is_inside_another(table, block)))
            });
            return entries(listed.collect());
        }
        let is_known = |(_, block): &(&Written, &Block)| !self.is_set_aside(block, report);
        let intact: Vec<_> = intact.into_iter().filter(is_known).collect();
        // Keys that do not ascend show that the order is another one: all is kept then.
        let ascends = |block: &Block| {
            let mut pairs = block.entries.windows(2);
            pairs.all(|pair| builder.compare(&pair[0].0, &pair[1].0).is_lt())
        };
        if !intact.iter().all(|(_, block)| ascends(block)) {
            // Of two entries of one key, side by side in the file, a table can hold one.
            let blocks: Vec<&Block> = intact.into_iter().map(|(_, block)| block).collect();
            let mut times: BTreeMap<&[u8], u32> = BTreeMap::new();
            for (key, _) in blocks.iter().flat_map(|block| &block.entries) {
                *times.entry(key).or_default() += 1;
            }
            let mut all: BTreeSet<Entry> = entries(blocks.clone());
            all.retain(|(key, _)| times[&key[..]] == 1);
            return all;
        }
        let range = |block: &Block| {
            (
                block.entries[0].0.clone(),
                block.entries.last().unwrap().0.clone(),
            )
        };
        let overlaps = |a: &Block, b: &Block| {
            let ((a_first, a_last), (b_first, b_last)) = (range(a), range(b));
            builder.compare(&a_first, &b_last).is_le() && builder.compare(&b_first, &a_last).is_le()
        };
        let blocks = intact.iter().map(|(_, block)| *block);
        let others: Vec<&Block> = blocks.clone().chain(self.loose()).collect();
        let alone = blocks.filter(|block| {
            let mut others = others.iter().filter(|other| other.frame != block.frame);
            others.all(|other| !overlaps(block, other))
        });
        entries(alone.collect())
    }

    /// What is wrong with the copy of what is left.
    fn check(&self, knows_order: bool) -> Result<(), String> {
        let order = self.indexed().unwrap_or(&self.tables[0]).order;
        if self.bytes.is_empty() {
            return Ok(());
        }
        let fail = |what: &str, report: &dyn Debug| {
            let len = self.bytes.len();
            Err(format!(
                "{what}: {len} bytes, knows the order: {knows_order}, {:?}: {report:#?}",
                self.history
            ))
        };
        let options = WriteOptions::new().no_filter();
        let options = if knows_order {
            options.comparator(order.of_user_keys())
        } else {
            options
        };
        let mut rescued = Vec::new();
        let salvaged = if order.is_database() {
            let mut builder = options.build_db(&mut rescued);
            let keys = SalvageOptions::new().keys(KeyKind::Database);
            let report = salvage(self.bytes.clone(), &mut builder, keys);
            report.and_then(|report| builder.finish().map(|_| report))
        } else {
            let mut builder = options.build(&mut rescued);
            let keys = SalvageOptions::new().keys(KeyKind::Plain);
            let report = salvage(self.bytes.clone(), &mut builder, keys);
            report.and_then(|report| builder.finish().map(|_| report))
        };
        let report = match salvaged {
            Ok(report) => report,
            Err(error) => return fail("refused", &error),
        };
        let stored_order = OpenOptions::new().stored_order();
        let table = stored_order.open_source(rescued).unwrap();
        let copied: BTreeSet<Entry> = content(table.iter()).into_iter().collect();
        let of_builder = match order {
            _ if knows_order => order,
            KeyOrder::IndexedDb => KeyOrder::Database,
            KeyOrder::Reverse => KeyOrder::Bytewise,
            order => order,
        };
        let expected = self.expected(&*of_builder.of_stored_keys(), &report);
        let lost = expected.difference(&copied).count();
        if lost > 0 {
            return fail(
                &format!("{lost} entries of {} lost", expected.len()),
                &report,
            );
        }
        let entries = |tables: &[Written]| -> BTreeSet<Entry> {
            let blocks = tables.iter().flat_map(|table| &table.blocks);
            blocks
                .flat_map(|(_, block)| block.entries.clone())
                .collect()
        };
        let mut known = entries(&self.tables);
        if !report.uncertain.is_empty() || self.ends_in_a_loose_index() {
            known.append(&mut entries(&self.inner));
        }
        // An index of one block, of a table that is gone, may pass for data: the report has to say where.
        for table in &self.tables {
            let index = &table.file[table.index.clone()];
            let is_uncertain = |start: usize| {
                let mut ranges = report.uncertain.iter();
                ranges.any(|range| range.contains(&(start as u64)))
            };
            if let [(place, block)] = &table.blocks[..]
                && occurrences(&self.bytes, &block.frame).is_empty()
                && occurrences(&self.bytes, index)
                    .into_iter()
                    .any(is_uncertain)
            {
                let value = handle_of(place);
                known.extend(copied.iter().filter(|(_, own)| *own == value).cloned());
            }
        }
        let invented: Vec<&Entry> = copied.difference(&known).collect();
        if !invented.is_empty() {
            return fail(&format!("{invented:?} invented"), &report);
        }
        let mut wholes = self.tables.iter().chain(&self.inner);
        let is_whole = |table: &Written| entries(std::slice::from_ref(table)).is_subset(&copied);
        if report.is_complete() && !wholes.any(is_whole) {
            return fail("called complete", &report);
        }
        Ok(())
    }
}

/// A table whose values are tables, which are small and raw, and others.
fn with_tables_in_values(
    codec: Compression,
    inner: &mut Vec<Written>,
    random: &mut Random,
) -> Written {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new()
        .compression(codec)
        .block_size(1)
        .build(&mut file);
    let mut blocks = Vec::new();
    for i in 0..3 + random.below(20) {
        let value = if random.below(3) == 0 {
            let table = write(KeyOrder::Bytewise, Compression::None, 6, b'k', random);
            inner.push(table.clone());
            // A part of it may be all that is stored.
            let from = if random.below(2) == 0 {
                table.blocks[0].0.start
            } else {
                table.blocks[table.blocks.len() / 2].0.start
            };
            table.file[from..].to_vec()
        } else {
            random.bytes(30)
        };
        let stored = key(KeyOrder::Bytewise, b'k', i * 5);
        builder.add(&stored, &value).unwrap();
        blocks.push(vec![(stored, value)]);
    }
    builder.finish().unwrap();
    let (ranges, index) = layout(&file);
    let blocks = ranges.into_iter().zip(blocks).map(|(range, entries)| {
        let frame = file[range.clone()].to_vec();
        (range, Block { frame, entries })
    });
    Written {
        blocks: blocks.collect(),
        file,
        index,
        order: KeyOrder::Bytewise,
    }
}

fn damaged_tables(seeds: Range<u64>) {
    let mut wrong = 0;
    for seed in seeds {
        let mut random = Random(seed);
        let mut file = File::new(&mut random);
        for _ in 0..1 + random.below(3) {
            if file.damage(&mut random).is_none() {
                break;
            }
        }
        if let Err(why) = file.check(random.below(2) == 0) {
            println!("seed {seed}: {why}");
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0, "files of which something was lost or invented");
}

/// Runs one file again: `LEVELTABLE_SEED` is its number.
#[test]
#[ignore = "of one file, to look into a failure"]
fn of_one_damaged_table_nothing_intact_is_lost_and_nothing_is_invented() {
    let seed = std::env::var("LEVELTABLE_SEED").map_or(0, |seed| seed.parse().unwrap());
    damaged_tables(seed..seed + 1);
}

#[test]
fn of_damaged_tables_nothing_intact_is_lost_and_nothing_is_invented() {
    damaged_tables(0..500);
}

#[test]
#[ignore = "takes minutes: run it in a release build"]
fn of_20000_damaged_tables_nothing_intact_is_lost_and_nothing_is_invented() {
    let from = std::env::var("LEVELTABLE_SEED").map_or(1_000_000, |seed| seed.parse().unwrap());
    damaged_tables(from..from + 20_000);
}
