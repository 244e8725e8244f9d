//! The live entries of a database within bounds, from both ends.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::iter::{self, FlatMap, FusedIterator};
use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use itertools::Itertools as _;
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
    entries: FlatMap<vec::IntoIter<Part>, DbRange, fn(Part) -> DbRange>,
    /// The newest version of each key, in an order that is not known.
    newest: Option<HashMap<Bytes, u64>>,
}

/// Tables, and the bounds within which a walk merges them.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) state: Arc<State>,
    pub(crate) tables: Vec<Arc<Listed>>,
    pub(crate) bounds: Bounds,
}

impl Part {
    /// What the database has within bounds.
    pub(crate) fn new(state: &Arc<State>, bounds: Bounds) -> Part {
        let tables = state.runs.iter().flat_map(|run| state.within(run, &bounds));
        Part {
            state: state.clone(),
            tables: tables.cloned().collect(),
            bounds,
        }
    }

    /// Where `key` lies: before the part, in it, or after it.
    pub(crate) fn place(&self, key: &[u8]) -> Ordering {
        place(&*self.state.order, key, &self.bounds)
    }
}

impl Walk {
    fn new(state: &Arc<State>, bounds: &Bounds) -> Result<Walk> {
        let parts = cut(state, bounds)?;
        let mut newest = None;
        if !state.has_known_order() {
            // Reads everything once.
            let newest = newest.insert(HashMap::new());
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
        match &self.newest {
            None if back => self.entries.next_back(),
            None => self.entries.next(),
            Some(_) if back => self.state.known_order().err().map(Err),
            Some(newest) => self.entries.find(|entry| {
                // Whatever is no live value is passed over.
                let Ok(entry) = entry else { return true };
                let is_newest = newest.get(&entry.user_key) == Some(&entry.sequence);
                is_newest && entry.version != Version::Deleted
            }),
        }
    }
}

/// Cuts a walk into parts: where tables begin, or in an order that is not known into tables.
pub(crate) fn cut(state: &Arc<State>, bounds: &Bounds) -> Result<Vec<Part>> {
    let tables = state.runs.iter().flatten();
    if !state.has_known_order() && matches!(bounds, (Bound::Unbounded, Bound::Unbounded)) {
        let part = |table: &Arc<Listed>| Part {
            state: state.clone(),
            tables: vec![table.clone()],
            bounds: bounds.clone(),
        };
        return Ok(tables.map(part).collect());
    }
    let order = state.known_order()?;
    let starts = tables.map(|table| table.file.first_user_key());
    let is_inside = |key: &&[u8]| place(order, key, bounds).is_eq();
    let cuts = starts
        .filter(is_inside)
        .sorted_by(|a, b| order.compare(a, b));
    let cuts: Vec<_> = cuts.map(<[u8]>::to_vec).collect();
    let from = cuts.iter().cloned().map(Bound::Included);
    let to = cuts.iter().cloned().map(Bound::Excluded);
    let (lower, upper) = bounds.clone();
    let bounds = iter::once(lower).chain(from).zip(to.chain([upper]));
    Ok(bounds.map(|bounds| Part::new(state, bounds)).collect())
}

/// Opens the tables of a part. In an order that is not known, its entries are all versions of one table; else the newest ones,
/// deleted keys left out.
fn open(part: &Part) -> Result<DbRange> {
    let range = |table| Ok(part.state.table(table)?.range(part.bounds.clone()));
    let tables = part.tables.iter().map(|table| range(table));
    let mut inputs: Vec<DbRange> = tables.collect::<Result<_>>()?;
    if !part.state.has_known_order()
        && let Some(only) = inputs.pop()
    {
        return Ok(only);
    }
    Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
}

fn entries(part: Part) -> DbRange {
    open(&part).unwrap_or_else(DbRange::of_error)
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
