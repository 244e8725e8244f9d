//! How many bytes lie within bounds, and which key lies how far into a database, from the MANIFEST and the indexes
//! alone.

use std::ops::Bound;

use bytes::Bytes;
use itertools::Itertools as _;
#[cfg(doc)]
use leveltable::DbTable;
use leveltable::{KeyRange, Result};

use crate::database::Database;
use crate::state::{Bounds, State};

/// Number of parts into which a table is divided to find a key in it.
const PARTS: usize = 64;

impl Database {
    /// Returns approximately how many bytes of files the keys within `bounds` take, including old versions and deletions: for tables
    /// within the bounds their sizes in the MANIFEST, and for each table across a bound the result of [`DbTable::approximate_bytes`],
    /// with an error of less than two blocks. The contents of logs count as the table in memory that holds them.
    ///
    /// Opens the tables across a bound, up to two in each level from 1 on, and reads no data block. This is
    /// `GetApproximateSizes` of C++ LevelDB, which ignores the logs.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    ///
    /// ```no_run
    /// # let db = leveltable_database::Database::open_read_only("db")?;
    /// println!("{} bytes of users", db.approximate_bytes("user/".."user0")?);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let bounds = bounds.key_bounds();
        self.with_state(|state| state.approximate_bytes(&bounds))
    }

    /// Returns a key before which about `fraction` of the bytes of files lie, as
    /// [`approximate_bytes`](Database::approximate_bytes) counts them: 0.5 returns the middle of the database. `None` if the
    /// database is empty.
    ///
    /// Opens some tables of each level to find the key, and reads no data block. C++ LevelDB has no counterpart.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        self.with_state(|state| state.key_at_fraction(fraction))
    }
}

impl State {
    fn approximate_bytes(&self, bounds: &Bounds) -> Result<u64> {
        self.known_order()?;
        let place = |end: &[u8]| self.place(end, bounds);
        let bytes = self.tables_within(bounds).map(|table| {
            let file = &table.file;
            let ends = [file.first_user_key(), file.last_user_key()];
            if ends.into_iter().all(|end| place(end).is_eq()) {
                return Ok(file.size);
            }
            self.table(table)?.approximate_bytes(bounds.clone())
        });
        bytes.sum()
    }

    fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let all = self.approximate_bytes(&(Bound::Unbounded, Bound::Unbounded))?;
        let due = (fraction.clamp(0.0, 1.0) * all as f64) as u64;
        let tables = || self.runs.iter().flatten();
        let ends = tables().map(|table| Bytes::copy_from_slice(table.file.last_user_key()));
        let (before, Some(end)) = self.around(ends.collect(), due)? else {
            return Ok(None);
        };
        // Within the tables that have keys between these two.
        let lower = before.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
        let bounds = (lower, Bound::Included(end.to_vec()));
        let mut keys = vec![end];
        for run in &self.runs {
            for table in self.within(run, |end| self.place(end, &bounds)) {
                let table = self.table(table)?;
                let parts = (1..PARTS).map(|i| table.key_at_fraction(i as f64 / PARTS as f64));
                keys.extend(parts.flatten_ok().collect::<Result<Vec<_>>>()?);
            }
        }
        keys.retain(|key| self.place(key, &bounds).is_eq());
        Ok(self.around(keys, due)?.1)
    }

    /// The first of `keys` before which `due` bytes lie, or else the last, and the key before it.
    fn around(&self, mut keys: Vec<Bytes>, due: u64) -> Result<(Option<Bytes>, Option<Bytes>)> {
        keys.sort_unstable_by(|a, b| self.order.compare(a, b));
        let (mut start, mut end) = (0, keys.len().saturating_sub(1));
        while start < end {
            let middle = start.midpoint(end);
            let upper = keys
                .get(middle)
                .map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
            if self.approximate_bytes(&(Bound::Unbounded, upper))? >= due {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        let before = start.checked_sub(1).and_then(|before| keys.get(before));
        Ok((before.cloned(), keys.get(start).cloned()))
    }
}
