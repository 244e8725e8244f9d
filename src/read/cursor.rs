//! Walking a table in both directions.

use std::ops::Bound;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::prefetch::{LINE, prefetch};
use crate::read::ahead::ReadAhead;
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
#[derive(Debug, Clone)]
#[must_use]
pub struct Cursor {
    pub(super) table: Table,
    /// Walks data block `block`.
    entries: BlockCursor<Bytes>,
    /// `None` until a block was loaded.
    block: Option<BlockRef>,
    /// Where in memory the block begins, on a walk through blocks of a file in memory. The memory ahead is touched before
    /// the walk gets there.
    walked: Option<usize>,
    /// What the walk has read ahead, or announced in a mapped file.
    ahead: ReadAhead,
    /// For a block that is a slice of what was read ahead: a copy, once a value is asked for that keeps its block in memory.
    own: Option<OnceLock<Bytes>>,
    /// Where the cursor stands while `entries` is on no entry.
    off: Off,
}

/// How far ahead a walk touches memory, in bytes: a block of ordinary length, and the restarts at the next one's end.
const AHEAD: isize = 5 << 10;

#[derive(Debug, Clone, Copy)]
enum Off {
    BeforeFirst,
    AfterLast,
    /// A move failed.
    Lost,
}

impl Table {
    /// Returns a cursor before the first entry.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            table: self.clone(),
            entries: BlockCursor::new(Block::empty()),
            block: None,
            walked: None,
            ahead: ReadAhead::default(),
            own: None,
            off: Off::BeforeFirst,
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
        self.leave(Off::Lost);
        let Some(found) = self.table.seek(key)? else {
            return Ok(self.leave(Off::AfterLast));
        };
        self.load(found)?;
        let sought = self.entries.seek(key, self.table.order()?);
        if self.check(sought)? {
            return Ok(true);
        }
        // Past the block's last key, but not past its index key: the next block's first.
        self.first_from(found.block + 1)
    }

    /// Moves to the first entry within the bound `lower`.
    pub(super) fn seek_lower(&mut self, lower: &Bound<Vec<u8>>) -> Result<bool> {
        match lower {
            Bound::Unbounded => self.seek_to_first(),
            Bound::Included(key) => self.seek(key),
            Bound::Excluded(key) => {
                let found = self.seek(key)?;
                if found && self.table.order()?.compare(self.key(), key).is_eq() {
                    self.next()
                } else {
                    Ok(found)
                }
            }
        }
    }

    /// Moves to the last entry within the bound `upper`.
    pub(super) fn seek_upper(&mut self, upper: &Bound<Vec<u8>>) -> Result<bool> {
        match upper {
            Bound::Unbounded => self.seek_to_last(),
            Bound::Included(key) => self.seek_back(key, true),
            Bound::Excluded(key) => self.seek_back(key, false),
        }
    }

    /// Moves to the last entry whose key is before `key`, or at it if `or_at`. Returns `false`, and stands before the first
    /// entry, if there is none.
    fn seek_back(&mut self, key: &[u8], or_at: bool) -> Result<bool> {
        self.leave(Off::Lost);
        let Some(found) = self.table.seek(key)? else {
            return self.seek_to_last();
        };
        self.load(found)?;
        let sought = self.entries.seek(key, self.table.order()?);
        if self.check(sought)? && or_at && self.table.order()?.compare(self.key(), key).is_eq() {
            return Ok(true);
        }
        let moved = self.entries.prev();
        if self.check(moved)? {
            return Ok(true);
        }
        self.last_before(found.block)
    }

    /// Moves to the first entry; returns `false` if the table is empty.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.walked = None;
        self.first_from(0)
    }

    /// Moves to the last entry; returns `false` if the table is empty.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.walked = None;
        self.last_before(self.table.data_blocks())
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
        if self.step_plainly() {
            return Ok(true);
        }
        self.next_slowly()
    }

    /// Moves to the next entry if it is an ordinary one of the same block. Otherwise stays and returns `false`.
    #[inline(always)]
    pub(super) fn step_plainly(&mut self) -> bool {
        let stepped = self.entries.step();
        if stepped {
            self.touch_at(AHEAD);
        }
        stepped
    }

    #[inline(never)]
    fn next_slowly(&mut self) -> Result<bool> {
        let Some(block) = self.block.filter(|_| self.entries.is_on_entry()) else {
            return match self.off {
                Off::BeforeFirst => self.first_from(0),
                Off::AfterLast => Ok(false),
                Off::Lost => Err(lost()),
            };
        };
        let moved = self.entries.next();
        if self.check(moved)? {
            return Ok(true);
        }
        self.first_from(block.block + 1)
    }

    /// Moves to the previous entry: from after the last entry to the last. Returns `false` before the first.
    ///
    /// # Errors
    ///
    /// Those of reading a data block, and [`ErrorKind::InvalidState`] after a failed move.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        if self.step_back_plainly() {
            return Ok(true);
        }
        self.prev_slowly()
    }

    /// Moves to the previous entry if it was decoded before. Otherwise stays and returns `false`.
    #[inline(always)]
    pub(super) fn step_back_plainly(&mut self) -> bool {
        let stepped = self.entries.step_back();
        if stepped {
            self.touch_at(-AHEAD);
        }
        stepped
    }

    #[inline(never)]
    fn prev_slowly(&mut self) -> Result<bool> {
        let Some(block) = self.block.filter(|_| self.entries.is_on_entry()) else {
            return match self.off {
                Off::BeforeFirst => Ok(false),
                Off::AfterLast => self.seek_to_last(),
                Off::Lost => Err(lost()),
            };
        };
        let moved = self.entries.prev();
        if self.check(moved)? {
            return Ok(true);
        }
        self.last_before(block.block)
    }

    /// From now on reads no blocks before or after those that may have keys within these bounds: it is before the first entry or
    /// after the last then. Reads the pieces of the index that name the first and the last of them.
    pub(super) fn read_within(
        &mut self,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
    ) -> Result<()> {
        let inner = &*self.table.inner;
        inner.bring(inner.parts_for_bounds(lower, upper)?)?;
        let block_of = |bound: &Bound<Vec<u8>>| -> Result<Option<usize>> {
            match bound {
                Bound::Included(key) | Bound::Excluded(key) => Ok(inner
                    .seek_one(key, inner.order()?)?
                    .map(|found| found.block)),
                Bound::Unbounded => Ok(None),
            }
        };
        let start = block_of(lower)?.unwrap_or(0);
        let end = block_of(upper)?.map_or(usize::MAX, |last| last + 1);
        self.ahead.limit(start..end);
        Ok(())
    }

    /// Moves to the first entry of the blocks from `block` on. Some writers leave blocks empty.
    fn first_from(&mut self, block: usize) -> Result<bool> {
        for block in block..self.table.data_blocks().min(self.ahead.limits().end) {
            self.walk_into(block)?;
            self.entries.move_before_first();
            let moved = self.entries.next();
            if self.check(moved)? {
                return Ok(true);
            }
        }
        Ok(self.leave(Off::AfterLast))
    }

    /// Moves to the last entry of the blocks before `block`.
    fn last_before(&mut self, block: usize) -> Result<bool> {
        for block in (self.ahead.limits().start..block).rev() {
            self.walk_into(block)?;
            self.entries.move_past_last();
            let moved = self.entries.prev();
            if self.check(moved)? {
                return Ok(true);
            }
        }
        Ok(self.leave(Off::BeforeFirst))
    }

    /// Leaves the entries. Returns `false`: the cursor is on none.
    fn leave(&mut self, off: Off) -> bool {
        // No step leads on from there.
        self.entries.move_past_last();
        self.off = off;
        false
    }

    /// Turns to data block `block`, at which a walk has arrived or begins.
    fn walk_into(&mut self, block: usize) -> Result<()> {
        let found = self.ahead.find(&self.table.inner, block)?;
        self.load(found)?;
        self.walked = self.table.place_in_memory(found);
        Ok(())
    }

    /// Turns to a data block, before its first entry. The position is lost until the caller has found a new one.
    fn load(&mut self, found: BlockRef) -> Result<()> {
        self.leave(Off::Lost);
        self.walked = None;
        if self.block.is_none_or(|block| block.block != found.block) {
            self.block = None;
            let (block, is_slice) = self.table.block_ahead(found, &mut self.ahead)?;
            self.entries.reset(block);
            self.own = is_slice.then(OnceLock::new);
            self.block = Some(found);
        }
        Ok(())
    }

    /// On a walk through memory, touches the bytes this far from the current entry: as much as an ordinary entry has.
    #[inline]
    fn touch_at(&self, distance: isize) {
        if let (Some(block), Some(file)) = (self.walked, self.table.file().memory()) {
            let at = (block + self.entries.offset()).wrapping_add_signed(distance);
            // Nothing is there at both ends of the file.
            if let Some(bytes) = file.get(at..)
                && let Some([first, .., next_line]) = bytes.first_chunk::<{ LINE + 1 }>()
            {
                prefetch([first, next_line].into_iter());
            }
        }
    }

    /// Passes on the result of a move within the block; if it failed, the position is lost.
    #[inline]
    fn check(&mut self, moved: Result<bool, Defect>) -> Result<bool> {
        moved.map_err(|defect| self.fail(defect))
    }

    #[cold]
    fn fail(&mut self, defect: Defect) -> Error {
        self.leave(Off::Lost);
        self.locate(defect)
    }

    /// The error of a defect in the block that the cursor is in.
    #[cold]
    #[expect(
        clippy::expect_used,
        reason = "an empty cursor has no block that could be damaged"
    )]
    pub(super) fn locate(&self, defect: Defect) -> Error {
        let block = self.block.expect("the block that has a defect");
        self.table.locate(block, defect)
    }
}

#[cold]
pub(super) fn lost() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "the cursor lost its position when a move failed: seek before the next step",
    )
}
