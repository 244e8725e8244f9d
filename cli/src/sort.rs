//! The orders of tables' keys, and sorting and merging entries in them.

use std::fmt::Display;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use leveltable::db::{InternalKey, InternalKeyComparator};
use leveltable::{BytewiseComparator, Comparator, Error, ErrorKind};
use leveltable::{SortedInput, Sorter, Table, TableRange};
use leveltable_database::IndexedDbComparator;

use crate::failure::Failure;
use crate::notation::quoted;
use crate::output::Progress;

/// The order of a table's stored keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    Bytewise,
    /// The order of a database: ascending by user key, then descending by sequence number.
    Internal,
    /// The order of a database whose user keys are those of Chrome's IndexedDB.
    IndexedDb,
    /// The order of such user keys, without sequence numbers.
    IndexedDbUser,
}

/// Parses the name of a comparator that is built in for databases.
pub(crate) fn comparators() -> impl TypedValueParser<Value = KeyOrder> {
    let names = [BytewiseComparator.name(), IndexedDbComparator.name()];
    let names = PossibleValuesParser::new(names);
    names.try_map(|name| KeyOrder::of_database(&name).ok_or("not a known comparator"))
}

/// The orders of databases that are known.
const DATABASES: [KeyOrder; 2] = [KeyOrder::Internal, KeyOrder::IndexedDb];

impl KeyOrder {
    /// Returns the default order: of a database's tables, or of plain ones.
    pub(crate) fn of(is_database: bool) -> KeyOrder {
        if is_database {
            KeyOrder::Internal
        } else {
            KeyOrder::Bytewise
        }
    }

    /// Returns the order of the tables of a database whose MANIFEST names this comparator, if it is known.
    pub(crate) fn of_database(comparator: &str) -> Option<KeyOrder> {
        let mut orders = DATABASES.into_iter();
        orders.find(|order| order.of_user_keys().name() == comparator)
    }

    pub(crate) fn is_database(self) -> bool {
        DATABASES.contains(&self)
    }

    /// Returns the order of a database's user keys, or of all keys of another table.
    pub(crate) fn of_user_keys(self) -> Arc<dyn Comparator> {
        match self {
            KeyOrder::Bytewise | KeyOrder::Internal => Arc::new(BytewiseComparator),
            KeyOrder::IndexedDb | KeyOrder::IndexedDbUser => Arc::new(IndexedDbComparator),
        }
    }

    /// Returns the order of the stored keys.
    pub(crate) fn comparator(self) -> Arc<dyn Comparator> {
        if self.is_database() {
            Arc::new(InternalKeyComparator::new(self.of_user_keys()))
        } else {
            self.of_user_keys()
        }
    }

    /// Returns a stored key as text, for messages.
    pub(crate) fn show(self, key: &[u8]) -> String {
        match InternalKey::parse(key).filter(|_| self.is_database()) {
            Some(key) => {
                let user_key = quoted(key.user_key, 100);
                format!("{user_key} at sequence {}", key.sequence)
            }
            None => quoted(key, 100),
        }
    }
}

/// Adds an entry to a new table.
pub(crate) type Add<'a> = dyn FnMut(&[u8], &[u8]) -> leveltable::Result<()> + 'a;

/// Creates a sorter for the entries of a table, which takes about `memory` bytes. If entries have the same key, keeps the
/// last, or all.
pub(crate) fn sorter(order: KeyOrder, keep_last: bool, memory: usize) -> Sorter {
    let sorter = Sorter::new().comparator(order.comparator());
    sorter.memory(memory).keep_all(!keep_last)
}

/// Returns the failure of a [`Sorter`], whose temporary files are in the default directory.
pub(crate) fn sort_failed(error: Error) -> Failure {
    match error.io_error() {
        Some(cause) => temporary_failure("sorting", cause),
        None => error.into(),
    }
}

/// Passes all entries to `add`, in order.
pub(crate) fn drain(sorter: Sorter, order: KeyOrder, add: &mut Add<'_>) -> Result<(), Failure> {
    let (mut progress, mut done) = (Progress::sorted(sorter.entries()), 0u64);
    let mut sorted = sorter.finish().map_err(sort_failed)?;
    while sorted.advance().map_err(sort_failed)? {
        add_sorted(order, &sorted, add)?;
        done += 1;
        // Asking for the time takes as long as adding an entry.
        if done.is_multiple_of(256) {
            progress.set(done);
        }
    }
    Ok(())
}

/// Returns the failure of `work` in a temporary file, which may need more space than its directory has.
pub(crate) fn temporary_failure(work: &str, error: &dyn Display) -> Failure {
    let directory = std::env::temp_dir();
    Failure::new(format!(
        "{work} in a temporary file in {}: {error}; TMPDIR names another directory",
        directory.display()
    ))
}

/// Passes the entries of all `inputs`, which are in one order, to `add`. If several entries have the same key, `keep_last` takes
/// that of the last input; otherwise that is an error.
pub(crate) fn merge(
    order: KeyOrder,
    keep_last: bool,
    inputs: Vec<TableRange>,
    add: &mut Add<'_>,
) -> Result<(), Failure> {
    // Of equal keys, the merge returns that of the first input first.
    let mut merged = Table::merge(inputs.into_iter().rev())?;
    let mut last: Option<Vec<u8>> = None;
    while merged.next()? {
        if keep_last && last.as_deref() == Some(merged.key()) {
            continue;
        }
        add_sorted(order, &merged, add)?;
        merged.key().clone_into(last.get_or_insert_default());
    }
    Ok(())
}

/// Adds the current entry of `input`, whose keys ascend except for duplicates.
fn add_sorted(order: KeyOrder, input: &impl SortedInput, add: &mut Add<'_>) -> Result<(), Failure> {
    add(input.key(), input.value()).map_err(|error| match error.kind() {
        ErrorKind::OutOfOrder => {
            let key = order.show(input.key());
            let what = "remove all but one, or use --keep-last";
            Failure::new(format!("duplicate key {key}: {what}"))
        }
        _ => error.into(),
    })
}
