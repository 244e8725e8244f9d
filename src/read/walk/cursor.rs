//! Walks a table in both directions.

use std::fmt;
use std::ops::{Bound, Range};
use std::sync::OnceLock;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::block_search::SearchPart;
use crate::format::internal_key::{user_key, user_order};
use crate::format::prefetch::{LINE, prefetch};
use crate::read::parts::LAYERS;
use crate::read::parts::bounds::{Bounds, Direction, exclude_all, is_within, key_of};
use crate::read::parts::index::BlockRef;
use crate::read::source::stats::Counter;
use crate::read::table::Table;
use crate::read::table::opened::Opened;
use crate::read::walk::ahead::ReadAhead;

/// A position in a table, on an entry or between entries, that moves in both directions.
///
/// A new cursor stands before the first entry. Each move returns whether it ended on an entry; the cursor then lends its
/// key and value, without allocating, until the next move. It keeps one data block in memory.
///
/// In a file that is not in memory, a walk reads ahead: the first two blocks are read alone, then each read takes twice as
/// many blocks as the one before, up to 256 KiB, which the cursor keeps until its next read.
///
/// A cursor never skips an entry that it cannot read: the move fails, and the cursor has no position until a seek
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
/// assert!(!cursor.is_valid());
/// assert!(cursor.seek_to_last()?);
/// assert_eq!(cursor.key(), b"cherry");
/// assert!(cursor.seek_to_first()?);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Cursor {
    pub(crate) table: Table,
    /// Only keys within these bounds are shown.
    pub(crate) bounds: Bounds,
    /// Walks the data block at `at`.
    entries: BlockCursor<Bytes>,
    at: BlockPlace,
    /// The blocks that a walk within the bounds may need, and its read-ahead.
    pub(crate) ahead: ReadAhead,
    /// Where the cursor stands while `entries` is on no entry: at the end of a walk in this direction. `None` after a move
    /// failed.
    end: Option<Direction>,
}

/// Where the current data block is.
#[derive(Clone)]
struct BlockPlace {
    /// `None` until a block is loaded.
    block: Option<BlockRef>,
    /// Whether the block may have entries outside the lower bound, and outside the upper one.
    is_edge: (bool, bool),
    /// Address of the block in memory, if it is used in place; otherwise [`NOWHERE`]. A walk prefetches the memory ahead of
    /// it.
    memory: usize,
    /// For a block that is a slice of a longer read: a copy, made when a value is returned that keeps its block in memory.
    copy: Option<OnceLock<Bytes>>,
}

/// How far ahead a walk prefetches memory, in bytes: an ordinary block, and the restarts at the end of the next one.
const AHEAD: isize = 5 << 10;

/// An address that no file reaches: nothing is prefetched there, and adding an offset in a block does not overflow.
const NOWHERE: usize = usize::MAX / 2;

/// Short: shows the position, not the data.
impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("table", &self.table)
            .field("block", &self.at.block)
            .finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor over a table within bounds, before the first entry.
    pub(crate) fn of_table(table: &Table, bounds: Bounds) -> Cursor {
        // If the order is not known, the first move with a bound fails. If the bounds exclude all keys, no blocks are needed.
        let order = table.order();
        let excludes_all = order.is_ok_and(|order| exclude_all(order, &bounds));
        let mut ahead = ReadAhead::default();
        ahead.limits = excludes_all.then_some(0..0);
        Cursor {
            table: table.clone(),
            bounds,
            entries: BlockCursor::new(Block::default()),
            at: BlockPlace {
                block: None,
                is_edge: (false, false),
                memory: NOWHERE,
                copy: None,
            },
            ahead,
            end: Some(Direction::Backward),
        }
    }

    /// The prefix of all keys within the bounds, if a filter holds prefixes: of keys in bytewise order, or in a database's table, of
    /// user keys.
    pub(crate) fn prefix_to_ask(&self) -> Option<Vec<u8>> {
        let (order, parts) = (self.table.order().ok()?, &self.table.opened.parts);
        let is_bytewise = matches!(user_order(order).unwrap_or(order), Order::Bytewise);
        if self.ahead.limits.is_some() || parts.prefixes.is_none() || !is_bytewise {
            return None;
        }
        let known = |key: Vec<u8>| order.filter_key(&key).to_vec();
        let (lower, upper) = self.bounds.clone();
        let bounds = (lower.map(known), upper.map(known));
        parts.prefix_to_ask(&bounds).map(<[u8]>::to_vec)
    }

    /// Counts whether the filter passed the [prefix](Cursor::prefix_to_ask). If not, no block is needed.
    pub(crate) fn note_prefix(&mut self, passes: bool) {
        let counters = &self.table.opened.store.file.counters;
        counters.add_answer(passes, Counter::PrefixPassed, Counter::PrefixRejected);
        if !passes {
            self.limit_to(0..0);
        }
    }

    /// Asks the filter of prefixes, if there is one and all keys within the bounds have the same prefix.
    pub(crate) fn ask_prefixes(&mut self) -> Result<()> {
        if let Some(prefix) = self.prefix_to_ask() {
            let opened = &self.table.opened;
            let passes = opened.ask(|| opened.parts.passes_prefix(&prefix, LAYERS))?;
            self.note_prefix(passes);
        }
        Ok(())
    }

    /// Whether it is known without reading a block, before the first move, that no entry lies within the bounds.
    pub(crate) fn is_ruled_out(&self) -> Result<bool> {
        if self.ahead.limits.as_ref().is_some_and(Range::is_empty) {
            return Ok(true);
        }
        let (Some(lower), Some(upper)) = (key_of(&self.bounds.0), key_of(&self.bounds.1)) else {
            return Ok(false);
        };
        // Filters cannot exclude ranges, only one key, or the keys of one user key.
        let order = self.table.order()?;
        let is_internal = user_order(order).is_some();
        let is_one_key = lower == upper || is_internal && user_key(lower) == user_key(upper);
        Ok(is_one_key && self.table.opened.candidate(lower, order)?.is_none())
    }
}

impl Cursor {
    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.entries.is_on_entry()
    }

    /// Offset in the file of the current data block; 0 before one is loaded.
    pub(crate) fn block_offset(&self) -> u64 {
        self.at.block.map_or(0, |found| found.handle.offset)
    }

    pub(crate) fn order(&self) -> Result<&Order> {
        self.table.order()
    }

    /// Whether a walk begins here.
    pub(crate) fn is_before_first(&self) -> bool {
        !self.is_valid() && self.end == Some(Direction::Backward)
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
        let mut block = &self.entries.block.data;
        if let Some(copy) = &self.at.copy {
            block = copy.get_or_init(|| Bytes::copy_from_slice(block));
        }
        block.slice(self.entries.value_range())
    }

    /// Moves to the first entry whose key is at or after `key`. Returns `false`, and stands after the last entry, if there
    /// is none.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block (see [`Table::get`]), as for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.unposition(None);
        if !self.is_within_start(key, Direction::Forward)? {
            return self.seek_to_start(Direction::Forward);
        }
        if !self.is_within_start(key, Direction::Backward)? {
            return Ok(self.unposition(Some(Direction::Forward)));
        }
        self.limit()?;
        let opened = &*self.table.opened;
        let Some(found) = opened.seek(key, true)? else {
            return Ok(self.unposition(Some(Direction::Forward)));
        };
        opened.store.prefetch(found);
        let (found, part) = (found.to_ref(), found.part());
        self.load(found, None)?;
        let sought = self.entries.seek(key, self.table.order()?, part);
        // If the target is after the block's last key, but not after its index key, the next block's first key follows
        // it.
        let moved = self.check(sought)? || self.walk(Direction::Forward)?;
        self.stop_at_bound(moved, Direction::Forward)
    }

    /// Moves to the first entry of a walk in `direction`.
    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        self.unposition(None);
        self.limit()?;
        let Some(first) = direction.first(&self.ahead.limits()) else {
            return Ok(self.unposition(Some(direction)));
        };
        self.enter_block(first, None)?;
        let moved = self.seek_in_block(direction)? || self.walk(direction)?;
        self.stop_at_bound(moved, direction)
    }

    #[inline(always)]
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        if self.step_fast(direction) {
            return Ok(true);
        }
        self.step_slow(direction)
    }

    /// Moves to the next entry in `direction` if it is an ordinary one of the same block, which has no entries past the bound, and,
    /// for a step back, is already decoded. Otherwise stays and returns `false`.
    #[inline(always)]
    pub(crate) fn step_fast(&mut self, direction: Direction) -> bool {
        let (stepped, ahead) = match direction {
            Direction::Forward => (!self.at.is_edge.1 && self.entries.step(), AHEAD),
            Direction::Backward => (!self.at.is_edge.0 && self.entries.step_back(), -AHEAD),
        };
        if stepped {
            self.prefetch_at(ahead);
        }
        stepped
    }

    #[inline(never)]
    fn step_slow(&mut self, direction: Direction) -> Result<bool> {
        match self.end {
            _ if self.is_valid() => {
                let moved = self.step_in_block(direction)? || self.walk(direction)?;
                self.stop_at_bound(moved, direction)
            }
            Some(end) if end == direction => Ok(self.unposition(Some(direction))),
            Some(_) => self.seek_to_start(direction),
            None => Err(lost()),
        }
    }

    /// Completes a move in `direction`: there are no entries past the bound.
    #[inline]
    pub(crate) fn stop_at_bound(&mut self, moved: bool, direction: Direction) -> Result<bool> {
        let is_edge = direction.pick(self.at.is_edge.1, self.at.is_edge.0);
        if moved && is_edge && !self.is_within_start(self.key(), direction.reverse())? {
            return Ok(self.unposition(Some(direction)));
        }
        Ok(moved)
    }

    /// Whether `key` is within the bound at which a walk in `direction` starts. Without a bound, the order is not used.
    pub(crate) fn is_within_start(&self, key: &[u8], direction: Direction) -> Result<bool> {
        let order = match direction.pick(&self.bounds.0, &self.bounds.1) {
            Bound::Unbounded => return Ok(true),
            _ => self.table.order()?,
        };
        Ok(is_within(order, &self.bounds, key, direction))
    }

    /// Finds out, before the first block of a table is read, which blocks may have keys within the bounds: only those are read.
    /// Reads the pieces of the index that name the first and the last of them.
    pub(crate) fn limit(&mut self) -> Result<()> {
        if self.ahead.limits.is_none() {
            let (opened, order) = (&*self.table.opened, self.table.order_of(&self.bounds)?);
            let within = || opened.parts.blocks_within(&self.bounds, order);
            self.limit_to(opened.ask(within)?);
        }
        Ok(())
    }

    /// Says which blocks may have keys within the bounds.
    pub(crate) fn limit_to(&mut self, blocks: Range<usize>) {
        self.ahead.limits = Some(blocks);
    }

    /// Moves to the first entry of the blocks after the current one in `direction`. Some writers leave blocks empty.
    fn walk(&mut self, direction: Direction) -> Result<bool> {
        while let Some(next) = self.next_block(direction) {
            self.enter_block(next, Some(direction))?;
            if self.start_in_block(direction)? {
                return Ok(true);
            }
        }
        Ok(self.unposition(Some(direction)))
    }

    /// The block after the current one in `direction`, if the walk may need it; the first one before any is loaded.
    pub(crate) fn next_block(&self, direction: Direction) -> Option<usize> {
        let limits = self.ahead.limits();
        match self.at.block.map(|found| found.block) {
            Some(i) => direction.first(&direction.rest(&limits, &(i..i + 1))),
            None => direction.first(&limits),
        }
    }

    /// Moves to before the first entry.
    pub(crate) fn rewind(&mut self) {
        self.unposition(Some(Direction::Backward));
    }

    /// Leaves the entries. Returns `false`, for no entry.
    #[inline]
    pub(crate) fn unposition(&mut self, end: Option<Direction>) -> bool {
        // No step is possible from there.
        self.entries.move_past_last();
        self.end = end;
        false
    }

    /// Switches to data block `i`, at which a walk has arrived from a neighbour, or begins.
    fn enter_block(&mut self, i: usize, direction: Option<Direction>) -> Result<()> {
        let found = self.ahead.find(&self.table.opened, i, direction)?;
        self.load(found, direction)
    }

    /// Switches to a data block, at none of its entries. The position is lost until the caller finds a new one.
    fn load(&mut self, found: BlockRef, direction: Option<Direction>) -> Result<()> {
        self.unposition(None);
        if self.at.block.is_none_or(|block| block.block != found.block) {
            let table = &self.table;
            self.at.block = None;
            let loaded = self.ahead.load(&table.opened, found, direction, table.read);
            let (payload, is_slice) = loaded?;
            let Opened { parts, store, .. } = &*table.opened;
            let place = store.in_place(parts.index.state(found), found.handle);
            self.at.memory = place.map_or(NOWHERE, |(_, place)| place.start);
            self.enter(found, payload, is_slice)?;
        }
        Ok(())
    }

    /// Switches to a data block with the given contents, at none of its entries.
    pub(crate) fn enter(&mut self, found: BlockRef, payload: Bytes, is_slice: bool) -> Result<()> {
        self.entries.block = self.table.parse(found, payload)?;
        self.entries.move_before_first();
        self.at.copy = is_slice.then(OnceLock::new);
        self.at.block = Some(found);
        let ((lower, upper), limits) = (&self.bounds, self.ahead.limits());
        self.at.is_edge = (
            *lower != Bound::Unbounded && found.block <= limits.start,
            *upper != Bound::Unbounded && found.block + 1 >= limits.end,
        );
        Ok(())
    }

    /// Moves to the first entry of the block within the bound at which a walk in `direction` starts.
    pub(crate) fn seek_in_block(&mut self, direction: Direction) -> Result<bool> {
        let Some(key) = key_of(direction.pick(&self.bounds.0, &self.bounds.1)) else {
            return self.start_in_block(direction);
        };
        let sought = self
            .entries
            .seek(key, self.table.order()?, SearchPart::default());
        Ok(
            self.check(sought)? && self.is_within_start(self.key(), direction)?
                || self.step_in_block(direction)?,
        )
    }

    /// Moves to the first entry of the block in `direction`.
    #[inline]
    fn start_in_block(&mut self, direction: Direction) -> Result<bool> {
        match direction {
            Direction::Forward => self.entries.move_before_first(),
            Direction::Backward => self.entries.move_past_last(),
        }
        self.step_in_block(direction)
    }

    /// Moves to the next entry of the block in `direction`.
    #[inline(always)]
    pub(crate) fn step_in_block(&mut self, direction: Direction) -> Result<bool> {
        let moved = match direction {
            Direction::Forward => self.entries.next(),
            Direction::Backward => self.entries.prev(),
        };
        self.check(moved)
    }

    /// In memory, prefetches the bytes at this distance from the current entry, as many as an ordinary entry takes.
    #[inline]
    fn prefetch_at(&self, distance: isize) {
        // There is nothing beyond either end of the file.
        let place = self.at.memory + self.entries.offset();
        if let Some(file) = self.table.opened.store.file.memory()
            && let Some(bytes) = file.get(place.wrapping_add_signed(distance)..)
            && let Some([first, .., next_line]) = bytes.first_chunk::<{ LINE + 1 }>()
        {
            prefetch([first, next_line].into_iter());
        }
    }

    /// Returns the result of a move within the block. After a failure, the position is lost.
    #[inline]
    fn check(&mut self, moved: Result<bool, Defect>) -> Result<bool> {
        moved.map_err(|defect| self.fail(defect))
    }

    /// The error of a defect in the current data block. The position is lost.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        self.unposition(None);
        self.locate(defect)
    }

    /// The error of a defect in the current block.
    pub(crate) fn locate(&self, defect: Defect) -> Error {
        let file = &self.table.opened.store.file;
        file.locate(defect, Section::Data, self.block_offset())
    }
}

#[cold]
pub(crate) fn lost() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "the cursor lost its position when a move failed: seek before the next step",
    )
}
