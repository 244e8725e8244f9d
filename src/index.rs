//! A table's index in memory: which data block may hold a key, without touching the file.

use std::cmp::Ordering;

use crate::comparator::{Order, common_prefix};
use crate::error::{Error, ErrorKind, Section, show_key};
use crate::format::Defect;
use crate::format::block::{Block, BlockCursor};
use crate::format::footer::BlockHandle;
use crate::internal_key;

/// The index block, decoded once and checked: searching it cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next
/// block's. Takes 24 bytes a data block and the keys themselves.
#[derive(Debug)]
pub(crate) struct Index {
    blocks: Vec<IndexEntry>,
    /// All keys, end to end.
    keys: Vec<u8>,
    prefixes: Prefixes,
}

#[derive(Debug, Clone, Copy)]
struct IndexEntry {
    offset: u64,
    size: u32,
    /// Where this block's key ends in `keys`; it begins where the one before ends.
    key_end: u32,
}

/// Eight bytes of each key in one compact array, so that a search in bytewise order runs within a few
/// cache lines and reads whole keys only to settle ties.
///
/// The last key is left out: it is the successor of the table's last key, often a single byte, and
/// would end the prefix that all others share.
#[derive(Debug, Default)]
struct Prefixes {
    /// Number of leading bytes that all keys but the last share.
    shared: usize,
    /// The next eight bytes of each, as a big-endian number, zeros behind the key's end. Empty in an
    /// order that is not bytewise.
    after_shared: Vec<u64>,
}

/// Most memory that keys may take, in multiples of the file's size.
///
/// LevelDB stores index keys whole, and then Snappy's ratio (64/3) is the bound. A block that shares prefixes
/// could, in a hostile file, unfold to the square of its length.
const MAX_KEY_EXPANSION: u64 = 32;

impl Index {
    /// Decodes and checks the index block `block` of a file of `file_size` bytes, at `offset` there,
    /// whose data blocks end at or before `data_end`.
    ///
    /// Handles must be in the file's order without overlap, which bounds their number by the file's
    /// size, and keys must ascend.
    pub(crate) fn decode(
        block: &[u8],
        offset: u64,
        data_end: u64,
        file_size: u64,
        order: &Order,
    ) -> Result<Index, Error> {
        let corrupt = |defect: Defect| defect.locate(Section::Index, offset);
        let block = Block::parse(block).map_err(corrupt)?;
        block.check_restarts().map_err(corrupt)?;
        let mut index = Index {
            blocks: Vec::with_capacity(block.restart_count()),
            keys: Vec::with_capacity(block.data().len().min(1 << 20)),
            prefixes: Prefixes::default(),
        };
        let mut cursor = BlockCursor::new(block);
        let mut previous_end = 0;
        while cursor.next().map_err(corrupt)? {
            let i = index.blocks.len();
            let key = cursor.key();
            if let Some(last) = i.checked_sub(1)
                && order.compare(index.key(last), key) != Ordering::Less
            {
                return Err(not_ascending(i, index.key(last), key, order));
            }
            let (handle, end) =
                data_block(i, cursor.value(), previous_end, data_end).map_err(corrupt)?;
            previous_end = end;
            index.keys.extend_from_slice(key);
            let key_end = u32::try_from(index.keys.len()).ok();
            let key_end = key_end.filter(|&n| u64::from(n) <= file_size * MAX_KEY_EXPANSION);
            let (Some(key_end), Ok(size)) = (key_end, u32::try_from(handle.size)) else {
                return Err(corrupt(Defect::new(
                    format!(
                        "keys and blocks below 4 GiB, and keys below {MAX_KEY_EXPANSION} times the file"
                    ),
                    format!(
                        "{} bytes of keys and a block of {}",
                        index.keys.len(),
                        handle.size
                    ),
                )));
            };
            index.blocks.push(IndexEntry {
                offset: handle.offset,
                size,
                key_end,
            });
        }
        index.blocks.shrink_to_fit();
        index.keys.shrink_to_fit();
        if let Order::Bytewise = order {
            index.prefixes = Prefixes::of(&index);
        }
        Ok(index)
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The handle of data block `i`, one of `0..len()`.
    #[inline]
    pub(crate) fn handle(&self, i: usize) -> BlockHandle {
        let entry = self.blocks.get(i);
        entry.map_or(BlockHandle::default(), |entry| BlockHandle {
            offset: entry.offset,
            size: entry.size.into(),
        })
    }

    /// A key at or after the last of data block `i` and before the first of the next.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let end_of = |i: usize| self.blocks.get(i).map_or(0, |entry| entry.key_end as usize);
        let start = i.checked_sub(1).map_or(0, end_of);
        self.keys.get(start..end_of(i)).unwrap_or_default()
    }

    /// Whether there are keys, all of which could be a database's.
    pub(crate) fn looks_internal(&self) -> bool {
        self.len() > 0 && (0..self.len()).all(|i| internal_key::is_plausible(self.key(i)))
    }

    /// The one data block that can hold `key`; `None` behind the last.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8], order: &Order) -> Option<usize> {
        let before_last = self.len().checked_sub(1)?;
        let i = match order {
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0, before_last, order),
        };
        (i < before_last || order.compare(self.key(before_last), key) != Ordering::Less)
            .then_some(i)
    }

    /// The first of all keys but the last that is at or after `key`, in bytewise order.
    #[inline]
    fn seek_by_prefix(&self, key: &[u8]) -> usize {
        let Prefixes {
            shared,
            after_shared,
        } = &self.prefixes;
        let common = self.key(0).get(..*shared).unwrap_or_default();
        let (head, rest) = key.split_at_checked(*shared).unwrap_or((key, &[]));
        match head.cmp(common) {
            Ordering::Less => 0,
            Ordering::Greater => after_shared.len(),
            Ordering::Equal => {
                let prefix = big_endian_prefix(rest);
                let low = after_shared.partition_point(|&p| p < prefix);
                if after_shared.get(low) != Some(&prefix) {
                    return low;
                }
                let ties = after_shared.iter().skip(low).take_while(|&&p| p == prefix);
                self.first_at_or_after(key, low, low + ties.count(), &Order::Bytewise)
            }
        }
    }

    /// The first `i` of `low..high` whose key is at or after `key`, or `high`.
    fn first_at_or_after(
        &self,
        key: &[u8],
        mut low: usize,
        mut high: usize,
        order: &Order,
    ) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if order.compare(self.key(middle), key) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl Prefixes {
    fn of(index: &Index) -> Prefixes {
        let count = index.len().saturating_sub(1);
        // Keys ascend, so what the first and the last of them share, all share.
        let shared = match count {
            0 => 0,
            _ => common_prefix(index.key(0), index.key(count - 1)),
        };
        let after = |i| big_endian_prefix(index.key(i).get(shared..).unwrap_or_default());
        Prefixes {
            shared,
            after_shared: (0..count).map(after).collect(),
        }
    }
}

/// The first eight bytes of `key` as a number that orders as they do; zeros where it is shorter.
#[inline]
fn big_endian_prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Decodes and checks the handle of data block `i`; answers where the block's frame ends, too.
fn data_block(
    i: usize,
    value: &[u8],
    previous_end: u64,
    data_end: u64,
) -> Result<(BlockHandle, u64), Defect> {
    // Bytes behind the handle are let be, as by LevelDB.
    let Some((handle, _)) = BlockHandle::decode(value) else {
        return Err(Defect::new(
            format!("a handle for data block {i}"),
            format!("{value:02x?}"),
        ));
    };
    match handle.end() {
        Some(end) if handle.offset >= previous_end && end <= data_end => Ok((handle, end)),
        _ => Err(Defect::new(
            format!("data block {i} between offsets {previous_end} and {data_end}"),
            format!("{} bytes and a trailer at {}", handle.size, handle.offset),
        )),
    }
}

#[cold]
fn not_ascending(i: usize, previous: &[u8], key: &[u8], order: &Order) -> Error {
    Error::new(
        ErrorKind::Comparator,
        format!(
            "index keys {} and {i} do not ascend under comparator {:?}: {} before {}; \
             open the table with the comparator it was written with (and as a DbTable if it is a database's)",
            i - 1,
            order.comparator().name(),
            show_key(previous),
            show_key(key)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::BlockBuilder;
    use proptest::prelude::*;

    fn encode(keys: &[Vec<u8>], interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        for (i, key) in keys.iter().enumerate() {
            let mut value = Vec::new();
            let handle = BlockHandle {
                offset: 20 * i as u64,
                size: 15,
            };
            handle.encode(&mut value);
            builder.add(key, &value);
        }
        builder.finish(<[u8]>::to_vec)
    }

    fn decode(block: &[u8]) -> Result<Index, Error> {
        Index::decode(block, 1 << 20, 1 << 20, 2 << 20, &Order::Bytewise)
    }

    proptest! {
        /// Keys of few letters and zeros make ties, common prefixes, and prefixes of each other.
        #[test]
        fn seeks_agree_with_a_linear_search(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..14), 0..50),
            head in prop::collection::vec(0u8..2, 0..12),
            targets in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..16), 30),
            last_is_successor: bool,
            interval in 1usize..4,
        ) {
            let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| [&head[..], key].concat()).collect();
            if last_is_successor {
                keys.push(vec![0xff; 20]);
            }
            let index = decode(&encode(&keys, interval)).unwrap();
            prop_assert_eq!(index.len(), keys.len());
            let targets = targets.iter().flat_map(|t| [t.clone(), [&head[..], t].concat()]);
            for target in targets.chain(keys.clone()) {
                let expected = keys.iter().position(|key| *key >= target);
                prop_assert_eq!(index.seek(&target, &Order::Bytewise), expected, "{:?}", target);
            }
            for (i, key) in keys.iter().enumerate() {
                prop_assert_eq!(index.key(i), &key[..]);
                prop_assert_eq!(index.handle(i).offset, 20 * i as u64);
            }
        }
    }

    fn one(key: &[u8], offset: u64, size: u64) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        BlockHandle { offset, size }.encode(&mut value);
        (key.to_vec(), value)
    }

    #[test]
    fn handles_that_overlap_repeat_or_leave_the_file_are_refused() {
        for bad in [
            one(b"b", 0, 10),
            one(b"b", 14, 10),
            one(b"b", 5, 1),
            one(b"b", 1 << 20, 1),
            one(b"b", (1 << 20) - 5, 1),
            one(b"b", u64::MAX, 1),
            one(b"b", u64::MAX - 5, 5),
            one(b"b", 20, u64::MAX),
            (b"b".to_vec(), vec![]),
            (b"b".to_vec(), vec![0x80]),
        ] {
            let mut builder = BlockBuilder::new(1);
            let (key, value) = one(b"a", 0, 10);
            builder.add(&key, &value);
            builder.add(&bad.0, &bad.1);
            let error = decode(&builder.finish(<[u8]>::to_vec)).unwrap_err();
            let corruption = error.corruption().unwrap();
            assert_eq!(corruption.section(), Section::Index);
            assert!(corruption.expected().contains("data block 1"), "{error}");
        }
    }

    #[test]
    fn keys_that_do_not_ascend_show_the_wrong_comparator() {
        let error = decode(&encode(&[b"b".to_vec(), b"a".to_vec()], 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(
            error.to_string().contains("leveldb.BytewiseComparator"),
            "{error}"
        );
    }

    /// 2 000 keys that share a prefix of 100 000 bytes would unfold to 200 MB.
    #[test]
    fn keys_that_unfold_without_bound_are_refused() {
        let keys: Vec<Vec<u8>> = (0..2000u32)
            .map(|i| [vec![b'k'; 100_000], i.to_be_bytes().to_vec()].concat())
            .collect();
        let block = encode(&keys, usize::MAX);
        let error = decode(&block).unwrap_err();
        assert!(error.to_string().contains("32 times the file"), "{error}");
    }
}
