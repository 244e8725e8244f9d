//! How many bytes lie within bounds, and which key lies how far into a database, from the MANIFEST and the indexes
//! alone.

use std::ops::Bound;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::Result;

use crate::state::{Bounds, State};

/// Number of parts into which a table is divided to find a key in it.
const PARTS: usize = 64;

/// The result of [`Database::approximate_bytes`](crate::Database::approximate_bytes).
pub(crate) fn bytes_within(state: &State, bounds: &Bounds) -> Result<u64> {
    state.known_order()?;
    let place = |end: &[u8]| state.place(end, bounds);
    let bytes = state.tables_within(bounds).map(|table| {
        let file = &table.file;
        let ends = [file.first_user_key(), file.last_user_key()];
        if ends.into_iter().all(|end| place(end).is_eq()) {
            return Ok(file.size);
        }
        state.table(table)?.approximate_bytes(bounds.clone())
    });
    bytes.sum()
}

/// The result of [`Database::key_at_fraction`](crate::Database::key_at_fraction).
pub(crate) fn key_at(state: &State, fraction: f64) -> Result<Option<Bytes>> {
    let all = bytes_within(state, &(Bound::Unbounded, Bound::Unbounded))?;
    let due = (fraction.clamp(0.0, 1.0) * all as f64) as u64;
    let tables = || state.runs.iter().flatten();
    let ends = tables().map(|table| Bytes::copy_from_slice(table.file.last_user_key()));
    let (before, Some(end)) = around(state, ends.collect(), due)? else {
        return Ok(None);
    };
    // Within the tables that have keys between these two.
    let lower = before.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
    let bounds = (lower, Bound::Included(end.to_vec()));
    let mut keys = vec![end];
    for run in &state.runs {
        for table in state.within(run, |end| state.place(end, &bounds)) {
            let table = state.table(table)?;
            let parts = (1..PARTS).map(|i| table.key_at_fraction(i as f64 / PARTS as f64));
            keys.extend(parts.flatten_ok().collect::<Result<Vec<_>>>()?);
        }
    }
    keys.retain(|key| state.place(key, &bounds).is_eq());
    Ok(around(state, keys, due)?.1)
}

/// The first of `keys` before which `due` bytes lie, or else the last, and the key before it.
fn around(state: &State, mut keys: Vec<Bytes>, due: u64) -> Result<(Option<Bytes>, Option<Bytes>)> {
    keys.sort_unstable_by(|a, b| state.order.compare(a, b));
    let (mut start, mut end) = (0, keys.len().saturating_sub(1));
    while start < end {
        let middle = start.midpoint(end);
        let upper = keys
            .get(middle)
            .map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
        if bytes_within(state, &(Bound::Unbounded, upper))? >= due {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    let before = start.checked_sub(1).and_then(|before| keys.get(before));
    Ok((before.cloned(), keys.get(start).cloned()))
}
