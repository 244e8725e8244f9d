//! An input of a merge.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
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

/// The same for either kind of input.
macro_rules! each {
    ($of:ident, $input:ident => $result:expr) => {
        match $of {
            Input::Run($input) => $result,
            Input::Foreign($input) => $result,
        }
    };
}

impl Input {
    pub(crate) fn order(&self) -> &Order {
        each!(self, input => &input.order)
    }

    /// Whether it is known without reading that it has no entry.
    pub(crate) fn is_ruled_out(&self) -> Result<bool> {
        match self {
            Input::Run(run) => run.is_ruled_out(),
            Input::Foreign(_) => Ok(false),
        }
    }

    /// The cursor over the open table.
    pub(crate) fn cursor(&self) -> Option<&Cursor> {
        match self {
            Input::Run(run) => run.cursor(),
            Input::Foreign(_) => None,
        }
    }

    /// The current key, which may be unread; `None` on no entry.
    #[inline(always)]
    pub(crate) fn current_key(&self) -> Option<&[u8]> {
        each!(self, input => input.current_key())
    }

    /// Whether the current entry can be lent.
    #[inline(always)]
    pub(crate) fn is_read(&self) -> bool {
        each!(self, input => input.is_read())
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        each!(self, input => input.value())
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        each!(self, input => input.value_bytes())
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        each!(self, input => input.seek(key))
    }

    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        each!(self, input => input.seek_to_start(direction))
    }

    #[inline(always)]
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        each!(self, input => input.step(direction))
    }

    /// Reads the current entry if only its key is known. Returns whether there is one.
    pub(crate) fn read(&mut self) -> Result<bool> {
        match self {
            Input::Run(run) => run.read(),
            Input::Foreign(foreign) => Ok(foreign.is_read()),
        }
    }
}
