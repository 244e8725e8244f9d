//! `about.pieces`: compared with the index and the filters that it divides.

use std::ops::Range;

use super::Verifier;
use super::report::Severity;
use crate::error::Section;
use crate::format::Defect;
use crate::format::footer::BlockHandle;
use crate::format::pieces::Pieces;

/// What is known of a table's pieces until its blocks have been checked.
#[derive(Default)]
pub(super) struct Divided {
    /// What the table says, and where.
    stated: Option<(Pieces, u64)>,
    /// The filters that the metaindex names.
    pub(super) filters: Vec<BlockHandle>,
}

impl Verifier<'_, '_> {
    /// Reads the block at `handle`.
    pub(super) fn read_pieces(
        &mut self,
        handle: BlockHandle,
        named_by: (Section, u64),
        named_surely: bool,
    ) {
        // Otherwise the handle may be rubbish, unless it leads to a sound block.
        if (named_surely || self.try_frame(handle).is_some())
            && let Some(loaded) = self.load(handle, Section::Pieces, named_by)
            && loaded.trusted
        {
            let place = (Section::Pieces, handle.offset);
            match Pieces::decode(loaded.payload) {
                Ok(Some(pieces)) => self.divided.stated = Some((pieces, handle.offset)),
                Ok(None) => {
                    let expected = "a version of about.pieces that is known";
                    let found = "another, which readers ignore";
                    self.report.find(Severity::Note, place, expected, found);
                }
                Err(defect) => self.report.find_defect(place, defect),
            }
        }
    }

    /// Compares the pieces with the `index`, if it is sound, and with the sound filters.
    pub(super) fn compare_pieces(&mut self, index: BlockHandle, is_sound: bool) {
        let Divided { stated, filters } = std::mem::take(&mut self.divided);
        let Some((pieces, offset)) = stated else {
            return;
        };
        let mut disagreements = Vec::new();
        let mut budget = self.file.size;
        let divided = &pieces.index;
        disagreements.extend(pieces.check_filters(&filters).err());
        if let Err(defect) = pieces.check_index(index) {
            disagreements.push(defect);
        } else if is_sound {
            let ranges = (0..divided.len()).map(|i| divided.range(i));
            let decode = |i, bytes: &[u8]| divided.decode_piece(i, bytes, None, |_, _| ());
            disagreements.extend(self.compare_each(ranges, decode).err());
        }
        for divided in &pieces.filters {
            if self.sound_frame(divided.handle, &mut budget).is_some() {
                let ranges = (0..divided.len()).map(|i| divided.range(i));
                let compared = self.compare_each(ranges, |i, bytes| divided.check(i, bytes));
                disagreements.extend(compared.err());
            }
        }
        for defect in disagreements {
            self.report.find_defect((Section::Pieces, offset), defect);
        }
    }

    /// Reads each of these ranges of sound blocks, and checks it by its number.
    fn compare_each(
        &self,
        ranges: impl Iterator<Item = Range<u64>>,
        check: impl Fn(usize, &[u8]) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        for (i, Range { start, end }) in ranges.enumerate() {
            // What cannot be read was reported with its block.
            let bytes = self.file.read(start, (end - start) as usize);
            let bytes = bytes.unwrap_or_default();
            check(i, &bytes)?;
        }
        Ok(())
    }
}
