//! An input of a merge.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, Result, Section};
use crate::format::Defect;
use crate::read::parts::bounds::Direction;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::foreign::Foreign;
use crate::read::walk::run::Run;

/// Entries of tables, or of another kind of sorted input.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of tables")]
pub(crate) enum Input {
    Run(Run),
    Foreign(Foreign),
}

impl Input {
    pub(crate) fn order(&self) -> &Order {
        match self {
            Input::Run(run) => &run.order,
            Input::Foreign(foreign) => &foreign.order,
        }
    }

    /// Whether it is known without reading that it has no entry.
    pub(crate) fn is_ruled_out(&self) -> Result<bool> {
        match self {
            Input::Run(run) => run.is_ruled_out(),
            Input::Foreign(_) => Ok(false),
        }
    }

    /// The cursor over the open table.
    #[inline(always)]
    pub(crate) fn cursor(&self) -> Option<&Cursor> {
        match self {
            Input::Run(run) => run.cursor(),
            Input::Foreign(_) => None,
        }
    }

    /// The current key, which may be unread; `None` on no entry.
    #[inline(always)]
    pub(crate) fn current_key(&self) -> Option<&[u8]> {
        match self {
            Input::Run(run) => run.current_key(),
            Input::Foreign(foreign) => foreign.key(),
        }
    }

    /// Whether the current entry can be lent.
    #[inline(always)]
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Input::Run(run) => run.cursor().is_some_and(Cursor::is_valid),
            Input::Foreign(foreign) => foreign.key().is_some(),
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Input::Run(run) => run.cursor().map_or(&[], Cursor::key),
            Input::Foreign(foreign) => foreign.key().unwrap_or(&[]),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Input::Run(run) => run.cursor().map_or(&[], Cursor::value),
            Input::Foreign(foreign) => foreign.value(),
        }
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        match self {
            Input::Run(run) => run.cursor().map_or_else(Bytes::new, Cursor::value_bytes),
            Input::Foreign(foreign) => foreign.value_bytes(),
        }
    }

    /// Moves to before the first entry, without reading.
    pub(crate) fn rewind(&mut self) {
        match self {
            Input::Run(run) => run.rewind(),
            Input::Foreign(foreign) => foreign.rewind(),
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Input::Run(run) => run.seek(key),
            Input::Foreign(foreign) => foreign.seek(key),
        }
    }

    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        match self {
            Input::Run(run) => run.seek_to_start(direction),
            Input::Foreign(foreign) => foreign.seek_to_start(direction),
        }
    }

    #[inline(always)]
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        match self {
            Input::Run(run) => run.step(direction),
            Input::Foreign(foreign) => foreign.step(direction),
        }
    }

    /// Reads the current entry if only its key is known. Returns whether there is one.
    pub(crate) fn read(&mut self) -> Result<bool> {
        match self {
            Input::Run(run) => run.read(),
            Input::Foreign(foreign) => Ok(foreign.key().is_some()),
        }
    }

    /// The error of a defect in the current entry. The position is lost.
    #[cold]
    pub(crate) fn fail(&mut self, defect: Defect) -> Error {
        match self {
            Input::Run(run) => run.fail(defect),
            Input::Foreign(foreign) => {
                foreign.rewind();
                defect.locate(Section::Data, 0)
            }
        }
    }

    /// Adds the path of the open table to an error.
    pub(crate) fn with_path(&self, error: Error) -> Error {
        match self.cursor() {
            Some(cursor) => cursor.table.opened.store.file.with_path(error),
            None => error,
        }
    }
}
