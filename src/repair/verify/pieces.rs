//! `about.pieces`: compared with the index and the filters that it divides.

use super::Verifier;
use super::blocks::{NamedBy, Parsed};
use super::report::Severity;
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::frame;
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
    pub(super) fn read_pieces(&mut self, handle: BlockHandle, named_by: NamedBy) {
        match self.load_as(handle, Section::Pieces, named_by, Pieces::decode) {
            Some((Some(pieces), true)) => self.divided.stated = Some((pieces, handle.offset)),
            Some((None, true)) => {
                let expected = "a version of about.pieces that is known";
                let found = "another, which readers ignore";
                let place = (Section::Pieces, handle.offset);
                self.report.find(Severity::Note, place, expected, found);
            }
            Some((_, false)) | None => {}
        }
    }

    /// Compares the pieces with the index at this handle, if it is sound, and with the sound filters.
    pub(super) fn compare_pieces(&mut self, handle: BlockHandle, index: Option<&Parsed>) {
        let Divided { stated, filters } = std::mem::take(&mut self.divided);
        let Some((pieces, offset)) = stated else {
            return;
        };
        let mut compared = vec![pieces.check_filters(&filters), pieces.check_index(handle)];
        let index = index.filter(|index| index.trusted && index.well_formed);
        if let Some(index) = index.filter(|_| pieces.index.handle == handle) {
            compared.push(pieces.index.check_block(index.block.data()));
        }
        let mut budget = self.file.size;
        for divided in &pieces.filters {
            if let Some(frame) = self.sound_frame(divided.handle, &mut budget) {
                let block = frame::open(&frame);
                compared.push(block.and_then(|block| divided.check_block(&block)));
            }
        }
        for defect in compared.into_iter().filter_map(Result::err) {
            self.report.find_defect((Section::Pieces, offset), defect);
        }
    }
}
