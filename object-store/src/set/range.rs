//! The entries of a set within bounds.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::remote::AsyncRange;
use leveltable::{Error, ErrorKind, Result};
use tokio::task::JoinSet;

use super::open_set::OpenSet;
use super::shard::Shard;
#[cfg(doc)]
use super::table_set::TableSet;
use crate::source::join;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
type Entry = (Bytes, Bytes);

/// The entries of a [`TableSet`] within bounds, in order; made by [`TableSet::range`].
///
/// [`next`](SetRange::next) returns entries to keep; [`advance`](SetRange::advance) lends them until its next call, which
/// takes less time.
///
/// Ends after its first error: no entry is skipped silently. Once a walk has returned half of a shard's bytes, a task opens the
/// next shard and fetches its first blocks; a walk that begins past the middle opens it when it gets there. The task ends when the
/// walk is dropped.
#[must_use]
pub struct SetRange {
    set: Arc<OpenSet>,
    bounds: Bounds,
    /// The shards that have not been started.
    left: std::ops::Range<usize>,
    here: Option<Walk>,
    /// The start of the shard before `left`, in flight.
    ahead: JoinSet<Result<Walk>>,
    expects_all: bool,
    is_reverse: bool,
}

/// A walk through one shard.
struct Walk {
    range: AsyncRange,
    /// Whether it has moved to its first entry, which has not been requested yet.
    is_at_first: bool,
    /// Bytes of keys and values until the next shard is started.
    until_ahead: u64,
}

impl fmt::Debug for SetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetRange")
            .field("bounds", &self.bounds)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl SetRange {
    pub(super) fn new(set: &Arc<OpenSet>, bounds: Bounds) -> SetRange {
        let shards = &set.shards;
        let is_before = |shard: &Shard| match &bounds.0 {
            Bound::Included(lower) => shard.last_key < lower,
            Bound::Excluded(lower) => shard.last_key <= lower,
            Bound::Unbounded => false,
        };
        let is_not_after = |shard: &Shard| match &bounds.1 {
            Bound::Included(upper) => shard.first_key <= upper,
            Bound::Excluded(upper) => shard.first_key < upper,
            Bound::Unbounded => true,
        };
        SetRange {
            set: Arc::clone(set),
            left: shards.partition_point(is_before)..shards.partition_point(is_not_after),
            bounds,
            here: None,
            ahead: JoinSet::new(),
            expects_all: false,
            is_reverse: false,
        }
    }

    /// Says that all entries will be read: requests are long from the first on; see [`AsyncRange::expect_all`].
    pub fn expect_all(mut self) -> SetRange {
        self.expects_all = true;
        self
    }

    /// Returns the entries from the last to the first. Call it before the first [`next`](SetRange::next).
    pub fn reverse(mut self) -> SetRange {
        self.is_reverse = true;
        self
    }

    /// Returns the next entry, or `None` after the last.
    ///
    /// Dropping the future before it is ready takes no entry: the next call returns it.
    ///
    /// # Errors
    ///
    /// Same as [`TableSet::get`]. The range then ends.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        let moved = self.advance().await?;
        Ok(moved.then(|| self.entry()))
    }

    /// Moves to the next entry; the first call moves to the first one. Returns `false` after the last.
    ///
    /// The range lends the entry as [`key`](SetRange::key) and [`value`](SetRange::value), without allocating, until the next
    /// call. Dropping the future before it is ready takes no entry.
    ///
    /// ```
    /// # use leveltable_object_store::set::TableSet;
    /// # async fn sum(set: TableSet) -> leveltable::Result<usize> {
    /// let (mut all, mut bytes) = (set.range(..), 0);
    /// while all.advance().await? {
    ///     bytes += all.key().len() + all.value().len();
    /// }
    /// # Ok(bytes)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`next`](SetRange::next).
    pub async fn advance(&mut self) -> Result<bool> {
        let moved = self.step().await;
        if !matches!(moved, Ok(true)) {
            // No entry remains.
            (self.here, self.ahead, self.left) = (None, JoinSet::new(), 0..0);
        }
        moved
    }

    /// The current key; empty before the first entry, after the last, after an error, and after a call of
    /// [`advance`](SetRange::advance) that was dropped while it waited.
    pub fn key(&self) -> &[u8] {
        self.here.as_ref().map_or(&[], |here| here.range.key())
    }

    /// The current value; empty like [`key`](SetRange::key).
    pub fn value(&self) -> &[u8] {
        self.here.as_ref().map_or(&[], |here| here.range.value())
    }

    /// The current entry, to keep: a copy of the key, and a slice of the value's block. Both are empty when
    /// [`key`](SetRange::key) is.
    pub fn entry(&mut self) -> (Bytes, Bytes) {
        let here = self.here.as_mut();
        here.map_or_else(Default::default, |here| here.range.entry())
    }

    async fn step(&mut self) -> Result<bool> {
        loop {
            if let Some(here) = &mut self.here {
                if here.advance().await? {
                    if here.until_ahead == 0 && self.ahead.is_empty() {
                        self.begin(true);
                    }
                    return Ok(true);
                }
                self.here = None;
            }
            if self.ahead.is_empty() && !self.begin(self.expects_all) {
                return Ok(false);
            }
            let begun = join(&mut self.ahead).await;
            let begun = begun.map_err(|error| Error::io("beginning a shard", error))?;
            self.here = Some(begun?);
        }
    }

    /// Starts the next shard, if there is one, in its own task: opens it and moves to its first entry within the bounds.
    fn begin(&mut self, expects_all: bool) -> bool {
        let next = if self.is_reverse {
            self.left.next_back()
        } else {
            self.left.next()
        };
        let Some(shard) = next else {
            return false;
        };
        // The bounds may end within the last shard.
        let expects_all = expects_all && (self.expects_all || !self.left.is_empty());
        let (set, bounds, is_reverse) =
            (Arc::clone(&self.set), self.bounds.clone(), self.is_reverse);
        let walk = Walk::begin(set, bounds, shard, expects_all, is_reverse);
        self.ahead.spawn(walk);
        true
    }
}

impl Walk {
    async fn begin(
        set: Arc<OpenSet>,
        bounds: Bounds,
        shard: usize,
        expects_all: bool,
        is_reverse: bool,
    ) -> Result<Walk> {
        let Some(shard) = set.shards.get(shard) else {
            return Err(Error::new(ErrorKind::InvalidState, "no such shard"));
        };
        let table = set.table(shard).await?;
        let properties = table.properties();
        let bytes = properties.map_or(table.file_bytes(), |p| {
            p.key_bytes.saturating_add(p.value_bytes)
        });
        let states_keys = properties.is_some_and(|p| p.first_key.is_some() && p.last_key.is_some());
        let mut range = table.range(if states_keys {
            bounds
        } else {
            // It has not been checked that its keys are those of the manifest.
            within(bounds, shard)
        });
        if expects_all {
            range = range.expect_all();
        }
        if is_reverse {
            range = range.reverse();
        }
        Ok(Walk {
            is_at_first: range.advance().await?,
            range,
            until_ahead: bytes / 2,
        })
    }

    /// Moves to the next entry of the shard.
    async fn advance(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.is_at_first) {
            return Ok(true);
        }
        let moved = self.range.advance().await?;
        let bytes = (self.range.key().len() + self.range.value().len()) as u64;
        self.until_ahead = self.until_ahead.saturating_sub(bytes);
        Ok(moved)
    }
}

/// The part of `bounds` that lies within the keys of `shard`.
fn within((lower, upper): Bounds, shard: &Shard) -> Bounds {
    let clamp = |bound: Bound<Vec<u8>>, end: &Bytes| match bound {
        Bound::Included(key) if shard.covers(&key) => Bound::Included(key),
        Bound::Excluded(key) if shard.covers(&key) => Bound::Excluded(key),
        // Only shards that overlap the bounds are walked.
        _ => Bound::Included(end.to_vec()),
    };
    (
        clamp(lower, &shard.first_key),
        clamp(upper, &shard.last_key),
    )
}
