//! Reads blocks by their handles and checks frame and structure, whatever they hold; and whether these blocks cover the file.

use std::ops::Range;

use bytes::Bytes;
use leveltable::format::{BlockHandle, Defect, Footer, open_frame, verify_frame};
use leveltable::sister_crates::page;
use leveltable::{Error, ErrorKind, Result, Section};

use super::Verifier;
use super::report::{Place, Severity};

/// Where a block begins and ends in the file, its trailer included.
pub(super) type Extent = (u64, u64, Section);

impl Verifier<'_> {
    pub(super) fn check_footer(&mut self) -> Option<Footer> {
        let place = (Section::Footer, self.file.footer_offset());
        // It is no gap, even if it is damaged.
        self.extents.push((place.1, self.file.size, place.0));
        let footer = self.file.footer();
        let footer = footer.map_err(|error| self.report.find_error(place, &error));
        let footer = footer.ok()?;
        self.report.checked_bytes += Footer::LEN as u64;
        let found = self.file.read(place.1..self.file.size);
        if found.is_ok_and(|found| *found != footer.encode()) {
            let expected = "two handles, then zeros up to the magic number";
            let found = "other bytes there, which readers ignore";
            self.report.find(Severity::Warning, place, expected, found);
        }
        Some(footer)
    }

    /// Returns what `decode` makes of the block at `handle`, which the sound block at `named_by` holds. Reports why it cannot be
    /// read, or what is wrong with it.
    pub(super) fn load<T>(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: Place,
        decode: impl FnOnce(Bytes) -> Result<T, Defect>,
    ) -> Option<T> {
        let range = self.file.range_of(handle, section, named_by);
        let range = range.map_err(|error| self.report.find_error(named_by, &error));
        let range = range.ok()?;
        let place = (section, handle.offset);
        let frame = self.read(range.clone());
        let frame = frame.map_err(|error| self.report.find_error(place, &error));
        let frame = frame.ok()?;
        self.account(section, range);
        let payload = verify_frame(&frame).and_then(|()| open_frame(&frame));
        self.accept(place, payload.and_then(decode))
    }

    /// Reports the defect, if there is one.
    pub(super) fn accept<T>(&mut self, place: Place, checked: Result<T, Defect>) -> Option<T> {
        let locate = |defect: Defect| defect.locate(place.0, place.1);
        let report = |defect| self.report.find_error(place, &locate(defect));
        checked.map_err(report).ok()
    }

    /// Notes that a block of `section`, with its trailer, lies at `range`.
    pub(super) fn account(&mut self, section: Section, range: Range<u64>) {
        self.report.checked_bytes += range.end - range.start;
        self.extents.push((range.start, range.end, section));
    }

    /// Reads the frame at `range`, unless handles asked for too much before.
    pub(super) fn read(&mut self, range: Range<u64>) -> Result<Bytes> {
        let why = "this block was not read: handles lead to more than twice the file";
        let left = self.budget.checked_sub(range.end - range.start);
        self.budget = left.ok_or_else(|| Error::new(ErrorKind::Unsupported, why))?;
        self.file.read(range)
    }

    /// Checks whether the blocks that handles lead to cover the file, without overlaps. `is_complete`: whether an index
    /// vouches that there are no other data blocks.
    pub(super) fn check_coverage(&mut self, is_complete: bool) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable();
        // Two names may lead to one filter.
        extents.dedup_by(|b, a| a == b && a.2 == Section::Filter);
        let mut before: Extent = (0, 0, Section::Data);
        for extent in extents {
            let (start, end, section) = extent;
            let (at, end_before, other) = before;
            if start < end_before {
                let expected = "blocks that do not overlap";
                let end = end.min(end_before);
                let found =
                    format!("bytes {start} to {end}, which the {other} at {at} also claims");
                self.report
                    .find(Severity::Damage, (section, start), expected, found);
            } else if self.is_padding(before, extent) {
                self.report.checked_bytes += start - end_before;
            } else if start > end_before {
                self.check_gap(end_before..start, section, is_complete);
            }
            if end > end_before {
                before = extent;
            }
        }
    }

    /// Whether two data blocks have nothing between them but the padding of an aligned table.
    fn is_padding(&self, (_, end_before, before): Extent, (start, end, next): Extent) -> bool {
        let len = start - end_before;
        let is_padding = |bytes: Bytes| page::is_padding(end_before, &bytes);
        len > 0
            && (before, next) == (Section::Data, Section::Data)
            && len == page::padding(end_before, end - start)
            && self.file.read(end_before..start).is_ok_and(is_padding)
    }

    /// Reports bytes to which no handle leads, before a block of `section`.
    fn check_gap(&mut self, gap: Range<u64>, section: Section, is_complete: bool) {
        let found = format!(
            "{} bytes before the {section} that no handle leads to",
            gap.end - gap.start
        );
        let severity = if is_complete {
            Severity::Warning
        } else {
            Severity::Unchecked
        };
        let (place, expected) = (
            (Section::Data, gap.start),
            "each block right after the one before",
        );
        self.report.find(severity, place, expected, found);
    }
}
