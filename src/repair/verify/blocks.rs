//! Reads blocks by their handles and checks frame and structure, whatever they hold.

use bytes::Bytes;

use super::Verifier;
use super::report::Severity;
use crate::error::{ErrorKind, Section};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame;

/// Where a block lies in the file, including its trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) end: u64,
    pub(super) section: Section,
}

/// The block that holds a handle, and whether it is sound. If not, the handle may be rubbish, unless it leads to a sound block.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedBy {
    pub(super) place: (Section, u64),
    pub(super) is_sound: bool,
}

/// The content of a block, and whether its checksum is right.
pub(super) struct Loaded {
    pub(super) payload: Bytes,
    pub(super) trusted: bool,
}

/// A block whose entries can be walked.
pub(super) struct Parsed {
    pub(super) block: Block<Bytes>,
    pub(super) trusted: bool,
    /// Whether restarts and entries are as they must be. If not, that was reported, and its consequences are not.
    pub(super) well_formed: bool,
}

impl Verifier<'_, '_> {
    pub(super) fn check_footer(&mut self) -> Option<Footer> {
        let place = (Section::Footer, self.file.footer_offset());
        match self.file.footer() {
            Ok(footer) => {
                self.account(place, FOOTER_LEN as u64);
                let mut expected = Vec::new();
                footer.encode(&mut expected);
                let found = self.file.read(place.1, FOOTER_LEN);
                if found.is_ok_and(|found| *found != expected) {
                    let expected = "two handles, then zeros up to the magic number";
                    let found = "other bytes there, which readers ignore";
                    self.report.find(Severity::Note, place, expected, found);
                }
                Some(footer)
            }
            Err(error) if error.kind() == ErrorKind::NotATable => {
                let found = self.file.identify();
                let found = found.unwrap_or_else(|error| error.to_string());
                self.report
                    .find(Severity::Damage, place, "a LevelDB table", found);
                None
            }
            Err(error) => {
                self.report.find_error(place, &error);
                None
            }
        }
    }

    /// Notes that `len` bytes are the block at this place, including its trailer.
    pub(super) fn account(&mut self, (section, offset): (Section, u64), len: u64) {
        self.report.checked_bytes += len;
        self.extents.push(Extent {
            offset,
            end: offset + len,
            section,
        });
    }

    /// The block at `handle`, which the footer holds, if its entries can be walked.
    pub(super) fn load_block(&mut self, handle: BlockHandle, section: Section) -> Option<Parsed> {
        let footer = NamedBy {
            place: (Section::Footer, self.file.footer_offset()),
            is_sound: true,
        };
        let loaded = self.load(handle, section, footer)?;
        self.parse(handle.offset, loaded, section)
    }

    /// Reads the block at `handle` and checks its frame. Returns the content even if the checksum is wrong: some of it may be
    /// right.
    pub(super) fn load(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: NamedBy,
    ) -> Option<Loaded> {
        let place = (section, handle.offset);
        let frame = if named_by.is_sound {
            self.read_frame(handle, section, named_by.place)?
        } else {
            self.try_frame(handle)?
        };
        self.account(place, frame.len() as u64);
        let verified = frame::verify(&frame);
        let trusted = verified.is_ok();
        if let Err(defect) = verified {
            self.report.find_defect(place, defect);
        }
        match frame::open(&frame) {
            Ok(payload) => Some(Loaded { payload, trusted }),
            // One finding a block is enough: a wrong checksum explains the rest.
            Err(_) if !trusted => None,
            Err(defect) => {
                self.report.find_defect(place, defect);
                None
            }
        }
    }

    /// Reads a block and decodes it, also if its checksum is wrong. Returns whether that is right, too.
    pub(super) fn load_as<T>(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: NamedBy,
        decode: impl FnOnce(Bytes) -> Result<T, Defect>,
    ) -> Option<(T, bool)> {
        let Loaded { payload, trusted } = self.load(handle, section, named_by)?;
        let decoded = decode(payload).map_err(|defect| {
            if trusted {
                self.report.find_defect((section, handle.offset), defect);
            }
        });
        decoded.ok().map(|decoded| (decoded, trusted))
    }

    /// The frame at `handle`, which the sound block at `named_by` holds.
    fn read_frame(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Option<Bytes> {
        let len = self.file.check_handle(handle, section);
        let len = len
            .map_err(|defect| self.report.find_defect(named_by, defect))
            .ok()?;
        let place = (section, handle.offset);
        let Some(budget) = self.budget.checked_sub(len) else {
            self.report.find(
                Severity::Unchecked,
                place,
                "handles that lead to each byte of the file once",
                "handles to more than twice the file: this block was not read",
            );
            return None;
        };
        self.budget = budget;
        let frame = self.file.read_frame(handle);
        frame.map_err(|e| self.report.find_error(place, &e)).ok()
    }

    /// Checks the structure of a block. Returns the block if its entries can be walked, even if not to the end.
    pub(super) fn parse(
        &mut self,
        offset: u64,
        loaded: Loaded,
        section: Section,
    ) -> Option<Parsed> {
        let Loaded { payload, trusted } = loaded;
        let parsed = Block::parse(payload).and_then(|block| self.work.take(&block).map(|()| block));
        let parsed = parsed.map_err(|defect| {
            if trusted {
                self.report.find_defect((section, offset), defect);
            }
        });
        let block = parsed.ok()?;
        let checked = block.check_entries();
        let well_formed = checked.is_ok();
        if let Err(defect) = checked
            && trusted
        {
            self.report.find_defect((section, offset), defect);
        }
        Some(Parsed {
            block,
            trusted,
            well_formed,
        })
    }

    /// The frame at `handle`, if it lies in the file, its checksum is right, and `budget` allows it.
    pub(super) fn sound_frame(&self, handle: BlockHandle, budget: &mut u64) -> Option<Bytes> {
        let len = self.file.check_handle(handle, Section::Data).ok()?;
        *budget = budget.checked_sub(len)?;
        let place = (Section::Data, handle.offset);
        let frame = self.file.read_sound_frame(handle, Section::Data, place);
        frame.ok()
    }

    /// The same, within what handles may still ask for.
    pub(super) fn try_frame(&mut self, handle: BlockHandle) -> Option<Bytes> {
        let mut budget = self.budget;
        let frame = self.sound_frame(handle, &mut budget);
        self.budget = budget;
        frame
    }
}
