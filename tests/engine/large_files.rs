//! Offsets and sizes beyond 32 bits: what only tables larger than the address space of a 32-bit machine
//! reach. Runs on 64-bit machines, too.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Compression, ErrorKind, OpenOptions, ReadAt, WriteOptions};

/// Leaves out whole pages of zeros, so that a file of gigabytes takes little of the disk.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for page in bytes.chunks(1 << 16) {
            if page.iter().all(|&byte| byte == 0) {
                self.0.seek(SeekFrom::Current(page.len() as i64))?;
            } else {
                self.0.write_all(page)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

const LARGE_VALUE: usize = 64 << 20;

/// A table of 4.5 GiB: every eighth entry is small, and the others hold 64 MiB of zeros each.
#[test]
#[ignore = "writes and reads 9 GB, if zeros: takes a release build"]
fn a_table_beyond_4_gib_is_written_and_read() {
    let options = WriteOptions::leveldb().compression(Compression::None);
    let file = tempfile::tempfile().unwrap();
    let mut builder = options.build(Sparse(file.try_clone().unwrap()));
    let large = vec![0; LARGE_VALUE];
    let key = |i: usize| format!("key {i:03}");
    let is_large = |i: usize| !i.is_multiple_of(8);
    for i in 0..84 {
        let small = key(i);
        let value = if is_large(i) {
            &large
        } else {
            small.as_bytes()
        };
        builder.add(key(i).as_bytes(), value).unwrap();
    }
    let written = builder.finish().unwrap();
    assert!(written.file_bytes > 4 << 30, "{}", written.file_bytes);
    assert_eq!(file.metadata().unwrap().len(), written.file_bytes);

    let file = Arc::new(file);
    let table = OpenOptions::new().open_source(file).unwrap();
    for i in (0..84).rev() {
        if is_large(i) && i != 1 && i != 83 {
            continue;
        }
        let value = table.get(key(i).as_bytes()).unwrap().unwrap();
        if is_large(i) {
            assert!(value == large, "{i}");
        } else {
            assert_eq!(value, key(i).as_bytes());
        }
    }
}

// ---- Handles of 4 GiB and more ------------------------------------------------------------------

const GIB: u64 = 1 << 30;

/// A file of many gigabytes, nearly all of which cannot be read.
struct Islands {
    size: u64,
    islands: Vec<(u64, Bytes)>,
}

impl ReadAt for Islands {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let read =
            |(start, bytes): &(u64, Bytes)| bytes.read_at(offset.checked_sub(*start)?, len).ok();
        if let Some(found) = self.islands.iter().find_map(read) {
            return Ok(found);
        }
        // The end of the file, of which opening reads more than the footer: zeros before it.
        let (_, footer) = self.islands.last().unwrap();
        if offset + len as u64 != self.size {
            return Err(io::Error::other("nothing there"));
        }
        let mut end = vec![0; len];
        end[len - footer.len()..].copy_from_slice(footer);
        Ok(end.into())
    }
}

/// Where a block lies, as a footer, an index or a metaindex says it.
#[derive(Clone, Copy)]
struct Handle {
    offset: u64,
    size: u64,
}

impl Handle {
    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mut number in [self.offset, self.size] {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes
    }
}

/// A block with its trailer: no codec, and the masked checksum.
fn frame(mut block: Vec<u8>) -> Vec<u8> {
    block.push(0);
    let checksum = crc32c::crc32c(&block).rotate_right(15);
    block.extend(checksum.wrapping_add(0xa282_ead8).to_le_bytes());
    block
}

/// The frame of a block with one entry and one restart.
fn frame_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    let lengths = [0, key.len() as u8, value.len() as u8];
    frame([&lengths, key, value, &[0; 4], &1u32.to_le_bytes()].concat())
}

/// What is added to a block's true offset and size in its handle.
#[derive(Default, Clone, Copy)]
struct Lies {
    data: (u64, u64),
    filter: (u64, u64),
    index: (u64, u64),
}

/// A table of one entry, `key` with value `value`, whose data block lies at 5 GiB, and everything after it
/// at 15 GiB.
fn table_with(lies: Lies) -> Islands {
    let tell = |offset: u64, frame: &[u8], lie: (u64, u64)| Handle {
        offset: offset + lie.0,
        size: frame.len() as u64 - 5 + lie.1,
    };
    let data = frame_of(b"key", b"value");
    let data_handle = tell(5 * GIB, &data, lies.data);

    let tail_at = 15 * GIB;
    // One filter for all, of one byte whose bits are all set, and one probe.
    let filter = frame([&[0xff, 1, 0, 0, 0, 0], &2u32.to_le_bytes()[..], &[63]].concat());
    let mut tail = filter.clone();
    let filter_handle = tell(tail_at, &filter, lies.filter);
    let metaindex = frame_of(
        b"filter.leveldb.BuiltinBloomFilter2",
        &filter_handle.encode(),
    );
    let metaindex_handle = tell(tail_at + tail.len() as u64, &metaindex, (0, 0));
    tail.extend(metaindex);
    let index = frame_of(b"key", &data_handle.encode());
    let index_handle = tell(tail_at + tail.len() as u64, &index, lies.index);
    tail.extend(index);
    let mut footer = [metaindex_handle.encode(), index_handle.encode()].concat();
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    let footer_at = 25 * GIB; // room for what the lies speak of
    Islands {
        size: footer_at + footer.len() as u64,
        islands: vec![
            (5 * GIB, data.into()),
            (tail_at, tail.into()),
            (footer_at, footer.into()),
        ],
    }
}

/// Cut to 32 bits, each of these lies would be the truth.
#[test]
fn handles_beyond_32_bits_are_not_cut() {
    let open = |lies| OpenOptions::new().open_source(Arc::new(table_with(lies)));
    let truth = open(Lies::default()).unwrap();
    assert_eq!(truth.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(
        truth.filter().unwrap().policy,
        "leveldb.BuiltinBloomFilter2"
    );

    let (too_long, too_far) = ((0, 4 * GIB), (4 * GIB, 0));
    // No block is as long, on any machine.
    for (lie, kind) in [(too_long, ErrorKind::Corruption), (too_far, ErrorKind::Io)] {
        let lies = Lies {
            data: lie,
            ..Lies::default()
        };
        let error = open(lies).and_then(|table| table.get(b"key")).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    for (lie, kind) in [(too_long, ErrorKind::Corruption), (too_far, ErrorKind::Io)] {
        let of_filter = Lies {
            filter: lie,
            ..Lies::default()
        };
        let of_index = Lies {
            index: lie,
            ..Lies::default()
        };
        for lies in [of_filter, of_index] {
            // The filter is read when it is first asked.
            let error = open(lies).and_then(|table| table.get(b"key")).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
