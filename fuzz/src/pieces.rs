//! Tables with another `about.pieces`, its checksum right. Written from `docs/format.md`, with none of the crate's code.

use arbitrary::Arbitrary;

use crate::naive::{self, FOOTER_LEN, Handle, put_varint};

/// What a table says of its pieces. If nothing in it is wrong, it is what a writer could have written.
#[derive(Debug, Arbitrary)]
pub struct Lie {
    /// The pieces of the index, up to the entry that is missing from them. The last takes the rest.
    cuts: Vec<Cut>,
    /// Leaves the last piece out.
    drop_last: bool,
    /// Where numbers are changed until they add up to the size of the index.
    balance: Option<u8>,
    /// Changes of the description of each filter.
    filters: [Filter; 2],
    /// Changes of a handle: of the index, or that of another block of the table.
    index: Moved,
    /// Changes of the bytes in the end.
    bytes: Vec<(u16, u8)>,
    /// Cuts the block.
    cut_to: Option<u16>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Cut {
    entries: u8,
    wrong: Wrong,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Wrong {
    Nothing,
    Nor,
    Neither,
    Len(i8),
    Entries(i8),
    Both(i8, i8),
    TopByte(u8, u8),
    TopLonger(u8),
    TopShorter(u8),
    TopOf(u8),
    Offset(i8),
    Size(i8),
    Crc,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Filter {
    moved: Moved,
    lg: u8,
    /// Changes of the copy of its end: where from the end, and to what.
    tail: [Option<(u8, u8)>; 2],
    tail_longer: i8,
    wrong_crc: Option<u8>,
    missing: bool,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Moved {
    Not,
    Nor,
    By(i8, i8),
    Other(u8),
}

impl Moved {
    fn is_true(self) -> bool {
        matches!(self, Moved::Not | Moved::Nor)
    }

    fn apply(self, handle: Handle, others: &[Handle]) -> Handle {
        let Handle { offset, size } = handle;
        match self {
            Moved::Not | Moved::Nor => handle,
            Moved::By(by, longer) => Handle {
                offset: offset.wrapping_add_signed(by.into()),
                size: size.wrapping_add_signed(longer.into()),
            },
            Moved::Other(i) => others[usize::from(i) % others.len()],
        }
    }
}

/// What is said of a piece.
struct Said {
    top: Vec<u8>,
    len: u64,
    entries: u64,
    last: Handle,
    /// Where its bytes begin in the index.
    start: usize,
    wrong_crc: bool,
}

/// `file`, a sound table with pieces, with another `about.pieces`; `None` if it has none.
pub fn lying(file: &[u8], lie: &Lie) -> Option<Vec<u8>> {
    let (metaindex, index) = naive::footer(file)?;
    let mut named = naive::entries_at(file, metaindex)?;
    let handle_of = |value: &[u8]| Handle::decode(&mut &*value);
    let handles: Option<Vec<Handle>> = named.iter().map(|(_, v)| handle_of(v)).collect();
    let handles = handles?;
    let at = named.iter().position(|(name, _)| name == b"about.pieces")?;
    let mut block = lie.block(file, index, &named, &handles)?;
    for &(at, byte) in lie.bytes.iter().take(3) {
        let len = block.len();
        block[usize::from(at) % len] = byte;
    }
    if let Some(len) = lie.cut_to.filter(|len| len % 16 == 0) {
        block.truncate(usize::from(len));
    }
    let mut lying = file[..handles[at].offset as usize].to_vec();
    named[at].1 = seal(&mut lying, &block).encode();
    let named = named.iter().map(|(k, v)| (&k[..], &v[..], 0, true));
    let metaindex = seal(&mut lying, &naive::encode_block(named));
    let mut footer = [metaindex.encode(), index.encode()].concat();
    footer.resize(FOOTER_LEN - 8, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    lying.extend(footer);
    Some(lying)
}

/// Appends a raw block.
fn seal(file: &mut Vec<u8>, block: &[u8]) -> Handle {
    let start = file.len();
    file.extend(block);
    file.push(0);
    let checksum = naive::checksum(&file[start..]);
    file.extend(checksum);
    Handle {
        offset: start as u64,
        size: block.len() as u64,
    }
}

/// The CRC of the bytes, as far as there are any.
fn crc(bytes: &[u8], start: usize, len: usize, wrong: bool) -> [u8; 4] {
    let end = start.saturating_add(len).min(bytes.len());
    let crc = crc32c::crc32c(bytes.get(start..end).unwrap_or(&[]));
    (crc ^ u32::from(wrong)).to_le_bytes()
}

impl Lie {
    /// Whether all that it says is true: it only cuts index and filters elsewhere.
    pub fn is_true(&self) -> bool {
        let is_true = |cut: &Cut| matches!(cut.wrong, Wrong::Nothing | Wrong::Nor | Wrong::Neither);
        let is_whole = self.bytes.is_empty() && self.cut_to.is_none_or(|len| len % 16 != 0);
        is_whole
            && self.cuts.iter().all(is_true)
            && !self.drop_last
            && self.balance.is_none()
            && self.index.is_true()
            && self.filters.iter().all(Filter::is_true)
    }

    fn block(
        &self,
        file: &[u8],
        index: Handle,
        named: &[naive::Entry],
        handles: &[Handle],
    ) -> Option<Vec<u8>> {
        let mut filters = Vec::new();
        let is_filter = |name: &[u8]| {
            name == b"filter.leveltable.Ribbon1" || name.starts_with(b"about.prefixes.")
        };
        let of_filters = named.iter().zip(handles);
        let of_filters = of_filters.filter(|((name, _), _)| is_filter(name));
        let mut count = 0;
        for (filter, (_, handle)) in self.filters.iter().zip(of_filters) {
            if !filter.missing
                && let Some(described) = filter.describe(file, *handle, handles)
            {
                filters.extend(described);
                count += 1;
            }
        }
        let mut block = vec![1, count];
        block.extend(self.index.apply(index, handles).encode());
        block.extend(filters);
        block.extend(self.tops(file, index)?);
        Some(block)
    }

    fn tops(&self, file: &[u8], index: Handle) -> Option<Vec<u8>> {
        let entries = naive::entries_at(file, index)?;
        let bytes = &file[index.range(file.len())?];
        let mut said: Vec<Said> = Vec::new();
        let mut starts = vec![0];
        for (key, value) in &entries {
            let mut header = Vec::new();
            for len in [0, key.len(), value.len()] {
                put_varint(&mut header, len as u64);
            }
            starts.push(starts.last()? + header.len() + key.len() + value.len());
        }
        let mut first = 0;
        let mut cuts = self.cuts.iter();
        while first < entries.len() {
            let (end, wrong) = match cuts.next() {
                Some(cut) => (first + 1 + usize::from(cut.entries % 8), cut.wrong),
                None => (entries.len(), Wrong::Nothing),
            };
            let end = end.min(entries.len());
            let (top, last) = &entries[end - 1];
            let mut piece = Said {
                top: top.clone(),
                len: (starts[end] - starts[first]) as u64,
                entries: (end - first) as u64,
                last: Handle::decode(&mut &last[..])?,
                start: starts[first],
                wrong_crc: false,
            };
            wrong.apply(&mut piece, &entries);
            said.push(piece);
            first = end;
        }
        if self.drop_last {
            said.pop();
        }
        self.balance(&mut said, index.size);
        let values: Vec<Vec<u8>> = said
            .iter()
            .map(|piece| {
                let mut value = Vec::new();
                put_varint(&mut value, piece.len);
                put_varint(&mut value, piece.entries);
                value.extend(piece.last.encode());
                value.extend(crc(bytes, piece.start, piece.len as usize, piece.wrong_crc));
                value
            })
            .collect();
        let tops = said.iter().zip(&values).enumerate();
        let tops =
            tops.map(|(i, (said, value))| (&said.top[..], &value[..], usize::MAX, i % 16 == 0));
        Some(naive::encode_block(tops))
    }

    /// Makes the sum of the pieces the size of the index.
    fn balance(&self, said: &mut [Said], size: u64) {
        let Some(at) = self.balance.filter(|_| !said.is_empty()) else {
            return;
        };
        let sum = said.iter().fold(4u64, |sum, piece| {
            sum.wrapping_add(piece.len)
                .wrapping_add(piece.entries.wrapping_mul(4))
        });
        let missing = size.wrapping_sub(sum);
        let at = usize::from(at) % said.len();
        let piece = &mut said[at];
        if missing.is_multiple_of(4) && missing < size {
            piece.entries += missing / 4;
        } else {
            piece.len = piece.len.wrapping_add(missing);
        }
        // Where pieces begin follows from their lengths.
        let mut start = 0usize;
        for piece in said {
            piece.start = start;
            start = start.saturating_add(piece.len as usize);
        }
    }
}

impl Wrong {
    fn apply(self, piece: &mut Said, entries: &[naive::Entry]) {
        match self {
            Wrong::Nothing | Wrong::Nor | Wrong::Neither => {}
            Wrong::Len(by) => piece.len = piece.len.saturating_add_signed(by.into()),
            Wrong::Entries(by) => piece.entries = piece.entries.saturating_add_signed(by.into()),
            Wrong::Both(len, entries) => {
                piece.len = piece.len.saturating_add_signed(len.into());
                piece.entries = piece.entries.saturating_add_signed(entries.into());
            }
            Wrong::TopByte(at, byte) => {
                let len = piece.top.len().max(1);
                if let Some(to) = piece.top.get_mut(usize::from(at) % len) {
                    *to = byte;
                }
            }
            Wrong::TopLonger(byte) => piece.top.push(byte),
            Wrong::TopShorter(by) => {
                let len = piece.top.len().saturating_sub(usize::from(by % 4) + 1);
                piece.top.truncate(len);
            }
            Wrong::TopOf(i) => {
                let (key, handle) = &entries[usize::from(i) % entries.len()];
                piece.top.clone_from(key);
                piece.last = Handle::decode(&mut &handle[..]).unwrap_or(piece.last);
            }
            Wrong::Offset(by) => {
                piece.last.offset = piece.last.offset.wrapping_add_signed(by.into());
            }
            Wrong::Size(by) => piece.last.size = piece.last.size.wrapping_add_signed(by.into()),
            Wrong::Crc => piece.wrong_crc = true,
        }
    }
}

impl Filter {
    fn is_true(&self) -> bool {
        let has_tail = self.tail == [None; 2] && !matches!(self.tail_longer, -4..=-1 | 1..=4);
        self.missing || has_tail && self.moved.is_true() && self.wrong_crc.is_none()
    }

    /// Describes the filter at `handle`, if it is a ribbon with layers.
    fn describe(&self, file: &[u8], handle: Handle, others: &[Handle]) -> Option<Vec<u8>> {
        let block = &file[handle.range(file.len())?];
        let layers = usize::from(*block.get(block.len().checked_sub(10)?)?);
        let mut tail_len = 4 * layers.checked_sub(1)? + 10 + 9;
        tail_len = tail_len.wrapping_add_signed(match self.tail_longer {
            by @ -4..=4 => by.into(),
            _ => 0,
        });
        let mut tail = block.get(block.len().checked_sub(tail_len)?..)?.to_vec();
        for (at, byte) in self.tail.into_iter().flatten() {
            let at = tail.len().saturating_sub(1 + usize::from(at));
            if let Some(to) = tail.get_mut(at) {
                *to = byte;
            }
        }
        // As the tail says now.
        let number = |from_end: usize| -> Option<u64> {
            let at = tail.len().checked_sub(from_end)?;
            let bytes = tail.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?).into())
        };
        let columns = u64::from(*tail.get(tail.len().checked_sub(11)?)?);
        let layers = usize::from(*tail.get(tail.len().checked_sub(10)?)?);
        let segments = number(19 + 4 * layers.saturating_sub(1)).unwrap_or(0);
        let narrow = number(15)?.min(segments);
        let words = usize::try_from(4 * (segments * columns + segments - narrow)).ok()?;
        let codes = segments.div_ceil(4) as usize;
        let lg = match self.lg {
            lg @ 0..16 => lg + 8,
            _ => 12 + self.lg % 3,
        };
        let mut described = self.moved.apply(handle, others).encode();
        described.push(lg);
        put_varint(&mut described, tail.len() as u64);
        described.extend(&tail);
        let mut number = 0;
        for part in [0..words, words..words.saturating_add(codes)] {
            for start in part.clone().step_by(1 << lg).take(64) {
                let len = (part.end - start).min(1 << lg);
                let wrong = self.wrong_crc == Some(number);
                described.extend(crc(block, start, len, wrong));
                number = number.wrapping_add(1);
            }
        }
        Some(described)
    }
}
