//! A table's index in memory: which data block may hold a key, without touching the file.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::error::{Error, ErrorKind, Section, show_key};
use crate::format::Defect;
use crate::format::block::{Block, BlockBuilder};
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::internal_key;

/// The index block, checked once: searching it cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next
/// block's, and the block's handle. Takes the index block and 20 bytes a data block.
#[derive(Debug)]
pub(crate) struct Index {
    /// The index block. Every key in it is stored whole, so that its restarts find its entries.
    block: Block<Bytes>,
    handles: Vec<PackedHandle>,
    prefixes: Prefixes,
}

/// A handle in 12 bytes, so that a lookup finds it with one cache miss.
#[derive(Debug, Clone, Copy)]
struct PackedHandle {
    /// Low and high half of the offset.
    offset: [u32; 2],
    size: u32,
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
    /// Every [`STRIDE`](Prefixes::STRIDE)th of them: a search begins here, in the fastest cache.
    sparse: Vec<u64>,
}

/// Most memory that keys may unfold to, in multiples of the file's size.
///
/// LevelDB stores index keys whole, and nothing unfolds. In another's index that shares prefixes, a
/// hostile one, it could be the square of the block's length.
const MAX_UNFOLDED: u64 = 32;

/// Where an index block lies, and what its entries are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlace {
    /// Offset of the index block in the file.
    pub(crate) offset: u64,
    /// Where the data blocks must have ended.
    pub(crate) data_end: u64,
    pub(crate) file_size: u64,
}

impl Index {
    /// Checks the index block `contents`.
    ///
    /// Handles must be in the file's order without overlap, which bounds their number by the file's
    /// size, and keys must ascend.
    pub(crate) fn decode(
        contents: Bytes,
        place: IndexPlace,
        order: &Order,
    ) -> Result<Index, Error> {
        let corrupt = |defect: Defect| defect.locate(Section::Index, place.offset);
        let mut block = Block::parse(contents).map_err(corrupt)?;
        if !block.stores_keys_whole().map_err(corrupt)? {
            block = unfold(&block, place).map_err(corrupt)?;
        }
        let mut index = Index {
            handles: Vec::with_capacity(block.restart_count()),
            block,
            prefixes: Prefixes::default(),
        };
        index.decode_handles(place, order)?;
        if let Order::Bytewise = order {
            index.prefixes = Prefixes::of(&index);
        }
        Ok(index)
    }

    /// Checks all entries, and takes their handles down.
    fn decode_handles(&mut self, place: IndexPlace, order: &Order) -> Result<(), Error> {
        let corrupt = |defect: Defect| defect.locate(Section::Index, place.offset);
        let Index { block, handles, .. } = self;
        let count = if block.is_empty() {
            0
        } else {
            block.restart_count()
        };
        let mut previous: Option<&[u8]> = None;
        let mut previous_end = 0;
        for i in 0..count {
            let (key, value) = block.restart_entry(i).unwrap_or_default();
            if let Some(previous) = previous
                && order.compare(previous, key) != Ordering::Less
            {
                return Err(not_ascending(i, previous, key, order));
            }
            previous = Some(key);
            let bounds = previous_end..place.data_end;
            let (handle, end) = decode_handle(value, bounds).map_err(|found| {
                let place = format!(
                    "data block {i} between {previous_end} and {}",
                    place.data_end
                );
                corrupt(Defect::new(place, found))
            })?;
            handles.push(handle);
            previous_end = end;
        }
        Ok(())
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// The handle of data block `i`, one of `0..len()`.
    #[inline]
    pub(crate) fn handle(&self, i: usize) -> BlockHandle {
        let packed = self.handles.get(i);
        packed.map_or(BlockHandle::default(), |packed| BlockHandle {
            offset: u64::from(packed.offset[1]) << 32 | u64::from(packed.offset[0]),
            size: packed.size.into(),
        })
    }

    /// A key at or after the last of data block `i` and before the first of the next.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        self.block.restart_entry(i).unwrap_or_default().0
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
            ..
        } = &self.prefixes;
        let common = self.key(0).get(..*shared).unwrap_or_default();
        let (head, rest) = key.split_at_checked(*shared).unwrap_or((key, &[]));
        match head.cmp(common) {
            Ordering::Less => 0,
            Ordering::Greater => after_shared.len(),
            Ordering::Equal => {
                let prefix = big_endian_prefix(rest);
                let low = self.prefixes.first_at_or_after(prefix);
                let ties = after_shared.get(low..).unwrap_or_default();
                match ties.partition_point(|&p| p == prefix) {
                    0 => low,
                    ties => self.first_at_or_after(key, low, low + ties, &Order::Bytewise),
                }
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
    const STRIDE: usize = 64;

    /// The first that is at or after `prefix`, or their number.
    #[inline]
    fn first_at_or_after(&self, prefix: u64) -> usize {
        // Before the sparse one found all are smaller, up to a stride; from it on, none is.
        let end = self.sparse.partition_point(|&p| p < prefix) * Self::STRIDE;
        let start = end.saturating_sub(Self::STRIDE);
        let end = end.min(self.after_shared.len());
        let dense = self.after_shared.get(start..end).unwrap_or_default();
        start + dense.partition_point(|&p| p < prefix)
    }

    fn of(index: &Index) -> Prefixes {
        let count = index.len().saturating_sub(1);
        // Keys ascend, so what the first and the last of them share, all share.
        let shared = match count {
            0 => 0,
            _ => common_prefix(index.key(0), index.key(count - 1)),
        };
        let after = |i| big_endian_prefix(index.key(i).get(shared..).unwrap_or_default());
        let after_shared: Vec<u64> = (0..count).map(after).collect();
        let sparse = after_shared.iter().copied().step_by(Self::STRIDE);
        Prefixes {
            shared,
            sparse: sparse.collect(),
            after_shared,
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

/// Decodes and checks a data block's handle, which lies within `bounds`; answers where its frame ends, too.
/// The error says what was found.
fn decode_handle(value: &[u8], bounds: Range<u64>) -> Result<(PackedHandle, u64), String> {
    // Bytes behind the handle are let be, as by LevelDB.
    let Some((handle, _)) = BlockHandle::decode(value) else {
        let value = value.get(..BlockHandle::MAX_LEN).unwrap_or(value);
        return Err(format!("no handle: {value:02x?}"));
    };
    let end = handle.end().filter(|&end| end <= bounds.end);
    match (end, u32::try_from(handle.size)) {
        (Some(end), Ok(size)) if handle.offset >= bounds.start => {
            let offset = [handle.offset as u32, (handle.offset >> 32) as u32];
            Ok((PackedHandle { offset, size }, end))
        }
        _ => Err(format!(
            "{} bytes and a trailer at {}",
            handle.size, handle.offset
        )),
    }
}

/// The same block with every key stored whole.
fn unfold(block: &Block<Bytes>, place: IndexPlace) -> Result<Block<Bytes>, Defect> {
    block.check_restarts()?;
    let most = place
        .file_size
        .saturating_mul(MAX_UNFOLDED)
        .min(isize::MAX as u64 / 2);
    let mut builder = BlockBuilder::new(1);
    let mut cursor = BlockCursor::new(block.clone());
    while cursor.next()? {
        let (key, value) = (cursor.key(), cursor.value());
        let len = (builder.len() + key.len() + value.len()) as u64;
        if len > most || !builder.has_room(key.len(), value.len()) {
            return Err(Defect::new(
                format!("keys that unfold to {MAX_UNFOLDED} times the file at most, and to 4 GiB"),
                format!("{len} bytes of entries"),
            ));
        }
        builder.add(key, common_prefix(builder.last_key(), key), value);
    }
    Block::parse(builder.finish(Bytes::copy_from_slice))
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
            builder.add(key, common_prefix(builder.last_key(), key), &value);
        }
        builder.finish(<[u8]>::to_vec)
    }

    fn decode(block: &[u8]) -> Result<Index, Error> {
        let place = IndexPlace {
            offset: 1 << 20,
            data_end: 1 << 20,
            file_size: 2 << 20,
        };
        Index::decode(Bytes::copy_from_slice(block), place, &Order::Bytewise)
    }

    proptest! {
        /// Keys of few letters and zeros make ties, common prefixes, and prefixes of each other.
        #[test]
        fn seeks_agree_with_a_linear_search(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..14), 0..300),
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
            builder.add(&key, 0, &value);
            builder.add(&bad.0, 0, &bad.1);
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
