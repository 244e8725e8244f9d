//! Checks whether the parts of a table cover its file, and what is in the rest.

use std::cmp::Ordering;
use std::ops::Range;

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
        extents.dedup_by(|b, a| a == b && a.section == Section::Filter);
        let mut before = Extent {
            offset: 0,
            end: 0,
            section: Section::Data,
        };
        let order = self.order.clone();
        let mut scanner = Scanner::new(self.file, &order, Patience::Limited);
        for extent in extents {
            let place = (extent.section, extent.offset);
            match extent.offset.cmp(&before.end) {
                Ordering::Less => {
                    let expected = "blocks that do not overlap";
                    let found = format!(
                        "bytes {} to {}, which the {} at {} also claims",
                        extent.offset,
                        extent.end.min(before.end),
                        before.section,
                        before.offset
                    );
                    self.report.find(Severity::Damage, place, expected, found);
                }
                Ordering::Equal => {}
                Ordering::Greater if self.is_padding(&before, &extent) => {
                    self.report.checked_bytes += extent.offset - before.end;
                }
                Ordering::Greater => {
                    let gap = before.end..extent.offset;
                    self.check_gap(gap, extent.section, is_complete.then_some(&mut scanner));
                }
            }
            if extent.end > before.end {
                before = extent;
            }
        }
    }

    /// Whether two data blocks have nothing between them but the padding of an aligned table.
    fn is_padding(&self, before: &Extent, next: &Extent) -> bool {
        let len = next.offset - before.end;
        len == page::padding(before.end, next.end - next.offset)
            && [before, next].map(|extent| extent.section) == [Section::Data; 2]
            && self
                .file
                .read(before.end, len as usize)
                .is_ok_and(|bytes| page::is_padding(before.end, &bytes))
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
