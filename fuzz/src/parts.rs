//! A table in its parts, which can be edited and put together again, with checksums that are right.

use arbitrary::Arbitrary;

use crate::naive::{self, Block, FOOTER_LEN, Handle, TRAILER_LEN};

/// A block as it is stored.
#[derive(Debug, Clone)]
struct Stored {
    bytes: Vec<u8>,
    codec: u8,
}

/// The parts of a table.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The data blocks, each with its index key.
    data: Vec<(Vec<u8>, Stored)>,
    /// The filter block, with its name in the metaindex.
    filter: Option<(Vec<u8>, Stored)>,
}

/// One of the blocks of a table. Data blocks are counted round and round.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Part {
    /// A data block.
    Data(u8),
    /// The filter block.
    Filter,
    /// The metaindex block.
    Metaindex,
    /// The index block.
    Index,
}

/// A change of some bytes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Change {
    /// Where, counted round and round; in the upper half of its range from the end.
    at: u16,
    how: How,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum How {
    Set(u8),
    Flip(u8),
    Word(u32),
    Varint(u64),
    Insert(u8),
    Remove(u8),
    Truncate,
}

/// A change of a table.
#[derive(Debug, Clone, Arbitrary)]
pub enum Edit {
    /// Of the content of a block, before it is compressed.
    Content(Part, Change),
    /// Of what is stored of it.
    Stored(Part, Change),
    /// Of the byte that names the codec.
    Codec(Part, u8),
    /// The block is compressed with Snappy.
    Compress(Part),
    /// Of what the handle of a block says.
    Handle(Part, HandleEdit),
    /// Of an index key.
    IndexKey(u8, Change),
    /// The index key is stored without what it shares with the one before, as by no LevelDB.
    IndexRestart(u8),
    /// Two data blocks change places, but for their index keys.
    Swap(u8, u8),
    /// A data block is there once more.
    Repeat(u8),
    /// A data block is gone.
    Drop(u8),
    /// The filter is under another name that readers know.
    Rename(u8),
    /// So many bytes stand in front of the block.
    Gap(Part, u8),
    /// Of the footer.
    Footer(u8, u8),
}

/// What becomes of a handle.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum HandleEdit {
    /// It has another offset.
    Offset(u64),
    /// It has another size.
    Size(u64),
    /// It is moved by a little.
    Move(i8),
    /// Its size is a little different.
    Resize(i8),
    /// It is that of another block.
    Of(Part),
}

const FILTER_NAMES: [&[u8]; 4] = [
    b"filter.leveltable.Ribbon1",
    b"filter.leveldb.BuiltinBloomFilter2",
    b"filter.leveldb.BuiltinBloomFilter",
    b"filter.unknown",
];

impl Parts {
    /// The parts of a sound table.
    pub fn of(file: &[u8]) -> Option<Parts> {
        let stored = |handle: Handle| {
            let range = handle.range(file.len())?;
            let (bytes, codec) = (file[range.clone()].to_vec(), file[range.end]);
            Some(Stored { bytes, codec })
        };
        let entries = |handle| {
            let content = stored(handle)?.content()?;
            Some(Block::decode(&content, usize::MAX)?.entries)
        };
        let (metaindex, index) = naive::footer(file)?;
        let data = entries(index)?.into_iter().map(|(key, handle)| {
            let handle = Handle::decode(&mut &handle[..])?;
            Some((key, stored(handle)?))
        });
        let filter = match entries(metaindex)?.pop() {
            Some((name, handle)) => Some((name, stored(Handle::decode(&mut &handle[..])?)?)),
            None => None,
        };
        Some(Parts {
            data: data.collect::<Option<_>>()?,
            filter,
        })
    }

    /// The same table with its first data blocks only. The filter stays, so it knows more keys than there are.
    pub fn truncate(&mut self, data_blocks: usize) {
        self.data.truncate(data_blocks);
    }

    /// The file of these parts, changed by `edits`.
    pub fn write(mut self, edits: &[Edit]) -> Vec<u8> {
        let mut writer = Writer {
            edits,
            file: Vec::new(),
        };
        for edit in edits {
            self.rearrange(edit);
        }
        let mut handles = Vec::new();
        for (i, (_, block)) in self.data.iter().enumerate() {
            handles.push(writer.block(block, |part| self.is_data(part, i)));
        }
        let filter = self.filter.as_ref().map(|(name, block)| {
            let handle = writer.block(block, |part| matches!(part, Part::Filter));
            (name, handle)
        });
        // Where metaindex and index will be is not yet known: a handle that is to be theirs gets their first bytes.
        let here = Handle {
            offset: writer.file.len() as u64,
            size: 8,
        };
        let said = |actual: Handle, is_it: &dyn Fn(Part) -> bool| {
            let other = |part| match part {
                Part::Data(i) => handles.get(usize::from(i) % handles.len().max(1)).copied(),
                Part::Filter => filter.map(|(_, handle)| handle),
                Part::Metaindex | Part::Index => Some(here),
            };
            said(edits, actual, is_it, other)
        };
        let metaindex = filter.map(|(name, handle)| {
            let handle = said(handle, &|part| matches!(part, Part::Filter));
            (&name[..], handle.encode())
        });
        let metaindex = naive::encode_block(
            metaindex
                .iter()
                .map(|(k, v)| (*k, &v[..], usize::MAX, true)),
        );
        let index: Vec<_> = (0..self.data.len())
            .map(|i| said(handles[i], &|part| self.is_data(part, i)).encode())
            .collect();
        let shares = |i| {
            edits
                .iter()
                .any(|e| matches!(e, Edit::IndexRestart(at) if self.is_data(Part::Data(*at), i)))
        };
        let index = self.data.iter().zip(&index).enumerate();
        let index = naive::encode_block(
            index.map(|(i, ((key, _), handle))| (&key[..], &handle[..], usize::MAX, !shares(i))),
        );
        let raw = |bytes| Stored { bytes, codec: 0 };
        let (metaindex, index) = (raw(metaindex), raw(index));
        let write_metaindex =
            |writer: &mut Writer| writer.block(&metaindex, |part| matches!(part, Part::Metaindex));
        let write_index =
            |writer: &mut Writer| writer.block(&index, |part| matches!(part, Part::Index));
        // In both orders: LevelDB's, and that of tables with properties.
        let (metaindex, index) = if self.data.len().is_multiple_of(2) {
            let metaindex = write_metaindex(&mut writer);
            (metaindex, write_index(&mut writer))
        } else {
            let index = write_index(&mut writer);
            (write_metaindex(&mut writer), index)
        };
        let mut footer = said(metaindex, &|part| matches!(part, Part::Metaindex)).encode();
        footer.extend(said(index, &|part| matches!(part, Part::Index)).encode());
        footer.resize(FOOTER_LEN - 8, 0);
        footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        for edit in edits {
            if let Edit::Footer(at, byte) = edit {
                footer[usize::from(*at) % FOOTER_LEN] = *byte;
            }
        }
        writer.file.extend(footer);
        writer.file
    }

    fn is_data(&self, part: Part, i: usize) -> bool {
        matches!(part, Part::Data(at) if usize::from(at) % self.data.len() == i)
    }

    /// Edits that change which parts there are.
    fn rearrange(&mut self, edit: &Edit) {
        let len = self.data.len();
        if len == 0 {
            return;
        }
        match *edit {
            Edit::IndexKey(i, change) => change.apply(&mut self.data[usize::from(i) % len].0),
            Edit::Swap(i, j) => {
                let (i, j) = (usize::from(i) % len, usize::from(j) % len);
                let block = self.data[i].1.clone();
                self.data[i].1 = std::mem::replace(&mut self.data[j].1, block);
            }
            Edit::Repeat(i) if len < 64 => {
                let i = usize::from(i) % len;
                self.data.insert(i, self.data[i].clone());
            }
            Edit::Drop(i) => {
                self.data.remove(usize::from(i) % len);
            }
            Edit::Rename(i) => {
                if let Some((name, _)) = &mut self.filter {
                    *name = FILTER_NAMES[usize::from(i) % FILTER_NAMES.len()].to_vec();
                }
            }
            _ => {}
        }
    }
}

impl Stored {
    fn content(&self) -> Option<Vec<u8>> {
        match self.codec {
            0 => Some(self.bytes.clone()),
            1 => {
                let mut decoder = snap::raw::Decoder::new();
                decoder.decompress_vec(&self.bytes).ok()
            }
            _ => None,
        }
    }
}

struct Writer<'a> {
    edits: &'a [Edit],
    file: Vec<u8>,
}

impl Writer<'_> {
    /// Writes a block, changed by the edits of it.
    fn block(&mut self, block: &Stored, is_it: impl Fn(Part) -> bool) -> Handle {
        let mut block = block.clone();
        for edit in self.edits {
            match edit {
                Edit::Gap(part, len) if is_it(*part) => {
                    self.file.resize(self.file.len() + usize::from(*len), 0);
                }
                Edit::Content(part, change) if is_it(*part) => {
                    if let Some(mut content) = block.content() {
                        change.apply(&mut content);
                        block = Stored {
                            bytes: content,
                            codec: 0,
                        };
                    }
                }
                Edit::Compress(part) if is_it(*part) && block.codec == 0 => {
                    let mut encoder = snap::raw::Encoder::new();
                    if let Ok(bytes) = encoder.compress_vec(&block.bytes) {
                        block = Stored { bytes, codec: 1 };
                    }
                }
                Edit::Stored(part, change) if is_it(*part) => change.apply(&mut block.bytes),
                Edit::Codec(part, codec) if is_it(*part) => block.codec = *codec,
                _ => {}
            }
        }
        let start = self.file.len();
        self.file.extend(&block.bytes);
        self.file.push(block.codec);
        let checksum = naive::checksum(&self.file[start..]);
        self.file.extend(checksum);
        Handle {
            offset: start as u64,
            size: (self.file.len() - start - TRAILER_LEN) as u64,
        }
    }
}

/// What the handle of a block will say.
fn said(
    edits: &[Edit],
    actual: Handle,
    is_it: &dyn Fn(Part) -> bool,
    other: impl Fn(Part) -> Option<Handle>,
) -> Handle {
    let mut said = actual;
    for edit in edits {
        if let Edit::Handle(part, edit) = edit
            && is_it(*part)
        {
            match *edit {
                HandleEdit::Offset(offset) => said.offset = offset,
                HandleEdit::Size(size) => said.size = size,
                HandleEdit::Move(by) => said.offset = said.offset.wrapping_add_signed(by.into()),
                HandleEdit::Resize(by) => said.size = said.size.wrapping_add_signed(by.into()),
                HandleEdit::Of(part) => said = other(part).unwrap_or(said),
            }
        }
    }
    said
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = match self.at {
            at @ 0..0x8000 => usize::from(at) % bytes.len(),
            at => bytes.len() - 1 - usize::from(at - 0x8000) % bytes.len(),
        };
        match self.how {
            How::Set(byte) => bytes[at] = byte,
            How::Flip(bits) => bytes[at] ^= bits,
            How::Word(word) => {
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            How::Varint(value) => {
                let mut varint = Vec::new();
                naive::put_varint(&mut varint, value);
                bytes.splice(at..at + 1, varint);
            }
            How::Insert(byte) => bytes.insert(at, byte),
            How::Remove(len) => {
                let end = bytes.len().min(at + 1 + usize::from(len));
                bytes.drain(at..end);
            }
            How::Truncate => bytes.truncate(at),
        }
    }
}
