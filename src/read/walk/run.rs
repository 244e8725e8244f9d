//! Tables one after another, of which at most one is open at a time.

use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{BytewiseComparator, Comparator, Order};
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::format::Defect;
use crate::format::internal_key::user_order;
use crate::read::parts::bounds::{Bounds, Direction, exclude_all, is_within};
use crate::read::table::Table;
use crate::read::walk::cursor::{Cursor, lost};

/// Tables in the order of their keys, which do not overlap, such as a level of a database. A walk has at most one of them open, and
/// opens it when it reaches its first entry.
///
/// A range of them is made by [`TableRange::of_run`](crate::TableRange::of_run) or [`DbRange::of_run`](crate::db::DbRange::of_run), and may
/// be one input of a merge among others. A single table whose keys are known is a run of one table. In C++ LevelDB, this is the iterator of a
/// level, over its `FileMetaData`, which opens a table at each seek.
///
/// A walk may open any of its tables later: delete their files only when no such walk is left.
pub trait TableRun: Send + Sync {
    /// Number of tables in the [run](TableRun).
    fn tables(&self) -> usize;

    /// The first and the last stored key of table `i`, for [`TableRange::of_run`](crate::TableRange::of_run) to search. A walk that reaches
    /// an end of a table fails if the key there is another; keys outside of these are not shown.
    fn keys(&self, i: usize) -> (&[u8], &[u8]);

    /// Opens table `i`, or takes it from a [`TableCache`](crate::TableCache). For a database's table, use
    /// [`DbTable::as_table`](crate::DbTable::as_table).
    ///
    /// A clone of a range opens its tables itself.
    ///
    /// # Errors
    ///
    /// Errors of opening. The move that opens the table returns them.
    fn open(&self, i: usize) -> Result<Table>;

    /// The order of the keys: by default bytewise. That of a database's tables is
    /// [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    fn comparator(&self) -> Arc<dyn Comparator> {
        Arc::new(BytewiseComparator)
    }
}

/// A walk over such tables; or, as an input of a merge, over one open table whose first and last key may be in its properties. If the next
/// key is known, it stands there without reading until the entry is requested.
#[derive(Clone)]
pub(crate) struct Run {
    /// `None` for an open table.
    tables: Option<Arc<dyn TableRun>>,
    pub(crate) order: Order,
    bounds: Bounds,
    /// The tables that may have keys within the bounds.
    within: Range<usize>,
    /// The current table.
    at: usize,
    /// The cursor over that table, if it is open.
    cursor: Option<Cursor>,
    place: Place,
}

/// The position of a run in its table.
#[derive(Debug, Clone, Copy)]
enum Place {
    OnEntry,
    /// On the first entry of a walk in this direction, which has not been read.
    Unread(Direction),
    /// At the end of a walk in this direction.
    End(Direction),
    Lost,
}

impl Run {
    /// The tables of a run, before the first entry within bounds.
    pub(crate) fn of_tables(tables: Arc<dyn TableRun>, bounds: Bounds) -> Run {
        let order = Order::of(tables.comparator());
        let all = 0..tables.tables();
        let is_before = |i| !is_within(&order, &bounds, tables.keys(i).1, Direction::Forward);
        let start = partition_point(all.clone(), is_before);
        let begins_within = |i| is_within(&order, &bounds, tables.keys(i).0, Direction::Backward);
        let mut within = start..partition_point(start..all.end, begins_within);
        if exclude_all(&order, &bounds) {
            within = 0..0;
        }
        Run {
            tables: Some(tables),
            order,
            bounds,
            at: within.start,
            within,
            cursor: None,
            place: Place::End(Direction::Backward),
        }
    }

    /// A table, before its first entry within the cursor's bounds.
    pub(crate) fn of_cursor(cursor: Cursor) -> Result<Run> {
        Ok(Run {
            tables: None,
            order: cursor.table.order()?.clone(),
            bounds: cursor.bounds.clone(),
            within: 0..1,
            at: 0,
            cursor: Some(cursor),
            place: Place::End(Direction::Backward),
        })
    }

    /// Whether it is known without reading that no entry lies within the bounds.
    pub(crate) fn is_ruled_out(&self) -> Result<bool> {
        let Some(cursor) = &self.cursor else {
            return Ok(self.within.is_empty());
        };
        let is_outside = |direction: Direction| {
            let key = self.stated_key(0, direction);
            key.is_some_and(|key| !is_within(&self.order, &self.bounds, key, direction.reverse()))
        };
        Ok(cursor.is_ruled_out()?
            || is_outside(Direction::Forward)
            || is_outside(Direction::Backward))
    }

    /// The first key that a walk in `direction` reaches in table `i`, if it is known without reading.
    fn stated_key(&self, i: usize, direction: Direction) -> Option<&[u8]> {
        match &self.tables {
            Some(tables) => {
                let (first, last) = tables.keys(i);
                Some(direction.pick(first, last))
            }
            None => self.cursor.as_ref()?.table.stated_key(direction),
        }
    }

    /// The cursor over the open table: on the current entry, if that was read.
    #[inline(always)]
    pub(crate) fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// The current key, which may be unread; `None` on no entry.
    #[inline(always)]
    pub(crate) fn current_key(&self) -> Option<&[u8]> {
        match self.place {
            Place::OnEntry => self.cursor.as_ref().map(Cursor::key),
            Place::Unread(direction) => self.stated_key(self.at, direction),
            Place::End(_) | Place::Lost => None,
        }
    }

    /// Leaves the entries that were read, and perhaps closes their table.
    fn leave(&mut self, place: Place, closes: bool) {
        self.place = place;
        match &mut self.cursor {
            Some(cursor) if !closes => drop(cursor.unposition(None)),
            cursor => *cursor = None,
        }
    }

    /// Switches to table `i`. The current one is closed first.
    fn open(&mut self, i: usize) -> Result<&mut Cursor> {
        if let Some(tables) = &self.tables
            && (self.at != i || self.cursor.is_none())
        {
            (self.at, self.cursor) = (i, None);
            let table = tables.open(i)?;
            let bounds = self.bounds_in(i);
            self.check_order(&table)?;
            let mut cursor = Cursor::of_table(&table, bounds);
            cursor.ask_prefixes()?;
            if cursor.is_ruled_out()? {
                cursor.limit_to(0..0);
            }
            self.cursor = Some(cursor);
        }
        self.cursor.as_mut().ok_or_else(lost)
    }

    /// The bounds within table `i`, not beyond its stated keys: so the run ascends, whatever else is in the table.
    fn bounds_in(&self, i: usize) -> Bounds {
        let [lower, upper] = [Direction::Forward, Direction::Backward].map(|direction| {
            let end = self.stated_key(i, direction);
            match end.filter(|end| is_within(&self.order, &self.bounds, end, direction)) {
                Some(end) => Bound::Included(end.to_vec()),
                None => direction.pick(&self.bounds.0, &self.bounds.1).clone(),
            }
        });
        (lower, upper)
    }

    /// Whether a walk in `direction` reaches the stated end of its table: one is stated, and lies within the bounds.
    fn comes_to_end(&self, direction: Direction) -> bool {
        let is_within = |end, direction| is_within(&self.order, &self.bounds, end, direction);
        let end = self.stated_key(self.at, direction.reverse());
        end.is_some_and(|end| is_within(end, direction) && is_within(end, direction.reverse()))
    }

    /// The error of a table whose current key, which a walk in `direction` has reached, is not the stated one.
    #[cold]
    fn fail_at(&mut self, direction: Direction) -> Error {
        let who = match &self.tables {
            Some(_) => "it is listed",
            None => "its properties say",
        };
        let which = direction.pick("first", "last");
        let stated = show_key(self.stated_key(self.at, direction).unwrap_or(&[]));
        let expected = format!("the table's {which} key to be {stated}, as {who}");
        let found = self.cursor.as_ref().map_or(&[][..], Cursor::key);
        let defect = Defect::new(expected, show_key(found));
        self.place = Place::Lost;
        let cursor = self.cursor.as_mut();
        cursor.map_or_else(lost, |cursor| cursor.fail(defect))
    }

    /// Checks that a table of the run has the run's order.
    fn check_order(&self, table: &Table) -> Result<()> {
        let Some((own, other)) = differing(&self.order, table.order()?) else {
            return Ok(());
        };
        let message =
            format!("the tables of a run are in the order {own}, and this one in {other}");
        let error = Error::new(ErrorKind::Comparator, message);
        Err(table.opened.store.file.with_path(error))
    }

    /// Whether the current entry can be lent.
    #[inline(always)]
    pub(crate) fn is_read(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::is_valid)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::value)
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        let cursor = self.cursor.as_ref();
        cursor.map_or_else(Bytes::new, Cursor::value_bytes)
    }

    /// Moves to the first entry at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.place = Place::Lost;
        if !is_within(&self.order, &self.bounds, key, Direction::Forward) {
            return self.seek_to_start(Direction::Forward);
        }
        let compare = |i, direction| Some(self.order.compare(self.stated_key(i, direction)?, key));
        let ends_before = |i| compare(i, Direction::Backward).is_some_and(|ends| ends.is_lt());
        let i = partition_point(self.within.clone(), ends_before);
        let is_beyond = !is_within(&self.order, &self.bounds, key, Direction::Backward);
        if is_beyond || i == self.within.end {
            return self.start(None, Direction::Forward);
        }
        if compare(i, Direction::Forward).is_some_and(|starts| starts.is_ge()) {
            return self.start(Some(i), Direction::Forward);
        }
        let moved = self.open(i)?.seek(key)?;
        self.finish_move(moved, Direction::Forward)
    }

    /// Moves to the first entry of a walk in `direction`.
    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        self.start(direction.first(&self.within), direction)
    }

    /// Moves to the first entry in `direction` of table `i`, or to the end of the walk, without reading it if its key is known.
    fn start(&mut self, i: Option<usize>, direction: Direction) -> Result<bool> {
        let Some(i) = i else {
            self.leave(Place::End(direction), self.tables.is_some());
            return Ok(false);
        };
        let key = self.stated_key(i, direction);
        if key.is_some_and(|key| is_within(&self.order, &self.bounds, key, direction)) {
            self.leave(Place::Unread(direction), self.at != i);
            self.at = i;
            return Ok(true);
        }
        self.place = Place::Lost;
        let moved = self.open(i)?.seek_to_start(direction)?;
        self.finish_move(moved, direction)
    }

    /// Completes a move in `direction` within a table. If there is no entry, checks that the table ends where it should, and moves on to the
    /// next one.
    fn finish_move(&mut self, moved: bool, direction: Direction) -> Result<bool> {
        if moved {
            self.place = Place::OnEntry;
            return Ok(true);
        }
        if self.comes_to_end(direction) {
            self.read_start(direction.reverse())?;
        }
        self.start_next(direction)
    }

    /// Moves on to the next table in `direction`.
    fn start_next(&mut self, direction: Direction) -> Result<bool> {
        let rest = direction.rest(&self.within, &(self.at..self.at + 1));
        self.start(direction.first(&rest), direction)
    }

    #[inline(always)]
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        if let Some(cursor) = &mut self.cursor
            && cursor.step_fast(direction)
        {
            return Ok(true);
        }
        self.step_slow(direction)
    }

    #[inline(never)]
    fn step_slow(&mut self, direction: Direction) -> Result<bool> {
        let place = std::mem::replace(&mut self.place, Place::Lost);
        match place {
            // The walk has not reached that entry.
            Place::Unread(start) if start != direction => self.start_next(direction),
            Place::Unread(_) | Place::OnEntry => {
                if let Place::Unread(start) = place {
                    self.read_start(start)?;
                }
                let moved = self.open(self.at)?.step(direction)?;
                self.finish_move(moved, direction)
            }
            Place::End(end) if end == direction => self.start(None, direction),
            Place::End(_) => self.seek_to_start(direction),
            Place::Lost => Err(lost()),
        }
    }

    /// Reads the current entry if it is still unread. Returns whether there is one.
    pub(crate) fn read(&mut self) -> Result<bool> {
        if let Place::Unread(direction) = self.place {
            self.place = Place::Lost;
            self.read_start(direction)?;
            self.place = Place::OnEntry;
        }
        Ok(matches!(self.place, Place::OnEntry))
    }

    /// Reads the first entry of the current table in `direction`, whose key must be the stated one.
    fn read_start(&mut self, direction: Direction) -> Result<()> {
        let moved = self.open(self.at)?.seek_to_start(direction)?;
        let found = self.cursor.as_ref().map(Cursor::key);
        if !moved || found != self.stated_key(self.at, direction) {
            return Err(self.fail_at(direction));
        }
        Ok(())
    }
}

/// Returns, by bisection, the first number for which `is_before` is false.
fn partition_point(mut numbers: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    while !numbers.is_empty() {
        let middle = numbers.start.midpoint(numbers.end);
        match is_before(middle) {
            true => numbers.start = middle + 1,
            false => numbers.end = middle,
        }
    }
    numbers.start
}

/// The names of two orders, if they differ.
pub(crate) fn differing(a: &Order, b: &Order) -> Option<(String, String)> {
    let (a, b) = (describe(a), describe(b));
    (a != b).then_some((a, b))
}

/// The name of an order for messages; for a database's tables, that of its user keys.
fn describe(order: &Order) -> String {
    match user_order(order) {
        Some(user) => format!("{:?}, of a database's user keys", user.comparator().name()),
        None => format!("{:?}", order.comparator().name()),
    }
}
