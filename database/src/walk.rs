//! The live entries of a database within bounds, from both ends.

use std::collections::HashMap;
use std::iter::{self, FlatMap, FusedIterator, Once};
use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use itertools::Either;
#[cfg(doc)]
use leveltable::ErrorKind;
use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Version};
use leveltable::{DbTable, Result};

use crate::database::Database;
use crate::state::State;
use crate::tables::{Bounds, Listed, place};

/// The live entries of a database within bounds, from both ends; made by [`Database::range`] and the like.
///
/// Owns what it needs. Shows the database as of its first entry, whatever a writer or a refresh does meanwhile. Ends after its first
/// error. One error is of kind [`ErrorKind::Replaced`]: the writer has removed a table that the range had not come to yet.
/// [`Database::pin`] prevents that on Unix.
#[derive(Debug)]
#[must_use]
pub struct DatabaseRange {
    db: Database,
    /// Until the first entry is asked for: the bounds, or the error that is the only item.
    bounds: Option<Result<Bounds>>,
    /// `None` before the first entry, and after the last.
    walk: Option<Walk>,
}

impl DatabaseRange {
    pub(crate) fn new(db: Database, bounds: Result<Bounds>) -> DatabaseRange {
        let bounds = Some(bounds);
        let walk = None;
        DatabaseRange { db, bounds, walk }
    }

    /// Takes an entry from an end.
    #[inline]
    fn take(&mut self, back: bool) -> Option<Result<(Bytes, Bytes)>> {
        let entry = match &mut self.walk {
            Some(walk) => walk.step(back),
            None => self.start(back).transpose(),
        };
        if !matches!(entry, Some(Ok(_))) {
            self.walk = None;
        }
        Some(entry?.map(|entry| {
            let value = entry.version.into_value();
            (entry.user_key, value.unwrap_or_default())
        }))
    }

    /// Takes the first entry. Reads the database again if a table has vanished since it was read.
    fn start(&mut self, back: bool) -> Result<Option<DbEntry>> {
        let Some(bounds) = self.bounds.take().transpose()? else {
            return Ok(None);
        };
        let (walk, entry) = self.db.with_state(|state| {
            let mut walk = Walk::new(state, &bounds)?;
            let entry = walk.step(back).transpose()?;
            Ok((walk, entry))
        })?;
        self.walk = Some(walk);
        Ok(entry)
    }
}

/// A walk in parts, so that tables are opened when it comes to them, and few are merged at a time.
#[derive(Debug)]
struct Walk {
    state: Arc<State>,
    entries: FlatMap<vec::IntoIter<Part>, Entries, fn(Part) -> Entries>,
    /// The newest version of each key, in an order that is not known.
    newest: HashMap<Bytes, u64>,
}

/// Tables, and the bounds within which a walk merges them. In an order that is not known, one table and no bounds.
#[derive(Debug, Clone)]
struct Part {
    state: Arc<State>,
    tables: Vec<Arc<Listed>>,
    bounds: Bounds,
}

/// The entries of a part, or why there are none.
type Entries = Either<DbRange, Once<Result<DbEntry>>>;

impl Walk {
    fn new(state: &Arc<State>, bounds: &Bounds) -> Result<Walk> {
        let parts = cut(state, bounds)?;
        let mut newest = HashMap::new();
        if state.order.is_none() {
            // Reads everything once.
            for entry in parts.iter().cloned().flat_map(entries) {
                let entry = entry?;
                let sequence = newest.entry(entry.user_key).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        Ok(Walk {
            state: state.clone(),
            entries: parts.into_iter().flat_map(entries),
            newest,
        })
    }

    /// Takes an entry from an end.
    #[inline]
    fn step(&mut self, back: bool) -> Option<Result<DbEntry>> {
        match (&self.state.order, back) {
            (Some(_), false) => self.entries.next(),
            (Some(_), true) => self.entries.next_back(),
            (None, true) => self.state.known_order().err().map(Err),
            (None, false) => self.entries.find(|entry| {
                // Whatever is no live value is passed over.
                entry.as_ref().map_or(true, |entry| {
                    let is_newest = self.newest.get(&entry.user_key) == Some(&entry.sequence);
                    is_newest && entry.version != Version::Deleted
                })
            }),
        }
    }
}

/// Cuts a walk into parts: where tables of sorted levels begin, or in an order that is not known into tables.
fn cut(state: &Arc<State>, bounds: &Bounds) -> Result<Vec<Part>> {
    let part = |tables, bounds| Part {
        state: state.clone(),
        tables,
        bounds,
    };
    if state.order.is_none() && matches!(bounds, (Bound::Unbounded, Bound::Unbounded)) {
        let tables = state.all_runs().flatten();
        let parts = tables.map(|table| part(vec![table.clone()], bounds.clone()));
        return Ok(parts.collect());
    }
    let order = state.known_order()?;
    let sorted = state.runs.iter().flatten().filter(|table| table.level > 0);
    let starts = sorted.map(|table| table.file.first_user_key());
    let mut cuts: Vec<_> = starts
        .filter(|key| place(order, key, bounds).is_eq())
        .collect();
    cuts.sort_by(|a, b| order.compare(a, b));
    let (lower, upper) = bounds.clone();
    let from = cuts.iter().map(|cut| Bound::Included(cut.to_vec()));
    let to = cuts.iter().map(|cut| Bound::Excluded(cut.to_vec()));
    let bounds = iter::once(lower).chain(from).zip(to.chain([upper]));
    let parts = bounds.map(|bounds| {
        let tables = state.all_runs().flat_map(|run| state.within(run, &bounds));
        part(tables.cloned().collect(), bounds)
    });
    Ok(parts.collect())
}

/// Opens the tables of a part. Without an order, its entries are all versions; else the newest ones, deleted keys left out.
fn open(part: &Part) -> Result<DbRange> {
    let range = |table| Ok(part.state.table(table)?.range(part.bounds.clone()));
    let tables = part.tables.iter().map(|table| range(table));
    let mut inputs: Vec<DbRange> = tables.collect::<Result<_>>()?;
    if part.state.order.is_none()
        && let Some(only) = inputs.pop()
    {
        return Ok(only);
    }
    // Whatever has nothing within the bounds would cost each step of the others.
    inputs.retain(|input| input.clone().next().is_some());
    Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
}

fn entries(part: Part) -> Entries {
    or_error(open(&part))
}

/// What was made, or the error as the only item.
pub(crate) fn or_error<I, T>(made: Result<I>) -> Either<I, Once<Result<T>>> {
    made.map_or_else(|error| Either::Right(iter::once(Err(error))), Either::Left)
}

impl Iterator for DatabaseRange {
    type Item = Result<(Bytes, Bytes)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl FusedIterator for DatabaseRange {}
