//! Walking several tables as one.

use std::cmp::Ordering;
use std::fmt;
use std::hint::select_unpredictable;
use std::iter::FusedIterator;
use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::db::key::user_order;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Defect;
use crate::read::bounded::Input;
use crate::read::cursor::lost;
use crate::read::ends::{Ends, Lend};
use crate::read::range::Range;
use crate::read::ranking::{Ranking, Way};
use crate::read::table::Table;

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
    /// A tournament of the inputs, in which each plays against those next to it for who is first on the way. The first is the
    /// input that won, which the cursor lends. The others are the losers of each match: that at place `i` was played by the
    /// winners of the matches at `2i` and `2i + 1`, or by inputs, of which number `i` begins at place `inputs.len() + i`.
    tree: Vec<Player>,
    /// The input on top, or no input's number where the cursor is on no entry.
    top: usize,
    way: Way,
    /// Where the cursor stands while no input is on an entry.
    off: Off,
    ranking: Ranking,
    /// How many keys were compared since they were last ranked.
    ties: usize,
    first_wins: bool,
    /// The key whose further entries are passed over.
    passed: Vec<u8>,
}

/// An input in the tournament.
#[derive(Debug, Clone, Copy)]
struct Player {
    /// A number of the input's key that orders as the keys do on the [`Way`], as far as eight bytes tell. The largest if the
    /// input is on no entry.
    rank: u64,
    input: usize,
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

/// Keys are ranked anew after so many comparisons of keys for each input.
const MOST_TIES: usize = 4;

/// What decides a match between players of one rank.
struct Contest<'a> {
    inputs: &'a [Input],
    order: &'a Order,
    way: Way,
    first_wins: bool,
}

impl<'a> Contest<'a> {
    #[inline]
    fn of(inputs: &'a [Input], ranking: &'a Ranking, way: Way, first_wins: bool) -> Contest<'a> {
        Contest {
            inputs,
            order: &ranking.order,
            way,
            first_wins,
        }
    }

    /// Whether `a` comes before `b` on the way.
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "players name inputs")]
    fn is_before_by_key(&self, a: Player, b: Player) -> bool {
        let [input_a, input_b] = [a, b].map(|player| &self.inputs[player.input]);
        if !(input_a.is_on_entry() && input_b.is_on_entry()) {
            return input_a.is_on_entry();
        }
        let by_key = self.order.compare(input_a.key(), input_b.key());
        let by_input = a.input.cmp(&b.input);
        let order = match self.way {
            Way::Forward => by_key.then(by_input),
            Way::Back if self.first_wins => by_key.reverse().then(by_input),
            Way::Back => by_key.then(by_input).reverse(),
        };
        order.is_lt()
    }
}

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
            tree: Vec::new(),
            top: NOWHERE,
            way: Way::Forward,
            off: Off::BeforeFirst,
            ranking: Ranking::of(&Order::Bytewise),
            ties: 0,
            first_wins: false,
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
        let ranking = first.map(Ranking::of);
        self.ranking = ranking.unwrap_or_else(|| Ranking::of(&Order::Bytewise));
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
        self.first_wins = true;
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

    #[inline(always)]
    fn go(&mut self, way: Way) -> Result<bool> {
        if self.way != way || self.top == NOWHERE {
            return self.turn(way);
        }
        let moved = match &mut self.inputs[..] {
            [alone] => alone.step(way),
            _ => self.step(way),
        };
        match moved {
            Ok(true) => Ok(true),
            ended => self.end(ended),
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
        let players = 0..self.inputs.len();
        self.tree.clear();
        self.tree.extend(players.map(|input| Player {
            rank: u64::MAX,
            input,
        }));
        self.rank_anew();
        let players = self.tree.clone();
        self.tree[0] = self.play(1, &players);
        match self.read_top() {
            Ok(true) => Ok(true),
            ended => self.end(ended),
        }
    }

    /// Plays the match at `place`, after those below it. Returns the winner.
    fn play(&mut self, place: usize, players: &[Player]) -> Player {
        if let Some(input) = place.checked_sub(players.len()) {
            return players[input];
        }
        let (a, b) = (
            self.play(2 * place, players),
            self.play(2 * place + 1, players),
        );
        let contest = Contest::of(&self.inputs, &self.ranking, self.way, self.first_wins);
        let a_wins = a.rank < b.rank || a.rank == b.rank && contest.is_before_by_key(a, b);
        let (winner, loser) = if a_wins { (a, b) } else { (b, a) };
        self.tree[place] = loser;
        winner
    }

    /// Moves the input on top, and brings the one there that is next. Returns `false` if there is none.
    #[inline(always)]
    fn step(&mut self, way: Way) -> Result<bool> {
        let passes = self.first_wins && self.has_equal_rank();
        if passes {
            return self.step_and_pass(way);
        }
        self.advance(way)?;
        self.read_top()
    }

    /// The same, and passes over other entries of the current key.
    #[inline(never)]
    fn step_and_pass(&mut self, way: Way) -> Result<bool> {
        let mut passed = std::mem::take(&mut self.passed);
        passed.clear();
        passed.extend_from_slice(self.key());
        loop {
            self.advance(way)?;
            let next = &self.inputs[self.tree[0].input];
            if !next.is_on_entry() || self.ranking.order.compare(next.key(), &passed).is_ne() {
                break;
            }
        }
        self.passed = passed;
        self.read_top()
    }

    /// Whether another input may have the same key as the one on top. It would have lost to that, or to another such input.
    #[inline]
    fn has_equal_rank(&self) -> bool {
        let top = self.tree[0];
        let mut place = (self.inputs.len() + top.input) / 2;
        while place > 0 {
            if self.tree[place].rank == top.rank {
                return true;
            }
            place /= 2;
        }
        false
    }

    /// Moves the input on top, and plays its matches anew.
    #[inline(always)]
    fn advance(&mut self, way: Way) -> Result<()> {
        let mut winner = self.tree[0];
        let input = &mut self.inputs[winner.input];
        winner.rank = if !input.step(way)? {
            u64::MAX
        } else if let Some(rank) = self.ranking.rank(input.key(), way) {
            rank
        } else {
            self.rank_anew();
            self.tree[0].rank
        };
        let (contest, tree) = (
            Contest::of(&self.inputs, &self.ranking, way, self.first_wins),
            &mut self.tree[..],
        );
        let mut place = (tree.len() + winner.input) / 2;
        while place > 0 {
            let other = tree[place];
            let other_wins = if other.rank == winner.rank {
                self.ties += 1;
                contest.is_before_by_key(other, winner)
            } else {
                other.rank < winner.rank
            };
            // Which one wins cannot be predicted.
            tree[place] = select_unpredictable(other_wins, winner, other);
            winner = select_unpredictable(other_wins, other, winner);
            place /= 2;
        }
        tree[0] = winner;
        if self.ties > MOST_TIES * self.inputs.len() {
            self.rank_anew();
        }
        Ok(())
    }

    /// Lends the entry on top, which is read if only its key is known. Returns `false` if no input is on an entry.
    #[inline(always)]
    fn read_top(&mut self) -> Result<bool> {
        self.top = self.tree[0].input;
        self.inputs[self.top].read()
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

    /// Ranks the keys by the eight bytes after those that all of them share.
    #[cold]
    fn rank_anew(&mut self) {
        let MergeCursor { inputs, tree, .. } = self;
        let ranking = &mut self.ranking;
        let on_entry = |player: &&mut Player| inputs[player.input].is_on_entry();
        let mut shared: Option<&[u8]> = None;
        for player in tree.iter_mut().filter(on_entry) {
            let part = ranking.part(inputs[player.input].key());
            let len = shared.map_or(part.len(), |shared| common_prefix(shared, part));
            shared = Some(&part[..len]);
        }
        ranking.share(shared.unwrap_or(&[]));
        for player in tree.iter_mut().filter(on_entry) {
            let rank = ranking.rank(inputs[player.input].key(), self.way);
            player.rank = rank.unwrap_or(0);
        }
        self.ties = 0;
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
