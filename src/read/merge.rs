//! Walking several tables as one.

use std::cmp::Ordering;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::key::user_order;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Defect;
use crate::read::bounded::Input;
use crate::read::cursor::lost;
use crate::read::ends::{Ends, Lend};
use crate::read::range::Range;
use crate::read::ranking::Way;
use crate::read::table::Table;
use crate::read::tournament::{Ties, Tournament};

/// A cursor over the entries of several tables, in the order of their keys; made by [`Table::merge`].
///
/// Moves like a [`Cursor`](crate::Cursor): a new one stands before the first entry, each move returns whether it ended on an
/// entry, and key and value are lent until the next move. Each input keeps one data block in memory. If a move of one
/// input is an error, so is the move of the merge, which has no position then until a seek succeeds.
///
/// If several inputs have the same key, all of these entries are shown, in the order in which the inputs were given (and in
/// the reverse order on the way back). After [`first_wins`](MergeCursor::first_wins), only the first of them is.
///
/// ```
/// # use leveltable::{OpenOptions, Table, WriteOptions};
/// # fn table(entries: &[(&str, &str)]) -> leveltable::Result<Table> {
/// #     let mut file = Vec::new();
/// #     let mut builder = WriteOptions::new().build(&mut file);
/// #     for (key, value) in entries { builder.add(key, value)?; }
/// #     builder.finish()?;
/// #     OpenOptions::new().open_source(file)
/// # }
/// let new = table(&[("apple", "green"), ("cherry", "dark")])?;
/// let old = table(&[("apple", "red"), ("banana", "yellow")])?;
/// let mut cursor = Table::merge([&new, &old])?.first_wins();
/// assert!(cursor.seek("apple")?);
/// assert_eq!(cursor.value(), b"green");
/// assert!(cursor.next()?);
/// assert_eq!((cursor.key(), cursor.input()), (&b"banana"[..], 1));
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct MergeCursor {
    inputs: Vec<Input>,
    tournament: Tournament,
    /// The input on top, or no input's number where the cursor is on no entry.
    top: usize,
    way: Way,
    /// Where the cursor stands while no input is on an entry.
    off: Off,
    ties: Ties,
    /// The key whose further entries are passed over.
    passed: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Off {
    BeforeFirst,
    AfterLast,
    /// A move failed.
    Lost,
}

/// The number of no input.
const NOWHERE: usize = usize::MAX;

impl Table {
    /// Returns a cursor over the entries of several tables of one order, or of [ranges](Table::range) of them, before the
    /// first entry.
    ///
    /// No block is read until the first move, and none at all of an input that is known to have no entry within its bounds:
    /// by the first and last key in its [properties](Table::properties), or by its filter if the bounds are one key
    /// (`key..=key`). A table whose properties name its first key is read when the merge gets there. If the properties
    /// are wrong, that is an error then, but keys outside of what they say may not be shown.
    ///
    /// A step takes a few comparisons of integers for most keys in bytewise order, and about log₂ *n* comparisons of keys in
    /// other orders.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, Table, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana", "cherry"] { builder.add(key, "")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// # let tables = [table.clone(), table];
    /// for entry in Table::merge(tables.iter().map(|table| table.range("b"..)))? {
    ///     let (key, value) = entry?;
    ///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Comparator`] if the names of the inputs' orders differ, or an order is not known.
    pub fn merge<R: Into<Range>>(inputs: impl IntoIterator<Item = R>) -> Result<MergeCursor> {
        let mut merge = MergeCursor::default();
        for range in inputs {
            let input = Input::new(range.into(), merge.inputs.len())?;
            merge.inputs.push(input);
        }
        merge.check_orders()?;
        merge.drop_ruled_out()?;
        Ok(merge)
    }
}

/// Short: the place, not the inputs.
impl fmt::Debug for MergeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeCursor")
            .field("inputs", &self.inputs.len())
            .field("on", &self.top().map(|input| input.number))
            .field("off", &self.off)
            .finish_non_exhaustive()
    }
}

/// Of no inputs: empty.
impl Default for MergeCursor {
    fn default() -> MergeCursor {
        MergeCursor {
            inputs: Vec::new(),
            tournament: Tournament::of(&Order::Bytewise),
            top: NOWHERE,
            way: Way::Forward,
            off: Off::BeforeFirst,
            ties: Ties::AsGiven,
            passed: Vec::new(),
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "players name inputs, places are below their number, a cursor on an entry has inputs"
)]
impl MergeCursor {
    /// A cursor over the entries of one table within bounds. Without bounds, the table's order need not be known.
    pub(crate) fn of_one(
        table: &Table,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> MergeCursor {
        let mut merge = MergeCursor::default();
        merge.inputs.push(Input::alone(table, lower, upper));
        merge
    }

    /// A cursor over the entries of several, before the first. Their positions are not kept.
    pub(crate) fn of_merges(merges: impl IntoIterator<Item = MergeCursor>) -> Result<MergeCursor> {
        let mut merged = MergeCursor::default();
        for merge in merges {
            for input in merge.inputs {
                let number = merged.inputs.len();
                merged.inputs.push(input.renumbered(number));
            }
        }
        merged.check_orders()?;
        merged.drop_ruled_out()?;
        Ok(merged)
    }

    /// Checks that all inputs are in one order.
    fn check_orders(&mut self) -> Result<()> {
        let mut first = None;
        for input in &self.inputs {
            let order = input.cursor.table.order()?;
            let first = *first.get_or_insert(order);
            if name_of(first) != name_of(order) {
                return Err(other_order(input, first, order));
            }
        }
        self.tournament = Tournament::of(first.unwrap_or(&Order::Bytewise));
        Ok(())
    }

    fn drop_ruled_out(&mut self) -> Result<()> {
        let mut kept = Vec::with_capacity(self.inputs.len());
        for input in self.inputs.drain(..) {
            if !input.is_ruled_out()? {
                kept.push(input);
            }
        }
        self.inputs = kept;
        Ok(())
    }

    /// Shows of each key only the entry of the first input that has it: for tables given from the newest to the oldest.
    ///
    /// The cursor returned stands before the first entry.
    pub fn first_wins(mut self) -> MergeCursor {
        self.ties = Ties::FirstWins;
        self.rewind();
        self
    }

    /// Moves before the first entry, without reading.
    pub(crate) fn rewind(&mut self) {
        self.top = NOWHERE;
        self.inputs.iter_mut().for_each(Input::rewind);
        self.off = Off::BeforeFirst;
    }

    #[inline]
    fn top(&self) -> Option<&Input> {
        self.inputs.get(self.top)
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.top != NOWHERE
    }

    /// The current key; empty unless the cursor [is on an entry](MergeCursor::is_valid).
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.top().map_or(&[], |input| input.cursor.key())
    }

    /// The current value; empty unless the cursor [is on an entry](MergeCursor::is_valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.top().map_or(&[], |input| input.cursor.value())
    }

    /// The current value as a slice of its block, which it keeps in memory; empty like [`value`](MergeCursor::value).
    pub fn value_bytes(&self) -> Bytes {
        self.top()
            .map_or_else(Bytes::new, |input| input.cursor.value_bytes())
    }

    /// Which of the inputs the current entry is from, counted from 0 in the order in which they were given; 0 unless the
    /// cursor [is on an entry](MergeCursor::is_valid).
    pub fn input(&self) -> usize {
        self.top().map_or(0, |input| input.number)
    }

    /// Moves to the first entry at or after `key`. Returns `false`, and stands after the last entry, if there is none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block (see [`Table::get`]), as for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.place(Way::Forward, |input| input.seek(key))
    }

    /// Moves to the first entry; returns `false` if there is none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.place(Way::Forward, Input::seek_to_first)
    }

    /// Moves to the last entry; returns `false` if there is none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.place(Way::Back, Input::seek_to_last)
    }

    /// Moves to the next entry: from before the first entry to the first. Returns `false` after the last.
    ///
    /// After a move back, every input takes a step.
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
        // Nearly all steps: to an ordinary entry, perhaps among those of other inputs.
        if self.way == Way::Forward
            && self.ties == Ties::AsGiven
            && let Some(top) = self.inputs.get_mut(self.top)
            && top.step_plainly()
        {
            return match &self.inputs[..] {
                [_] => Ok(true),
                inputs => {
                    let (way, ties) = (Way::Forward, Ties::AsGiven);
                    self.top = self.tournament.play_again(inputs, true, way, ties);
                    self.read_top()
                }
            };
        }
        self.go(Way::Forward)
    }

    /// Moves to the previous entry: from after the last entry to the last. Returns `false` before the first.
    ///
    /// After a move forward, every input takes a step.
    ///
    /// # Errors
    ///
    /// Those of reading a data block, and [`ErrorKind::InvalidState`] after a failed move.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.go(Way::Back)
    }

    /// A move that may be of any kind.
    #[inline(never)]
    fn go(&mut self, way: Way) -> Result<bool> {
        if self.way != way || self.top == NOWHERE {
            return self.turn(way);
        }
        let moved = match &mut self.inputs[..] {
            [alone] => alone.step(way).map(|_| ()),
            _ => self.step(way),
        };
        match moved {
            Ok(()) => self.read_top(),
            Err(error) => self.end(Err(error)),
        }
    }

    /// Goes on the other way, or from one end.
    #[inline(never)]
    fn turn(&mut self, way: Way) -> Result<bool> {
        if self.top == NOWHERE {
            match (self.off, way) {
                (Off::Lost, _) => return Err(lost()),
                (Off::AfterLast, Way::Forward) | (Off::BeforeFirst, Way::Back) => return Ok(false),
                (Off::BeforeFirst, Way::Forward) | (Off::AfterLast, Way::Back) => {}
            }
        }
        // The current entry's input leaves it. All others come from the last entry on one side of it to the first on the other.
        self.place(way, |input| input.step(way))
    }

    /// Moves every input, and finds the one that is first on the way.
    fn place(
        &mut self,
        way: Way,
        mut place: impl FnMut(&mut Input) -> Result<bool>,
    ) -> Result<bool> {
        self.way = way;
        let mut is_any = false;
        for input in &mut self.inputs {
            match place(input) {
                Ok(moved) => is_any |= moved,
                Err(error) => return self.end(Err(error)),
            }
        }
        if !is_any {
            return self.end(Ok(false));
        }
        self.top = self.tournament.play(&self.inputs, way, self.ties);
        self.read_top()
    }

    /// Moves the input on top, and brings the one there that is next.
    fn step(&mut self, way: Way) -> Result<()> {
        let passes = self.ties == Ties::FirstWins && self.tournament.has_equal_rank();
        if !passes {
            return self.advance(way);
        }
        let mut passed = std::mem::take(&mut self.passed);
        passed.clear();
        passed.extend_from_slice(self.key());
        loop {
            self.advance(way)?;
            let next = &self.inputs[self.top];
            if !next.is_on_entry() || self.tournament.order().compare(next.key(), &passed).is_ne() {
                break;
            }
        }
        self.passed = passed;
        Ok(())
    }

    /// The same, without passing over other entries of the current key.
    #[inline(always)]
    fn advance(&mut self, way: Way) -> Result<()> {
        let moved = self.inputs[self.top].step(way)?;
        let ties = self.ties;
        self.top = self.tournament.play_again(&self.inputs, moved, way, ties);
        Ok(())
    }

    /// Lends the entry on top, which is read if only its key is known. Returns `false` if no input is on an entry.
    #[inline(always)]
    fn read_top(&mut self) -> Result<bool> {
        match self.inputs[self.top].read() {
            Ok(true) => Ok(true),
            ended => self.end(ended),
        }
    }

    /// Ends a move that did not end on an entry.
    #[cold]
    fn end(&mut self, ended: Result<bool>) -> Result<bool> {
        self.top = NOWHERE;
        self.off = match (&ended, self.way) {
            (Err(_), _) => Off::Lost,
            (Ok(_), Way::Forward) => Off::AfterLast,
            (Ok(_), Way::Back) => Off::BeforeFirst,
        };
        ended
    }

    /// The error of a defect in the current entry.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        let error = match self.top() {
            Some(input) => input.cursor.locate(defect),
            None => lost(),
        };
        self.top = NOWHERE;
        self.off = Off::Lost;
        error
    }
}

/// The name of an order; that of user keys in a database's tables.
fn name_of(order: &Order) -> (bool, &str) {
    match user_order(order) {
        Some(user) => (true, user.comparator().name()),
        None => (false, order.comparator().name()),
    }
}

#[cold]
fn other_order(input: &Input, first: &Order, order: &Order) -> Error {
    let describe = |order| match name_of(order) {
        (true, name) => format!("{name:?}, of a database's user keys"),
        (false, name) => format!("{name:?}"),
    };
    let message = format!(
        "inputs of a merge must be in one order: number 0 is in the order {}, number {} in the order {}",
        describe(first),
        input.number,
        describe(order)
    );
    let error = Error::new(ErrorKind::Comparator, message);
    input.cursor.table.file().name_in(error)
}

impl Lend for MergeCursor {
    type Entry = (Bytes, Bytes);

    fn is_on_entry(&self) -> bool {
        self.is_valid()
    }

    fn move_to_last(&mut self) -> Result<bool> {
        self.seek_to_last()
    }

    #[inline]
    fn step(&mut self) -> Result<bool> {
        self.next()
    }

    #[inline]
    fn step_back(&mut self) -> Result<bool> {
        self.prev()
    }

    fn entry(&self) -> (Bytes, Bytes) {
        (Bytes::copy_from_slice(self.key()), self.value_bytes())
    }

    fn compare(&self, other: &MergeCursor) -> Result<Ordering> {
        let Some(input) = self.top() else {
            return Ok(Ordering::Less);
        };
        let order = input.cursor.table.order()?;
        let by_key = order.compare(self.key(), other.key());
        Ok(by_key.then(self.input().cmp(&other.input())))
    }
}

/// The entries from the first on, whatever the cursor's position.
impl IntoIterator for MergeCursor {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = MergeRange;

    fn into_iter(mut self) -> MergeRange {
        self.rewind();
        MergeRange(Ends::new(self))
    }
}

/// The entries of a [`MergeCursor`], from both ends.
///
/// Ends after its first error. Each key is a copy, where a [`MergeCursor`] lends it; values are slices of their blocks. From
/// the first entry that is taken from the back on, it has two cursors.
#[derive(Debug, Clone)]
#[must_use]
pub struct MergeRange(Ends<MergeCursor>);

impl Iterator for MergeRange {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for MergeRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl FusedIterator for MergeRange {}
