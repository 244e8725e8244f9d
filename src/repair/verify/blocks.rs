//! Reads blocks by their handles and checks frame and structure, whatever they hold.

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity};
use crate::error::Section;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame;

/// Where a block begins and ends in the file, its trailer included.
pub(super) type Extent = (u64, u64, Section);

impl Verifier<'_, '_> {
    pub(super) fn check_footer(&mut self) -> Option<Footer> {
        let place = (Section::Footer, self.file.footer_offset());
        // It is no gap, even if it is damaged.
        self.extents.push((place.1, self.file.size, place.0));
        let footer = self.file.footer();
        let footer = footer.map_err(|error| self.report.find_error(place, &error));
        let footer = footer.ok()?;
        self.report.checked_bytes += FOOTER_LEN as u64;
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

    /// Notes that `len` bytes are the block at this place, including its trailer.
    pub(super) fn account(&mut self, (section, offset): Place, len: u64) {
        self.report.checked_bytes += len;
        self.extents.push((offset, offset + len, section));
    }

    /// Reads the block at `handle`, checks it and decodes it, even if its checksum is wrong: some of it may be right. Returns
    /// what is in it, and whether the checksum is right.
    ///
    /// `named_by` is where the sound block lies that holds the handle. A handle in a damaged one may be rubbish: it is
    /// followed only to a sound block.
    pub(super) fn load<T>(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: Option<Place>,
        decode: impl FnOnce(Bytes, &mut KeyWork) -> Result<T, Defect>,
    ) -> Option<(T, bool)> {
        let place = (section, handle.offset);
        let frame = match named_by {
            Some(named_by) => self.read_frame(handle, section, named_by)?,
            None => self.sound_frame(handle)?,
        };
        self.account(place, frame.len() as u64);
        let decoded = frame::open(&frame).and_then(|payload| decode(payload, &mut self.work));
        // One finding per block is enough: a wrong checksum explains the rest.
        match (frame::verify(&frame), decoded) {
            (Ok(()), Ok(decoded)) => Some((decoded, true)),
            (Err(defect), decoded) => {
                self.report.find_defect(place, defect);
                decoded.ok().map(|decoded| (decoded, false))
            }
            (Ok(()), Err(defect)) => {
                self.report.find_defect(place, defect);
                None
            }
        }
    }

    /// Reads a block of entries. If its checksum is right, so is its structure up to the last byte.
    pub(super) fn load_entries(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: Option<Place>,
    ) -> Option<(Block<Bytes>, bool)> {
        let loaded = self.load(handle, section, named_by, |payload, work| {
            let block = Block::parse(payload)?;
            work.take(&block).map(|()| block)
        });
        let (block, is_sound) = loaded?;
        let checked = block.check_entries();
        if let Err(defect) = checked
            && is_sound
        {
            self.report.find_defect((section, handle.offset), defect);
            return None;
        }
        Some((block, is_sound))
    }

    /// The frame at `handle`, which the sound block at `named_by` holds.
    fn read_frame(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: Place,
    ) -> Option<Bytes> {
        let len = self.file.check_handle(handle, section);
        let len = len.map_err(|defect| self.report.find_defect(named_by, defect));
        let place = (section, handle.offset);
        let Some(budget) = self.budget.checked_sub(len.ok()?) else {
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

    /// The frame at `handle`, if it lies in the file and its checksum is right.
    pub(super) fn sound_frame(&mut self, handle: BlockHandle) -> Option<Bytes> {
        let len = self.file.check_handle(handle, Section::Data).ok()?;
        self.budget = self.budget.checked_sub(len)?;
        let frame = self.file.read_frame(handle).ok()?;
        frame::verify(&frame).ok().map(|()| frame)
    }
}
