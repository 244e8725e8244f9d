//! Splits a table into parts, for workers that read one each.

use std::ops::Bound;

use bytes::Bytes;

use crate::error::Result;
use crate::read::parts::index::{BlockRef, Index};
#[cfg(doc)]
use crate::read::table::Table;
use crate::read::table::opened::Opened;

/// The bounds of at most `n` parts of a table; see [`Table::splits`].
pub(crate) fn split(opened: &Opened, n: usize) -> Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
    let index = &opened.parts.index;
    if opened.parts.order().is_err() {
        return Ok(vec![(Bound::Unbounded, Bound::Unbounded)]);
    }
    // Where parts may end: a key, and the number of bytes of the file before it.
    let mut ends: Vec<(&[u8], u64)> = if splits_by_blocks(index, n) {
        opened.read_parts(opened.parts.index_parts(0..index.len()))?;
        let end_of = |found: BlockRef| (index.key(found), found.handle.frame_in_file().end);
        let ends = (0..index.len()).map(|i| opened.block(i).map(end_of));
        ends.collect::<Result<_>>()?
    } else {
        let tops = index.tops().enumerate();
        tops.map(|(p, top)| (top, index.data_end(p))).collect()
    };
    let parts = n.clamp(1, ends.len().max(1)) as u128;
    // The last block ends the last part.
    let data_len = ends.pop().map_or(1, |(_, end)| u128::from(end.max(1)));
    let (mut splits, mut lower, mut due) = (Vec::new(), Bound::Unbounded, 1);
    for (key, end) in ends {
        let ended = u128::from(end) * parts / data_len;
        if due < parts && ended >= due {
            let key = Bytes::copy_from_slice(key);
            splits.push((lower, Bound::Included(key.clone())));
            lower = Bound::Excluded(key);
            // A block that is longer than a part ends several parts.
            due = ended + 1;
        }
    }
    splits.push((lower, Bound::Unbounded));
    Ok(splits)
}

/// Whether splitting a table into `n` parts requires the whole index.
pub(crate) fn splits_by_blocks(index: &Index, n: usize) -> bool {
    let pieces_per_part = index.pieces() / n.max(1);
    pieces_per_part < 8
}
