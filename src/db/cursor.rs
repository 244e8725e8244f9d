//! Walking a database's tables in both directions: all versions, or what a snapshot sees.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::db::entry::{DbEntry, check_entry};
use crate::error::{Error, ErrorKind, Result};
use crate::format::internal_key::{InternalKey, MAX_SEQUENCE, ValueType, user_key, user_order};
use crate::read::parts::bounds::Direction;
use crate::read::walk::ends::Walk;
use crate::read::walk::inputs::sorted_cursor;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::{SortedCursor, SortedInput};

/// A position in one or several tables of a database, on an entry or between entries, that moves in both directions; made
/// by [`DbTable::cursor`](crate::DbTable::cursor) and [`DbTable::merge`](crate::DbTable::merge).
///
/// Shows all entries: user keys in order, the versions of each newest first, deletions included. [`at`](DbCursor::at) makes
/// it show what a snapshot sees: of each user key the newest version at or below a sequence number, and no user key whose
/// newest version is a deletion.
///
/// Moves like a [`Cursor`](crate::Cursor): a new one stands before the first entry, each move returns whether it ended on an
/// entry, and the entry is lent until the next move. After a failed move it has no position until a seek succeeds.
///
/// ```
/// use leveltable::{OpenOptions, WriteOptions, db::ValueType};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build_db(&mut file);
/// builder.put("apple", 9, "green")?;
/// builder.put("apple", 4, "red")?;
/// builder.delete("banana", 7)?;
/// builder.finish()?;
/// let table = OpenOptions::new().open_db_source(file)?;
///
/// let mut cursor = table.cursor();
/// assert!(cursor.seek("b")?);
/// assert_eq!((cursor.user_key(), cursor.sequence()), (&b"banana"[..], 7));
/// assert_eq!(cursor.value_type(), ValueType::Deletion);
/// assert!(cursor.is_valid());
///
/// let mut cursor = table.cursor().at(8);
/// assert!(cursor.next()?);
/// assert_eq!(cursor.value(), b"red");
/// assert!(!cursor.next()?, "the banana was deleted");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DbCursor {
    /// Shows stored keys. In a snapshot, on the way forward, it stands on the current entry; on the way back on the last
    /// entry before those of the current user key.
    stored: TableWalk,
    /// The order of user keys.
    order: Order,
    /// The sequence number of the snapshot that is shown; `None` if all entries are shown.
    pub(super) snapshot: Option<u64>,
    /// The current entry on the way back through a snapshot, if `on_kept`: the stored cursor has left it. On the way forward, a
    /// stored key with the user key whose other entries are passed over.
    kept: (Vec<u8>, Bytes),
    on_kept: bool,
}

impl DbCursor {
    /// A cursor over the entries of `stored`, before the first.
    pub(super) fn of_walk(stored: TableWalk) -> DbCursor {
        let order = stored.order().ok().and_then(user_order).cloned();
        DbCursor {
            stored,
            order: order.unwrap_or(Order::Bytewise),
            snapshot: None,
            kept: (Vec::new(), Bytes::new()),
            on_kept: false,
        }
    }

    /// Shows what a snapshot of `sequence` sees: of each user key the newest version at or below it, unless that is a
    /// deletion. [`MAX_SEQUENCE`] sees the newest of all.
    ///
    /// The cursor returned stands before the first entry. A move costs a step for every version that it passes over.
    pub fn at(self, sequence: u64) -> DbCursor {
        self.restart(Some(sequence))
    }

    /// Shows a snapshot or all versions, from before the first entry.
    pub(super) fn restart(mut self, snapshot: Option<u64>) -> DbCursor {
        self.snapshot = snapshot;
        self.stored.rewind();
        self.on_kept = false;
        self
    }

    /// The walk over all versions, unless a snapshot is shown.
    pub(super) fn into_versions(self) -> Result<TableWalk> {
        match self.snapshot {
            None => Ok(self.stored),
            Some(_) => Err(Error::new(
                ErrorKind::InvalidState,
                "a range shows a snapshot, and a merge takes all versions: merge ranges of the tables, and call `at` on the merge",
            )),
        }
    }

    /// The current key; an empty one if the cursor is on no entry.
    #[inline]
    pub(super) fn internal_key(&self) -> InternalKey<'_> {
        InternalKey::of_checked(self.stored_key())
    }

    /// The current key as it is stored; empty if the cursor is on no entry.
    #[inline]
    pub(super) fn stored_key(&self) -> &[u8] {
        if self.on_kept {
            &self.kept.0
        } else {
            self.stored.key()
        }
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.on_kept || self.stored.is_on_entry()
    }

    /// The current user key; empty unless the cursor [is on an entry](DbCursor::is_valid).
    #[inline]
    pub fn user_key(&self) -> &[u8] {
        user_key(self.stored_key())
    }

    /// The current entry's sequence number; 0 unless the cursor [is on an entry](DbCursor::is_valid).
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.internal_key().sequence
    }

    /// Whether the current entry is a value or a deletion; a deletion unless the cursor [is on an entry](DbCursor::is_valid).
    #[inline]
    pub fn value_type(&self) -> ValueType {
        self.internal_key().value_type
    }

    /// The current value; empty for a deletion, and unless the cursor [is on an entry](DbCursor::is_valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.on_kept {
            &self.kept.1
        } else {
            self.stored.value()
        }
    }

    /// The current value as a slice of its block, which it keeps in memory; empty like [`value`](DbCursor::value).
    pub fn value_bytes(&self) -> Bytes {
        if self.on_kept {
            self.kept.1.clone()
        } else {
            self.stored.value_bytes()
        }
    }

    /// Offset, in its file, of the block that contains the current entry.
    pub(super) fn block_offset(&self) -> u64 {
        self.stored.block_offset()
    }

    /// Moves to the first entry whose user key is at or after `user_key`: the newest that is shown. Returns `false`, and
    /// stands after the last entry, if there is none.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block (see [`Table::get`](crate::Table::get)), and
    /// [`ErrorKind::Corruption`] for a stored key that is not an internal key, as for all moves.
    pub fn seek(&mut self, user_key: impl AsRef<[u8]>) -> Result<bool> {
        self.on_kept = false;
        let sequence = self.snapshot.unwrap_or(MAX_SEQUENCE);
        let target = InternalKey::seek_target(user_key.as_ref(), sequence);
        let found = self.stored.seek(&target)?;
        self.finish_move(found, Direction::Forward)
    }

    /// The order of stored keys.
    fn order(&self) -> Result<&Order> {
        self.stored.order()
    }

    /// Moves to the first entry that is shown whose stored key is at or after `key`.
    fn seek_stored(&mut self, key: &[u8]) -> Result<bool> {
        let mut found = self.seek(user_key(key))?;
        while found && self.stored.order()?.compare(self.stored_key(), key).is_lt() {
            found = self.step(Direction::Forward)?;
        }
        Ok(found)
    }

    fn step_in_snapshot(&mut self, snapshot: u64, direction: Direction) -> Result<bool> {
        let is_passing = self.is_valid();
        let was_kept = std::mem::take(&mut self.on_kept);
        if !was_kept {
            self.stored.key().clone_into(&mut self.kept.0);
        }
        match direction {
            Direction::Forward => {
                let found = self.stored.step(direction)?;
                self.find_next(snapshot, found, is_passing)
            }
            Direction::Backward => {
                // Entries of the current user key that come before it are newer than the snapshot.
                let found = if was_kept {
                    self.stored.is_on_entry()
                } else {
                    self.stored.step(direction)?
                };
                self.find_previous(snapshot, found)
            }
        }
    }

    /// Completes a move in `direction`, after which any user key may be shown.
    fn finish_move(&mut self, found: bool, direction: Direction) -> Result<bool> {
        match (self.snapshot, direction) {
            (None, _) => check_entry(&mut self.stored, found),
            (Some(snapshot), Direction::Forward) => self.find_next(snapshot, found, false),
            (Some(snapshot), Direction::Backward) => self.find_previous(snapshot, found),
        }
    }

    /// Moves on to the first entry that the snapshot shows, from the current one on if it was `found`. Passes over the user
    /// key that is `kept` if `is_passing`.
    fn find_next(&mut self, snapshot: u64, mut found: bool, mut is_passing: bool) -> Result<bool> {
        while check_entry(&mut self.stored, found)? {
            let stored = self.stored.key();
            let is_passed = is_passing && self.is_same_key(stored, &self.kept.0);
            if !is_passed && self.sequence() <= snapshot {
                if self.value_type() == ValueType::Value {
                    return Ok(true);
                }
                is_passing = true;
                stored.clone_into(&mut self.kept.0);
            }
            found = self.stored.step(Direction::Forward)?;
        }
        Ok(false)
    }

    /// Searches backwards for the last user key of which the snapshot sees a value, keeps its newest visible entry, and stops before the
    /// entries of that key. Begins with the current entry if it was `found`.
    fn find_previous(&mut self, snapshot: u64, mut found: bool) -> Result<bool> {
        let mut is_kept = false;
        while check_entry(&mut self.stored, found)? {
            let stored = self.stored.key();
            if is_kept && !self.is_same_key(stored, &self.kept.0) {
                break;
            }
            if self.sequence() <= snapshot {
                is_kept = self.value_type() == ValueType::Value;
                stored.clone_into(&mut self.kept.0);
                self.kept.1 = self.stored.value_bytes();
            }
            found = self.stored.step(Direction::Backward)?;
        }
        self.on_kept = is_kept;
        Ok(is_kept)
    }

    /// Whether two stored keys have the same user key.
    pub(super) fn is_same_key(&self, a: &[u8], b: &[u8]) -> bool {
        self.order.compare(user_key(a), user_key(b)).is_eq()
    }
}

impl Walk for DbCursor {
    type Entry = DbEntry;

    fn is_on_entry(&self) -> bool {
        self.is_valid()
    }

    fn is_before_first(&self) -> bool {
        !self.on_kept && self.stored.is_before_first()
    }

    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Result<bool> {
        if let Some(snapshot) = self.snapshot {
            return self.step_in_snapshot(snapshot, direction);
        }
        let moved = self.stored.step(direction)?;
        check_entry(&mut self.stored, moved)
    }

    fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        self.on_kept = false;
        let found = self.stored.seek_to_start(direction)?;
        self.finish_move(found, direction)
    }

    #[inline]
    fn entry(&self) -> DbEntry {
        DbEntry::of(self.internal_key(), || self.value_bytes())
    }

    fn compare(&self, other: &DbCursor) -> Result<Ordering> {
        if self.snapshot.is_some() {
            // In a snapshot, each user key has one entry.
            return Ok(self.order.compare(self.user_key(), other.user_key()));
        }
        self.stored.compare(&other.stored)
    }
}

sorted_cursor!(
    /// From the cursor's position on. The key is the stored one: user key, sequence number and type; seeks are for stored keys, too.
    DbCursor, stored_key, seek_stored
);
