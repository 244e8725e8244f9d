//! Which versions of a user key outlive a compaction.

use crate::db::cursor::DbCursor;
use crate::error::Result;
use crate::format::internal_key::{InternalKey, ValueType};

/// The entries that outlive a compaction: those that somebody can still see; made by [`DbCursor::compact`].
///
/// Lends each entry as [`DbTableBuilder::add`](crate::DbTableBuilder::add) takes it. How many tables it is written to is up to
/// the caller.
#[derive(Debug, Clone)]
#[must_use]
pub struct Compaction {
    /// Over all versions.
    versions: DbCursor,
    /// Ascending.
    snapshots: Vec<u64>,
    drops_deletions: bool,
    /// The user key of the last version, and its sequence number. `None` before the first.
    last: Option<u64>,
    last_key: Vec<u8>,
}

impl DbCursor {
    /// Starts a compaction of all entries of the cursor, wherever it stands and whatever it shows: usually of a
    /// [merge](crate::DbTable::merge).
    ///
    /// It keeps the newest version of each user key, and each older one that one of `snapshots` sees: the newest at or
    /// below that sequence number. Deletions are versions like others, since they hide older ones in tables that are not compacted;
    /// see [`drop_deletions`](Compaction::drop_deletions). This is LevelDB's rule, except that LevelDB keeps all that is newer than
    /// the oldest snapshot.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut old = WriteOptions::new().build_db(&mut file);
    /// old.put("apple", 9, "green")?;
    /// old.put("apple", 6, "yellow")?; // not seen
    /// old.put("apple", 4, "red")?; // seen at 5
    /// old.delete("banana", 3)?;
    /// # old.finish()?;
    /// # let table = OpenOptions::new().open_db_source(file)?;
    /// let mut builder = WriteOptions::new().build_db(Vec::new());
    /// let mut kept = table.cursor().compact([5]).drop_deletions(true);
    /// while let Some((key, value)) = kept.next()? {
    ///     builder.add(key, value)?;
    /// }
    /// assert_eq!(builder.entries(), 2);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn compact(self, snapshots: impl IntoIterator<Item = u64>) -> Compaction {
        let mut snapshots: Vec<u64> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        Compaction {
            versions: self.showing(None),
            snapshots,
            drops_deletions: false,
            last: None,
            last_key: Vec::new(),
        }
    }
}

impl Compaction {
    /// Whether to leave out a deletion, unless a snapshot is older than it: there are no older versions in other tables that it would
    /// hide. `false` by default.
    pub fn drop_deletions(mut self, yes: bool) -> Compaction {
        self.drops_deletions = yes;
        self
    }

    /// Moves to the next entry that is kept. Lends its key and its value, which is empty for a deletion; `None` after the last.
    ///
    /// Costs a step for every version that it passes over, and a search among the snapshots for all but the newest of each key.
    ///
    /// # Errors
    ///
    /// As [`DbCursor::next`]. There is no next entry after an error, which comes again.
    #[expect(
        clippy::should_implement_trait,
        reason = "entries are lent, which an Iterator cannot"
    )]
    pub fn next(&mut self) -> Result<Option<(InternalKey<'_>, &[u8])>> {
        while self.versions.next()? {
            if self.keeps_version() {
                return Ok(Some((self.versions.internal_key(), self.versions.value())));
            }
        }
        Ok(None)
    }

    /// Whether somebody sees the current version, after those before it.
    fn keeps_version(&mut self) -> bool {
        let (key, order) = (self.versions.internal_key(), self.versions.order());
        let is_same = |_: &u64| order.compare(key.user_key, &self.last_key).is_eq();
        let newer = self.last.filter(is_same);
        self.last = Some(key.sequence);
        // A snapshot sees a version from its own number up to that of the next newer one.
        let not_before = |sequence| self.snapshots.partition_point(|&at| at < sequence);
        let older = not_before(key.sequence);
        let is_seen = match newer {
            Some(newer) => older < not_before(newer),
            None => {
                self.last_key.clear();
                self.last_key.extend_from_slice(key.user_key);
                true
            }
        };
        let hides = !self.drops_deletions || older > 0;
        is_seen && (key.value_type == ValueType::Value || hides)
    }
}
