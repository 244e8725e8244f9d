//! Parts of a table, for workers that read one each.

use std::ops::Bound;

use bytes::Bytes;

use crate::read::table::Table;

impl Table {
    /// Returns the bounds of at most `n` parts of the table, in order, of about as many bytes each: every key lies in
    /// exactly one. No I/O: parts begin and end where data blocks do, so there are never more parts than data blocks.
    ///
    /// [`range`](Table::range) takes each. The first part has no lower bound and the last no upper bound; if the order of the
    /// table is not known, there is one part.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for i in 0..10_000 { builder.add(format!("{i:05}").as_bytes(), b"value")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let parts = table.splits(4);
    /// let entries = parts.into_iter().map(|bounds| table.range(bounds).count());
    /// assert_eq!(entries.sum::<usize>(), 10_000);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn splits(&self, n: usize) -> Vec<(Bound<Bytes>, Bound<Bytes>)> {
        let index = self.index();
        let parts = n.clamp(1, index.len().max(1)) as u64;
        let data_len = self.inner.blocks_end();
        let mut splits = Vec::new();
        if self.order().is_err() {
            return vec![(Bound::Unbounded, Bound::Unbounded)];
        }
        let (mut lower, mut due) = (Bound::Unbounded, 1);
        // The last block ends the last part.
        for i in 0..index.len().saturating_sub(1) {
            let end = u128::from(self.inner.frame_end(i)) * u128::from(parts);
            if due < parts && end >= u128::from(due) * u128::from(data_len) {
                let key = Bytes::copy_from_slice(index.key(i));
                splits.push((lower, Bound::Included(key.clone())));
                lower = Bound::Excluded(key);
                // A block that is longer than a part ends several.
                due = (end / u128::from(data_len.max(1))) as u64 + 1;
            }
        }
        splits.push((lower, Bound::Unbounded));
        splits
    }
}
