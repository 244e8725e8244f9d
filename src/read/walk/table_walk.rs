//! What a range walks.

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

impl TableWalk {
    /// The entries of a sorted input within bounds; none, and the error, if its order is not known.
    pub(crate) fn of_foreign(
        cursor: impl AnyCursor + 'static,
        bounds: Bounds,
    ) -> (TableWalk, Option<Error>) {
        let foreign = Foreign::new(cursor, bounds).map(Input::Foreign);
        let (inputs, error) = match foreign {
            Ok(input) => (vec![input], None),
            Err(error) => (Vec::new(), Some(error)),
        };
        (TableWalk::Merge(MergeCursor::of_ordered(inputs)), error)
    }

    /// The entries of tables that are opened when it comes to them.
    pub(crate) fn of_run(run: impl TableRun + 'static, bounds: Bounds) -> TableWalk {
        let run = Run::of_tables(Arc::new(run), bounds);
        TableWalk::Merge(MergeCursor::of_ordered(vec![Input::Run(run)]))
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
        match self {
            TableWalk::One(cursor) => cursor.key(),
            TableWalk::Merge(merged) => merged.key(),
        }
    }

    pub(crate) fn order(&self) -> Result<&Order> {
        match self {
            TableWalk::One(cursor) => cursor.order(),
            TableWalk::Merge(merged) => merged.order(),
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            TableWalk::One(cursor) => cursor.seek(key),
            TableWalk::Merge(merged) => merged.seek(key),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            TableWalk::One(cursor) => cursor.value(),
            TableWalk::Merge(merged) => merged.value(),
        }
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> Bytes {
        match self {
            TableWalk::One(cursor) => cursor.value_bytes(),
            TableWalk::Merge(merged) => merged.value_bytes(),
        }
    }

    /// Moves before the first entry, without reading.
    pub(crate) fn rewind(&mut self) {
        match self {
            TableWalk::One(cursor) => drop(cursor.unposition(Some(Direction::Backward))),
            TableWalk::Merge(merged) => merged.rewind(),
        }
    }

    /// Offset in its file of the block that the current entry lies in.
    pub(crate) fn block_offset(&self) -> u64 {
        match self {
            TableWalk::One(cursor) => cursor.block_offset(),
            TableWalk::Merge(merged) => merged.block_offset(),
        }
    }

    /// The error of a defect in the current entry. The walk has no position then.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        match self {
            TableWalk::One(cursor) => cursor.fail(defect),
            TableWalk::Merge(merged) => merged.fail(defect),
        }
    }
}

impl Walk for TableWalk {
    type Entry = (Bytes, Bytes);

    #[inline]
    fn is_on_entry(&self) -> bool {
        match self {
            TableWalk::One(cursor) => cursor.is_valid(),
            TableWalk::Merge(merged) => merged.is_valid(),
        }
    }

    fn is_before_first(&self) -> bool {
        match self {
            TableWalk::One(cursor) => cursor.is_before_first(),
            TableWalk::Merge(merged) => merged.is_before_first(),
        }
    }

    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Result<bool> {
        match self {
            TableWalk::One(cursor) => cursor.step(direction),
            TableWalk::Merge(merged) => step_merge(merged, direction),
        }
    }

    fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        match self {
            TableWalk::One(cursor) => cursor.seek_to_start(direction),
            TableWalk::Merge(merged) => merged.seek_to_start(direction),
        }
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
