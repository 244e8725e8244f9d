//! The entries of remote tables and sets, for a loop that blocks.

use std::path::Path;

use leveltable::remote::AsyncRange;
use leveltable::{OpenOptions, Result};
use leveltable_object_store::set::SetRange;
use tokio::runtime::Runtime;

use super::object::TAIL_LEN;
use super::{object, runtime, wait};
use crate::open::{Bounds, Row};

/// Entries of a table or a set.
pub(crate) struct Rows {
    range: Range,
    runtime: &'static Runtime,
}

enum Range {
    Table(Box<AsyncRange>),
    Set(Box<SetRange>),
}

/// Which way a walk goes.
#[derive(Clone, Copy)]
pub(crate) struct Direction {
    pub(crate) reverse: bool,
    /// Whether it is to reach the end of its bounds, and not only their first entries.
    pub(crate) is_whole: bool,
}

/// Returns the entries within `bounds` of the table at the URL `path`, whose keys are plain ones in order.
pub(crate) fn rows(path: &Path, bounds: Bounds, direction: Direction) -> Result<Rows> {
    let runtime = runtime()?;
    let options = OpenOptions::new().no_filter().no_cache();
    let opened = wait(runtime, options.open_async(object(path)?, Some(TAIL_LEN)));
    let mut range = opened?.range(bounds);
    if direction.is_whole {
        range = range.expect_all();
    }
    if direction.reverse {
        range = range.reverse();
    }
    let range = Range::Table(Box::new(range));
    Ok(Rows { range, runtime })
}

/// Returns the entries of a set's `range`.
pub(super) fn rows_of_set(
    mut range: SetRange,
    direction: Direction,
    runtime: &'static Runtime,
) -> Rows {
    if direction.is_whole {
        range = range.expect_all();
    }
    if direction.reverse {
        range = range.reverse();
    }
    let range = Range::Set(Box::new(range));
    Rows { range, runtime }
}

impl Iterator for Rows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let next = match &mut self.range {
            Range::Table(range) => wait(self.runtime, range.next()),
            Range::Set(range) => wait(self.runtime, range.next()),
        };
        let next = next.transpose()?;
        Some(next.map(|(key, value)| Row {
            key,
            tag: None,
            value,
        }))
    }
}
