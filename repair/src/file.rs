//! The source of a table: bytes at offsets, blocks at handles, and errors with their place.

use std::io;
use std::iter;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use leveltable::format::{BlockHandle, Defect, Entries, Footer, open_frame, verify_frame};
use leveltable::sister_crates::{PEEK_LEN, describe, foreign_table};
use leveltable::{Error, ErrorKind, ReadAt, Result, Section, Source};

/// A source and its size.
#[derive(Debug)]
pub(crate) struct File {
    source: Source,
    pub(crate) size: u64,
}

impl File {
    pub(crate) fn new(source: Source) -> Result<File> {
        let size = source.size();
        let mut file = File { source, size: 0 };
        file.size = size.map_err(|e| file.at_path(Error::io("asking for the table's size", e)))?;
        Ok(file)
    }

    /// The error with the path of the file, if it is known.
    pub(crate) fn at_path(&self, error: Error) -> Error {
        match self.source.name() {
            Some(path) => error.at_path(&PathBuf::from(path)),
            None => error,
        }
    }

    /// The bytes at `range`.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let (start, len) = (range.start, range.end - range.start);
        let short = |found| io::Error::new(io::ErrorKind::UnexpectedEof, found);
        let read = match usize::try_from(len) {
            _ if range.end > self.size => Err(short(format!("the file has {} bytes", self.size))),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
            Ok(len) => self.source.read_at(start, len),
        };
        match read {
            Ok(bytes) if bytes.len() as u64 == len => return Ok(bytes),
            Ok(bytes) => Err(short(format!("the source returned {} bytes", bytes.len()))),
            Err(error) => Err(error),
        }
        .map_err(|e| Error::io(format!("reading {len} bytes at offset {start}"), e))
    }

    /// Where the footer begins; 0 if the file is too short for one.
    pub(crate) fn footer_offset(&self) -> u64 {
        self.size.saturating_sub(Footer::LEN as u64)
    }

    /// The footer; if there is none, the error says what the file is.
    pub(crate) fn footer(&self) -> Result<Footer> {
        let bytes = self.read(self.footer_offset()..self.size)?;
        Footer::decode(&bytes).or_else(|defect| {
            let has_magic = bytes.ends_with(&Footer::MAGIC.to_le_bytes());
            if has_magic && bytes.len() == Footer::LEN {
                return Err(defect.locate(Section::Footer, self.footer_offset()));
            }
            let len = self.size.min(PEEK_LEN as u64);
            let (head, tail) = (self.read(0..len)?, self.read(self.size - len..self.size)?);
            Err(not_a_table(&describe(&head, &tail, self.size)))
        })
    }

    /// Rejects a table of one of LevelDB's relatives, whose blocks may be sound and still not be a table's data.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        // If the end cannot be read, the file may still be a table.
        let footer = self.read(self.footer_offset()..self.size).ok();
        let foreign = footer.and_then(|footer| foreign_table(&footer));
        foreign.map_or(Ok(()), |what| Err(not_a_table(&what)))
    }

    /// Where the frame of the block of `section` at `handle` lies, before the footer. `named_by` is the section that contains
    /// the handle.
    pub(crate) fn range_of(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Range<u64>> {
        let checked = handle.check(section, self.footer_offset());
        checked.map_err(|defect| defect.locate(named_by.0, named_by.1))
    }

    /// The block in the frame at `range`, whose checksum is verified.
    pub(crate) fn read_block(&self, range: Range<u64>, section: Section) -> Result<Bytes> {
        let offset = range.start;
        let block = open_sound(&self.read(range)?);
        block.map_err(|defect| defect.locate(section, offset))
    }
}

/// The block in a frame, whose checksum is verified.
pub(crate) fn open_sound(frame: &Bytes) -> Result<Bytes, Defect> {
    verify_frame(frame)?;
    open_frame(frame)
}

/// The ranges of the blocks in an index.
pub(crate) fn handles(index: &Bytes) -> impl Iterator<Item = Range<u64>> {
    let mut entries = Entries::of_damaged(index.clone()).ok();
    iter::from_fn(move || {
        let entries = entries.as_mut()?;
        let is_there = entries.advance().unwrap_or(false);
        is_there
            .then(|| BlockHandle::decode(entries.value()).and_then(|(handle, _)| handle.frame()))
    })
    .flatten()
}

fn not_a_table(what: &str) -> Error {
    Error::new(ErrorKind::NotATable, format!("this is {what}"))
}
