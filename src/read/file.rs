//! A table's file as it is read: bytes at offsets, blocks at handles, and every error with its place.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::read::source::{ReadAt, Source};
use crate::read::stats::{Counter, Counters};
use crate::repair::identify;

/// The source, its size, and what was read of it.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) counters: Counters,
    /// Where it was opened, for messages.
    path: Option<PathBuf>,
}

impl TableFile {
    pub(crate) fn new(source: Source, path: Option<&Path>) -> Result<TableFile> {
        let size = match &source {
            Source::Memory(bytes) => Ok(bytes.len() as u64),
            Source::Io(source) => source.size(),
        };
        Ok(TableFile {
            source,
            size: size.map_err(|e| Error::io("asking for the table's size", e))?,
            counters: Counters::default(),
            path: path.map(Path::to_owned),
        })
    }

    /// Whether the file lies in memory, where reading is no I/O.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory().is_some()
    }

    /// The bytes of the file, if they are in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes),
            Source::Io(_) => None,
        }
    }

    /// `error`, with the path of the file where that is known.
    #[cold]
    pub(crate) fn name_in(&self, error: Error) -> Error {
        match &self.path {
            Some(path) => error.at_path(path),
            None => error,
        }
    }

    /// The error of a defect in the part of this file that begins at `offset`.
    #[cold]
    pub(crate) fn locate(&self, defect: Defect, section: Section, offset: u64) -> Error {
        self.name_in(defect.locate(section, offset))
    }

    /// Where the footer begins; 0 in a file that is too short for one.
    pub(crate) fn footer_offset(&self) -> u64 {
        self.size.saturating_sub(FOOTER_LEN as u64)
    }

    /// The footer; where there is none, the error says what the file is instead.
    pub(crate) fn footer(&self) -> Result<Footer> {
        if self.size < FOOTER_LEN as u64 {
            return Err(self.not_a_table());
        }
        let bytes = self.read(self.footer_offset(), FOOTER_LEN)?;
        if !Footer::has_magic(&bytes) {
            return Err(self.not_a_table());
        }
        Footer::decode(&bytes)
            .map_err(|defect| self.locate(defect, Section::Footer, self.footer_offset()))
    }

    #[cold]
    fn not_a_table(&self) -> Error {
        match self.ends(identify::PEEK_LEN) {
            Ok((head, tail)) => {
                let what = identify::describe(&head, &tail, self.size);
                self.name_in(Error::new(ErrorKind::NotATable, what))
            }
            Err(e) => e,
        }
    }

    /// Refuses a table of one of LevelDB's relatives, whose blocks may be sound and still not be a table's data.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        let len = self.size.min(FOOTER_LEN as u64);
        // What cannot be read is no reason to refuse the rest.
        let tail = self.read(self.size - len, len as usize).unwrap_or_default();
        match identify::foreign_table(&tail) {
            Some(what) => Err(self.name_in(Error::new(ErrorKind::NotATable, what))),
            None => Ok(()),
        }
    }

    /// At most `len` bytes from each end of the file.
    fn ends(&self, len: usize) -> Result<(Bytes, Bytes)> {
        let len = usize::try_from(self.size).map_or(len, |size| size.min(len));
        Ok((self.read(0, len)?, self.read(self.size - len as u64, len)?))
    }

    /// The index block; where it is damaged, the error says what became of the file if its sizes tell.
    pub(crate) fn read_index(&self, footer: &Footer) -> Result<Bytes> {
        let named_by = (Section::Footer, self.footer_offset());
        self.read_block(footer.index, Section::Index, named_by)
            .map_err(|error| match error.kind() {
                ErrorKind::Corruption => {
                    let misfit = self
                        .ends(identify::PEEK_LEN)
                        .ok()
                        .and_then(|(head, _)| identify::describe_misfit(&head, footer, self.size));
                    error.with_hint(misfit.as_deref().unwrap_or("restore the file from a copy"))
                }
                _ => error,
            })
    }

    /// A block other than a data block, which the handle in `named_by` (a section and its offset) names.
    /// Always verified.
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Bytes> {
        let frame = self.read_sound_frame(handle, section, named_by)?;
        frame::open(&frame).map_err(|defect| self.locate(defect, section, handle.offset))
    }

    /// The frame of such a block.
    pub(crate) fn read_sound_frame(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Bytes> {
        let most = self.footer_offset();
        if handle.end().is_none_or(|end| end > most) {
            let defect = Defect::new(
                format!("a handle to the {section}, which ends at or before the footer at {most}"),
                format!(
                    "one to {} bytes and a trailer at {}",
                    handle.size, handle.offset
                ),
            );
            return Err(self.locate(defect, named_by.0, named_by.1));
        }
        let frame = self.read_frame(handle)?;
        match frame::verify(&frame) {
            Ok(()) => Ok(frame),
            Err(defect) => Err(self.locate(defect, section, handle.offset)),
        }
    }

    /// The frame of a block that lies inside the file.
    pub(crate) fn read_frame(&self, handle: BlockHandle) -> Result<Bytes> {
        let len = usize::try_from(handle.size).ok();
        match len.and_then(|len| len.checked_add(TRAILER_LEN)) {
            Some(len) => self.read(handle.offset, len),
            None => Err(self.name_in(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a block of {} bytes does not fit this machine's memory",
                    handle.size
                ),
            ))),
        }
    }

    /// The `len` bytes at `offset`, which lie inside the file.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let read = match &self.source {
            Source::Memory(bytes) => bytes.read_at(offset, len),
            Source::Io(source) => {
                self.counters.add(Counter::SourceReads, 1);
                self.counters.add(Counter::SourceBytes, len as u64);
                source.read_at(offset, len)
            }
        };
        let error = match read {
            Ok(bytes) if bytes.len() == len => return Ok(bytes),
            Ok(bytes) => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the source gave {}", bytes.len()),
            ),
            Err(error) => error,
        };
        let reading = format!("reading {len} bytes at offset {offset}");
        Err(self.name_in(Error::io(reading, error)))
    }
}
