//! Sorted entries in temporary files.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::coding::{MAX_VARINT64_LEN, get_varint64, put_varint};
use crate::error::{Error, Result};
use crate::sorted_input::SortedInput;

/// Number of bytes that are written or read at once.
const BUFFER: usize = 128 << 10;

/// Maximum length of an entry before its key: the lengths of key and value.
pub(super) const MAX_HEADER_LEN: usize = 2 * MAX_VARINT64_LEN;

/// Appends an entry: two lengths, key, value.
pub(super) fn put_entry(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_varint(bytes, key.len() as u64);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
}

/// The key and the value of the entry at the front of `bytes`, and the rest. `None` if the entry is incomplete.
#[inline]
pub(super) fn split_entry(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key_len, header) = get_varint64(bytes)?;
    let (_, rest) = bytes.split_at_checked(header)?;
    let (value_len, header) = get_varint64(rest)?;
    let (key, rest) = rest.get(header..)?.split_at_checked(key_len as usize)?;
    let (value, rest) = rest.split_at_checked(value_len as usize)?;
    Some((key, value, rest))
}

/// Sorted entries in a file. The runs of a level were merged from those of the level before.
pub(super) struct Run {
    file: Arc<File>,
    bytes: u64,
    pub(super) level: u32,
}

/// Is told how many bytes were written to a temporary file.
pub(super) type Progress = Box<dyn FnMut(u64) + Send + Sync>;

/// Writes all entries of `input` to a file that disappears when it is closed. Adds the bytes of each write to `progress`.
pub(super) fn write_run(
    directory: &Path,
    input: &mut dyn SortedInput,
    level: u32,
    progress: &mut Progress,
) -> Result<Run> {
    let failed = |error| failed("writing", directory, error);
    let mut file = tempfile::tempfile_in(directory).map_err(failed)?;
    let (mut buffer, mut bytes, mut has_more) = (Vec::new(), 0, true);
    while has_more {
        has_more = input.advance()?;
        if has_more {
            put_entry(&mut buffer, input.key(), input.value());
        }
        if buffer.len() >= BUFFER || !has_more {
            file.write_all(&buffer).map_err(failed)?;
            bytes += buffer.len() as u64;
            progress(buffer.len() as u64);
            buffer.clear();
        }
    }
    let file = Arc::new(file);
    Ok(Run { file, bytes, level })
}

/// Starts to read a run from its beginning.
pub(super) fn read_run(run: &Run, directory: &Path) -> Result<Box<dyn SortedInput + Send + Sync>> {
    let mut file = run.file.clone();
    file.rewind()
        .map_err(|error| failed("reading", directory, error))?;
    Ok(Box::new(RunReader {
        file,
        directory: directory.to_owned(),
        left: run.bytes,
        buffer: Vec::new(),
        next: 0,
        current: (0, 0),
    }))
}

#[cold]
fn failed(doing: &str, directory: &Path, error: io::Error) -> Error {
    let hint = "all of them need as much room as the entries; Sorter::directory chooses where";
    let doing = format!("{doing} a temporary file of the sorter ({hint})");
    Error::io(doing, error).at_path(directory)
}

/// The entries of a run, read as they are needed.
struct RunReader {
    file: Arc<File>,
    directory: PathBuf,
    /// Number of bytes of the file that have not been read yet.
    left: u64,
    buffer: Vec<u8>,
    /// Where the next entry begins in `buffer`.
    next: usize,
    /// The lengths of the current key and value, which end there.
    current: (usize, usize),
}

impl RunReader {
    /// Reads more bytes after those from `next` on. Fails if there are none.
    fn fill(&mut self) -> io::Result<()> {
        if self.left == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.drain(..self.next);
        self.next = 0;
        let (len, more) = (self.buffer.len(), self.left.min(BUFFER as u64));
        self.buffer.resize(len + more as usize, 0);
        self.file.read_exact(self.buffer.split_at_mut(len).1)?;
        self.left -= more;
        Ok(())
    }

    /// The `len` bytes that end `after` bytes before the next entry.
    fn before_next(&self, len: usize, after: usize) -> &[u8] {
        let end = self.next - after;
        self.buffer.get(end - len..end).unwrap_or_default()
    }
}

impl SortedInput for RunReader {
    fn advance(&mut self) -> Result<bool> {
        self.current = (0, 0);
        loop {
            let rest = self.buffer.get(self.next..).unwrap_or_default();
            if self.left == 0 && rest.is_empty() {
                return Ok(false);
            }
            if let Some((key, value, after)) = split_entry(rest) {
                self.current = (key.len(), value.len());
                self.next = self.buffer.len() - after.len();
                return Ok(true);
            }
            let filled = self.fill();
            filled.map_err(|error| failed("reading", &self.directory, error))?;
        }
    }

    fn key(&self) -> &[u8] {
        let (key_len, value_len) = self.current;
        self.before_next(key_len, value_len)
    }

    fn value(&self) -> &[u8] {
        self.before_next(self.current.1, 0)
    }
}
