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
use crate::tables::{Bounds, Listed, is_within};

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
            None => self.start(back),
        };
        match entry {
            Ok(Some(entry)) => {
                let value = entry.version.into_value().unwrap_or_default();
                Some(Ok((entry.user_key, value)))
            }
            ended => {
                self.walk = None;
                ended.err().map(Err)
            }
        }
    }

    /// Takes the first entry. Reads the database again if a table has vanished since it was read.
    fn start(&mut self, back: bool) -> Result<Option<DbEntry>> {
        let Some(bounds) = self.bounds.take().transpose()? else {
            return Ok(None);
        };
        let (walk, entry) = self.db.with_state(|state| {
            let mut walk = Walk::new(state, &bounds)?;
            let entry = walk.step(back)?;
            Ok((walk, entry))
        })?;
        self.walk = Some(walk);
        Ok(entry)
    }
}

/// A walk in parts, so that tables are opened when it comes to them.
#[derive(Debug)]
struct Walk {
    state: Arc<State>,
    entries: FlatMap<vec::IntoIter<Unopened>, Opened, fn(Unopened) -> Opened>,
    /// The newest version of each key, in an order that is not known.
    newest: Option<HashMap<Bytes, u64>>,
}

/// A part of a walk.
#[derive(Debug, Clone)]
enum Part {
    /// What logs and tables hold within bounds. They are cut where tables of sorted levels begin, so that few are merged at a time.
    Live(Bounds),
    /// All versions in the logs, or in a table, in an order that is not known.
    Stored(Option<Arc<Listed>>),
}

type Unopened = (Arc<State>, Part);

/// A part's entries, or why there are none.
type Opened = Either<DbRange, Once<Result<DbEntry>>>;

impl Walk {
    fn new(state: &Arc<State>, bounds: &Bounds) -> Result<Walk> {
        let is_all = matches!(bounds, (Bound::Unbounded, Bound::Unbounded));
        let is_stored = state.order.is_none() && is_all;
        let parts = if is_stored {
            let tables = state.runs.iter().flatten().cloned().map(Some);
            [None].into_iter().chain(tables).map(Part::Stored).collect()
        } else {
            cut(state, bounds)?
        };
        let parts: Vec<_> = parts
            .into_iter()
            .map(|part| (state.clone(), part))
            .collect();
        let mut newest = is_stored.then(HashMap::new);
        if let Some(newest) = &mut newest {
            // Reads everything once.
            for entry in parts.iter().cloned().flat_map(opened) {
                let entry = entry?;
                let sequence = newest.entry(entry.user_key).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        Ok(Walk {
            state: state.clone(),
            entries: parts.into_iter().flat_map(opened),
            newest,
        })
    }

    /// Takes an entry from an end.
    #[inline]
    fn step(&mut self, back: bool) -> Result<Option<DbEntry>> {
        let entry = match &self.newest {
            Some(newest) if !back => self.entries.find(|entry| {
                // Whatever is no live value is passed over.
                entry.as_ref().map_or(true, |entry| {
                    let is_newest = newest.get(&entry.user_key) == Some(&entry.sequence);
                    is_newest && entry.version != Version::Deleted
                })
            }),
            None if !back => self.entries.next(),
            _ => {
                self.state.known_order()?;
                self.entries.next_back()
            }
        };
        entry.transpose()
    }
}

/// Cuts bounds where tables of sorted levels begin.
fn cut(state: &State, bounds: &Bounds) -> Result<Vec<Part>> {
    let order = state.known_order()?;
    let sorted = state.runs.iter().flatten().filter(|table| table.level > 0);
    let mut cuts: Vec<&[u8]> = sorted
        .map(|table| table.file.first_user_key())
        .filter(|key| is_within(order, key, bounds))
        .collect();
    cuts.sort_by(|a, b| order.compare(a, b));
    cuts.dedup_by(|a, b| order.compare(a, b).is_eq());
    let (mut from, upper) = bounds.clone();
    let mut parts = Vec::new();
    for cut in cuts {
        let before = std::mem::replace(&mut from, Bound::Included(cut.to_vec()));
        parts.push(Part::Live((before, Bound::Excluded(cut.to_vec()))));
    }
    parts.push(Part::Live((from, upper)));
    Ok(parts)
}

/// What a part holds. Without an order, that is all versions; else the newest ones, deleted keys left out.
fn open(state: &State, part: &Part) -> Result<DbRange> {
    let bounds = match part {
        Part::Live(bounds) => bounds,
        Part::Stored(None) => return Ok(state.memtable.iter()),
        Part::Stored(Some(table)) => return Ok(state.table(table)?.iter()),
    };
    let order = state.known_order()?;
    // Whatever has nothing within the bounds would cost each step of the others.
    let logged = state.memtable.range(bounds.clone());
    let is_logged = logged.clone().next().is_some();
    let mut inputs: Vec<DbRange> = is_logged.then_some(logged).into_iter().collect();
    for table in state.runs.iter().flat_map(|run| state.within(run, bounds)) {
        let (listed, table) = (&table.file, state.table(table)?);
        let is_inside = |key: &[u8]| is_within(order, key, bounds);
        // A walk need not look at bounds that leave nothing out. The table itself must say so: the MANIFEST may be wrong.
        let says_so =
            |end: Option<Result<DbEntry>>| matches!(end, Some(Ok(end)) if is_inside(&end.user_key));
        let is_whole = is_inside(listed.first_user_key())
            && is_inside(listed.last_user_key())
            && says_so(table.iter().next())
            && says_so(table.iter().next_back());
        inputs.push(if is_whole {
            table.iter()
        } else {
            table.range(bounds.clone())
        });
    }
    Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
}

fn opened((state, part): Unopened) -> Opened {
    match open(&state, &part) {
        Ok(entries) => Either::Left(entries),
        Err(error) => Either::Right(iter::once(Err(error))),
    }
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
