//! Walks several tables as one.

use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::read::parts::bounds::Direction;
use crate::read::walk::cursor::{Cursor, lost};
use crate::read::walk::input::Input;
use crate::read::walk::run::differing;

/// A cursor over the entries of several tables, in the order of their keys; made by [`Table::merge`](crate::Table::merge).
///
/// Moves like a [`Cursor`](crate::Cursor): a new one stands before the first entry, each move returns whether it ended on an
/// entry, and key and value are lent until the next move. Each input keeps one data block in memory. If a move of one input
/// fails, so does the move of the merge, which then has no position until a seek succeeds. When the direction changes, every input takes a
/// step.
///
/// If several inputs have the same key, all of these entries are shown, in the order in which the inputs were given (and in
/// the reverse order on the way back). Of tables given from the newest to the oldest, the first entry of a key is the newest.
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
/// let mut cursor = Table::merge([&new, &old])?;
/// assert!(cursor.seek("apple")?);
/// assert_eq!((cursor.value(), cursor.input()), (&b"green"[..], 0));
/// assert!(cursor.next()?);
/// assert_eq!((cursor.value(), cursor.input()), (&b"red"[..], 1));
/// assert!(cursor.seek_to_last()? && cursor.is_valid());
/// assert_eq!(cursor.key(), b"cherry");
/// assert!(cursor.seek_to_first()?);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct MergeCursor {
    /// The inputs that may have entries, each with its number among all that were given. On the way forward, each stands on its first entry
    /// after the current one, on the way back on its last one before it.
    inputs: Vec<(usize, Input)>,
    /// A loser tree of the inputs' numbers. The first is the winner: the input with the current entry. The others are the
    /// losers of each match: the one at place `i` was played by the winners of places `2i` and `2i + 1`, where input `j` itself
    /// stands at place `inputs.len() + j`. A step replays the matches of the winner only.
    tree: Vec<usize>,
    order: Order,
    direction: Direction,
    /// The input with the current entry; past all inputs if the cursor is on none.
    top: usize,
    /// Whether a move failed. Otherwise a cursor on no entry stands at an end: after the last entry or before the first.
    is_lost: bool,
}

/// Not an input: a place where no match was played, or a cursor on no entry.
const NONE: usize = usize::MAX;

#[expect(
    clippy::indexing_slicing,
    reason = "the tree holds numbers of inputs, and places are below their number"
)]
impl MergeCursor {
    /// A cursor over the entries of several inputs, before the first. The positions of the inputs are not kept.
    pub(crate) fn of_inputs(all: Vec<Input>) -> Result<MergeCursor> {
        let first = all.first().map(|input| input.order().clone());
        let order = first.unwrap_or(Order::Bytewise);
        let mut inputs = Vec::new();
        for (number, input) in all.into_iter().enumerate() {
            if let Some((first, other)) = differing(&order, input.order()) {
                let message = format!(
                    "inputs of a merge must be in one order: number 0 is in the order {first}, number {number} in the order {other}"
                );
                let error = Error::new(ErrorKind::Comparator, message);
                return Err(match input.cursor() {
                    Some(cursor) => cursor.table.opened.store.file.with_path(error),
                    None => error,
                });
            }
            if !input.is_ruled_out()? {
                inputs.push((number, input));
            }
        }
        Ok(MergeCursor::new(inputs, order))
    }

    /// The same, for one input.
    pub(crate) fn of_input(input: Input) -> MergeCursor {
        let order = input.order().clone();
        MergeCursor::new(vec![(0, input)], order)
    }

    /// The same, for inputs of this order with their numbers.
    pub(crate) fn new(inputs: Vec<(usize, Input)>, order: Order) -> MergeCursor {
        MergeCursor {
            tree: vec![NONE; inputs.len()],
            inputs,
            order,
            direction: Direction::Backward,
            top: NONE,
            is_lost: false,
        }
    }

    /// The inputs of the merge.
    pub(crate) fn into_inputs(self) -> impl Iterator<Item = Input> {
        self.inputs.into_iter().map(|(_, input)| input)
    }

    /// Moves to before the first entry, without reading.
    pub(crate) fn rewind(&mut self) {
        (self.direction, self.top, self.is_lost) = (Direction::Backward, NONE, false);
    }

    #[inline]
    fn current(&self) -> Option<&Input> {
        self.inputs.get(self.top).map(|(_, input)| input)
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.top != NONE
    }

    /// The current key; empty unless the cursor [is on an entry](MergeCursor::is_valid).
    #[inline]
    pub fn key(&self) -> &[u8] {
        let current = self.current();
        current.and_then(Input::current_key).unwrap_or_default()
    }

    /// The current value; empty unless the cursor [is on an entry](MergeCursor::is_valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.current().map_or(&[], Input::value)
    }

    /// The current value as a slice of its block, which it keeps in memory; empty like [`value`](MergeCursor::value).
    pub fn value_bytes(&self) -> Bytes {
        let current = self.current();
        current.map_or_else(Bytes::new, Input::value_bytes)
    }

    /// The number of the input that the current entry is from, counted from 0 in the order in which the inputs were
    /// given; 0 unless the cursor [is on an entry](MergeCursor::is_valid).
    pub fn input(&self) -> usize {
        self.inputs.get(self.top).map_or(0, |(number, _)| *number)
    }

    /// Offset, in its file, of the block that contains the current entry.
    pub(crate) fn block_offset(&self) -> u64 {
        let cursor = self.current().and_then(Input::cursor);
        cursor.map_or(0, Cursor::block_offset)
    }

    /// Moves to the first entry at or after `key`. Returns `false`, and stands after the last entry, if there is none.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block (see [`Table::get`](crate::Table::get)), as for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.place_all(Direction::Forward, |input| input.seek(key))
    }

    /// Continues in the other direction, or from an end.
    #[inline(never)]
    fn turn(&mut self, direction: Direction) -> Result<bool> {
        if self.is_lost {
            return Err(lost());
        }
        match self.is_valid() {
            true => self.place_all(direction, |input| input.step(direction)),
            false if self.direction == direction => Ok(false),
            false => self.seek_to_start(direction),
        }
    }

    /// Moves every input, and plays all matches.
    fn place_all(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut Input) -> Result<bool>,
    ) -> Result<bool> {
        self.direction = direction;
        self.tree.fill(NONE);
        let mut inputs = self.inputs.iter_mut();
        let placed = inputs.try_for_each(|(_, input)| place(input).map(drop));
        if placed.is_ok() {
            (0..self.inputs.len()).for_each(|input| self.play(input));
        }
        self.finish_move(placed)
    }

    /// Moves the input with the current entry, then finds the next entry.
    #[inline(always)]
    fn step_winner(&mut self) -> Result<bool> {
        let winner = self.tree[0];
        let moved = self.inputs[winner].1.step(self.direction).map(drop);
        if moved.is_ok() {
            self.play(winner);
            let next = self.tree[0];
            if self.inputs[next].1.is_read() {
                self.top = next;
                return Ok(true);
            }
        }
        self.finish_move(moved)
    }

    /// Plays the matches on the path of an input, up to the first that has no opponent yet.
    #[inline(always)]
    fn play(&mut self, input: usize) {
        let (mut winner, mut place) = (input, (self.inputs.len() + input) / 2);
        let mut key = self.inputs[winner].1.current_key();
        while place > 0 {
            let other = self.tree[place];
            if other == NONE {
                self.tree[place] = winner;
                return;
            }
            let other_key = self.inputs[other].1.current_key();
            if self.is_before((other_key, other), (key, winner)) {
                self.tree[place] = winner;
                (winner, key) = (other, other_key);
            }
            place /= 2;
        }
        self.tree[0] = winner;
    }

    /// Whether input `a` comes before input `b` by their keys, in the direction of the walk. An input on no entry comes last.
    #[inline(always)]
    fn is_before(
        &self,
        (key_a, a): (Option<&[u8]>, usize),
        (key_b, b): (Option<&[u8]>, usize),
    ) -> bool {
        let (Some(key_a), Some(key_b)) = (key_a, key_b) else {
            return key_a.is_some();
        };
        match (self.order.compare(key_a, key_b), self.direction) {
            (Ordering::Less, direction) => direction == Direction::Forward,
            (Ordering::Greater, direction) => direction == Direction::Backward,
            (Ordering::Equal, direction) => (a < b) == (direction == Direction::Forward),
        }
    }

    /// Completes a move: on the winner's entry, which is read if only its key is known.
    #[inline(never)]
    fn finish_move(&mut self, moved: Result<()>) -> Result<bool> {
        let winner = self.tree.first().copied();
        let mut read = |winner: usize| self.inputs[winner].1.read();
        let read = moved.and_then(|()| winner.map_or(Ok(false), &mut read));
        self.top = winner.filter(|_| matches!(read, Ok(true))).unwrap_or(NONE);
        self.is_lost = read.is_err();
        read
    }

    /// The error of a defect in the current entry. The cursor then has no position.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        let error = match self.current().and_then(Input::cursor) {
            Some(cursor) => cursor.locate(defect),
            None => defect.locate(Section::Data, 0),
        };
        (self.top, self.is_lost) = (NONE, true);
        error
    }

    pub(crate) fn order(&self) -> Result<&Order> {
        Ok(&self.order)
    }

    pub(crate) fn is_before_first(&self) -> bool {
        self.top == NONE && self.direction == Direction::Backward && !self.is_lost
    }

    #[inline(always)]
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        if self.direction != direction || self.top == NONE {
            return self.turn(direction);
        }
        self.step_winner()
    }

    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        self.place_all(direction, |input| input.seek_to_start(direction))
    }

    /// Compares the current entries of two cursors in the order of the merge.
    pub(crate) fn compare(&self, other: &MergeCursor) -> Ordering {
        let by_key = self.order.compare(self.key(), other.key());
        by_key.then(self.input().cmp(&other.input()))
    }
}

/// Short: shows the position, not the data.
impl fmt::Debug for MergeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("MergeCursor");
        debug.field("inputs", &self.inputs.len());
        debug.field("input", &self.input()).finish_non_exhaustive()
    }
}
