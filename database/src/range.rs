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
use crate::state::{MOST_ATTEMPTS, State};

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
    /// What is wanted, until the first entry is.
    wanted: Option<Wanted>,
    /// `None` before the first entry, and after the last.
    walk: Option<Box<dyn Walk>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Range(Bounds),
    Prefix(Vec<u8>),
}

/// Live entries from both ends.
trait Walk: Send + Sync {
    fn first(&mut self) -> Option<Result<DbEntry>>;
    fn last(&mut self) -> Option<Result<DbEntry>>;
}

impl DatabaseRange {
    pub(crate) fn new(shared: Arc<Shared>, wanted: Wanted) -> DatabaseRange {
        DatabaseRange {
            shared,
            wanted: Some(wanted),
            walk: None,
        }
    }

    /// Takes an entry from an end. The first time, reads the database again if a table has vanished since it was read.
    #[inline]
    fn take(&mut self, take: fn(&mut dyn Walk) -> Option<Result<DbEntry>>) -> Option<Entry> {
        let entry = match self.wanted.take() {
            None => take(&mut **self.walk.as_mut()?),
            Some(wanted) => self.start(&wanted, take).transpose(),
        };
        if !matches!(entry, Some(Ok(_))) {
            self.walk = None;
        }
        Some(entry?.map(|entry| {
            (
                entry.user_key,
                entry.version.into_value().unwrap_or_default(),
            )
        }))
    }

    fn start(
        &mut self,
        wanted: &Wanted,
        take: fn(&mut dyn Walk) -> Option<Result<DbEntry>>,
    ) -> Result<Option<DbEntry>> {
        let mut attempt = 1;
        loop {
            let walk = self.walk.insert(walk(self.shared.state(), wanted)?);
            match take(&mut **walk).transpose() {
                Err(error) if error.kind() == ErrorKind::Replaced && attempt < MOST_ATTEMPTS => {
                    self.shared.read_again()?;
                }
                entry => return entry,
            }
            attempt += 1;
        }
    }
}

fn walk(state: Arc<State>, wanted: &Wanted) -> Result<Box<dyn Walk>> {
    let bounds = match wanted {
        Wanted::Range((Bound::Unbounded, Bound::Unbounded)) if state.order.is_none() => {
            return Ok(Box::new(stored_order(state)?));
        }
        Wanted::Range(bounds) => bounds.clone(),
        Wanted::Prefix(prefix) => prefix_bounds(&**state.known_order()?, prefix)?,
    };
    Ok(Box::new(Segments::new(state, bounds)?))
}

/// The bounds of the keys that begin with `prefix`.
fn prefix_bounds(order: &dyn Comparator, prefix: &[u8]) -> Result<Bounds> {
    let name = order.name();
    if name != BytewiseComparator.name() {
        let message =
            format!("keys of one prefix need not lie together in the order {name:?}: use a range");
        return Err(Error::new(ErrorKind::Comparator, message));
    }
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xff).is_some() {}
    let has_end = end.last_mut().map(|last| *last += 1).is_some();
    let upper = if has_end {
        Bound::Excluded(end)
    } else {
        Bound::Unbounded
    };
    Ok((Bound::Included(prefix.to_vec()), upper))
}

/// A walk in parts, so that tables are opened when it comes to them, and few of them are merged at a time: the bounds are cut where
/// tables of sorted levels begin.
struct Segments {
    state: Arc<State>,
    /// The bounds of the segments that no end has come to, in order.
    between: VecDeque<Bounds>,
    front: DbRange,
    back: DbRange,
}

impl Segments {
    fn new(state: Arc<State>, (lower, upper): Bounds) -> Result<Segments> {
        let order = state.known_order()?;
        let is_within = |key: &&[u8]| {
            is_above(&**order, key, &lower, false) && is_below(&**order, key, &upper, false)
        };
        let sorted = state.levels.0.iter().skip(1).flatten();
        let mut cuts: Vec<&[u8]> = sorted
            .map(|file| file.first_user_key())
            .filter(is_within)
            .collect();
        cuts.sort_by(|a, b| order.compare(a, b));
        cuts.dedup_by(|a, b| order.compare(a, b).is_eq());
        let mut between = VecDeque::new();
        let mut from = lower;
        for cut in cuts {
            let next = Bound::Included(cut.to_vec());
            between.push_back((
                std::mem::replace(&mut from, next),
                Bound::Excluded(cut.to_vec()),
            ));
        }
        between.push_back((from, upper));
        Ok(Segments {
            state,
            between,
            front: Memtable::new().iter(),
            back: Memtable::new().iter(),
        })
    }

    fn open(&self, bounds: Bounds) -> Result<DbRange> {
        let state = &*self.state;
        let order = &**state.known_order()?;
        let logged = state.memtable.range(bounds.clone());
        // A table alone is walked faster than with an input that is empty.
        let mut inputs: Vec<DbRange> = (!state.memtable.is_empty())
            .then_some(logged)
            .into_iter()
            .collect();
        for (level, file) in state.levels.all() {
            let is_inside = is_above(order, file.last_user_key(), &bounds.0, true)
                && is_below(order, file.first_user_key(), &bounds.1, true);
            if is_inside || !state.trusts_ends(level) {
                let table = state.table(file).map_err(not_reached)?;
                inputs.push(table.range(bounds.clone()));
            }
        }
        Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
    }
}

impl Walk for Segments {
    #[inline]
    fn first(&mut self) -> Option<Result<DbEntry>> {
        loop {
            if let Some(entry) = self.front.next() {
                return Some(entry);
            }
            let Some(bounds) = self.between.pop_front() else {
                return self.back.next();
            };
            match self.open(bounds) {
                Ok(range) => self.front = range,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn last(&mut self) -> Option<Result<DbEntry>> {
        loop {
            if let Some(entry) = self.back.next_back() {
                return Some(entry);
            }
            let Some(bounds) = self.between.pop_back() else {
                return self.front.next_back();
            };
            match self.open(bounds) {
                Ok(range) => self.back = range,
                Err(error) => return Some(Err(error)),
            }
        }
    }
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

/// Whether `key` is above a lower bound; at one that includes it only if `or_at`.
fn is_above(order: &dyn Comparator, key: &[u8], lower: &Bound<Vec<u8>>, or_at: bool) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) if or_at => order.compare(key, lower).is_ge(),
        Bound::Included(lower) | Bound::Excluded(lower) => order.compare(key, lower).is_gt(),
    }
}

/// Whether `key` is below an upper bound; at one that includes it only if `or_at`.
fn is_below(order: &dyn Comparator, key: &[u8], upper: &Bound<Vec<u8>>, or_at: bool) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) if or_at => order.compare(key, upper).is_le(),
        Bound::Included(upper) | Bound::Excluded(upper) => order.compare(key, upper).is_lt(),
    }
}

/// The live entries in the order in which files store them, for an order that is not known. Reads everything once before.
fn stored_order(state: Arc<State>) -> Result<impl Iterator<Item = Result<DbEntry>> + Send + Sync> {
    let inputs = 0..=state.levels.all().count();
    let mut newest: HashMap<Bytes, u64> = HashMap::new();
    for i in inputs.clone() {
        for entry in stored_entries(&state, i)? {
            let entry = entry?;
            let sequence = newest.entry(entry.user_key).or_default();
            *sequence = entry.sequence.max(*sequence);
        }
    }
    let entries = inputs.flat_map(move |i| {
        let (entries, error) = match stored_entries(&state, i) {
            Ok(entries) => (Some(entries), None),
            Err(error) => (None, Some(Err(error))),
        };
        entries.into_iter().flatten().chain(error)
    });
    Ok(entries.filter(move |entry| match entry {
        Ok(entry) if entry.version == Version::Deleted => false,
        Ok(entry) => newest.get(&entry.user_key) == Some(&entry.sequence),
        Err(_) => true,
    }))
}

/// All versions in the logs, or in a table.
fn stored_entries(state: &State, input: usize) -> Result<DbRange> {
    match input.checked_sub(1).and_then(|i| state.levels.all().nth(i)) {
        Some((_, file)) => Ok(state.table(file)?.stored().iter()),
        None => Ok(state.memtable.iter()),
    }
}

/// Entries from the front only, in an order that is not known.
impl<I: Iterator<Item = Result<DbEntry>> + Send + Sync> Walk for I {
    fn first(&mut self) -> Option<Result<DbEntry>> {
        self.next()
    }

    fn last(&mut self) -> Option<Result<DbEntry>> {
        let message = "the order of the database is not known: entries come from the front only";
        Some(Err(Error::new(ErrorKind::Comparator, message)))
    }
}

impl fmt::Debug for DatabaseRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseRange")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl Iterator for DatabaseRange {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.take(|walk| walk.first())
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Entry> {
        self.take(|walk| walk.last())
    }
}

impl FusedIterator for DatabaseRange {}
