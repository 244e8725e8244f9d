//! Copies the blocks of a plan into the new table.

use std::ops::Range;

use bytes::Bytes;

use super::found::handle_of;
use super::plan::{self, Lost, Piece};
use super::scan::PAGE;
use super::{LostRange, SalvageReport};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::frame;
use crate::read::file::TableFile;
use crate::repair::progress::Reporter;
use crate::write::builder::TableBuilder;
use crate::write::new_file::Destination;

/// Bytes that the keys in the new table's index may take. An ordinary table is far below: its own index has keys as long.
pub(super) fn index_room(file_size: u64) -> u64 {
    file_size.saturating_mul(64).saturating_add(1 << 20)
}

/// Adds the entries of blocks to a builder, and the outcome to a report.
pub(super) struct Copier<'a, D: Destination> {
    file: &'a TableFile,
    builder: &'a mut TableBuilder<D>,
    report: SalvageReport,
    last_key: Vec<u8>,
    has_last_key: bool,
    /// From here on, lost ranges in the report have no key after them yet.
    open: usize,
    /// Bytes that the keys in the new table's index may still take.
    room: u64,
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
            last_key: Vec::new(),
            has_last_key: false,
            open: 0,
            room: index_room(file.size),
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
            match piece {
                Piece::Copy(block) => {
                    done = done.saturating_add(block.range.end - block.range.start);
                    self.copy(block)?;
                }
                Piece::Lost(lost) => {
                    done = done.saturating_add(lost.range.end - lost.range.start);
                    let reason = lost.reason.clone();
                    let reason = reason.unwrap_or_else(|| self.why_nothing(&lost.range));
                    self.lose(Lost {
                        reason: Some(reason),
                        ..lost
                    });
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

    fn lose(&mut self, lost: Lost) {
        let after =
            (self.has_last_key && lost.has_place).then(|| Bytes::copy_from_slice(&self.last_key));
        self.report.lost.push(LostRange {
            range: lost.range,
            reason: lost.reason.unwrap_or_default(),
            entries: lost.entries,
            after,
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

    fn copy(&mut self, piece: plan::Copy) -> Result<()> {
        let range = piece.range;
        let block = self.file.read_frame(handle_of(&range)).and_then(|frame| {
            frame::verify(&frame)
                .and_then(|()| frame::open(&frame))
                .and_then(Block::parse)
                .map_err(|defect| defect.locate(Section::Data, range.start))
        });
        let lost = |reason, entries| Lost {
            range: range.clone(),
            reason: Some(reason),
            entries,
            has_place: true,
        };
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                // It was sound a moment ago: the medium is failing, or somebody writes to the file.
                self.lose(lost(error.to_string(), None));
                return Ok(());
            }
        };
        let (mut copied, mut refused) = (0, 0);
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let before = self.builder.file_bytes();
            match self.builder.add(cursor.key(), cursor.value()) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::OutOfOrder => {
                    refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if self.builder.file_bytes() > before {
                self.take_room(cursor.key().len())?;
            }
            if copied == 0 {
                let first = Bytes::copy_from_slice(cursor.key());
                for lost in self.report.lost.iter_mut().skip(self.open) {
                    lost.before = Some(first.clone());
                }
                self.open = self.report.lost.len();
            }
            copied += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(cursor.key());
        }
        self.has_last_key |= copied > 0;
        self.report.entries += copied;
        self.report.entries_by_index += if piece.by_index { copied } else { 0 };
        self.report.entries_out_of_order += refused;
        self.report.data_blocks += 1;
        if piece.is_uncertain {
            match self.report.uncertain.last_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => self.report.uncertain.push(range.clone()),
            }
        }
        if refused > 0 {
            self.lose(lost(
                format!("{refused} of its entries are out of order"),
                Some(refused),
            ));
        }
        Ok(())
    }

    /// Counts a key of the new table's index, which is held in memory until the table is finished.
    fn take_room(&mut self, key_len: usize) -> Result<()> {
        let Some(room) = self.room.checked_sub(key_len as u64) else {
            let most = index_room(self.file.size);
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the copy's index would hold more than {most} bytes of keys, from a file of {} bytes: long keys share \
                     nearly all that they have, as in no ordinary table; {} entries were copied; build the new table with \
                     larger blocks",
                    self.file.size, self.report.entries
                ),
            ));
        };
        self.room = room;
        Ok(())
    }
}
