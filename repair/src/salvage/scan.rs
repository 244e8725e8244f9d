//! Finds the frames of a damaged file by their checksums alone.
//!
//! Blocks follow each other, in an aligned table after padding. So the next frame begins right after a sound one, and it ends
//! where the checksum of the bytes so far is correct: one pass, whatever its length. After damage, neither end is known:
//! [`frames_by_checksum`] then finds all frames in a window at once.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use leveltable::sister_crates::page;

use super::checksums::{TRAILER_LEN, frame_end, frames_by_checksum};
use crate::file::File;

/// Number of bytes searched at once. After damage, frames of up to half of this are found.
const WINDOW: u64 = 4 << 20;

/// Number of bytes read at once if few are needed.
const CHUNK: u64 = 64 << 10;

/// Number of bytes read at once if larger reads fail: a disk's sector.
pub(super) const SECTOR: u64 = 4 << 10;

/// Searches parts of a file.
pub(super) struct Scanner<'a> {
    file: &'a File,
    /// Number of bytes that walks may still search without finding an end. After that, each searches at most a chunk.
    budget: u64,
    /// The bytes last read for a walk, and where they begin.
    chunk: (u64, Bytes),
    /// The window searched last, and where it begins.
    window: (u64, Bytes),
    /// The frames in it that have not been offered yet, the first one last.
    pending: Vec<(u32, u32)>,
}

/// Takes a frame with a correct checksum: where it begins, and whether a frame was expected there. Returns whether it is a block.
type Take<'t> = dyn FnMut(u64, Bytes, bool) -> bool + 't;

impl Scanner<'_> {
    pub(super) fn new(file: &File) -> Scanner<'_> {
        Scanner {
            file,
            budget: file.size.saturating_mul(4).saturating_add(1 << 20),
            chunk: (0, Bytes::new()),
            window: (0, Bytes::new()),
            pending: Vec::new(),
        }
    }

    /// Searches `range`, and offers the frames to `take` in ascending order. Calls `reached` with the offsets up to which
    /// nothing is left to find; it may end the scan.
    pub(super) fn scan(
        &mut self,
        range: Range<u64>,
        take: &mut Take<'_>,
        reached: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = range.start;
        self.window = (at, Bytes::new());
        self.pending.clear();
        while at < range.end {
            let starts = [at + padding(self.file, at), at];
            let next = starts.into_iter().find_map(|start| {
                let frame = self.walk(start..range.end)?;
                let end = start + frame.len() as u64;
                take(start, frame, true).then_some(end)
            });
            at = match next {
                Some(next) => next,
                None => self.search(at..range.end, take, reached)?,
            };
            reached(at)?;
        }
        ControlFlow::Continue(())
    }

    /// The frame that begins at the start of `range`.
    fn walk(&mut self, range: Range<u64>) -> Option<Bytes> {
        let (mut register, mut at) = (u32::MAX, range.start);
        let end = if self.budget > 0 {
            range.end
        } else {
            range.end.min(at + CHUNK)
        };
        while at + (TRAILER_LEN as u64) <= end {
            let bytes = self.chunk_at(at, end);
            if let Some(len) = frame_end(&mut register, &bytes) {
                let end = at + len as u64;
                return self.file.read(range.start..end).ok();
            }
            at += bytes.len() as u64 - (TRAILER_LEN as u64 - 1);
        }
        self.budget = self.budget.saturating_sub(at - range.start);
        None
    }

    /// Bytes from `at` on, at least as many as a trailer, up to `end` at most.
    fn chunk_at(&mut self, at: u64, end: u64) -> Bytes {
        let is_in = |(start, chunk): &(u64, Bytes)| {
            *start <= at && at + TRAILER_LEN as u64 <= start + chunk.len() as u64
        };
        if !is_in(&self.chunk) {
            self.chunk = (at, read_what_can_be(self.file, at..end.min(at + CHUNK)));
        }
        let mut bytes = self.chunk.1.slice((at - self.chunk.0) as usize..);
        bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
        bytes
    }

    /// Searches windows of `range` until a block is found, and returns where it ends; the range's end if there is none.
    fn search(
        &mut self,
        range: Range<u64>,
        take: &mut Take<'_>,
        reached: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> ControlFlow<(), u64> {
        loop {
            // A hostile window could hold frames within frames.
            let mut budget = 16 * WINDOW;
            while let Some((from, to)) = self.pending.pop() {
                let (start, len) = (self.window.0 + u64::from(from), u64::from(to - from));
                let frame = self.window.1.slice(from as usize..to as usize);
                if start < range.start || len > budget {
                    continue;
                }
                budget -= len;
                if take(start, frame, start == range.start) {
                    return ControlFlow::Continue(start + len);
                }
            }
            let (before, searched) = (self.window.0, self.window.1.len() as u64);
            if searched > 0 && before + searched >= range.end {
                return ControlFlow::Continue(range.end);
            }
            // Windows overlap: a frame may begin in one and end in the next.
            let start = match searched {
                0 => range.start,
                _ => range.start.max(before + WINDOW / 2),
            };
            reached(start)?;
            let bytes = read_what_can_be(self.file, start..range.end.min(start + WINDOW));
            self.pending = frames_by_checksum(&bytes);
            self.window = (start, bytes);
        }
    }
}

/// Number of bytes of padding at `at`, if there are zeros up to the next page.
pub(super) fn padding(file: &File, at: u64) -> u64 {
    let end = at + page::to_boundary(at);
    let fits = at > 0 && end < file.size;
    let bytes = fits.then(|| file.read(at..end).ok()).flatten();
    if bytes.is_some_and(|bytes| page::is_padding(at, &bytes)) {
        end - at
    } else {
        0
    }
}

/// The bytes at `range`, with zeros for the sectors that cannot be read.
fn read_what_can_be(file: &File, range: Range<u64>) -> Bytes {
    if let Ok(bytes) = file.read(range.clone()) {
        return bytes;
    }
    let (mut bytes, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let end = range.end.min((at / SECTOR + 1) * SECTOR);
        match file.read(at..end) {
            Ok(sector) => bytes.extend_from_slice(&sector),
            Err(_) => bytes.resize(bytes.len() + (end - at) as usize, 0),
        }
        at = end;
    }
    bytes.into()
}
