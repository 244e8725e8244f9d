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
        let range = match &piece {
            Piece::Copy(block) => &block.found.range,
            Piece::Lost(lost, _) => &lost.range,
        };
        done = done.saturating_add(range.end - range.start);
        match piece {
            Piece::Copy(block) => copier.copy(block)?,
            Piece::Lost(lost, has_place) => copier.lose(lost, has_place),
        }
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
        lost.after = self.last_key.clone().filter(|_| has_place).map(Bytes::from);
        self.report.lost.push(lost);
    }

    fn copy(&mut self, piece: Copy<'_>) -> Result<()> {
        let range = &piece.found.range;
        let (mut copied, mut refused) = (0, 0);
        let mut reason = String::new();
        match open_block(self.file, range) {
            Ok(block) => {
                let mut cursor = BlockCursor::new(block);
                while let Ok(true) = cursor.next() {
                    match self.add(cursor.key(), cursor.value()) {
                        Ok(()) => copied += 1,
                        Err(error) if error.kind() == ErrorKind::OutOfOrder => refused += 1,
                        Err(error) => return Err(error),
                    }
                }
                self.report.data_blocks += 1;
            }
            // It was sound a moment ago: the medium is failing, or somebody writes to the file.
            Err(error) => reason = error.to_string(),
        }
        self.report.entries_by_index += if piece.by_index { copied } else { 0 };
        self.report.entries_out_of_order += refused;
        if piece.is_uncertain {
            match self.report.uncertain.last_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => self.report.uncertain.push(range.clone()),
            }
        }
        if refused > 0 {
            reason = format!("{refused} of its entries are out of order");
        }
        if !reason.is_empty() {
            let lost = LostRange {
                range: range.clone(),
                reason,
                entries: Some(refused).filter(|refused| *refused > 0),
                ..LostRange::default()
            };
            self.lose(lost, true);
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let before = self.builder.file_bytes();
        self.builder.add(key, value)?;
        self.report.entries += 1;
        if self.builder.file_bytes() > before {
            // The new table's index is held in memory until the table is finished.
            let room = self.room.checked_sub(key.len() as u64);
            self.room = room.ok_or_else(|| self.too_many_keys())?;
        }
        for lost in self.report.lost.iter_mut().skip(self.open) {
            lost.before = Some(Bytes::copy_from_slice(key));
        }
        self.open = self.report.lost.len();
        let last_key = self.last_key.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        Ok(())
    }

    fn too_many_keys(&self) -> Error {
        let (size, entries) = (self.file.size, self.report.entries);
        let message = format!(
            "the copy's index would hold more than {} bytes of keys, from a file of {size} bytes: long keys share nearly all \
             that they have, as in no ordinary table; {entries} entries were copied; build the new table with larger blocks",
            index_room(size)
        );
        Error::new(ErrorKind::TooLarge, message)
    }
}

/// The block in the frame at `range`.
pub(super) fn open_block(file: &TableFile, range: &Range<u64>) -> Result<Block<Bytes>> {
    let frame = file.read_frame(handle_of(range))?;
    let block = frame::verify(&frame).and_then(|()| Block::parse(frame::open(&frame)?));
    block.map_err(|defect| defect.locate(Section::Data, range.start))
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
