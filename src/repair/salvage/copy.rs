//! Copies the blocks of a plan into the new table.

use std::ops::Range;

use bytes::Bytes;

use super::found::handle_of;
use super::plan::{Copy, Piece};
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
struct Copier<'a, D: Destination> {
    file: &'a TableFile,
    builder: &'a mut TableBuilder<D>,
    report: SalvageReport,
    last_key: Option<Vec<u8>>,
    /// From here on, lost ranges in the report have no key after them yet.
    open: usize,
    /// Bytes that the keys in the new table's index may still take.
    room: u64,
}

/// Copies `pieces`, unless the callback of `progress` ends the run early. Starts from `report`, which holds what is known before
/// anything is copied.
pub(super) fn copy<D: Destination>(
    pieces: Vec<Piece<'_>>,
    file: &TableFile,
    builder: &mut TableBuilder<D>,
    report: SalvageReport,
    progress: &mut Reporter<'_>,
) -> Result<SalvageReport> {
    let mut copier = Copier {
        file,
        builder,
        report,
        last_key: None,
        open: 0,
        room: index_room(file.size),
    };
    // The survey went over the file once.
    let mut done = file.size;
    for piece in pieces {
        let range = match piece {
            Piece::Copy(block) => {
                copier.copy(block)?;
                block.found.range.clone()
            }
            Piece::Lost(lost, has_place) => {
                let range = lost.range.clone();
                copier.lose(lost, has_place);
                range
            }
        };
        done = done.saturating_add(range.end - range.start);
        if progress.reach(done).is_break() {
            copier.report.cancelled = true;
            return Ok(copier.report);
        }
    }
    progress.complete();
    Ok(copier.report)
}

impl<D: Destination> Copier<'_, D> {
    fn lose(&mut self, mut lost: LostRange, has_place: bool) {
        if lost.reason.is_empty() {
            lost.reason = why_nothing(self.file, &lost.range);
        }
        let after = self.last_key.as_ref().filter(|_| has_place);
        let after = after.map(|key| Bytes::copy_from_slice(key));
        self.report.lost.push(LostRange { after, ..lost });
    }

    fn copy(&mut self, piece: Copy<'_>) -> Result<()> {
        let range = &piece.found.range;
        let lost = |reason, entries| LostRange {
            range: range.clone(),
            reason,
            entries,
            ..LostRange::default()
        };
        let frame = self.file.read_frame(handle_of(range));
        let block = frame.and_then(|frame| {
            let block = frame::verify(&frame)
                .and_then(|()| frame::open(&frame))
                .and_then(Block::parse);
            block.map_err(|defect| defect.locate(Section::Data, range.start))
        });
        let mut cursor = match block {
            Ok(block) => BlockCursor::new(block),
            Err(error) => {
                // It was sound a moment ago: the medium is failing, or somebody writes to the file.
                self.lose(lost(error.to_string(), None), true);
                return Ok(());
            }
        };
        let (mut copied, mut refused) = (0, 0);
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
            let last_key = self.last_key.get_or_insert_default();
            last_key.clear();
            last_key.extend_from_slice(cursor.key());
        }
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
            let why = format!("{refused} of its entries are out of order");
            self.lose(lost(why, Some(refused)), true);
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

/// Why no block was found in `range`.
fn why_nothing(file: &TableFile, range: &Range<u64>) -> String {
    let mut parts = range.clone().step_by(PAGE);
    let error = parts.find_map(|at| {
        let len = (range.end - at).min(PAGE as u64) as usize;
        file.read(at, len).err()
    });
    match error {
        Some(error) => format!("not all of it can be read: {error}"),
        None => "no sound block begins here: lost data, or a part that holds none (filter, metaindex, index, footer)"
            .into(),
    }
}
