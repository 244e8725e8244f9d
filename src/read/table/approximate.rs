//! How many bytes lie within bounds, and which key lies how far into a table, from the index alone.

use bytes::Bytes;

use crate::comparator::Order;
use crate::read::parts::bounds::{Bounds, key_of};
use crate::read::parts::index::Index;
use crate::read::parts::{Missing, Parts};

/// Approximately how many bytes the entries within bounds take, or the missing pieces of the index.
pub(crate) fn bytes_within(
    parts: &Parts,
    (lower, upper): &Bounds,
    order: Option<&Order>,
) -> Result<u64, Missing> {
    // The start of the data block that a bound would be in; the end of the data if the bound comes after all blocks.
    let all = data_len(&parts.index);
    let place = |bound, unbounded| -> Result<u64, Missing> {
        let Some((key, order)) = key_of(bound).zip(order) else {
            return Ok(unbounded);
        };
        let found = parts.seek(key, order, false)?;
        Ok(found.map_or(all, |found| found.offset()))
    };
    match (place(lower, 0), place(upper, all)) {
        (Ok(start), Ok(end)) => Ok(end.saturating_sub(start)),
        (start, end) => {
            let missing = [start.err(), end.err()].into_iter().flatten();
            Err(missing.flatten().collect())
        }
    }
}

/// A key before which about a fraction of the bytes lie, or the missing piece of the index.
pub(crate) fn key_at(parts: &Parts, fraction: f64) -> Result<Option<Bytes>, Missing> {
    let index = &parts.index;
    let due = (fraction.clamp(0.0, 1.0) * data_len(index) as f64) as u64;
    let reaches = |i| -> Result<bool, Missing> {
        let p = index.piece_of(i);
        let ends_before = |p| index.data_end(p) < due;
        // Only the piece in which the condition changes is read.
        if ends_before(p) || p > 0 && !ends_before(p - 1) {
            return Ok(!ends_before(p));
        }
        Ok(parts.block(i)?.handle.frame_in_file().end >= due)
    };
    let (mut start, mut end) = (0, index.len());
    while start < end {
        let middle = start.midpoint(end);
        if reaches(middle)? {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    let found = (start < index.len()).then(|| parts.block(start));
    let found = found.transpose()?;
    Ok(found.map(|found| Bytes::copy_from_slice(index.key(found))))
}

/// Where the last data block ends.
fn data_len(index: &Index) -> u64 {
    let last = index.pieces().checked_sub(1);
    last.map_or(0, |last| index.data_end(last))
}
