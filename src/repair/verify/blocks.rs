//! Reads blocks by their handles and checks frame and structure, whatever they hold; and whether these blocks cover the file.

use std::ops::Range;

use bytes::Bytes;

use super::Verifier;
use super::report::{Place, Severity};
use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::block_check::KeyWork;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::{frame, page};
use crate::repair::salvage::{self, Survey};

/// Where a block begins and ends in the file, its trailer included.
pub(super) type Extent = (u64, u64, Section);

impl Verifier<'_> {
    pub(super) fn check_footer(&mut self) -> Option<Footer> {
        let place = (Section::Footer, self.file.footer_offset());
        // It is no gap, even if it is damaged.
        self.extents.push((place.1, self.file.size, place.0));
        let footer = self.file.footer();
        let footer = { footer.map_err(|error| self.report.find_error(place, &error)) }.ok()?;
        self.report.checked_bytes += FOOTER_LEN as u64;
        let found = self.file.read(place.1, FOOTER_LEN);
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
        decode: impl FnOnce(&mut KeyWork, Bytes) -> Result<T, Defect>,
    ) -> Option<T> {
        let len = self.accept(named_by, self.file.check_handle(handle, section))?;
        let place = (section, handle.offset);
        let frame = self.read(handle, len);
        let frame = { frame.map_err(|error| self.report.find_error(place, &error)) }.ok()?;
        self.account(place, len);
        let payload = frame::verify(&frame).and_then(|()| frame::open(&frame));
        let decoded = payload.and_then(|payload| decode(&mut self.work, payload));
        self.accept(place, decoded)
    }

    /// Reports the defect, if there is one.
    pub(super) fn accept<T>(&mut self, place: Place, checked: Result<T, Defect>) -> Option<T> {
        let locate = |defect: Defect| defect.locate(place.0, place.1);
        let report = |defect| self.report.find_error(place, &locate(defect));
        checked.map_err(report).ok()
    }

    /// Notes that `len` bytes are the block at this place, including its trailer.
    pub(super) fn account(&mut self, (section, offset): Place, len: u64) {
        self.report.checked_bytes += len;
        self.extents.push((offset, offset + len, section));
    }

    /// Reads the frame of `len` bytes at `handle`, unless handles asked for too much before.
    pub(super) fn read(&mut self, handle: BlockHandle, len: u64) -> Result<Bytes> {
        let why = "this block was not read: handles lead to more than twice the file";
        let left = self.budget.checked_sub(len);
        self.budget = left.ok_or_else(|| Error::new(ErrorKind::Unsupported, why))?;
        self.file.read_frame(handle)
    }

    /// Checks whether the blocks that handles lead to cover the file, without overlaps. `is_complete`: whether an index
    /// vouches that there are no other data blocks.
    pub(super) fn check_coverage(&mut self, is_complete: bool) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable();
        // Two names may lead to one filter.
        extents.dedup_by(|b, a| a == b && a.2 == Section::Filter);
        let mut before: Extent = (0, 0, Section::Data);
        let mut survey = Survey::new(self.file, &Order::Bytewise, false);
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
                let survey = is_complete.then_some(&mut survey);
                self.check_gap(end_before..start, section, survey);
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
            && { self.file.read(end_before, len as usize) }.is_ok_and(is_padding)
    }

    /// Reports bytes to which no handle leads, before a block of `section`. If an index vouches that they hold no data, there is
    /// a `survey` to look for some.
    fn check_gap(&mut self, gap: Range<u64>, section: Section, survey: Option<&mut Survey<'_>>) {
        let len = gap.end - gap.start;
        let mut found = format!("{len} bytes before the {section} that no handle leads to");
        let (mut severity, place) = (Severity::Unchecked, (Section::Data, gap.start));
        if let Some(survey) = survey {
            severity = Severity::Warning;
            survey.frames.clear();
            survey.scan(gap, |at| self.options.progress.reach(at));
            let entries: u64 = survey.data().map(|block| block.digest.entries).sum();
            if entries > 0 {
                severity = Severity::Damage;
                found.push_str(&format!(", with {entries} entries in sound blocks"));
            }
        }
        let expected = "each block right after the one before";
        self.report.find(severity, place, expected, found);
    }

    /// Reports how much of the data is sound, if no sound index says what there is: how many entries in how many blocks.
    pub(super) fn count_what_is_left(&mut self) -> (u64, u64) {
        let order = self.options.open.order.clone().unwrap_or(Order::Bytewise);
        let (entries, blocks) = salvage::recoverable(self.file, &order, &mut self.options.progress);
        if blocks > 0 {
            let found =
                format!("{entries} entries in {blocks} sound blocks, which salvage would copy");
            let expected = "a sound index that leads to all data blocks";
            let place = (Section::Data, 0);
            self.report
                .find(Severity::Unchecked, place, expected, found);
        }
        (entries, blocks)
    }
}
