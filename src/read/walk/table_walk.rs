//! The walk of a range.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, Result};
use crate::format::Defect;
use crate::read::parts::bounds::{Bounds, Direction};
use crate::read::walk::cursor::Cursor;
use crate::read::walk::ends::Walk;
use crate::read::walk::foreign::{AnyCursor, Foreign};
use crate::read::walk::input::Input;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::run::{Run, TableRun};

/// One table, or a merge.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of one table")]
pub(crate) enum TableWalk {
    One(Cursor),
    Merge(MergeCursor),
}

/// The same for either kind of walk.
macro_rules! each {
    ($of:ident, $walk:ident => $result:expr) => {
        match $of {
            TableWalk::One($walk) => $result,
            TableWalk::Merge($walk) => $result,
        }
    };
}

impl TableWalk {
    /// The entries of a sorted input within bounds; none, and the error, if its order is not known.
    pub(crate) fn of_foreign(
        cursor: impl AnyCursor + 'static,
        bounds: Bounds,
    ) -> (TableWalk, Option<Error>) {
        let (merged, error) = match Foreign::new(cursor, bounds) {
            Ok(foreign) => (MergeCursor::of_input(Input::Foreign(foreign)), None),
            Err(error) => (MergeCursor::new(Vec::new(), Order::Bytewise), Some(error)),
        };
        (TableWalk::Merge(merged), error)
    }

    /// The entries of tables that are opened when the walk reaches them.
    pub(crate) fn of_run(run: impl TableRun + 'static, bounds: Bounds) -> TableWalk {
        let run = Run::of_tables(Arc::new(run), bounds);
        TableWalk::Merge(MergeCursor::of_input(Input::Run(run)))
    }

    /// A merge of several walks.
    pub(crate) fn merge(all: impl IntoIterator<Item = Result<TableWalk>>) -> Result<MergeCursor> {
        let mut inputs = Vec::new();
        for walk in all {
            match walk? {
                TableWalk::One(cursor) => inputs.push(Input::Run(Run::of_cursor(cursor)?)),
                TableWalk::Merge(merged) => inputs.extend(merged.into_inputs()),
            }
        }
        MergeCursor::of_inputs(inputs)
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each!(self, walk => walk.key())
    }

    pub(crate) fn order(&self) -> Result<&Order> {
        each!(self, walk => walk.order())
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        each!(self, walk => walk.seek(key))
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        each!(self, walk => walk.value())
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> Bytes {
        each!(self, walk => walk.value_bytes())
    }

    /// Moves to before the first entry, without reading.
    pub(crate) fn rewind(&mut self) {
        each!(self, walk => walk.rewind());
    }

    /// Offset, in its file, of the block that contains the current entry.
    pub(crate) fn block_offset(&self) -> u64 {
        each!(self, walk => walk.block_offset())
    }

    /// The error of a defect in the current entry. The walk then has no position.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        each!(self, walk => walk.fail(defect))
    }
}

impl Walk for TableWalk {
    type Entry = (Bytes, Bytes);

    #[inline]
    fn is_on_entry(&self) -> bool {
        each!(self, walk => walk.is_valid())
    }

    fn is_before_first(&self) -> bool {
        each!(self, walk => walk.is_before_first())
    }

    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Result<bool> {
        match self {
            TableWalk::One(cursor) => cursor.step(direction),
            TableWalk::Merge(merged) => step_merge(merged, direction),
        }
    }

    fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        each!(self, walk => walk.seek_to_start(direction))
    }

    #[inline]
    fn entry(&self) -> (Bytes, Bytes) {
        (Bytes::copy_from_slice(self.key()), self.value_bytes())
    }

    fn compare(&self, other: &TableWalk) -> Result<Ordering> {
        match (self, other) {
            (TableWalk::Merge(merged), TableWalk::Merge(other)) => Ok(merged.compare(other)),
            _ => Ok(self.order()?.compare(self.key(), other.key())),
        }
    }
}

/// Not inlined: beside it, a loop over one table took a tenth longer.
#[inline(never)]
fn step_merge(merged: &mut MergeCursor, direction: Direction) -> Result<bool> {
    merged.step(direction)
}
