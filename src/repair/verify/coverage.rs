//! Sees whether the parts of a table tile its file, and what is in the rest.

use std::cmp::Ordering;

use super::Verifier;
use super::blocks::Extent;
use super::report::Severity;
use crate::comparator::Order;
use crate::db::key::internal_order;
use crate::error::{ErrorKind, Section};
use crate::repair::salvage::{self, Scanner};

impl Verifier<'_> {
    /// Sees whether the blocks that were reached tile the file. `complete`: whether an index vouches that
    /// there are no others.
    pub(super) fn check_coverage(&mut self, complete: bool) {
        let mut extents = std::mem::take(&mut self.extents);
        extents.sort_unstable();
        // Two names may lead to one filter.
        extents.dedup_by(|b, a| a == b && a.section == Section::Filter);
        let mut before = Extent {
            offset: 0,
            end: 0,
            section: Section::Data,
        };
        let footer_offset = self.file.footer_offset();
        let has_footer = extents
            .last()
            .is_some_and(|last| last.section == Section::Footer);
        let end = Extent {
            offset: if has_footer {
                self.file.size
            } else {
                footer_offset
            },
            end: self.file.size,
            section: Section::Footer,
        };
        let order = self.order.clone();
        let mut scanner = Scanner::new(self.file, &order);
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
                Ordering::Greater => self.check_gap(before.end, extent, complete, &mut scanner),
            }
            if extent.end > before.end {
                before = extent;
            }
        }
    }

    /// Says what the bytes from `start` up to `next` hold, to which nothing led.
    fn check_gap(&mut self, start: u64, next: Extent, complete: bool, scanner: &mut Scanner<'_>) {
        let len = next.offset - start;
        let mut found = format!(
            "{len} bytes before the {} that no handle leads to",
            next.section
        );
        let (severity, section) = match complete {
            false => (Severity::Unchecked, Section::Data),
            true => {
                let blocks = scanner.scan(start..next.offset, |at| self.progress.reach(at));
                let entries: u64 = blocks.iter().map(|block| block.entries()).sum();
                let severity = match entries {
                    0 => Severity::Warning,
                    _ => {
                        found.push_str(&format!(", with {entries} entries in sound blocks"));
                        Severity::Damage
                    }
                };
                (severity, next.section)
            }
        };
        let expected = "each block right behind the one before";
        self.report
            .find(severity, (section, start), expected, found);
    }

    /// Where no sound index says what there is: how much of it is sound.
    pub(super) fn count_what_is_left(&mut self) {
        let recoverable = salvage::recoverable(self.file, &self.order, &mut self.progress);
        let (entries, blocks) = recoverable.unwrap_or_else(|error| match error.kind() {
            ErrorKind::DatabaseTable => {
                let order = internal_order(Order::Bytewise);
                salvage::recoverable(self.file, &order, &mut self.progress).unwrap_or_default()
            }
            _ => (0, 0),
        });
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
