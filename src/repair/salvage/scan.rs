//! Finds frames by their checksums, in a part of a file that no index leads through.
//!
//! Nothing in the file marks where a block begins or how long it is. But blocks follow each other without gaps, or after
//! the padding of an aligned table. So the next block begins where one ends, and ends where the checksum of what comes after
//! is right: that is one pass over its bytes, whatever its codec and content.
//!
//! After damage, neither the beginning nor the end is known. [`frames_by_checksum`] then finds all frames in a window of
//! the file at once, by a property of CRCs, at a fixed cost for each byte.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::checksums::{frame_end, frames_by_checksum};
use super::found::{Digest, Found};
use super::survey::Survey;
use crate::error::Section;
use crate::format::footer::{FOOTER_LEN, Footer};
use crate::format::frame::TRAILER_LEN;
use crate::format::page;
use crate::read::file::TableFile;

/// Bytes that are searched at once where no frame is known to begin.
const WINDOW: u64 = 4 << 20;

/// Bytes read at once where few of them are needed.
pub(super) const PAGE: usize = 64 << 10;

/// Bytes read at once where larger reads fail: a disk's sector.
pub(super) const SECTOR: u64 = 4 << 10;

impl Survey<'_> {
    /// Adds all frames of `range` that can be found. Calls `reached` with the offsets up to which nothing is left to find; it may
    /// end the scan there.
    pub(crate) fn scan(
        &mut self,
        range: Range<u64>,
        mut reached: impl FnMut(u64) -> ControlFlow<()>,
    ) {
        let mut at = range.start;
        self.window = (at, Bytes::new());
        self.pending.clear();
        while let Some(found) = self
            .footer(at, range.end)
            .or_else(|| self.walk(at, range.end))
            .or_else(|| self.search(at, range.end, &mut reached))
        {
            at = found.range.end;
            self.insert([found]);
            if reached(at).is_break() {
                break;
            }
        }
    }

    /// The footer that begins at `at`: it comes right after a frame.
    pub(super) fn footer(&mut self, at: u64, end: u64) -> Option<Found> {
        let range = at..at.saturating_add(FOOTER_LEN as u64);
        let footer = Footer::decode(self.page_from(at).get(..FOOTER_LEN)?).ok()?;
        let found = Found::new(range, Section::Footer, Digest::default(), Some(footer));
        (found.range.end <= end).then_some(found)
    }

    /// The frame that begins at `at`, or after the padding there, and ends at or before `end`.
    fn walk(&mut self, at: u64, end: u64) -> Option<Found> {
        let len = page::to_boundary(at);
        let page = self.page_from(at);
        let padding = page.get(..len as usize).unwrap_or_default();
        let is_padded = len > 0 && page::is_padding(at, padding);
        let padded = is_padded.then(|| self.walk_from(at + len, end));
        padded.flatten().or_else(|| self.walk_from(at, end))
    }

    fn walk_from(&mut self, start: u64, end: u64) -> Option<Found> {
        let end = match self.walk_budget {
            0 => end.min(start.saturating_add(PAGE as u64)),
            _ => end,
        };
        let (mut register, mut at) = (u32::MAX, start);
        while at + (TRAILER_LEN as u64) <= end {
            let mut bytes = self.page_from(at);
            bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
            if let Some(len) = frame_end(&mut register, &bytes) {
                let len = (at - start) as usize + len;
                return self.inspect(start, &self.file.read(start, len).ok()?);
            }
            at += bytes.len().saturating_sub(TRAILER_LEN - 1).max(1) as u64;
        }
        self.walk_budget = self.walk_budget.saturating_sub(at - start);
        None
    }

    /// The first frame at or after `at` that ends at or before `end`. Also `None` if `reached` ends the search, or if
    /// patience does.
    ///
    /// A frame of up to half a window is found wherever it begins.
    fn search(
        &mut self,
        at: u64,
        end: u64,
        reached: &mut impl FnMut(u64) -> ControlFlow<()>,
    ) -> Option<Found> {
        loop {
            while let Some((from, to)) = self.pending.pop() {
                let start = self.window.0 + u64::from(from);
                let left = self.window_budget.checked_sub(u64::from(to - from));
                let Some(left) = left.filter(|_| start >= at) else {
                    continue;
                };
                self.window_budget = left;
                let frame = self.window.1.slice(from as usize..to as usize);
                let found = self.inspect(start, &frame);
                // If the content cannot be read, only the checksum speaks for the frame, and that is right by chance now
                // and then: its place must be likely, too.
                let found = found.filter(|found| start == at || !found.is_unreadable());
                if found.is_some() {
                    return found;
                }
            }
            let (mut start, searched) = (at, self.window.1.len() as u64);
            if searched > 0 {
                if self.window.0 + searched >= end || !self.is_patient {
                    return None;
                }
                start = at.max(self.window.0 + WINDOW / 2);
            }
            if start >= end || reached(start).is_break() {
                return None;
            }
            let bytes = read_what_can_be(self.file, start..end.min(start + WINDOW));
            self.pending = frames_by_checksum(&bytes);
            self.window = (start, bytes);
            self.window_budget = 16 * WINDOW;
        }
    }

    /// The bytes from `at` on: those of a footer and more, or all up to the end of the file.
    fn page_from(&mut self, at: u64) -> Bytes {
        let size = self.file.size;
        let has = self.page.0..=self.page.0 + self.page.1.len() as u64;
        let is_enough = at + FOOTER_LEN as u64 <= *has.end() || *has.end() == size;
        if !(has.contains(&at) && is_enough) {
            let end = size.min(at.saturating_add(PAGE as u64));
            self.page = (at, read_what_can_be(self.file, at.min(end)..end));
        }
        self.page.1.slice((at - self.page.0) as usize..)
    }
}

/// The bytes at `range`, a few megabytes at most, with zeros for what cannot be read.
fn read_what_can_be(file: &TableFile, range: Range<u64>) -> Bytes {
    let read = |at: u64, end: u64| file.read(at, (end - at) as usize);
    if let Ok(bytes) = read(range.start, range.end) {
        return bytes;
    }
    let mut bytes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / SECTOR + 1) * SECTOR);
        match read(at, end) {
            Ok(sector) => bytes.extend_from_slice(&sector),
            Err(_) => bytes.resize(bytes.len() + (end - at) as usize, 0),
        }
        at = end;
    }
    bytes.into()
}
