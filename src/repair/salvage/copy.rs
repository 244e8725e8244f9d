//! Copies the blocks of a plan into the new table.

use std::ops::Range;

use bytes::Bytes;

use super::found::handle_of;
use super::plan::Piece;
use super::scan::PAGE;
use super::{LostRange, SalvageReport};
use crate::error::{ErrorKind, Result, Section};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::frame;
use crate::read::file::TableFile;
use crate::repair::progress::Reporter;
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;

/// Adds the entries of blocks to a builder, and the outcome to a report.
pub(super) struct Copier<'a, D: Destination> {
    file: &'a TableFile,
    builder: &'a mut TableBuilder<D>,
    report: SalvageReport,
    last_key: Option<Bytes>,
    /// From here on, lost ranges in the report have no key after them yet.
    open: usize,
}

impl<'a, D: Destination> Copier<'a, D> {
    /// Starts from `report`, which holds what is known before anything is copied.
    pub(super) fn new(
        file: &'a TableFile,
        builder: &'a mut TableBuilder<D>,
        report: SalvageReport,
    ) -> Copier<'a, D> {
        Copier {
            file,
            builder,
            report,
            last_key: None,
            open: 0,
        }
    }

    /// Copies `pieces`, unless the callback of `progress` ends the run early.
    pub(super) fn run(
        mut self,
        pieces: Vec<Piece>,
        progress: &mut Reporter<'_>,
    ) -> Result<SalvageReport> {
        // The survey went over the file once.
        let mut done = self.file.size;
        for piece in pieces {
            done = done.saturating_add(piece.len());
            match piece {
                Piece::Copy { range, by_index } => self.copy(range, by_index)?,
                Piece::Lost {
                    range,
                    reason,
                    entries,
                } => {
                    let reason = reason.unwrap_or_else(|| self.why_nothing(&range));
                    self.lose(range, reason, entries);
                }
            }
            if progress.reach(done).is_break() {
                self.report.cancelled = true;
                return Ok(self.report);
            }
        }
        progress.complete();
        Ok(self.report)
    }

    fn lose(&mut self, range: Range<u64>, reason: String, entries: Option<u64>) {
        self.report.lost.push(LostRange {
            range,
            reason,
            entries,
            after: self.last_key.clone(),
            before: None,
        });
    }

    /// Why no block was found in `range`.
    fn why_nothing(&self, range: &Range<u64>) -> String {
        let mut parts = range.clone().step_by(PAGE);
        let error = parts.find_map(|at| {
            let len = (range.end - at).min(PAGE as u64) as usize;
            self.file.read(at, len).err()
        });
        match error {
            Some(error) => format!("not all of it can be read: {error}"),
            None => "no sound block begins here: lost data, or a part that holds none (filter, metaindex, index, \
                     footer)"
                .into(),
        }
    }

    fn copy(&mut self, range: Range<u64>, by_index: bool) -> Result<()> {
        let block = self.file.read_frame(handle_of(&range)).and_then(|frame| {
            frame::verify(&frame)
                .and_then(|()| frame::open(&frame))
                .and_then(Block::parse)
                .map_err(|defect| defect.locate(Section::Data, range.start))
        });
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                // It was sound a moment ago: the medium is failing, or somebody writes to the file.
                self.lose(range, error.to_string(), None);
                return Ok(());
            }
        };
        let (mut copied, mut refused) = (0, 0);
        let mut last = Vec::new();
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            match self.builder.add(cursor.key(), cursor.value()) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::OutOfOrder => {
                    refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if copied == 0 {
                let first = Bytes::copy_from_slice(cursor.key());
                for lost in self.report.lost.iter_mut().skip(self.open) {
                    lost.before = Some(first.clone());
                }
                self.open = self.report.lost.len();
            }
            copied += 1;
            last.clear();
            last.extend_from_slice(cursor.key());
        }
        self.report.entries += copied;
        self.report.entries_by_index += if by_index { copied } else { 0 };
        self.report.entries_out_of_order += refused;
        self.report.data_blocks += 1;
        if copied > 0 {
            self.last_key = Some(last.into());
        }
        if refused > 0 {
            self.lose(
                range,
                format!("{refused} of its entries are out of order"),
                Some(refused),
            );
        }
        Ok(())
    }
}
