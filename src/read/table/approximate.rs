//! How many bytes lie within bounds, and which key lies how far into a table: by the index alone.

use bytes::Bytes;

use crate::error::Result;
use crate::read::parts::bounds::{KeyRange, key_of};
use crate::read::parts::index::Index;
use crate::read::table::Table;

impl Table {
    /// Returns about how many bytes of the file the entries within `bounds` take, compressed as they are: the bytes from the block that
    /// the lower bound would be in to the one that the upper bound would be in. Off by less than one block, so 0 if both lie in the
    /// same one; whether a bound is included makes no difference. `..` gives the bytes of all data blocks.
    ///
    /// Reads the two pieces of the index that name these blocks, unless they were needed before, and nothing else. Allocates the two
    /// bounds, and takes no lock. This is `GetApproximateSizes` of C++ LevelDB.
    ///
    /// # Errors
    ///
    /// Those of reading the index, and [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) for a bound in a table whose order is not
    /// known.
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
        let (lower, upper) = bounds.key_bounds();
        let start = key_of(&lower).map_or(Ok(0), |key| self.offset_of(key))?;
        let end = key_of(&upper).map_or(Ok(data_len(&self.opened.parts.index)), |key| {
            self.offset_of(key)
        })?;
        Ok(end.saturating_sub(start))
    }

    /// Where the data block begins that `key` would be in; where data ends, if it comes after all of them.
    fn offset_of(&self, key: &[u8]) -> Result<u64> {
        let found = self.opened.seek(key, false)?;
        let end = || data_len(&self.opened.parts.index);
        Ok(found.map_or_else(end, |found| found.offset()))
    }

    /// Returns a key up to which about `fraction` of the bytes of all entries lie: 0.5 gives the middle of the table. It is the first key
    /// of the index, not always one of the table's, at which that much has been passed: at most one block too far. `None` in
    /// an empty table.
    ///
    /// Reads the one piece of the index that names the block, unless it was needed before. Allocates the key, and takes no lock. C++
    /// LevelDB has nothing like it. For parts of equal size, see [`splits`](Table::splits).
    ///
    /// # Errors
    ///
    /// Those of reading the index.
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
        let (opened, index) = (&*self.opened, &self.opened.parts.index);
        let due = (fraction.clamp(0.0, 1.0) * data_len(index) as f64) as u64;
        let reaches = |i| -> Result<bool> {
            let p = index.piece_of(i);
            let ends_before = |p| index.data_end(p) < due;
            // Only the piece in which it changes is read.
            if ends_before(p) || p > 0 && !ends_before(p - 1) {
                return Ok(!ends_before(p));
            }
            Ok(opened.block(i)?.handle.frame_in_file().end >= due)
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
        let found = (start < index.len())
            .then(|| opened.block(start))
            .transpose()?;
        Ok(found.map(|found| Bytes::copy_from_slice(index.key(found))))
    }
}

/// Where the last data block ends.
fn data_len(index: &Index) -> u64 {
    let last = index.pieces().checked_sub(1);
    last.map_or(0, |last| index.data_end(last))
}
