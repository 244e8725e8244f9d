//! The entries of a database's table, from both ends.

use bytes::Bytes;

use crate::db::table::{DbEntry, parse, version};
use crate::error::Result;
use crate::read::range::Range;

/// Entries of a database's table, from both ends; made by [`DbTable::range`](crate::DbTable::range).
///
/// Ends after its first error.
#[derive(Debug, Clone)]
#[must_use]
pub struct DbRange(pub(super) Option<Range>);

impl DbRange {
    fn take(
        &mut self,
        take: impl FnOnce(&mut Range) -> Option<Result<(Bytes, Bytes)>>,
    ) -> Option<Result<DbEntry>> {
        let range = self.0.as_mut()?;
        let entry = take(range)?.and_then(|(stored, value)| {
            let key = parse(&stored).map_err(|defect| range.locate(defect))?;
            Ok(DbEntry {
                user_key: stored.slice(..key.user_key.len()),
                sequence: key.sequence,
                version: version(key.value_type, || value),
            })
        });
        if entry.is_err() {
            self.0 = None;
        }
        Some(entry)
    }
}

impl Iterator for DbRange {
    type Item = Result<DbEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Range::next)
    }
}

impl DoubleEndedIterator for DbRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(Range::next_back)
    }
}

impl std::iter::FusedIterator for DbRange {}
