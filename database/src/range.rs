//! The live entries of a database within bounds, from both ends.

use std::collections::{HashMap, VecDeque};
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Memtable, Version};
use leveltable::{DbTable, Result};

use crate::database::Shared;
use crate::lookup::{Bounds, is_above, is_below};
use crate::state::{Listed, State};

type Entry = Result<(Bytes, Bytes)>;

/// The live entries of a database within bounds, from both ends; made by [`Database::range`](crate::Database::range) and the like.
///
/// Owns what it needs. Shows the database as of its first entry, whatever a writer or a refresh does meanwhile. Ends after its first
/// error. One error is of kind [`ErrorKind::Replaced`]: the writer has removed a table that the range had not come to yet.
/// [`Database::pin`](crate::Database::pin) prevents that on Unix.
#[derive(Debug)]
#[must_use]
pub struct DatabaseRange {
    shared: Arc<Shared>,
    /// Until the first entry is asked for: the bounds, or the error that is the only item.
    bounds: Option<Result<Bounds>>,
    /// `None` before the first entry, and after the last.
    walk: Option<Walk>,
}

impl DatabaseRange {
    pub(crate) fn new(shared: Arc<Shared>, bounds: Result<Bounds>) -> DatabaseRange {
        DatabaseRange {
            shared,
            bounds: Some(bounds),
            walk: None,
        }
    }

    /// Takes an entry from an end.
    #[inline]
    fn take<const BACK: bool>(&mut self) -> Option<Entry> {
        let entry = match (&mut self.walk, &self.bounds) {
            (Some(walk), _) => walk.step::<BACK>(),
            (None, Some(_)) => self.start::<BACK>().transpose(),
            (None, None) => None,
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
    fn start<const BACK: bool>(&mut self) -> Result<Option<DbEntry>> {
        let Some(bounds) = self.bounds.take().transpose()? else {
            return Ok(None);
        };
        let (walk, entry) = self.shared.with_state(|state| {
            let mut walk = Walk::new(state.clone(), &bounds)?;
            let entry = walk.step::<BACK>().transpose()?;
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
    /// The parts that no end has come to, in order.
    between: VecDeque<Part>,
    front: DbRange,
    back: DbRange,
    /// The newest version of each key, in an order that is not known.
    newest: Option<HashMap<Bytes, u64>>,
}

/// A part of a walk.
#[derive(Debug)]
enum Part {
    /// What logs and tables hold within bounds. They are cut where tables of sorted levels begin, so that few are merged at a time.
    Live(Bounds),
    /// All versions in the logs, or in a table, in an order that is not known.
    Stored(Option<Listed>),
}

impl Walk {
    fn new(state: Arc<State>, bounds: &Bounds) -> Result<Walk> {
        let mut newest = None;
        let between = if state.order.is_none()
            && matches!(bounds, (Bound::Unbounded, Bound::Unbounded))
        {
            let tables = state.tables().map(|(_, table)| Some(table.clone()));
            let parts: VecDeque<_> = [None].into_iter().chain(tables).map(Part::Stored).collect();
            let newest = newest.insert(HashMap::new());
            // Reads everything once.
            for part in &parts {
                for entry in open(&state, part)? {
                    let entry = entry?;
                    let sequence: &mut u64 = newest.entry(entry.user_key).or_default();
                    *sequence = entry.sequence.max(*sequence);
                }
            }
            parts
        } else {
            cut(&state, bounds)?
        };
        Ok(Walk {
            state,
            between,
            front: Memtable::new().iter(),
            back: Memtable::new().iter(),
            newest,
        })
    }

    /// Takes an entry from an end: of the part that this end is in, of those that no end has come to, or of the other end's.
    #[inline]
    fn step<const BACK: bool>(&mut self) -> Option<Result<DbEntry>> {
        if BACK && let Err(error) = self.state.known_order() {
            return Some(Err(error));
        }
        let next = if BACK {
            DbRange::next_back
        } else {
            DbRange::next
        };
        loop {
            let (near, far) = if BACK {
                (&mut self.back, &mut self.front)
            } else {
                (&mut self.front, &mut self.back)
            };
            match next(near) {
                Some(Ok(entry)) if is_dead(self.newest.as_ref(), &entry) => {}
                Some(entry) => return Some(entry),
                None => {
                    let part = if BACK {
                        self.between.pop_back()
                    } else {
                        self.between.pop_front()
                    };
                    let Some(part) = part else {
                        return next(far);
                    };
                    match open(&self.state, &part) {
                        Ok(range) => *near = range,
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}

/// Whether `entry` is no live value, in an order that is not known.
#[inline]
fn is_dead(newest: Option<&HashMap<Bytes, u64>>, entry: &DbEntry) -> bool {
    newest.is_some_and(|newest| {
        let is_newest = newest.get(&entry.user_key) == Some(&entry.sequence);
        entry.version == Version::Deleted || !is_newest
    })
}

/// Cuts bounds where tables of sorted levels begin.
fn cut(state: &State, bounds: &Bounds) -> Result<VecDeque<Part>> {
    let order = &**state.known_order()?;
    let sorted = state.tables().filter(|(level, _)| *level > 0);
    let mut cuts: Vec<&[u8]> = sorted
        .map(|(_, table)| table.file.first_user_key())
        .filter(|key| !is_below(order, key, &bounds.0) && !is_above(order, key, &bounds.1))
        .collect();
    cuts.sort_by(|a, b| order.compare(a, b));
    cuts.dedup_by(|a, b| order.compare(a, b).is_eq());
    let (mut from, upper) = bounds.clone();
    let mut parts = VecDeque::new();
    for cut in cuts {
        let before = std::mem::replace(&mut from, Bound::Included(cut.to_vec()));
        parts.push_back(Part::Live((before, Bound::Excluded(cut.to_vec()))));
    }
    parts.push_back(Part::Live((from, upper)));
    Ok(parts)
}

fn open(state: &State, part: &Part) -> Result<DbRange> {
    let bounds = match part {
        Part::Live(bounds) => bounds,
        Part::Stored(None) => return Ok(state.memtable.iter()),
        Part::Stored(Some(table)) => return Ok(state.table(table)?.iter()),
    };
    // A table alone is walked faster than with an input that is empty.
    let logged = (!state.memtable.is_empty()).then(|| state.memtable.range(bounds.clone()));
    let mut inputs: Vec<DbRange> = logged.into_iter().collect();
    let order = &**state.known_order()?;
    for run in &state.runs {
        for table in state.within(run, order, bounds) {
            inputs.push(state.table(table)?.range(bounds.clone()));
        }
    }
    Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
}

impl Iterator for DatabaseRange {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.take::<false>()
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Entry> {
        self.take::<true>()
    }
}

impl FusedIterator for DatabaseRange {}
