//! The live entries of a database within bounds, from both ends.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Memtable, Version};
use leveltable::{BytewiseComparator, Comparator, DbTable, Error, ErrorKind, Result};

use crate::database::Shared;
use crate::manifest::TableFile;
use crate::state::State;

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

type Entry = Result<(Bytes, Bytes)>;

/// The live entries of a database within bounds, from both ends; made by [`Database::range`](crate::Database::range) and the like.
///
/// Owns what it needs. Shows the database as of its first entry, whatever a writer or a refresh does meanwhile. Ends after its first
/// error. One error is of kind [`ErrorKind::Replaced`]: the writer has removed a table that the range had not come to yet.
/// [`Database::pin`](crate::Database::pin) prevents that on Unix.
#[must_use]
pub struct DatabaseRange {
    shared: Arc<Shared>,
    bounds: Bounds,
    /// Whether the bounds are those of a prefix, which only bytewise order has.
    is_prefix: bool,
    /// Whether an entry was asked for.
    is_started: bool,
    /// `None` before the first entry, and after the last.
    walk: Option<Walk>,
}

impl DatabaseRange {
    pub(crate) fn new(shared: Arc<Shared>, bounds: Bounds, is_prefix: bool) -> DatabaseRange {
        DatabaseRange {
            shared,
            bounds,
            is_prefix,
            is_started: false,
            walk: None,
        }
    }

    /// Takes an entry from an end. The first time, reads the database again if a table has vanished since it was read.
    #[inline]
    fn take(&mut self, take: fn(&mut Walk) -> Option<Result<DbEntry>>) -> Option<Entry> {
        let entry = match &mut self.walk {
            Some(walk) => take(walk),
            None if self.is_started => None,
            None => self.start(take).transpose(),
        };
        if !matches!(entry, Some(Ok(_))) {
            self.walk = None;
        }
        Some(entry?.map(|entry| {
            let value = entry.version.into_value();
            (entry.user_key, value.unwrap_or_default())
        }))
    }

    fn start(&mut self, take: fn(&mut Walk) -> Option<Result<DbEntry>>) -> Result<Option<DbEntry>> {
        self.is_started = true;
        let (walk, entry) = self.shared.with_state(|state| {
            let mut walk = Walk::new(state.clone(), &self.bounds, self.is_prefix)?;
            let entry = take(&mut walk).transpose()?;
            Ok((walk, entry))
        })?;
        self.walk = Some(walk);
        Ok(entry)
    }
}

/// The bounds of the keys that begin with `prefix`, in bytewise order.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xff).is_some() {}
    let has_end = end.last_mut().map(|last| *last += 1).is_some();
    let upper = if has_end {
        Bound::Excluded(end)
    } else {
        Bound::Unbounded
    };
    (Bound::Included(prefix.to_vec()), upper)
}

/// A walk in parts, so that tables are opened when it comes to them.
struct Walk {
    state: Arc<State>,
    /// The parts that no end has come to, in order.
    between: VecDeque<Part>,
    front: DbRange,
    back: DbRange,
    /// The newest version of each key, in an order that is not known.
    newest: Option<HashMap<Bytes, u64>>,
}

/// A part of a walk.
enum Part {
    /// What logs and tables hold within bounds. They are cut where tables of sorted levels begin, so that few are merged at a time.
    Live(Bounds),
    /// All versions in the logs, or in a table, in an order that is not known.
    Stored(Option<TableFile>),
}

impl Walk {
    fn new(state: Arc<State>, bounds: &Bounds, is_prefix: bool) -> Result<Walk> {
        let (between, newest) = match (&state.order, bounds) {
            (None, (Bound::Unbounded, Bound::Unbounded)) => {
                let tables = state.tables().map(|(_, file)| Some(file.clone()));
                let parts = [None].into_iter().chain(tables).map(Part::Stored);
                (parts.collect(), Some(HashMap::new()))
            }
            _ => {
                let order = &**state.known_order()?;
                if is_prefix && order.name() != BytewiseComparator.name() {
                    return Err(no_prefixes(order.name()));
                }
                (cut(&state, order, bounds.clone()), None)
            }
        };
        let (front, back) = (Memtable::new().iter(), Memtable::new().iter());
        let mut walk = Walk {
            state,
            between,
            front,
            back,
            newest,
        };
        walk.find_newest()?;
        Ok(walk)
    }

    /// Reads everything once, in an order that is not known.
    fn find_newest(&mut self) -> Result<()> {
        let Some(newest) = &mut self.newest else {
            return Ok(());
        };
        for part in &self.between {
            for entry in open(&self.state, part)? {
                let entry = entry?;
                let sequence = newest.entry(entry.user_key).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        Ok(())
    }

    #[inline]
    fn first(&mut self) -> Option<Result<DbEntry>> {
        loop {
            match self.front.next() {
                Some(Ok(entry)) if self.is_dead(&entry) => {}
                Some(entry) => return Some(entry),
                None => {
                    let Some(part) = self.between.pop_front() else {
                        return self.back.next();
                    };
                    match open(&self.state, &part) {
                        Ok(range) => self.front = range,
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }

    fn last(&mut self) -> Option<Result<DbEntry>> {
        if self.newest.is_some() {
            let message =
                "the order of the database is not known: entries come from the front only";
            return Some(Err(Error::new(ErrorKind::Comparator, message)));
        }
        loop {
            if let Some(entry) = self.back.next_back() {
                return Some(entry);
            }
            let Some(part) = self.between.pop_back() else {
                return self.front.next_back();
            };
            match open(&self.state, &part) {
                Ok(range) => self.back = range,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Whether `entry` is no live value, in an order that is not known.
    #[inline]
    fn is_dead(&self, entry: &DbEntry) -> bool {
        self.newest.as_ref().is_some_and(|newest| {
            let is_newest = newest.get(&entry.user_key) == Some(&entry.sequence);
            entry.version == Version::Deleted || !is_newest
        })
    }
}

/// Cuts bounds where tables of sorted levels begin.
fn cut(state: &State, order: &dyn Comparator, (lower, upper): Bounds) -> VecDeque<Part> {
    let sorted = state.tables().filter(|(level, _)| *level > 0);
    let mut cuts: Vec<&[u8]> = sorted
        .map(|(_, file)| file.first_user_key())
        .filter(|key| !is_before(order, key, &lower) && !is_after(order, key, &upper))
        .collect();
    cuts.sort_by(|a, b| order.compare(a, b));
    cuts.dedup_by(|a, b| order.compare(a, b).is_eq());
    let mut parts = VecDeque::new();
    let mut from = lower;
    for cut in cuts {
        let next = Bound::Included(cut.to_vec());
        let before = std::mem::replace(&mut from, next);
        parts.push_back(Part::Live((before, Bound::Excluded(cut.to_vec()))));
    }
    parts.push_back(Part::Live((from, upper)));
    parts
}

fn open(state: &State, part: &Part) -> Result<DbRange> {
    let bounds = match part {
        Part::Live(bounds) => bounds,
        Part::Stored(None) => return Ok(state.memtable.iter()),
        Part::Stored(Some(file)) => return Ok(state.table(file)?.iter()),
    };
    // A table alone is walked faster than with an input that is empty.
    let logged = (!state.memtable.is_empty()).then(|| state.memtable.range(bounds.clone()));
    let mut inputs: Vec<DbRange> = logged.into_iter().collect();
    let order = &**state.known_order()?;
    for (level, file) in state.tables() {
        if state.may_hold(order, level, file, bounds) {
            let table = state.table(file).map_err(not_reached)?;
            inputs.push(table.range(bounds.clone()));
        }
    }
    Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
}

#[cold]
fn not_reached(error: Error) -> Error {
    if error.kind() != ErrorKind::Replaced {
        return error;
    }
    let message = format!(
        "{error}, and the range had not come to it: make another range, or pin the database before"
    );
    Error::new(ErrorKind::Replaced, message)
}

#[cold]
fn no_prefixes(order: &str) -> Error {
    let message =
        format!("keys of one prefix need not lie together in the order {order:?}: use a range");
    Error::new(ErrorKind::Comparator, message)
}

/// Whether `key` is below a lower bound.
pub(crate) fn is_before(order: &dyn Comparator, key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(lower) => order.compare(key, lower).is_lt(),
        Bound::Excluded(lower) => order.compare(key, lower).is_le(),
    }
}

/// Whether `key` is above an upper bound.
pub(crate) fn is_after(order: &dyn Comparator, key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => order.compare(key, upper).is_gt(),
        Bound::Excluded(upper) => order.compare(key, upper).is_ge(),
    }
}

impl fmt::Debug for DatabaseRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseRange")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl Iterator for DatabaseRange {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.take(Walk::first)
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Entry> {
        self.take(Walk::last)
    }
}

impl FusedIterator for DatabaseRange {}
