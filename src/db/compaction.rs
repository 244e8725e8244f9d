//! Which versions of a user key outlive a compaction.

use crate::db::cursor::DbCursor;
use crate::error::Result;
use crate::format::internal_key::ValueType;
use crate::sorted_input::SortedInput;

/// The entries that outlive a compaction: those that somebody can still see.
///
/// How many tables it is written to is up to the caller. All versions of a user key belong in the same one, if a lookup asks one table
/// of a level. `D` says which deletions [are dropped](Compaction::drop_deletions_where).
#[derive(Debug, Clone)]
#[must_use]
pub struct Compaction<D = fn(&[u8]) -> bool> {
    /// Over all versions.
    versions: DbCursor,
    /// Ascending.
    snapshots: Vec<u64>,
    /// Whether a deletion of this user key hides nothing.
    drops: D,
    /// The number of snapshots that are older than the last version. `None` before the first.
    last: Option<usize>,
    /// The last version's stored key.
    last_key: Vec<u8>,
}

impl Compaction {
    /// Starts a compaction of all entries of `cursor`, wherever it stands and whatever it shows: usually of a
    /// [merge](crate::DbTable::merge).
    ///
    /// It keeps the newest version of each user key, and each older one that one of `snapshots` sees: the newest at or
    /// below that sequence number. Deletions are versions like others, since they hide older ones in tables that are not compacted;
    /// see [`drop_deletions_where`](Compaction::drop_deletions_where). This is LevelDB's rule, except that LevelDB keeps all that is newer
    /// than the oldest snapshot.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions, db::Compaction};
    /// # let mut file = Vec::new();
    /// # let mut old = WriteOptions::new().build_db(&mut file);
    /// old.put("apple", 9, "green")?;
    /// old.put("apple", 6, "yellow")?; // not seen
    /// old.put("apple", 4, "red")?; // seen at 5
    /// old.delete("banana", 3)?;
    /// # old.finish()?;
    /// # let table = OpenOptions::new().open_db_source(file)?;
    /// let mut builder = WriteOptions::new().build_db(Vec::new());
    /// builder.extend(Compaction::new(table.cursor(), [5]).drop_deletions_where(|_| true))?;
    /// assert_eq!(builder.table_mut().entries(), 2);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn new(cursor: DbCursor, snapshots: impl IntoIterator<Item = u64>) -> Compaction {
        let mut snapshots: Vec<u64> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        Compaction {
            versions: cursor.restart(None),
            snapshots,
            drops: |_| false,
            last: None,
            last_key: Vec::new(),
        }
    }
}

impl<D: FnMut(&[u8]) -> bool> Compaction<D> {
    /// Leaves out deletions, except those that are newer than a snapshot, of user keys for which `hides_nothing` returns `true`: no table
    /// that is not compacted may hold an older version. By default, all are kept. Replaces an earlier setting.
    ///
    /// Called at most once for each user key, in ascending order, and only for a deletion that is dropped if it returns `true`. So it can
    /// advance through the tables of deeper levels as the compaction goes on. In C++ LevelDB this is `IsBaseLevelForKey`.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, SortedInput, WriteOptions, db::Compaction};
    /// # let mut file = Vec::new();
    /// # let mut table = WriteOptions::new().build_db(&mut file);
    /// table.delete("apple", 9)?;
    /// table.delete("pear", 8)?;
    /// # table.finish()?;
    /// # let table = OpenOptions::new().open_db_source(file)?;
    /// let others = [(&b"banana"[..], &b"quince"[..])]; // first and last keys of the tables that are not compacted
    /// let is_older = |key: &[u8]| others.iter().any(|(first, last)| *first <= key && key <= *last);
    /// let mut kept = Compaction::new(table.cursor(), []).drop_deletions_where(|key| !is_older(key));
    /// assert!(kept.advance()?);
    /// assert!(kept.key().starts_with(b"pear"));
    /// assert!(!kept.advance()?);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn drop_deletions_where<W: FnMut(&[u8]) -> bool>(self, hides_nothing: W) -> Compaction<W> {
        Compaction {
            versions: self.versions,
            snapshots: self.snapshots,
            drops: hides_nothing,
            last: self.last,
            last_key: self.last_key,
        }
    }

    /// Whether anybody sees the current version, rather than a newer one of the same key.
    fn keeps_version(&mut self) -> bool {
        let (key, stored) = (self.versions.internal_key(), self.versions.stored_key());
        let older = self.snapshots.partition_point(|&at| at < key.sequence);
        let is_same = |_: &usize| self.versions.is_same_key(stored, &self.last_key);
        // A snapshot sees a version from its own number up to that of the next newer one.
        let newer = self.last.filter(is_same);
        let is_seen = newer.is_none_or(|newer| older < newer);
        if newer.is_none() {
            stored.clone_into(&mut self.last_key);
        }
        self.last = Some(older);
        let is_last = key.value_type == ValueType::Deletion && older == 0;
        is_seen && !(is_last && (self.drops)(key.user_key))
    }
}

/// The remaining entries of the compaction. The key is the stored one: user key, sequence number and type.
impl<D: FnMut(&[u8]) -> bool> SortedInput for Compaction<D> {
    /// Moves to the next entry that is kept. Costs a step for every version that it passes over, and a search among the snapshots for each.
    fn advance(&mut self) -> Result<bool> {
        while self.versions.next()? {
            if self.keeps_version() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        self.versions.stored_key()
    }

    fn value(&self) -> &[u8] {
        self.versions.value()
    }
}
