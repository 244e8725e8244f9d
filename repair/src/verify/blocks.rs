//! Checks the footer, and whether the blocks that handles lead to cover the file.

use std::ops::Range;

use bytes::Bytes;
use leveltable::Section;
use leveltable::format::Footer;
use leveltable::sister_crates::page;

use super::report::Severity;
use super::run::{Extent, Run};

pub(super) fn check_footer(run: &mut Run<'_>) -> Option<Footer> {
    let place = (Section::Footer, run.file.footer_offset());
    // Even a damaged footer is not a gap.
    run.extents.push((place.1, run.file.size, place.0));
    let footer = run.file.footer();
    let footer = footer.map_err(|error| run.report.find_error(place, &error));
    let footer = footer.ok()?;
    run.report.checked_bytes += Footer::LEN as u64;
    let found = run.file.read(place.1..run.file.size);
    if found.is_ok_and(|found| *found != footer.encode()) {
        let expected = "two handles, then zeros up to the magic number";
        let found = "other bytes there, which readers ignore";
        run.report.find(Severity::Warning, place, expected, found);
    }
    Some(footer)
}

/// Checks whether the blocks that handles lead to cover the file, without overlaps. `is_complete`: whether an index
/// guarantees that there are no other data blocks.
pub(super) fn check_coverage(run: &mut Run<'_>, is_complete: bool) {
    let mut extents = std::mem::take(&mut run.extents);
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
            let found = format!("bytes {start} to {end}, which the {other} at {at} also claims");
            run.report
                .find(Severity::Damage, (section, start), expected, found);
        } else if is_padding(run, before, extent) {
            run.report.checked_bytes += start - end_before;
        } else if start > end_before {
            check_gap(run, end_before..start, section, is_complete);
        }
        if end > end_before {
            before = extent;
        }
    }
}

/// Whether two data blocks have only the padding of an aligned table between them.
fn is_padding(run: &Run<'_>, (_, end_before, before): Extent, (start, end, next): Extent) -> bool {
    let len = start - end_before;
    let is_padding = |bytes: Bytes| page::is_padding(end_before, &bytes);
    len > 0
        && (before, next) == (Section::Data, Section::Data)
        && len == page::padding(end_before, end - start)
        && run.file.read(end_before..start).is_ok_and(is_padding)
}

/// Reports bytes to which no handle leads, before a block of `section`.
fn check_gap(run: &mut Run<'_>, gap: Range<u64>, section: Section, is_complete: bool) {
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
    run.report.find(severity, place, expected, found);
}
