//! How many bytes lie within bounds, and which key lies how far into a table, from the index alone.

use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::parts::bounds::{Bounds, KeyRange, key_of};
use crate::read::parts::index::Index;
use crate::read::parts::{Missing, Parts};
use crate::read::table::Table;

impl Table {
    /// Returns approximately how many bytes of the file the entries within `bounds` take, as stored: the bytes from the block that the
    /// lower bound would be in to the one that the upper bound would be in. The error is less than one block, so the result is 0 if
    /// both lie in the same one; whether a bound is included makes no difference. `..` returns the bytes of all data blocks.
    ///
    /// Reads the two pieces of the index that name these blocks, unless they are loaded, and nothing else. Allocates the two bounds,
    /// and takes no lock. This is `GetApproximateSizes` of C++ LevelDB.
    ///
    /// # Errors
    ///
    /// Errors of reading the index, and [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) for a bound in a table whose order is
    /// not known.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for i in 0..10_000 { builder.add(format!("{i:04}"), [7; 100])?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let all = table.approximate_bytes(..)? as f64;
    /// let some = table.approximate_bytes("2000".."5000")? as f64;
    /// assert!((some / all - 0.3).abs() < 0.01);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let (bounds, parts) = (bounds.key_bounds(), &self.opened.parts);
        let order = self.order_of(&bounds)?;
        self.opened.ask(|| bytes_within(parts, &bounds, order))
    }

    /// The order, if a bound needs it: an error if it is not known.
    pub(crate) fn order_of(&self, bounds: &Bounds) -> Result<Option<&Order>> {
        let is_bounded = *bounds != (Bound::Unbounded, Bound::Unbounded);
        is_bounded.then(|| self.order()).transpose()
    }

    /// Returns a key before which about `fraction` of the bytes of all entries lie: 0.5 returns the middle of the table. It is the first
    /// key of the index, not always one of the table's, with at least that much before it: at most one block too far. `None` in an empty
    /// table.
    ///
    /// Reads the one piece of the index that names the block, unless it is loaded. Allocates the key, and takes no lock. C++ LevelDB
    /// has no counterpart. For parts of equal size, see [`splits`](Table::splits).
    ///
    /// # Errors
    ///
    /// Errors of reading the index.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for i in 0..10_000 { builder.add(format!("{i:04}"), [7; 100])?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let middle = table.key_at_fraction(0.5)?.unwrap();
    /// assert!(middle >= "4990" && middle < "5090");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let parts = &self.opened.parts;
        self.opened.ask(|| key_at(parts, fraction))
    }
}

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
