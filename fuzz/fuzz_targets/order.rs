//! Tables whose keys are in no order, or another: index and blocks forged, their checksums right. What is answered is what
//! a walk over the file gives, or an error.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use leveltable_fuzz::ask;
use leveltable_fuzz::naive::{self, FOOTER_LEN, Handle};
use leveltable_fuzz::tables::KeyOrder;
use libfuzzer_sys::fuzz_target;

/// A data block, and what is written of it.
#[derive(Debug)]
struct Forged {
    keys: Vec<Vec<u8>>,
    index_key: Vec<u8>,
    payload: Vec<u8>,
    /// Whether the block is compressed.
    snappy: bool,
}

#[derive(Debug)]
struct Input {
    blocks: Vec<Forged>,
    /// Bytes that make the file too large to be checked when it is opened.
    gap: usize,
}

/// A key: most are of few bytes, so that many are neighbours or equal; some have a tag.
fn key(u: &mut Unstructured, tagged: bool) -> Result<Vec<u8>> {
    let kind: u8 = u.arbitrary()?;
    let mut key = match kind {
        0..0x80 => vec![b'a' + kind % 16],
        0x80..0xc0 => vec![b'a' + kind % 4, u.arbitrary::<u8>()? % 8],
        0xc0..0xe0 => u.bytes(usize::from(kind % 8).min(u.len()))?.to_vec(),
        0xe0..0xf0 => [&b"common prefix "[..], &[kind, u.arbitrary()?]].concat(),
        0xf0.. => vec![0xff; usize::from(kind % 4)],
    };
    if tagged {
        let (sequence, value_type): (u8, u8) = u.arbitrary()?;
        let sequence = match sequence {
            0xff => u64::MAX >> 8,
            small => u64::from(small % 8),
        };
        let value_type = u64::from(value_type % 32 != 0) + u64::from(value_type == 0xff);
        key.extend((sequence << 8 | value_type).to_le_bytes());
    }
    Ok(key)
}

impl Arbitrary<'_> for Input {
    fn arbitrary(u: &mut Unstructured) -> Result<Input> {
        let flags: u8 = u.arbitrary()?;
        let tagged = flags & 1 != 0;
        // Which order the keys are brought into before some of them are moved.
        let sorted = flags >> 1 & 3;
        let gap = match flags >> 3 & 1 {
            0 => 0,
            _ => 66_000,
        };
        let mut sizes = Vec::new();
        for _ in 0..u.int_in_range(0..=7)? {
            sizes.push(u.int_in_range(0..=9usize)?);
        }
        let mut keys = Vec::new();
        for _ in 0..sizes.iter().sum() {
            keys.push(key(u, tagged)?);
        }
        match (sorted, tagged) {
            (0, _) => {}
            (1, false) => keys.sort(),
            (2, false) => keys.sort_by(|a, b| b.cmp(a)),
            (3, false) => keys.sort_by_key(|key| (key.len(), key.clone())),
            (2, true) => keys.sort_by(|a, b| ask::compare_stored_reverse(a, b)),
            (_, true) => keys.sort_by(|a, b| ask::compare_stored(a, b)),
            (4.., _) => unreachable!("two bits"),
        }
        if flags >> 4 & 1 != 0 {
            keys.dedup();
        }
        for _ in 0..u.int_in_range(0..=3)? {
            let moved: [u8; 2] = u.arbitrary()?;
            if !keys.is_empty() {
                let [a, b] = moved.map(|at| usize::from(at) % keys.len());
                match flags >> 5 & 1 {
                    0 => keys.swap(a, b),
                    _ => keys[a] = keys[b].clone(),
                }
            }
        }
        let mut keys = keys.into_iter();
        let mut blocks = Vec::new();
        for size in sizes {
            let keys: Vec<_> = keys.by_ref().take(size).collect();
            blocks.push(Forged::of(u, keys, tagged)?);
        }
        if u.ratio(1, 4)? {
            // Their index keys in order, whatever is in the blocks.
            let mut index: Vec<_> = blocks.iter().map(|block| block.index_key.clone()).collect();
            match (tagged, flags >> 6 & 1) {
                (false, 0) => index.sort(),
                (false, _) => index.sort_by(|a, b| b.cmp(a)),
                (true, 0) => index.sort_by(|a, b| ask::compare_stored(a, b)),
                (true, _) => index.sort_by(|a, b| ask::compare_stored_reverse(a, b)),
            }
            for (block, key) in blocks.iter_mut().zip(index) {
                block.index_key = key;
            }
        }
        Ok(Input { blocks, gap })
    }
}

impl Forged {
    fn of(u: &mut Unstructured, keys: Vec<Vec<u8>>, tagged: bool) -> Result<Forged> {
        let [index, shape, interval]: [u8; 3] = u.arbitrary()?;
        let mut index_key = keys.last().cloned().unwrap_or_default();
        match index {
            0..0xa0 => {}
            0xa0..0xc0 => index_key = key(u, tagged)?,
            0xc0..0xe0 => {
                // A little past the last key, or before it.
                let at = if tagged {
                    index_key.len().checked_sub(9)
                } else {
                    index_key.len().checked_sub(1)
                };
                if let Some(byte) = at.and_then(|at| index_key.get_mut(at)) {
                    *byte = byte.wrapping_add(index % 4).wrapping_sub(1);
                }
            }
            0xe0.. => index_key = keys.first().cloned().unwrap_or_default(),
        }
        let interval = usize::from(interval % 5) + 1;
        let value = |i: usize| vec![b'0' + i as u8, shape];
        let values: Vec<_> = (0..keys.len()).map(value).collect();
        let entries = keys.iter().zip(&values).enumerate();
        let mut payload = naive::encode_block(entries.map(|(i, (key, value))| {
            (
                &key[..],
                &value[..],
                usize::from(shape >> 5),
                i.is_multiple_of(interval),
            )
        }));
        if shape % 8 == 1 {
            // A restart elsewhere, or a number of restarts that is not theirs; or any other byte.
            let [at, byte]: [u8; 2] = u.arbitrary()?;
            let at = payload.len() - 1 - usize::from(at) % payload.len();
            payload[at] = byte;
        }
        Ok(Forged {
            keys,
            index_key,
            payload,
            snappy: shape % 16 == 2,
        })
    }
}

impl Input {
    fn file(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let handles: Vec<_> = self
            .blocks
            .iter()
            .map(|block| {
                let handle = match block.snappy {
                    true => put(
                        &mut file,
                        &snap::raw::Encoder::new()
                            .compress_vec(&block.payload)
                            .unwrap(),
                        1,
                    ),
                    false => put(&mut file, &block.payload, 0),
                };
                handle.encode()
            })
            .collect();
        file.resize(file.len() + self.gap, 0);
        let metaindex = put(&mut file, &naive::encode_block([]), 0);
        let index = self.blocks.iter().zip(&handles);
        let index = naive::encode_block(
            index.map(|(block, handle)| (&block.index_key[..], &handle[..], 0, true)),
        );
        let index = put(&mut file, &index, 0);
        let mut footer = [metaindex.encode(), index.encode()].concat();
        footer.resize(FOOTER_LEN - 8, 0);
        file.extend(footer);
        file.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        file
    }
}

/// Appends a block with its trailer.
fn put(file: &mut Vec<u8>, payload: &[u8], codec: u8) -> Handle {
    let start = file.len();
    file.extend(payload);
    file.push(codec);
    let checksum = naive::checksum(&file[start..]);
    file.extend(checksum);
    Handle {
        offset: start as u64,
        size: payload.len() as u64,
    }
}

fuzz_target!(|input: Input| {
    let file = Bytes::from(input.file());
    let mut more: Vec<_> = input
        .blocks
        .iter()
        .flat_map(|block| block.keys.iter().step_by(3).cloned())
        .collect();
    more.truncate(12);
    more.push(b"c".to_vec());
    for order in [KeyOrder::Bytewise, KeyOrder::ByTrait, KeyOrder::Reverse] {
        ask::as_stored(&file, order, &more);
    }
    ask::as_internal(&file, &more);
    ask::as_reverse_database(&file, &more);
    ask::in_stored_order(&file);
    ask::by_default(&file, &more);
});
