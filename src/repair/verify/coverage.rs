//! Checks whether the parts of a table cover its file, and what is in the rest.

use std::ops::Range;

use bytes::Bytes;

use super::Verifier;
use super::blocks::Extent;
use super::report::Severity;
use crate::comparator::Order;
use crate::error::Section;
use crate::format::page;
use crate::repair::salvage::{self, Patience, Scanner};

impl Verifier<'_, '_> {
    /// Checks whether the blocks that handles lead to cover the file, without overlaps. `is_complete`: whether an index
    /// vouches that there are no other data blocks.
    pub(super) fn check_coverage(&mut self, is_complete: bool) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable();
        // Two names may lead to one filter.
        extents.dedup_by(|b, a| a == b && a.2 == Section::Filter);
        let mut before: Extent = (0, 0, Section::Data);
        let order = self.order.clone();
        let mut scanner = Scanner::new(self.file, &order, Patience::Limited);
        for extent in extents {
            let (start, end, section) = extent;
            let (start_before, end_before, section_before) = before;
            if start < end_before {
                let expected = "blocks that do not overlap";
                let end = end.min(end_before);
                let found = format!(
                    "bytes {start} to {end}, which the {section_before} at {start_before} also claims"
                );
                self.report
                    .find(Severity::Damage, (section, start), expected, found);
            } else if self.is_padding(before, extent) {
                self.report.checked_bytes += start - end_before;
            } else if start > end_before {
                let scanner = is_complete.then_some(&mut scanner);
                self.check_gap(end_before..start, section, scanner);
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
    /// a `scanner` to look for some.
    fn check_gap(&mut self, gap: Range<u64>, section: Section, scanner: Option<&mut Scanner<'_>>) {
        let mut found = format!(
            "{} bytes before the {section} that no handle leads to",
            gap.end - gap.start
        );
        let (severity, section) = match scanner {
            None => (Severity::Unchecked, Section::Data),
            Some(scanner) => {
                let blocks = scanner.scan(gap.clone(), |at| self.progress.reach(at));
                match blocks.iter().map(|block| block.entries()).sum::<u64>() {
                    0 => (Severity::Warning, section),
                    n => {
                        found.push_str(&format!(", with {n} entries in sound blocks"));
                        (Severity::Damage, section)
                    }
                }
            }
        };
        let expected = "each block right after the one before";
        self.report
            .find(severity, (section, gap.start), expected, found);
    }

    /// Reports how much of the data is sound, if no sound index says what there is.
    pub(super) fn count_what_is_left(&mut self) {
        let order = self.options.order.clone().unwrap_or(Order::Bytewise);
        let (entries, blocks) = salvage::recoverable(self.file, &order, self.progress);
        if blocks > 0 {
            self.report.find(
                Severity::Unchecked,
                (Section::Data, 0),
                "a sound index that leads to all data blocks",
                format!("{entries} entries in {blocks} sound blocks, which salvage would copy"),
            );
        }
    }
}
