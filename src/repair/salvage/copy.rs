//! Copies the blocks of a plan into the new table.

use std::ops::Range;

use bytes::Bytes;

use super::found::handle_of;
use super::plan::{Copy, Planned};
use super::survey::PAGE;
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
    /// The key copied last.
    last_key: Vec<u8>,
    /// Bytes that the keys in the new table's index may still take.
    room: u64,
}

/// Copies `parts`, unless the callback of `progress` ends the run early. Starts from `report`, which holds what is known before
/// anything is copied.
pub(super) fn copy<D: Destination>(
    parts: Vec<Planned<'_>>,
    file: &TableFile,
    builder: &mut TableBuilder<D>,
    report: SalvageReport,
    progress: &mut Reporter<'_>,
) -> Result<SalvageReport> {
    let mut copier = Copier {
        file,
        builder,
        report,
        last_key: Vec::new(),
        room: index_room(file.size),
    };
    // The survey went over the file once.
    let mut done = file.size;
    for part in parts {
        let len = match part {
            Planned::Copy(block) => copier.copy(block)?,
            Planned::Lost(lost, has_place) => copier.lose(lost, has_place),
        };
        // A handle of the index may say anything of what is lost.
        done = done.saturating_add(len);
        if progress.reach(done).is_break() {
            copier.report.cancelled = true;
            return Ok(copier.report);
        }
    }
    progress.complete();
    Ok(copier.report)
}

impl<D: Destination> Copier<'_, D> {
    /// Returns the length of the range that is lost.
    fn lose(&mut self, mut lost: LostRange, has_place: bool) -> u64 {
        if lost.reason.is_empty() {
            lost.reason = why_nothing(self.file, &lost.range);
        }
        let has_key = has_place && self.report.entries > 0;
        lost.after = has_key.then(|| Bytes::copy_from_slice(&self.last_key));
        let len = lost.range.end - lost.range.start;
        self.report.lost.push(lost);
        len
    }

    /// Returns the length of the block.
    fn copy(&mut self, planned: Copy<'_>) -> Result<u64> {
        let range = &planned.found.range;
        let mut refused = 0;
        let mut lost = LostRange {
            range: range.clone(),
            ..LostRange::default()
        };
        match open_block(self.file, range) {
            Ok(block) => {
                let mut cursor = BlockCursor::new(block);
                while let Ok(true) = cursor.next() {
                    match self.add(cursor.key(), cursor.value()) {
                        Err(error) if error.kind() == ErrorKind::OutOfOrder => refused += 1,
                        added => added?,
                    }
                }
                self.report.data_blocks += 1;
            }
            // It was sound a moment ago: the medium is failing, or somebody writes to the file.
            Err(error) => lost.reason = error.to_string(),
        }
        if planned.is_uncertain {
            match self.report.uncertain.last_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => self.report.uncertain.push(range.clone()),
            }
        }
        if refused > 0 {
            self.report.entries_out_of_order += refused;
            lost.reason = format!("{refused} of its entries are out of order");
            lost.entries = Some(refused);
        }
        if !lost.reason.is_empty() {
            self.lose(lost, true);
        }
        Ok(planned.found.len())
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
        let lost = self.report.lost.iter_mut().rev();
        for lost in lost.take_while(|lost| lost.before.is_none()) {
            lost.before = Some(Bytes::copy_from_slice(key));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
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
