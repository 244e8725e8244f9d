//! Which versions of a user key outlive a compaction.

use crate::comparator::Order;
#[cfg(doc)]
use crate::db::cursor::DbCursor;
use crate::db::entry::check_entry;
use crate::error::Result;
use crate::format::internal_key::{InternalKey, ValueType};
use crate::read::parts::bounds::Direction;
use crate::read::walk::ends::Walk;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::SortedInput;

/// The entries that outlive a compaction: those that somebody can still see; made by [`DbCursor::compact`].
///
/// Lends each entry as [`DbTableBuilder::add`](crate::DbTableBuilder::add) takes it. How many tables it is written to is up to
/// the caller. All versions of a user key belong in the same one, if a lookup asks one table of a level. `D` says which deletions [are dropped](Compaction::drop_deletions_where).
#[derive(Debug, Clone)]
#[must_use]
pub struct Compaction<D = fn(&[u8]) -> bool> {
    /// Over all versions.
    versions: TableWalk,
    /// The order of user keys.
    order: Order,
    /// Ascending.
    snapshots: Vec<u64>,
    /// Whether a deletion of this user key hides nothing.
    drops: D,
    /// The number of snapshots that are older than the last version. `None` before the first.
    last: Option<usize>,
    /// The last version's user key.
    last_key: Vec<u8>,
}

impl Compaction {
    /// Over all entries of `versions`, whose user keys are in this order.
    pub(super) fn of_walk(
        mut versions: TableWalk,
        order: Order,
        snapshots: impl IntoIterator<Item = u64>,
    ) -> Compaction {
        versions.rewind();
        let mut snapshots: Vec<u64> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        Compaction {
            versions,
            order,
            snapshots,
            drops: |_| false,
            last: None,
            last_key: Vec::new(),
        }
    }
}

impl<D: FnMut(&[u8]) -> bool> Compaction<D> {
    /// Whether to leave out deletions, except those that are newer than a snapshot. Only correct if no other table holds an older
    /// version of their keys. `false` by default.
    pub fn drop_deletions(self, yes: bool) -> Compaction {
        self.drop_deletions_where(if yes { |_| true } else { |_| false })
    }

    /// Like [`drop_deletions`](Compaction::drop_deletions), but only for user keys for which `hides_nothing` returns `true`: no table
    /// that is not compacted may hold an older version. Replaces an earlier setting for deletions.
    ///
    /// Called at most once for each user key, in ascending order, and only for a deletion that is dropped if it returns `true`. So it can
    /// advance through the tables of deeper levels as the compaction goes on. In C++ LevelDB this is `IsBaseLevelForKey`.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut table = WriteOptions::new().build_db(&mut file);
    /// table.delete("apple", 9)?;
    /// table.delete("pear", 8)?;
    /// # table.finish()?;
    /// # let table = OpenOptions::new().open_db_source(file)?;
    /// let others = [(&b"banana"[..], &b"quince"[..])]; // first and last keys of the tables that are not compacted
    /// let is_older = |key: &[u8]| others.iter().any(|(first, last)| *first <= key && key <= *last);
    /// let mut kept = table.cursor().compact([]).drop_deletions_where(|key| !is_older(key));
    /// assert_eq!(kept.next()?.unwrap().0.user_key, b"pear");
    /// assert!(kept.next()?.is_none());
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn drop_deletions_where<W: FnMut(&[u8]) -> bool>(self, hides_nothing: W) -> Compaction<W> {
        Compaction {
            versions: self.versions,
            order: self.order,
            snapshots: self.snapshots,
            drops: hides_nothing,
            last: self.last,
            last_key: self.last_key,
        }
    }

    /// Moves to the next entry that is kept. Lends its key and its value, which is empty for a deletion; `None` after the last.
    ///
    /// Costs a step for every version that it passes over, and a search among the snapshots for each.
    ///
    /// # Errors
    ///
    /// Same as [`DbCursor::next`]. After an error, every further call returns it again.
    #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(InternalKey<'_>, &[u8])>> {
        loop {
            let moved = self.versions.step(Direction::Forward)?;
            if !check_entry(&mut self.versions, moved)? {
                return Ok(None);
            }
            if self.keeps_version() {
                let key = InternalKey::of_checked(self.versions.key());
                return Ok(Some((key, self.versions.value())));
            }
        }
    }

    /// Whether anybody sees the current version, rather than a newer one of the same key.
    fn keeps_version(&mut self) -> bool {
        let key = InternalKey::of_checked(self.versions.key());
        let older = self.snapshots.partition_point(|&at| at < key.sequence);
        let is_same = |_: &usize| self.order.compare(key.user_key, &self.last_key).is_eq();
        // A snapshot sees a version from its own number up to that of the next newer one.
        let newer = self.last.filter(is_same);
        let is_seen = newer.is_none_or(|newer| older < newer);
        if newer.is_none() {
            key.user_key.clone_into(&mut self.last_key);
        }
        self.last = Some(older);
        let is_last = key.value_type == ValueType::Deletion && older == 0;
        is_seen && !(is_last && (self.drops)(key.user_key))
    }
}

/// The remaining entries of the compaction. The key is the stored one: user key, sequence number and type.
impl<D: FnMut(&[u8]) -> bool> SortedInput for Compaction<D> {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    fn key(&self) -> &[u8] {
        self.versions.key()
    }

    fn value(&self) -> &[u8] {
        self.versions.value()
    }
}
