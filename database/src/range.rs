//! The live entries of a database within bounds, from both ends.

use std::collections::{HashMap, VecDeque};
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Version};
use leveltable::{Comparator, DbTable, Error, ErrorKind, Result};

use crate::database::Shared;
use crate::manifest::TableFile;
use crate::state::{MOST_ATTEMPTS, State};

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The live entries of a database within bounds, from both ends; made by [`Database::range`](crate::Database::range) and the like.
///
/// Owns what it needs. Shows the database as of its first entry, whatever a writer or a refresh does meanwhile. Ends after its first
/// error. One error is of kind [`ErrorKind::Replaced`]: the writer has removed a table that the range had not come to yet.
/// [`Database::pin`](crate::Database::pin) prevents that on Unix.
#[derive(Debug)]
#[must_use]
pub struct DatabaseRange {
    shared: Arc<Shared>,
    bounds: Bounds,
    walk: Walk,
}

#[derive(Debug)]
enum Walk {
    /// Nothing was taken yet.
    Fresh,
    Segments(Box<Segments>),
    Unordered(Box<Unordered>),
    /// Keys of one prefix were asked for.
    Prefix(Vec<u8>),
    Done,
}

/// Which end entries are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl DatabaseRange {
    pub(crate) fn new(shared: Arc<Shared>, bounds: Bounds) -> DatabaseRange {
        let walk = Walk::Fresh;
        DatabaseRange {
            shared,
            bounds,
            walk,
        }
    }

    pub(crate) fn of_prefix(shared: Arc<Shared>, prefix: &[u8]) -> DatabaseRange {
        let bounds = (Bound::Unbounded, Bound::Unbounded);
        DatabaseRange {
            walk: Walk::Prefix(prefix.to_vec()),
            ..DatabaseRange::new(shared, bounds)
        }
    }

    /// Takes the first entry or the last; reads the database again if a table has vanished since it was read.
    fn start(&mut self, end: End) -> Option<Result<(Bytes, Bytes)>> {
        let mut attempt = 0;
        loop {
            let state = self.shared.state();
            let taken = Walk::over(state, &self.bounds, end).and_then(|walk| {
                self.walk = walk;
                self.walk.take(end).transpose()
            });
            attempt += 1;
            match taken {
                Err(error) if error.kind() == ErrorKind::Replaced && attempt < MOST_ATTEMPTS => {
                    if let Err(error) = self.shared.read_again() {
                        return Some(Err(error));
                    }
                }
                taken => return taken.transpose(),
            }
        }
    }

    fn take(&mut self, end: End) -> Option<Result<(Bytes, Bytes)>> {
        if let Walk::Prefix(prefix) = &self.walk {
            match prefix_bounds(&self.shared.state(), prefix) {
                Ok(bounds) => (self.bounds, self.walk) = (bounds, Walk::Fresh),
                Err(error) => {
                    self.walk = Walk::Done;
                    return Some(Err(error));
                }
            }
        }
        let taken = match self.walk {
            Walk::Fresh => self.start(end),
            _ => self.walk.take(end),
        };
        if !matches!(taken, Some(Ok(_))) {
            self.walk = Walk::Done;
        }
        taken
    }
}

/// The bounds of the keys that begin with `prefix`.
fn prefix_bounds(state: &State, prefix: &[u8]) -> Result<Bounds> {
    let name = state.known_order()?.name();
    if name != leveltable::BytewiseComparator.name() {
        let message =
            format!("keys of one prefix need not lie together in the order {name:?}: use a range");
        return Err(Error::new(ErrorKind::Comparator, message));
    }
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xff).is_some() {}
    let upper = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    Ok((Bound::Included(prefix.to_vec()), upper))
}

impl Walk {
    fn over(state: Arc<State>, bounds: &Bounds, end: End) -> Result<Walk> {
        if let (Bound::Unbounded, Bound::Unbounded) = bounds
            && state.order.is_none()
            && end == End::Front
        {
            return Ok(Walk::Unordered(Box::new(Unordered::new(state)?)));
        }
        let order = state.known_order()?.clone();
        if excludes_all(&*order, bounds) {
            return Ok(Walk::Done);
        }
        let segments = Segments::new(state, order, bounds.clone());
        Ok(Walk::Segments(Box::new(segments)))
    }

    #[inline]
    fn take(&mut self, end: End) -> Option<Result<(Bytes, Bytes)>> {
        let entry = match (&mut *self, end) {
            (Walk::Segments(segments), _) => segments.take(end)?,
            (Walk::Unordered(unordered), End::Front) => unordered.next()?,
            (Walk::Unordered(unordered), End::Back) => Err(unordered.no_way_back()),
            (Walk::Fresh | Walk::Prefix(_) | Walk::Done, _) => return None,
        };
        Some(entry.map(|entry| {
            (
                entry.user_key,
                entry.version.into_value().unwrap_or_default(),
            )
        }))
    }
}

/// A walk in parts, so that tables are opened when it comes to them, and few of them are merged at a time: the bounds are cut where
/// tables of sorted levels begin.
#[derive(Debug)]
struct Segments {
    state: Arc<State>,
    order: Arc<dyn Comparator>,
    bounds: Bounds,
    /// User keys at which segments begin that no end has come to, in order.
    cuts: VecDeque<Vec<u8>>,
    /// Whether there is a segment that no end has come to.
    is_between: bool,
    front: Option<DbRange>,
    back: Option<DbRange>,
}

impl Segments {
    fn new(state: Arc<State>, order: Arc<dyn Comparator>, bounds: Bounds) -> Segments {
        let sorted = state.levels.0.iter().skip(1).flatten();
        let starts = sorted.map(|file| file.first_user_key());
        let is_within = |key: &&[u8]| match (&bounds.0, &bounds.1) {
            (Bound::Included(lower) | Bound::Excluded(lower), _)
                if order.compare(key, lower).is_le() =>
            {
                false
            }
            (_, Bound::Included(upper) | Bound::Excluded(upper)) => {
                order.compare(key, upper).is_lt()
            }
            _ => true,
        };
        let mut cuts: Vec<Vec<u8>> = starts.filter(is_within).map(<[u8]>::to_vec).collect();
        cuts.sort_by(|a, b| order.compare(a, b));
        cuts.dedup_by(|a, b| order.compare(a, b).is_eq());
        Segments {
            cuts: cuts.into(),
            state,
            order,
            bounds,
            is_between: true,
            front: None,
            back: None,
        }
    }

    #[inline]
    fn take(&mut self, end: End) -> Option<Result<DbEntry>> {
        let (near, far) = match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        };
        let step = |range: &mut Option<DbRange>| match (range, end) {
            (Some(range), End::Front) => range.next(),
            (Some(range), End::Back) => range.next_back(),
            (None, _) => None,
        };
        if let Some(entry) = step(near) {
            return Some(entry);
        }
        if !self.is_between {
            return step(far);
        }
        self.take_next_segment(end)
    }

    #[inline(never)]
    fn take_next_segment(&mut self, end: End) -> Option<Result<DbEntry>> {
        while self.is_between {
            let segment = match self.open_segment(end) {
                Ok(segment) => segment,
                Err(error) => return Some(Err(self.explain(error))),
            };
            let (slot, entry) = match end {
                End::Front => (&mut self.front, segment),
                End::Back => (&mut self.back, segment),
            };
            let range = slot.insert(entry);
            let entry = match end {
                End::Front => range.next(),
                End::Back => range.next_back(),
            };
            if entry.is_some() {
                return entry;
            }
        }
        match end {
            End::Front => self.back.as_mut()?.next(),
            End::Back => self.front.as_mut()?.next_back(),
        }
    }

    /// Takes the first or the last segment of those between the ends.
    fn open_segment(&mut self, end: End) -> Result<DbRange> {
        let cut = match end {
            End::Front => self.cuts.pop_front(),
            End::Back => self.cuts.pop_back(),
        };
        let bounds = match (cut, end) {
            (None, _) => {
                self.is_between = false;
                self.bounds.clone()
            }
            (Some(cut), End::Front) => {
                let lower = std::mem::replace(&mut self.bounds.0, Bound::Included(cut.clone()));
                (lower, Bound::Excluded(cut))
            }
            (Some(cut), End::Back) => {
                let upper = std::mem::replace(&mut self.bounds.1, Bound::Excluded(cut.clone()));
                (Bound::Included(cut), upper)
            }
        };
        let mut inputs = Vec::new();
        if !self.state.memtable.is_empty() {
            inputs.push(self.state.memtable.range(bounds.clone()));
        }
        for (_, file) in self.state.levels.all() {
            if self.overlaps(file, &bounds) {
                inputs.push(self.state.table(file)?.range(bounds.clone()));
            }
        }
        Ok(DbTable::merge(inputs)?.at(MAX_SEQUENCE).into_iter())
    }

    fn overlaps(&self, file: &TableFile, (lower, upper): &Bounds) -> bool {
        let (first, last) = (file.first_user_key(), file.last_user_key());
        let is_above = match lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => self.order.compare(last, lower).is_ge(),
            Bound::Excluded(lower) => self.order.compare(last, lower).is_gt(),
        };
        is_above
            && match upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => self.order.compare(first, upper).is_le(),
                Bound::Excluded(upper) => self.order.compare(first, upper).is_lt(),
            }
    }

    #[cold]
    fn explain(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Replaced {
            return error;
        }
        let message = format!(
            "{error}, and the range had not come to it: make another range, or pin the database before"
        );
        Error::new(ErrorKind::Replaced, message)
    }
}

/// Whether no key can be within the bounds.
fn excludes_all(order: &dyn Comparator, bounds: &Bounds) -> bool {
    match bounds {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => order.compare(lower, upper).is_gt(),
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => order.compare(lower, upper).is_ge(),
    }
}

/// A walk in the order in which files store entries, for an order that is not known.
#[derive(Debug)]
struct Unordered {
    state: Arc<State>,
    /// The newest version of each user key.
    newest: HashMap<Bytes, u64>,
    /// Numbers of inputs that no entry was taken of: 0 for the logs, then the tables.
    next: usize,
    input: DbRange,
}

impl Unordered {
    /// Reads everything once.
    fn new(state: Arc<State>) -> Result<Unordered> {
        let mut newest: HashMap<Bytes, u64> = HashMap::new();
        let tables = state.levels.all().map(|(_, file)| state.table(file));
        let tables = tables.map(|table| table.map(|table| table.iter()));
        for input in tables.chain([Ok(state.memtable.iter())]) {
            for entry in input? {
                let entry = entry?;
                let slot = newest.entry(entry.user_key).or_default();
                *slot = entry.sequence.max(*slot);
            }
        }
        Ok(Unordered {
            input: state.memtable.iter(),
            state,
            newest,
            next: 0,
        })
    }

    fn next(&mut self) -> Option<Result<DbEntry>> {
        loop {
            for entry in &mut self.input {
                match &entry {
                    Ok(DbEntry {
                        version: Version::Deleted,
                        ..
                    }) => {}
                    Ok(live) if self.newest.get(&live.user_key) != Some(&live.sequence) => {}
                    _ => return Some(entry),
                }
            }
            let (_, file) = self.state.levels.all().nth(self.next)?;
            self.next += 1;
            match self.state.table(file) {
                Ok(table) => self.input = table.iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    #[cold]
    fn no_way_back(&self) -> Error {
        match self.state.known_order() {
            Err(error) => error,
            Ok(_) => Error::new(ErrorKind::InvalidState, "entries are read from the front"),
        }
    }
}

impl Iterator for DatabaseRange {
    type Item = Result<(Bytes, Bytes)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take(End::Front)
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(End::Back)
    }
}

impl FusedIterator for DatabaseRange {}
