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
        let has_footer = extents
            .last()
            .is_some_and(|last| last.section == Section::Footer);
        let end = Extent {
            offset: if has_footer {
                self.file.size
            } else {
                self.file.footer_offset()
            },
            end: self.file.size,
            section: Section::Footer,
        };
        let order = self.order.clone();
        let mut scanner = Scanner::new(self.file, &order, Patience::Limited);
        for extent in extents.into_iter().chain([end]) {
            match extent.offset.cmp(&before.end) {
                Ordering::Less => self.report.find(
                    Severity::Damage,
                    (extent.section, extent.offset),
                    "blocks that do not overlap",
                    format!(
                        "bytes {} to {}, which the {} at {} also claims",
                        extent.offset,
                        extent.end.min(before.end),
                        before.section,
                        before.offset
                    ),
                ),
                Ordering::Equal => {}
                Ordering::Greater if self.is_padding(&before, &extent) => {
                    self.report.checked_bytes += extent.offset - before.end;
                }
                Ordering::Greater => {
                    let gap = before.end..extent.offset;
                    let (severity, what) = if is_complete {
                        self.search_gap(gap.clone(), &mut scanner)
                    } else {
                        (Severity::Unchecked, String::new())
                    };
                    let (len, section) = (gap.end - gap.start, extent.section);
                    let place = if is_complete { section } else { Section::Data };
                    self.report.find(
                        severity,
                        (place, gap.start),
                        "each block right after the one before",
                        format!("{len} bytes before the {section} that no handle leads to{what}"),
                    );
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

    /// Searches bytes to which no handle leads for entries. Returns how bad they are, and what is there.
    fn search_gap(&mut self, gap: Range<u64>, scanner: &mut Scanner<'_>) -> (Severity, String) {
        let blocks = scanner.scan(gap, |at| self.progress.reach(at));
        match blocks.iter().map(|block| block.entries()).sum::<u64>() {
            0 => (Severity::Warning, String::new()),
            n => (
                Severity::Damage,
                format!(", with {n} entries in sound blocks"),
            ),
        }
    }

    /// Reports how much of the data is sound, if no sound index says what there is.
    pub(super) fn count_what_is_left(&mut self) {
        let order = self.options.order.clone().unwrap_or(Order::Bytewise);
        let found = salvage::recoverable(self.file, &order, self.progress);
        if found.blocks > 0 {
            self.report.find(
                Severity::Unchecked,
                (Section::Data, 0),
                "a sound index that leads to all data blocks",
                format!(
                    "{} entries in {} sound blocks, which salvage would copy",
                    found.entries, found.blocks
                ),
            );
        }
    }
}
