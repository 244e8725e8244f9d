//! Walking a table in both directions.

use std::fmt;
use std::ops::Bound;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::prefetch::{LINE, prefetch};
use crate::read::ahead::ReadAhead;
use crate::read::bounds::{Bounds, Way};
use crate::read::index::BlockRef;
use crate::read::table::Table;

/// A position in a table, on an entry or between entries, that moves in both directions.
///
/// A new cursor stands before the first entry. Each move returns whether it ended on an entry; the cursor then lends its
/// key and value, without allocating, until the next move. It keeps one data block in memory.
///
/// In a file that is not in memory, a walk reads ahead: the first two blocks come alone, then each read takes twice as many
/// bytes as the one before, up to 256 KiB, which the cursor keeps until its next read.
///
/// A cursor never skips an entry that it cannot read: the move is an error, and the cursor has no position until a seek
/// succeeds.
///
/// ```
/// # use leveltable::{OpenOptions, WriteOptions};
/// # let mut file = Vec::new();
/// # let mut builder = WriteOptions::new().build(&mut file);
/// # for key in ["apple", "banana", "cherry"] { builder.add(key.as_bytes(), b"")?; }
/// # builder.finish()?;
/// # let table = OpenOptions::new().open_source(file)?;
/// let mut cursor = table.cursor();
/// assert!(cursor.seek("b")?);
/// assert_eq!(cursor.key(), b"banana");
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), b"apple");
/// assert!(!cursor.prev()?, "before the first");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Cursor {
    pub(super) table: Table,
    /// Walks data block `block`.
    entries: BlockCursor<Bytes>,
    /// `None` until a block was loaded.
    pub(super) block: Option<BlockRef>,
    /// Where in memory the block begins, on a walk through blocks of a file in memory; otherwise [`NOWHERE`]. The memory ahead is
    /// touched before the walk gets there.
    walked: usize,
    /// What the walk has read ahead, or announced in a mapped file.
    pub(super) ahead: ReadAhead,
    /// For a block that is a slice of what was read ahead: a copy, once a value is asked for that keeps its block in memory.
    own: Option<OnceLock<Bytes>>,
    /// Where the cursor stands while `entries` is on no entry: where a walk this way ends. `None` after a move failed.
    end: Option<Way>,
}

/// How far ahead a walk prefetches memory, in bytes: a block of ordinary length, and the restarts at the next one's end.
const AHEAD: isize = 5 << 10;

/// No place in memory: nothing ahead is prefetched but, harmlessly, by the first entry of a block.
const NOWHERE: usize = usize::MAX;

/// Short: the place, not what was read.
impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("table", &self.table)
            .field("entries", &self.entries)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Returns a cursor before the first entry.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            table: self.clone(),
            entries: BlockCursor::new(Block::default()),
            block: None,
            walked: NOWHERE,
            ahead: ReadAhead::within(0..self.data_blocks()),
            own: None,
            end: Some(Way::Back),
        }
    }
}

impl Cursor {
    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.entries.is_on_entry()
    }

    /// The current key; empty unless the cursor [is on an entry](Cursor::is_valid).
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The current value; empty unless the cursor [is on an entry](Cursor::is_valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// The current value as a slice of its block, which it keeps in memory; empty like [`value`](Cursor::value).
    pub fn value_bytes(&self) -> Bytes {
        let mut block = self.entries.block().data();
        if let Some(own) = &self.own {
            block = own.get_or_init(|| Bytes::copy_from_slice(block));
        }
        block.slice(self.entries.value_range())
    }

    /// Moves to the first entry whose key is at or after `key`. Returns `false`, and stands after the last entry, if there
    /// is none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block (see [`Table::get`]), as for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_bytes(key.as_ref())
    }

    fn seek_bytes(&mut self, key: &[u8]) -> Result<bool> {
        self.leave(None);
        let Some(found) = self.table.seek(key)? else {
            return Ok(self.leave(Some(Way::Forward)));
        };
        self.load(found, None)?;
        let sought = self.entries.seek(key, self.table.order()?);
        // Past the block's last key, but not past its index key, it is the next block's first.
        Ok(self.check(sought)? || self.walk(Way::Forward)?)
    }

    /// Moves to the first entry; returns `false` if the table is empty.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.seek_from(Bound::Unbounded, Way::Forward)
    }

    /// Moves to the last entry; returns `false` if the table is empty.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.seek_from(Bound::Unbounded, Way::Back)
    }

    /// Moves to the first entry of a walk along `way` that starts at `bound`, which lies in the first block that the walk may
    /// need.
    pub(super) fn seek_from(&mut self, bound: Bound<&[u8]>, way: Way) -> Result<bool> {
        self.leave(None);
        let Some(first) = way.first(&self.ahead.limits) else {
            return Ok(self.leave(Some(way)));
        };
        self.walk_into(first, None)?;
        Ok(self.seek_in_block(bound, way)? || self.walk(way)?)
    }

    /// Moves to the next entry: from before the first entry to the first. Returns `false` after the last.
    ///
    /// # Errors
    ///
    /// Those of reading a data block, and [`ErrorKind::InvalidState`] after a failed move.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor lends its entries, an Iterator cannot"
    )]
    pub fn next(&mut self) -> Result<bool> {
        self.go(Way::Forward)
    }

    /// Moves to the previous entry: from after the last entry to the last. Returns `false` before the first.
    ///
    /// # Errors
    ///
    /// Those of reading a data block, and [`ErrorKind::InvalidState`] after a failed move.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.go(Way::Back)
    }

    #[inline(always)]
    fn go(&mut self, way: Way) -> Result<bool> {
        if self.step_plainly(way) {
            return Ok(true);
        }
        self.go_slowly(way)
    }

    /// Moves to the next entry on the way if it is an ordinary one of the same block, and on the way back was decoded before.
    /// Otherwise stays and returns `false`.
    #[inline(always)]
    pub(super) fn step_plainly(&mut self, way: Way) -> bool {
        let (stepped, ahead) = match way {
            Way::Forward => (self.entries.step(), AHEAD),
            Way::Back => (self.entries.step_back(), -AHEAD),
        };
        if stepped {
            self.prefetch_at(ahead);
        }
        stepped
    }

    #[inline(never)]
    pub(super) fn go_slowly(&mut self, way: Way) -> Result<bool> {
        match self.end {
            _ if self.is_valid() => Ok(self.step_in_block(way)? || self.walk(way)?),
            Some(end) if end == way => Ok(false),
            Some(_) => self.seek_from(Bound::Unbounded, way),
            None => Err(lost()),
        }
    }

    /// From now on reads no blocks before or after those that may have keys within these bounds: it is before the first entry or
    /// after the last then. Reads the pieces of the index that name the first and the last of them.
    pub(super) fn limit(&mut self, bounds: &Bounds) -> Result<()> {
        let inner = &*self.table.inner;
        inner.bring(inner.missing_for_bounds(&bounds.0, &bounds.1)?)?;
        self.ahead.limits = inner.blocks_within(bounds)?;
        Ok(())
    }

    /// Moves to the first entry of the blocks that come on the way after the current one. Some writers leave blocks empty.
    fn walk(&mut self, way: Way) -> Result<bool> {
        while let Some(next) = self.next_block(way) {
            self.walk_into(next, Some(way))?;
            if self.start_in_block(way)? {
                return Ok(true);
            }
        }
        Ok(self.leave(Some(way)))
    }

    /// The block that comes on the way after the current one, if the walk may need it; the first one before any was loaded.
    pub(super) fn next_block(&self, way: Way) -> Option<usize> {
        let limits = &self.ahead.limits;
        match self.block.map(|found| found.block) {
            Some(i) => way.first(&way.rest(limits, &(i..i + 1))),
            None => way.first(limits),
        }
    }

    /// Leaves the entries. Returns `false`: the cursor is on none.
    pub(super) fn leave(&mut self, end: Option<Way>) -> bool {
        // No step leads on from there.
        self.entries.move_past_last();
        self.end = end;
        false
    }

    /// Turns to data block `i`, at which a walk has arrived from the one beside it, or begins.
    fn walk_into(&mut self, i: usize, way: Option<Way>) -> Result<()> {
        let beside = way.and(self.block);
        let found = self.ahead.find(&self.table.inner, i, way, beside)?;
        self.load(found, way)?;
        let place = self.table.place_in_memory(found);
        self.walked = place.unwrap_or(NOWHERE);
        Ok(())
    }

    /// Turns to a data block, at none of its entries. The position is lost until the caller has found a new one.
    fn load(&mut self, found: BlockRef, way: Option<Way>) -> Result<()> {
        self.leave(None);
        self.walked = NOWHERE;
        if self.block.is_none_or(|block| block.block != found.block) {
            self.block = None;
            let Table { inner, read } = &self.table;
            let (payload, is_slice) = self.ahead.load(inner, found, way, *read)?;
            self.enter(found, payload, is_slice)?;
        }
        Ok(())
    }

    /// Turns to a data block, of which it is given the contents; at none of its entries.
    pub(super) fn enter(&mut self, found: BlockRef, payload: Bytes, is_slice: bool) -> Result<()> {
        let block = Block::parse(payload).map_err(|defect| self.table.locate(found, defect))?;
        self.entries.reset(block);
        self.own = is_slice.then(OnceLock::new);
        self.block = Some(found);
        Ok(())
    }

    /// Moves to the first entry of the block, of a walk along `way` that starts at `bound`.
    pub(super) fn seek_in_block(&mut self, bound: Bound<&[u8]>, way: Way) -> Result<bool> {
        let (key, or_at) = match bound {
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
            Bound::Unbounded => return self.start_in_block(way),
        };
        let order = self.table.order()?;
        let sought = self.entries.seek(key, order);
        let is_at = |entries: &BlockCursor<Bytes>| order.compare(entries.key(), key).is_eq();
        let is_first = match (&sought, way) {
            (Ok(true), Way::Forward) => or_at || !is_at(&self.entries),
            (Ok(true), Way::Back) => or_at && is_at(&self.entries),
            _ => false,
        };
        Ok(self.check(sought)? && is_first || self.step_in_block(way)?)
    }

    /// Moves to the first entry of the block on the way.
    #[inline]
    fn start_in_block(&mut self, way: Way) -> Result<bool> {
        match way {
            Way::Forward => self.entries.move_before_first(),
            Way::Back => self.entries.move_past_last(),
        }
        self.step_in_block(way)
    }

    /// Moves to the next entry of the block on the way.
    #[inline(always)]
    pub(super) fn step_in_block(&mut self, way: Way) -> Result<bool> {
        let moved = match way {
            Way::Forward => self.entries.next(),
            Way::Back => self.entries.prev(),
        };
        self.check(moved)
    }

    /// On a walk through memory, prefetches the bytes this far from the current entry: as much as an ordinary entry has.
    #[inline]
    fn prefetch_at(&self, distance: isize) {
        // Nothing is there at both ends of the file.
        if let Some(entry) = self.walked.checked_add(self.entries.offset())
            && let Some(file) = self.table.file().memory()
            && let Some(bytes) = file.get(entry.wrapping_add_signed(distance)..)
            && let Some([first, .., next_line]) = bytes.first_chunk::<{ LINE + 1 }>()
        {
            prefetch([first, next_line].into_iter());
        }
    }

    /// Passes on the result of a move within the block; if it failed, the position is lost.
    #[inline]
    fn check(&mut self, moved: Result<bool, Defect>) -> Result<bool> {
        moved.map_err(|defect| self.fail(defect))
    }

    #[cold]
    fn fail(&mut self, defect: Defect) -> Error {
        self.leave(None);
        self.locate(defect)
    }

    /// The error of a defect in the block that the cursor is in.
    #[cold]
    pub(super) fn locate(&self, defect: Defect) -> Error {
        let offset = self.block.map_or(0, |block| block.handle.offset);
        self.table.file().locate(defect, Section::Data, offset)
    }
}

#[cold]
pub(super) fn lost() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "the cursor lost its position when a move failed: seek before the next step",
    )
}
